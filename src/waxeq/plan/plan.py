"""The plan: an immutable description of what runs, on which buffers. It needs no e-graph and no table to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from waxeq.backend.call import Call
from waxeq.backend.storage import CPU
from waxeq.errors import PlanError
from waxeq.ir.graph import Graph
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType, numpy_dtype
from waxeq.plan.cover import Cover, span

Role = Literal["input", "weight", "state", "constant", "folded", "temporary", "workspace"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense run of elements in the memory of the device `place`. Temporaries and workspaces lie in its arena at
    `offset` bytes; the rest is bound."""

    name: str
    dtype: str
    elements: int
    role: Role
    offset: int | None = None
    place: str = CPU

    @property
    def bytes(self) -> int:
        return self.elements * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Fold:
    """A weights-only term, computed once when weights are bound. `leaves`: axis at each position of the leaves it
    reads.
    """

    writes: str
    term: Term
    sizes: Mapping[str, int]
    order: tuple[str, ...]
    dtype: str
    leaves: Mapping[str, tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The next best way to make a tensor: its last kernel, the predicted seconds of all that it needs besides what the
    plan has anyway, and what the least sure of these predictions rests on ("measured", "fitted", "roofline"; "" in
    plans written before it was recorded).
    """

    kernel: str
    seconds: float
    basis: str = ""


@dataclass(frozen=True)
class Step:
    """A call on buffers. `predicted` seconds, from `basis` ("measured", "fitted", "roofline") within low..high.

    `sources`: places in the model whose values the call covers. `runner_up`: the next best way to make the same tensor;
    None where there is no other. `retained`: bytes that the bound call keeps for itself. `part`: what the buffer of the
    result was called before that became a part of `writes`; "" where it is a buffer of its own.
    """

    call: Call
    reads: tuple[str, ...]
    writes: str
    workspace: str | None = None
    predicted: float = 0.0
    low: float = 0.0
    high: float = 0.0
    basis: str = ""
    sources: tuple[str, ...] = ()
    runner_up: RunnerUp | None = None
    retained: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """A result: its name, its type, the buffer it ends in."""

    name: str
    type: TensorType
    buffer: str


@dataclass(frozen=True)
class Plan:
    """A whole program. `graph` is the model as written, kept for checking and as the baseline.

    With `written`, the plan has no steps: nothing was found that is faster than the model as written, so that is what
    runs. `states` pairs a state leaf with the buffer whose content replaces it after a call. `about` holds what made
    the plan: versions, options, hashes, the user's own rules (all repeatable, no times and no machine paths).
    `arena_bytes` is of the CPU's memory, `arenas` of that of other devices. `around`: seconds of a call besides those
    of its steps (`waxeq.plan.around`); 0 in plans written before they were predicted.
    """

    name: str
    graph: Graph
    buffers: Mapping[str, Buffer]
    folds: tuple[Fold, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    states: tuple[tuple[str, str], ...]
    arena_bytes: int = 0
    in_place: tuple[tuple[str, str], ...] = ()
    structure: Any = None
    written: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    arenas: Mapping[str, int] = field(default_factory=dict)
    around: float = 0.0

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices besides the CPU in whose memory buffers lie."""
        return tuple(sorted({b.place for b in self.buffers.values()} - {CPU}))

    @property
    def predicted(self) -> float:
        """Seconds a call should take: the sum of its steps, and what is around them."""
        return sum(s.predicted for s in self.steps) + self.around

    def bytes_of(self, *roles: Role, place: str = CPU) -> int:
        """Bytes of all buffers of these roles in the memory of one device."""
        return sum(b.bytes for b in self.buffers.values() if b.role in roles and b.place == place)

    @property
    def retained(self) -> int:
        """Bytes that bound calls keep for themselves."""
        return sum(s.retained for s in self.steps)

    def check(self) -> Plan:
        """Every read is written before, once, and every view lies inside its buffer. Raises PlanError. Returns
        itself."""
        ready = {n for n, b in self.buffers.items() if b.role in ("input", "weight", "state", "constant")}
        ready |= {f.writes for f in self.folds}
        parts: dict[str, Cover] = {}
        for i, s in enumerate(self.steps):
            for r, v in zip(s.reads, s.call.operands, strict=True):
                if r not in ready and r not in parts:
                    raise PlanError(f"step {i} ({s.call.kernel}) reads {r}, which nothing wrote before it")
                self._inside(r, v, i)
                if r not in ready and v.elements and not parts[r].has(*span(v)):
                    raise PlanError(f"step {i} ({s.call.kernel}) reads parts of {r} that nothing wrote before it")
            self._inside(s.writes, s.call.out, i)
            if s.writes in ready and s.call.out.elements:
                raise PlanError(f"step {i} ({s.call.kernel}) writes {s.writes}, which was written before")
            if self._written(s, i, parts):
                ready.add(s.writes)
        missing = [o.name for o in self.outputs if o.buffer not in ready]
        missing += [n for n, b in self.states if b not in ready]
        if missing:
            raise PlanError(f"nothing writes output {missing[0]!r}")
        return self

    def _written(self, s: Step, i: int, parts: dict[str, Cover]) -> bool:
        """Whether all of a buffer is written after a step that writes it, or a part of it."""
        size = self.buffers[s.writes].elements
        if s.writes not in parts and s.call.out.elements == size:
            return True
        cover = parts.setdefault(s.writes, Cover(s.writes, size))
        cover.write(s.call.out, i)
        return cover.whole

    def _inside(self, name: str, view: Any, step: int) -> None:
        b = self.buffers.get(name)
        if b is None:
            raise PlanError(f"step {step} names buffer {name}, which the plan does not have")
        if view.elements == 0:
            return
        low, end = span(view)
        if low < 0 or end > b.elements or view.dtype != b.dtype:
            raise PlanError(f"step {step} reads or writes outside buffer {name} ({b.dtype}, {b.elements} elements)")
