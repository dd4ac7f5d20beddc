"""C text of one long loop as several over pieces that lie in the first cache (loop fission; K. Kennedy, K. S. McKinley,
Maximizing loop parallelism and improving data locality via loop fusion and distribution, 1993).

A core looks ahead for some hundred instructions: of a loop body longer than that, or of one long chain, it never has
the next elements in work while it waits for the results of this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from waxeq_cfamily.scalars import var, variable
from waxeq_cfamily.values import Row, pointed

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop

_COSTLY = 16
"""Operations that a costly function is worth."""

_LOOKS = 64
"""Operations of a body up to which a core has the next elements in work as well."""

_CHAIN = 30
"""Operations that wait for each other up to which it has."""

_CROSSING = 4
"""Operations that a value is worth which one loop writes and another reads."""

_SHORTEST = 64
"""Elements of a loop from which it is worth the others' beginning."""


@dataclass(frozen=True)
class Fission:
    """Of a stage whose innermost loop makes results and nothing else."""

    loop: Loop

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The rows that each loop computes, in order; one where the loop is left whole."""
        loop, stage = self.loop, self.loop.stage
        own = tuple(n for n in loop.cone() if loop.depth(n) == len(loop.order) and not self._read_again(n))
        plain = stage.straight and not stage.folds and not stage.kept and loop.space.width(loop.order[-1]) >= _SHORTEST
        return tuple(self._cut(own)) if plain else (own,)

    def _read_again(self, n: int) -> bool:
        """Whether a loop takes a row from where it is, as the others do."""
        r = self.loop.values.rows[n]
        plain = r.op == "load" and self.loop.e.holds(r.guards) == "1" and not any(pointed(r.name[1]))
        return self.loop.loaded(n) or plain

    def _cut(self, rows: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        whole = self._work(rows)
        if len(rows) < 2 or (whole <= _LOOKS and self._chain(rows) <= _CHAIN):
            yield rows
            return

        def cost(i: int) -> int:
            before = self._work(rows[:i])
            return max(before, whole - before) + _CROSSING * len(self._crossing(rows[:i]))

        at = min(range(1, len(rows)), key=cost)
        yield from self._cut(rows[:at])
        yield from self._cut(rows[at:])

    def _work(self, rows: Sequence[int]) -> int:
        return sum(_operations(self.loop.values.rows[n]) for n in rows)

    def _chain(self, rows: Sequence[int]) -> int:
        """Operations of the longest chain."""
        values, ends = self.loop.values, dict[int, int]()
        for n in rows:
            before = max((ends.get(a, 0) for a in self.loop.e.reads(values.rows[n])), default=0)
            ends[n] = before + _operations(values.rows[n])
        return max(ends.values(), default=0)

    def _crossing(self, before: Sequence[int]) -> list[int]:
        """Which of the rows later loops need, of which the last writes the results."""
        own = set(before)
        return [n for n in before if n in self._written or any(u not in own for u in self._users.get(n, ()))]

    @cached_property
    def _written(self) -> frozenset[int]:
        """The rows that are the results."""
        return frozenset(self.loop.e.stands(self.loop.values.results[i][0]) for i in self.loop.stage.results)

    @cached_property
    def _users(self) -> Mapping[int, list[int]]:
        """The rows of the loop that need a row."""
        found: dict[int, list[int]] = {}
        for n in self.loop.cone():
            for a in self.loop.e.reads(self.loop.values.rows[n]):
                found.setdefault(a, []).append(n)
        return found

    def texts(self, written: Sequence[str], piece: int) -> Iterator[str]:
        """The loops over one piece of at most so many elements, from `{v}_at` to `{v}_to`. What writes an element of
        each result stands in the last."""
        loop, v, made = self.loop, var(self.loop.order[-1]), list[int]()
        for i, rows in enumerate(self.parts):
            last = i == len(self.parts) - 1
            kept = [] if last else self._crossing(rows)
            yield from (f"WX_ALIGNED {self._dtype(n)} k{n}[{piece}];" for n in kept)
            body = [*self._taken(rows, made, written=last), *(x for n in rows for x in loop.row(n))]
            body += written if last else (f"k{n}[{v} - {v}_at] = r{n};" for n in kept)
            yield loop.pragma(body)
            yield f"for (int64_t {v} = {v}_at; {v} < {v}_to; {v}++) {{"
            yield from ("  " + x for x in body)
            yield "}"
            made += kept

    def _taken(self, rows: Sequence[int], made: Sequence[int], written: bool) -> Iterator[str]:
        """What a loop needs and does not compute: values of earlier loops, and what every loop reads."""
        loop, v = self.loop, var(self.loop.order[-1])
        needs = {a for n in rows for a in loop.e.reads(loop.values.rows[n])} | (self._written if written else set())
        for n in loop.cone():
            if n in made and n in needs:
                yield f"const {self._dtype(n)} r{n} = k{n}[{v} - {v}_at];"
            elif n in needs and n not in rows and loop.depth(n) == len(loop.order):
                yield from loop.row(n)

    def _dtype(self, n: int) -> str:
        return variable(self.loop.values.rows[n].dtype)


def _operations(r: Row) -> int:
    return _COSTLY if r.costly else 1
