"""C text of loops that read each other at places around their own, all of them in one walk over rows (`walks`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from waxeq.backend.call import View
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.past import Past
from waxeq_cfamily.scalars import CTYPES, nth, var, widened
from waxeq_cfamily.stages import Stage
from waxeq_cfamily.sweeps import place
from waxeq_cfamily.values import Index
from waxeq_cfamily.walks import LANES, PAGE, Walk, origin


@dataclass(frozen=True)
class Sought:
    """Rows of an array that are asked for a step of the walk before they are needed: the addresses of their elements
    number `left` are the `texts`, their elements take `size` bytes."""

    texts: tuple[str, ...]
    size: int
    write: bool = False

    def lines(self, many: int) -> Iterator[str]:
        """Asks for the next so many elements of each."""
        for at in range(max(1, -(-many * self.size // LINE))):
            for text in self.texts:
                yield f"__builtin_prefetch({text} + next + {at * LINE // self.size}{', 1' * self.write});"


def sought(
    walk: Walk, operands: Sequence[View], shared: Sequence[Hashable], results: Sequence[str]
) -> tuple[Sought, ...]:
    """What is asked for: of each array the rows that any sweep reads first, and the rows of each result. `operands` are
    the meaning's own, those of one buffer have equal names in `shared`; `results`: the texts of their addresses."""
    if walk.rows is None:
        return ()
    found: dict[Hashable, tuple[int, Sought]] = {}
    for n, s in enumerate(walk.sweeps):
        for r in s.values.rows:
            if r.op != "load" or r.name[0] >= len(operands):
                continue
            k, where = r.name
            step, texts = where.stride(s.axes[walk.rows]), walk.addresses(n, where, f"x{k}")
            if not texts or not step or step < 0:
                continue
            place = operands[k].offset + where.const + step * walk.along(n)[1]
            group = shared[k] if shared else k
            if group not in found or found[group][0] < place:
                found[group] = place, Sought(texts, numpy_dtype(r.dtype).itemsize)
    written = []
    ends = ((n, row) for n in range(walk.first, len(walk.sweeps)) for row in walk.sweeps[n].values.results)
    for (n, (row, where)), result in zip(ends, results, strict=True):
        dtype = walk.sweeps[n].values.rows[row].dtype
        if texts := walk.addresses(n, where, f"({CTYPES[dtype]} *){result}"):
            written.append(Sought(texts, numpy_dtype(dtype).itemsize, True))
    return (*(row for _, row in found.values()), *written)


@dataclass(frozen=True)
class Row(Emitter):
    """Text of one row of group `turn` of a walk's sweeps; operands from number `own` on are earlier sweeps. What is
    `sought` is asked for bit by bit, as a core waits for so many lines only: a part in each group, by its whole pieces;
    the last of a part, and rows shorter than a piece, come when they are read. `past`: the results go past the cache,
    but for lines at the ends of rows; `ends`: what these are near in the next step, which is asked for."""

    walk: Walk | None = None
    turn: int = 0
    own: int = 0
    sought: tuple[Sought, ...] = ()
    past: bool = False
    ends: tuple[str, ...] = ()
    converts: ClassVar[bool] = False
    ahead: ClassVar[str | None] = None
    lined: ClassVar[int] = LANES
    grouped: ClassVar[bool] = False

    def text(self) -> list[str]:
        """What is done for one step of the walk."""
        ends = [f"__builtin_prefetch({x}{end}, 1);" for x in self.ends for end in ("", " + (right - left - 1)")]
        return [*ends, *self._hidden(), *self.point()]

    def loop(self, stage: Stage) -> Loop:
        loop = super().loop(stage)
        return Past(self, stage) if self.past and type(loop) is Loop else loop

    def pointers(self) -> Iterator[str]:
        """The addresses of all operands, and of the result."""
        return self._pointers()

    @cached_property
    def _walk(self) -> Walk:
        assert self.walk is not None
        return self.walk

    @property
    def group(self) -> tuple[int, ...]:
        """The sweeps that the row is of, by number."""
        return self._walk.groups[self.turn]

    @property
    def number(self) -> int:
        return self.group[0]

    def step(self) -> list[str]:
        """The rows of a step of the walk that the sweep has and the tile needs, one after another."""
        w, n, inside = self._walk, self.number, ["  " + x for x in self.text()]
        if w.rows is None:
            return ["{", *inside, "}"]
        row, v = f"now + {w.along(n)[1]}", var(w.sweeps[n].axes[w.rows])
        if w.step == 1:
            own = f"  const int64_t {v} = {row};"
            return [f"if ({row} >= first{n} && {row} < last{n}) {{", own, *inside, "}"]
        low, high = f"{row} > first{n} ? {row} : first{n}", f"now + {w.along(n)[1] + w.step}"
        return [f"for (int64_t {v} = {low}; {v} < {high} && {v} < last{n}; {v}++) {{", *inside, "}"]

    def place(self) -> Iterator[str]:
        """The place of the row along the other axes: sweeps that others read are ahead of those."""
        w, n = self._walk, self.number
        for i in w.points:
            yield f"const int64_t {var(w.sweeps[n].axes[i])} = at{i};"
        v, size, (low, high) = var(w.sweeps[n].axes[-1]), w.sweeps[n].sizes()[-1], w.beside(n)
        yield f"const int64_t {v}_lo = left + {low} > 0 ? left + {low} : 0;"
        yield f"const int64_t {v}_hi = right + {high} < {size} ? right + {high} : {size};"
        if n < len(w.sweeps) - 1:
            yield from self.places()

    def places(self) -> Iterator[str]:
        """The addresses of what the row makes."""
        w, n = self._walk, self.number
        kept = w.one(self.group)[1] if n < w.first else ()
        places = [f"ring{m}{self.slot(m, 0)}" for m in kept] or [name for _, name, _ in self.named()]
        for i, text in enumerate(places):
            t = CTYPES[self.values.rows[self.values.results[i][0]].dtype]
            yield f"{t} *restrict out{nth(i)} = {text};"

    def named(self) -> Iterator[tuple[str, str, str]]:
        """Of each result of the row its type, its name in the function, and the text of its address."""
        for i, ((n, _), text) in enumerate(zip(self.values.results, (self.result, *self.others), strict=True)):
            yield CTYPES[self.values.rows[n].dtype], f"result{self.number}{nth(i)}", text

    def soon(self, v: str, many: int) -> Iterator[str]:
        w, parts = self._walk, len(self._walk.groups)
        if not self.sought:
            return
        yield f"const int64_t next = {self.turn * w.width // parts} + ({v}_at - left) / {parts};"
        for row in self.sought:
            yield from row.lines(many // parts)

    def slot(self, n: int, beside: int) -> str:
        """Where a row of sweep n lies, so many rows on from that of this one."""
        w = self._walk
        if w.rows is None:
            return ""
        row = f"({var(w.sweeps[self.number].axes[w.rows])} + {beside})"
        return f" + ({row} & {w.kept(n) - 1}) * {w.row(n)}"

    def _expression(self, n: int) -> str:
        r = self.values.rows[n]
        if r.op != "load" or r.name[0] < self.own:
            return super()._expression(n)
        element = widened(self._element(r.name[0] - self.own, r.name[1]), r.dtype)
        holds = self.holds(r.guards)
        return {"1": element, "0": "0"}.get(holds, f"({holds} ? {element} : 0)")

    def _element(self, m: int, where: Index) -> str:
        """An element that sweep m has made."""
        w, axes = self._walk, self._walk.sweeps[m].axes
        found, step = place(where, sorted(axes)), 1
        assert found is not None, "what is read otherwise is no sweep"
        inside = Index.of(origin(m)).scaled(-1)
        for k, span in reversed([*w.spans(m).items()]):
            along, beside = found[k]
            inside = inside.plus(Index(((along, step),), beside * step))
            step *= span
        slot = self.slot(m, 0 if w.rows is None else found[axes[w.rows]][1])
        return f"ring{m}[{self.index(inside)}{slot}]"


def function(rows: Sequence[Row], name: str) -> str:
    """The whole function: a task is a tile of the results."""
    last = rows[-1]
    w = last._walk
    lines = [f"void {name}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{", "  (void)thread;"]
    lines += last.pointers()
    for r in rows[-w.results : -1]:
        lines += [f"  {t} * restrict {name} = ({t} *)({text});" for t, name, text in r.named()]
    lines.append("  for (int64_t t = begin; t < end; t++) {")
    lines += ["    " + x for x in (*tile(w), *_rings(w, rows[-w.results].result))]
    body, done = [x for r in rows for x in r.step()], ["  wx_streamed();"] * any(r.past for r in rows)
    if w.rows is None:
        return "\n".join([*lines, *("    " + x for x in body), "  }", *done, "}"])
    before = max(high - low for low, high in map(w.along, range(len(w.sweeps))))
    first = -(-before // w.step) * w.step
    lines.append(f"    for (int64_t now = low - {first}; now < high; now += {w.step}) {{")
    return "\n".join([*lines, *("      " + x for x in body), "    }", "  }", *done, "}"])


def tile(w: Walk) -> Iterator[str]:
    """The places of a tile, from its number."""
    (high, wide), sizes, rest = w.tiles(), w.sizes, "t"
    yield f"const int64_t left = {rest} % {wide} * {w.width};"
    yield f"const int64_t right = left + {w.width} < {sizes[-1]} ? left + {w.width} : {sizes[-1]};"
    rest = f"{rest} / {wide}"
    if w.rows is not None:
        yield f"const int64_t low = {rest} % {high} * {w.height};"
        yield f"const int64_t high = low + {w.height} < {sizes[w.rows]} ? low + {w.height} : {sizes[w.rows]};"
        rest = f"{rest} / {high}"
    for i in reversed(w.points):
        yield f"const int64_t at{i} = {rest} % {sizes[i]};"
        rest = f"{rest} / {sizes[i]}"


def _rings(w: Walk, result: str) -> Iterator[str]:
    """The rows that are kept of each sweep, and which of its rows a tile needs. `result`: the text of the address of
    what the walk makes."""
    for n, after in enumerate(w.places()):
        t, line = CTYPES[w.dtype(n)], LINE // numpy_dtype(w.dtype(n)).itemsize
        yield f"WX_ALIGNED {t} room{n}[{w.room(n)}];"
        away = f"(uintptr_t)({result}) + {after} - (uintptr_t)room{n}"
        yield f"{t} *const ring{n} = room{n} + ({away}) % {PAGE} / {LINE} * {line};"
        yield f"const int64_t {origin(n)} = left + {w.begin(n)};"
    for n, s in enumerate(w.sweeps if w.rows is not None else ()):
        assert w.rows is not None
        (low, high), size = w.along(n), s.sizes()[w.rows]
        yield f"const int64_t first{n} = low + {low} > 0 ? low + {low} : 0;"
        yield f"const int64_t last{n} = high + {high} < {size} ? high + {high} : {size};"
