"""NumPy's functions on traced arrays: one handler each, by the function's NumPy name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from waxeq.frontend import handlers
from waxeq.frontend.array import TracedArray, Tracer

_OUT = "write the result to a new name instead"


def ufunc(tracer: Tracer, f: np.ufunc, method: str, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """A ufunc, or one of its methods, on traced arrays."""
    out = kw.pop("out", None)
    key = f.__name__ if method == "__call__" else f"{f.__name__}.{method}"
    result = named(tracer, key, args, kw)
    if out is not None:
        if len(out) != 1 or not isinstance(out[0], TracedArray):
            raise tracer.refuse("out= is a plain array", _OUT)
        out[0].value = tracer.explicit.cast(result.value, out[0].type.dtype)
        return out[0]
    return result


def function(tracer: Tracer, f: Callable[..., Any], args: tuple[Any, ...], kw: Mapping[str, Any]) -> Any:
    """A NumPy function on traced arrays."""
    return named(tracer, f.__name__, args, kw)


def method(x: TracedArray, name: str) -> Callable[..., Any]:
    """An array method."""
    key = {"flatten": "ravel", "conj": "conjugate"}.get(name, name)
    if key not in handlers.HANDLERS:
        raise x.tracer.refuse(f"ndarray.{name} is not traced", "see docs/coverage.md for what is")
    return lambda *args, **kw: named(x.tracer, key, (x, *args), kw)


def named(tracer: Tracer, name: str, args: tuple[Any, ...], kw: Mapping[str, Any]) -> Any:
    """Run the handler called `name`; source lines are noted."""
    handler = handlers.HANDLERS.get(name)
    if handler is None:
        raise tracer.refuse(
            f"np.{name} is not traced", "see docs/coverage.md for what is, or compute it outside the model"
        )
    tracer.builder.source = tracer.source()
    rest = {
        k: v for k, v in kw.items() if (v is not np._NoValue and v is not None) or k not in ("where", "initial", "out")
    }
    try:
        return handler(tracer, *args, **rest)
    except TypeError as e:
        if "unexpected keyword" in str(e):
            raise tracer.refuse(f"np.{name} is traced without this option ({e})", "leave the option out") from e
        raise


def getitem(tracer: Tracer, x: TracedArray, index: Any) -> Any:
    """x[index]."""
    tracer.builder.source = tracer.source()
    return handlers.getitem(tracer, x, index)


class _Numpy:
    """Stands for the numpy module in the model's globals: functions that take no array must not leave the trace."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        real = getattr(np, name)
        wrapped = handlers.CREATORS.get(name)
        if wrapped is None:
            return real

        def create(*args: Any, **kw: Any) -> Any:
            if any(isinstance(a, TracedArray) for a in _flat((args, kw))):
                self._tracer.builder.source = self._tracer.source()
                return wrapped(self._tracer, *args, **kw)
            return real(*args, **kw)

        return create


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, (list, tuple)):
        for y in x:
            yield from _flat(y)
    elif isinstance(x, dict):
        yield from _flat(list(x.values()))
    else:
        yield x


@contextmanager
def swapped_numpy(fn: Callable[..., Any], tracer: Tracer) -> Iterator[None]:
    """Inside, the function's module sees a numpy that knows about tracing; put back even when the model raises."""
    names: dict[str, Any] = getattr(fn, "__globals__", {})
    swapped = {k: v for k, v in names.items() if v is np}
    names.update(dict.fromkeys(swapped, _Numpy(tracer)))
    try:
        yield
    finally:
        names.update(swapped)
