"""Functions of other array libraries, which cannot be followed: whose it was that raised on a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CodeType, FrameType, TracebackType
from typing import Any

from waxeq.errors import WaxeqError
from waxeq.frontend.origins import LIBRARIES, frames

_INSTEAD = {"jax": "jax.numpy", "torch": "torch"}


def advice(e: BaseException, trail: TracebackType | None, stand: str) -> str | None:
    """What to write instead, where a function of jax or torch raised as it was called on a stand-in, whose class is
    called `stand`; None where that was not so."""
    met = list(frames(trail))
    found = next((name for f in met if (name := _owner(f.f_globals.get("__name__")))), None)
    if found is None and stand in str(e) and met:  # what is compiled has no frames, and jax hides those it has
        found = next(_named(met[-1]), None)
    if found is None:
        return None
    instead = f"write np (NumPy) instead of {_INSTEAD[found]}: import numpy as np"
    cause = next(iter(str(e.__cause__ or e).splitlines()), "")
    return f"functions of {found} cannot be traced; {instead} ({type(e.__cause__ or e).__name__}: {cause})"


def _owner(module: Any) -> str | None:
    return LIBRARIES.get(module.partition(".")[0]) if isinstance(module, str) else None


def _said(value: Any, name: str) -> Any:
    """An attribute, where there is one; stand-ins of modules refuse what cannot be traced."""
    try:
        return getattr(value, name, None)
    except WaxeqError:
        return None


def _named(frame: FrameType) -> Iterator[str]:
    """The libraries of which a function names modules or functions."""
    code: CodeType = frame.f_code
    known = {**frame.f_globals, **frame.f_locals}
    for name in (*code.co_names, *code.co_varnames, *code.co_freevars):
        value = known.get(name)
        for where in map(partial(_said, value), ("__name__", "__module__")):
            if (found := _owner(where)) is not None:
                yield found
