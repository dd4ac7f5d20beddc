"""A plan whose buffers lie in the memory of several devices, bound to that memory.

Weights are uploaded once, when it is bound. Inputs and results that lie on a device are used where they lie: a call on
other addresses than before is bound anew, and what was bound for the last few sets of addresses is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from waxeq.backend.blas import within
from waxeq.backend.discover import require
from waxeq.backend.kernel import Instruction, Kernel, join, prepare, scratch
from waxeq.backend.storage import CPU, DeviceArray, Storage, placed, storages
from waxeq.errors import PlanError, TypeMismatch
from waxeq.ir.array import FIXED
from waxeq.ir.graph import Leaf
from waxeq.ir.types import numpy_dtype
from waxeq.memory.estimate import require_room
from waxeq.plan.plan import Buffer, Plan, Step
from waxeq.runtime.arena import Arena
from waxeq.runtime.arguments import ordered
from waxeq.runtime.bound import fold
from waxeq.runtime.inputs import fitted
from waxeq.runtime.lent import Lent
from waxeq.runtime.quiet import in_use, quiet_context

_KEPT = 8
"""Sets of addresses whose instructions are kept."""
_LEAVES = ("weight", "constant", "state")


class Placed:
    """Runs a plan on the devices it names. `tensors`: arrays of weights, constants and states, and of folded buffers
    that are known already. Raises PlanError where a kernel is not installed or works on other memory than the plan
    says, BudgetError where a device has too little."""

    direct: ClassVar[None] = None

    def __init__(
        self, plan: Plan, kernels: Mapping[str, Kernel], tensors: Mapping[str, np.ndarray], arena: Arena | None = None
    ) -> None:
        self.plan, self.names = plan, tuple(o.name for o in plan.outputs)
        require((s.call.kernel for s in plan.steps), kernels)
        self._steps = [(kernels[s.call.kernel], s) for s in plan.steps]
        self.storages = storages(kernels.values())
        self._check()
        require_room(plan, self.storages)
        self.arena = arena if arena is not None else Arena(plan.arena_bytes)
        self._arenas = {p: self.storages[p].allocated(n) for p, n in plan.arenas.items()}
        self._flat: dict[str, Any] = {}
        self._bind_tensors(tensors)
        self._inputs = [x for x in plan.graph.leaves if x.kind == "input"]
        self._types = {x.name: str(x.type) for x in self._inputs}
        self._takers = [(self.storages.get(plan.buffers[x.name].place), x, x.type.numpy) for x in self._inputs]
        self._lent = {n: Lent(self.storages[b.place], b) for n, b in self._results().items() if b.place != CPU}
        here = (b for b in self._results().values() if b.place == CPU)
        self._flat |= {b.name: np.empty(b.elements, numpy_dtype(b.dtype)) for b in here}
        self._late = frozenset(x.name for x in self._inputs if self._only_uploaded(x.name))
        on_devices = (x.name for x in self._inputs if plan.buffers[x.name].place != CPU)
        self._moving = (*on_devices, *self._lent)
        self._own: dict[str, Any] = {}
        self._codes: OrderedDict[tuple[int, ...], tuple[Instruction, ...]] = OrderedDict()
        self._context = quiet_context()
        self._within = within((k, s.call) for k, s in self._steps)

    def _check(self) -> None:
        """Every kernel works on the memory that its buffers lie in."""
        missing = [p for p in self.plan.devices if p not in self.storages]
        if missing:
            raise PlanError(f"the plan needs the memory of {missing[0]!r}, which no usable backend lends here")
        for i, (k, s) in enumerate(self._steps):
            work = (s.workspace,) if s.workspace else ()
            for names, place in ((s.reads, k.origin), ((s.writes, *work), k.device)):
                for n in names:
                    if self.plan.buffers[n].place != place:
                        raise PlanError(
                            f"step {i}: {s.call.kernel} works on the memory of {place!r} here, and buffer {n} lies in "
                            f"that of {self.plan.buffers[n].place!r}; make the plan anew with `waxeq optimize`"
                        )
        for state, new in self.plan.states:
            if self.plan.buffers[state].place != self.plan.buffers[new].place:
                raise PlanError(f"state {state!r} and what replaces it lie on different devices")

    # -- memory

    def _bind_tensors(self, tensors: Mapping[str, np.ndarray]) -> None:
        for name, b in self.plan.buffers.items():
            if b.role in _LEAVES:
                flat = np.ascontiguousarray(tensors[name]).reshape(-1)
                on = self.storages.get(b.place)
                self._flat[name] = on.uploaded(flat) if on is not None else flat.copy() if b.role == "state" else flat
            elif b.offset is not None:
                self._flat[name] = self._in_arena(b)
        for f in self.plan.folds:
            known = tensors[f.writes] if f.writes in tensors else fold(f, tensors)
            on = self.storages.get(self.plan.buffers[f.writes].place)
            self._flat[f.writes] = known if on is None else on.uploaded(known.reshape(-1))

    def _in_arena(self, b: Buffer) -> Any:
        assert b.offset is not None
        shape, dtype = (b.elements,), numpy_dtype(b.dtype)
        if b.place == CPU:
            return self.arena.view(b.offset, shape, dtype)
        on = self.storages[b.place]
        return on.array(self._arenas[b.place], shape, dtype, b.offset) if b.elements else on.empty(shape, dtype)

    def _results(self) -> dict[str, Buffer]:
        """Results that lie outside the arenas."""
        rows = (self.plan.buffers[o.buffer] for o in self.plan.outputs)
        return {b.name: b for b in rows if b.role == "temporary" and b.offset is None}

    def _only_uploaded(self, name: str) -> bool:
        """Whether all that is done with an input is to copy it to a device: then it is copied from where it lies."""
        read = [k.form == "transfer" for k, s in self._steps if name in s.reads]
        return self.plan.buffers[name].place == CPU and all(read)

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """What it is bound to, by buffer, in the memory of the CPU: weights, states as they are now, and what was
        folded."""
        shapes = {x.name: x.type.shape for x in self.plan.graph.leaves}
        rows = [n for n, b in self.plan.buffers.items() if b.role in (*_LEAVES, "folded")]
        return {n: _host(self._flat[n]).reshape(shapes.get(n, -1)) for n in rows}

    # -- binding

    def _code(self, key: tuple[int, ...]) -> tuple[Instruction, ...]:
        """The instructions for memory at these addresses."""
        code = self._codes.get(key)
        if code is None:
            prepare((k, s.call) for k, s in self._steps)
            rows = [(k, self._bound(k, s)) for k, s in self._steps]
            code = self._codes[key] = tuple(f for group in _segments(rows) for f in self._joined(group))
            while len(self._codes) > _KEPT:
                self._codes.popitem(last=False)
        self._codes.move_to_end(key)
        return code

    def _bound(self, k: Kernel, s: Step) -> tuple[Instruction, ...]:
        out = placed(s.call.out, _bare(self._flat[s.writes]))
        if k.form == "transfer" and s.reads[0] in self._late:
            return (partial(self._uploaded, s.reads[0], out),)
        operands = [placed(v, _bare(self._flat[r])) for v, r in zip(s.call.operands, s.reads, strict=True)]
        work = scratch(k, s.call, self._flat[s.workspace] if s.workspace else None)
        return tuple(k.bind(s.call, operands, out, work))

    def _uploaded(self, name: str, to: DeviceArray) -> None:
        if to.size:
            to.storage.upload(to, self._flat[name].reshape(to.shape))

    def _joined(self, rows: Sequence[tuple[Kernel, tuple[Instruction, ...]]]) -> Sequence[Instruction]:
        on = self.storages.get(rows[0][0].device)
        if on is None or rows[0][0].form == "transfer":
            return join(rows)
        return on.joined([f for _, fs in rows for f in fs])

    # -- running

    def take(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """What it is called with, in order: arrays of the CPU, or of the device on which an input lies. Raises
        TypeMismatch."""
        rows = ordered(args, named, self._types, self.plan.about.get(FIXED))
        return [_taken(on, x, dtype, a) for (on, x, dtype), a in zip(self._takers, rows, strict=True)]

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Run once on what `take` gives; results in order: on the device they lie on where some input was given on a
        device, else in the memory of the CPU. Raises UsageError when it is running already."""
        try:
            return self._context.run(self._run, args)
        except RuntimeError as e:
            raise in_use(e) from None

    def again(self, args: Sequence[Any]) -> Instruction:
        """What a run on these inputs does where they lie, without taking them in or handing results out; it means
        something until the next run."""
        return partial(self._execute, self._ready(args))

    def _execute(self, code: tuple[Instruction, ...]) -> None:
        if self._within is not None:
            self._within(code)
        else:
            for f in code:
                f()

    def _ready(self, args: Sequence[Any]) -> tuple[Instruction, ...]:
        """Take inputs in and see to memory for results: the instructions of a run."""
        for x, a in zip(self._inputs, args, strict=True):
            self._flat[x.name] = self._given(x.name, a)
        for name, lent in self._lent.items():
            self._flat[name] = lent.fresh()
        return self._code(tuple(self._flat[n].address for n in self._moving))

    def _run(self, args: Sequence[Any]) -> list[Any]:
        try:
            self._execute(self._ready(args))
            results = self._collected(any(isinstance(a, DeviceArray) for a in args))
            if self.plan.states:
                self._replace_states()
            return results
        finally:
            self._read(args)

    def _read(self, args: Sequence[Any]) -> None:
        """All that reads inputs was asked for, results and states that are inputs as well among it."""
        for on in self.storages.values():
            if given := [a for a in args if isinstance(a, DeviceArray) and a.storage is on]:
                on.read(given)

    def _given(self, name: str, a: Any) -> Any:
        """An input as a flat array in the memory that its buffer lies in: itself where it lies there, but for one that
        kernels of the CPU read, which is copied."""
        if isinstance(a, DeviceArray):
            return a.reshape((a.size,))
        on = self.storages.get(self.plan.buffers[name].place)
        flat = np.ascontiguousarray(a).reshape(-1)
        if on is None and name in self._late:
            return flat
        if name not in self._own:
            self._own[name] = np.empty_like(flat) if on is None else on.empty(flat.shape, flat.dtype)
        if on is None:
            np.copyto(self._own[name], flat)
        elif flat.size:
            on.upload(self._own[name], flat)
        return self._own[name]

    def _collected(self, on_device: bool) -> list[Any]:
        rows: list[Any] = []
        for o in self.plan.outputs:
            flat, shape = self._flat[o.buffer], o.type.shape
            if not isinstance(flat, DeviceArray):
                rows.append(flat.reshape(shape).copy())
            elif not on_device:
                rows.append(flat.get().reshape(shape))
            else:
                rows.append(self._lent_out(o.buffer, flat, shape))
        return rows

    def _lent_out(self, name: str, flat: DeviceArray, shape: tuple[int, ...]) -> Any:
        """A result where it lies; one that is something else as well is copied to memory of its own."""
        if name in self._lent:
            return flat.storage.handed(self._lent[name].lend(shape))
        own = flat.storage.empty(shape, flat.dtype)
        if flat.size:
            flat.storage.copy(own.reshape((own.size,)), flat)
        return flat.storage.handed(own)

    def _replace_states(self) -> None:
        leaves = {x.name for x in self.plan.graph.leaves}
        # a state that takes the place of another one is read before either is written
        new = [_copied(self._flat[b]) if b in leaves else self._flat[b] for _, b in self.plan.states]
        for (name, _), value in zip(self.plan.states, new, strict=True):
            own = self._flat[name]
            if not isinstance(own, DeviceArray):
                np.copyto(own, value)
            elif own.size:
                own.storage.copy(own, value)


def _taken(on: Storage | None, leaf: Leaf, dtype: np.dtype, value: Any) -> Any:
    """An input of a dtype as an array of the CPU, or of the device `on` its buffer lies on. Raises TypeMismatch."""
    given = None if on is None or type(value) is np.ndarray else on.seen(value)
    if given is None:
        return fitted(leaf, value)
    if given.shape != leaf.type.shape or given.dtype != dtype:
        found = f"{given.dtype}[{', '.join(map(str, given.shape))}]"
        raise TypeMismatch(f"{leaf.kind} {leaf.name!r} is {found}, the program takes {leaf.type}")
    if not given.dense:
        raise TypeMismatch(f"{leaf.kind} {leaf.name!r} does not lie row by row on its device; pass a contiguous copy")
    return given


def _segments(
    rows: Sequence[tuple[Kernel, tuple[Instruction, ...]]],
) -> list[list[tuple[Kernel, tuple[Instruction, ...]]]]:
    """Runs of consecutive steps on one device; a transfer stands alone."""
    number = iter(range(len(rows)))
    kinds = [(k.device, next(number) if k.form == "transfer" else -1) for k, _ in rows]
    return [[row for row, _ in group] for _, group in groupby(zip(rows, kinds, strict=True), key=lambda r: r[1])]


def _bare(flat: Any) -> Any:
    """The same memory without holding it: instructions that are kept must not keep what a caller gave."""
    return replace(flat, owner=None) if isinstance(flat, DeviceArray) else flat


def _host(flat: Any) -> np.ndarray:
    return flat.get() if isinstance(flat, DeviceArray) else flat


def _copied(flat: Any) -> Any:
    if not isinstance(flat, DeviceArray):
        return flat.copy()
    made = flat.storage.empty(flat.shape, flat.dtype)
    if flat.size:
        flat.storage.copy(made, flat)
    return made
