"""A linear layer with a low-rank adapter (Hu et al., 2021): constant adapters belong into the weights."""

import numpy as np

TOKENS, WIDTH, RANK = 256, 1024, 16
SCALE = 2.0
WEIGHTS = ("w", "down", "up")


def model(x, w, down, up):
    return x @ w + SCALE * (x @ down @ up)


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((TOKENS, WIDTH), dtype=np.float32),
        "w": rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5,
        "down": rng.standard_normal((WIDTH, RANK), dtype=np.float32) / WIDTH**0.5,
        "up": rng.standard_normal((RANK, WIDTH), dtype=np.float32) / RANK**0.5,
    }
