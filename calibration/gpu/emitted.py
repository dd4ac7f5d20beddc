"""Every kernel that a search may choose for an example, compiled for GPUs that are not here."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import waxeq_cupy
from waxeq.backend.call import Call
from waxeq.compile import proposed
from waxeq.extract.candidates import variants
from waxeq.frontend.trace import Traced, trace
from waxeq.options import Options
from waxeq.search.result import Result
from waxeq.search.session import Session
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.nvrtc import CompileFailed, Nvrtc, Resources
from waxeq_cupy.packed import compiled_for, launches

TOLERANCE = 5e-3
"""Relative RMS error from which on every kernel may be chosen, those that round to tf32 too."""
_TOGETHER = 48
"""Kernels that are compiled at once: the text before them takes as long as one of them."""
_FEWEST = 2
"""Parts for each thread, so that none waits for the other's last one."""


def options(table: Path, *, algebra: bool = True) -> Options:
    """Of a search whose candidates are wanted, and not its choice. `table`: where timings would be; `algebra`: whether
    models are rewritten, and not only fused."""
    named: dict[str, Any] = {"backends": ("cupy",), "device": "cuda", "cost": "roofline", "tolerance": TOLERANCE}
    return Options.of(**named, table=table, algebra=algebra, trial=False, polish=False, fresh=True, budget=None)


def traced(path: Path) -> Traced:
    """An example, with its own inputs and weights."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given, weights = module.example_inputs(), getattr(module, "WEIGHTS", ())
    if hasattr(module, "weights"):
        given, weights = {**given, "weights": module.weights()}, ("weights",)
    return trace(module.model, given, weights=weights, name=path.stem)


def emitted(session: Session, traced: Traced) -> dict[str, Launch]:
    """The kernels of every candidate for a model, and of the other ways to make each, by name: for memory that begins
    at 16 bytes and for any other."""
    own = waxeq_cupy.backend().kernels
    found = proposed(session, traced)[0][0]
    return launches([(own[c.kernel], c) for c in _calls(found)])


def _calls(found: Result) -> Iterator[Call]:
    for block in found.blocks:
        assert block.problem is not None and block.space is not None, "a fresh search remembers nothing"
        for row in (*block.problem.makers.values(), *block.problem.spare.values()):
            for p in row:
                yield p.candidate.call
                yield from (v.call for v in variants(block.space, p.candidate))


def lines(x: Launch) -> frozenset[str]:
    """The lines of a kernel's text, whatever numbers are in them."""
    return frozenset(line for row in x.text.splitlines() if (line := re.sub(r"\d+", "#", row.strip())))


def structures(kernels: Iterable[Launch]) -> int:
    """How many kernels differ in more than numbers."""
    return len({re.sub(r"\d+", "#", x.text) for x in kernels})


def covering(kernels: Iterable[Launch]) -> list[Launch]:
    """A few kernels that have every line of all of them: the one with most lines that none before it has, again and
    again."""
    rows = {(x.architecture, *sorted(lines(x))): x for x in kernels}
    has = {key: {(key[0], line) for line in key[1:]} for key in rows}
    left, chosen = set().union(*has.values()), []
    while left:
        most = max(sorted(has), key=lambda key: len(has[key] & left))
        left -= has.pop(most)
        chosen.append(rows[most])
    return chosen


@dataclass(frozen=True)
class Built:
    """A kernel as machine code of one architecture; `resources`: or why there is none."""

    launch: Launch
    architecture: str
    resources: Resources | CompileFailed

    @property
    def fault(self) -> str:
        """What it takes that a GPU has not, or should not be asked for; "" where there is nothing."""
        x, r = self.launch, self.resources
        return r.excess(x.text, x.threads, x.shared) if isinstance(r, Resources) else str(r)


def built(compiler: Nvrtc, kernels: Mapping[str, Launch], threads: int) -> Iterator[Built]:
    """Kernels for every architecture that they are for, part by part."""
    wanted = {a: [kernels[n] for n in names] for a, names in compiled_for(kernels).items()}
    size = min(_TOGETHER, -(-sum(map(len, wanted.values())) // (_FEWEST * threads)))
    parts = [(a, rows[i : i + size]) for a, rows in wanted.items() for i in range(0, len(rows), size)]
    with ThreadPoolExecutor(threads) as pool:
        for rows in pool.map(lambda part: _part(compiler, *part), parts):
            yield from rows


def _part(compiler: Nvrtc, architecture: str, kernels: Sequence[Launch]) -> list[Built]:
    """Kernels together; where one does not compile, one by one."""
    try:
        found = compiler.cubin(prelude() + "\n".join(x.source for x in kernels), architecture).kernels
        return [Built(x, architecture, found[x.name]) for x in kernels]
    except CompileFailed as e:
        if len(kernels) == 1:
            return [Built(kernels[0], architecture, e)]
        return [row for x in kernels for row in _part(compiler, architecture, [x])]
