"""Two matrices applied to a vector; NumPy multiplies the matrices first."""

import numpy as np

N = 2000


def model(a, b, v):
    return a @ b @ v


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "a": rng.standard_normal((N, N), dtype=np.float32),
        "b": rng.standard_normal((N, N), dtype=np.float32),
        "v": rng.standard_normal(N, dtype=np.float32),
    }
