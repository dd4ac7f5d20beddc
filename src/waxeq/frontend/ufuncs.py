"""What stands for a ufunc in a model: NumPy looks for traced arrays among its arguments, and not in lists of arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from waxeq.frontend import calls, handlers
from waxeq.frontend.array import TracedArray, Tracer, holds_traced
from waxeq.frontend.selection import Selection

_METHODS = ("reduce", "accumulate", "reduceat", "outer")


class Ufunc:
    """A ufunc of NumPy that may also be given lists of traced arrays, and so may its methods: `np.maximum.reduce([a, b,
    c])`. All else about it is the ufunc's own, and it is equal to it as a key."""

    __class__ = property(lambda self: np.ufunc)  # pyright: ignore  # isinstance(f, np.ufunc) is what models ask

    def __init__(self, tracer: Tracer, real: np.ufunc) -> None:
        self.tracer, self.real = tracer, real
        self.__name__, self.__doc__ = real.__name__, real.__doc__

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self._given(self.real, args, kw)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        return self._method(found) if name in _METHODS else found

    def __eq__(self, other: object) -> bool:
        return self is other or self.real is (other.real if type(other) is Ufunc else other)

    def __hash__(self) -> int:
        return hash(self.real)

    def __repr__(self) -> str:
        return repr(self.real)

    def _method(self, found: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(found)
        def given(*args: Any, **kw: Any) -> Any:
            return self._given(found, args, kw)

        return given

    def _given(self, f: Callable[..., Any], args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        """What a ufunc or a method gives, with lists of traced arrays as arrays where NumPy would ask for their
        content: traced arrays themselves tell it not to."""
        for n, name in enumerate(("array", "indices")):  # which NumPy would give twice
            if name in kw and len(args) == n:
                args, kw = (*args, kw[name]), {k: x for k, x in kw.items() if k != name}
        if any(map(holds_traced, args)) and not any(isinstance(x, (TracedArray, Selection)) for x in args):
            self.tracer.builder.source = self.tracer.source()
            args = tuple(handlers.CREATORS["array"](self.tracer, x) if holds_traced(x) else x for x in args)
        return f(*args, **kw)


def is_traced(f: Any) -> bool:
    """Whether a value is a ufunc that is traced, or one of whose methods is."""
    if type(f) is not np.ufunc:
        return False
    name = calls.name_of(f)
    return name in handlers.UFUNCS or f"{name}.reduce" in handlers.HANDLERS
