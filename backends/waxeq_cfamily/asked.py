"""C text that asks for what will be read soon, where no machine expects it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import var
from waxeq_cfamily.values import Index, Row, Values, pointed

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop
    from waxeq_cfamily.stages import Stage

_CACHED = 12 << 20
"""Bytes up to which what is read may lie in a cache."""

_SECOND = 2 << 20
"""Bytes up to which it may lie in the second one."""

_SECOND_CACHE = ", 0, 2"
"""What says that something is to come there, and not into the first one: to be read, soon but not at once."""

ROWS_ASKED = 64
"""Elements of each of several rows that are asked for in one go."""

_NEAR = 1 << 13
"""Bytes of a row of the next point that is asked for while the one before is computed: both fit the first cache."""

_AHEAD, _SEVERAL = 1024, 512
"""How many elements before they are read those of one long walk are asked for; and where several results are made,
which need more arrays: the first cache holds so many of each."""

_LINES_AHEAD = {1: 2048, 2: 2048, 3: 128}
"""The same by how many arrays there are, where results go past the cache line by line: far, as memory answers later
while it is written to (of 64 MB on a Zen 4 exp takes 0.89 of the time with 512, GELU 0.95)."""

_FOLLOWED = 2
"""Of up to how many arrays a long walk that folds nothing asks for pieces of what comes: a core follows more of them by
itself, and what is asked for as well is in their way. Without, five arrays of options are priced in 0.93 of the time,
and long formulas of four and three arrays take 0.84 and 0.89 (Zen 4)."""

LINE = 64
"""Bytes that memory gives at a time."""


def _bytes_read(values: Values, load: Row) -> int:
    """Bytes of all that a load reads: windows that slide over an array read no more than it has."""
    where = load.name[1]
    read = math.prod(values.sizes[k] for k in load.axes)
    steps = [where.stride(k) for k in load.axes]
    if None not in steps and not any(pointed(where)):
        read = min(read, 1 + sum(abs(s or 0) * (values.sizes[k] - 1) for k, s in zip(load.axes, steps, strict=True)))
    return read * numpy_dtype(load.dtype).itemsize


def next_rows(loop: Loop) -> Iterator[str]:
    """Rows of the next point, while the stages go through those of this one again: before each later stage a part of
    them, as a core waits for so many lines only."""
    space = loop.space
    later = [s for s in space.stages if s.level and s.order]
    v, point = space.vector, space.outer[-1] if space.outer else None
    if loop.stage not in later or loop.e.ahead is None or v is None or point is None:
        return
    if space.inner != (v,) or space.tiles.keys() & {v, point}:
        return
    width, i = space.width(v), later.index(loop.stage)
    low, high = (width * j // len(later) for j in (i, i + 1))
    for r in loop.values.rows:
        if not _walked(r, v):
            continue
        size, step = numpy_dtype(r.dtype).itemsize, r.name[1].stride(point)
        if step and LINE < width * size <= _NEAR:
            yield from _asked(loop, r, step, str(low), str(high))


def next_piece(loop: Loop, low: str = "", high: str = "") -> Iterator[str]:
    """What lies in memory: in the first stage that computes on what an earlier one brought into cache the same piece of
    the next point, in the only one a piece further on. `low`, `high`: the places of a piece that are not the usual."""
    space = loop.space
    loops = [s for s in space.stages if s.order and _reads(loop, s)]
    later = next((s for s in loops if s.level), None)
    if not loops or loop.stage is not (later or loops[0]) or loop.e.ahead is None:
        return
    v, point = loop.order[-1], space.outer[-1] if space.outer else None
    ahead = _SEVERAL if loop.values.others and not loop.values.folded else _AHEAD
    read = [*read_in_turn(loop, v, _CACHED)]
    if later is None and len(read) > _FOLLOWED and not loop.values.folded:
        return
    for r in read:
        step = ahead if later is None else r.name[1].stride(point) if point and point not in space.tiles else 0
        if step and space.width(v) >= _AHEAD // 2:
            places = low or f"{var(v)}_at", high or f"{var(v)}_to"
            yield from _asked(loop, r, step, *places, _SECOND_CACHE if later is not None else "")


def next_lines(loop: Loop, low: str, high: str) -> Iterator[str]:
    """What lies in memory of lines between two places: of the next point, as `next_piece` has it, or some lines further
    on. What reads many arrays asks for none: a core follows those by itself, and lines that come early take each
    other's place in the first cache, as arrays that begin at the same place of a page do (four of them: 1.35 of the
    time, Zen 4)."""
    v, space = loop.order[-1], loop.space
    if any(s.level for s in space.stages):
        yield from next_piece(loop, low, high)
        return
    if loop.e.ahead is None or space.width(v) < _AHEAD // 2:
        return
    read = [*read_in_turn(loop, v, _CACHED)]
    for r in read:
        if len(read) in _LINES_AHEAD:
            yield from _asked(loop, r, _LINES_AHEAD[len(read)], low, high)


def rows_ahead(loop: Loop, many: int) -> list[tuple[Row, int]]:
    """Loads that a loop goes through so many rows at a time of, and how far on the same place of the next ones is: a
    core follows each row to the end of its page only, and rows that lie apart by a power of two take each other's place
    in the first cache. Rows of 32 KiB are read at 29 GB/s in place of 23 (Zen 4)."""
    rows, v = loop.order[-2:]
    if loop.e.ahead is None:
        return []
    steps = [(r, r.name[1].stride(rows)) for r in read_in_turn(loop, v, _SECOND)]
    return [(r, step * many) for r, step in steps if step]


def ask_row(loop: Loop, found: Sequence[tuple[Row, int]]) -> Iterator[str]:
    """Each line of a piece of a row of loads, so many elements from where they are, into the second cache: the first
    holds the rows at hand, and what they are added to."""
    at = f"{var(loop.order[-1])}_at"
    for load, step in found:
        yield from _asked(loop, load, step, at, f"{at} + {ROWS_ASKED}", _SECOND_CACHE)


def in_whole(
    v: str, many: int, low: str, high: str, soon: Sequence[str], loop: Callable[[str, str], list[str]], lined: int = 0
) -> list[str]:
    """A loop from one place to another in pieces of one length, which a compiler makes no ends of vectors for, and what
    is left; before each piece something is asked for. `loop`: its text between two places. `lined`: pieces begin at
    multiples of so many places, after as many that are in part done again."""
    at = f"{v}_at"
    first = (
        (
            f"if ({at} % {lined} && {at} + {lined} <= {high}) {{",
            *loop(at, f"{at} + {lined}"),
            f"  {at} += {lined} - {at} % {lined};",
            "}",
        )
        if lined
        else ()
    )
    return [
        f"{{ int64_t {at} = {low};",
        *first,
        f"for (; {at} + {many} <= {high}; {at} += {many}) {{",
        *("  " + x for x in (*soon, *loop(at, f"{at} + {many}"))),
        "}",
        *loop(at, high),
        "}",
    ]


def in_vectors(v: str, many: int, low: str, high: str, loop: Callable[[str, str], list[str]]) -> list[str]:
    """A loop from one place to another in vectors of so many places, a power of two. They begin at multiples of these,
    but for the first and the last one, which are in part done again. `loop`: its text between two places, which only
    writes. Of rows of 94 elements the ends of vectors, and those across two lines, took a third of a step's time."""
    at = f"{v}_at"
    return [
        f"{{ int64_t {at} = {low};",
        f"if ({at} + {many} <= {high}) for (;;) {{",
        *("  " + x for x in loop(at, f"{at} + {many}")),
        f"  if ({at} + {many} == {high}) break;",
        f"  {at} = ({at} & -{many}) + {many};",
        f"  {at} = {at} + {many} <= {high} ? {at} : {high} - {many};",
        "} else {",
        *("  " + x for x in loop(at, high)),
        "}",
        "}",
    ]


def read_in_turn(loop: Loop, axis: str, most: int) -> Iterator[Row]:
    """What a stage itself reads from one place after the other along an axis, of more bytes than a cache has."""
    for n in loop.cone():
        r = loop.values.rows[n]
        if _walked(r, axis) and not loop.loaded(n) and _bytes_read(loop.values, r) > most:
            yield r


def _walked(r: Row, axis: str) -> bool:
    """Whether a row is read from one place after the other along an axis: not from positions that are looked up, which
    are not known before they are needed."""
    return r.op == "load" and not r.guards and r.name[1].stride(axis) == 1 and not any(pointed(r.name[1]))


def _reads(loop: Loop, stage: Stage) -> bool:
    """Whether a stage reads an operand, and not only what earlier stages made."""
    made = loop if stage is loop.stage else type(loop)(loop.e, stage)
    return any(loop.values.rows[n].op == "load" and not made.loaded(n) for n in made.cone())


def _asked(loop: Loop, load: Row, step: int, low: str, high: str, into: str = "") -> Iterator[str]:
    """Each line of a load between two places, so many elements from where they are, into the first cache or `into`
    another (two rows of 16 KiB and what becomes of one do not fit it: an RMS norm of such takes 0.82 of the time)."""
    v, line = var(loop.order[-1]), LINE // numpy_dtype(load.dtype).itemsize
    yield f"for (int64_t {v} = {low}; {v} < {high}; {v} += {line})"
    yield f"  {loop.e.ahead}(x{load.name[0]} + {loop.e.index(load.name[1].plus(Index(const=step)))}{into});"


def in_pieces(
    v: str, width: int, low: str, high: str, body: Sequence[str], first: str = "", last: str = ""
) -> list[str]:
    """A loop over pieces of a width, that begin and end at the variables `first` and `last`."""
    first, last = first or f"{v}_at", last or f"{v}_to"
    return [
        f"for (int64_t {first} = {low}; {first} < {high}; {first} += {width}) {{",
        f"  const int64_t {last} = {first} + {width} < {high} ? {first} + {width} : {high};",
        *("  " + x for x in body),
        "}",
    ]
