"""Dims: names for sizes that are given when a program is called, with the range they lie in."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from waxeq.errors import TypeMismatch, UsageError
from waxeq.naming import dim

Sizes = Mapping[str, int]
_TEXT = re.compile(r"([A-Za-z_]\w*)=(\d+):(\d+)(?:@(.+))?")


@dataclass(frozen=True)
class Dim:
    """A size called `name`, from `low` to `high`, both included. `axes`: which axes of which inputs have it, where
    neither annotations nor examples at several sizes say so; an input by its name, axes from 0.

    Raises UsageError for a range or a name that makes no sense.
    """

    name: str
    low: int
    high: int
    axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or iskeyword(self.name) or self.name in ("float", "sqrt", "max"):
            raise UsageError(f"{self.name!r} is no name for a dim; write a word such as T")
        if not (type(self.low) is int and type(self.high) is int and 1 <= self.low <= self.high):
            begins = "a range begins at 1 at the least" if self.low == 0 else "write a range such as 1:512"
            raise UsageError(f"dim {self.name} goes from {self.low} to {self.high}; {begins}")

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high

    @staticmethod
    def parse(text: str) -> Dim:
        """A dim from `T=1:512` or `T=1:512@x.0,mask.1`. Raises UsageError."""
        m = _TEXT.fullmatch(text.strip())
        if m is None:
            raise UsageError(f"--dim {text}: write it as T=1:512, or as T=1:512@x.0,mask.1 to say which axes have it")
        axes: dict[str, tuple[int, ...]] = {}
        for part in (m[4] or "").split(","):
            name, _, axis = part.strip().rpartition(".")
            if part and not (name and axis.isdecimal()):
                raise UsageError(f"--dim {text}: {part!r} is no axis of an input; write it as x.0")
            if part:
                axes[name] = (*axes.get(name, ()), int(axis))
        return Dim(m[1], int(m[2]), int(m[3]), axes)

    def __str__(self) -> str:
        return f"{self.name}={self.low}:{self.high}"


def dims_of(given: Any) -> tuple[Dim, ...]:
    """Dims as a caller gives them: {"T": (1, 512)}, {"T": (1, 512, {"x": 0})}, or Dim objects. Raises UsageError."""
    if isinstance(given, Mapping):
        rows = tuple(_dim(str(n), r) for n, r in given.items())
    elif isinstance(given, Sequence) and all(isinstance(d, Dim) for d in given):
        rows = tuple(given)
    else:
        raise UsageError(f"dims is {given!r:.60}; give ranges by name: dims={{'T': (1, 512)}}")
    names = [d.name for d in rows]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None or not rows:
        raise UsageError(f"dim {twice} is given twice" if twice else "dims has no dim; give one: dims={'T': (1, 512)}")
    return rows


def _dim(name: str, row: Any) -> Dim:
    if not isinstance(row, (tuple, list)) or len(row) not in (2, 3):
        raise UsageError(f"dim {name} is {row!r:.60}; give its least and greatest size: (1, 512)")
    axes = row[2] if len(row) == 3 else {}
    if not isinstance(axes, Mapping):
        raise UsageError(f"the axes of dim {name} are {axes!r:.60}; give axes by input: {{'x': 0}}")
    several = {k: tuple(a) if isinstance(a, (tuple, list)) else (a,) for k, a in axes.items()}
    try:
        low, high = (operator.index(s) for s in row[:2])
        return Dim(name, low, high, {k: tuple(map(operator.index, a)) for k, a in several.items()})
    except TypeError as e:
        raise UsageError(f"dim {name} is {row!r:.60}; sizes and axes are whole numbers: (1, 512, {{'x': 0}})") from e


@dataclass(frozen=True)
class Box:
    """Sizes from `low` to `high` along each dim, both included: an interval, where there is one dim."""

    ranges: Mapping[str, tuple[int, int]]

    def __contains__(self, sizes: Sizes) -> bool:
        return all(a <= sizes[n] <= b for n, (a, b) in self.ranges.items())

    def corners(self) -> tuple[dict[str, int], ...]:
        """Its edges: every combination of least and greatest sizes."""
        rows: list[dict[str, int]] = [{}]
        for n, ends in self.ranges.items():
            rows = [{**r, n: s} for r in rows for s in dict.fromkeys(ends)]
        return tuple(rows)

    def __str__(self) -> str:
        return ", ".join(f"{n} = {a}" if a == b else f"{n} = {a} to {b}" for n, (a, b) in self.ranges.items())


def bind(
    takes: Mapping[str, tuple[Any, ...]], shapes: Mapping[str, tuple[int, ...]], dims: Sequence[Dim]
) -> dict[str, int]:
    """The size of every dim from the shapes of inputs. `takes`: for each input a number, a dim's name or another
    formula (`Size`) for each axis. Raises TypeMismatch, in one sentence, where shapes contradict each other or the
    ranges."""
    found: dict[str, tuple[int, str]] = {}
    for x, wants in takes.items():
        if len(shapes[x]) != len(wants):
            raise TypeMismatch(f"input {x!r} has {len(shapes[x])} axes, the program takes {_shape(wants)}")
        for i, (want, got) in enumerate(zip(wants, shapes[x], strict=True)):
            if isinstance(want, str) and found.setdefault(want, (got, x))[0] != got:
                size, other = found[want]
                raise TypeMismatch(f"{want} is {size} in input {other!r} and {got} in axis {i} of input {x!r}")
    sizes: dict[str, int] = {}
    for d in dims:
        if d.low == d.high:
            found.setdefault(d.name, (d.low, ""))
        if d.name not in found:
            raise TypeMismatch(f"no input says what {d.name} is")
        sizes[d.name] = found[d.name][0]
        if not d.low <= sizes[d.name] <= d.high:
            raise TypeMismatch(
                f"{d.name} is {sizes[d.name]} in input {found[d.name][1]!r}, the plan is for {d.low} to {d.high}; "
                f"optimize with {dim(d.name, 'LOW', 'HIGH')} for a wider range"
            )
    for x, wants in takes.items():
        for i, (want, got) in enumerate(zip(wants, shapes[x], strict=True)):
            should = want if isinstance(want, int) else sizes[want] if isinstance(want, str) else want.at(sizes)
            if should != got:
                raise TypeMismatch(f"axis {i} of input {x!r} is {got}, the program takes {should} ({_shape(wants)})")
    return sizes


def _shape(wants: Sequence[Any]) -> str:
    return f"[{', '.join(str(getattr(w, 'expr', w)) for w in wants)}]"
