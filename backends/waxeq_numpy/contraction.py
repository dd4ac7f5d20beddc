"""Contractions on BLAS: sums of products that are matrix products of strided views, with no copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.ir.term import Term

BLAS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Groups:
    """Axes of a contraction: batch (in all three), m (left and result), n (right and result), k (summed, in both)."""

    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]


def groups(call: Call) -> Groups | None:
    """The groups of a sum of a product; None where an axis is in only one operand and not in the result."""
    t, summed = call.meaning, []
    while t.head == "Sum":
        summed.append(t.args[0])
        t = t.args[1]
    a, b, out = (frozenset(v.axes) for v in (*call.operands, call.out))
    if any(k not in a or k not in b or k in out for k in summed) or (a | b) != out | set(summed):
        return None
    order = call.out.axes
    return Groups(
        tuple(k for k in order if k in a and k in b),
        tuple(k for k in order if k in a and k not in b),
        tuple(k for k in order if k in b and k not in a),
        tuple(summed),
    )


def collapse(axes: Iterable[str], u: View, v: View) -> tuple[int, int, int] | None:
    """(size, stride in u, stride in v) of a group as one axis, or None where the strides do not nest."""
    kept = sorted((k for k in axes if u.shape[u.axes.index(k)] != 1), key=lambda k: -abs(u.stride(k)))
    if not kept:
        return 1, 0, 0
    size = 1
    step_u, step_v = u.stride(kept[-1]), v.stride(kept[-1])
    for k in reversed(kept):
        if u.stride(k) != step_u * size or v.stride(k) != step_v * size:
            return None
        size *= u.shape[u.axes.index(k)]
    return size, step_u, step_v


@dataclass(frozen=True, slots=True)
class Matrices:
    """Shapes and strides (elements) of the three operands as stacks of matrices; `swap` when the transposed product is
    what runs."""

    a: tuple[tuple[int, ...], tuple[int, ...]]
    b: tuple[tuple[int, ...], tuple[int, ...]]
    out: tuple[tuple[int, ...], tuple[int, ...]]
    swap: bool


def matrices(call: Call) -> Matrices | None:
    """The call as a product of stacks of matrices; None where groups do not collapse to single strides."""
    g = groups(call)
    if g is None:
        return None
    a, b, out = *call.operands, call.out
    m, n, k = collapse(g.m, a, out), collapse(g.n, b, out), collapse(g.k, a, b)
    if m is None or n is None or k is None:
        return None
    stack = [(call.sizes[x], a.stride(x), b.stride(x), out.stride(x)) for x in g.batch]
    sizes = tuple(s[0] for s in stack)
    left = ((*sizes, m[0], k[0]), (*(s[1] for s in stack), m[1], k[1]))
    right = ((*sizes, k[0], n[0]), (*(s[2] for s in stack), k[2], n[1]))
    result = ((*sizes, m[0], n[0]), (*(s[3] for s in stack), m[2], n[2]))
    if _unit(result, -1):
        return Matrices(left, right, result, False)
    return Matrices(_turn(right), _turn(left), _turn(result), True) if _unit(result, -2) else None


def _turn(x: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape, strides = x
    return (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])


def _unit(x: tuple[tuple[int, ...], tuple[int, ...]], inner: int) -> bool:
    """Whether BLAS takes the matrices: unit stride along `inner`, rows that do not overlap along the other."""
    shape, strides = x
    outer = -3 - inner
    inside = shape[inner] == 1 or strides[inner] == 1
    return inside and (shape[outer] == 1 or strides[outer] >= shape[inner])


def _blas(x: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    return _unit(x, -1) or _unit(x, -2)


def _strided(array: np.ndarray, x: tuple[tuple[int, ...], tuple[int, ...]]) -> np.ndarray:
    shape, strides = x
    return np.lib.stride_tricks.as_strided(array, shape, tuple(s * array.itemsize for s in strides))


class Gemm(Kernel):
    """Matrix products on BLAS, batched or not, each operand in either orientation, the result written in place."""

    name = "gemm"
    pattern = "(Sum* ks (Mul a b))"
    pool = "blas"
    dtypes = BLAS

    def orders(self, meaning: Term, axes: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        t = meaning
        while t.head == "Sum":
            t = t.args[1]
        left, right = (frozenset(x.args[1]) for x in t.args)
        m, n = sorted(axes & left - right), sorted(axes & right - left)
        batch = sorted(axes & left & right)
        return ((*batch, *m, *n),) if not batch else ((*batch, *m, *n), (*m, *batch, *n))

    def accepts(self, call: Call) -> bool:
        if any(v.dtype not in BLAS or 0 in v.shape for v in (*call.operands, call.out)):
            return False
        x = matrices(call)
        return x is not None and _blas(x.a) and _blas(x.b)

    def features(self, call: Call) -> Mapping[str, float]:
        x = matrices(call)
        assert x is not None
        *batch, m, k = x.a[0]
        n, stack = x.b[0][-1], math.prod(batch)
        itemsize = call.out.bytes / max(1, call.out.elements)
        return {
            "launches": 1.0,
            "batches": float(stack),
            "flops": 2.0 * stack * m * n * k,
            "panel": float(stack * (m * k + k * n + m * n)) * itemsize,
        }

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        x = matrices(call)
        assert x is not None
        first, second = (1, 0) if x.swap else (0, 1)
        a, b = _strided(operands[first], x.a), _strided(operands[second], x.b)
        return (partial(np.matmul, a, b, _strided(out, x.out)),)


class Contract(Kernel):
    """Sums of products of any dtype and any strides, by einsum: right everywhere, fast nowhere."""

    name = "contract"
    pattern = "(Sum* ks (Mul a b))"
    pool = "blas"

    def accepts(self, call: Call) -> bool:
        t, summed = call.meaning, set()
        while t.head == "Sum":
            summed.add(t.args[0])
            t = t.args[1]
        have = {k for v in call.operands for k in v.axes}
        return summed <= have and not summed & set(call.out.axes) and have <= summed | set(call.out.axes)

    def features(self, call: Call) -> Mapping[str, float]:
        volume = float(math.prod(call.sizes.values()))
        moved = float(sum(v.bytes for v in call.operands))
        return {"launches": 1.0, "slow_flops": 2.0 * volume, "rows": volume / _innermost(call), "bytes": moved}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        number = {k: i for i, k in enumerate(call.sizes)}
        args: list[Any] = []
        for v, a in zip(call.operands, operands, strict=True):
            args += [a, [number[k] for k in v.axes]]
        args.append([number[k] for k in call.out.axes])
        if call.out.dtype == "bfloat16" or call.out.dtype == "float16":
            return (partial(_wide_einsum, args, out),)
        return (partial(np.einsum, *args, out=out),)


def _innermost(call: Call) -> int:
    """Elements of the innermost loop of an einsum: of windows of three it may be as many, and takes ten times as long.
    What NumPy's iterator makes of such strides; no memory is read."""
    views = (*call.operands, call.out)
    axes = (*call.out.axes, *(k for k in call.sizes if k not in call.out.axes))
    if any(0 in v.shape for v in views):
        return 1
    one = np.empty(1, np.int8)
    arrays = [np.lib.stride_tricks.as_strided(one, v.shape, v.strides) for v in views]
    loops = np.nditer(
        arrays,
        ["external_loop", "reduce_ok"],
        [["readonly"], ["readonly"], ["readwrite"]],
        op_axes=[[v.axes.index(k) if k in v.axes else -1 for k in axes] for v in views],
    )
    return loops[0].size


def _wide_einsum(args: list, out: np.ndarray) -> None:
    wide: Any = [a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in args]
    np.copyto(out, np.einsum(*wide), casting="unsafe")


KERNELS = (Gemm, Contract)
