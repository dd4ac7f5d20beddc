"""A module as text: how it is written, and what is noted of it."""

from __future__ import annotations

import ast
import gc
import inspect
import sys

import pytest

from waxeq.backend.text import text_of

pytestmark = pytest.mark.quick

SOURCE = '''
"""A module."""
import os.path
import numpy as np
from . import near
from ..far import thing as other

if True:
    def sometimes(): return np
try:
    import fast
except ImportError:
    fast = None
LIMIT: int = 4
"""What it is."""
a, (b, *c) = LIMIT, (1, 2, 3)
a = other


def late():
    """Late."""
    from .deep import inner
    return inner(os.path, unknown)


async def waits(x=(n := 1), /, *, y: "str" = u"u"):
    async with x as z, y:
        return [i async for i in z if i is not None]


class Kind(Base, metaclass=Meta):
    """A kind."""
'''


def strip(tree: ast.AST) -> None:
    """Take away the strings that stand alone."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [n for n in value if not (isinstance(n, ast.Expr) and is_string(n.value))])


def is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def dumped(node: ast.AST) -> str:
    return ast.dump(node, **({"show_empty": True} if sys.version_info >= (3, 13) else {}))


@pytest.mark.parametrize("source", [SOURCE, inspect.getsource(ast), inspect.getsource(inspect)])
def test_definitions_are_written_as_python_dumps_them_without_strings_that_stand_alone(source: str) -> None:
    made = text_of(source, "top.middle").made
    tree = ast.parse(source)
    strip(tree)
    definitions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    assert definitions
    assert all(dumped(n) in made[n.name] for n in definitions)


def test_top_level_names_are_made_of_the_statements_that_bind_them() -> None:
    made = text_of(SOURCE, "top.middle").made
    assert made.keys() == {"sometimes", "fast", "LIMIT", "a", "b", "c", "late", "waits", "Kind"}
    first, second = (dumped(ast.parse(line).body[0]) for line in ("a, (b, *c) = LIMIT, (1, 2, 3)", "a = other"))
    assert made["a"] == first + second
    assert made["b"] == first


def test_names_that_are_used_are_those_of_the_module_and_of_its_imports() -> None:
    text = text_of(SOURCE, "top.middle")
    assert text.uses["late"] == ["inner", "os"]
    assert text.uses["a"] == ["LIMIT", "a", "b", "c", "other"]
    assert text.uses["sometimes"] == ["np"]


def test_imports_say_what_of_which_module_wherever_they_stand() -> None:
    assert text_of(SOURCE, "top.middle").imported == {
        "os": ("os", None),
        "np": ("numpy", None),
        "near": ("top.middle", "near"),
        "other": ("top.far", "thing"),
        "fast": ("fast", None),
        "inner": ("top.middle.deep", "inner"),
    }


def test_what_is_no_python_is_refused_and_cycles_are_searched_for_again() -> None:
    assert gc.isenabled()
    with pytest.raises(SyntaxError):
        text_of("def", "")
    assert gc.isenabled()
