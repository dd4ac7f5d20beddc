"""Dims: how they are written, and what inputs say they are."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.errors import TypeMismatch, UsageError
from waxeq.symbolic.dims import Box, Dim, bind, dims_of
from waxeq.symbolic.size import Size

pytestmark = pytest.mark.quick
T, B = Dim("T", 2, 64), Dim("B", 1, 8)


def test_as_they_are_written() -> None:
    assert Dim.parse("T=1:4096") == Dim("T", 1, 4096)
    assert Dim.parse("T=1:9@x.0,mask.1,mask.0") == Dim("T", 1, 9, {"x": (0,), "mask": (1, 0)})
    assert dims_of({"T": (1, 4), "B": (2, 2, {"x": 0})}) == (Dim("T", 1, 4), Dim("B", 2, 2, {"x": (0,)}))


@pytest.mark.parametrize(
    "text", ["T", "T=1", "T=a:b", "T=0:4", "T=5:4", "1=1:4", "T=1:4@x", "T=1:4@x.y", "max=1:4", "in=1:4", "T=1:4@x.²"]
)
def test_what_is_no_dim_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Dim.parse(text)


def test_a_range_that_begins_at_nothing_is_told_where_it_may_begin() -> None:
    with pytest.raises(UsageError, match="dim T goes from 0 to 60; a range begins at 1 at the least"):
        Dim.parse("T=0:60")


@pytest.mark.parametrize(
    "given",
    [{}, {"T": 5}, {"T": (1,)}, {"T": ("1", 4)}, {"T": (1.0, 4)}, {"T": (1, 4, {"x": "0"})}, {"T": (1, 4, {"x": None})},
     [("T", 1, 2)], [T, T], "T"],
)  # fmt: skip
def test_dims_that_make_no_sense_are_refused(given: object) -> None:
    with pytest.raises(UsageError):
        dims_of(given)


def test_sizes_of_any_kind_of_whole_number_are_taken() -> None:
    (d,) = dims_of({"T": (np.int64(1), np.uint8(4), {"x": np.int32(1)})})
    assert d == Dim("T", 1, 4, {"x": (1,)})


TAKES = {"x": ("B", "T", 16), "mask": ("T", "T"), "y": (Size.of("T") * 2 + 1,)}


def test_sizes_are_read_off_shapes() -> None:
    assert bind(TAKES, {"x": (3, 7, 16), "mask": (7, 7), "y": (15,)}, (T, B)) == {"T": 7, "B": 3}


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"x": (3, 7, 16), "mask": (7, 8), "y": (15,)}, "T is 7 in input 'x' and 8 in axis 1 of input 'mask'"),
        ({"x": (3, 1, 16), "mask": (1, 1), "y": (3,)}, "T is 1 in input 'x', the plan is for 2 to 64"),
        ({"x": (9, 7, 16), "mask": (7, 7), "y": (15,)}, "B is 9 in input 'x', the plan is for 1 to 8"),
        ({"x": (3, 7, 15), "mask": (7, 7), "y": (15,)}, "axis 2 of input 'x' is 15, the program takes 16"),
        ({"x": (3, 7, 16), "mask": (7, 7), "y": (14,)}, "axis 0 of input 'y' is 14, the program takes 15"),
        ({"x": (3, 7), "mask": (7, 7), "y": (15,)}, "input 'x' has 2 axes, the program takes"),
    ],
)
def test_shapes_that_do_not_fit_are_explained(shapes: dict[str, tuple[int, ...]], says: str) -> None:
    with pytest.raises(TypeMismatch) as e:
        bind(TAKES, shapes, (T, B))
    assert says in str(e.value)


def test_edges_of_a_box() -> None:
    box = Box({"T": (2, 9), "B": (4, 4)})
    assert box.corners() == ({"T": 2, "B": 4}, {"T": 9, "B": 4})
    assert {"T": 2, "B": 4} in box and {"T": 10, "B": 4} not in box
    assert str(box) == "T = 2 to 9, B = 4"
