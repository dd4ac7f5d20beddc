"""Does a kernel compute what it means? Calls drawn at random, on memory laid out to hurt, against the basis evaluator.

Results and workspace are poisoned beforehand, operands must stay as they were, instructions run twice as a program runs
them again and again, and every operand that a kernel says the result may replace is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Kernel, prepare
from waxeq.backend.storage import CPU, LINE, Storage, placed
from waxeq.basis.evaluate import NamedArray, Native
from waxeq.basis.heads import HEADS
from waxeq.basis.matrices import factored
from waxeq.cost.features import Features
from waxeq.errors import AccuracyError, WaxeqError
from waxeq.ir.term import Term, dump, postorder
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.testing.calls import generated
from waxeq.testing.rounding import FOLDED, deviations, largest
from waxeq.testing.values import draw_leaves, evaluate, truncations, unheld

_POISON = 0xA5
_GUARD = LINE
"""Bytes before and after every buffer that nobody may touch; what lies between begins where allocated memory may."""
_FEW = 4
"""Numbers of which a sum is, now and then, finite though a third of all are not."""
_DRAWS = ("normal", "normal", "positive", "unit", "sparse", "special")


@dataclass(frozen=True)
class Conformance:
    """What was found about a kernel: `calls` that it accepted were run; `dtypes` of their results, `sizes` that
    occurred, operands replaced `in_place`. `failure`: the first call that went wrong, and how."""

    kernel: str
    calls: int
    dtypes: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    in_place: int = 0
    failure: str | None = None

    def require(self) -> Conformance:
        """Itself. Raises AccuracyError when a call went wrong or none was accepted."""
        if self.failure is not None:
            raise AccuracyError(f"kernel {self.kernel} does not compute what it means: {self.failure}")
        if not self.calls:
            raise AccuracyError(f"kernel {self.kernel} accepted no call of those tried; does its pattern match?")
        return self


def check_kernel(name: str, kernel: Kernel, *, calls: int = 60, seed: int = 0, alone: bool = True) -> Conformance:
    """Run a kernel on about `calls` calls. Functions that the basis has are each met at least once (`alone`)."""
    return check_drawn([drawn(name, kernel, calls=calls, seed=seed, alone=alone)])[0]


@dataclass(frozen=True)
class Drawn:
    """Calls of a kernel that it accepts, and what their operands are drawn from."""

    name: str
    kernel: Kernel
    calls: Sequence[Call]
    rng: np.random.Generator


def drawn(name: str, kernel: Kernel, *, calls: int, seed: int = 0, alone: bool = True) -> Drawn:
    """The calls that `check_kernel` runs a kernel on."""
    rng = np.random.default_rng(seed)
    return Drawn(name, kernel, list(generated(name, kernel, rng, calls, alone=alone)), rng)


def check_drawn(rows: Sequence[Drawn]) -> list[Conformance]:
    """What is found about each of several kernels. What they compile is compiled at once."""
    with suppress(WaxeqError):  # which of them that is shows when it is run
        prepare((d.kernel, call) for d in rows for call in d.calls)
    return [_checked(d.name, d.kernel, d.calls, d.rng) for d in rows]


def _checked(name: str, kernel: Kernel, calls: Sequence[Call], rng: np.random.Generator) -> Conformance:
    dtypes, sizes, in_place, count = set(), set(), 0, 0
    for call in calls:
        ran = list[object]()
        failure = check_call(kernel, call, rng, lambda operands, result, ran=ran: ran.append(result))
        if ran:
            count += 1
            dtypes.add(call.out.dtype)
            sizes.update(call.sizes.values())
        if failure is not None:
            shown = f"{failure}: {dump(call.meaning)} {dict(call.sizes)} {call.operands} -> {call.out}"
            return Conformance(name, count, frozenset(dtypes), frozenset(sizes), in_place, shown)
        in_place += len(_replaceable(kernel, call)) if ran else 0
    return Conformance(name, count, frozenset(dtypes), frozenset(sizes), in_place)


@dataclass(frozen=True)
class Wanted:
    """The value that a call has, and what each element may be off by."""

    value: NamedArray
    within: NamedArray


@dataclass
class _Memory:
    """A buffer that holds a view, poisoned, with a guard before and behind it."""

    view: View
    raw: np.ndarray

    @staticmethod
    def of(view: View) -> _Memory:
        """Memory of its own."""
        return _Memory(view, _guarded(_bytes(view)))

    @staticmethod
    def shared(call: Call) -> list[_Memory]:
        """That of a call's operands, some of which may be views of one buffer."""
        numbers = call.shared or range(len(call.operands))
        most: dict[int, int] = {}
        for n, v in zip(numbers, call.operands, strict=True):
            most[n] = max(most.get(n, 0), _bytes(v))
        raws = {n: _guarded(size) for n, size in most.items()}
        return [_Memory(v, raws[n]) for n, v in zip(numbers, call.operands, strict=True)]

    @property
    def array(self) -> np.ndarray:
        return _viewed(self.view, self.raw)

    def untouched(self) -> bool:
        """Whether everything outside the view is still poison."""
        mark = np.zeros(self.raw.size, bool)
        inside = View(self.view.axes, self.view.shape, self.view.strides, self.view.dtype, self.view.offset)
        item = numpy_dtype(self.view.dtype).itemsize
        spots = np.ndarray(
            (*inside.shape, item), bool, mark, _GUARD + inside.offset * item, (*(s * item for s in inside.strides), 1)
        )
        spots[...] = True
        return bool(np.all(self.raw[~mark] == _POISON))


def _bytes(v: View) -> int:
    """Of a buffer that holds a view."""
    return v.extent * numpy_dtype(v.dtype).itemsize


def _guarded(size: int) -> np.ndarray:
    """Poisoned bytes with a guard on either side."""
    return np.full(_GUARD + size + _GUARD, _POISON, np.uint8)


def _viewed(view: View, raw: np.ndarray) -> np.ndarray:
    """A view on what lies between the guards of a buffer."""
    return view.array(raw[_GUARD:].view(numpy_dtype(view.dtype)))


Seen = Callable[[Sequence[np.ndarray], np.ndarray], None]
"""Is shown the operands of a call and its result."""


def check_call(
    kernel: Kernel, call: Call, rng: np.random.Generator, seen: Seen = lambda operands, result: None
) -> str | None:
    """What is wrong with the kernel on a call that it accepts; None when nothing is. A kernel of another device than
    the CPU is run in the memory of that device."""
    try:
        Features(kernel.features(call))
    except ValueError as e:
        return str(e)
    memory = _Memory.shared(call)
    if not _fill(call, memory, rng):
        return None  # no value to be equal to, such as the maximum of nothing
    leaves = {f"%{i}": NamedArray(m.view.axes, m.array.copy()) for i, m in enumerate(memory)}
    try:
        with np.errstate(all="ignore"):
            values = evaluate(call.meaning, leaves, call.sizes, Native())
    except (ValueError, IndexError):
        return None
    if any(unheld(t, values[t.terms[0]].data) for t in truncations(call.meaning)):
        return None
    own = values[call.meaning]
    wanted = Wanted(own, deviations(call.meaning, leaves, call.sizes, kernel.error, rng, own))
    before = [m.raw.copy() for m in memory]
    for replaced in (None, *_replaceable(kernel, call)):
        for m, raw in zip(memory, before, strict=True):
            m.raw[...] = raw
        wrong = _run(kernel, call, memory, replaced, wanted, seen)
        changed = [i for i, m in enumerate(memory) if i != replaced and not np.array_equal(m.raw, before[i])]
        if changed:
            wrong = f"operand {changed[0]} was written"
        if wrong is not None:
            return wrong if replaced is None else f"in place of operand {replaced}: {wrong}"
    return None


def _fill(call: Call, memory: Sequence[_Memory], rng: np.random.Generator) -> bool:
    """Draw the operands; positions lie in the axis they point into, counted from either end."""
    kind = str(rng.choice(_DRAWS))
    if 0 in call.sizes.values():
        kind = "normal"  # a sum of nothing times NaN may be taken apart to 0 * NaN
    if kind == "special" and factored(call.meaning):
        kind = "normal"  # which rows are exchanged where some elements are no numbers, LAPACK does not say
    if any(truncations(call.meaning)):
        kind = "positive"  # a float that an integer cannot hold becomes whatever the machine makes of it
    drawn = draw_leaves((call.meaning,), call.sizes, kind, Native(), rng)
    if kind == "special" and (depth := _depth(call)) > _FEW:  # else every sum is NaN
        usual = draw_leaves((call.meaning,), call.sizes, "normal", Native(), rng)
        drawn = {n: _thinned(x, usual[n], _FEW / depth / 2, rng) for n, x in drawn.items()}
    for i, m in enumerate(memory):
        x = drawn.get(f"%{i}")
        if x is not None:
            m.array[...] = x.aligned(m.view.axes)
    if any(_changed(drawn, memory, a) for a in factored(call.meaning)):
        return False
    for t in postorder(call.meaning):
        if t.head in ("Gather", "Scatter"):
            named = dict(zip((n for n, _ in HEADS[t.head].args), t.args, strict=True))
            size, leaf = call.sizes[named["k"]], named["i"]
            if size == 0:
                return False
            if leaf.head == "In" and not memory[int(leaf.args[0][1:])].view.dtype.startswith("u"):
                m = memory[int(leaf.args[0][1:])]
                if 0 not in m.view.strides and m.view.is_dense:
                    m.array[...] -= (rng.random(m.view.shape) < 0.3).astype(m.array.dtype) * size
    return True


def _changed(drawn: Mapping[str, NamedArray], memory: Sequence[_Memory], a: Term) -> bool:
    """Whether a matrix that was drawn lies in memory as another one: its elements share places there, so that it may be
    singular."""
    if a.head != "In":
        return False
    m = memory[int(a.args[0][1:])]
    return not np.array_equal(m.array, np.broadcast_to(drawn[a.args[0]].aligned(m.view.axes), m.array.shape))


def _depth(call: Call) -> int:
    """Of how many numbers a sum of the call is made at most."""
    axes = {t.args[FOLDED[t.head]] for t in postorder(call.meaning) if t.head in ("Sum", "Scan")}
    return math.prod(call.sizes[k] for k in axes)


def _thinned(x: NamedArray, usual: NamedArray, part: float, rng: np.random.Generator) -> NamedArray:
    """Part of the elements of a drawn float array, the others as usual."""
    if x.data.dtype.kind in "biu":
        return x
    return NamedArray(x.axes, np.where(rng.random(x.data.shape) < part, x.data, usual.data))


def _replaceable(kernel: Kernel, call: Call) -> tuple[int, ...]:
    """Operands whose memory a plan would give to the result."""
    alone = [not call.shared or call.shared.count(n) == 1 for n in call.shared or call.operands]
    return tuple(
        i for i in kernel.in_place(call)
        if alone[i] and call.operands[i].is_dense and call.operands[i].offset == 0
        and call.operands[i].bytes == call.out.bytes and call.out.is_dense and call.out.offset == 0
    )  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """Buffers of the CPU and, where `on` is another memory, their copies there."""

    on: Storage | None
    there: dict[int, Any] = field(default_factory=dict)

    def of(self, view: View, raw: np.ndarray) -> Any:
        """A view on a buffer."""
        if self.on is None:
            return _viewed(view, raw)
        item, flat = numpy_dtype(view.dtype), self.all(raw)
        return placed(view, flat.strided(_GUARD, ((raw.size - _GUARD) // item.itemsize,), (item.itemsize,), item))

    def all(self, raw: np.ndarray) -> Any:
        """A whole buffer."""
        if self.on is None:
            return raw
        if id(raw) not in self.there:
            self.there[id(raw)] = self.on.uploaded(raw)
        return self.there[id(raw)]

    def fetch(self, *raws: np.ndarray) -> None:
        """Make the buffers of the CPU what their copies are."""
        for raw in raws:
            if id(raw) in self.there:
                raw[...] = self.there[id(raw)].get()


def _run(
    kernel: Kernel,
    call: Call,
    memory: Sequence[_Memory],
    replaced: int | None,
    wanted: Wanted,
    seen: Seen,
) -> str | None:
    result = _Memory.of(call.out) if replaced is None else memory[replaced]
    size = kernel.workspace(call)
    scratch = _guarded(size)
    of, to = (_Place(kernel.storage() if d != CPU else None) for d in (kernel.origin, kernel.device))
    to = of if kernel.origin == kernel.device else to
    try:
        with np.errstate(all="ignore"):
            operands = [of.of(m.view, m.raw) for m in memory]
            steps = kernel.bind(call, operands, to.of(call.out, result.raw), _between(to.all(scratch), size))
            for step in steps if replaced is not None else (*steps, *steps):
                step()
            to.fetch(result.raw, scratch)
            of.fetch(*(m.raw for m in memory))
    except Exception as e:
        return f"raises {type(e).__name__}: {e}"
    if np.any(scratch[:_GUARD] != _POISON) or np.any(scratch[_GUARD + size :] != _POISON):
        return "it writes outside its workspace"
    if replaced is None and not result.untouched():
        return "it writes outside its result"
    out = _viewed(call.out, result.raw)
    if replaced is None:
        seen([m.array for m in memory], out)
    return difference(out, call, wanted)


def _between(flat: Any, size: int) -> Any:
    """What lies between the guards of a buffer, as bytes."""
    return flat[_GUARD:][:size] if isinstance(flat, np.ndarray) else flat.strided(_GUARD, (size,), (1,), flat.dtype)


def difference(got: np.ndarray, call: Call, wanted: Wanted) -> str | None:
    """How the result of a call differs from its meaning, by more than what is allowed where that is finite."""
    want, near = (np.broadcast_to(x.aligned(call.out.axes), got.shape) for x in (wanted.value, wanted.within))
    if not is_float(call.out.dtype):
        same = got == want
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            close = (np.abs(g - w) <= near) | ~np.isfinite(near)
            # rounding may have taken one of both, and not the other, beyond the largest number
            least = np.minimum(np.abs(g), np.abs(w))
            over = (np.isinf(g) != np.isinf(w)) & (np.signbit(g) == np.signbit(w)) & np.isfinite(near) & (near > 0)
            over &= least + near > largest(call.out.dtype)
        # what is infinite in one order of adding and multiplying is NaN in another
        summed = any(t.head == "Sum" for t in postorder(call.meaning))
        ends = ~np.isfinite(g) if summed else (np.isnan(g) & np.isnan(w)) | (g == w)
        same = np.where(np.isfinite(w), close, ends) | over
    wrong = int(np.size(same) - np.count_nonzero(same))
    if not wrong:
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{wrong} of {np.size(same)} elements differ, {got[at]!s} where {want[at]!s} is meant, at {at}"
