"""The stand-in for an array while tracing."""

from __future__ import annotations

import linecache
import sys
from types import TracebackType
from typing import Any

import numpy as np

from waxeq.errors import UnsupportedError
from waxeq.frontend.explicit import Explicit, Value
from waxeq.ir.graph import GraphBuilder, Source
from waxeq.ir.types import TensorType


class Tracer:
    """One trace: the builder, and where in the user's program it stands."""

    def __init__(self, builder: GraphBuilder, package: str) -> None:
        self.builder, self.package = builder, package
        self.explicit = Explicit(builder)
        self.constants = 0
        self._known: dict[int, tuple[Any, int]] = {}

    def source(self) -> Source | None:
        """The innermost line of the user's program on the stack."""
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(self.package) and "numpy" not in file and not file.startswith("<"):
                text = linecache.getline(file, frame.f_lineno).strip()
                return Source(file.rsplit("/", 1)[-1], frame.f_lineno, text)
            frame = frame.f_back
        return None

    def place(self, trail: TracebackType | None) -> str:
        """file:line of the innermost frame of the user's program in a traceback."""
        found = "?"
        while trail is not None:
            file = trail.tb_frame.f_code.co_filename
            if not file.startswith(self.package):
                found = f"{file.rsplit('/', 1)[-1]}:{trail.tb_lineno}"
            trail = trail.tb_next
        return found

    def refuse(self, what: str, instead: str) -> UnsupportedError:
        """The error for something that cannot be traced."""
        return UnsupportedError(f"{self.source() or '?'}: {what}; {instead}")

    def value(self, x: Any) -> Value:
        """The value number of a traced array, or of anything NumPy makes an array of, as a constant."""
        if isinstance(x, TracedArray):
            return x.value
        if id(x) in self._known:
            return Value(self._known[id(x)][1])
        a = np.asarray(x)
        if a.ndim == 0:
            return self.explicit.const(a.item(), TensorType.of(a).dtype)
        name = f"constant{self.constants}"
        self.constants += 1
        number = self.builder.leaf(name, TensorType.of(a), "constant", a)
        self._known[id(x)] = (x, number)
        return Value(number)

    def wrap(self, value: int) -> TracedArray:
        return TracedArray(self, value)


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Behaves as an ndarray of known dtype and shape and unknown content."""

    __array_priority__ = 1000

    def __init__(self, tracer: Tracer, value: int) -> None:
        self.tracer, self.value = tracer, Value(value)

    @property
    def type(self) -> TensorType:
        return self.tracer.builder.type(self.value)

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.numpy)
    ndim = property(lambda self: self.type.rank)
    size = property(lambda self: self.type.elements)
    T = property(lambda self: _call("transpose", self))
    mT = property(lambda self: _call("swapaxes", self, -1, -2))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kw: Any) -> Any:
        from waxeq.frontend import calls

        return calls.ufunc(self.tracer, ufunc, method, args, kw)

    def __array_function__(self, function: Any, types: Any, args: Any, kw: Any) -> Any:
        from waxeq.frontend import calls

        return calls.function(self.tracer, function, args, kw)

    def __getitem__(self, index: Any) -> Any:
        from waxeq.frontend import calls

        return calls.getitem(self.tracer, self, index)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array of 0 dimensions")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def _content(self, what: str) -> UnsupportedError:
        return self.tracer.refuse(
            f"{what} needs the content of an array while tracing", "use np.where or mark the value static"
        )

    def __bool__(self) -> bool:
        raise self._content("a Python branch (if, while, and, or)")

    def __float__(self) -> float:
        raise self._content("float()")

    def __int__(self) -> int:
        raise self._content("int()")

    def __index__(self) -> int:
        raise self._content("use as a Python index")

    def __array__(self, *args: Any, **kw: Any) -> Any:
        raise self._content("conversion to a plain ndarray")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self.tracer.refuse("item assignment is not traced", "build the array with np.where or np.concatenate")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from waxeq.frontend import calls

        return calls.method(self, name)


def _call(name: str, *args: Any) -> Any:
    from waxeq.frontend import calls

    return calls.named(args[0].tracer, name, args, {})
