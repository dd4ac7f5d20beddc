"""The six graphs that Mirage (Wu et al., "A Multi-Level Superoptimizer for Tensor Programs", 2024) is measured on.

In float32, at the shapes of its benchmark programs. As in the paper's text, QKNorm normalizes queries and keys, and the
normalized transformer uses the L2 norm; softmax is the stable one. Two of the graphs have no batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workload import Arguments, Workload, generator, normal
from benchmarks.workloads.norms import EPSILON, softmax

BATCHES = (1, 8)


def rms(x, axis=-1):
    """Unit mean square, no gain."""
    return x / np.sqrt(np.mean(x * x, axis=axis, keepdims=True) + EPSILON)


def unit(x):
    """Unit length over the last axis."""
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True))


def rms_norm(x, w):
    return rms(x) @ w


def gated_mlp(x, w1, w2):
    gate = x @ w1
    return gate / (1.0 + np.exp(-gate)) * (x @ w2)


def lora(x, w, a, b):
    return x @ w + x @ a @ b


def gqa(q, k, v):
    """q (n, queries, d), k (n, d, keys), v (n, keys, d)."""
    return softmax(q @ k) @ v


def qk_norm(q, k, v):
    return softmax(rms(q) @ rms(k, axis=-2)) @ v


def n_trans(x, h, alpha):
    """The residual step of a transformer on the unit sphere."""
    return unit(x + alpha * (unit(h) - x))


def _arguments(shapes: dict[str, tuple[int, ...]], weights: tuple[str, ...]) -> Arguments:
    rng = generator()
    return {n: normal(rng, *s, scale=s[0] ** -0.5 if n in weights else 1.0) for n, s in shapes.items()}


def _rms_norm_torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    return lambda x, w: f.rms_norm(x, x.shape[-1:], None, EPSILON) @ w


def _gated_mlp_torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    return lambda x, w1, w2: f.silu(x @ w1) * (x @ w2)


def _lora_torch() -> Callable[..., Any]:
    import torch

    return lambda x, w, a, b: torch.addmm(x @ w, x @ a, b)


def _attend() -> Callable[..., Any]:
    from torch.nn import functional as f

    # keys lie transposed; their copy is small beside the scores, which this way are never written
    return lambda q, k, v: f.scaled_dot_product_attention(q[None], k[None].contiguous(), v[None], scale=1.0)[0]


def _gqa_torch() -> Callable[..., Any]:
    attend = _attend()
    return lambda q, k, v: attend(q, k.transpose(-1, -2), v)


def _qk_norm_torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    attend = _attend()

    def run(q, k, v):
        k = k.transpose(-1, -2)
        return attend(f.rms_norm(q, q.shape[-1:], None, EPSILON), f.rms_norm(k, k.shape[-1:], None, EPSILON), v)

    return run


def _n_trans_torch() -> Callable[..., Any]:
    import torch
    from torch.nn import functional as f

    return lambda x, h, alpha: f.normalize(torch.lerp(x, f.normalize(h, dim=-1), alpha), dim=-1)


def _n_trans_numba() -> Callable[..., Any]:
    from numba import njit, prange

    zero, one = np.float32(0), np.float32(1)

    @njit(parallel=True, fastmath=True)
    def run(x, h, alpha):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            square = zero
            for j in range(x.shape[1]):
                square += h[i, j] * h[i, j]
            scale, square = one / np.sqrt(square), zero
            for j in range(x.shape[1]):
                c = x[i, j] + alpha[i, j] * (h[i, j] * scale - x[i, j])
                out[i, j] = c
                square += c * c
            scale = one / np.sqrt(square)
            for j in range(x.shape[1]):
                out[i, j] *= scale
        return out

    return run


def _heads(n: int, queries: int, keys: int, d: int) -> dict[str, tuple[int, ...]]:
    return {"q": (n, queries, d), "k": (n, d, keys), "v": (n, keys, d)}


def _workload(
    name: str,
    fn: Callable[..., Any],
    shapes: dict[str, tuple[int, ...]],
    small: dict[str, tuple[int, ...]],
    forms: dict[str, Callable[[], Callable[..., Any]]],
    weights: tuple[str, ...] = (),
    moved: int | None = None,
) -> Workload:
    make, test = partial(_arguments, shapes, weights), partial(_arguments, small, weights)
    return Workload(f"mirage_{name}", fn, make, test, frozenset(weights), forms, moved)


def _workloads() -> Iterator[Workload]:
    for b in BATCHES:
        shapes, small = {"x": (2 * b, 4096), "w": (4096, 6144)}, {"x": (2, 6), "w": (6, 8)}
        moved = 4 * 4096 * 6144 if b == 1 else None  # with more rows the products take longer than the weights
        yield _workload(f"rmsnorm_b{b}", rms_norm, shapes, small, {"torch": _rms_norm_torch}, ("w",), moved)
    square, small = (4096, 4096), {"x": (2, 6), "w1": (6, 6), "w2": (6, 6)}
    shapes = {"x": (8, 4096), "w1": square, "w2": square}
    yield _workload("gated_mlp", gated_mlp, shapes, small, {"torch": _gated_mlp_torch}, ("w1", "w2"))
    shapes = {"x": (16, 256), "w": (256, 4096), "a": (256, 16), "b": (16, 4096)}
    small = {"x": (3, 6), "w": (6, 8), "a": (6, 2), "b": (2, 8)}
    yield _workload("lora", lora, shapes, small, {"torch": _lora_torch}, ("w", "a", "b"))
    for b in BATCHES:
        shapes, small = _heads(2 * b, 256, 4096, 64), _heads(2, 5, 6, 4)
        yield _workload(f"gqa_b{b}", gqa, shapes, small, {"torch": _gqa_torch})
        yield _workload(f"qknorm_b{b}", qk_norm, shapes, small, {"torch": _qk_norm_torch})
        shapes = {"x": (8 * b, 4096), "h": (8 * b, 4096), "alpha": (8 * b, 4096)}
        forms = {"torch": _n_trans_torch, "numba": _n_trans_numba}
        yield _workload(
            f"ntrans_b{b}", n_trans, shapes, dict.fromkeys(shapes, (3, 5)), forms, moved=4 * 4 * 8 * b * 4096
        )


WORKLOADS = tuple(_workloads())
