"""The structure of results: what is taken apart is put together again, also by way of JSON and pickle."""

from __future__ import annotations

import json
import pickle
from collections import namedtuple
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.errors import PlanError
from waxeq.ir.structure import builder, decode_structure, encode_structure

pytestmark = pytest.mark.quick


class Pair(NamedTuple):
    left: Any
    right: Any


KEYS = st.one_of(st.text(max_size=3), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False))
STRUCTURES = st.recursive(
    st.sampled_from(["a", "b", "c", None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


def same(x: Any, y: Any) -> bool:
    """Equal, container by container, also in class and in the order and the classes of keys."""
    if type(x) is not type(y):
        return False
    if isinstance(x, dict):
        keys = all(type(a) is type(b) and a == b for a, b in zip(x, y, strict=True))
        return len(x) == len(y) and keys and all(map(same, x.values(), y.values()))
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(map(same, x, y))
    return x == y


@given(STRUCTURES)
def test_json_and_back(structure: Any) -> None:
    assert same(decode_structure(json.loads(json.dumps(encode_structure(structure)))), structure)


@given(STRUCTURES)
def test_results_take_the_places_of_their_names(structure: Any) -> None:
    assert same(builder(structure, ("a", "b", "c"))(["a", "b", "c"]), structure)


def test_the_plain_cases_are_plain_json() -> None:
    assert encode_structure({"sum": "a", "parts": ("b", "c")}) == {"sum": "a", "parts": ["b", "c"]}
    assert encode_structure(None) is None and decode_structure(None) is None


@pytest.mark.parametrize("structure", ["d", ("a", "d"), {"k": ["d"]}, Pair("a", "d")])
def test_a_name_that_is_no_result(structure: Any) -> None:
    with pytest.raises(KeyError, match="d"):
        builder(structure, ("a", "b"))


@pytest.mark.parametrize("elsewhere", ["not_a_module", "json", __name__])
def test_a_class_that_is_not_there_is_made_again(elsewhere: str) -> None:
    data = encode_structure(Pair("a", "b"))
    data["class"] = [elsewhere, "Outer.Gone"]
    made = decode_structure(data)
    assert made == ("a", "b") and made._fields == Pair._fields and type(made).__name__ == "Gone"
    assert type(decode_structure(data)) is type(made)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made) and again == made


def test_a_class_that_changed_is_not_used() -> None:
    data = encode_structure(Pair("a", "b"))
    data["fields"] = ["left", "middle"]
    made = decode_structure(data)
    assert type(made) is not Pair and made._fields == ("left", "middle")


def test_nothing_is_imported_for_a_plan() -> None:
    import sys

    data = encode_structure(namedtuple("Board", "x")("a"))
    data["class"] = ["antigravity", "Board"]
    assert decode_structure(data).x == "a" and "antigravity" not in sys.modules


@pytest.mark.parametrize("data", [7, {"": "set", "items": []}, {"a": 3.5}])
def test_what_is_no_structure(data: Any) -> None:
    with pytest.raises(PlanError, match="not known"):
        decode_structure(data)
