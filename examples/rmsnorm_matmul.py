"""RMS normalisation with a gain, then a projection (Zhang and Sennrich, 2019): the gain belongs into the weights."""

import numpy as np

TOKENS, WIDTH = 512, 1024
EPSILON = 1e-6
WEIGHTS = ("gain", "w")


def model(x, gain, w):
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    return (x / scale * gain) @ w


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((TOKENS, WIDTH), dtype=np.float32),
        "gain": 1 + 0.1 * rng.standard_normal(WIDTH, dtype=np.float32),
        "w": rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5,
    }
