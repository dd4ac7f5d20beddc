"""The stand-in for an array while tracing."""

from __future__ import annotations

import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from waxeq.errors import UnsupportedError
from waxeq.frontend import raising
from waxeq.frontend.explicit import Explicit, Value
from waxeq.frontend.instead import instead_of_conversion
from waxeq.frontend.operators import answers_itself, with_operators
from waxeq.frontend.origins import theirs
from waxeq.frontend.patchwork import Content, content_of, type_of, valued
from waxeq.ir.graph import GraphBuilder, Source
from waxeq.ir.interpret import interpret
from waxeq.ir.types import TensorType, dtype_name, is_floating

_BRANCH = "write np.where(condition, a, b), np.minimum or np.maximum"
_KEPT = "calls of a plan do not find it: make it an argument, or a parameter annotated wx.State"


def _one_line(name: str) -> str:
    """The name of a file as the text of a graph can hold it, of which each line is a value."""
    return " ".join(name.split())


def holds_traced(x: Any) -> bool:
    """Whether a traced array is in lists and tuples, at any depth."""
    return any(map(holds_traced, x)) if isinstance(x, (list, tuple)) else isinstance(x, TracedArray)


class Tracer:
    """One trace: the builder, and where in the user's program it stands. `sized`: it is one of several, at other sizes,
    so that what is made for a size is no constant. `left`: where the model left what it computed. `over`: its graph is
    made, and its arrays are of no other. `refused`: what could not be traced, as it was met. `raised`: what makes
    errors of numbers around the model."""

    def __init__(self, builder: GraphBuilder, sized: bool = False) -> None:
        self.builder, self.sized = builder, sized
        self.explicit = Explicit(builder)
        self._copies: dict[int, tuple[Any, np.ndarray, int]] = {}
        self._lines: dict[tuple[str, int], Source] = {}
        self.left: tuple[str, ...] = ()
        self.over = False
        self.refused: list[UnsupportedError] = []
        self.raised = raising.asked()

    def source(self) -> Source | None:
        """The innermost line of the user's program on the stack."""
        frame = sys._getframe(1)
        while frame is not None:
            at = (frame.f_code.co_filename, frame.f_lineno)
            if at in self._lines:
                return self._lines[at]
            file, line = at
            if theirs(file):
                text = linecache.getline(file, line).strip()
                self._lines[at] = Source(_one_line(file.rsplit("/", 1)[-1]), line, text)
                return self._lines[at]
            frame = frame.f_back
        return None

    def expression(self) -> str:
        """What is being computed on the innermost line of the user's program, as it is written there, where that is a
        part of one line; else nothing."""
        frame = sys._getframe(1)
        while frame is not None and not theirs(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return ""
        first, last, start, end = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
        if first is None or first != last or start is None or end is None:
            return ""
        line = linecache.getline(frame.f_code.co_filename, first).encode()  # columns are of bytes
        return line[start:end].decode()

    def refuse(self, what: str, instead: str, place: Source | None = None) -> UnsupportedError:
        """The error for something that cannot be traced, where the program stands or at another place."""
        return self.refuse_as(f"{what}; {instead}", place)

    def refuse_as(self, said: str, place: Source | None = None) -> UnsupportedError:
        """The error that says so."""
        self.refused.append(UnsupportedError(f"{place or self.source() or '?'}: {said}"))
        return self.refused[-1]

    def value(self, x: Any) -> Value:
        """The value number of a traced array, or of anything NumPy makes an array of, as a constant."""
        if isinstance(x, TracedArray):
            return x.value
        if isinstance(x, (list, tuple)) and any(isinstance(e, TracedArray) for e in x):
            return self.array(np.stack(x)).value
        a = self._plain(x)
        if a.ndim == 0:
            return self.explicit.const(a.item(), TensorType.of(a).dtype)
        if id(x) in self._copies:
            _, copy, number = self._copies[id(x)]
            if np.array_equal(copy, a, equal_nan=is_floating(a.dtype)):
                return Value(number)
        copy = a.copy()  # the caller may write to it later; a constant must not change
        number = self.builder.leaf(f"constant{len(self.builder.constants)}", TensorType.of(a), "constant", copy)
        self._copies[id(x)] = (x, copy, number)
        return Value(number)

    def _plain(self, x: Any) -> np.ndarray:
        """What NumPy makes of a constant. Masks, and the other meaning that np.matrix gives to *, would be lost."""
        if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
            raise self.refuse(
                "a masked array loses its mask", "use x.filled(value), or the data and the mask as two arrays"
            )
        if isinstance(x, np.matrix):
            raise self.refuse("np.matrix gives * and ** another meaning", "use np.asarray(x), and @ for products")
        return np.asarray(x)

    def array(self, x: Any) -> Any:
        """A TracedArray for anything NumPy makes an array of; typed Any, as NumPy's functions do not know the class."""
        return x if isinstance(x, TracedArray) else self.wrap(self.value(x))

    def written(self, x: Any, dtype: np.dtype) -> TracedArray:
        """A value as it is in an array of a dtype that it is written to. Raises OverflowError, as NumPy does, for a
        Python int that the dtype does not hold, alone or in a list; numbers of arrays are cut to it."""
        if isinstance(x, TracedArray) and x.dtype == dtype:
            return self.wrap(x.content)
        if not isinstance(x, (np.ndarray, np.generic)) and not holds_traced(x):
            x = np.asarray(x, dtype)
        return self.wrap(self.explicit.cast(self.value(x), dtype_name(dtype)))

    def operand(self, x: Any) -> Any:
        """A value of the graph, or a Python number, which NumPy promotes weakly."""
        return x if type(x) in (int, float) else self.value(x)

    def known(self, x: Any) -> np.ndarray | None:
        """The content of what depends on no input and no weight, not to be written to, as a write would not reach the
        traced array; None for anything else."""
        if not isinstance(x, TracedArray):
            return self._plain(x)
        graph = self.builder.finish([("y", x.value)])
        if any(leaf.kind != "constant" for leaf in graph.leaves):
            return None
        content = np.asarray(interpret(graph, {})["y"]).view()
        content.flags.writeable = False
        return content

    def wrap(self, value: int | Content, scalar: bool = False) -> TracedArray:
        return TracedArray(self, value, scalar=scalar)


class _Storage:
    """Memory that arrays share in NumPy: how often it was written, and the storages that may be the same memory, itself
    among them. They are one set for all of them: a reshape of a reshape may be the first array's memory even when the
    one between is gone."""

    __slots__ = ("__weakref__", "family", "version")

    def __init__(self) -> None:
        self.version = 0
        self.family = weakref.WeakSet([self])

    @property
    def contested(self) -> bool:
        return len(self.family) > 1

    def join(self, other: _Storage) -> None:
        """Both may be the same memory."""
        if self.family is other.family:
            return
        for s in list(self.family):
            other.family.add(s)
            s.family = other.family


@dataclass(frozen=True)
class View:
    """How an array depends on the one it is a view of: `read` gives the view of the base as it is now, `write` the
    content of the base once the view has the given content (None: NumPy forbids writing). `index`: what the base was
    indexed with, where it was."""

    base: TracedArray
    read: Callable[[], int | Content]
    write: Callable[[TracedArray], TracedArray] | None
    index: Any = None


@with_operators
class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Behaves as an ndarray of known dtype and shape and unknown content.

    Writing in place rebinds: the array, its base and its views get new values of the graph. A traced program never
    writes to its arguments. `scalar`: it stands for one of NumPy's scalars, as `x.sum()` is: nothing writes to it.
    """

    __array_priority__ = 1000

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # what models ask isinstance of
        return self.dtype.type if self.scalar and not self.tracer.over else np.ndarray

    def __init__(self, tracer: Tracer, value: int | Content, view: View | None = None, scalar: bool = False) -> None:
        self.tracer, self.scalar = tracer, scalar
        self._content, self._view = content_of(value), view
        self._storage = _Storage() if view is None else view.base._storage
        self._seen = self._storage.version

    @property
    def content(self) -> Content:
        """What the array is now, of which parts are read and written. Raises UnsupportedError where another trace left
        it."""
        if self.tracer.over:
            raise self.tracer.refuse("an array is used that an earlier call of the model left", _KEPT)
        if self._view is not None and self._seen != self._storage.version:
            self._content, self._seen = content_of(self._view.read()), self._storage.version
        return self._content

    @property
    def value(self) -> Value:
        """The value of the graph that the array is now."""
        return valued(self.content)

    @property
    def written(self) -> bool:
        """Whether the array was written in place."""
        return self._storage.version > 0

    def assign(self, new: TracedArray) -> None:
        """Give the array, and all that shares its memory, new content of the same type."""
        if new.shape != self.shape:
            raise ValueError(f"could not broadcast input array from shape {new.shape} into shape {self.shape}")
        if self.scalar:
            raise self.tracer.refuse("a scalar is written to", "write s = s + 1, or x[0] = s where it came from x")
        if self._storage.contested:
            raise self.tracer.refuse(
                "writing to an array of which a reshape is in use (or np.ascontiguousarray, np.einsum without a sum) "
                "may or may not change both in NumPy",
                "write to a copy: y = x.reshape(...).copy()",
            )
        if self._view is None:
            self._storage.version += 1
        elif self._view.write is None:
            raise self.tracer.refuse("this view is read-only", "write to a copy: y = x.copy()")
        else:
            self._view.base.assign(self._view.write(new))
        self._content, self._seen = new.content, self._storage.version

    def perhaps_shares(self, base: TracedArray) -> TracedArray:
        """Note that this array may be a view of `base` or a copy, depending on strides; returns itself."""
        if not base.scalar:
            self._storage.join(base._storage)
        return self

    @property
    def type(self) -> TensorType:
        return type_of(self.tracer.builder, self.content)

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.numpy)
    ndim = property(lambda self: self.type.rank)
    size = property(lambda self: self.type.elements)
    nbytes = property(lambda self: self.type.bytes)
    itemsize = property(lambda self: self.type.numpy.itemsize)
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.matrix_transpose(self))
    real = property(lambda self: self)
    imag = property(lambda self: np.imag(self))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kw: Any) -> Any:
        from waxeq.frontend import calls

        if any(map(answers_itself, args)):
            return NotImplemented  # NumPy asks it next
        return calls.ufunc(self.tracer, ufunc, method, args, kw)

    def __array_function__(self, function: Any, types: Any, args: Any, kw: Any) -> Any:
        from waxeq.frontend import calls

        return calls.function(self.tracer, function, args, kw)

    def __getitem__(self, index: Any) -> Any:
        from waxeq.frontend.handlers import indexing

        self.tracer.builder.source = self.tracer.source()
        return indexing.getitem(self.tracer, self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from waxeq.frontend.handlers import indexing

        self.tracer.builder.source = self.tracer.source()
        view = value._view if isinstance(value, TracedArray) else None
        if view is not None and index is not None and view.base is self and view.index is index:
            return  # the end of `x[i] += y`: the view has written what it is
        self.assign(indexing.with_item(self.tracer, self, index, value))

    @property
    def flat(self) -> Any:
        """The elements in one row, to be read and written by index."""
        from waxeq.frontend.handlers.places import Flat

        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array of 0 dimensions")
        return self.shape[0]

    def __pow__(self, other: Any) -> Any:
        squared = self.dtype == bool and not self.scalar and type(other) is int and other == 2
        return np.square(self) if squared else super().__pow__(other)  # int8 of bools, where np.power gives int64

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __copy__(self) -> TracedArray:
        return np.copy(self)  # pyright: ignore[reportReturnType]

    def __deepcopy__(self, memo: Any) -> TracedArray:
        return np.copy(self)  # pyright: ignore[reportReturnType]

    def __repr__(self) -> str:
        return f"TracedArray({'of an earlier call' if self.tracer.over else self.type})"

    def _known(self, what: str, instead: str) -> np.ndarray:
        found = self.tracer.known(self)
        if found is None:
            raise self.tracer.refuse(f"{what} needs the content of an array, which tracing does not know", instead)
        return found

    def __bool__(self) -> bool:
        return bool(self._known("a Python branch (if, while, assert, and, or, not, in, min, max)", _BRANCH))

    def __float__(self) -> float:
        return float(self._known("float()", "leave the array of shape () as it is, and use np instead of math"))

    def __int__(self) -> int:
        return int(self._known("int()", "write x.astype(int), or make it an argument that is a Python int"))

    def __round__(self, digits: int | None = None) -> Any:
        if not self.scalar:
            raise TypeError("type numpy.ndarray doesn't define __round__ method")
        if digits is None:
            return round(self._known("round() to a Python int", "write np.rint(x)").item())
        return np.round(self, digits)

    def __format__(self, form: str) -> str:
        if not form:
            return repr(self)
        instead = "take the text out of the model: make it of what the program returns"
        return format(self._known(f"writing an array as text (:{form})", instead)[()], form)

    def __complex__(self) -> complex:
        return complex(self._known("complex()", "keep to real numbers"))

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    def __index__(self) -> int:
        instead = "index with np.take, slice by sizes that are Python ints, or make it an argument that is a Python int"
        return self._known("use as a Python index", instead).item().__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        text = self.tracer.expression()
        found = self._known(
            f"conversion to a plain ndarray{text and f' by {text}'}", instead_of_conversion(sys._getframe(1))
        )
        found = np.asarray(found, dtype)
        return found.copy() if copy else found

    def __getattr__(self, name: str) -> Any:
        from waxeq.frontend import calls

        return calls.method(self, name)
