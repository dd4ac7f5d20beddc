"""Sizes as functions: exact arithmetic, templates that are filled, and no more than arithmetic in them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.errors import PlanError
from waxeq.symbolic.fit import fit, fit_float
from waxeq.symbolic.size import Number, Size, fill, holes, template, value

pytestmark = pytest.mark.quick
small = st.integers(-50, 50)
sizes = st.fixed_dictionaries({"T": st.integers(1, 5000), "B": st.integers(1, 300)})


@given(small, small, small, small, sizes)
def test_arithmetic_of_sizes_is_that_of_numbers(a: int, b: int, c: int, d: int, at: dict[str, int]) -> None:
    t, n = Size.of("T"), Size.of("B")
    made = (t * a + b) * (n * c - d) - t
    want = (at["T"] * a + b) * (at["B"] * c - d) - at["T"]
    assert fill(template([made]), at) == [want]
    assert value(str(getattr(made, "expr", made)), at) == want


def test_what_depends_on_nothing_is_a_number() -> None:
    t = Size.of("T")
    assert t - t == 0 and type(t - t) is int and type(t * 0 + 3) is int
    assert t * 2 + t == 3 * t and t != 3 and math.prod((4, t, t)) == t * t * 4


def test_holes_in_text_are_filled_in_place() -> None:
    t = Size.of("T")
    text = {"graph": f"float32[{t}, {t * 64 + 3}]", "n": t * 2, "f": [f"{Number('1/T')}"], "plain": "x"}
    made = template(text)
    assert holes(made) and not holes(made["plain"])
    assert fill(made, {"T": 5}) == {"graph": "float32[5, 323]", "n": 10, "f": [0.2], "plain": "x"}


@pytest.mark.parametrize(
    "text", ["__import__('os')", "T.real", "[T]", "T if T else 1", "(lambda: 1)()", "open('x')", "T @ T", "'a' * T", ""]
)
def test_only_arithmetic_is_understood(text: str) -> None:
    with pytest.raises(PlanError):
        fill(f"⟨{text}⟩", {"T": 3})


@pytest.mark.parametrize(
    "text", ["9**9**9", "T**999", "T**T", "2**T", "(T**9)**9", "T**-1", "b'T'*T", "T*1j", "True", "-" * 99999 + "T"]
)
def test_a_formula_takes_no_time_and_is_of_numbers(text: str) -> None:
    with pytest.raises(PlanError, match="is not a function of sizes"):
        fill(f"⟨{text}⟩", {"T": 3})


def test_a_dim_that_nobody_gave_is_named() -> None:
    with pytest.raises(PlanError, match="'B' is not defined"):
        fill("⟨T*B⟩", {"T": 3})


SAMPLES = [
    {"T": t, "B": b} for t, b in ((7, 3), (5, 3), (11, 3), (1, 3), (7, 1), (7, 4), (7, 6), (5, 4), (11, 7), (2, 2))
]


@given(small, small, small, small, small)
def test_polynomials_are_found_through_samples(a: int, b: int, c: int, d: int, e: int) -> None:
    def f(s: dict[str, int]) -> int:
        t, n = s["T"], s["B"]
        return a + b * t + c * n + d * t * n + e * t * t

    found = fit(SAMPLES, [f(s) for s in SAMPLES])
    other = {"T": 97, "B": 31}
    assert found is not None
    assert (found.at(other) if isinstance(found, Size) else found) == f(other)


def test_what_is_no_polynomial_is_not_made_one() -> None:
    rows = [{"T": t} for t in (3, 5, 7, 11, 13, 17, 23)]
    assert fit(rows, [min(r["T"], 8) for r in rows]) is None
    assert fit(rows, [r["T"] // 2 for r in [*rows[:-1], {"T": 24}]]) is None
    assert fit(rows, [2 ** r["T"] for r in rows]) is None


@pytest.mark.parametrize(
    "f",
    [lambda t: 1 / t, lambda t: 1 / (t - 1), lambda t: math.sqrt(t), lambda t: 0.25 / t,
     lambda t: 1 / math.sqrt(t * 64), lambda t: float(3 * t), lambda t: -1.5 * t],
)  # fmt: skip
def test_floats_are_found(f) -> None:
    rows = [{"T": t} for t in (3, 5, 7, 11, 13, 17)]
    found = fit_float(rows, [f(r["T"]) for r in rows])
    assert isinstance(found, Number)
    assert math.isclose(found.at({"T": 101}), f(101), rel_tol=1e-14)


def test_floats_are_found_to_the_last_bit() -> None:
    """A third of a size was times 0.33333333333333337, which is above 12 where it should be 12."""
    rows = [{"T": t} for t in (13, 5, 7, 11, 3, 17)]
    for f in (lambda t: t / 3.0, lambda t: t / 10.0, lambda t: t * 0.1, lambda t: 1 / t / 3):
        found = fit_float(rows, [f(r["T"]) for r in rows])
        assert isinstance(found, Number)
        assert [found.at(r) for r in rows] == [f(r["T"]) for r in rows]


def test_floats_that_were_rounded_are_found() -> None:
    rows = [{"T": t} for t in (3, 5, 7, 11, 13, 17)]
    for f in (lambda t: 1 / t, lambda t: math.sqrt(t), lambda t: 0.3 / t):
        found = fit_float(rows, [float(np.float32(f(r["T"]))) for r in rows])
        assert isinstance(found, Number) and np.float32(found.at({"T": 101})) == np.float32(f(101))


def test_floats_of_another_kind_are_not_found() -> None:
    rows = [{"T": t} for t in (3, 5, 7, 11, 13, 17)]
    assert fit_float(rows, [math.log(r["T"]) for r in rows]) is None
    assert fit_float(rows, [0.5] * 6) == 0.5


@pytest.mark.parametrize("last", [2.0**-512, 2.0**512, 1e308, 5e-324])
def test_floats_that_cannot_be_squared_or_inverted_are_of_no_kind(last: float) -> None:
    assert fit_float([{"T": 1}, {"T": 2}, {"T": 512}], [0.5, 0.25, last]) is None
    assert fit_float([{"T": 512}, {"T": 2}, {"T": 1}], [last, 0.25, 0.5]) is None
