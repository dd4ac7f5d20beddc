"""Annotations of a model's parameters: `x: wx.Input["f32", 128, 384]`, `w: wx.Weight[...]`, `cache: wx.State[...]`."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from waxeq.errors import TargetError, TypeMismatch
from waxeq.ir.types import TensorType, dtype_name, is_float, numpy_dtype

Role = Literal["input", "weight", "state"]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Annotation:
    """What a parameter is: its role, dtype, and dimensions, each a size or a name."""

    role: Role
    dtype: str
    dims: tuple[int | str, ...]

    def type(self, sizes: Mapping[str, int]) -> TensorType:
        """The type with named dimensions replaced. Raises KeyError with the name of one that has no size."""
        return TensorType(self.dtype, tuple(d if isinstance(d, int) else sizes[d] for d in self.dims))

    def __str__(self) -> str:
        return f"{self.role.capitalize()}[{', '.join([self.dtype, *map(str, self.dims)])}]"


class _Of:
    role: ClassVar[Role]

    def __class_getitem__(cls, given: Any) -> Annotation:
        dtype, *dims = given if isinstance(given, tuple) else (given,)
        bad = [d for d in dims if not (isinstance(d, str) and d.isidentifier()) and not (type(d) is int and d >= 0)]
        if bad:
            raise TypeMismatch(f"{bad[0]!r} is not a dimension; write a size such as 128 or a name such as 'B'")
        return Annotation(cls.role, dtype_name(dtype), tuple(dims))


class Input(_Of):
    """`Input[dtype, dims...]`: given anew at each call."""

    role = "input"


class Weight(_Of):
    """`Weight[dtype, dims...]`: bound once; what depends on weights alone is computed once."""

    role = "weight"


class State(_Of):
    """`State[dtype, dims...]`: kept between calls; what the model writes to it is there at the next call."""

    role = "state"


@dataclass(frozen=True, slots=True)
class Marked:
    """What `wx.model` notes on a function: sizes of the dimensions its annotations name."""

    dims: Mapping[str, int]


@overload
def model(fn: F, /) -> F: ...
@overload
def model(*, dims: Mapping[str, int] | None = None) -> Callable[[F], F]: ...
def model(fn: Any = None, /, *, dims: Mapping[str, int] | None = None) -> Any:
    """Mark a function as the model of its file: `@wx.model`, or `@wx.model(dims={"B": 4})` where annotations name
    dimensions. The function itself stays as it is."""

    def mark(f: Any) -> Any:
        f.__waxeq__ = Marked(dict(dims or {}))
        return f

    return mark if fn is None else mark(fn)


def annotated(fn: Callable[..., Any]) -> dict[str, Annotation]:
    """The annotated parameters of a function. Raises TargetError for an annotation of waxeq that makes no sense."""
    plain: Any = inspect.unwrap(fn)
    plain = plain if inspect.isroutine(plain) else type(plain).__call__
    found = {k: _read(fn, a, getattr(plain, "__globals__", {})) for k, a in _annotations(plain).items()}
    return {k: a for k, a in found.items() if isinstance(a, Annotation) and k != "return"}


def _annotations(fn: Any) -> Mapping[str, Any]:
    return inspect.get_annotations(fn) if inspect.isroutine(fn) or inspect.isclass(fn) else {}


def _read(fn: Callable[..., Any], text: Any, names: dict[str, Any]) -> Any:
    """The object an annotation names, where it is written as a string; each by itself, for others may not be there."""
    if not isinstance(text, str):
        return text
    try:
        return eval(text, names)
    except TypeMismatch as e:
        raise TargetError(f"{place(fn)}: an annotation of {_name(fn)}: {e}") from e
    except Exception:
        return None  # of another kind


def example_arguments(
    fn: Callable[..., Any], given: Mapping[str, Any], dims: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Arguments for every parameter: those given, checked against their annotations, and arrays made for the rest.

    Made arrays are random but the same each time: floats normal, integers 0 and 1, states zero; inputs without axes are
    scalars, as callers write them. Weights are never made: a plan folds them. Sizes of named dimensions come from
    `dims`, from `wx.model(dims=...)` and from the arrays given.
    Raises TargetError.
    """
    notes = annotated(fn)
    sizes = {**getattr(fn, "__waxeq__", Marked({})).dims, **(dims or {})}
    for name, a in notes.items():
        if name in given:
            _match(fn, name, a, given[name], sizes)
    rows = dict(given)
    for p in inspect.signature(fn).parameters.values():
        if p.name not in rows and p.name in notes and notes[p.name].role == "weight":
            if p.default is not p.empty:
                continue
            raise TargetError(
                f"{place(fn)}: no value for weight {p.name!r}: pass an array or return it from example_inputs()"
            )
        if p.name not in rows and p.name in notes:
            rows[p.name] = _made(fn, p.name, notes[p.name], sizes)
        elif p.name not in rows and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            others = [n for n in given if n not in inspect.signature(fn).parameters]
            stray = f"There is an example of {', '.join(map(repr, others))}, which is no parameter. " if others else ""
            if "weights" in others:
                stray += f"weights() is for one called so; with WEIGHTS = ({p.name!r},) {p.name!r} is a weight. "
            raise TargetError(
                f"{place(fn)}: what is {p.name!r} of {_name(fn)}? {stray}Pass an example of it (an argument of "
                "optimize, or from example_inputs() of the file), or annotate it as wx.Input['f32', 4, 8]"
            )
    order = list(inspect.signature(fn).parameters)
    return dict(sorted(rows.items(), key=lambda r: order.index(r[0]) if r[0] in order else len(order)))


def _match(fn: Callable[..., Any], name: str, a: Annotation, value: Any, sizes: dict[str, int]) -> None:
    try:
        t = TensorType.of(value)
    except TypeMismatch as e:
        raise TargetError(f"{place(fn)}: the example of {name!r}: {e}") from e
    fits = t.dtype == a.dtype and t.rank == len(a.dims)
    for d, s in zip(a.dims, t.shape, strict=False):
        fits = fits and s == (d if isinstance(d, int) else sizes.setdefault(d, s))
    if not fits:
        where = ", ".join(f"{d} = {sizes[d]}" for d in a.dims if isinstance(d, str) and d in sizes)
        raise TargetError(f"{place(fn)}: {name!r} is annotated {a}{where and f' ({where})'}, the example is {t}")


def _made(fn: Callable[..., Any], name: str, a: Annotation, sizes: Mapping[str, int]) -> np.ndarray | np.generic:
    try:
        t = a.type(sizes)
    except KeyError as e:
        raise TargetError(
            f"{place(fn)}: dimension {e} of {name!r} has no size; give one: @wx.model(dims={{{e}: 4}})"
        ) from e
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if a.role == "state":
        return np.zeros(t.shape, t.numpy)
    if is_float(t.dtype):
        return rng.standard_normal(t.shape).astype(numpy_dtype(t.dtype))[()]
    return rng.integers(0, 2, t.shape).astype(t.numpy)[()]


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def place(fn: Callable[..., Any]) -> str:
    """Where a function begins, as FILE:LINE; its name where that is not known."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else _name(fn)
