"""Stacks of equal layers with weights of their own: what optimizing them costs as they grow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from waxeq.frontend.trace import Traced, trace

TOKENS, WIDTH, HEADS, HIDDEN = 32, 64, 4, 176
EPSILON = 1e-6


def decoder(layers: int) -> Traced:
    """A causal decoder (RMS norms before, gated MLP), float32, of small widths; no two layers share a weight."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((TOKENS, WIDTH), dtype=np.float32)
    weights = [_layer(rng) for _ in range(layers)]
    return trace(_decoder, {"x": x, "weights": weights}, weights=("weights",), name=f"decoder of {layers} layers")


def _layer(rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys("qkvo", (WIDTH, WIDTH))
    shapes |= {"gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    made = {n: rng.standard_normal(s, dtype=np.float32) / np.float32(math.sqrt(s[0])) for n, s in shapes.items()}
    return made | {n: rng.uniform(0.5, 1.5, WIDTH).astype(np.float32) for n in ("before", "between")}


def _decoder(x: Any, weights: Any) -> Any:
    at = np.arange(TOKENS)
    mask = np.where(at[:, None] >= at[None, :], np.float32(0), np.float32(-1e9))
    for w in weights:
        x = x + _attention(_norm(x, w["before"]), mask, w)
        y = _norm(x, w["between"])
        gate = y @ w["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["up"])) @ w["down"]
    return x


def _norm(x: Any, scale: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(EPSILON)) * scale


def _attention(x: Any, mask: Any, w: Any) -> Any:
    q, k, v = ((x @ w[n]).reshape(TOKENS, HEADS, -1).transpose(1, 0, 2) for n in "qkv")
    scores = q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(WIDTH // HEADS)) + mask
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    mixed = (e / np.sum(e, axis=-1, keepdims=True)) @ v
    return mixed.transpose(1, 0, 2).reshape(TOKENS, WIDTH) @ w["o"]
