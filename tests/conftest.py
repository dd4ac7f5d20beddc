"""What every test may use: where the checkout lies, and the examples as modules."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

# Each of several test processes stays on a core of its own, before NumPy counts cores: threads of BLAS that wait for a
# core that another process has make a product forty times slower.
if (worker := os.environ.get("PYTEST_XDIST_WORKER", "")) and hasattr(os, "sched_setaffinity"):
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[int(worker.removeprefix("gw")) % len(cpus)]})

import numpy as np
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Machines differ in speed: a deadline would test the machine. One fixed seed, so that a failure comes again.
settings.register_profile("waxeq", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("waxeq")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: the folder with pyproject.toml, src/, rules/ and examples/."""
    return ROOT


@pytest.fixture(scope="session")
def load_example() -> Callable[[str], ModuleType]:
    """`load_example("mlp")` imports examples/mlp.py afresh, outside of any package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def relative_rms() -> Callable[[np.ndarray, np.ndarray], float]:
    """The error of `got` against `want`, both arrays of one shape, as a fraction of the RMS of `want`."""

    def error(got: np.ndarray, want: np.ndarray) -> float:
        return float(np.sqrt(np.mean((got - want) ** 2)) / np.sqrt(np.mean(want**2)))

    return error
