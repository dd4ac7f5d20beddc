"""Softmax and normalizations over the last axis: two or three passes over each row, bound by memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workload import Arguments, Form, Workload, generator, normal

EPSILON = 1e-5


def softmax(x):
    """Over the last axis."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layer_norm(x, gain, bias):
    """Zero mean and unit variance over the last axis, then scale and shift."""
    centered = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centered * centered, axis=-1, keepdims=True)
    return centered / np.sqrt(variance + EPSILON) * gain + bias


def rms_norm(x, gain):
    """Unit mean square over the last axis, then scale."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * gain


def _arguments(names: tuple[str, ...], n: int, m: int) -> Arguments:
    rng = generator()
    return {"x": normal(rng, n, m), **{name: normal(rng, m) for name in names}}


def _softmax_torch() -> Callable[..., Any]:
    import torch

    return lambda x: torch.softmax(x, -1)


def _layer_norm_torch() -> Callable[..., Any]:
    from torch.nn import functional

    return lambda x, gain, bias: functional.layer_norm(x, x.shape[-1:], gain, bias, EPSILON)


def _rms_norm_torch() -> Callable[..., Any]:
    from torch.nn import functional

    return lambda x, gain: functional.rms_norm(x, x.shape[-1:], gain, EPSILON)


def _softmax_numba() -> Callable[..., Any]:
    from numba import njit, prange

    lowest, zero, one = np.float32(-3e38), np.float32(0), np.float32(1)

    @njit(parallel=True, fastmath=True)
    def run(x):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            top = lowest
            for j in range(x.shape[1]):
                top = max(top, x[i, j])
            total = zero
            for j in range(x.shape[1]):
                e = math.exp(x[i, j] - top)
                out[i, j] = e
                total += e
            scale = one / total
            for j in range(x.shape[1]):
                out[i, j] *= scale
        return out

    return run


def _layer_norm_numba() -> Callable[..., Any]:
    from numba import njit, prange

    zero, one, epsilon = np.float32(0), np.float32(1), np.float32(EPSILON)

    @njit(parallel=True, fastmath=True)
    def run(x, gain, bias):
        out = np.empty_like(x)
        size = np.float32(x.shape[1])
        for i in prange(x.shape[0]):
            total = zero
            for j in range(x.shape[1]):
                total += x[i, j]
            mean, square = total / size, zero
            for j in range(x.shape[1]):
                d = x[i, j] - mean
                square += d * d
            scale = one / math.sqrt(square / size + epsilon)
            for j in range(x.shape[1]):
                out[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]
        return out

    return run


def _rms_norm_numba() -> Callable[..., Any]:
    from numba import njit, prange

    zero, one, epsilon = np.float32(0), np.float32(1), np.float32(EPSILON)

    @njit(parallel=True, fastmath=True)
    def run(x, gain):
        out = np.empty_like(x)
        size = np.float32(x.shape[1])
        for i in prange(x.shape[0]):
            square = zero
            for j in range(x.shape[1]):
                square += x[i, j] * x[i, j]
            scale = one / math.sqrt(square / size + epsilon)
            for j in range(x.shape[1]):
                out[i, j] = x[i, j] * scale * gain[j]
        return out

    return run


_KINDS: tuple[tuple[str, Callable[..., Any], tuple[str, ...], Form, Form], ...] = (
    ("softmax", softmax, (), _softmax_torch, _softmax_numba),
    ("layer_norm", layer_norm, ("gain", "bias"), _layer_norm_torch, _layer_norm_numba),
    ("rms_norm", rms_norm, ("gain",), _rms_norm_torch, _rms_norm_numba),
)

WORKLOADS = tuple(
    Workload(
        f"{name}_{n}x{m}",
        fn,
        partial(_arguments, vectors, n, m),
        partial(_arguments, vectors, 5, 7),
        weights=frozenset(vectors),
        forms={"torch": torch, "numba": numba},
        moved=4 * 2 * n * m,
        functions={"exp": n * m} if name == "softmax" else {},
    )
    for name, fn, vectors, torch, numba in _KINDS
    for n, m in ((4096, 4096), (128, 768))
)
