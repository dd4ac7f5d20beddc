"""What others are asked to compute: the targets as an expert writes them in torch. Functions take torch, then the
operands in the order of their axes in targets.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_GELU = 1.702


def bias_gelu_residual(torch, x, bias, residual):
    """In float32 between."""
    y = (x + bias).float()
    return (y * torch.sigmoid(_GELU * y) + residual.float()).to(x.dtype)


def transposed(torch, x):
    """Negated, so that it is no mere view."""
    return -x.T.contiguous()


def softmax(torch, x):
    """Of rows."""
    return torch.softmax(x, -1)


def layer_norm(torch, x, gain, bias):
    """Of rows."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, bias, 1e-5)


def rms_norm(torch, x, gain):
    """Of rows."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], gain, 1e-5)


def negated(torch, x):
    """A copy, but for signs."""
    return -x


def column_sum(torch, x):
    """Over the first axis."""
    return x.sum(0)


def product(torch, a, b):
    """By cuBLAS."""
    return torch.matmul(a, b.T)


def product_bias_gelu(torch, a, b, bias):
    """cuBLAS, and what its compiler makes of the rest."""
    y = torch.nn.functional.linear(a, b, bias)
    return y * torch.sigmoid(_GELU * y)


def attention(torch, q, k, v):
    """The backend of SDPA that torch chooses."""
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


_ALL = (bias_gelu_residual, negated, transposed, softmax, layer_norm, rms_norm, column_sum, product, product_bias_gelu,
        attention)  # fmt: skip
PEERS: Mapping[str, Callable[..., Any]] = {f.__name__: f for f in _ALL}
