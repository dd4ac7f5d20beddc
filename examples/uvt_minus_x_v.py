"""The gradient step of matrix factorisation, (U V^T - X) V: the residual is as large as X, the result is thin."""

import numpy as np

N = 2000
RANK = 50


def model(u, v, x):
    return (u @ v.T - x) @ v


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "u": rng.standard_normal((N, RANK), dtype=np.float32),
        "v": rng.standard_normal((N, RANK), dtype=np.float32),
        "x": rng.standard_normal((N, N), dtype=np.float32),
    }
