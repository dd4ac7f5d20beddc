"""Numbers that are known later: what an extent says of itself is true at every size it may be of."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq.backend.extent import Extent, Unknown, at, least, variable

RANGES = {"T": (1, 40), "B": (2, 5)}
Formula = tuple[Callable[..., int], str]


def known() -> dict[str, int]:
    return {n: Extent.of(n, *r) for n, r in RANGES.items()}


@st.composite
def formulas(draw: st.DrawFn) -> str:
    """Text of integer arithmetic on T and B, as kernels do it: sums, products, and quotients rounded up or down."""
    e = draw(st.sampled_from(["T", "B", "3", "64"]))
    for _ in range(draw(st.integers(0, 4))):
        other = draw(st.sampled_from(["T", "B", "1", "2", "7", "16", "64", "T * B"]))
        op = draw(st.sampled_from(["{0} + {1}", "{0} * ({1})", "{0} - {1}", "-(-({0}) // ({1}))", "({0}) // ({1})"]))
        e = f"({op.format(e, other)})"
    return e


@given(formulas(), st.data())
@settings(max_examples=120, deadline=None)
def test_an_extent_is_its_formula_at_every_size(text: str, data: st.DataObject) -> None:
    try:
        n = eval(text, {}, known())
    except Unknown:
        return
    sizes = {d: data.draw(st.integers(*r), label=d) for d, r in RANGES.items()}
    wanted = eval(text, {}, sizes)
    assert at(n, sizes) == wanted
    assert least(n) <= wanted <= int(n)
    if isinstance(n, Extent):
        # C rounds to zero, and no quotient in the text is negative
        names = {variable(d): s for d, s in sizes.items()}
        assert eval(str(n).replace("/", "//"), {}, names) == wanted
        assert pickle.loads(pickle.dumps(n)) == n and hash(n) == hash(n * 1)


@given(formulas(), formulas())
@settings(max_examples=60, deadline=None)
def test_what_is_equal_is_equal_at_all_sizes(a: str, b: str) -> None:
    try:
        x, y = eval(a, {}, known()), eval(b, {}, known())
    except Unknown:
        return
    if x == y:
        assert (x != y) is False
        assert all(at(x, {"T": t, "B": n}) == at(y, {"T": t, "B": n}) for t in range(1, 41) for n in range(2, 6))
    if isinstance(x, Extent):
        assert x != int(x), "a number that depends on sizes is equal to none"


def test_what_is_no_number_is_refused() -> None:
    t = Extent.of("T", 1, 9)
    for wrong in (lambda: float(t), lambda: t // (t - 1), lambda: (t - 5) // 2):
        with pytest.raises(Unknown):
            wrong()
    with pytest.raises(ValueError, match="no size"):
        Extent.of("T", 3, 2)
    assert Extent.of("T", 4, 4) == 4 and type(Extent.of("T", 4, 4)) is int
    assert t - t == 0 and t * 0 == 0 and (6 * t) // 3 == 2 * t and (t * t) // t == t and t % t == 0
