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
    /,
    *positional: Any,
    weights: Collection[str] = (),
    states: Collection[str] = (),
    dims: Mapping[str, int] | None = None,
    examples: Mapping[str, Any] | None = None,
    **named: Any,
) -> tracing.Traced:
    """The graph of a function for the dtypes and shapes of the example arguments: by position, by name, or in
    `examples` (by name too, for parameters that are called as an argument of this function is).

    A parameter annotated `wx.Input`, `wx.Weight` or `wx.State` needs no example; `dims` gives the sizes of dimensions
    that annotations name. Raises UsageError when examples do not fit the parameters, UnsupportedError (file:line and
    the way out) for what cannot be traced, TargetError when the function raises or a parameter has neither example nor
    annotation.
    """
    own = {"weights": names(weights), "states": names(states), "dims": dims is None or isinstance(dims, Mapping)}
    given = example_arguments(fn, by_name(fn, positional, named, examples, own), dims)
    return tracing.trace(fn, given, weights=parameters(fn, given, weights), states=parameters(fn, given, states))


def by_name(
    fn: Callable[..., Any],
    positional: Sequence[Any],
    named: Mapping[str, Any],
    examples: Mapping[str, Any] | None = None,
    own: Mapping[str, bool] | None = None,
) -> dict[str, Any]:
    """The example of every parameter that has one. `own`: the caller's other arguments by name, and whether each was
    given what it takes. Raises UsageError when `fn` is no function, its parameters do not match the examples, or the
    example of a parameter was taken for another argument."""
    if not callable(fn):
        raise UsageError(f"the model is {_described(fn)}; give a function on arrays, then an example of each argument")
    title, kinds = getattr(fn, "__name__", type(fn).__name__), inspect.Parameter
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError) as e:
        raise UsageError(
            f"Python does not tell the parameters of {title}; wrap it in a function that names them"
        ) from e
    _require_own(title, signature, {"examples": examples is None or _are_examples(signature, examples), **(own or {})})
    rows = signature.parameters.values()
    try:
        given = dict(signature.bind_partial(*positional, **{**named, **_others(named, examples or {})}).arguments)
    except TypeError as e:
        raise UsageError(f"the examples do not fit {title}: {e}{_as_option(named, signature)}") from e
    for p in rows:
        if p.kind is kinds.VAR_KEYWORD:
            others = given.pop(p.name, {})
            for n in others:
                if n in signature.parameters:
                    raise UsageError(
                        f"{n!r} is a key of **{p.name} and a parameter of {title}: give one of them another name"
                    )
            given |= others
    return given


def _as_option(named: Mapping[str, Any], signature: inspect.Signature) -> str:
    """What to add where an option was given as an example of a parameter that there is not."""
    from waxeq.settings import Options  # whose library takes a while to import

    found = next((n for n in named if n in Options.model_fields and n not in signature.parameters), None)
    return f"; {found} is an option: options=wx.Options({found}={named[found]!r:.20})" if found else ""


def names(value: object) -> bool:
    """Whether this is a name or several: no array, and no mapping of them."""
    if isinstance(value, str) or not isinstance(value, Collection):
        return isinstance(value, str)
    return not isinstance(value, Mapping) and all(isinstance(n, str) for n in value)


def _are_examples(signature: inspect.Signature, value: Any) -> bool:
    """Whether a value is a mapping from parameters, and none of a single parameter that has this name itself."""
    return isinstance(value, Mapping) and (
        "examples" not in signature.parameters or {*value} <= {*signature.parameters}
    )


def _others(named: Mapping[str, Any], examples: Mapping[str, Any]) -> Mapping[str, Any]:
    twice = sorted({*named} & {*examples})
    if twice:
        raise TypeError(f"{twice[0]!r} is given twice, by name and in examples")
    return examples


def _require_own(title: str, signature: inspect.Signature, own: Mapping[str, bool]) -> None:
    """Raises UsageError where what was given for an argument of the caller looks like the example of a parameter."""
    for name, right in own.items():
        if not right and name in signature.parameters:
            raise UsageError(
                f"{name}= is an argument of its own here, and {title} has a parameter of that name: give the example "
                f"by position, or as examples={{{name!r}: ...}}"
            )
        if not right and name == "examples":
            raise UsageError("examples is a mapping from names of parameters to arrays: examples={'x': ..., 'w': ...}")


def parameters(fn: Callable[..., Any], given: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """`names` of parameters; a single text is one name. Raises UsageError for one that is no parameter of `fn`."""
    rows = names_of(names)
    known = {**inspect.signature(fn).parameters, **given}
    for n in rows:
        if n not in known:
            title = getattr(fn, "__name__", type(fn).__name__)
            raise UsageError(f"{title} has no parameter {n!r} to be a weight or a state; it has {', '.join(known)}")
    return rows


def names_of(names: Collection[str]) -> tuple[str, ...]:
    """Names, of which a single text is one."""
    return (names,) if isinstance(names, str) else tuple(names)


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__} ({value!r:.40})"
