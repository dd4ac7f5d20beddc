"""Scaled dot-product attention over several heads (Vaswani et al., 2017)."""

import math

import numpy as np

HEADS, LENGTH, WIDTH = 8, 512, 64


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def model(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(WIDTH)
    return softmax(scores) @ v


def example_inputs():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((HEADS, LENGTH, WIDTH), dtype=np.float32) for name in ("q", "k", "v")}
