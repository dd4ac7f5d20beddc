"""Functions that only re-arrange: what they give is a view of what they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer, View
from waxeq.frontend.explicit import axes_tuple, axis_index
from waxeq.frontend.patchwork import Content
from waxeq.ir.types import dtype_name
from waxeq.ops.movement import BroadcastTo, Diagonal, Reshape, Transpose
from waxeq.ops.window import Unfold

Axis = int | Sequence[int] | None


def view(
    t: Tracer,
    base: TracedArray,
    read: Callable[[], int | Content],
    write: Callable[[TracedArray], Any] | None = None,
    index: Any = None,
) -> TracedArray:
    """A view of `base`: `read` makes its value anew from the base as it is then. Of a scalar NumPy makes an array."""
    base = t.wrap(base.value) if base.scalar else base
    return TracedArray(t, read(), View(base, read, write, index))


def _transpose(t: Tracer, a: Any, axes: Any = None) -> TracedArray:
    x = t.array(a)
    perm = tuple(range(x.ndim))[::-1] if axes is None else tuple(axis_index(int(i), x.ndim) for i in axes)
    back = tuple(int(i) for i in np.argsort(perm))
    return view(
        t, x, lambda: t.builder(Transpose(perm), x.value), lambda new: t.wrap(t.builder(Transpose(back), new.value))
    )


def _swapaxes(t: Tracer, a: Any, axis1: int, axis2: int) -> TracedArray:
    x = t.array(a)
    perm = list(range(x.ndim))
    i, j = axis_index(axis1, x.ndim), axis_index(axis2, x.ndim)
    perm[i], perm[j] = perm[j], perm[i]
    return _transpose(t, x, perm)


def _moveaxis(t: Tracer, a: Any, source: Axis, destination: Axis) -> TracedArray:
    x = t.array(a)
    one: Any = np.lib.array_utils.normalize_axis_tuple
    src, dst = one(source, x.ndim), one(destination, x.ndim)
    order = [n for n in range(x.ndim) if n not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return _transpose(t, x, order)


def _rollaxis(t: Tracer, a: Any, axis: int, start: int = 0) -> TracedArray:
    x = t.array(a)
    axis, start = axis_index(axis, x.ndim), start + x.ndim if start < 0 else start
    return _moveaxis(t, x, axis, start - 1 if start > axis else start)


def _matrix_transpose(t: Tracer, x: Any) -> TracedArray:
    return _swapaxes(t, x, -1, -2)


def _reshape(t: Tracer, a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> TracedArray:
    x, order = t.array(a), order.upper()
    if order == "K":
        raise ValueError("order 'K' is not permitted for reshaping")
    if order == "F":
        sizes = tuple(_sizes(x, shape))
        return np.transpose(np.transpose(x).reshape(sizes[::-1]))  # pyright: ignore[reportReturnType]
    if order != "C":
        raise t.refuse(f"reshape in order {order!r}", "use order 'C' or 'F'")
    y = t.wrap(t.builder(Reshape(tuple(_sizes(x, shape))), x.value))
    return y if copy else y.perhaps_shares(x)


def _sizes(x: TracedArray, shape: Any) -> list[int]:
    sizes = [int(shape)] if isinstance(shape, (int, np.integer)) else [int(s) for s in shape]
    if sizes.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    if -1 in sizes:
        rest = math.prod(s for s in sizes if s != -1)
        sizes[sizes.index(-1)] = x.size // max(rest, 1)
    return sizes


def _ravel(t: Tracer, a: Any, order: str = "C") -> TracedArray:
    x, order = t.array(a), order.upper()
    if order in ("A", "K"):
        if sum(n != 1 for n in x.shape) > 1 and x.size:
            raise t.refuse(f"order {order!r}, that in which the array lies in memory", "use order 'C' or 'F'")
        order = "C"
    return _reshape(t, x, -1, order)


def _flatten(t: Tracer, x: TracedArray, order: str = "C") -> Any:
    return np.copy(_ravel(t, x, order))


def _expand_dims(t: Tracer, a: Any, axis: Axis) -> Any:
    x = t.array(a)
    rows = (axis,) if isinstance(axis, int) else tuple(axis or ())
    rank = x.ndim + len(rows)
    new = axes_tuple(rows, rank)
    return x[tuple(None if i in new else slice(None) for i in range(rank))]


def _squeeze(t: Tracer, a: Any, axis: Axis = None) -> Any:
    x = t.array(a)
    drop = [i for i, s in enumerate(x.shape) if s == 1] if axis is None else axes_tuple(axis, x.ndim)
    if any(x.shape[i] != 1 for i in drop):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return x[tuple(0 if i in drop else slice(None) for i in range(x.ndim))]


def _broadcast_to(t: Tracer, array: Any, shape: Any) -> TracedArray:
    x = t.array(array)
    sizes = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(s) for s in shape)
    return view(t, x, lambda: t.builder(BroadcastTo(sizes), x.value))


def _broadcast_arrays(t: Tracer, *arrays: Any) -> Any:
    shape = np.broadcast_shapes(*(np.shape(x) for x in arrays))
    return tuple(_broadcast_to(t, x, shape) for x in arrays)


def _at_least(rank: int, t: Tracer, *arrays: Any) -> Any:
    rows = []
    for a in arrays:
        x = t.array(a)
        missing = max(rank - x.ndim, 0)
        after = 1 if rank == 3 and x.ndim in (1, 2) else 0  # atleast_3d puts one new axis last
        rows.append(x[(None,) * (missing - min(after, missing)) + (...,) + (None,) * min(after, missing)])
    return rows[0] if len(rows) == 1 else tuple(rows)


def _flip(t: Tracer, m: Any, axis: Axis = None) -> Any:
    x = t.array(m)
    axes = axes_tuple(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


def _rot90(t: Tracer, m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    x = t.array(m)
    k %= 4
    if k == 0:
        return x[...]
    if k == 2:
        return np.flip(x, axes)
    turned = np.swapaxes(np.flip(x, axes[1]) if k == 1 else x, *axes)
    return turned if k == 1 else np.flip(turned, axes[1])


def diagonal(t: Tracer, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TracedArray:
    """The diagonals of two axes as a new last one, read-only as in NumPy."""
    x = t.array(a)
    i, j = axis_index(axis1, x.ndim), axis_index(axis2, x.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    low = [max(-offset, 0), max(offset, 0)]
    n = max(min(x.shape[i] - low[0], x.shape[j] - low[1]), 0)
    cut = {i: slice(low[0], low[0] + n), j: slice(low[1], low[1] + n)}
    square = x[tuple(cut.get(d, slice(None)) for d in range(x.ndim))]
    return view(t, square, lambda: t.builder(Diagonal(i, j), square.value))


def _trace(t: Tracer, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return np.sum(diagonal(t, a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _windows(t: Tracer, x: Any, window_shape: Any, axis: Axis = None, **kw: Any) -> TracedArray:
    if any(kw.values()):
        raise t.refuse("a sliding window that is written to", "write to a copy")
    a = t.array(x)
    sizes = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    axes = tuple(range(a.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)

    def read() -> int:
        v = a.value
        for i, size in zip(axes, sizes, strict=True):
            v = t.builder(Unfold(axis_index(i, a.ndim), int(size)), v)
        return v

    return view(t, a, read)


def _shape_argument(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 else shape


def _viewed(t: Tracer, x: TracedArray, dtype: Any = None, type: Any = None) -> TracedArray:
    """The same memory as integers with or without a sign, of the same size."""
    if type is not None or dtype is np.ndarray:
        dtype = x.dtype
    to = np.dtype(x.dtype if dtype is None else dtype)
    if to == x.dtype:
        return view(t, x, lambda: x.content, lambda new: new)
    whole = x.dtype.kind in "iu" and to.kind in "iu"
    if x.dtype.itemsize != to.itemsize or not (whole or (x.dtype == bool and to.kind in "iu")):
        raise t.refuse(
            f"ndarray.view as {to} of {x.dtype} reads bits as another kind of number",
            "use x.astype(dtype) for the same values; views are of integers and bools as integers of the same size",
        )
    read, own = partial(t.explicit.cast, dtype=dtype_name(to)), dtype_name(x.dtype)
    write = (lambda new: t.wrap(t.explicit.cast(new.value, own))) if whole else None
    return view(t, x, lambda: read(x.value), write)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "transpose": _transpose,
    "permute_dims": _transpose,
    "swapaxes": _swapaxes,
    "moveaxis": _moveaxis,
    "rollaxis": _rollaxis,
    "matrix_transpose": _matrix_transpose,
    "linalg.matrix_transpose": _matrix_transpose,
    "reshape": _reshape,
    "ravel": _ravel,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "broadcast_to": _broadcast_to,
    "broadcast_arrays": _broadcast_arrays,
    "atleast_1d": lambda t, *arys: _at_least(1, t, *arys),
    "atleast_2d": lambda t, *arys: _at_least(2, t, *arys),
    "atleast_3d": lambda t, *arys: _at_least(3, t, *arys),
    "flip": _flip,
    "fliplr": lambda t, m: _flip(t, m, 1),
    "flipud": lambda t, m: _flip(t, m, 0),
    "rot90": _rot90,
    "diagonal": diagonal,
    "linalg.diagonal": lambda t, x, *, offset=0: diagonal(t, x, offset, -2, -1),
    "trace": _trace,
    "linalg.trace": lambda t, x, *, offset=0, dtype=None: _trace(t, x, offset, -2, -1, dtype),
    "sliding_window_view": _windows,
}

METHODS: Mapping[str, Callable[..., Any]] = {
    "transpose": lambda t, x, *axes: _transpose(t, x, _shape_argument(axes) if axes else None),
    "reshape": lambda t, x, *shape, order="C", copy=None: _reshape(t, x, _shape_argument(shape), order, copy=copy),
    "flatten": _flatten,
    "view": _viewed,
}
