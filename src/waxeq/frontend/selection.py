"""`y[mask]` where the mask is data: how many elements that are is not known, but what they become is, as in
`y[mask] += 1` and `y[mask] = 2 * y[mask]`. It is computed of all elements; the mask says which are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from waxeq.errors import UnsupportedError
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.ir.graph import Source

UNKNOWN = "the number of elements a mask picks depends on content"
INSTEAD = "use np.where(mask, x, other), or write x[mask] = value"
"""Why an index is refused, and the way out."""

_EACH = frozenset({"where", "clip", "round", "around", "fix", "sinc", "nan_to_num", "isposinf", "isneginf"})
"""Functions of each element that are no ufuncs."""


class Selection(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of an array where a mask is true, in functions of each of them; all else is refused. `whole` is the
    array, `mask` one of its leading axes, as they were when it was indexed, which was at `place` in the program."""

    def __init__(self, whole: TracedArray, mask: TracedArray) -> None:
        t = whole.tracer
        require_fit(mask.shape, whole.shape)
        self.tracer: Tracer = t
        self.place = t.source()
        self.whole, self.mask = t.wrap(whole.value), t.wrap(mask.value)

    def __array_ufunc__(self, f: np.ufunc, method: str, *args: Any, out: Any = None, **kw: Any) -> Any:
        own = all(self._fits(a) for a in args) and all(o is self for o in out or ())
        if method != "__call__" or f.nout != 1 or not own or kw or f.signature is not None:
            raise self.refused()
        rows = [a.whole if isinstance(a, Selection) else a for a in args]
        result = f(*rows)
        if not isinstance(result, TracedArray) or result.shape != self.whole.shape:
            raise self.refused()
        if out is None:
            return Selection(result, self.mask)
        if not np.can_cast(result.dtype, self.whole.dtype, "same_kind"):
            raise TypeError(f"a result of {result.dtype} cannot be written to an array of {self.whole.dtype}")
        self.whole = result.astype(self.whole.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        return self

    def __array_function__(self, f: Any, types: Any, args: Any, kw: Any) -> Any:
        given = (*args, *kw.values())
        if f.__name__ not in _EACH or not all(self._fits(a) for a in given) or kw.get("out") is not None:
            raise self.refused()
        rows = [a.whole if isinstance(a, Selection) else a for a in given]
        result = f(*rows[: len(args)], **dict(zip(kw, rows[len(args) :], strict=True)))
        if not isinstance(result, TracedArray) or result.shape != self.whole.shape:
            raise self.refused()
        return Selection(result, self.mask)

    def _fits(self, x: Any) -> bool:
        """Whether an operand is the same for each element, or picked by the same mask."""
        if isinstance(x, Selection):
            return x.mask.value == self.mask.value and x.whole.shape == self.whole.shape
        return np.ndim(x) <= self.whole.ndim - self.mask.ndim

    def refused(self, place: Source | None = None) -> UnsupportedError:
        """The error for what depends on how many elements there are, where the program stands or at another place."""
        return self.tracer.refuse(UNKNOWN, INSTEAD, place)

    def _refuse(self, *args: Any, **kw: Any) -> Any:
        raise self.refused()

    __array__ = __getitem__ = __setitem__ = _refuse
    __len__ = __iter__ = __bool__ = __int__ = __float__ = __index__ = __contains__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refused()


def is_mask(t: Tracer, index: Any) -> bool:
    """Whether an index is a mask that is data."""
    return isinstance(index, TracedArray) and index.dtype == bool and t.known(index) is None


def require_fit(mask: Sequence[int], shape: Sequence[int], first: int = 0) -> None:
    """Raises IndexError, as NumPy does, where a mask has not the sizes of the axes from `first` on of an array."""
    if len(mask) > len(shape) - first:
        have = len(shape)
        raise IndexError(f"too many indices for array: array is {have}-dimensional, but {len(mask)} were indexed")
    for axis, (own, n) in enumerate(zip(mask, shape[first:], strict=False), first):
        if own != n:
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis}; size of axis is {n} but size of "
                f"corresponding boolean axis is {own}"
            )


def written(t: Tracer, x: TracedArray, index: Any, value: Selection) -> TracedArray:
    """What x is after x[index] = value."""
    if not is_mask(t, index) or index.value != value.mask.value or value.whole.shape != x.shape:
        raise value.refused()
    picked: Any = value.mask.reshape(index.shape + (1,) * (x.ndim - index.ndim))
    return t.array(np.where(picked, value.whole.astype(x.dtype), x))
