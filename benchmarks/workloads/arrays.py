"""Array programs that are no neural network: a stencil, distances, reductions, prefix sums over both axes, orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workload import Arguments, Workload, generator, normal

SWEEPS = 4


def jacobi(u, source):
    """Four sweeps for the Poisson equation with zero boundary; source holds the square of the grid spacing."""
    for _ in range(SWEEPS):
        neighbours = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u = np.pad(0.25 * (neighbours - source[1:-1, 1:-1]), 1)
    return u


def _jacobi_arguments(n: int) -> Arguments:
    rng = generator()
    return {"u": np.pad(rng.random((n - 2, n - 2), np.float32), 1), "source": rng.random((n, n), np.float32)}


def _jacobi_torch() -> Callable[..., Any]:
    from torch.nn import functional

    def run(u, source):
        for _ in range(SWEEPS):
            neighbours = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            u = functional.pad(0.25 * (neighbours - source[1:-1, 1:-1]), (1, 1, 1, 1))
        return u

    return run


def _jacobi_numba() -> Callable[..., Any]:
    from numba import njit, prange

    quarter = np.float32(0.25)

    @njit(parallel=True, fastmath=True)
    def sweep(u, source, out):
        for i in prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                out[i, j] = quarter * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - source[i, j])

    @njit
    def run(u, source):
        a, b = np.zeros_like(u), np.zeros_like(u)
        sweep(u, source, a)
        for _ in range(SWEEPS - 1):
            sweep(a, source, b)
            a, b = b, a
        return a

    return run


def _jacobi_numexpr() -> Callable[..., Any]:
    import numexpr

    quarter = np.float32(0.25)

    def run(u, source):
        a, b = np.zeros_like(u), np.zeros_like(u)
        for _ in range(SWEEPS):
            views = {"n": u[:-2, 1:-1], "s": u[2:, 1:-1], "w": u[1:-1, :-2], "e": u[1:-1, 2:], "f": source[1:-1, 1:-1]}
            numexpr.evaluate("q * (n + s + w + e - f)", local_dict={"q": quarter, **views}, out=a[1:-1, 1:-1])
            u, a, b = a, b, a
        return u

    return run


def pairwise(x, y):
    """Euclidean distances (n, m) of points x (n, d) and y (m, d)."""
    d = x[:, None, :] - y[None, :, :]
    return np.sqrt(np.sum(d * d, axis=-1))


def _points(n: int, d: int) -> Arguments:
    rng = generator()
    return {"x": normal(rng, n, d), "y": normal(rng, n, d)}


def _pairwise_torch() -> Callable[..., Any]:
    import torch

    return lambda x, y: torch.cdist(x, y)


def _pairwise_compiled() -> Callable[..., Any]:
    # the compiler has no code of its own for cdist; this it fuses, and the ONNX exporter knows it
    def run(x, y):
        d = x[:, None, :] - y[None, :, :]
        return (d * d).sum(-1).sqrt()

    return run


def _pairwise_numba() -> Callable[..., Any]:
    from numba import njit, prange

    zero = np.float32(0)

    @njit(parallel=True, fastmath=True)
    def run(x, y):
        out = np.empty((x.shape[0], y.shape[0]), x.dtype)
        for i in prange(x.shape[0]):
            for j in range(y.shape[0]):
                total = zero
                for k in range(x.shape[1]):
                    d = x[i, k] - y[j, k]
                    total += d * d
                out[i, j] = math.sqrt(total)
        return out

    return run


def reductions(x):
    """Sums over each of two axes."""
    return np.sum(x, axis=0), np.sum(x, axis=1)


def _square(n: int) -> Arguments:
    return {"x": normal(generator(), n, n)}


def _reductions_torch() -> Callable[..., Any]:
    return lambda x: (x.sum(0), x.sum(1))


def _reductions_numba() -> Callable[..., Any]:
    from numba import get_num_threads, njit, prange

    zero = np.float32(0)

    @njit(parallel=True, fastmath=True)
    def run(x):
        n, m = x.shape
        parts = get_num_threads()
        columns, rows = np.zeros((parts, m), x.dtype), np.empty(n, x.dtype)
        for p in prange(parts):
            for i in range(p * n // parts, (p + 1) * n // parts):
                total = zero
                for j in range(m):
                    total += x[i, j]
                    columns[p, j] += x[i, j]
                rows[i] = total
        return columns.sum(0), rows

    return run


def prefix_sums(x):
    """Sums of all elements so far, along each row."""
    return np.cumsum(x, axis=1)


def prefix_sums_down(x):
    """Sums of all elements so far, down each column."""
    return np.cumsum(x, axis=0)


def _prefix_sums_torch(axis: int) -> Callable[..., Any]:
    return lambda x: x.cumsum(axis)


def _prefix_sums_numba() -> Callable[..., Any]:
    from numba import njit, prange

    @njit(parallel=True, fastmath=True)
    def run(x):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            total = np.float64(0)
            for j in range(x.shape[1]):
                total += x[i, j]
                out[i, j] = total
        return out

    return run


def _prefix_sums_down_numba() -> Callable[..., Any]:
    from numba import get_num_threads, njit, prange

    @njit(parallel=True, fastmath=True)
    def run(x):
        n, m = x.shape
        parts, out = get_num_threads(), np.empty_like(x)
        for p in prange(parts):
            first, last = p * m // parts, (p + 1) * m // parts
            totals = np.zeros(last - first)
            for i in range(n):
                for j in range(last - first):
                    totals[j] += x[i, first + j]
                    out[i, first + j] = totals[j]
        return out

    return run


def lift(score, gain):
    """Gains curves: what part of a row's gains the elements of the least scores have, by how many these are."""
    ordered = np.take_along_axis(gain, np.argsort(score, axis=1), axis=1)
    return np.cumsum(ordered, axis=1) / np.sum(gain, axis=1, keepdims=True)


def _lift_arguments(*shape: int) -> Arguments:
    """No two scores are equal: in what order those come is not said."""
    rng = generator()
    score = rng.permutation(math.prod(shape)).reshape(shape).astype(np.float32)
    return {"score": score, "gain": rng.random(shape, np.float32)}


def _lift_torch() -> Callable[..., Any]:
    return lambda score, gain: gain.gather(1, score.argsort(1)).cumsum(1) / gain.sum(1, keepdim=True)


def _lift_numba() -> Callable[..., Any]:
    from numba import njit, prange

    @njit(parallel=True, fastmath=True)
    def run(score, gain):
        out = np.empty_like(gain)
        for i in prange(score.shape[0]):
            order, so_far = np.argsort(score[i]), np.float64(0)
            for j in range(score.shape[1]):
                so_far += gain[i, order[j]]
                out[i, j] = so_far
            for j in range(score.shape[1]):
                out[i, j] /= np.float32(so_far)
        return out

    return run


def rotary(x, cosine, sine):
    """Rotary position embedding of heads of 64 (J. Su et al., RoFormer, 2021): halves of each row, turned together."""
    a, b = x[..., :32], x[..., 32:]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def _rotary_arguments(heads: int, tokens: int) -> Arguments:
    rng = generator()
    angles = np.arange(tokens)[:, None] * 10_000.0 ** (-np.arange(32) / 32)
    x = rng.standard_normal((heads, tokens, 64), np.float32)
    return {"x": x, "cosine": np.cos(angles).astype(np.float32), "sine": np.sin(angles).astype(np.float32)}


def _rotary_torch() -> Callable[..., Any]:
    import torch

    def run(x, cosine, sine):
        a, b = x[..., :32], x[..., 32:]
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    return run


def _rotary_numba() -> Callable[..., Any]:
    from numba import njit, prange

    @njit(parallel=True, fastmath=True)
    def run(x, cosine, sine):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            for t in range(x.shape[1]):
                for j in range(32):
                    a, b, c, s = x[i, t, j], x[i, t, 32 + j], cosine[t, j], sine[t, j]
                    out[i, t, j] = a * c - b * s
                    out[i, t, 32 + j] = b * c + a * s
        return out

    return run


WORKLOADS = (
    Workload(
        "jacobi_2048",
        jacobi,
        partial(_jacobi_arguments, 2048),
        partial(_jacobi_arguments, 9),
        forms={"torch": _jacobi_torch, "numba": _jacobi_numba, "numexpr": _jacobi_numexpr},
        moved=4 * 3 * 2048**2,  # two arrays read and one written: sweeps could go over a part of them in turn
    ),
    Workload(
        "pairwise_1024x64",
        pairwise,
        partial(_points, 1024, 64),
        partial(_points, 6, 5),
        forms={
            "torch": _pairwise_torch,
            "torch.compile": _pairwise_compiled,
            "onnx": _pairwise_compiled,
            "numba": _pairwise_numba,
        },
        allowed=1e-3,  # torch.cdist makes a product of matrices of it, which loses what cancels
    ),
    Workload(
        "reductions_4096",
        reductions,
        partial(_square, 4096),
        partial(_square, 6),
        forms={"torch": _reductions_torch, "numba": _reductions_numba},
        moved=4 * 4096**2,
    ),
    Workload(
        "prefix_sums_4096",
        prefix_sums,
        partial(_square, 4096),
        partial(_square, 6),
        forms={"torch": partial(_prefix_sums_torch, 1), "numba": _prefix_sums_numba},
        moved=4 * 2 * 4096**2,
    ),
    Workload(
        "prefix_sums_down_4096",
        prefix_sums_down,
        partial(_square, 4096),
        partial(_square, 6),
        forms={"torch": partial(_prefix_sums_torch, 0), "numba": _prefix_sums_down_numba},
        moved=4 * 2 * 4096**2,
    ),
    Workload(
        "lift_1000x500",
        lift,
        partial(_lift_arguments, 1000, 500),
        partial(_lift_arguments, 5, 9),
        forms={"torch": _lift_torch, "numba": _lift_numba},
    ),
    Workload(
        "rotary_128x512x64",
        rotary,
        partial(_rotary_arguments, 128, 512),
        partial(_rotary_arguments, 3, 7),
        forms={"torch": _rotary_torch, "numba": _rotary_numba},
        moved=4 * 2 * 128 * 512 * 64,
    ),
)
