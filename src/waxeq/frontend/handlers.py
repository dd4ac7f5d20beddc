"""What NumPy's functions mean as ops. `HANDLERS` maps a function's NumPy name to its handler."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import Value, axes_tuple, axis_index
from waxeq.ir.types import dtype_name, is_float, is_integer
from waxeq.ops.contraction import Einsum, Matmul
from waxeq.ops.elementwise import broadcast
from waxeq.ops.movement import BroadcastTo, Concat, Gather, Pad, Reshape, Slice, Transpose
from waxeq.ops.reduction import Reduce

Axis = int | Sequence[int] | None
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _operand(t: Tracer, x: Any) -> Any:
    """A value of the graph, or a Python scalar, which NumPy promotes weakly."""
    return x if type(x) in (bool, int, float) else t.value(x)


# -- element-wise


def _float_map(f: str, t: Tracer, x: Any) -> TracedArray:
    (v,) = t.explicit.floats(t.value(x))
    return t.wrap(t.explicit.map(f, v))


def _number_map(f: str, t: Tracer, x: Any) -> TracedArray:
    v = t.value(x)
    if f in ("floor", "ceil", "trunc", "rint") and not is_float(t.explicit.type(v).dtype):
        return t.wrap(v) if f != "rint" else _float_map(f, t, x)
    if f in ("isnan", "isinf", "isfinite") and not is_float(t.explicit.type(v).dtype):
        (v,) = t.explicit.floats(v)
    return t.wrap(t.explicit.map(f, v))


def _bool_map(f: str, t: Tracer, x: Any) -> TracedArray:
    return t.wrap(t.explicit.map(f, t.explicit.cast(t.value(x), "bool")))


def _zip(f: str, t: Tracer, x: Any, y: Any) -> TracedArray:
    x, y = t.explicit.common(_operand(t, x), _operand(t, y))
    if t.explicit.type(x).dtype == "bool" and f in ("add", "mul", "max", "min"):
        f = "or" if f in ("add", "max") else "and"
    return t.wrap(t.explicit.zip(f, x, y))


def _float_zip(f: str, t: Tracer, x: Any, y: Any) -> TracedArray:
    return t.wrap(t.explicit.zip(f, *t.explicit.floats(_operand(t, x), _operand(t, y))))


def _bool_zip(f: str, t: Tracer, x: Any, y: Any) -> TracedArray:
    return t.wrap(t.explicit.zip(f, *(t.explicit.cast(t.value(v), "bool") for v in (x, y))))


def _divide(t: Tracer, x: Any, y: Any) -> TracedArray:
    x, y = t.explicit.common(_operand(t, x), _operand(t, y))
    if not is_float(t.explicit.type(x).dtype):
        x, y = (t.explicit.cast(v, "float64") for v in (x, y))
    return t.wrap(t.explicit.zip("div", x, y))


def _reciprocal(t: Tracer, x: Any) -> TracedArray:
    v = t.value(x)
    if not is_float(t.explicit.type(v).dtype):
        raise t.refuse("np.reciprocal of integers", "cast to a float first")
    return t.wrap(t.explicit.map("recip", v))


def _where(t: Tracer, c: Any, x: Any = None, y: Any = None) -> TracedArray:
    if x is None or y is None:
        raise t.refuse("np.where with one argument has a shape that depends on content", "give it three arguments")
    return t.wrap(t.explicit.select(t.value(c), _operand(t, x), _operand(t, y)))


def _clip(t: Tracer, x: Any, a_min: Any = None, a_max: Any = None) -> TracedArray:
    y = x if isinstance(x, TracedArray) else t.wrap(t.value(x))
    y = y if a_min is None else _zip("max", t, y, a_min)
    return y if a_max is None else _zip("min", t, y, a_max)


def _astype(t: Tracer, x: Any, dtype: Any, **_: Any) -> TracedArray:
    return t.wrap(t.explicit.cast(t.value(x), dtype_name(dtype)))


def _same(t: Tracer, x: Any, *_: Any, **__: Any) -> TracedArray:
    return t.wrap(t.value(x))


# -- reductions


def _reduce(
    f: str, t: Tracer, x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False, **_: Any
) -> TracedArray:
    v = t.value(x)
    d = t.explicit.type(v).dtype
    if dtype is not None:
        v = t.explicit.cast(v, dtype_name(dtype))
    elif f in ("sum", "prod") and not is_float(d):
        v = t.explicit.cast(v, "uint64" if d.startswith("uint") else "int64")
    elif f in ("any", "all"):
        v = t.explicit.cast(v, "bool")
    axes = axes_tuple(axis, t.explicit.type(v).rank)
    return t.wrap(t.builder(Reduce(f, axes, bool(keepdims)), v))


def _extreme(f: str, t: Tracer, x: Any, axis: Axis = None, keepdims: bool = False, **_: Any) -> TracedArray:
    v = t.value(x)
    if t.explicit.type(v).dtype == "bool":
        return _reduce("any" if f == "max" else "all", t, x, axis, None, keepdims)
    axes = axes_tuple(axis, t.explicit.type(v).rank)
    return t.wrap(t.builder(Reduce(f, axes, bool(keepdims)), v))


def _pick(f: str, t: Tracer, x: Any, axis: int | None = None, keepdims: bool = False) -> TracedArray:
    v = t.value(x)
    shape = t.explicit.type(v).shape
    if axis is None:
        y = t.builder(Reduce(f, (0,), False), t.builder(Reshape((t.explicit.type(v).elements,)), v))
        return t.wrap(t.builder(Reshape((1,) * len(shape)), y) if keepdims else y)
    return t.wrap(t.builder(Reduce(f, (axis_index(axis, len(shape)),), bool(keepdims)), v))


def _mean(t: Tracer, x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False, **_: Any) -> TracedArray:
    v = t.value(x)
    if dtype is not None or not is_float(t.explicit.type(v).dtype):
        v = t.explicit.cast(v, "float64" if dtype is None else dtype_name(dtype))
    type_ = t.explicit.type(v)
    axes = axes_tuple(axis, type_.rank)
    count = float(np.prod([type_.shape[a] for a in axes], dtype=np.int64))
    return _divide(t, t.wrap(t.builder(Reduce("sum", axes, bool(keepdims)), v)), count)


def _var(
    t: Tracer, x: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False, **_: Any
) -> TracedArray:
    mean = _mean(t, x, axis, dtype, True)
    type_ = t.explicit.type(t.value(x))
    axes = axes_tuple(axis, type_.rank)
    d = _zip("sub", t, _astype(t, x, mean.dtype), mean)
    count = float(np.prod([type_.shape[a] for a in axes], dtype=np.int64)) - ddof
    total = t.builder(Reduce("sum", axes, bool(keepdims)), _zip("mul", t, d, d).value)
    return _divide(t, t.wrap(total), count)


def _std(t: Tracer, x: Any, *args: Any, **kw: Any) -> TracedArray:
    return _float_map("sqrt", t, _var(t, x, *args, **kw))


# -- contractions


def _einsum_of(t: Tracer, spec: str, *xs: Value) -> Value:
    return Value(t.builder(Einsum(spec), *xs))


def _matmul(t: Tracer, x: Any, y: Any) -> TracedArray:
    return t.wrap(t.builder(Matmul(), *t.explicit.common(_operand(t, x), _operand(t, y))))


def _dot(t: Tracer, x: Any, y: Any) -> TracedArray:
    a, b = t.explicit.common(_operand(t, x), _operand(t, y))
    ra, rb = t.explicit.type(a).rank, t.explicit.type(b).rank
    if 0 in (ra, rb):
        return _zip("mul", t, x, y)
    left, right = _LETTERS[: ra - 1], _LETTERS[ra - 1 : ra + rb - 2]
    second = right[:-1] + "Z" + right[-1:] if rb > 1 else "Z"
    return t.wrap(_einsum_of(t, f"{left}Z,{second}->{left}{right}", a, b))


def _einsum(t: Tracer, spec: Any, *xs: Any, **_: Any) -> TracedArray:
    if not isinstance(spec, str) or "." in spec or not 1 <= len(xs) <= 2:
        raise t.refuse(
            "this form of np.einsum is not traced", "write labels without ellipsis, with one or two operands"
        )
    spec = spec.replace(" ", "")
    if "->" not in spec:
        letters = sorted(set(spec) - {","})
        spec += "->" + "".join(c for c in letters if spec.count(c) == 1)
    return t.wrap(_einsum_of(t, spec, *t.explicit.common(*(_operand(t, x) for x in xs))))


def _outer(t: Tracer, x: Any, y: Any) -> TracedArray:
    a, b = t.explicit.common(_operand(t, x), _operand(t, y))
    a, b = (Value(t.builder(Reshape((t.explicit.type(v).elements,)), v)) for v in (a, b))
    return t.wrap(_einsum_of(t, "a,b->ab", a, b))


# -- movement


def _transpose(t: Tracer, x: Any, *axes: Any) -> TracedArray:
    v = t.value(x)
    rank = t.explicit.type(v).rank
    rows = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes
    perm = tuple(reversed(range(rank))) if rows is None or rows == () else tuple(axis_index(int(a), rank) for a in rows)
    return t.wrap(t.builder(Transpose(perm), v))


def _swapaxes(t: Tracer, x: Any, axis1: int, axis2: int) -> TracedArray:
    rank = t.explicit.type(t.value(x)).rank
    perm = list(range(rank))
    i, j = axis_index(axis1, rank), axis_index(axis2, rank)
    perm[i], perm[j] = perm[j], perm[i]
    return _transpose(t, x, tuple(perm))


def _moveaxis(t: Tracer, x: Any, source: Axis, destination: Axis) -> TracedArray:
    rank = t.explicit.type(t.value(x)).rank
    one: Any = np.lib.array_utils.normalize_axis_tuple
    src, dst = one(source, rank), one(destination, rank)
    order = [n for n in range(rank) if n not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return _transpose(t, x, tuple(order))


def _reshape(t: Tracer, x: Any, *shape: Any, **_: Any) -> TracedArray:
    v = t.value(x)
    rows = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
    sizes = [int(s) for s in rows]
    if -1 in sizes:
        rest = int(np.prod([s for s in sizes if s != -1], dtype=np.int64))
        sizes[sizes.index(-1)] = t.explicit.type(v).elements // builtins.max(rest, 1)
    return t.wrap(t.builder(Reshape(tuple(sizes)), v))


def _ravel(t: Tracer, x: Any, *_: Any) -> TracedArray:
    return _reshape(t, x, -1)


def _expand_dims(t: Tracer, x: Any, axis: Axis) -> TracedArray:
    shape = list(t.explicit.type(t.value(x)).shape)
    rows = (axis,) if isinstance(axis, int) else tuple(axis or ())
    rank = len(shape) + len(rows)
    for a in sorted(axis_index(a, rank) for a in rows):
        shape.insert(a, 1)
    return _reshape(t, x, tuple(shape))


def _squeeze(t: Tracer, x: Any, axis: Axis = None) -> TracedArray:
    shape = t.explicit.type(t.value(x)).shape
    drop = [i for i, s in enumerate(shape) if s == 1] if axis is None else axes_tuple(axis, len(shape))
    return _reshape(t, x, tuple(s for i, s in enumerate(shape) if i not in drop))


def _broadcast_to(t: Tracer, x: Any, shape: Any, **_: Any) -> TracedArray:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return t.wrap(t.builder(BroadcastTo(shape), t.value(x)))


def _concatenate(t: Tracer, arrays: Any, axis: int | None = 0, **_: Any) -> TracedArray:
    rows = t.explicit.common(*(t.value(a) for a in arrays))
    if axis is None:
        rows = tuple(_ravel(t, t.wrap(r)).value for r in rows)
        axis = 0
    return t.wrap(t.builder(Concat(axis_index(axis, t.explicit.type(rows[0]).rank)), *rows))


def _stack(t: Tracer, arrays: Any, axis: int = 0, **_: Any) -> TracedArray:
    rank = t.explicit.type(t.value(arrays[0])).rank + 1
    return _concatenate(t, [_expand_dims(t, a, axis_index(axis, rank)) for a in arrays], axis_index(axis, rank))


def _take(t: Tracer, x: Any, indices: Any, axis: int | None = None, **_: Any) -> TracedArray:
    x = _ravel(t, x) if axis is None else x
    v = t.value(x)
    index = t.value(np.asarray(indices) if not isinstance(indices, TracedArray) else indices)
    return t.wrap(t.builder(Gather(axis_index(axis or 0, t.explicit.type(v).rank)), v, index))


def _pad(t: Tracer, x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0, **_: Any) -> TracedArray:
    if mode != "constant" or not isinstance(constant_values, (int, float)):
        raise t.refuse(
            f"np.pad with mode {mode!r} is not traced", "use mode='constant' with one value, or np.concatenate"
        )
    v = t.value(x)
    width = np.broadcast_to(np.asarray(pad_width), (t.explicit.type(v).rank, 2))
    for axis, (low, high) in enumerate(width.tolist()):
        v = Value(t.builder(Pad(axis, low, high, float(constant_values)), v)) if low or high else v
    return t.wrap(v)


def _flip(t: Tracer, x: Any, axis: Axis = None) -> TracedArray:
    v = t.value(x)
    for a in axes_tuple(axis, t.explicit.type(v).rank):
        n = t.explicit.type(v).shape[a]
        v = Value(t.builder(Slice(a, builtins.max(n - 1, 0), -1, n), v))
    return t.wrap(v)


def _split(t: Tracer, x: Any, indices_or_sections: Any, axis: int = 0) -> list[TracedArray]:
    v = t.value(x)
    axis = axis_index(axis, t.explicit.type(v).rank)
    n = t.explicit.type(v).shape[axis]
    parts = np.array_split(np.arange(n), indices_or_sections)
    return [t.wrap(t.builder(Slice(axis, int(p[0]) if len(p) else 0, 1, len(p)), v)) for p in parts]


def _broadcast_arrays(t: Tracer, *xs: Any, **_: Any) -> list[TracedArray]:
    values = [t.value(x) for x in xs]
    shape = broadcast(*(t.explicit.type(v) for v in values))
    return [t.wrap(t.builder(BroadcastTo(shape), v)) for v in values]


def _like(value: float | None, t: Tracer, x: Any, fill_value: Any = None, dtype: Any = None, **_: Any) -> TracedArray:
    type_ = t.explicit.type(t.value(x))
    one = t.explicit.const(fill_value if value is None else value, dtype_name(dtype) if dtype else type_.dtype)
    return t.wrap(t.builder(BroadcastTo(type_.shape), one))


def getitem(t: Tracer, x: TracedArray, index: Any) -> TracedArray:
    """Basic slicing, new axes, integers and one integer array."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(p is not None and not isinstance(p, EllipsisType) for p in parts)
    if not any(isinstance(p, EllipsisType) for p in parts):
        parts.append(Ellipsis)
    at = next(i for i, p in enumerate(parts) if isinstance(p, EllipsisType))
    parts[at : at + 1] = [slice(None)] * (x.ndim - used)
    v, axis = x.value, 0
    drop: list[int] = []
    arrays = 0
    for p in parts:
        if p is None:
            v = _expand_dims(t, t.wrap(v), axis).value
            axis += 1
        elif isinstance(p, slice):
            start, stop, step = p.indices(t.explicit.type(v).shape[axis])
            count = len(range(start, stop, step))
            if (start, step, count) != (0, 1, t.explicit.type(v).shape[axis]):
                v = Value(t.builder(Slice(axis, start if count else 0, step, count), v))
            axis += 1
        elif isinstance(p, (int, np.integer)) and not isinstance(p, bool):
            n = t.explicit.type(v).shape[axis]
            v = Value(t.builder(Slice(axis, axis_index(int(p), n), 1, 1), v))
            drop.append(axis)
            axis += 1
        else:
            v, axis, arrays = *_by_array(t, v, axis, p, arrays), arrays + 1
    shape = tuple(s for i, s in enumerate(t.explicit.type(v).shape) if i not in drop)
    return t.wrap(Value(t.builder(Reshape(shape), v)) if drop else v)


def _by_array(t: Tracer, v: Value, axis: int, p: Any, arrays: int) -> tuple[Value, int]:
    index = t.value(np.asarray(p) if isinstance(p, list) else p)
    if t.explicit.type(index).dtype == "bool":
        raise t.refuse("indexing by a boolean mask has a shape that depends on content", "use np.where")
    if arrays or not is_integer(t.explicit.type(index).dtype):
        raise t.refuse("indexing by several arrays is not traced", "index one axis at a time with np.take")
    return Value(t.builder(Gather(axis), v, index)), axis + t.explicit.type(index).rank


Handler = Callable[..., Any]

_FLOAT = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "erf",
]
_NUMBER = ["floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "signbit", "square", "sign"]
_ZIPS = {
    "add": "add", "multiply": "mul", "subtract": "sub", "floor_divide": "floordiv", "remainder": "mod", "fmod": "fmod",
    "power": "pow", "maximum": "max", "minimum": "min", "fmax": "fmax", "fmin": "fmin", "equal": "eq",
    "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "bitwise_and": "bitand",
    "bitwise_or": "bitor", "bitwise_xor": "bitxor", "left_shift": "shl", "right_shift": "shr",
}  # fmt: skip
_FLOAT_ZIPS = ("arctan2", "hypot", "copysign", "logaddexp", "logaddexp2")

HANDLERS: Mapping[str, Handler] = {
    **{f: partial(_float_map, f) for f in _FLOAT},
    **{f: partial(_number_map, f) for f in _NUMBER},
    **{n: partial(_zip, f) for n, f in _ZIPS.items()},
    **{n: partial(_float_zip, n) for n in _FLOAT_ZIPS},
    **{f"logical_{f}": partial(_bool_zip, f) for f in ("and", "or", "xor")},
    **{n: partial(_reduce, n) for n in ("sum", "prod", "any", "all")},
    **{n: partial(_extreme, f) for n, f in (("max", "max"), ("amax", "max"), ("min", "min"), ("amin", "min"))},
    **{n: partial(_pick, n) for n in ("argmax", "argmin")},
    "add.reduce": lambda t, x, axis=0, **kw: _reduce("sum", t, x, axis, **kw),
    "multiply.reduce": lambda t, x, axis=0, **kw: _reduce("prod", t, x, axis, **kw),
    "maximum.reduce": lambda t, x, axis=0, **kw: _extreme("max", t, x, axis, **kw),
    "minimum.reduce": lambda t, x, axis=0, **kw: _extreme("min", t, x, axis, **kw),
    "expit": partial(_float_map, "sigmoid"),
    "negative": partial(_number_map, "neg"),
    "absolute": partial(_number_map, "abs"),
    "fabs": partial(_float_map, "abs"),
    "invert": partial(_number_map, "invert"),
    "logical_not": partial(_bool_map, "not"),
    "positive": _same,
    "copy": _same,
    "ascontiguousarray": _same,
    "reciprocal": _reciprocal,
    "divide": _divide,
    "true_divide": _divide,
    "where": _where,
    "clip": _clip,
    "astype": _astype,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "matmul": _matmul,
    "dot": _dot,
    "einsum": _einsum,
    "outer": _outer,
    "transpose": _transpose,
    "permute_dims": _transpose,
    "swapaxes": _swapaxes,
    "moveaxis": _moveaxis,
    "reshape": _reshape,
    "ravel": _ravel,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "broadcast_to": _broadcast_to,
    "broadcast_arrays": _broadcast_arrays,
    "concatenate": _concatenate,
    "concat": _concatenate,
    "stack": _stack,
    "take": _take,
    "pad": _pad,
    "flip": _flip,
    "split": _split,
    "array_split": _split,
    "zeros_like": partial(_like, 0.0),
    "ones_like": partial(_like, 1.0),
    "empty_like": partial(_like, 0.0),
    "full_like": partial(_like, None),
}
"""Handlers by NumPy name."""


def _array(t: Tracer, x: Any, dtype: Any = None, **_: Any) -> TracedArray:
    if isinstance(x, TracedArray):
        return _same(t, x) if dtype is None else _astype(t, x, dtype)
    made = _stack(t, [_array(t, e) if isinstance(e, (list, tuple, TracedArray)) else e for e in x])
    return made if dtype is None else _astype(t, made, dtype)


CREATORS: Mapping[str, Handler] = {"array": _array, "asarray": _array, "float32": lambda t, x: _astype(t, x, "float32"),
                                   "float64": lambda t, x: _astype(t, x, "float64")}  # fmt: skip
"""Functions that NumPy does not dispatch on their arguments."""
