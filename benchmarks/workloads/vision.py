"""The basic block of ResNet (He et al., 2015), for inference: 64 channels at 56 x 56."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.workload import Arguments, Workload, generator, normal

EPSILON = 1e-5


def convolve(x, kernel):
    """x (n, c, h, w) with kernel (o, c, 3, 3), padded with zeros to keep h and w."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.tensordot(windows, kernel, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def batch_norm(x, w, name):
    """With the statistics of training."""
    gain, bias, mean, variance = (w[f"{name}.{k}"][:, None, None] for k in ("gain", "bias", "mean", "variance"))
    return (x - mean) / np.sqrt(variance + EPSILON) * gain + bias


def basic_block(x, w):
    h = np.maximum(batch_norm(convolve(x, w["conv1"]), w, "norm1"), 0.0)
    return np.maximum(batch_norm(convolve(h, w["conv2"]), w, "norm2") + x, 0.0)


def _arguments(channels: int, size: int) -> Arguments:
    rng = generator()
    w = {name: normal(rng, channels, channels, 3, 3, scale=(9 * channels) ** -0.5) for name in ("conv1", "conv2")}
    for name in ("norm1", "norm2"):
        w |= {f"{name}.{k}": normal(rng, channels, scale=0.1) for k in ("bias", "mean")}
        w |= {f"{name}.{k}": 1 + rng.random(channels, dtype=np.float32) for k in ("gain", "variance")}
    return {"x": normal(rng, 1, channels, size, size), "w": w}


def _torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    def norm(x, w, name):
        gain, bias, mean, variance = (w[f"{name}.{k}"] for k in ("gain", "bias", "mean", "variance"))
        return f.batch_norm(x, mean, variance, gain, bias, training=False, eps=EPSILON)

    def run(x, w):
        h = f.relu(norm(f.conv2d(x, w["conv1"], padding=1), w, "norm1"))
        return f.relu(norm(f.conv2d(h, w["conv2"], padding=1), w, "norm2") + x)

    return run


def _jax() -> Callable[..., Any]:
    import jax

    def norm(x, w, name):
        gain, bias, mean, variance = (w[f"{name}.{k}"][:, None, None] for k in ("gain", "bias", "mean", "variance"))
        return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * gain + bias

    def run(x, w):
        h = jax.nn.relu(norm(jax.lax.conv(x, w["conv1"], (1, 1), "SAME"), w, "norm1"))
        return jax.nn.relu(norm(jax.lax.conv(h, w["conv2"], (1, 1), "SAME"), w, "norm2") + x)

    return run


WORKLOADS = (
    Workload(
        "resnet_block",
        basic_block,
        partial(_arguments, 64, 56),
        partial(_arguments, 4, 6),
        weights=frozenset({"w"}),
        forms={"torch": _torch, "jax": _jax},
    ),
)
