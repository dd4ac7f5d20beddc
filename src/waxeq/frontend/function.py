"""`wx.trace`: the graph of a Python function, without a file around it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from waxeq.errors import UsageError
from waxeq.frontend import trace as tracing
from waxeq.frontend.annotations import example_arguments


def trace(
    fn: Callable[..., Any],
    *examples: Any,
    weights: Collection[str] = (),
    states: Collection[str] = (),
    dims: Mapping[str, int] | None = None,
    **named: Any,
) -> tracing.Traced:
    """The graph of a function for the dtypes and shapes of the example arguments.

    A parameter annotated `wx.Input`, `wx.Weight` or `wx.State` needs no example; `dims` gives the sizes of dimensions
    that annotations name. Raises UsageError when examples do not fit the parameters, UnsupportedError (file:line and
    the way out) for what cannot be traced, TargetError when the function raises or a parameter has neither example nor
    annotation.
    """
    given = example_arguments(fn, by_name(fn, examples, named), dims)
    return tracing.trace(fn, given, weights=parameters(fn, given, weights), states=parameters(fn, given, states))


def by_name(fn: Callable[..., Any], examples: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The example of every parameter that has one. Raises UsageError when `fn` is no function or its parameters do not
    match the examples."""
    if not callable(fn):
        raise UsageError(f"the model is {_described(fn)}; give a function on arrays, then an example of each argument")
    title, kinds = getattr(fn, "__name__", type(fn).__name__), inspect.Parameter
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError) as e:
        raise UsageError(
            f"Python does not tell the parameters of {title}; wrap it in a function that names them"
        ) from e
    rows = signature.parameters.values()
    unnamed = [p.name for p in rows if p.kind in (kinds.VAR_POSITIONAL, kinds.POSITIONAL_ONLY)]
    if unnamed:
        raise UsageError(f"parameter {unnamed[0]!r} of {title} has no name a caller could use; give it one")
    try:
        given = dict(signature.bind_partial(*examples, **named).arguments)
    except TypeError as e:
        raise UsageError(f"the examples do not fit {title}: {e}") from e
    for p in rows:
        if p.kind is kinds.VAR_KEYWORD:
            given |= given.pop(p.name, {})
    return given


def parameters(fn: Callable[..., Any], given: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """`names` of parameters; a single text is one name. Raises UsageError for one that is no parameter of `fn`."""
    rows = (names,) if isinstance(names, str) else tuple(names)
    known = {**inspect.signature(fn).parameters, **given}
    for n in rows:
        if n not in known:
            title = getattr(fn, "__name__", type(fn).__name__)
            raise UsageError(f"{title} has no parameter {n!r} to be a weight or a state; it has {', '.join(known)}")
    return rows


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__} ({value!r:.40})"
