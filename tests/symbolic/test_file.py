"""Plan files of plans for ranges of sizes: what is wrong is noticed when one is read, and nothing in it runs."""

from __future__ import annotations

from typing import Any

import pytest

from waxeq.errors import PlanError
from waxeq.symbolic.file import KEY, decode_sized
from waxeq.symbolic.size import Size

pytestmark = pytest.mark.quick


def read(axis: Any = "T", *intervals: dict[str, list[int]], **dims: tuple[int, int]) -> Any:
    """What is read from a file with one input of one axis, and these intervals of its dims."""
    dims = dims or {"T": (1, 8)}
    rows = [{"ranges": r, "plan": {}, "order": [], "curve": []} for r in intervals or ({"T": [1, 8]},)]
    data = {
        "dims": [{"name": n, "low": low, "high": high} for n, (low, high) in dims.items()],
        "takes": [{"name": "x", "axes": [axis]}],
        "intervals": rows,
    }
    return decode_sized({"name": "m", "about": {}, KEY: data}, {})


def test_an_axis_is_a_number_a_dim_or_a_polynomial() -> None:
    t = Size.of("T")
    for axis, found in ((3, 3), ("T", "T"), ("⟨2*T + 1⟩", t * 2 + 1), ("⟨T**2 - T⟩", t * t - t)):
        assert read(axis).takes == {"x": (found,)}


@pytest.mark.parametrize(
    "axis",
    [
        " [c for c in ().__class__.__base__.__subclasses__()] or '⟨T⟩' ", " print('⟨T⟩') ", "⟨T⟩ + ⟨T⟩",
        "⟨().__class__⟩", "⟨sqrt(T)⟩", "⟨T/2⟩", "⟨0.5*T⟩", "⟨1/T⟩", "⟨max(T, 4)⟩", "⟨float(T)⟩", "⟨sqrt⟩", "⟨B⟩", "⟨T",
    ],
)  # fmt: skip
def test_an_axis_of_any_other_kind_is_refused_and_not_run(axis: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError):
        read(axis)
    assert capsys.readouterr().out == ""


def test_intervals_cover_every_size_once() -> None:
    assert len(read("T", {"T": [4, 8]}, {"T": [1, 3]}).intervals) == 2
    dims = {"T": (1, 2), "B": (1, 2)}
    assert len(read("T", {"T": [1, 1], "B": [1, 2]}, {"B": [1, 2], "T": [2, 2]}, **dims).intervals) == 2
    for rows in (
        [[1, 4], [1, 4]], [[1, 5], [4, 6]], [[2, 9]], [[0, 7]], [[1, 4], [6, 8]], [[1, 4], [5, 9]], [[5, 8], [9, 12]]
    ):  # fmt: skip
        with pytest.raises(PlanError, match="interval"):
            read("T", *({"T": r} for r in rows))
    with pytest.raises(PlanError, match="two intervals have a size in common"):
        read("T", {"T": [1, 1], "B": [1, 2]}, {"T": [1, 2], "B": [2, 2]}, **dims)
