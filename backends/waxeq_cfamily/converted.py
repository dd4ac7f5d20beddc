"""float16 that a loop reads and writes, converted in pieces before and after it, where the machine has instructions for
that: gcc 12 makes no vectors of these, and of the same in arithmetic the loop was slower than all else in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from waxeq_cfamily.scalars import CTYPES, nth, var
from waxeq_cfamily.several import Several
from waxeq_cfamily.turned import turns
from waxeq_cfamily.values import pointed

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop

_PIECE = 256
"""Elements that are converted in one go: all of a loop lies in the first cache."""
_SHORTEST = 32
"""Elements of a loop from which it is worth a call for each array."""


@dataclass(frozen=True)
class Converted:
    """Of a stage's innermost loop. `never`: the stage has no loop of its own."""

    loop: Loop
    never: bool = False

    @cached_property
    def _plain(self) -> bool:
        """Whether the loop goes through its elements in order, one row at a time."""
        loop = self.loop
        if self.never or not loop.e.converts or not loop.stage.straight or not loop.order:
            return False
        several = Several(loop)
        if several.held or several.added or loop.space.width(loop.order[-1]) < _SHORTEST:
            return False
        return len(loop.order) < 2 or not turns(loop)

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """The rows that are read side by side at every place of the loop."""
        loop, rows = self.loop, self.loop.values.rows
        if not self._plain:
            return ()
        read = (n for n in loop.cone() if not loop.loaded(n) and (rows[n].op, rows[n].dtype) == ("load", "float16"))
        beside = (n for n in read if rows[n].name[1].stride(loop.order[-1]) == 1 and not any(pointed(rows[n].name[1])))
        return tuple(n for n in beside if loop.e.holds(rows[n].guards) == "1")

    @cached_property
    def results(self) -> tuple[int, ...]:
        """The results that are written side by side; where they go past the cache all do."""
        loop = self.loop
        if not self._plain:
            return ()
        every = loop.stage.results
        found = [(i, *loop.values.results[i]) for i in every]
        some = tuple(
            i for i, n, at in found if loop.values.rows[n].dtype == "float16" and at.stride(loop.order[-1]) == 1
        )
        return some if len(some) == len(every) or not loop.e.streams else ()

    @property
    def several(self) -> bool:
        """Whether the loop is written once for several pieces."""
        return bool(self.loads or self.results) and self.loop.space.width(self.loop.order[-1]) > _PIECE

    def place(self) -> str:
        """Where a converted element lies in its piece."""
        v = var(self.loop.order[-1])
        return f"{v} - {v}_piece"

    def text(self, low: str, high: str, loop: Callable[[str, str, int], list[str]], most: int) -> list[str]:
        """The loop from one place to another. `loop`: its text between two places of at most so many."""
        v, piece = var(self.loop.order[-1]), _PIECE * self.loop.chains if self.loop.blocked else _PIECE
        return [
            f"for (int64_t {v}_piece = {low}; {v}_piece < {high}; {v}_piece += {piece}) {{",
            f"  const int64_t {v}_end = {v}_piece + {piece} < {high} ? {v}_piece + {piece} : {high};",
            *("  " + x for x in self._before(v, piece)),
            *("  " + x for x in loop(f"{v}_piece", f"{v}_end", min(most, piece))),
            *("  " + x for x in self._after(v, piece)),
            "}",
        ]

    def _before(self, v: str, piece: int) -> Iterator[str]:
        rows = self.loop.values.rows
        yield from (f"WX_ALIGNED float w{n}[{piece}];" for n in self.loads)
        yield from (f"WX_ALIGNED float whole{nth(i)}[{piece}];" for i in self.results)
        yield "{"
        yield f"  const int64_t {v} = {v}_piece;"
        for n in self.loads:
            source, at = rows[n].name
            yield f"  wx_widened_row_f16(x{source} + {self.loop.e.index(at)}, w{n}, {v}_end - {v});"
        yield "}"

    def _after(self, v: str, piece: int) -> Iterator[str]:
        if not self.results:
            return
        yield "{"
        yield f"  const int64_t {v} = {v}_piece;"
        for i in self.results:
            to, many = f"out{nth(i)} + {self.loop.e.index(self.loop.values.results[i][1])}", f"{v}_end - {v}"
            if self.loop.e.streams:
                yield f"  WX_ALIGNED {CTYPES['float16']} piece{nth(i)}[{piece}];"
                yield f"  wx_narrowed_row_f16(whole{nth(i)}, piece{nth(i)}, {many});"
                yield f"  wx_stream({to}, piece{nth(i)}, 2 * ({many}));"
            else:
                yield f"  wx_narrowed_row_f16(whole{nth(i)}, {to}, {many});"
        yield "}"
