"""Stand-ins for the modules a model uses: what does not dispatch on its arguments must not leave the trace."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from waxeq.frontend import calls, handlers, scalars
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.handlers.positions import BY_POSITION

_TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class _Random:
    """Stands for np.random."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        raise self._tracer.refuse(f"np.random.{name} draws a number once, while tracing", _DRAW)


_DRAW = "draw it outside of the model and pass it as an argument"


class _Module:
    """Stands for a module: the functions of handlers.CREATORS are replaced, all else is the module's own."""

    def __init__(self, real: ModuleType, names: _Names) -> None:
        self._real, self._names = real, names

    def __getattr__(self, name: str) -> Any:
        return self._names.replaced(getattr(self._real, name))


class _Names:
    """What each thing that a model may refer to by name is replaced by."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        special, scipy = (sys.modules.get(n) for n in ("scipy.special", "scipy"))
        names = (*handlers.CREATORS, *handlers.HALF_DISPATCHED, *(BY_POSITION if tracer.sized else ()))
        creators = {_find(special if n.startswith("special.") else np, n): n for n in names}
        self._known: dict[Any, str] = {
            None: "",
            np: "",
            np.linalg: "",
            special: "",
            scipy: "",
            **{getattr(np, n): "" for n in _TYPES},
            **creators,
        }
        del self._known[None]

    def replaced(self, value: Any) -> Any:
        """The stand-in for a value, or the value itself."""
        if value is np.random:
            return _Random(self.tracer)
        if isinstance(value, ModuleType):
            return _Module(value, self) if value in self._known else value
        try:
            known = callable(value) and value in self._known
        except TypeError:  # not hashable, so none of ours
            known = False
        if not known:
            return value
        return _scalar_type(value) if isinstance(value, type) else self._creator(self._known[value], value)

    def _creator(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        t = self.tracer
        handler = handlers.CREATORS.get(name) or handlers.HALF_DISPATCHED.get(name) or BY_POSITION[name]
        placed = name in BY_POSITION

        def create(*args: Any, **kw: Any) -> Any:
            traced = any(isinstance(a, TracedArray) for a in calls.flat((args, kw)))
            if traced or placed or (name in handlers.MUTABLE and "like" not in kw and _numeric(kw.get("dtype"))):
                t.builder.source = t.source()
                return scalars.of_function(t, name, args, handler(t, *args, **kw))
            return real(*args, **kw)

        return create


def _find(module: ModuleType | None, name: str) -> Any:
    return getattr(module, name.rpartition(".")[2], None)


def _numeric(dtype: Any) -> bool:
    return dtype is None or np.dtype(dtype).kind in "biuf"


def _scalar_type(real: type) -> type:
    """A dtype that also converts traced arrays: np.float32(x)."""

    def new(cls: type, x: Any = 0, *rest: Any) -> Any:
        if not isinstance(x, TracedArray):
            return real(x, *rest)
        y = x.astype(real)
        return y if y.ndim else y[()]

    return type(real.__name__, (real,), {"__new__": new})


@contextmanager
def swapped(fn: Callable[..., Any], tracer: Tracer) -> Iterator[None]:
    """Inside, the module of the function, and those of its own helper functions, see stand-ins; put back whatever
    happens."""
    names = _Names(tracer)
    changed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for table in _tables(fn):
            real = {k: v for k, v in table.items() if names.replaced(v) is not v}
            changed.append((table, real))
            table.update({k: names.replaced(v) for k, v in real.items()})
        yield
    finally:
        for table, real in changed:
            table.update(real)


def _tables(fn: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """The globals of a function and of the functions it can name, but for installed packages."""
    todo: list[Any] = [inspect.unwrap(fn), type(fn).__dict__.get("__call__")]
    seen: dict[int, Mapping[str, Any]] = {}
    while todo:
        f = todo.pop()
        f = getattr(f, "__func__", f)
        if not isinstance(f, FunctionType) or id(f.__globals__) in seen or _installed(f):
            continue
        seen[id(f.__globals__)] = f.__globals__
        todo += [v for v in f.__globals__.values() if isinstance(v, FunctionType)]
        yield f.__globals__


def _installed(f: FunctionType) -> bool:
    file = f.__code__.co_filename
    return "site-packages" in file or file.startswith((sys.base_prefix + "/lib/python", "<frozen"))
