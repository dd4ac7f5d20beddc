"""A plan bound to memory: a flat list of instructions. Nothing is looked up when it runs, and nothing is allocated but
results.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from waxeq.backend.blas import within
from waxeq.backend.direct import Direct, Passed, Place
from waxeq.backend.discover import require
from waxeq.backend.kernel import OUT, Instruction, Kernel, join, prepare, scratch
from waxeq.basis.evaluate import Evaluator, Ideal, NamedArray
from waxeq.basis.heads import COMPUTED
from waxeq.forks import renewed_in_children
from waxeq.ir.array import content
from waxeq.ir.term import postorder
from waxeq.ir.types import numpy_dtype
from waxeq.memory.estimate import COPIED
from waxeq.plan.plan import Fold, Plan, Step
from waxeq.runtime.arena import Arena
from waxeq.runtime.quiet import in_use, quiet_context, used_elsewhere
from waxeq.runtime.results import Results


class Bound:
    """Runs a plan. `tensors`: arrays of weights, constants and states, and of folded buffers that are known already.

    `direct`: after the first call, what gives the results on a tuple of arguments without Python in between (the array,
    of one result), and None where it does not take them; `run` takes all that fit.
    """

    direct: Callable[[tuple[Any, ...]], Any] | None = None

    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[str, Kernel],
        tensors: Mapping[str, np.ndarray],
        arena: Arena | None = None,
    ) -> None:
        require((s.call.kernel for s in plan.steps), kernels)
        self.plan = plan
        self.names = tuple(o.name for o in plan.outputs)
        self.arena = arena if arena is not None else Arena(plan.arena_bytes)
        self._leaves = {x.name for x in plan.graph.leaves}
        self._flat: dict[str, np.ndarray] = {}
        self._bind_tensors(tensors)
        self._copied: list[tuple[int, np.ndarray]] = []
        self._lent: list[tuple[int, str]] = []
        for i, x in enumerate(x for x in plan.graph.leaves if x.kind == "input"):
            if x.type.bytes <= COPIED:
                self._flat[x.name] = np.empty(x.type.elements, x.type.numpy)
                self._copied.append((i, self._flat[x.name].reshape(x.type.shape)))
            else:
                self._lent.append((i, x.name))
        self._results = Results(plan, self._flat)
        self._seen: dict[str, np.ndarray | None] = {n: None for _, n in self._lent}
        self._address: dict[str, int] = {}
        moving = [n for _, n in self._lent] + sorted(self._results.direct)
        self._places = _places(plan, moving)
        self._homes: dict[str, int] = {}  # where what only direct calls move lies in other calls
        self._steps = [(kernels[s.call.kernel], s) for s in plan.steps]
        self._instructions: list[tuple[Instruction, ...]] = [()] * len(plan.steps)
        self._code: tuple[Instruction, ...] | None = None if moving else self._bound()
        self._context = quiet_context()
        renewed_in_children(self, Bound._forked)
        self._within = within((k, s.call) for k, s in self._steps)
        self._whole: Direct | None = None
        self._alone = False  # whether calls are known to have no other way than `_results_on`

    # -- binding

    def _bind_tensors(self, tensors: Mapping[str, np.ndarray]) -> None:
        for name, b in self.plan.buffers.items():
            if b.role in ("weight", "constant", "state"):
                flat = np.ascontiguousarray(tensors[name]).reshape(-1)
                self._flat[name] = flat.copy() if b.role == "state" else flat
            elif b.offset is not None:
                self._flat[name] = self.arena.view(b.offset, (b.elements,), numpy_dtype(b.dtype))
        self._folded = [_Folded.of(f, tensors) for f in self.plan.folds if f.writes not in tensors]
        self._flat |= {f.writes: tensors[f.writes] for f in self.plan.folds if f.writes in tensors}
        self._flat |= {x.writes: x.flat for x in self._folded}

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """What it is bound to, by buffer: weights, states as they are now, and what was folded."""
        shapes = {x.name: x.type.shape for x in self.plan.graph.leaves}
        rows = [n for n, b in self.plan.buffers.items() if b.role in ("weight", "constant", "state", "folded")]
        return {n: self._flat[n].reshape(shapes.get(n, -1)) for n in rows}

    def _memory(self, k: Kernel, s: Step) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """What a step reads, what it writes, and its scratch memory."""
        arrays = [v.array(self._flat[r]) for v, r in zip(s.call.operands, s.reads, strict=True)]
        work = scratch(k, s.call, self._flat[s.workspace] if s.workspace else None)
        return arrays, s.call.out.array(self._flat[s.writes]), work

    def _bound(self) -> tuple[Instruction, ...]:
        """The instructions of all steps where memory lies now."""
        prepare((k, s.call) for k, s in self._steps)
        self._instructions = [tuple(k.bind(s.call, *self._memory(k, s))) for k, s in self._steps]
        return self._joined()

    def _joined(self) -> tuple[Instruction, ...]:
        return join((k, f) for (k, _), f in zip(self._steps, self._instructions, strict=True))

    def _repointed(self, moved: Iterable[str], code: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        """The instructions when these buffers have moved: `code`, the last ones, where all can be pointed elsewhere."""
        anew = set[int]()
        for name in moved:
            address = self._address[name]
            for i, position, offset in self._places[name]:
                if not self._steps[i][0].repoint(self._instructions[i], {position: address + offset}):
                    anew.add(i)
        if not anew:
            return code
        for i in anew:
            kernel, s = self._steps[i]
            self._instructions[i] = tuple(kernel.bind(s.call, *self._memory(kernel, s)))
        return self._joined()

    # -- running

    def run(self, args: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run once on inputs of the right types; results in order. Raises UsageError when it is running already."""
        if self.direct is not None:
            found = self.direct(tuple(args))
            if found is None:
                found = self.direct(tuple([_dense(a) for a in args]))
            if found is not None:
                return found if len(self.names) != 1 else (found,)
        try:
            return self._context.run(self._results_on if self._alone else self._run, args)
        except RuntimeError as e:
            raise in_use(e) from None

    def _forked(self) -> None:
        """In a new process, which has not the thread that may be in a call. What that one did not get to the end of
        leaves nothing but states."""
        if not self.plan.states:
            self._context = quiet_context()

    def _run(self, args: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        if self._whole is None:
            results = self._results_on(args)
            self._make_direct()
            self._alone = self._whole is None
            return results
        results = self._whole.alone(self._anew, args)
        if results is None:
            raise used_elsewhere()
        return results

    def _results_on(self, args: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        for i, own in self._copied:
            own[...] = args[i]
        if self._places:
            self._move(args)
        assert self._code is not None
        if self._within is not None:
            self._within(self._code)
        else:
            for f in self._code:
                f()
        results = self._results.collect(self._flat)
        if self.plan.states:
            self._replace_states()
        return results

    def _anew(self, args: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The results where direct calls point the instructions elsewhere too: nothing is known of the last one."""
        try:
            self._forget()
            return self._results_on(args)
        finally:
            self._forget()

    def _forget(self) -> None:
        """Hold no input, and take it that everything lies elsewhere in the next call."""
        self._seen = dict.fromkeys(self._seen)
        self._address.clear()
        self._results.forget()
        for name in (*self._seen, *self._results.direct):
            self._flat.pop(name, None)

    def _make_direct(self) -> None:
        """Have the backend make whole calls, where it can."""
        ways = {k.direct for k, _ in self._steps}
        way = ways.pop() if len(ways) == 1 else None
        if way is None or self._code is None or len(self._code) != 1 or self.plan.states:
            return
        rows = self._results.rows()
        if any(view is None and b not in self._results.direct for _, b, view in rows):
            return  # a result that lies where an input does
        small = {b: self._flat[b].ctypes.data for b in self._results.small}
        places = self._places | _places(self.plan, small)

        def where(name: str) -> tuple[Place, ...]:
            return tuple(Place(self._instructions[i], n, at) for i, n, at in places.get(name, ()))

        own = dict(self._copied)
        leaves = [x for x in self.plan.graph.leaves if x.kind == "input"]
        inputs = [Passed(x.type, own.get(i), where(x.name)) for i, x in enumerate(leaves)]
        outputs = [Passed(t, view, where(b)) for t, b, view in rows]
        whole = way(self._code[0], inputs, outputs, self._results.more)
        if whole is not None:
            self._results.tell(whole.lend)
            self._forget()
            self._places, self._homes, self._whole, self.direct = places, small, whole, whole.call

    def _move(self, args: Sequence[np.ndarray]) -> None:
        """Bind anew what reads an input, or writes a result, that lies elsewhere than in the last call."""
        code, self._code = self._code, None  # an interruption here leaves nothing that is bound to other memory
        if code is None:
            self._results.forget()
        moved = []
        for i, name in self._lent:
            a = args[i]
            dense = a.flags.c_contiguous
            if dense and self._seen[name] is a:
                continue
            flat = np.ascontiguousarray(a).reshape(-1)
            address = flat.__array_interface__["data"][0]
            if self._address.get(name) != address:
                self._address[name], self._flat[name] = address, flat
                moved.append(name)
            self._seen[name] = a if dense else None  # a copy is made anew each time
        for name, address in self._homes.items():
            if self._address.get(name) != address:
                self._address[name] = address
                moved.append(name)
        for name, flat, address in self._results.fresh():
            self._address[name], self._flat[name] = address, flat
            moved.append(name)
        if code is None:
            code = self._bound()
        elif moved:
            code = self._repointed(moved, code)
        self._code = code

    def _replace_states(self) -> None:
        # a state that takes the place of another one is read before either is written
        new = [self._flat[b].copy() if b in self._leaves else self._flat[b] for _, b in self.plan.states]
        for (name, _), value in zip(self.plan.states, new, strict=True):
            np.copyto(self._flat[name], value)


def _dense(a: np.ndarray) -> np.ndarray:
    return a if a.flags.c_contiguous and a.flags.aligned else a.copy()


def _places(plan: Plan, names: Iterable[str]) -> dict[str, list[tuple[int, int, int]]]:
    """Where buffers are read and written: the step, the operand (or OUT), and where that begins, in bytes."""
    rows: dict[str, list[tuple[int, int, int]]] = {n: [] for n in names}
    for i, s in enumerate(plan.steps):
        reads = enumerate(zip(s.reads, s.call.operands, strict=True))
        for n, (name, v) in (*reads, (OUT, (s.writes, s.call.out))):
            if name in rows:
                rows[name].append((i, n, v.offset * numpy_dtype(v.dtype).itemsize))
    return rows


class _Folded:
    """What a fold of some numbers came to: programs that live at one time and fold the same have it once."""

    __slots__ = ("__weakref__", "flat", "writes")
    _living: ClassVar[WeakValueDictionary[Hashable, _Folded]] = WeakValueDictionary()

    def __init__(self, f: Fold, leaves: Mapping[str, np.ndarray]) -> None:
        self.flat, self.writes = fold(f, leaves), f.writes

    @classmethod
    def of(cls, f: Fold, tensors: Mapping[str, np.ndarray]) -> _Folded:
        leaves = {n: tensors[n] for n in f.leaves}
        sizes = tuple(sorted(f.sizes.items()))
        numbers = tuple((n, f.leaves[n], _digest(a)) for n, a in leaves.items())  # an array may be written to meanwhile
        key = f.writes, f.term, sizes, f.order, f.dtype, numbers
        known = cls._living.get(key)
        if known is None:
            known = cls._living[key] = cls(f, leaves)
        return known


def _digest(a: np.ndarray) -> bytes:
    """Of the numbers of an array, in their order."""
    return hashlib.sha256(content(a)).digest() + f"{a.dtype}{a.shape}".encode()


_PIECE = 1 << 18
"""Elements of a folded weight that are computed at a time where each hangs on its own place alone: in float64 they stay
in cache, and need no fresh pages."""
_POINTWISE = COMPUTED | {"Par", "Num"}


def fold(f: Fold, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of a weights-only term, computed in float64 and rounded once; flat, in the fold's order."""
    out = np.empty(tuple(f.sizes[k] for k in f.order), numpy_dtype(f.dtype))
    if not f.order or any(t.head not in _POINTWISE for t in postorder(f.term)):
        out[...] = _folded(f, tensors, f.sizes, {})
        return out.reshape(-1)
    for parts in _pieces(f) if out.size else ():
        sizes = {k: p.stop - p.start for k, p in parts.items()}
        place = tuple(parts.get(k, slice(None)) for k in f.order)
        out[place] = _folded(f, tensors, {**f.sizes, **sizes}, parts)
    return out.reshape(-1)


def _pieces(f: Fold) -> Iterator[dict[str, slice]]:
    """Parts of the first axis, and where a weight lies across also of the last: of that one each line of memory would
    be read for a few of its elements, and again for the next ones."""
    first, last = f.order[0], f.order[-1]
    lie = [[k for k in axes if k is not None] for axes in f.leaves.values()]
    each = math.prod(f.sizes[k] for k in f.order[1:-1])
    most = f.sizes[last] if first != last else 1
    across = any(last in axes[:-1] for axes in lie)
    width = max(1, min(most, math.isqrt(_PIECE // max(1, each))) if across else most)
    step = max(1, _PIECE // max(1, each * width))
    for begin, start in product(range(0, f.sizes[first], step), range(0, most, width)):
        part = {last: slice(start, min(start + width, most))}
        yield part | {first: slice(begin, min(begin + step, f.sizes[first]))}


def _folded(
    f: Fold, tensors: Mapping[str, np.ndarray], sizes: Mapping[str, int], parts: Mapping[str, slice]
) -> np.ndarray:
    """The value of a fold for parts of its axes, `sizes` being what they have of each."""
    leaves = {}
    for name, axes in f.leaves.items():
        kept = tuple(k for k in axes if k is not None)
        a = np.asarray(tensors[name]).reshape(tuple(f.sizes[k] for k in kept))
        a = a[tuple(parts.get(k, slice(None)) for k in kept)]
        leaves[name] = NamedArray(kept, a.astype(np.float64) if a.dtype.kind not in "biu" else a)
    e = Evaluator(sizes, Ideal(), contracts=True)
    with np.errstate(all="ignore"):
        value = e.present(e.term(f.term, leaves), *f.order)
        return value.aligned(f.order).astype(numpy_dtype(f.dtype))
