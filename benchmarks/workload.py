"""A workload: a NumPy function with its arguments, and what an expert would write for each peer instead."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
Arguments = Mapping[str, Any]
Form = Callable[[], Callable[..., Any]]
"""Gives a function that takes the workload's arguments, in the types of one peer; it imports the peer."""


@dataclass(frozen=True)
class Workload:
    """One row of the comparison.

    `fn` is the source that NumPy, waxeq and (its `np` being `jax.numpy`) JAX run. `make` gives its arguments, arrays or
    dicts of arrays; `small` the same in sizes for a test. `weights` names those that stay the same between calls.
    `forms` are equal functions by peer: "torch" (also compiled, and exported for ONNX Runtime), "torch.compile",
    "numba", "numexpr", "jax"; a peer that needs a form and has none does not take part. `moved`: bytes that any
    program must read and write, for rows that are bound by memory; `functions`: how often it must evaluate costly
    functions, by name. `tolerance`: relative RMS error against float64, over so many `draws` of the arguments.
    `allowed`: the tolerance that waxeq is asked for, where a peer has what loses digits too (None: its default).
    """

    name: str
    fn: Callable[..., Any]
    make: Callable[[], Arguments]
    small: Callable[[], Arguments] | None = None
    weights: frozenset[str] = frozenset()
    forms: Mapping[str, Form] = field(default_factory=dict)
    moved: int | None = None
    functions: Mapping[str, int] = field(default_factory=dict)
    allowed: float | None = None
    tolerance: float = 1e-4
    draws: int = 1

    def ordered(self, arguments: Arguments) -> tuple[Any, ...]:
        """Arguments by position: a name may be a keyword of whoever is called (`weights`), or slow to dispatch on."""
        return tuple(arguments[p] for p in inspect.signature(self.fn).parameters)


def generator() -> np.random.Generator:
    """Arguments are the same in every process."""
    return np.random.default_rng(0)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Standard normal float32, times `scale`."""
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The arrays of an argument by path: dicts are walked."""
    if isinstance(value, Mapping):
        return {k: a for n, v in value.items() for k, a in flat(v, f"{path}.{n}" if path else n).items()}
    return {path: value}


def mapped(value: Any, fn: Callable[[np.ndarray], Any]) -> Any:
    """An argument with a function applied to each array in it."""
    return {n: mapped(v, fn) for n, v in value.items()} if isinstance(value, Mapping) else fn(value)


def example(name: str) -> ModuleType:
    """A file of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
