"""Kernels of a single head: gathers, concatenation, padding, scans, sorts and the copies that views cannot avoid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from waxeq.backend.call import Call, aligned
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.basis.evaluate import Evaluator, NamedArray
from waxeq.ir.types import comparable
from waxeq.ops.ordering import quickest

_EVALUATED, _LOOKED_UP, _MET = 50.0, 10.0, 10.0
"""Calls of a function on few elements that others take as long as: the definition of a head is found, checked and its
axes put in order in 20 us; of a look-up the largest index, the least one and np.take are a microsecond each, of which
NumPy looks for what to call most of the time; and updates that meet rows are as long."""


class Direct(Kernel):
    """One head, by its definition: right on any strides and dtypes; allocates while it runs."""

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        moved = sum(v.bytes for v in (*call.operands, call.out))
        return {"launches": _EVALUATED, "slow_bytes": float(moved)}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        return (partial(_evaluate, call, tuple(operands), out),)


def _evaluate(call: Call, operands: tuple[np.ndarray, ...], out: np.ndarray) -> None:
    leaves = {f"%{i}": NamedArray(v.axes, a) for i, (v, a) in enumerate(zip(call.operands, operands, strict=True))}
    e = Evaluator(call.sizes)
    value = e.present(e.term(call.meaning, leaves), *call.out.axes)
    np.copyto(out, value.aligned(call.out.axes))


class Take(Kernel):
    """Rows of a table at positions given by an index tensor that shares no axis with it: the embedding look-up."""

    name = "take"
    pattern = "(Gather k i x)"

    def accepts(self, call: Call) -> bool:
        index, table = call.operands
        k = call.meaning.args[0]
        if set(index.axes) & set(table.axes) or k not in table.axes:
            return False
        at = table.axes.index(k)
        return (*table.axes[:at], *index.axes, *table.axes[at + 1 :]) == call.out.axes and call.out.is_dense

    def features(self, call: Call) -> Mapping[str, float]:
        return {"launches": _LOOKED_UP, "bytes": float(2 * call.out.bytes + call.operands[0].bytes)}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        index, table = operands
        axis = call.operands[1].axes.index(call.meaning.args[0])
        return (partial(_in_bounds, index, table.shape[axis]), partial(np.take, table, index, axis, out, "wrap"))


def _in_bounds(index: np.ndarray, size: int) -> None:
    if index.size and (index.max() >= size or index.min() < -size):
        raise IndexError(f"an index is out of bounds for an axis of size {size}")


class Sort(Kernel):
    """Rows copied into the result and sorted there."""

    name = "sort"
    pattern = "(Sort k x)"

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        return {"launches": 1.0, "slow_bytes": float(call.operands[0].bytes + call.out.bytes)}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        axis = call.out.axes.index(call.meaning.args[0])
        x = aligned(operands[0], call.operands[0], call.out.axes)
        if call.out.dtype == "bfloat16":
            return (partial(_sorted, x, axis, out),)
        return (partial(np.copyto, out, x), partial(out.sort, axis, quickest(out.dtype)))


def _sorted(x: np.ndarray, axis: int, out: np.ndarray) -> None:
    np.copyto(out, np.sort(comparable(x), axis=axis).astype(out.dtype))


class Scatter(Direct):
    """Updates that meet rows of the result, in order."""

    name = "scatter"
    pattern = "(Scatter f k p i u x)"

    def features(self, call: Call) -> Mapping[str, float]:
        apart = {*call.operands[0].axes} - {call.meaning.args[2]}
        return super().features(call) if apart else {**super().features(call), "launches": _MET}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        f, k, p = call.meaning.args[:3]
        index, update, x = call.operands
        if {*index.axes} - {p}:  # each row has places of its own
            return super().bind(call, operands, out, workspace)
        rest = tuple(a for a in call.out.axes if a != k)
        rows = aligned(out, call.out, (k, *rest))
        places = np.broadcast_to(operands[0], (call.sizes[p],))
        updates = np.broadcast_to(aligned(operands[1], update, (p, *rest)), (call.sizes[p], *rows.shape[1:]))
        met = partial(rows.__setitem__, places, updates) if f == "set" else partial(_AT[f], rows, places, updates)
        return (partial(np.copyto, rows, aligned(operands[2], x, (k, *rest))), met)


_AT = {"add": np.add.at, "max": np.maximum.at, "min": np.minimum.at}


class Argmax(Direct):
    """Where the largest of each row is. Rows that lie side by side are read once, in vectors."""

    name = "argmax"
    pattern = '(Red "argmax" k x)'

    def features(self, call: Call) -> Mapping[str, float]:
        (x,), rest = call.operands, super().features(call)
        k = call.meaning.args[1]
        beside = x.dtype in _VECTORS and k in x.axes and x.strides[x.axes.index(k)] == 1
        if beside:
            return {"launches": 1.0, "bytes": rest["slow_bytes"]}
        return {**rest, "launches": 1.0} if x.dtype in _VECTORS and {*x.axes} == {k, *call.out.axes} else rest

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        (x,), (f, k, _) = call.operands, call.meaning.args
        if x.dtype not in _VECTORS or {*x.axes} != {k, *call.out.axes}:
            return super().bind(call, operands, out, workspace)
        rows = aligned(operands[0], x, (*call.out.axes, k))
        return (partial(np.argmax if f == "argmax" else np.argmin, rows, -1, out),)


class Argmin(Argmax):
    """Where the smallest of each row is."""

    name = "argmin"
    pattern = '(Red "argmin" k x)'


_VECTORS = frozenset(
    {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)} | {"float32", "float64", "bool"}
)


def _direct(name: str, pattern: str) -> type[Direct]:
    return type(name.title().replace("_", ""), (Direct,), {"name": name, "pattern": pattern, "__doc__": Direct.__doc__})


KERNELS = (
    Take,
    Sort,
    Scatter,
    Argmax,
    Argmin,
    _direct("gather", "(Gather k i x)"),
    _direct("cat", "(Cat p q n x y)"),
    _direct("scan", "(Scan f k x)"),
    _direct("argsort", "(Argsort k x)"),
    _direct("iota", "(Iota k dtype)"),
    _direct("rename", "(Ren a b x)"),
    _direct("split", "(Split k p q x)"),
    _direct("merge", "(Merge p q k x)"),
    _direct("diagonal", "(Diag i j k x)"),
    _direct("slice", "(Slice k n start step x)"),
    _direct("unfold", "(Unfold k o w stride dilation x)"),
)
