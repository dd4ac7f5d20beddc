# %% [markdown]
# # CUDA
#
# Plans whose arrays lie on an NVIDIA GPU. Everything here also runs where there is none: `WAXEQ_CUDA=virtual` is a GPU
# with memory of its own that is simulated on the CPU, slowly and exactly. It needs a C++ compiler, and is never chosen
# by itself. On a machine with a GPU, leave the next cell out.

# %%
import os

os.environ["WAXEQ_CUDA"] = "virtual"

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import waxeq as wx

folder = TemporaryDirectory()
here = Path(folder.name)

# %% [markdown]
# ## A plan on the GPU
#
# `device="cuda"` says that inputs and results lie on the GPU. With `cost="roofline"` nothing is timed: on a simulated
# GPU times mean nothing, and plans are chosen as they might be for a large one.

# %%
rng = np.random.default_rng(0)
x = rng.standard_normal((64, 96), dtype=np.float32)
gain = rng.standard_normal(96, dtype=np.float32)


def rms_norm(x, gain):
    """Rows of unit mean square, scaled."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * gain


options = wx.Options(device="cuda", backends=("cupy",), cost="roofline", trial=False, table=here / "timings.duckdb")
result = wx.optimize(rms_norm, x, gain, weights=["gain"], options=options)
print(result)

# %% [markdown]
# Every buffer of the plan says where it lies, and the norm is one kernel: no intermediate result goes to memory.
# Weights are given on the CPU, and what becomes of them (here: themselves, once uploaded) lies on the GPU.

# %%
plan = result.plan
assert plan.devices == ("cuda",)
assert [s.call.kernel for s in plan.steps] == ["cupy.loops"]
touched = [plan.buffers[n] for s in plan.steps for n in (*s.reads, s.writes)]
assert all(b.place == "cuda" for b in touched)
print(*plan.buffers.values(), sep="\n")

# %% [markdown]
# ## Calls
#
# A NumPy array is copied there and the result back. Arrays that lie on the GPU already (of CuPy, torch or jax, by
# DLPack or the CUDA array interface) are used where they lie; so is the result, which torch and CuPy take with no copy
# (`torch.from_dlpack(y)`, `cupy.asarray(y)`).

# %%
y = result.program(x)
expected = rms_norm(x.astype(np.float64), gain)
assert np.abs(y - expected).max() < 1e-5

# %%
from waxeq.backend.storage import storages

on = storages(result.kernels.values())["cuda"]
there = on.uploaded(x)
y_there = result.program(there)
assert y_there.__dlpack_device__()[0] == 2, "it lies on the GPU"
assert np.array_equal(y_there.get(), y)

# %% [markdown]
# ## One file for another machine
#
# A bundle is the plan, its weights, inputs, and machine code for sm_80 and sm_90 (where NVRTC is installed). It runs
# where of all packages only NumPy is: `waxeq run norm.waxeq` there, or `wx.load`. On a laptop without a GPU
# `waxeq bundle norm.plan.json --arch sm_90` packs what an H100 or H200 runs.

# %%
result.save(here / "norm.plan.json")

# %% [markdown]
# What the plan takes of each memory is known before it runs; a GPU that has less refuses it with a sentence.

# %%
from waxeq.cli import main

assert main(["mem", str(here / "norm.plan.json"), "--quiet"]) == 0

# %%
assert main(["bundle", str(here / "norm.plan.json"), "--backend", "cupy", "--quiet"]) == 0
program = wx.load(here / "norm.waxeq")
assert np.array_equal(program(x), y)

# %% [markdown]
# ## What a GPU would say
#
# On a machine that has one, `python calibration/gpu_check.py` checks every kernel against float64 and times it beside
# torch; `docs/cuda.md` says what an H200 said, and how such timings come into a table here.

# %%
folder.cleanup()
