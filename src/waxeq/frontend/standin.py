"""Stand-ins for the modules a model uses: what does not dispatch on its arguments must not leave the trace."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from waxeq.frontend import calls, handlers, scalars
from waxeq.frontend.array import TracedArray, Tracer, holds_traced
from waxeq.frontend.constant import Constants
from waxeq.frontend.filled import FILLED, is_filled
from waxeq.frontend.handlers import joining
from waxeq.frontend.handlers.places import Flat
from waxeq.frontend.handlers.positions import BY_POSITION
from waxeq.frontend.leavings import Leavings
from waxeq.frontend.origins import installed, theirs
from waxeq.frontend.ufuncs import Ufunc, is_traced
from waxeq.ir.types import is_floating

PLAIN = (
    *("arange", "eye", "identity", "tri", "linspace", "logspace", "geomspace", "indices"),
    *("frombuffer", "fromfile", "fromfunction", "fromiter", "load", "loadtxt", "genfromtxt"),
)
"""Functions that make arrays of numbers, or read them from somewhere."""
_LATE = ("scipy", "scipy.special")
"""Modules that a model may be the first to import."""
_CACHED = type(cache(len))
"""The class of functions that remember results. Each trace has its own: what is traced is of one."""
_TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class _Random:
    """Stands for np.random."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        raise self._tracer.refuse(f"np.random.{name} draws a number once, while tracing", _DRAW)

    def function(self, name: str) -> Callable[..., Any]:
        """What stands for a function that the model has by name alone; it is refused where it is called."""
        return lambda *args, **kw: getattr(self, name)


_DRAW = "draw it outside of the model and pass it as an argument"
_DRAWING = {f: n for n in np.random.__all__ if not isinstance(f := getattr(np.random, n), type)}
"""Functions of np.random by which numbers are drawn, and generators made."""


class _Module:
    """Stands for a module: the functions of handlers.CREATORS are replaced, all else is the module's own."""

    def __init__(self, real: ModuleType, names: _Names) -> None:
        self._real, self._names = real, names

    def __getattr__(self, name: str) -> Any:
        return self._names.replaced(getattr(self._real, name))


class _Joining:
    """Stands for np.r_ or np.c_."""

    def __init__(self, tracer: Tracer, real: Any) -> None:
        self._tracer, self._real = tracer, real

    def __getitem__(self, key: Any) -> Any:
        if not holds_traced(key):
            return self._real[key]
        self._tracer.builder.source = self._tracer.source()
        return joining.in_brackets(self._tracer, self._real, key)


class _Names:
    """What each thing that a model may refer to by name is replaced by."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer, self.constants = tracer, Constants(self._ufunc)
        self._known = self._all_known()
        self._of_lists: dict[Any, Callable[..., Any]] = {}  # each once: a model may ask which function it has

    @staticmethod
    def _all_known() -> dict[Any, str]:
        scipy, special = (sys.modules.get(n) for n in _LATE)
        names = (*handlers.CREATORS, *handlers.HALF_DISPATCHED, *handlers.MUTABLE, *handlers.OF_LISTS, *PLAIN)
        homes = {"special": special, "linalg": np.linalg}
        creators = {_find(homes.get(n.partition(".")[0], np), n): n for n in names}
        known: dict[Any, str] = {
            None: "",
            np: "",
            np.linalg: "",
            special: "",
            scipy: "",
            **{getattr(np, n): "" for n in _TYPES},
            **creators,
        }
        del known[None]
        return known

    def replaced(self, value: Any) -> Any:
        """The stand-in for a value, or the value itself."""
        if value is np.random:
            return _Random(self.tracer)
        if value is np.r_ or value is np.c_:
            return _Joining(self.tracer, value)
        if isinstance(value, ModuleType):
            if value.__name__ in _LATE and value not in self._known:
                self._known = self._all_known()
            return _Module(value, self) if value in self._known else value
        if type(value) is _CACHED:
            again = lru_cache(**value.cache_parameters())(value.__wrapped__)
            return self._of_lists.setdefault(value, again)
        if isinstance(value, (np.ndarray, tuple)) or type(value) is np.ufunc:
            return self.constants.of(value)
        try:
            known = callable(value) and (value in self._known or value in _DRAWING)
        except Exception:  # not hashable, so none of ours
            known = False
        if not known:
            return value
        if value in _DRAWING:
            return _Random(self.tracer).function(_DRAWING[value])
        if isinstance(value, type):
            return self._of_lists.setdefault(value, _scalar_type(value))
        return self._creator(self._known[value], value)

    def _ufunc(self, f: np.ufunc) -> Any:
        return self._of_lists.setdefault(f, Ufunc(self.tracer, f)) if is_traced(f) else f

    def _creator(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        t = self.tracer
        if name in handlers.OF_LISTS:
            return self._of_lists.setdefault(real, _of_list(t, self.constants, real))
        placed = t.sized and name in BY_POSITION
        tables = (BY_POSITION if placed else {}, handlers.CREATORS, handlers.HANDLERS)
        handler = next((table[name] for table in tables if name in table), None)

        def create(*args: Any, **kw: Any) -> Any:
            traced = any(isinstance(a, (TracedArray, Flat)) for a in calls.flat((args, kw)))
            if handler is not None and (
                traced or placed or (name in handlers.MUTABLE and "like" not in kw and _numeric(kw.get("dtype")))
            ):
                t.builder.source = t.source()
                return scalars.of_function(t, name, args, handler(t, *args, **kw))
            made = real(*args, **kw)
            return (
                t.array(made) if name in FILLED and _is_own(made, kw) and is_filled(theirs) else self.constants.of(made)
            )

        return create


def _is_own(made: Any, kw: Mapping[str, Any]) -> bool:
    """Whether what a creator gives is one array of numbers that shares no memory with what it was given: who writes to
    one that does writes to that too."""
    return isinstance(made, np.ndarray) and "like" not in kw and kw.get("copy", True) is True and _numeric(made.dtype)


def _of_list(t: Tracer, constants: Constants, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an array that may be given a list of traced arrays."""

    @wraps(real)
    def given(*args: Any, **kw: Any) -> Any:
        lists = [isinstance(x, (list, tuple)) and holds_traced(x) for x in args]
        if not any(lists):
            return constants.of(real(*args, **kw))
        t.builder.source = t.source()
        made = handlers.CREATORS["array"]
        return real(*(made(t, x) if is_list else x for x, is_list in zip(args, lists, strict=True)), **kw)

    return given


def _find(module: ModuleType | None, name: str) -> Any:
    return getattr(module, name.rpartition(".")[2], None)


def _numeric(dtype: Any) -> bool:
    return dtype is None or np.dtype(dtype).kind in "biu" or is_floating(np.dtype(dtype))


class _Kind(type):
    """The class of what stands for a class of scalars, and is asked about as that is."""

    _of: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._of)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._of)

    def __eq__(cls, other: object) -> bool:
        return True if cls is other or other is cls._of else NotImplemented  # dtypes know

    def __hash__(cls) -> int:
        return hash(cls._of)


def _scalar_type(real: type) -> type:
    """A dtype that also converts traced arrays: np.float32(x)."""

    def new(cls: type, x: Any = 0, *rest: Any) -> Any:
        if not isinstance(x, TracedArray):
            return real(x, *rest)
        y = x.astype(real)
        return y if y.ndim else y[()]

    return _Kind(real.__name__, (real,), {"__new__": new, "__module__": real.__module__, "_of": real})


@contextmanager
def swapped(
    fn: Callable[..., Any], tracer: Tracer, given: MutableMapping[str, Any]
) -> Iterator[Callable[[np.ufunc], Any]]:
    """Inside, the module of the function, and those of its own helper functions, see stand-ins, and so does what they
    name that is around them; put back whatever happens, and so is what the function leaves there and in its arguments
    (`given`). Gives what stands for a ufunc: one may be an argument."""
    names = _Names(tracer)
    tables: list[tuple[MutableMapping[str, Any], dict[str, Any]]] = []
    inside: list[list[Any] | dict[Any, Any]] = []
    real_import, own = builtins.__import__, set[int]()
    found = [*tables_of(fn)]
    before = Leavings((*found, given), installed, getattr(fn, "__self__", fn))
    try:
        builtins.__import__ = _import_inside(names, own)
        for table in found:
            own.add(id(table))
            inside += names.constants.containers([*table.values()])
            new = {k: x for k, v in table.items() if (x := names.replaced(v)) is not v}
            tables.append((table, {k: table[k] for k in new}))
            table.update(new)
        for container in inside:
            names.constants.put(container)
        yield names.replaced
    finally:
        builtins.__import__ = real_import
        tracer.left, tracer.over = before.take_away(), True
        for table, real in tables:
            table.update(real)
        for container in (*inside, *(table for table, _ in tables)):  # a model may have moved them, or kept more
            names.constants.take(container)


def _import_inside(names: _Names, own: Collection[int]) -> Callable[..., Any]:
    """What `import` does in functions whose globals are among `own`: they get stand-ins; all others the module."""
    real = builtins.__import__

    def found(name: str, globals: Any = None, *rest: Any, **named: Any) -> Any:
        module = real(name, globals, *rest, **named)
        return names.replaced(module) if id(globals) in own else module

    return found


class _Around(MutableMapping[str, Any]):
    """What a function names of those that it was written in."""

    def __init__(self, f: FunctionType) -> None:
        self._cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))

    def __getitem__(self, name: str) -> Any:
        return self._cells[name].cell_contents

    def __setitem__(self, name: str, value: Any) -> None:
        self._cells[name].cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self._cells[name].cell_contents

    def __iter__(self) -> Iterator[str]:
        return (n for n, c in self._cells.items() if _filled(c))

    def __len__(self) -> int:
        return sum(map(_filled, self._cells.values()))


def _filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


class _Defaults(MutableMapping[str, Any]):
    """What the parameters of a function are that nothing is given for, by number."""

    def __init__(self, f: FunctionType) -> None:
        self._function = f

    @property
    def _row(self) -> tuple[Any, ...]:
        return self._function.__defaults__ or ()

    def __getitem__(self, number: str) -> Any:
        return self._row[int(number)]

    def __setitem__(self, number: str, value: Any) -> None:
        self._function.__defaults__ = tuple(value if i == int(number) else x for i, x in enumerate(self._row))

    def __delitem__(self, number: str) -> None:
        raise KeyError(number)

    def __iter__(self) -> Iterator[str]:
        return map(str, range(len(self._row)))

    def __len__(self) -> int:
        return len(self._row)


def tables_of(fn: Callable[..., Any]) -> Iterator[MutableMapping[str, Any]]:
    """What a function, and the functions that it can name, find by name, but for installed packages: globals, what is
    around them, and the attributes of the object that it is a method of."""
    owner = getattr(fn, "__self__", fn)
    attributes = getattr(owner, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(owner, (FunctionType, ModuleType)):
        yield attributes
    todo: list[Any] = [inspect.unwrap(fn), type(fn).__dict__.get("__call__"), getattr(fn, "func", None)]
    seen: set[int] = set()
    while todo:
        f = todo.pop()
        f = getattr(f, "__func__", f)
        if not isinstance(f, FunctionType) or id(f) in seen or installed(f.__code__.co_filename):
            continue
        seen.add(id(f))
        for table in _own_tables(f):
            todo += [v for v in table.values() if isinstance(v, FunctionType)]
            yield table
        if id(f.__globals__) not in seen:
            seen.add(id(f.__globals__))
            todo += [v for v in f.__globals__.values() if isinstance(v, FunctionType)]
            yield f.__globals__


def _own_tables(f: FunctionType) -> Iterator[MutableMapping[str, Any]]:
    """What is around a function, and what its parameters are that nothing is given for: of most of those that a module
    has, which are looked at for each trace, there is none of them."""
    if f.__closure__:
        yield _Around(f)
    if f.__defaults__:
        yield _Defaults(f)
    if f.__kwdefaults__:
        yield f.__kwdefaults__
