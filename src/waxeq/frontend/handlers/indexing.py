"""Reading and writing by index. What a write makes of an array is a new value; views follow (frontend.array)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.frontend import selection
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axis_index
from waxeq.frontend.handlers.parts import is_array, of_axis, parts_of, picks, side_by_side, signed, traced
from waxeq.frontend.handlers.progressions import outer, taken
from waxeq.frontend.handlers.shapes import view
from waxeq.frontend.patchwork import Content, cut, one_by_one, positions, read, write
from waxeq.frontend.ranges import Range, known_range
from waxeq.frontend.selection import Selection, is_mask, require_fit
from waxeq.ops.indexing import Gather, Scatter, TakeAlong
from waxeq.ops.movement import Concat


def getitem(t: Tracer, x: TracedArray, index: Any) -> Any:
    """x[index]: a scalar for ints on all axes, a view for ints, slices and new axes, a copy where there are arrays."""
    if is_mask(t, index):
        return Selection(x, index)
    if (rest := selection.behind(t, index)) is not None:
        return Selection(x, index[0])[(slice(None), *rest)]
    if (part := selection.part(t, x, index)) is not None and part.plain:
        return Selection(getitem(t, x, part.places), part.mask, part.at)
    given = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, Selection) for p in given):
        return selection.of_places(t, x, given)
    parts = parts_of(t, x, index)
    single = not any(p is None or isinstance(p, slice) for p in parts) and not any(p is Ellipsis for p in given)
    if any(is_array(p) and np.ndim(p) for p in parts):
        return _by_arrays(t, x, parts)
    if any(map(is_array, parts)):
        parts = [t.wrap(p.value, scalar=True) if traced(p) else p for p in parts]  # as they are now

    def now() -> Content:
        return _by_arrays(t, x, parts).value if any(map(is_array, parts)) else read(t.builder, x.content, parts)

    if single or any(is_array(p) and np.ndim(p) == 0 and not (traced(p) and p.scalar) for p in given):
        return t.wrap(now(), scalar=single)  # an array without axes as an index makes NumPy copy
    return view(t, x, now, lambda new: with_item(t, x, tuple(parts), new), index)


def _by_arrays(t: Tracer, x: TracedArray, parts: list[Any]) -> Any:
    """Ints and slices first; then the axes that arrays index become one, and are gathered from."""
    real, together = [p for p in parts if of_axis(p)], side_by_side(parts)
    y = getitem(t, x, tuple(slice(None) if is_array(p) else p for p in real))
    real = [p for p in real if is_array(p) or isinstance(p, slice)]
    axes = [i for i, p in enumerate(real) if picks(p)]
    first = axes[0] if together else 0
    rest = [i for i in range(y.ndim) if i not in axes]
    order = [*rest[:first], *axes, *rest[first:]]
    y = np.transpose(y, order) if order != list(range(y.ndim)) else y
    arrays: list[Any] = [real[i] for i in axes]
    return _with_new_axes(_gathered(t, y, first, arrays), parts, first, max(map(np.ndim, arrays)), together)


def _gathered(t: Tracer, y: Any, first: int, arrays: Sequence[Any]) -> TracedArray:
    """What arrays pick from as many axes, `first` and those after it: axis by axis where each of them has dimensions of
    its own, as those of np.ix_ have, and else from one axis that these become. A table of all pairs is read from
    memory, and says of no axis that positions are the same along it."""
    last = first + len(arrays)
    sizes = y.shape[first:last]
    known = not t.sized and not any(map(traced, arrays))
    if known and (apart := outer(arrays)) is not None:
        _require_within(arrays, sizes)
        shape = (*y.shape[:first], *np.broadcast_shapes(*(a.shape for a in arrays)), *y.shape[last:])
        for i, own in reversed(list(enumerate(apart))):
            y = taken(t, y, first + i, own)
        return y.reshape(shape)
    index = _combined(t, arrays, sizes)
    flat = y.reshape((*y.shape[:first], int(np.prod(sizes, dtype=np.int64)), *y.shape[last:]))
    return taken(t, flat, first, index)


def _with_new_axes(z: Any, parts: Sequence[Any], first: int, rank: int, together: bool) -> Any:
    """The gathered array with the new axes the index asks for."""
    if all(p is not None for p in parts):
        return z
    kept: list[Any] = []
    done = not together
    for p in parts:
        if p is None or isinstance(p, slice):
            kept.append(None if p is None else slice(None))
        elif not done and picks(p):
            kept += [slice(None)] * rank
            done = True
    return z[tuple(kept if together else [slice(None)] * rank + kept)]


def _combined(t: Tracer, parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """One index into the axes merged to one: a plain array where all parts are plain, else a traced one."""
    _require_within(parts, sizes)
    if len(parts) == 1:
        return parts[0]
    total: Any = None
    outside: Any = None
    for p, n in zip(parts, sizes, strict=True):
        i = p.astype(np.int64) if is_array(p) else np.asarray(p)
        i, here = _within_axis(t, i, n) if traced(p) else (np.where(i < 0, i + n, i), None)
        if here is not None:
            outside = here if outside is None else outside | here
        total = i if total is None else total * n + i
    # what is outside of its own axis may be inside the merged one: put it where the reading finds it out
    return total if outside is None else np.where(outside, int(np.prod(sizes, dtype=np.int64)), total)


def _within_axis(t: Tracer, i: Any, n: int) -> tuple[Any, Any]:
    """Traced positions counted from the start of an axis, and where they are outside of it; None: they never are. What
    their range settles is not computed. A trace at several sizes has one text for all of them."""
    r = None if t.sized else known_range(t.builder, i.value)
    if r is None:
        r = Range(-math.inf, math.inf)
    if r.low < 0:
        i = np.where(i < 0, i + n, i)
    below = i < 0 if r.low < -n or r.nan else None
    if r.high < n:
        return i, below
    return i, i >= n if below is None else below | (i >= n)


def _require_within(parts: Sequence[Any], sizes: Sequence[int]) -> None:
    for p, n in zip(parts, sizes, strict=True):
        if is_array(p) and p.dtype.kind not in "iu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        if not traced(p) and np.size(p) and not (-n <= np.min(p) and np.max(p) < n):
            raise IndexError(f"an index is out of bounds for axis with size {n}")


# -- writing


def with_item(t: Tracer, x: TracedArray, index: Any, value: Any) -> TracedArray:
    """What x is after x[index] = value."""
    if (rest := selection.behind(t, index)) is not None:
        places = (*(slice(None),) * index[0].ndim, *rest)
        require_fit(index[0].shape, x.shape)
        return with_item(t, x, places, with_item(t, getitem(t, x, places), index[0], value))
    if (part := selection.part(t, x, index)) is not None:
        return with_item(t, x, part.places, part.written(x, getitem(t, x, part.places), value))
    if isinstance(value, Selection):
        return selection.written(t, x, index, value)
    if is_mask(t, index):
        return _with_mask(t, x, index, value)
    parts = parts_of(t, x, index)
    v = t.written(value, x.dtype)
    if not any(map(is_array, parts)):
        return _with_slices(t, x, parts, v)
    if not any(map(traced, parts)) and not t.sized:
        return _with_known_places(t, x, tuple(parts), v)
    return with_places(t, x, parts, v)


def of_region(t: Tracer, v: TracedArray, shape: tuple[int, ...]) -> TracedArray:
    """A value in the shape of what is written; NumPy takes leading axes of size 1 too many."""
    while v.ndim > len(shape) and v.shape[0] == 1:
        v = v[0]
    return v if v.shape == shape else np.broadcast_to(v, shape)  # pyright: ignore[reportReturnType]


def _with_mask(t: Tracer, x: TracedArray, mask: TracedArray, value: Any) -> TracedArray:
    require_fit(mask.shape, x.shape)
    rest = x.ndim - mask.ndim
    v = t.written(value, x.dtype)
    if v.ndim > rest:
        what = f"x[mask] = an array: {selection.UNKNOWN}"
        raise t.refuse(what, "write x = np.where(mask, values of the shape of x, x)")
    return np.where(mask.reshape(mask.shape + (1,) * rest), v, x)  # pyright: ignore[reportReturnType]


def _with_slices(t: Tracer, x: TracedArray, parts: Sequence[Any], v: TracedArray) -> TracedArray:
    """Ints and slices. In traces at several sizes the array is made anew by each write, which is the same at all."""
    real = [p for p in parts if p is not None]
    runs = [positions(p, n) for p, n in zip(real, x.shape, strict=True)]
    sizes = (len(r) for p, r in zip(real, runs, strict=True) if isinstance(p, slice))
    v = of_region(t, v, tuple(1 if p is None else next(sizes) for p in parts if p is None or isinstance(p, slice)))
    if 0 in v.shape:
        return x
    if t.sized or not one_by_one(runs):
        return _with_runs(t, x, runs, v.reshape(tuple(map(len, runs))))
    if len(real) < len(parts):
        v = v.reshape(tuple(len(r) for p, r in zip(real, runs, strict=True) if isinstance(p, slice)))
    return t.wrap(write(t.builder, x.content, real, v.content))


def _with_runs(t: Tracer, x: TracedArray, runs: Sequence[range], v: TracedArray) -> TracedArray:
    """Axis by axis, what is before, the new part, what is after."""
    changed = [i for i, r in enumerate(runs) if (r.start, r.step, len(r)) != (0, 1, x.shape[i])]

    def put(base: int, axes: list[int]) -> int:
        if not axes:
            return v.value
        axis, *rest = axes
        inner = put(cut(t.builder, base, axis, runs[axis]), rest)
        return _spliced(t, base, axis, runs[axis], inner)

    return t.wrap(put(x.value, changed))


def _spliced(t: Tracer, base: int, axis: int, run: range, new: int) -> int:
    """`base` with `new` at the positions `run` of an axis."""
    n = t.builder.type(base).shape[axis]
    if len(run) > 1 and run.step < 0:
        run, new = run[::-1], np.flip(t.wrap(new), axis).value  # pyright: ignore[reportAttributeAccessIssue]
    if len(run) > 1 and run.step > 1:
        column = run.start % run.step
        first = run.start - column
        last = first + run.step * len(run)
        part = t.wrap(cut(t.builder, base, axis, range(first, min(last, n))))
        new = _column_set(t, part, axis, (column, run.step), t.wrap(new))
    else:
        first, last = run.start, run.start + len(run)
    around = [cut(t.builder, base, axis, range(first)), new, cut(t.builder, base, axis, range(last, n))]
    pieces = [v for v in around if t.builder.type(v).shape[axis]]
    return pieces[0] if len(pieces) == 1 else t.builder(Concat(axis), *pieces)


def _column_set(t: Tracer, x: TracedArray, axis: int, at: tuple[int, int], new: TracedArray) -> int:
    """x in groups of so many neighbours along an axis, the last of which may lack some, with the one at a place of each
    group new. Groups are an axis that kernels write as it lies, where a table of positions would be looked up."""
    place, step = at
    n, groups = x.shape[axis], new.shape[axis]
    around = [(0, 0)] * x.ndim
    around[axis] = (0, step * groups - n)
    whole = np.pad(x, around) if n < step * groups else x
    lead, rest = x.shape[:axis], x.shape[axis + 1 :]
    rows = t.array(whole).reshape((*lead, groups, step, *rest))
    outer = (slice(None),) * (axis + 1)
    column = new.reshape((*lead, groups, 1, *rest))
    made = np.concatenate([rows[(*outer, slice(place))], column, rows[(*outer, slice(place + 1, None))]], axis + 1)
    return t.array(t.array(made).reshape((*lead, step * groups, *rest))[(*outer[:-1], slice(n))]).value


def _with_known_places(t: Tracer, x: TracedArray, index: tuple[Any, ...], v: TracedArray) -> TracedArray:
    """Any index of plain arrays: NumPy says where each element comes from."""
    places = np.arange(x.size).reshape(x.shape)
    written = places[index]
    source = places.reshape(-1).copy()
    source[written.reshape(-1)] = x.size + np.arange(written.size)
    both = np.concatenate([x.reshape(-1), of_region(t, v, written.shape).reshape(-1)])
    return t.wrap(t.builder(Gather(0), t.value(both), t.value(source.reshape(x.shape))))


def with_places(t: Tracer, x: TracedArray, parts: Sequence[Any], v: TracedArray, f: str = "set") -> TracedArray:
    """What x is once `v` is put (f = "set"; of several for one place the last one stays), added ("add") or kept if it
    is larger ("max") or smaller ("min") where arrays, traced or known, among slices say."""
    if any(p is None for p in parts):
        parts, v = _without_new_axes(t, x, parts, v)
    together, parts = side_by_side(parts), [p for p in parts if of_axis(p)]
    axes = [i for i, p in enumerate(parts) if picks(p)]
    rest = [i for i, p in enumerate(parts) if not picks(p)]
    first = axes[0] if together else 0  # what arrays that are apart index comes first, as in reading
    order = [*rest[:first], *axes, *rest[first:]]
    outer = tuple(p if isinstance(p, slice) else slice(None) for p in parts)
    y = getitem(t, x, outer)
    y = y if together else np.transpose(y, order)
    after = first + len(axes)
    index = t.array(_combined(t, [parts[i] for i in axes], y.shape[first:after]))
    merged = (*y.shape[:first], int(np.prod(y.shape[first:after], dtype=np.int64)), *y.shape[after:])
    region = of_region(t, v, (*y.shape[:first], *index.shape, *y.shape[after:]))
    new = scattered(t, f, y.reshape(merged), first, index, region).reshape(y.shape)
    new = new if together else np.transpose(new, np.argsort(order).tolist())
    return with_item(t, x, outer, new)


def _without_new_axes(t: Tracer, x: TracedArray, parts: Sequence[Any], v: TracedArray) -> tuple[list[Any], Any]:
    """An index without its new axes, by which the same is written, and what is, in the shape that it has there."""
    real = [p for p in parts if of_axis(p)]
    if not side_by_side(parts):
        real.insert(1 + next(i for i, p in enumerate(real) if picks(p)), ...)
    region = of_region(t, v, getitem(t, x, tuple(parts)).shape)
    return real, region.reshape(getitem(t, x, tuple(real)).shape)


def scattered(t: Tracer, f: str, x: Any, axis: int, index: Any, v: Any) -> Any:
    """x with `v` put, added or kept at traced positions along one axis, which the dimensions of the index replace in
    the shape of v."""
    update = v.reshape((*x.shape[:axis], index.size, *x.shape[axis + 1 :]))
    return t.wrap(t.builder(Scatter(f, axis), x.value, index.reshape(-1).value, update.value))


# -- functions


def _take(t: Tracer, a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    x = t.array(a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis_index(axis, x.ndim)
    n = x.shape[axis]
    index = indices if isinstance(indices, TracedArray) else np.asarray(indices)
    index = index.astype(np.int64) if index.dtype == np.uint64 or not index.size else index
    if mode == "wrap":
        index = index % n
    elif mode == "clip":
        index = np.clip(index, 0, n - 1)
    elif not traced(index):
        _combined(t, [index], [n])
    return taken(t, x, axis, index)


def _take_along_axis(t: Tracer, arr: Any, indices: Any, axis: int | None = -1) -> Any:
    x, index = t.array(arr), signed(t.array(indices))
    if axis is None:
        x, axis = x.reshape(-1), 0
    return t.wrap(t.builder(TakeAlong(axis_index(axis, x.ndim)), x.value, index.value))


def _compress(t: Tracer, condition: Any, a: Any, axis: int | None = None) -> Any:
    known = t.known(condition)
    if known is None:
        raise t.refuse(f"np.compress: {selection.UNKNOWN}", "use np.where(condition, x, other)")
    x = t.array(a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    return np.take(x, np.nonzero(known)[0], axis=axis)


def _choose(t: Tracer, a: Any, choices: Any, mode: str = "raise") -> Any:
    """A number of no choice, negative ones too, raises an IndexError by default, where NumPy raises a ValueError."""
    x = t.array(a)
    if not np.can_cast(x.dtype, np.int64, "safe"):
        raise TypeError(f"choices are numbered by integers that int64 holds, not by {x.dtype}")
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    x = x if mode == "raise" and x.dtype.kind == "u" else x.astype(np.int64)
    rows: list[Any] = [t.wrap(v) for v in t.explicit.wrapped(*(t.operand(c) for c in choices))]
    shape = np.broadcast_shapes(x.shape, *(r.shape for r in rows))
    stacked = np.stack([np.broadcast_to(r, shape) for r in rows])
    n = len(rows)
    if mode != "raise":
        index = x % n if mode == "wrap" else np.clip(x, 0, n - 1)
    else:  # reading would count negative ones from the end: they are put where it finds them out
        index = np.where(x < 0, n, x) if x.dtype.kind == "i" else x
    return np.take_along_axis(stacked, np.broadcast_to(index, shape)[None], axis=0)[0]


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "take": _take,
    "take_along_axis": _take_along_axis,
    "compress": _compress,
    "choose": _choose,
}

METHODS: Mapping[str, Callable[..., Any]] = {
    "compress": lambda t, x, condition, axis=None, out=None: np.compress(condition, x, axis=axis, out=out),
    "choose": _choose,
}
