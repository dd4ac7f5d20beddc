"""Models that call functions of jax or torch are told to write np, with file and line."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError

pytestmark = pytest.mark.quick


def library(name: str, **functions: Any) -> Any:
    """A module that is called so: with a function that looks at what it is given, and others."""
    module = ModuleType(name)
    text = "def sin(x):\n    return checked(x)\ndef checked(x):\n    raise TypeError(f'{x} is no array')\n"
    exec(compile(text, f"/lib/site-packages/{name.partition('.')[0]}/module.py", "exec"), vars(module))
    vars(module).update(functions)
    return module


jnp = library("jax.numpy")
torch = library("torch", relu="".join, Array=type("Array", (), {"__module__": "torch"}))  # compiled, without a frame
sin = jnp.sin


@pytest.mark.parametrize(
    ("model", "owner", "instead"),
    [
        (lambda x: jnp.sin(x) + 1, "jax", "jax.numpy"),
        (lambda x: sin(x) + 1, "jax", "jax.numpy"),
        (lambda x: torch.sin(x), "torch", "torch"),
        (lambda x: torch.relu([x]), "torch", "torch"),
    ],
    ids=["module", "function", "torch", "compiled"],
)
def test_what_to_write_is_said(model: Callable, owner: str, instead: str) -> None:
    said = rf"^test_foreign\.py:\d+: functions of {owner} cannot be traced; write np \(NumPy\) instead of {instead}: "
    with pytest.raises(UnsupportedError, match=said):
        wx.trace(model, np.ones(3))


@pytest.mark.parametrize("model", [lambda x: "".join([x]), lambda x: [].append(x, x), lambda x: 1 // 0])
def test_other_errors_are_the_models_own(model: Callable) -> None:
    with pytest.raises(TargetError, match=r"test_foreign\.py:\d+: the model raises \w+Error"):
        wx.trace(model, np.ones(3))


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_the_libraries_themselves(name: str) -> None:
    module = pytest.importorskip("jax.numpy" if name == "jax" else name)
    scope: dict[str, Any] = {"lib": module}
    exec(compile("def model(x):\n    return lib.sin(x)\n", "/tmp/m.py", "exec"), scope)
    with pytest.raises(UnsupportedError, match=rf"^m\.py:2: functions of {name} cannot be traced"):
        wx.trace(scope["model"], np.ones(3))


def test_the_cause_is_told_where_a_library_is_only_named() -> None:
    def model(x):
        if isinstance(x, torch.Array):
            return x
        return "".join([x])

    with pytest.raises(
        UnsupportedError, match=r"functions of torch cannot be traced; .* \(TypeError: sequence item 0: "
    ):
        wx.trace(model, np.ones(3))
