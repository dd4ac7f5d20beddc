"""A product of four matrices; from left to right it is two thousand times the work of the best order."""

import numpy as np

N = 2000
RANK = 50


def model(a, b, c, d):
    return a @ b @ c @ d


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "a": rng.standard_normal((N, RANK), dtype=np.float32),
        "b": rng.standard_normal((RANK, N), dtype=np.float32),
        "c": rng.standard_normal((N, N), dtype=np.float32),
        "d": rng.standard_normal((N, 1), dtype=np.float32),
    }
