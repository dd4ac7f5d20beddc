"""Approximating kernels: as accurate as they say, everywhere, and only there when the tolerance allows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import special

from waxeq.basis.scalar import SCALARS, load
from waxeq.compile import optimize
from waxeq.options import Options
from waxeq_numpy.fast import APPROXIMATIONS

pytestmark = pytest.mark.quick


def approximated(name: str, x: np.ndarray) -> np.ndarray:
    a = APPROXIMATIONS[name]
    out = np.full_like(x, np.nan)
    for step in a.steps(x, out, [np.full_like(x, np.nan) for _ in range(a.registers)]):
        step()
    return out


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_error_is_within_what_is_declared(name: str) -> None:
    """Every 997th float32 of all exponents, both signs."""
    x = np.arange(0, 0x7F800000, 997, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, -x])
    with np.errstate(all="ignore"):
        got = approximated(name, x).astype(np.float64)
        want = load(SCALARS[name].ufunc)(x.astype(np.float64))
    tiny = np.finfo(np.float32).tiny  # below it float32 itself has fewer digits
    error = np.abs(got - want) / np.maximum(np.abs(want), tiny)
    assert error.max() <= APPROXIMATIONS[name].error
    assert np.all(np.abs(got) <= max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_special_values(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    want = load(SCALARS[name].ufunc)(x)
    got = approximated(name, x)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(got[3:]), np.signbit(want[3:]))


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_passes_are_counted(name: str) -> None:
    a = APPROXIMATIONS[name]
    x = np.zeros(4, np.float32)
    assert sum(1 for _ in a.steps(x, x.copy(), [x.copy() for _ in range(a.registers)])) == a.passes


def test_a_tolerance_below_the_error_keeps_the_slow_function(tmp_path: Path) -> None:
    x = np.linspace(-3, 3, 64, dtype=np.float32).reshape(8, 8)
    for tolerance, allowed in (("exact", False), (1e-8, False), (1e-5, True)):
        options = Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, tolerance=tolerance)
        found = optimize(_model, x, options=options)
        assert any("fast" in k for k in found.kernels) == allowed
        np.testing.assert_allclose(found.program(x), special.erf(x), rtol=1e-5)


def _model(x: np.ndarray) -> np.ndarray:
    return special.erf(x)


def test_kernels_for_a_few_rows_do_not_put_out_those_for_many(tmp_path: Path) -> None:
    """Products of a few rows with weights of sixteen bits look cheap; a call that they do not take is not theirs."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, dtype=np.float32) for s in ((512, 256), (256, 512)))
    options = Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, tolerance=1e-3)
    found = optimize(lambda x, w: np.maximum(x @ w, 0), x, w, weights=("w",), options=options)
    assert not found.report.notes, "the product is planned as it was rewritten"
