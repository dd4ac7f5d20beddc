"""The structure results come in: the model's own tuples, lists, dicts and named tuples, with names of outputs where the
arrays go, and None where the model has None. In a plan file it is JSON.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from waxeq.errors import PlanError

Builder = Callable[[Sequence[Any]], Any]
_TAG = ""
"""The key that marks a JSON object which is not a dict of results."""


def is_named_tuple(value: object) -> bool:
    """Whether a value is a tuple whose class names its fields."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields") and hasattr(type(value), "_make")


def builder(structure: Any, names: Sequence[str]) -> Builder:
    """What puts results, in the order of `names`, into a structure. Raises KeyError with a name that is no result."""
    if isinstance(structure, str):
        if structure not in names:
            raise KeyError(structure)
        return itemgetter(names.index(structure))
    if structure is None:
        return lambda results: None
    if isinstance(structure, Mapping):
        rows = [(k, builder(v, names)) for k, v in structure.items()]
        return lambda results: {k: part(results) for k, part in rows}
    parts = [builder(v, names) for v in structure]
    make = type(structure)._make if is_named_tuple(structure) else list if isinstance(structure, list) else tuple
    return lambda results: make([part(results) for part in parts])


def encode_structure(structure: Any) -> Any:
    """As JSON: a name is a string, a tuple an array, a dict an object; the rest are objects with the key ""."""
    if structure is None or isinstance(structure, str):
        return structure
    if isinstance(structure, Mapping):
        if all(type(k) is str and k != _TAG for k in structure):
            return {k: encode_structure(v) for k, v in structure.items()}
        return {_TAG: "dict", "items": [[k, encode_structure(v)] for k, v in structure.items()]}
    items = [encode_structure(v) for v in structure]
    if is_named_tuple(structure):
        kind = type(structure)
        where = [kind.__module__, kind.__qualname__]
        return {_TAG: "named", "class": where, "fields": list(kind._fields), "items": items}
    return {_TAG: "list", "items": items} if isinstance(structure, list) else items


def decode_structure(data: Any) -> Any:
    """Inverse of `encode_structure`. A named tuple is of its own class where that is loaded already (nothing is
    imported: a plan is data), else of one with the same name and fields. Raises PlanError for anything else."""
    if data is None or isinstance(data, str):
        return data
    if isinstance(data, list):
        return tuple(map(decode_structure, data))
    if not isinstance(data, Mapping):
        raise PlanError(f"the plan gives results in a structure that is not known: {data!r}")
    if _TAG not in data:
        return {k: decode_structure(v) for k, v in data.items()}
    kind, items = data[_TAG], data["items"]
    if kind == "dict":
        return {k: decode_structure(v) for k, v in items}
    if kind == "list":
        return [decode_structure(v) for v in items]
    if kind == "named":
        module, name = data["class"]
        return _class(str(module), str(name), tuple(data["fields"]))._make(map(decode_structure, items))
    raise PlanError(f"the plan gives results in a structure that is not known: {kind!r}")


def _class(module: str, name: str, fields: tuple[str, ...]) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    ours = isinstance(found, type) and issubclass(found, tuple) and getattr(found, "_fields", None) == fields
    return found if ours else _like(name.rpartition(".")[2], fields)


@cache
def _like(name: str, fields: tuple[str, ...]) -> Any:
    """A named tuple made here; pickle cannot find its class by name, so instances say how they are made."""
    made: Any = namedtuple(name, fields)
    made.__reduce__ = lambda self: (_remade, (name, fields, tuple(self)))
    return made


def _remade(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return _like(name, fields)._make(values)
