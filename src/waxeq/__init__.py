"""waxeq: an e-graph based superoptimizing compiler for tensor programs.

`waxeq.optimize(fn, x, w)` takes a Python function on arrays and returns a checked, timed plan; `result.program(x, w)`
runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from waxeq.__about__ import __version__

if TYPE_CHECKING:
    from waxeq.compile import optimize
    from waxeq.errors import WaxeqError
    from waxeq.frontend.annotations import Input, State, Weight, model
    from waxeq.frontend.function import trace
    from waxeq.options import Options
    from waxeq.runtime.load import load

_LAZY = {
    "optimize": "waxeq.compile",
    "Options": "waxeq.options",
    "load": "waxeq.runtime.load",
    "trace": "waxeq.frontend.function",
    "WaxeqError": "waxeq.errors",
    **dict.fromkeys(("Input", "State", "Weight", "model"), "waxeq.frontend.annotations"),
}

__all__ = ["Input", "Options", "State", "WaxeqError", "Weight", "__version__", "load", "model", "optimize", "trace"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'waxeq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
