"""Making a kit: calls drawn at random and calls of the targets, run on a simulated GPU, and compiled for real ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from calibration.gpu.kit import Item, Kit, digest, shown
from calibration.gpu.plans import PLANS, encoded
from calibration.gpu.targets import Target, calls, targets

import waxeq_cupy
from waxeq.backend.kernel import Kernel, prepare
from waxeq.egraph.kernels import patterns
from waxeq.errors import AccuracyError
from waxeq.runtime.files import require_writable
from waxeq.search.samples import samples
from waxeq.testing.calls import generated
from waxeq.testing.conformance import check_call
from waxeq_cupy.packed import images

_BATCH = 16
"""Kernels that are compiled for the simulated GPU at once."""


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


def write_kit(path: Path, scope: Scope, say: Callable[[str], object]) -> None:
    """Write a kit; WAXEQ_CUDA is to be "virtual". Raises AccuracyError for a call that is wrong on the simulated GPU,
    MissingDevice where there is none, PlanError where the file cannot be written."""
    require_writable(path)
    known = waxeq_cupy.backend().kernels
    kernels = {n: known[n] for n in known if known[n].form != "transfer" and n in (scope.kernels or known)}
    wanted = [t for t in targets() if scope.targets is None or t.name in scope.targets]
    items = [*_correct(kernels, wanted, scope.drawn), *_targets(kernels, wanted, scope), *_grid(kernels, scope.grid)]
    say(f"{len(items)} calls; those that are to be right go through the simulated GPU")
    correct = [i for i in items if i.section == "correct"]
    items = [*_run(kernels, correct), *(i for i in items if i.section != "correct")]
    say(f"plans of {len(scope.plans)} models")
    plans, constants, more = encoded(scope.plans, small=scope.small)
    say("machine code")
    rows = [(known[c.kernel], c) for c in (*(i.call for i in items), *more)]
    about = {"drawn": scope.drawn, "grid": scope.grid, "small": scope.small, "kernels": sorted(known)}
    Kit(items, images(rows, simulated=scope.small), plans, constants, about).write(path)


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


def _run(kernels: Mapping[str, Kernel], items: Sequence[Item]) -> Iterator[Item]:
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        prepare([(kernels[i.call.kernel], i.call) for i in batch])
        for i in batch:
            yield _simulated(kernels[i.call.kernel], i)


def _simulated(kernel: Kernel, i: Item) -> Item:
    """With what the simulated GPU makes of it. Raises AccuracyError."""
    rows: list[tuple[str, tuple[float, ...]]] = []
    wrong = check_call(
        kernel, i.call, np.random.default_rng(i.seed), lambda operands, out: rows.append((digest(operands), shown(out)))
    )
    if wrong is not None:
        raise AccuracyError(f"{i.case}: {wrong}")
    return replace(i, drawn=rows[0][0], shown=rows[0][1]) if rows else i
