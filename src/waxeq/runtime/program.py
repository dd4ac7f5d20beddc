"""A program: a plan bound to weights and memory. A call runs a flat list of bound instructions; nothing is looked up,
nothing is allocated."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.backend.kernel import Instruction, Kernel, join, prepare
from waxeq.basis.evaluate import Evaluator, Ideal, NamedArray
from waxeq.errors import PlanError, TypeMismatch
from waxeq.ir.graph import Leaf
from waxeq.ir.types import TensorType, numpy_dtype
from waxeq.memory.estimate import COPIED
from waxeq.plan.plan import Fold, Plan, Step
from waxeq.runtime.arena import Arena
from waxeq.runtime.written import Written


class Program:
    """`program(*inputs)` runs the plan; inputs by position or by leaf name.

    Results are arrays of their own: they alias neither the inputs nor each other nor memory that a later call writes. A
    result's memory is used again only when nobody holds it any more. State lives in the program and is replaced by a
    call. Not thread-safe: one program, one caller at a time.
    """

    def __init__(self, plan: Plan, kernels: Mapping[str, Kernel], tensors: Mapping[str, np.ndarray]) -> None:
        """`tensors`: arrays of weight and state leaves by name. Raises TypeMismatch when one is missing or does not
        fit.
        """
        self.plan = plan
        missing = sorted({s.call.kernel for s in plan.steps} - set(kernels))
        if missing:
            raise PlanError(f"the plan uses kernel {missing[0]}, which no installed backend has")
        self._kernels = kernels
        self.arena = Arena(plan.arena_bytes)
        self._flat: dict[str, np.ndarray] = {}
        self._leaves: dict[str, Leaf] = {x.name: x for x in plan.graph.leaves}
        self.inputs = tuple(x for x in plan.graph.leaves if x.kind == "input")
        self._names = {x.name for x in self.inputs}
        self._bind_tensors({**plan.graph.constants, **tensors})
        self._results = _Results(plan)
        self._own = {x.name: np.empty(x.type.elements, x.type.numpy) for x in self.inputs if x.type.bytes <= COPIED}
        self._flat.update(self._own)
        self._instructions: list[tuple[Instruction, ...]] = [()] * len(plan.steps)
        self._run: tuple[Instruction, ...] = ()
        self._bound: dict[str, np.ndarray] = {}
        self._address: dict[str, int] = {}
        self._readers = self._find_readers()
        self._written = Written(plan.graph, tensors) if plan.written else None

    def __repr__(self) -> str:
        takes = ", ".join(f"{x.name}: {x.type}" for x in self.inputs)
        gives = ", ".join(f"{o.name}: {o.type}" for o in self.plan.outputs)
        return f"<Program {self.plan.name}({takes}) -> {gives}>"

    # -- binding

    def _bind_tensors(self, tensors: Mapping[str, np.ndarray]) -> None:
        for name, b in self.plan.buffers.items():
            if b.role in ("weight", "constant", "state"):
                if name not in tensors:
                    raise TypeMismatch(f"no array was given for {b.role} {name!r}")
                a = _checked(self._leaves[name], tensors[name])
                self._flat[name] = a.reshape(-1).copy() if b.role == "state" else a.reshape(-1)
            elif b.offset is not None:
                self._flat[name] = self.arena.view(b.offset, (b.elements,), numpy_dtype(b.dtype))
        for f in self.plan.folds:
            self._flat[f.writes] = fold(f, tensors)

    def _find_readers(self) -> dict[str, tuple[int, ...]]:
        """For each buffer that may move between calls, the steps that touch it."""
        moving = {x.name for x in self.inputs if x.name not in self._own} | set(self._results.direct)
        return {
            m: tuple(i for i, s in enumerate(self.plan.steps) if m in s.reads or m == s.writes) for m in sorted(moving)
        }

    def _memory(self, s: Step) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """What a step reads, writes and may scribble on."""
        arrays = [v.array(self._flat[r]) for v, r in zip(s.call.operands, s.reads, strict=True)]
        scratch = self._flat[s.workspace] if s.workspace else np.empty(0, np.uint8)
        return arrays, s.call.out.array(self._flat[s.writes]), scratch

    def _bind_step(self, s: Step) -> tuple[Instruction, ...]:
        return tuple(self._kernels[s.call.kernel].bind(s.call, *self._memory(s)))

    def _moved_step(self, i: int) -> bool:
        """Point a step at memory that has moved, in place; False where its kernel cannot."""
        s = self.plan.steps[i]
        return self._kernels[s.call.kernel].rebind(self._instructions[i], *self._memory(s))

    def _rebind(self, moved: Sequence[str]) -> None:
        first = not self._run
        steps = range(len(self.plan.steps)) if first else sorted({i for m in moved for i in self._readers[m]})
        if first:
            prepare((self._kernels[s.call.kernel], s.call) for s in self.plan.steps)
        anew = [i for i in steps if first or not self._moved_step(i)]
        for i in anew:
            self._instructions[i] = self._bind_step(self.plan.steps[i])
        if anew:
            kinds = (self._kernels[s.call.kernel] for s in self.plan.steps)
            self._run = join(zip(kinds, self._instructions, strict=True))

    # -- running

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run once. Returns results in the structure the model gives them in.

        Raises TypeMismatch when inputs are missing, unknown or of another dtype or shape.
        """
        return self._structured(self._call(args, named))

    def flat_results(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once and return the results by output name, whatever structure the model gives them in."""
        return self._call((), inputs)

    def _call(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        given = self._given(args, named)
        if self._written is not None:
            return self._run_written(self._written, given)
        results = self._results.fresh()
        moved = []
        for name, flat in (*given.items(), *results.items()):
            if name in self._own:
                np.copyto(self._own[name], flat)
            elif self._bound.get(name) is not flat:
                address = flat.__array_interface__["data"][0]
                self._bound[name] = flat
                if self._address.get(name) != address:
                    self._address[name], self._flat[name] = address, flat
                    moved.append(name)
        if moved or not self._run:
            self._rebind(moved)
        with np.errstate(all="ignore"):
            for f in self._run:
                f()
        collected = self._results.collect(self._flat)
        # a state that takes the place of another one is read before either is written
        new = [self._flat[b].copy() if b in self._leaves else self._flat[b] for _, b in self.plan.states]
        for (name, _), value in zip(self.plan.states, new, strict=True):
            np.copyto(self._flat[name], value)
        return collected

    def _run_written(self, written: Written, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The model as written; a result that may share memory with anything else is copied."""
        shaped = {n: a.reshape(self._leaves[n].type.shape) for n, a in given.items()}
        held = [*shaped.values(), *written.bound.values()]
        rows: dict[str, np.ndarray] = {}
        for name, a in written(shaped).items():
            rows[name] = a.copy() if any(np.may_share_memory(a, h) for h in (*held, *rows.values())) else a
        for name, _ in self.plan.states:
            self._flat[name] = np.ascontiguousarray(written.bound[name]).reshape(-1)
        return rows

    def _given(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if len(args) > len(self.inputs):
            raise TypeMismatch(f"the program takes {len(self.inputs)} inputs, {len(args)} were given")
        if not args and named.keys() == self._names:
            return {n: _checked(self._leaves[n], a) for n, a in named.items()}
        rows = {x.name: a for x, a in zip(self.inputs, args, strict=False)}
        if rows.keys() & named.keys():
            raise TypeMismatch(f"input {min(rows.keys() & named.keys())!r} is given twice: by position and by name")
        rows |= named
        for n in rows:
            if n not in self._leaves or self._leaves[n].kind != "input":
                raise TypeMismatch(f"the program has no input {n!r}; it takes {', '.join(x.name for x in self.inputs)}")
        missing = [x.name for x in self.inputs if x.name not in rows]
        if missing:
            raise TypeMismatch(f"no array was given for input {missing[0]!r}")
        return {x.name: _checked(x, rows[x.name]) for x in self.inputs}

    def _structured(self, results: Mapping[str, np.ndarray]) -> Any:
        if self.plan.structure is None:
            values = tuple(results.values())
            return values[0] if len(values) == 1 else values
        return _rebuild(self.plan.structure, results)

    @property
    def states(self) -> dict[str, np.ndarray]:
        """Copies of the states as they are now."""
        return {n: self._flat[n].reshape(self._leaves[n].type.shape).copy() for n, _ in self.plan.states}


class _Results:
    """Memory of results. A large one is written where the caller will have it; a small one is copied out of the
    arena.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        outputs = () if plan.written else plan.outputs
        self.direct = {o.buffer: o for o in outputs if is_direct(plan, o.buffer)}
        self._slots: dict[str, list[_Slot]] = {b: [] for b in self.direct}
        self._current: dict[str, _Slot] = {}

    def fresh(self) -> dict[str, np.ndarray]:
        """For each direct result a flat array that nobody else can see: one whose last result is gone, or a new one."""
        for b, o in self.direct.items():
            slots = self._slots[b]
            free = next((s for s in slots if s.free), None)
            if free is None:
                free = _Slot(np.empty(o.type.elements, o.type.numpy))
                slots.append(free)
                del slots[:-_SLOTS]
            self._current[b] = free
        return {b: s.flat for b, s in self._current.items()}

    def collect(self, flat: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = {}
        for o in self.plan.outputs:
            direct = o.buffer in self.direct
            rows[o.name] = (
                self._current[o.buffer].lend(o.type) if direct else flat[o.buffer].reshape(o.type.shape).copy()
            )
        return rows


_SLOTS = 4


class _Slot:
    """Memory lent to one result at a time. Every view of a result keeps the array handed out alive, as its base
    (NumPy stops collapsing bases at a memoryview), so when that array is gone nobody can see the memory."""

    def __init__(self, flat: np.ndarray) -> None:
        self.flat = flat
        self._lent: weakref.ref[np.ndarray] | None = None

    @property
    def free(self) -> bool:
        return self._lent is None or self._lent() is None

    def lend(self, type: TensorType) -> np.ndarray:
        if type.elements == 0:
            return np.empty(type.shape, type.numpy)
        a = np.frombuffer(self.flat.view(np.uint8).data, dtype=type.numpy)
        self._lent = weakref.ref(a)
        return a.reshape(type.shape)


def is_direct(plan: Plan, buffer: str) -> bool:
    """Whether a buffer is a result that lies outside the arena, written in place for the caller."""
    b = plan.buffers[buffer]
    return b.role == "temporary" and b.offset is None


def _checked(leaf: Leaf, array: Any) -> np.ndarray:
    """The array, flat. Raises TypeMismatch when it is not of the leaf's type."""
    a = np.asarray(array)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.shape != leaf.type.shape or a.dtype != leaf.type.numpy:
        raise TypeMismatch(f"{leaf.kind} {leaf.name!r} is {TensorType.of(a)}, the program takes {leaf.type}")
    return np.ascontiguousarray(a).reshape(-1)


def _rebuild(structure: Any, results: Mapping[str, np.ndarray]) -> Any:
    if isinstance(structure, str):
        return results[structure]
    if isinstance(structure, Mapping):
        return {k: _rebuild(v, results) for k, v in structure.items()}
    return tuple(_rebuild(v, results) for v in structure)


def fold(f: Fold, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of a weights-only term, computed in float64 and rounded once; flat, in the fold's order."""
    leaves = {}
    for name, axes in f.leaves.items():
        kept = tuple(k for k in axes if k is not None)
        a = np.asarray(tensors[name])
        wide = a.astype(np.float64) if a.dtype.kind not in "biu" else a
        leaves[name] = NamedArray(kept, wide.reshape(tuple(f.sizes[k] for k in kept)))
    e = Evaluator(f.sizes, Ideal())
    value = e.present(e.term(f.term, leaves), *f.order)
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.aligned(f.order)).astype(numpy_dtype(f.dtype)).reshape(-1)
