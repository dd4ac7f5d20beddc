"""Numbers of a call that are known only when it runs: functions of sizes that lie in known ranges.

An `Extent` goes wherever a number goes. Arithmetic keeps the function: what is made of it prints as an expression over
the sizes. It is equal only to what is equal at all sizes, and everything else that is asked of it (is it larger, is it
an integer) is answered for the largest it can be, which is what buffers must have room for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

Sizes = Mapping[str, int]


class Unknown(Exception):
    """A number is asked for that is another at other sizes."""


@dataclass(frozen=True)
class _Size:
    """A size by itself."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return variable(self.name)

    def at(self, sizes: Sizes) -> int:
        return sizes[self.name]

    def dims(self) -> frozenset[_Size]:
        return frozenset((self,))


@dataclass(frozen=True)
class _Quotient:
    """above // below, of which the first is never negative and the second never 0."""

    above: Extent | int
    below: Extent | int

    @property
    def low(self) -> int:
        return least(self.above) // int(self.below)

    @property
    def high(self) -> int:
        return int(self.above) // least(self.below)

    def __str__(self) -> str:
        return f"({self.above} / {self.below})"

    def at(self, sizes: Sizes) -> int:
        return at(self.above, sizes) // at(self.below, sizes)

    def dims(self) -> frozenset[_Size]:
        return _dims(self.above) | _dims(self.below)


_Atom = _Size | _Quotient
_Terms = Mapping[tuple[_Atom, ...], int]
"""Coefficients of products of atoms."""


def variable(name: str) -> str:
    """The name of a size in an expression."""
    return f"n_{name}"


class Extent(int):
    """A polynomial in sizes and quotients of such, that is no constant. As an integer it is the largest it can be.

    Raises Unknown where a float is asked for, and for quotients whose sign or divisor is not known.
    """

    terms: _Terms
    low: int

    @staticmethod
    def of(name: str, low: int, high: int) -> Extent | int:
        """A size from `low` to `high`, both included; at least 0."""
        if not 0 <= low <= high:
            raise ValueError(f"{name} from {low} to {high} is no size")
        return low if low == high else _made({(_Size(name, low, high),): 1})

    def at(self, sizes: Sizes) -> int:
        """The number it is at some sizes."""
        return sum(c * math.prod(a.at(sizes) for a in atoms) for atoms, c in self.terms.items())

    def __add__(self, other: Any) -> Any:
        return NotImplemented if not isinstance(other, int) else _sum(self, other, 1)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if not isinstance(other, int) else _sum(self, other, -1)

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if not isinstance(other, int) else _sum(other, self, -1)

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if not isinstance(other, int) else _product(self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return _product(self, -1)

    def __pow__(self, power: int, modulus: None = None) -> Any:
        return math.prod([self] * power)

    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        return self - _quotient(self, other) * other

    def __rmod__(self, other: Any) -> Any:
        return other - _quotient(other, self) * self

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Extent) and self.terms == other.terms)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __bool__(self) -> bool:
        return True

    def __float__(self) -> float:
        raise Unknown(f"{self} is another number at other sizes")

    def __str__(self) -> str:
        """An expression of C and Python over `variable` names, where no quotient is negative."""
        return self._text

    @cached_property
    def _text(self) -> str:
        rows = sorted(self.terms.items(), key=lambda row: (-len(row[0]), str(row)))
        text = ""
        for atoms, c in rows:
            parts = [*map(str, atoms)] if abs(c) == 1 and atoms else [str(abs(c)), *map(str, atoms)]
            text += (" - " if c < 0 else " + ") + " * ".join(parts)
        text = text[3:] if text.startswith(" + ") else f"-{text[3:]}"
        return text if len(rows) == 1 and text.isidentifier() else f"({text})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __repr__(self) -> str:
        ranges = sorted(f"{d.name}={d.low}:{d.high}" for d in _dims(self))
        return f"{self}[{','.join(ranges)}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (dict(self.terms),)


def at(n: int, sizes: Sizes) -> int:
    """What a number is at some sizes, whether it depends on them or not."""
    return n.at(sizes) if isinstance(n, Extent) else n


def least(n: int) -> int:
    """A number that it is never below; of what does not depend on sizes itself."""
    return n.low if isinstance(n, Extent) else n


def _dims(n: int) -> frozenset[_Size]:
    if not isinstance(n, Extent):
        return frozenset()
    return frozenset(d for atoms in n.terms for a in atoms for d in a.dims())


def _terms(n: int) -> _Terms:
    return n.terms if isinstance(n, Extent) else {(): int(n)} if n else {}


def _made(terms: _Terms) -> Any:
    terms = {atoms: c for atoms, c in terms.items() if c}
    if not any(terms):
        return terms.get((), 0)
    ends = [
        sorted((c * math.prod(a.low for a in atoms), c * math.prod(a.high for a in atoms)))
        for atoms, c in terms.items()
    ]
    made = int.__new__(Extent, sum(high for _, high in ends))
    made.terms, made.low = terms, sum(low for low, _ in ends)
    return made


_remembered = lru_cache(maxsize=1 << 14, typed=True)
"""Whoever writes a kernel asks the same few numbers whether they are multiples of each width of a tile."""


@_remembered
def _sum(a: int, b: int, sign: int) -> Any:
    own, other = _terms(a), _terms(b)
    return _made({**own, **{atoms: own.get(atoms, 0) + sign * c for atoms, c in other.items()}})


@_remembered
def _product(a: int, b: int) -> Any:
    found: dict[tuple[_Atom, ...], int] = {}
    for x, c in _terms(a).items():
        for y, d in _terms(b).items():
            atoms = tuple(sorted((*x, *y), key=str)) if x and y else x or y
            found[atoms] = found.get(atoms, 0) + c * d
    return _made(found)


@_remembered
def _quotient(a: int, b: int) -> Any:
    """a // b, rounded down. Raises Unknown where the sign of a, or whether b is 0, depends on the sizes."""
    if least(b) < 1:
        raise Unknown(f"{b} may be 0")
    exact = _exact(_terms(a), _terms(b))
    if exact is not None:
        return exact
    if least(a) >= 0:
        return _made({(_Quotient(a, b),): 1})
    if int(a) <= 0:
        return -_quotient(-a + b - 1, b)
    raise Unknown(f"{a} is negative at some sizes and not at others")


def _exact(a: _Terms, b: _Terms) -> Any:
    """a / b where b is one product that divides all of a; None where it does not."""
    if a == b:
        return 1
    if len(b) != 1:
        return None
    ((under, d),) = b.items()
    found: dict[tuple[_Atom, ...], int] = {}
    for atoms, c in a.items():
        left = list(atoms)
        for x in under:
            if x not in left:
                return None
            left.remove(x)
        if c % d:
            return None
        found[tuple(left)] = c // d
    return _made(found)
