# %% [markdown]
# # A first plan
#
# A plain NumPy function goes in; what comes out computes the same, was checked against float64, and was timed against
# the function as written.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import waxeq as wx

folder = TemporaryDirectory()
here = Path(folder.name)

# %% [markdown]
# The product of two matrices and a vector: from left to right as written, it multiplies the matrices first.


# %%
def chain(a, b, v):
    """As one writes it."""
    return a @ b @ v


rng = np.random.default_rng(0)
a, b = (rng.standard_normal((300, 300), dtype=np.float32) for _ in range(2))
v = rng.standard_normal(300, dtype=np.float32)

# %% [markdown]
# `table` is where timings of kernels are kept, and `backends` whose kernels may be used; without them it is the table
# of whoever runs this, and all backends. `budget` is for everything: searching, timing, proving.

# %%
options = wx.Options(table=here / "timings.duckdb", backends=("numpy",), budget=20)
result = wx.optimize(chain, a, b, v, options=options)
print(result)

# %% [markdown]
# The program takes what the function takes. Multiplying from the right makes both products those of a matrix and a
# vector: where the plan is the faster one, it has no product of two matrices any more.

# %%
y = result.program(a, b, v)
expected = a.astype(np.float64) @ (b.astype(np.float64) @ v)
assert np.abs(y - expected).max() / np.abs(expected).max() < 1e-5

# %% [markdown]
# Why each kernel is there: the line it comes from, the rules that led to it, what the next best would have cost.

# %%
print(result.explain())

# %% [markdown]
# A plan is a file, and running it needs neither the function nor the timings.

# %%
result.save(here / "chain.plan.json")
again = wx.load(here / "chain.plan.json")
assert np.array_equal(again(a, b, v), y)

# %%
folder.cleanup()
