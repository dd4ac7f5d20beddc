"""`wx.trace`: the graph of a Python function, without a file around it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

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
    that annotations name. Raises UnsupportedError (file:line and the way out) for what cannot be traced, TargetError
    when the function raises or a parameter has neither example nor annotation.
    """
    given = inspect.signature(fn).bind_partial(*examples, **named).arguments
    return tracing.trace(fn, example_arguments(fn, given, dims), weights=weights, states=states)
