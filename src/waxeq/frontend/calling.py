"""Calling a model with its arguments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def called(fn: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """What a function gives for arguments by name, in their places where it does not take them by name: those of
    `*rows` are in a tuple of that name."""
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):  # Python does not tell
        return fn(**given)
    parameters, kinds = signature.parameters, inspect.Parameter
    if not any(p.kind in (kinds.POSITIONAL_ONLY, kinds.VAR_POSITIONAL) for p in parameters.values()):
        return fn(**given)
    own = {k: v for k, v in given.items() if k in parameters}
    others = next((n for n, p in parameters.items() if p.kind is kinds.VAR_KEYWORD), None)
    if others is not None:
        own[others] = {k: v for k, v in given.items() if k not in parameters}
    bound = inspect.BoundArguments(signature, own)  # pyright: ignore[reportArgumentType]
    if any(p.kind is kinds.VAR_POSITIONAL for p in parameters.values()):
        bound.apply_defaults()  # what stands before `*rows` has to be there
    return fn(*bound.args, **bound.kwargs)
