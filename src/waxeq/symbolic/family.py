"""A model at many sizes: examples of its arguments for any sizes of its dims, and the graphs they are traced to."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import CodeType
from typing import Any

import numpy as np

from waxeq.errors import UsageError
from waxeq.frontend.annotations import annotated, example_arguments
from waxeq.frontend.containers import fields_of
from waxeq.frontend.trace import Traced, trace
from waxeq.naming import dim
from waxeq.symbolic.dims import Dim, Sizes
from waxeq.symbolic.size import written

Examples = Callable[[Sizes], Mapping[str, Any]]
_MANY = 12
"""Sizes of one dim that a model is traced at to learn how its sizes depend on it."""
_CORNERS = 4
"""Dims at most of which a model is traced where each is at an edge of its range."""


@dataclass(frozen=True)
class Family:
    """A function with examples of its arguments at any sizes. `notes`: sentences that its user should read."""

    fn: Callable[..., Any]
    dims: tuple[Dim, ...]
    examples: Examples
    weights: Collection[str] = ()
    name: str | None = None
    origin: tuple[str, str] | None = None
    notes: list[str] = field(default_factory=list, compare=False)
    _weights: dict[str, tuple[Any, Sizes]] = field(default_factory=dict, compare=False)

    def arguments(self, sizes: Sizes) -> dict[str, Any]:
        """Examples at these sizes; weights are those of the first time."""
        given = dict(self.examples(sizes))
        fixed = {*self.weights, *(k for k, a in annotated(self.fn).items() if a.role == "weight")}
        for k in fixed & given.keys():
            first, at = self._weights.setdefault(k, (given[k], dict(sizes)))
            if isinstance(first, np.ndarray) and _alike(first, given[k]) and not np.array_equal(first, given[k]):
                note = f"weight {k!r} is another at another size: the plan holds the one of {written(at)}"
                self.notes.extend({note}.difference(self.notes))
            given[k] = first if _alike(first, given[k]) else given[k]
        return given

    def traced(self, sizes: Sizes) -> Traced:
        """The model traced at these sizes. Raises UnsupportedError, TargetError."""
        given = self.arguments(sizes)
        return trace(self.fn, given, weights=self.weights, name=self.name, origin=self.origin, sized=True)


def _alike(a: Any, b: Any) -> bool:
    """Whether two arguments are of one form, whatever numbers are in them."""
    a, b = (x if (parts := fields_of(x)) is None else parts for x in (a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_alike(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    return np.asarray(a).shape == np.asarray(b).shape


def examples_of(
    fn: Callable[..., Any], given: Mapping[str, Any] | Callable[..., Mapping[str, Any]], dims: Sequence[Dim]
) -> Examples:
    """Examples at any sizes: those that a function of the dims gives; or those given at one size, cut or repeated along
    the axes that annotations and dims name. Raises UsageError where neither says which axes a dim has."""
    if not isinstance(given, Mapping):
        make = given
        return lambda sizes: example_arguments(fn, _with_axes(make(**sizes), dims, sizes), sizes)
    axes = _axes(fn, given, dims)
    unknown = [d.name for d in dims if not any(d.name in row.values() for row in axes.values())]
    if unknown:
        d = unknown[0]
        raise UsageError(
            f"no input has an axis of size {d}: annotate it (x: wx.Input['f32', '{d}', 64]), name the axis "
            f"({dim(d, 1, 512, ('x', 0))}), or let example_inputs({d}) make examples of any size"
        )
    return lambda sizes: example_arguments(fn, {k: _resized(k, v, axes, sizes) for k, v in given.items()}, sizes)


def _with_axes(given: Any, dims: Sequence[Dim], sizes: Sizes) -> Any:
    """Examples that were made at some sizes, which must have every dim where it is said to be. Raises UsageError."""
    named = [(d.name, k, axis) for d in dims for k, several in d.axes.items() for axis in several]
    for d, k, axis in named if isinstance(given, Mapping) else ():
        if k not in given:
            raise UsageError(f"dim {d} is to be an axis of input {k!r}, but the examples are of {', '.join(given)}")
        shape = np.shape(given[k])
        if not -len(shape) <= axis < len(shape) or shape[axis] != sizes[d]:
            raise UsageError(
                f"dim {d} is to be axis {axis} of input {k!r}, whose example has the shape {shape} where {d} = "
                f"{sizes[d]}"
            )
    return given


def _axes(fn: Callable[..., Any], given: Mapping[str, Any], dims: Sequence[Dim]) -> dict[str, dict[int, str]]:
    """For each input, which axes have which dim. Raises UsageError for one that the function does not take."""
    names = {d.name for d in dims}
    rows: dict[str, dict[int, str]] = {}
    for k, a in annotated(fn).items():
        found = {i: n for i, n in enumerate(a.dims) if isinstance(n, str) and n in names}
        if found and a.role != "input":
            raise UsageError(f"{a.role} {k!r} has an axis of size {found[min(found)]}; only inputs can have a dim")
        rows[k] = found
    for d in dims:
        for k, several in d.axes.items():
            if k not in given and k not in annotated(fn):
                known = ", ".join(dict.fromkeys((*given, *annotated(fn))))
                raise UsageError(f"dim {d.name} is to be an axis of input {k!r}, but the model takes {known}")
            row = rows.setdefault(k, {})
            for axis in several:
                if row.setdefault(axis, d.name) != d.name:
                    raise UsageError(f"axis {axis} of input {k!r} is to be of size {row[axis]} and of size {d.name}")
    return {k: row for k, row in rows.items() if row}


def _resized(name: str, x: Any, axes: Mapping[str, Mapping[int, str]], sizes: Sizes) -> Any:
    if name not in axes:
        return x
    a = np.asarray(x)
    for axis, d in axes[name].items():
        if not -a.ndim <= axis < a.ndim or a.shape[axis] == 0:
            raise UsageError(f"dim {d} is axis {axis} of input {name!r}, whose example has the shape {a.shape}")
        try:
            a = np.take(a, np.arange(sizes[d]), axis, mode="wrap")
        except (MemoryError, OverflowError, ValueError) as e:
            raise UsageError(
                f"input {name!r} does not fit in memory where {d} = {sizes[d]}; give a narrower range"
            ) from e
    return a


def samples(family: Family) -> list[dict[str, int]]:
    """Sizes to trace at: the edges of every range, those of all ranges at once, sizes that are no multiple of anything,
    and those beside numbers in the model's own text, where it may turn another way."""
    middle = {d.name: _generic(d)[0] for d in family.dims}
    rows = [middle]
    for d in family.dims:
        rows += [{**middle, d.name: s} for s in dict.fromkeys((*_generic(d), *_edges(d), *_near(family.fn, d)))]
    for i in range(4 * (len(family.dims) - 1)):  # sizes that move together tell a product from a sum
        rows.append({d.name: _generic(d)[(i * (n + 2) + 1) % len(_generic(d))] for n, d in enumerate(family.dims)})
        rows.append({d.name: _generic(d)[(i + n) % len(_generic(d))] for n, d in enumerate(family.dims)})
    if 1 < len(family.dims) <= _CORNERS:
        names = [d.name for d in family.dims]
        rows += [dict(zip(names, edges, strict=True)) for edges in product(*((d.low, d.high) for d in family.dims))]
    return [dict(r) for r in dict.fromkeys(tuple(r.items()) for r in rows)]


_PRIMES = (5, 7, 11, 13, 17, 23, 31, 43, 61, 89, 127, 179, 251, 353, 503, 719, 1021, 1447, 2039, 4093, 8191, 16381)


def _generic(d: Dim) -> list[int]:
    """Sizes in the range that are no multiples: primes where there are enough, a middling one first. Where the range is
    too short to tell one function from another, some lie above it."""
    rows = [p for p in _PRIMES if d.low < p < d.high]
    if len(rows) < 5:
        rows = list(dict.fromkeys((*rows, *range(max(2, d.low), d.low + 8))))
    step = max(1, -(-len(rows) // _MANY))
    rows = rows[::step]
    at = len(rows) // 2
    return [rows[at], *rows[:at], *rows[at + 1 :]]


def _edges(d: Dim) -> list[int]:
    rows = (d.low, d.low + 1, d.low + 2, (d.low + d.high) // 2, d.high - 1, d.high)
    return [s for s in rows if d.low <= s <= d.high]


def _near(fn: Callable[..., Any], d: Dim) -> list[int]:
    """Sizes beside the numbers in a function's code: all that it compares something with, and the least of others."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return []
    compared, others = _beside(_compared(code), d), _beside(_numbers(code), d)
    return [*compared, *[s for s in others if s not in compared][:_MANY]]


def _beside(numbers: Iterable[int], d: Dim) -> list[int]:
    return sorted(s for s in {n + i for n in numbers for i in (-1, 0, 1)} if d.low <= s <= d.high)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of those that are written in it."""
    yield code
    for c in code.co_consts:
        if isinstance(c, CodeType):
            yield from _codes(c)


def _numbers(code: CodeType) -> Iterator[int]:
    for part in _codes(code):
        yield from (c for c in part.co_consts if type(c) is int)


def _compared(code: CodeType) -> Iterator[int]:
    """Numbers that are written in a comparison, alone or among others: `n == 400`, `n in (8, 16)`."""
    for part in _codes(code):
        rows = [r for r in dis.get_instructions(part) if r.positions is not None and None not in r.positions]
        spans = [_span(r.positions) for r in rows if r.opname in ("COMPARE_OP", "CONTAINS_OP")]
        for r in rows:
            start, end = _span(r.positions)
            if r.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and any(a <= start and end <= b for a, b in spans):
                several = r.argval if isinstance(r.argval, (tuple, frozenset)) else (r.argval,)
                yield from (n for n in several if type(n) is int)


def _span(p: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where what an instruction does is written: line and column of its beginning and its end."""
    return (p.lineno, p.col_offset), (p.end_lineno, p.end_col_offset)
