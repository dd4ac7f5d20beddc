"""What is done with the results of a convolution while a chunk of them is in cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from waxeq_cfamily.functions import libm, own
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.scalars import var
from waxeq_cfamily.spaces import collapsed
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Index, Row, Values
from waxeq_native.loops import limits
from waxeq_native.winograd_block import Block, Convolution


@dataclass(frozen=True)
class Tail(Emitter):
    """The loops over one chunk: its places are those of the convolution. `ends`: of axes that are cut where a chunk
    begins and ends."""

    ends: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def place(self) -> Iterator[str]:
        yield from ()

    def text(self) -> Iterator[str]:
        """A block of its own, with pointers that nothing else is written through meanwhile."""
        yield "{"
        for k in self.space.tiles:
            low, high = self.ends[k]
            yield f"  const int64_t {var(k)}_lo = {low}, {var(k)}_hi = {high};"
        yield from (*self._pointers(), *self._hidden(), *("  " + x for x in self.point()), "}")


def tail(rest: Values, conv: Convolution, b: Block, operands: Sequence[str], dtypes: Sequence[str]) -> Tail | None:
    """The loops of what comes after a convolution, which is its last operand; None where these need more than a chunk
    has, or write neighbours far apart. Raises Unsupported."""
    *_, o, _, h, w, _, _ = conv.axes
    axes = {*conv.batch, o, h, w}
    written = {a for a, _ in rest.out.terms}
    if rest.folded or rest.positions or rest.others or {*rest.sizes} != axes or not {o, h, w} <= written:
        return None
    if rest.out.stride(w) != 1:
        return None
    number, step = len(operands) - 1, b.kept(conv)
    where = Index(tuple(sorted(((o, step), (h, conv.width), (w, 1)))))
    rows = tuple(replace(r, name=(number, where)) if _reads(r, number) else r for r in rest.rows)
    values = collapsed(replace(rest, rows=rows))  # lines of a chunk lie one after another
    ends = {o: ("o_lo", "o_lo + many")}
    low, lines = "2 * line", f"2 * (line + lines) < {conv.height} ? 2 * (line + lines) : {conv.height}"
    if h in values.sizes:
        ends[h] = low, lines
        tiles = {o: b.chunk, h: 2 * b.lines}
    else:
        ends[w] = f"{low} * {conv.width}", f"({lines}) * {conv.width}"
        tiles = {o: b.chunk, w: b.pixels(conv)}
    places = *operands[:-1], f"(char *)(made - (o_lo * {step} + {low} * {conv.width}))"
    s = Space(values, tuple(k for k in values.sizes if k in tiles or k in conv.batch), tiles, (w,))
    found = Tail(
        s, {**libm(), **own()}, places, "args[2]", dtypes, limits=limits(), excess=True, ends=ends,
    )  # fmt: skip
    found.check()
    return found if s.scratch == 0 else None


def _reads(r: Row, operand: int) -> bool:
    return r.op == "load" and r.name[0] == operand
