"""Sums of products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axis_index
from waxeq.ir.op import Op
from waxeq.ops.contraction import Einsum, Matmul

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _contract(t: Tracer, op: Op, *xs: Any) -> TracedArray:
    """A product op on operands in their common dtype; of bools it says whether any product holds."""
    rows = t.explicit.common(*(t.operand(x) for x in xs))
    truth = t.explicit.type(rows[0]).dtype == "bool"
    rows = tuple(t.explicit.cast(x, "int64") for x in rows) if truth else rows
    y = t.wrap(t.builder(op, *rows))
    return y != 0 if truth else y  # pyright: ignore[reportReturnType]


def _matmul(t: Tracer, x: Any, y: Any, *, dtype: Any = None, casting: Any = "same_kind") -> TracedArray:
    xs: list[Any] = [x, y]
    if dtype is not None:
        xs = [t.array(v) for v in xs]
        lost = next((v.dtype for v in xs if not np.can_cast(v.dtype, dtype, casting)), None)
        if lost is not None:
            raise TypeError(f"cannot cast {lost} to {np.dtype(dtype)} by {casting!r}")
        xs = [v.astype(dtype) for v in xs]
    return _contract(t, Matmul(), *xs)


def _dot(t: Tracer, a: Any, b: Any) -> Any:
    x, y = t.array(a), t.array(b)
    if 0 in (x.ndim, y.ndim):
        return np.multiply(x, y)  # a Python number is an array here, and not weak
    left, right = _LETTERS[: x.ndim - 1], _LETTERS[x.ndim - 1 : x.ndim + y.ndim - 2]
    second = right[:-1] + "Z" + right[-1:] if y.ndim > 1 else "Z"
    return _contract(t, Einsum(f"{left}Z,{second}->{left}{right}"), x, y)


def _inner(t: Tracer, a: Any, b: Any) -> Any:
    x, y = t.array(a), t.array(b)
    if 0 in (x.ndim, y.ndim):
        return np.multiply(x, y)  # as in _dot
    left, right = _LETTERS[: x.ndim - 1], _LETTERS[x.ndim - 1 : x.ndim + y.ndim - 2]
    return _contract(t, Einsum(f"{left}Z,{right}Z->{left}{right}"), x, y)


def _vdot(t: Tracer, a: Any, b: Any) -> Any:
    return _contract(t, Einsum("a,a->"), t.array(a).reshape(-1), t.array(b).reshape(-1))


def _outer(t: Tracer, a: Any, b: Any) -> Any:
    return np.multiply(t.array(a).reshape(-1)[:, None], t.array(b).reshape(-1))


def _vecdot(t: Tracer, x: Any, y: Any, *, axis: int = -1) -> Any:
    a, b = (np.moveaxis(t.array(v), axis, -1) for v in (x, y))
    return np.matmul(a[..., None, :], b[..., :, None])[..., 0, 0]


def _matvec(t: Tracer, x: Any, y: Any) -> Any:
    return np.matmul(x, t.array(y)[..., :, None])[..., 0]


def _vecmat(t: Tracer, x: Any, y: Any) -> Any:
    return np.matmul(t.array(x)[..., None, :], y)[..., 0, :]


def _tensordot(t: Tracer, a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = t.array(a), t.array(b)
    if isinstance(axes, int):
        axes = (range(x.ndim - axes, x.ndim), range(axes))
    ours, theirs = ([axis_index(i, v.ndim) for i in ((r,) if isinstance(r, int) else r)]
                    for r, v in zip(axes, (x, y), strict=True))  # fmt: skip
    if [x.shape[i] for i in ours] != [y.shape[i] for i in theirs]:
        raise ValueError("shape-mismatch for sum")
    left = _LETTERS[: x.ndim]
    right = list(_LETTERS[x.ndim : x.ndim + y.ndim])
    for i, j in zip(ours, theirs, strict=True):
        right[j] = left[i]
    kept = "".join(c for i, c in enumerate(left) if i not in ours)
    kept += "".join(c for j, c in enumerate(right) if j not in theirs)
    return _contract(t, Einsum(f"{left},{''.join(right)}->{kept}"), x, y)


def _kron(t: Tracer, a: Any, b: Any) -> Any:
    x, y = t.array(a), t.array(b)
    rank = max(x.ndim, y.ndim)
    p, q = ((1,) * (rank - v.ndim) + v.shape for v in (x, y))
    left = x.reshape(tuple(s for n in p for s in (n, 1)))
    right = y.reshape(tuple(s for n in q for s in (1, n)))
    return np.multiply(left, right).reshape(tuple(m * n for m, n in zip(p, q, strict=True)))


# -- einsum


def _einsum(t: Tracer, spec: Any, *operands: Any, optimize: Any = None, dtype: Any = None) -> Any:
    """Explicit or implicit, with ellipsis, diagonals and any number of operands, pairwise from the left."""
    if not isinstance(spec, str):
        spec, operands = _spelled((spec, *operands))
    xs = [t.array(x) if dtype is None else t.array(x).astype(dtype) for x in operands]
    if len(xs) > 1:
        xs = [t.wrap(v) for v in t.explicit.common(*(x.value for x in xs))]  # of all, not of each pair
    ins, out = _labels(spec, [x.ndim for x in xs])
    pairs = [_distinct(x, labels) for x, labels in zip(xs, ins, strict=True)]
    while len(pairs) > 1:
        (a, la), (b, lb), *rest = pairs
        later = set(out).union(*(labels for _, labels in rest))
        kept = "".join(c for c in dict.fromkeys(la + lb) if c in later) if rest else out
        pairs = [(_contract(t, Einsum(f"{la},{lb}->{kept}"), a, b), kept), *rest]
    (y, labels), *_ = pairs
    if len(xs) > 1:
        return y
    z = _contract(t, Einsum(f"{labels}->{out}"), y)
    return z.perhaps_shares(xs[0]) if set(labels) == set(out) else z  # without a sum NumPy gives a view


def _spelled(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts as a string, of lists of axis numbers that follow each operand, and the result at the end."""
    pairs = len(given) // 2 * 2
    lists = [*given[1:pairs:2], *given[pairs:]]
    numbers = sorted({n for one in lists for n in one if n is not Ellipsis})
    letter = {n: _LETTERS[i] for i, n in enumerate(numbers)} | {Ellipsis: "..."}
    words = ["".join(letter[n] for n in one) for one in lists]
    left = ",".join(words[: pairs // 2])
    return f"{left}->{words[-1]}" if len(given) > pairs else left, given[:pairs:2]


def _einsum_path(t: Tracer, *operands: Any, **kw: Any) -> Any:
    shown: list[Any] = [np.broadcast_to(np.float64(0), x.shape) if isinstance(x, TracedArray) else x for x in operands]
    return np.einsum_path(*shown, **kw)


def _labels(spec: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of operands and result, one letter a dimension."""
    left, arrow, out = spec.replace(" ", "").partition("->")
    ins = left.split(",")
    if len(ins) != len(ranks):
        raise ValueError(f"np.einsum {spec!r} names {len(ins)} operands, {len(ranks)} were given")
    free = [c for c in _LETTERS if c not in spec]
    most = max((n - len(labels) + 3 for labels, n in zip(ins, ranks, strict=True) if "..." in labels), default=0)
    dots = "".join(free[:most])
    if not arrow:
        letters = sorted(set(left) - set(",."))
        out = "..." * ("..." in left) + "".join(c for c in letters if left.count(c) == 1)
    if dots and "..." not in out:
        raise ValueError(f"np.einsum {spec!r} has no '...' in its result for the dimensions that '...' stands for")
    full = [s.replace("...", dots[most - (n - len(s) + 3) :] if "..." in s else "")
            for s, n in zip(ins, ranks, strict=True)]  # fmt: skip
    return full, out.replace("...", dots)


def _distinct(x: Any, labels: str) -> tuple[Any, str]:
    """An operand whose repeated labels are taken as diagonals."""
    if len(labels) != x.ndim:
        raise ValueError(f"np.einsum labels {labels!r} do not fit an array of {x.ndim} dimensions")
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i, j = labels.index(c), labels.rindex(c)
            x = np.diagonal(x, axis1=i, axis2=j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + c
    return x, labels


# -- further products


def _matrix_power(t: Tracer, a: Any, n: int) -> Any:
    x = t.array(a)
    if n < 0:
        return _matrix_power(t, np.linalg.inv(x), -n)
    if n == 0:
        return np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    half = _matrix_power(t, x, n // 2) if n > 1 else None
    square = x if half is None else np.matmul(half, half)
    return square if n == 1 or n % 2 == 0 else np.matmul(square, x)


def _multi_dot(t: Tracer, arrays: Any) -> Any:
    return reduce(np.dot, (t.array(a) for a in arrays))


def _cross(t: Tracer, a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    x, y = np.moveaxis(t.array(a), axisa, -1), np.moveaxis(t.array(b), axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ValueError("both vectors of np.cross must be of two or three elements")
    third = x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]
    if x.shape[-1] == y.shape[-1] == 2:
        return third
    if x.shape[-1] == 2:
        parts = [x[..., 1] * y[..., 2], -(x[..., 0] * y[..., 2]), third]
    elif y.shape[-1] == 2:
        parts = [-(x[..., 2] * y[..., 1]), x[..., 2] * y[..., 0], third]
    else:
        parts = [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in ((1, 2), (2, 0))] + [third]
    return np.stack(parts, axis=axisc)


def _cross_of_three(t: Tracer, x: Any, y: Any, /, *, axis: int = -1) -> Any:
    if t.array(x).shape[axis] != 3 or t.array(y).shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors")
    return _cross(t, x, y, axis=axis)


def _convolve(t: Tracer, a: Any, v: Any, mode: str = "full") -> Any:
    x, y = _rows(t, a, v)
    x, y = (y, x) if y.shape[0] > x.shape[0] else (x, y)
    m = y.shape[0]
    sides = {"full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2), "valid": (0, 0)}
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, sides[mode]), m)
    return np.matmul(windows, y[::-1])


def _correlate(t: Tracer, a: Any, v: Any, mode: str = "valid") -> Any:
    if not (np.ndim(a) and np.ndim(v)):
        raise ValueError("object of too small depth for desired array")
    x, y = _rows(t, a, v)
    if y.shape[0] > x.shape[0]:
        return _correlate(t, y, x, mode)[::-1]
    return _convolve(t, x, y[::-1], mode)


def _rows(t: Tracer, *arrays: Any) -> tuple[Any, ...]:
    """The arguments of np.convolve; one number is a row of it."""
    rows = tuple(x if x.ndim else x.reshape(1) for x in map(t.array, arrays))
    if any(x.ndim > 1 for x in rows):
        raise ValueError("object too deep for desired array")
    if any(not x.size for x in rows):
        raise ValueError("an array that is convolved cannot be empty")
    return rows


def _polyval(t: Tracer, p: Any, x: Any) -> Any:
    y = np.zeros_like(t.array(x))
    for c in t.array(p):
        y = y * x + c
    return y


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "linalg.matmul": _matmul,
    "dot": _dot,
    "inner": _inner,
    "vdot": _vdot,
    "outer": _outer,
    "linalg.outer": _outer,
    "vecdot": _vecdot,
    "linalg.vecdot": _vecdot,
    "matvec": _matvec,
    "vecmat": _vecmat,
    "tensordot": _tensordot,
    "linalg.tensordot": lambda t, x, y, *, axes=2: _tensordot(t, x, y, axes),
    "kron": _kron,
    "einsum": _einsum,
    "einsum_path": _einsum_path,
    "linalg.matrix_power": _matrix_power,
    "linalg.multi_dot": _multi_dot,
    "cross": _cross,
    "linalg.cross": _cross_of_three,
    "convolve": _convolve,
    "correlate": _correlate,
    "polyval": _polyval,
}
