"""The examples as what they claim to be: plain NumPy programs that compute the right thing."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
ALLOWED = sys.stdlib_module_names | {"numpy", "scipy", "safetensors"}

Load = Callable[[str], ModuleType]
Error = Callable[[np.ndarray, np.ndarray], float]


def arguments(example: ModuleType) -> dict[str, Any]:
    """Everything that `model` takes."""
    given = dict(example.example_inputs())
    if hasattr(example, "weights"):
        given["weights"] = example.weights()
    return given


def widened(value: Any) -> Any:
    """The same arguments in float64."""
    if isinstance(value, dict):
        return {name: widened(v) for name, v in value.items()}
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def outputs(result: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)))


@pytest.mark.parametrize("name", NAMES)
def test_uses_numpy_and_scipy_only(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {module.split(".")[0] for module in imported} <= ALLOWED


@pytest.mark.parametrize("name", NAMES)
def test_inputs_and_weights_are_the_arguments_of_the_model(name: str, load_example: Load) -> None:
    example = load_example(name)
    parameters = list(inspect.signature(example.model).parameters)
    assert sorted(arguments(example)) == sorted(parameters)
    assert set(getattr(example, "WEIGHTS", ())) <= set(parameters)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_the_same_each_time(name: str, load_example: Load) -> None:
    first, second = load_example(name).example_inputs(), load_example(name).example_inputs()
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key])


@pytest.mark.parametrize("name", NAMES)
def test_stays_in_its_dtype_and_near_its_float64_self(name: str, load_example: Load, relative_rms: Error) -> None:
    example = load_example(name)
    given = arguments(example)
    floats = {v.dtype for v in given.values() if not isinstance(v, dict) and v.dtype.kind == "f"}
    got = outputs(example.model(**given))
    want = outputs(example.model(**widened(given)))
    for g, w in zip(got, want, strict=True):
        assert g.dtype in (floats or {np.dtype(np.float32)})
        assert w.dtype == np.float64 and g.shape == w.shape
        assert relative_rms(g, w) < 1e-5


def test_call_minus_put_is_spot_minus_discounted_strike(load_example: Load) -> None:
    example = load_example("black_scholes")
    given = example.example_inputs()
    call, put = example.model(**given)
    parity = given["spot"] - given["strike"] * np.exp(-given["rate"] * given["years"])
    np.testing.assert_allclose(call - put, parity, atol=1e-10)
    assert call.min() >= -1e-12 and put.min() >= -1e-12


def test_jacobi_sweeps_agree_with_the_stencil_written_as_a_loop(load_example: Load) -> None:
    example = load_example("jacobi")
    rng = np.random.default_rng(1)
    u, source = np.pad(rng.random((6, 5)), 1), rng.random((8, 7))
    want = u
    for _ in range(example.SWEEPS):
        next_u = np.zeros_like(want)
        for i in range(1, 7):
            for j in range(1, 6):
                near = want[i - 1, j] + want[i + 1, j] + want[i, j - 1] + want[i, j + 1]
                next_u[i, j] = (near - source[i, j]) / 4
        want = next_u
    np.testing.assert_allclose(example.model(u, source), want, rtol=1e-14)


def test_attention_of_equal_keys_is_the_mean_of_the_values(load_example: Load) -> None:
    example = load_example("attention")
    given = example.example_inputs()
    given["k"] = np.broadcast_to(given["k"][:, :1], given["k"].shape)
    want = np.broadcast_to(given["v"].mean(axis=1, keepdims=True), given["v"].shape)
    np.testing.assert_allclose(example.model(**given), want, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("abv", "ij,jk,k->i"),
        ("matrix_chain", "ij,jk,kl,lm->im"),
        ("sum_ab", "ij,jk->"),
    ],
)
def test_products_agree_with_einsum(name: str, expression: str, load_example: Load, relative_rms: Error) -> None:
    example = load_example(name)
    given = {key: value.astype(np.float64) for key, value in example.example_inputs().items()}
    want = np.einsum(expression, *given.values(), optimize=True)
    assert relative_rms(example.model(**given), want) < 1e-12
