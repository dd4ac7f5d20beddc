"""A two-layer perceptron: relu between two affine maps, a batch of flattened 28x28 images to ten class scores."""

import numpy as np

BATCH, INPUT, HIDDEN, OUTPUT = 256, 784, 1024, 10
WEIGHTS = ("w1", "b1", "w2", "b2")


def model(x, w1, b1, w2, b2):
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden @ w2 + b2


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.random((BATCH, INPUT), dtype=np.float32),
        "w1": rng.standard_normal((INPUT, HIDDEN), dtype=np.float32) / INPUT**0.5,
        "b1": rng.standard_normal(HIDDEN, dtype=np.float32),
        "w2": rng.standard_normal((HIDDEN, OUTPUT), dtype=np.float32) / HIDDEN**0.5,
        "b2": rng.standard_normal(OUTPUT, dtype=np.float32),
    }
