"""Two products with a shared left factor, added."""

import numpy as np

N = 2000


def model(a, b, c):
    return a @ b + a @ c


def example_inputs():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((N, N), dtype=np.float32) for name in ("a", "b", "c")}
