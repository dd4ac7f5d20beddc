"""Between positions in an array and positions in its elements one after another, by which `x.flat` reads and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.handlers.positions import counted
from waxeq.frontend.selection import INSTEAD, UNKNOWN
from waxeq.ir.types import is_floating


def _sizes(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if np.ndim(shape) == 0 else tuple(int(n) for n in shape)


def _steps(sizes: Sequence[int], order: str) -> list[int]:
    """How many elements lie between neighbours of each axis."""
    if order not in ("C", "F"):
        raise ValueError("only 'C' or 'F' order is permitted")
    if order == "C":
        return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return [math.prod(sizes[:i]) for i in range(len(sizes))]


def _whole(index: Any) -> Any:
    if is_floating(index.dtype):
        raise TypeError("only int indices permitted")
    return index.astype(np.int64)


def _require_elements(sizes: Sequence[int], indices: Sequence[Any]) -> None:
    if 0 in sizes and any(i.size for i in indices):
        raise ValueError("no index is in bounds of an array with size 0")


def _unravel_index(t: Tracer, indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """Positions outside, for which NumPy raises, get a first index that is outside of its axis."""
    known, sizes = t.known(indices), _sizes(shape)
    if known is not None:
        return np.unravel_index(known, sizes, order)  # pyright: ignore[reportArgumentType, reportCallIssue]
    flat, steps = _whole(t.array(indices)), _steps(sizes, order)
    if not sizes:
        if flat.ndim:
            raise ValueError("multiple indices are not supported for 0d arrays")
        return ()
    _require_elements(sizes, [flat])
    first = 0 if order == "C" else len(sizes) - 1  # the axis of the longest steps, which is not cut to its length
    rows = []
    for i, (n, step) in enumerate(zip(sizes, steps, strict=True)):
        place = flat if step == 1 else flat // max(step, 1)
        rows.append(np.where(flat < 0, n, place) if i == first else place % max(n, 1))
    return tuple(rows)


def _ravel_multi_index(t: Tracer, multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """Indices outside of their axes, for which NumPy raises, give the position after the last one."""
    sizes = _sizes(dims)
    parts = [t.array(p) for p in multi_index]
    if len(parts) != len(sizes):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(sizes)}")
    _require_elements(sizes, parts)
    modes = [mode] * len(sizes) if isinstance(mode, str) else list(mode)
    outside: Any = None
    total: Any = 0
    for p, n, how, step in zip(parts, sizes, modes, _steps(sizes, order), strict=True):
        i = _whole(p)
        if how == "raise":
            known = t.known(p)
            if known is not None and known.size and not (known.min() >= 0 and known.max() < n):
                raise ValueError("invalid entry in coordinates array")
            here = (i < 0) | (i >= n)
            outside = here if outside is None else outside | here
        elif how not in ("wrap", "clip"):
            raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {how!r})")
        else:
            i = i % n if how == "wrap" else np.clip(i, 0, n - 1)
        total = total + (i if step == 1 else i * step)
    return total if outside is None else np.where(outside, math.prod(sizes), total)


def _triangle(f: Callable[..., Any]) -> Callable[..., Any]:
    """np.tril_indices_from or np.triu_indices_from, which ask no more of an array than its shape."""

    def positions(t: Tracer, arr: Any, k: int = 0) -> Any:
        x = t.array(arr)
        if x.ndim != 2:
            raise ValueError("input array must be 2-d")
        return f(x.shape[0], k=k, m=x.shape[1])

    return positions


def _diag_indices_from(t: Tracer, arr: Any) -> tuple[Any, ...]:
    x = t.array(arr)
    if x.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    n = x.shape[0]
    return (counted(t, n) if t.sized else np.arange(n),) * x.ndim


class Flat:
    """x.flat: what is read of it is a copy, what is written to it is in the array."""

    def __init__(self, x: TracedArray) -> None:
        self.base = x

    def copy(self) -> Any:
        """The elements in one row, which is new."""
        return self.base.tracer.wrap(self.base.value).reshape(self.base.size)

    def __array_function__(self, f: Callable[..., Any], types: Any, args: Any, kw: Any) -> Any:
        return f(*(a.copy() if isinstance(a, Flat) else a for a in args), **kw)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.copy(), dtype, copy=copy)

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __getitem__(self, index: Any) -> Any:
        y = self.copy()[index]
        return y if y.scalar else np.copy(y)

    def __setitem__(self, index: Any, value: Any) -> None:
        y = self.copy()
        n, given = (y[index].size, np.size(value)) if np.ndim(value) else (1, 1)
        if given not in (1, n):  # NumPy takes the first ones, or takes them again from the first on
            t = self.base.tracer
            raise t.refuse(f"{given} values are written to {n} elements of x.flat", "write as many as there are")
        y[index] = np.ravel(value) if np.ndim(value) else value
        self.base.assign(y.reshape(self.base.shape))


def _ix_(t: Tracer, *args: Any) -> tuple[Any, ...]:
    """Masks are known while tracing."""
    rows = []
    for i, a in enumerate(args):
        row = t.array(a)
        if row.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if row.dtype == bool:
            known = t.known(row)
            if known is None:
                raise t.refuse(UNKNOWN, INSTEAD)
            row = np.nonzero(known)[0]
        row = row if row.size else row.astype(np.int64)  # of an empty list NumPy makes floats
        rows.append(row.reshape((1,) * i + (-1,) + (1,) * (len(args) - i - 1)))
    return tuple(rows)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "unravel_index": _unravel_index,
    "ravel_multi_index": _ravel_multi_index,
    "tril_indices_from": _triangle(np.tril_indices),
    "triu_indices_from": _triangle(np.triu_indices),
    "ix_": _ix_,
    "diag_indices_from": _diag_indices_from,
}
