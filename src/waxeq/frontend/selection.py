"""`y[mask]` where the mask is data: how many elements that are is not known, but what they become is, as in
`y[mask] += 1` and `y[mask] = 2 * y[mask]`, and so are their sums and means. It is computed of all elements; the mask
says which are written, or count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from waxeq.errors import UnsupportedError
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axis_index
from waxeq.ir.graph import Source

UNKNOWN = "the number of elements a mask picks depends on content"
INSTEAD = "use np.where(mask, x, other), or write x[mask] = value"
"""Why an index is refused, and the way out."""

_EACH = frozenset({"where", "clip", "round", "around", "fix", "sinc", "nan_to_num", "isposinf", "isneginf"})
"""Functions of each element that are no ufuncs."""
_FOLDS = frozenset({"sum", "prod", "any", "all", "mean", "var", "std"})
"""Folds that are defined where the mask picks nothing, as functions and as methods."""
_ALONG = frozenset({"cumsum", "cumprod", "sort"})
"""What leaves the axis that it is along."""
_OF_EACH = frozenset({"max", "min", "argmax", "argmin"}) | _ALONG | _FOLDS
"""What may be done along an axis that the mask is not of, as functions and as methods."""


class Selection(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of an array where a mask is true, in functions of each of them and in folds; all else is refused.
    `whole` is the array, `mask` one of its axes from `at` on, as they were when it was indexed, which was at `place` in
    the program."""

    def __init__(self, whole: TracedArray, mask: TracedArray, at: int = 0) -> None:
        t = whole.tracer
        require_fit(mask.shape, whole.shape, at)
        self.at = at
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
            return Selection(result, self.mask, self.at)
        if not np.can_cast(result.dtype, self.whole.dtype, "same_kind"):
            raise TypeError(f"a result of {result.dtype} cannot be written to an array of {self.whole.dtype}")
        self.whole = result.astype(self.whole.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        return self

    def __array_function__(self, f: Any, types: Any, args: Any, kw: Any) -> Any:
        if args and args[0] is self and (f.__name__ in _OF_EACH or f.__name__ == "count_nonzero"):
            return self._folded(f, *args[1:], **kw)
        given = (*args, *kw.values())
        if f.__name__ not in _EACH or not all(self._fits(a) for a in given) or kw.get("out") is not None:
            raise self.refused()
        rows = [a.whole if isinstance(a, Selection) else a for a in given]
        result = f(*rows[: len(args)], **dict(zip(kw, rows[len(args) :], strict=True)))
        if not isinstance(result, TracedArray) or result.shape != self.whole.shape:
            raise self.refused()
        return Selection(result, self.mask, self.at)

    def _folded(self, f: Any, axis: Any = None, *rest: Any, **kw: Any) -> Any:
        """A fold over all that is picked, or along one axis: over the picked, or of each of them."""
        axes, rank = tuple(range(self.at, self.at + self.mask.ndim)), self.ndim
        if not (axis is None or isinstance(axis, int)) or rest or kw.keys() & {"where", "out"}:
            raise self.refused()
        other = None if axis is None else axis_index(axis, rank)
        if other is not None and other != self.at:
            if kw.get("keepdims") or f.__name__ == "count_nonzero":
                raise self.refused()
            before = other < self.at
            y = f(self.whole, axis=other if before else other + self.mask.ndim - 1, **kw)
            return Selection(y, self.mask, self.at - (before and f.__name__ not in _ALONG))
        whole, picked = self.whole, np.broadcast_to(self._aligned(), self.whole.shape)
        if f.__name__ == "count_nonzero":
            f, whole = np.sum, whole.astype(bool)
        elif f.__name__ in ("max", "min"):
            if "initial" not in kw:
                what = f"np.{f.__name__} of what a mask picks has no value where that is nothing"
                raise self.tracer.refuse(what, f"write np.{f.__name__}(x, initial=..., where=mask)")
        elif f.__name__ not in _FOLDS:
            raise self.refused()
        kept: tuple[slice | None, ...] = ()
        if kw.pop("keepdims", False):
            kept = (None,) * rank if axis is None else (*(slice(None),) * self.at, None)
        y = f(whole, axis=None if axis is None else axes, where=picked, **kw)
        return y[(*kept, ...)] if kept else y

    def _aligned(self) -> Any:
        """The mask with axes for those of the array that it is not of."""
        return self.mask.reshape(self.mask.shape + (1,) * (self.whole.ndim - self.at - self.mask.ndim))

    ndim = property(lambda self: self.whole.ndim - self.mask.ndim + 1)
    dtype = property(lambda self: self.whole.dtype)

    @property
    def form(self) -> tuple[int, tuple[int, ...], int]:
        """Which elements of an array of which shape are picked: the same of all that have this in common."""
        return self.mask.value, self.whole.shape, self.at

    def astype(self, dtype: Any, *rest: Any, **kw: Any) -> Selection:
        """The same elements in another dtype."""
        return Selection(self.whole.astype(dtype, *rest, **kw), self.mask, self.at)

    def copy(self) -> Selection:
        """The same elements; what is written to a selection is never what it was picked of."""
        return Selection(self.whole, self.mask, self.at)

    def __getitem__(self, index: Any) -> Selection:
        """Parts of each element (`y[mask][:, 0]`), or fewer elements (`z[z > 0]`)."""
        if isinstance(index, Selection) and index.dtype == bool and index.ndim == 1 and self._fits(index):
            return Selection(self.whole, self.mask & index.whole)
        if self.at:
            raise self.refused()
        first, *rest = index if isinstance(index, tuple) else (index,)
        arrays = [p for p in rest if isinstance(p, (list, np.ndarray))]
        alone = all(isinstance(p, slice) or any(p is a for a in arrays) for p in rest)
        if not isinstance(first, slice) or first != slice(None) or len(arrays) > 1 or (arrays and not alone):
            raise self.refused()
        return Selection(self.whole[(*(slice(None),) * self.mask.ndim, *rest)], self.mask)

    def _fits(self, x: Any) -> bool:
        """Whether an operand is the same for each element, or picked by the same mask."""
        if isinstance(x, Selection):
            return x.form == self.form
        return np.ndim(x) <= self.whole.ndim - self.at - self.mask.ndim

    def refused(self, place: Source | None = None) -> UnsupportedError:
        """The error for what depends on how many elements there are, where the program stands or at another place."""
        return self.tracer.refuse(UNKNOWN, INSTEAD, place)

    def _refuse(self, *args: Any, **kw: Any) -> Any:
        raise self.refused()

    __array__ = __setitem__ = _refuse
    __len__ = __iter__ = __bool__ = __int__ = __float__ = __index__ = __contains__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OF_EACH - {"sort"}:
            return partial(self._folded, getattr(np, name))
        raise self.refused()


def of_places(t: Tracer, x: TracedArray, index: tuple[Any, ...]) -> Selection:
    """x[i[mask], j[mask], ...]: read at all places, those that are not picked at the first."""
    picked = [p for p in index if isinstance(p, Selection)]
    mask, rest = picked[0].mask, index[len(picked) :]
    own = all(p.mask.value == mask.value and p.whole.shape == mask.shape and p.dtype.kind in "iu" for p in picked)
    lead = all(isinstance(p, Selection) for p in index[: len(picked)])
    if not own or not lead or not all(isinstance(p, slice) for p in rest) or 0 in x.shape[: len(picked)]:
        raise picked[0].refused()
    places = tuple(np.where(mask, p.whole, np.zeros((), p.dtype)) for p in picked)
    return Selection(x[(*places, *rest)], mask)


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
    if not is_mask(t, index) or value.form != (index.value, x.shape, 0):
        raise value.refused()
    return t.array(np.where(value._aligned(), value.whole.astype(x.dtype), x))


def _is_int(p: Any) -> bool:
    """Whether a part of an index is an int that is known."""
    return isinstance(p, (int, np.integer)) and not isinstance(p, (bool, TracedArray))


def behind(t: Tracer, index: Any) -> tuple[Any, ...] | None:
    """What stands behind the mask in an index of a mask that is data and slices or ints; None for any other index."""
    if not isinstance(index, tuple) or len(index) < 2 or not is_mask(t, index[0]):
        return None
    rest = index[1:]
    plain = all(isinstance(p, slice) or _is_int(p) for p in rest)
    return rest if plain else None


@dataclass(frozen=True)
class Part:
    """What an index of a mask that is data among slices and ints picks: the mask picks of its axes from `at` on of what
    lies at `places`. `plain`: NumPy leaves the axes where they are, and does not bring those of the mask to the front.
    """

    mask: TracedArray
    places: tuple[Any, ...]
    at: int
    plain: bool

    def written(self, x: TracedArray, old: TracedArray, value: Any) -> TracedArray:
        """What lies there, which is `old`, after a value is written to what is picked of x."""
        t, after = x.tracer, old.ndim - self.at - self.mask.ndim
        mask: Any = self.mask.reshape(self.mask.shape + (1,) * after)
        if isinstance(value, Selection):
            if value.form != (self.mask.value, old.shape, self.at) or not self.plain:
                raise value.refused()
            return t.array(np.where(mask, value.whole.astype(x.dtype), old))
        v, cut = t.written(value, x.dtype), np.ndim(value) - after - 1
        if (v.ndim and not self.plain) or (cut >= 0 and v.shape[cut] != 1):
            raise t.refuse(f"x[mask] = an array: {UNKNOWN}", "write x = np.where(mask, values of the shape of x, x)")
        if cut >= 0:
            v = v.reshape(v.shape[:cut] + (1,) * self.mask.ndim + v.shape[cut + 1 :])
        return t.array(np.where(mask, v, old))


def part(t: Tracer, x: TracedArray, index: Any) -> Part | None:
    """What an index of one mask that is data among slices and ints picks of an array; None for any other index."""
    rows = index if isinstance(index, tuple) else ()
    found = [n for n, p in enumerate(rows) if is_mask(t, p)]
    ints = [n for n, p in enumerate(rows) if _is_int(p)]
    free = [n for n, p in enumerate(rows) if p is Ellipsis]
    if (
        len(found) != 1
        or len(free) > 1
        or len(ints) + len(free) + 1 + sum(isinstance(p, slice) for p in rows) < len(rows)
    ):
        return None
    mask, places, first = rows[found[0]], list[Any](), 0
    more = x.ndim - (known := mask.ndim + len(rows) - len(free) - 1)
    if more < 0:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {known} were indexed")
    for n, p in enumerate(rows):
        first = len(places) if n == found[0] else first
        places += [slice(None)] * (mask.ndim if n == found[0] else more) if n in (*found, *free) else [p]
    require_fit(mask.shape, x.shape, first)
    plain = not ints or (ints[-1] < found[0] and len(ints) == found[0])
    return Part(mask, tuple(places), first - sum(n < found[0] for n in ints), plain)
