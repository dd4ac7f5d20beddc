"""Making a kit: calls drawn at random and calls of the targets, run on a simulated GPU, and compiled for real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from calibration.gpu.kit import Item, Kit, digest, shown
from calibration.gpu.parts import Parts
from calibration.gpu.plans import PLANS, encoded
from calibration.gpu.targets import Target, calls, targets

import waxeq_cupy
from waxeq.backend.kernel import Kernel, prepare
from waxeq.egraph.kernels import patterns
from waxeq.errors import AccuracyError
from waxeq.runtime.files import require_writable
from waxeq.search.samples import samples
from waxeq.search.worker import encode_calls
from waxeq.testing.calls import generated
from waxeq.testing.conformance import check_call
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.nvrtc import Nvrtc
from waxeq_cupy.packed import ARCHITECTURES, images, launches

_BATCH, _TOGETHER = 16, 64
"""Calls whose kernels are compiled at once for the simulated GPU; kernels that are for real ones."""
Say = Callable[[str], object]


@dataclass(frozen=True)
class Scope:
    """What a kit has. `drawn`: random calls of each kernel; `grid`: calls of the calibration's grid; `small`: targets
    and plans at sizes that the simulated GPU can do, with its code; the other fields: what there is at most, by name.
    """

    drawn: int = 8
    grid: int = 150
    small: bool = False
    kernels: Collection[str] | None = None
    targets: Collection[str] | None = None
    plans: Sequence[str] = tuple(PLANS)


def write_kit(path: Path, scope: Scope, say: Say) -> None:
    """Write a kit; WAXEQ_CUDA is to be "virtual". What is made is kept beside it until it is whole, so that making one
    that was cut off goes on from there. Raises AccuracyError for a call that is wrong on the simulated GPU,
    MissingDevice where there is none, MissingCompiler where a kit for real GPUs would have no machine code, PlanError
    where the file cannot be written."""
    require_writable(path)
    if not scope.small:
        Nvrtc.found()
    parts = Parts(path)
    known = waxeq_cupy.backend().kernels
    kernels = {n: known[n] for n in known if known[n].form != "transfer" and n in (scope.kernels or known)}
    wanted = [t for t in targets() if scope.targets is None or t.name in scope.targets]
    items = [*_correct(kernels, wanted, scope.drawn), *_targets(kernels, wanted, scope), *_grid(kernels, scope.grid)]
    correct = [i for i in items if i.section == "correct"]
    items = [*_run(kernels, correct, parts, say), *(i for i in items if i.section != "correct")]
    plans, constants, more = encoded(scope.plans, kernels, parts.folder, small=scope.small, say=say)
    code = _compiled(launches([(known[c.kernel], c) for c in (*(i.call for i in items), *more)]), parts, scope, say)
    about = {"drawn": scope.drawn, "grid": scope.grid, "small": scope.small, "kernels": sorted(known)}
    Kit(items, code, plans, constants, about).write(path)
    parts.remove()
    say(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


def _correct(kernels: Mapping[str, Kernel], wanted: Sequence[Target], drawn: int) -> Iterator[Item]:
    for t in wanted:
        for c in calls(t, kernels, small=True):
            yield Item("correct", f"{t.name}, {c.kernel}", c, 1)
    for name, k in kernels.items():
        for n, c in enumerate(generated(name, k, np.random.default_rng(0), drawn) if drawn else ()):
            yield Item("correct", f"drawn {n}, {name}", c, n + 2)


def _targets(kernels: Mapping[str, Kernel], wanted: Sequence[Target], scope: Scope) -> Iterator[Item]:
    for t in wanted:
        for c in calls(t, kernels, small=scope.small):
            yield Item("target", f"{t.name}, {c.kernel}", c, target=t.name)


def _grid(kernels: Mapping[str, Kernel], most: int) -> Iterator[Item]:
    """Some calls of the calibration's grid, spread over it."""
    forms = patterns(kernels)
    rows = [c for s in samples(quick=True) for c in s.calls(kernels, forms)]
    for n in range(0, len(rows), -(-len(rows) // most)) if most and rows else ():
        yield Item("grid", f"{n}, {rows[n].kernel}", rows[n])


def _run(kernels: Mapping[str, Kernel], items: Sequence[Item], parts: Parts, say: Say) -> Iterator[Item]:
    """What the simulated GPU makes of calls, which takes most of the time."""
    start = time.monotonic()
    for at in range(0, len(items), _BATCH):
        batch = {_key(kernels[i.call.kernel], i): i for i in items[at : at + _BATCH]}
        known = {key: parts.row(*key) for key in batch}
        prepare([(kernels[i.call.kernel], i.call) for key, i in batch.items() if known[key] is None])
        for key, i in batch.items():
            if known[key] is None:
                made = _simulated(kernels[i.call.kernel], i)
                parts.keep([made.drawn, made.shown], *key)
                yield made
            else:
                yield replace(i, drawn=known[key][0], shown=tuple(known[key][1]))
        done = min(at + _BATCH, len(items))
        say(f"simulated GPU: {done} of {len(items)} calls, {time.monotonic() - start:.0f} s")


def _key(kernel: Kernel, i: Item) -> tuple[str, ...]:
    """What decides what becomes of a call on the simulated GPU."""
    return "simulated", kernel.code, encode_calls([i.call]), str(i.seed), i.case


def _ready(found: Mapping[str, Launch], scope: Scope) -> tuple[str, ...]:
    """What decides the machine code of kernels."""
    return "code", str(scope.small), *ARCHITECTURES, prelude(), *(x.source for x in found.values())


def _compiled(found: Mapping[str, Launch], parts: Parts, scope: Scope, say: Say) -> dict[str, bytes]:
    """Machine code of kernels for GPUs, as files of groups of them."""
    rows, code, groups = list(found.items()), dict[str, bytes](), -(-len(found) // _TOGETHER)
    for n in range(groups):
        some = dict(rows[n * _TOGETHER : (n + 1) * _TOGETHER])
        made = parts.files(lambda some=some: images(some, simulated=scope.small), *_ready(some, scope))
        code |= {f"{n}/{name}": content for name, content in made.items()}
        say(f"machine code: {n + 1} of {groups} parts, {sum(map(len, code.values())) / 2**20:.0f} MiB")
    return code


def _simulated(kernel: Kernel, i: Item) -> Item:
    """With what the simulated GPU makes of it. Raises AccuracyError."""
    rows: list[tuple[str, tuple[float, ...]]] = []
    wrong = check_call(
        kernel, i.call, np.random.default_rng(i.seed), lambda operands, out: rows.append((digest(operands), shown(out)))
    )
    if wrong is not None:
        raise AccuracyError(f"{i.case}: {wrong}")
    return replace(i, drawn=rows[0][0], shown=rows[0][1]) if rows else i
