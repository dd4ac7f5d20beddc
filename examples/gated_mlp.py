"""A gated feed-forward layer, SwiGLU (Shazeer, 2020): two projections of one input, one of them a gate."""

import numpy as np

TOKENS, WIDTH, HIDDEN = 128, 1024, 2816
WEIGHTS = ("w_gate", "w_up", "w_down")


def silu(x):
    return x / (1 + np.exp(-x))


def model(x, w_gate, w_up, w_down):
    return (silu(x @ w_gate) * (x @ w_up)) @ w_down


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((TOKENS, WIDTH), dtype=np.float32),
        "w_gate": rng.standard_normal((WIDTH, HIDDEN), dtype=np.float32) / WIDTH**0.5,
        "w_up": rng.standard_normal((WIDTH, HIDDEN), dtype=np.float32) / WIDTH**0.5,
        "w_down": rng.standard_normal((HIDDEN, WIDTH), dtype=np.float32) / HIDDEN**0.5,
    }
