"""NumPy's dispatch protocols: from a function applied to traced arrays to the handler that says what it means."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np

from waxeq.errors import UnknownDtype
from waxeq.frontend import handlers, raising, scalars
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.handlers import elementwise
from waxeq.frontend.instead import instead_of
from waxeq.frontend.selection import Selection

_P = ParamSpec("_P")
_IGNORED = ("subok", "like", "device")
_UNSET = ("where", "initial", "out", "order")
_BY_INDEX = "read and write the array itself by index, or read x.reshape(-1)"
_WINDOWS = "for windows take np.lib.stride_tricks.sliding_window_view(x, length)[::step], not as_strided"
_INSTEAD = {
    "strides": _WINDOWS,
    "item": "leave it an array, which computes as a number does: x[0], x.reshape(()), or x where it has no axes",
    "tolist": "go through the array itself: for row in x, [x[i] for i in range(len(x))]",
}
_SHARING = frozenset({
    *("resize", "setfield", "setflags", "byteswap", "view", "getfield", "data", "ctypes"),
})  # fmt: skip
"""Methods and attributes that write to an array, or give its memory: of a traced one they would reach a temporary."""


@cache
def name_of(f: Callable[..., Any]) -> str:
    """What handlers call a function: "sum" for np.sum, "linalg.norm", "special.erf"."""
    name = f.__name__
    if isinstance(f, np.ufunc):
        if getattr(np, name, None) is f:
            return name
        special = sys.modules.get("scipy.special")
        return f"special.{name}" if getattr(special, name, None) is f else f"?.{name}"
    module = (f.__module__ or "?").removeprefix("numpy").removeprefix(".").replace("lib.stride_tricks", "")
    return f"{module}.{name}" if module else name


@cache
def _signature(f: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(f)
    except ValueError:
        return None


def _refusing(run: Callable[Concatenate[Tracer, _P], Any]) -> Callable[Concatenate[Tracer, _P], Any]:
    """With dtypes that waxeq does not know refused as all else that NumPy knows, in case the model catches that."""

    @wraps(run)
    def refusing(t: Tracer, *args: _P.args, **kw: _P.kwargs) -> Any:
        try:
            return run(t, *args, **kw)
        except UnknownDtype as e:
            raise t.refuse_as(str(e)) from e

    return refusing


@_refusing
def ufunc(t: Tracer, f: np.ufunc, method: str, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """A ufunc, or one of its methods, on traced arrays."""
    if any(isinstance(x, Selection) for x in args):
        return NotImplemented  # it knows what becomes of it
    t.builder.source = t.source()
    _require_quiet(t)
    name = name_of(f)
    out = kw.pop("out", None)
    where = kw.pop("where", True) if method == "__call__" else True
    if method == "__call__" and name in elementwise.UFUNCS:
        rest = {k: v for k, v in kw.items() if k not in ("subok", "order")}
        result = elementwise.apply(t, f, name, args, **rest)
    elif method == "outer" and name in elementwise.UFUNCS:
        result = _outer(t, f, args, kw)
    else:
        result = _of_ufunc(t, f, name, method, args, kw)
    result = scalars.of_function(t, "" if method == "__call__" else method, args, result)
    return result if out is None and where is True else _store(t, out, result, where)


def _require_quiet(t: Tracer) -> None:
    """Raise UnsupportedError where the model asks for errors that depend on numbers, as nothing did around it."""
    if (now := raising.asked()) and now != t.raised:
        raise t.refuse(f"an error that depends on the data is asked for ({now})", raising.INSTEAD)


def _of_ufunc(t: Tracer, f: np.ufunc, name: str, method: str, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """A ufunc that is no map, or a method of one."""
    if method == "__call__":
        return named(t, name, args, kw, f)
    full = f"{name}.{method}"
    if method == "at" and full not in handlers.HANDLERS:  # it writes, which the copies of known arrays would forget
        raise t.refuse(
            f"{_full(full)} is not traced",
            f"write m[index] = {_full(name)}(m[index], values) where no place is named twice, or use np.add.at",
        )
    return named(t, full, args, kw, getattr(f, method))


def _outer(t: Tracer, f: np.ufunc, args: tuple[Any, ...], kw: Mapping[str, Any]) -> Any:
    x, y = (t.array(a) for a in args)
    return f(x.reshape(x.shape + (1,) * y.ndim), y, **kw)


def function(t: Tracer, f: Callable[..., Any], args: tuple[Any, ...], kw: Mapping[str, Any]) -> Any:
    """A NumPy function on traced arrays."""
    signature = _signature(f)
    out = None
    if signature is not None:
        bound = signature.bind(*args, **kw)
        out = bound.arguments.pop("out", None)
        args, kw = bound.args, bound.kwargs
    result = scalars.of_function(t, name_of(f), args, named(t, name_of(f), args, kw, f))
    return result if out is None else _store(t, out if isinstance(out, tuple) else (out,), result, True)


def _store(t: Tracer, out: Any, result: Any, where: Any) -> Any:
    """Put results where `out=` says; where a mask is false the old content stays."""
    if out is None:
        raise t.refuse("where= without out= leaves elements undefined", "write np.where(mask, f(x), other)")
    rows = result if isinstance(result, tuple) else (result,)
    for o, y in zip(out, rows, strict=True):
        if o is None:
            continue
        if not isinstance(o, TracedArray):
            raise t.refuse("an array made outside of the model is written to", "write the result to a new name instead")
        if not np.can_cast(y.dtype, o.dtype, "same_kind"):
            raise TypeError(f"a result of {y.dtype} cannot be written to an array of {o.dtype}")
        y: Any = y if y.shape == o.shape else np.broadcast_to(y, o.shape)
        y = y if where is True else np.where(where, y, o)
        o.assign(t.wrap(t.explicit.cast(y.value, o.type.dtype)))
    final = tuple(y if o is None else o for o, y in zip(out, rows, strict=True))
    return final if isinstance(result, tuple) else final[0]


def method(x: TracedArray, name: str) -> Any:
    """An attribute of a traced array that is not defined on it: a method of ndarray."""
    if name.startswith("__") or not hasattr(np.ndarray, name):
        raise AttributeError(f"an array has no attribute {name!r}")
    found = handlers.METHODS.get(name)
    if found is not None:
        return lambda *args, **kw: _of_array(found, x, name, args, kw)
    if name in _SHARING:
        raise x.tracer.refuse(f"ndarray.{name} is not traced", _BY_INDEX)
    known = x.tracer.known(x)
    if known is not None:
        return getattr(known, name)
    what = "gives Python numbers, which tracing does not know" if name in ("item", "tolist") else "is not traced"
    raise x.tracer.refuse(f"ndarray.{name} {what}", _INSTEAD.get(name) or instead_of(name))


_OWN_ORDER = ("astype",)


def _of_array(found: handlers.Handler, x: TracedArray, name: str, args: tuple[Any, ...], kw: Mapping[str, Any]) -> Any:
    """A method of ndarray: where the function of that name takes the same, it is that function, which knows where in
    the order of arguments `out` and `dtype` stand."""
    t = x.tracer
    if found is handlers.HANDLERS.get(name) and name not in _OWN_ORDER:
        result = function(t, getattr(np, name), (x, *args), kw)
    else:
        result = _handled(t, found, f"ndarray.{name}", (x, *args), kw)
    return result if kw.get("out") is not None else scalars.of_method(x, name, result)


def named(
    t: Tracer, name: str, args: tuple[Any, ...], kw: Mapping[str, Any], real: Callable[..., Any] | None = None
) -> Any:
    """Run the handler called `name`; without one, `real` where everything it is given is known."""
    handler = handlers.HANDLERS.get(name)
    if handler is None:
        known = [t.known(x) for x in flat((args, kw)) if isinstance(x, TracedArray)]
        if real is None or name.startswith("?") or any(a is None for a in known):
            raise t.refuse(f"{_full(name)} is not traced", instead_of(name))
        return _unshared(t, real(*_plain(t, args), **_plain(t, dict(kw))), (args, kw))
    return _handled(t, handler, _full(name), args, kw)


@_refusing
def _handled(t: Tracer, handler: handlers.Handler, full: str, args: tuple[Any, ...], kw: Mapping[str, Any]) -> Any:
    """What a handler makes of the arguments; an option that it does not know is refused."""
    t.builder.source = t.source()
    try:
        return handler(t, *args, **_given(kw))
    except TypeError as e:
        if "unexpected keyword" in str(e) or "positional argument" in str(e):
            option = str(e).rsplit("argument", 1)[-1].strip()
            raise t.refuse(f"{full} is not traced with the option {option}", "leave the option out") from e
        raise


def _unshared(t: Tracer, result: Any, given: Any) -> Any:
    """What a function makes of known content. Views of it would not see what is written to the traced array later."""
    if type(result) in (tuple, list):
        return type(result)(_unshared(t, r, given) for r in result)
    if type(result) is not np.ndarray or result.flags.writeable:
        return result
    y = t.array(result)
    for x in flat(given):
        if isinstance(x, TracedArray):
            y.perhaps_shares(x)
    return y


def _full(name: str) -> str:
    """The name under which users know a function."""
    if name.startswith("?."):
        return name[2:]
    return f"scipy.{name}" if name.startswith("special.") else f"np.{name}"


def _given(kw: Mapping[str, Any]) -> dict[str, Any]:
    """Options that say something."""
    return {
        k: v for k, v in kw.items() if v is not np._NoValue and k not in _IGNORED and not (v is None and k in _UNSET)
    }


def _plain(t: Tracer, x: Any) -> Any:
    if isinstance(x, TracedArray):
        return t.known(x)
    if isinstance(x, (list, tuple)):
        return type(x)(_plain(t, y) for y in x)
    return {k: _plain(t, v) for k, v in x.items()} if isinstance(x, dict) else x


def flat(x: Any) -> Iterator[Any]:
    """Everything in nested lists, tuples and dicts."""
    if type(x) in (list, tuple):
        for y in x:
            yield from flat(y)
    elif isinstance(x, dict):
        yield from flat(list(x.values()))
    else:
        yield x
