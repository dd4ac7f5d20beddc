"""Walks of several calls as one function of several results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from waxeq_cfamily.joint import folded, joint
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.spaces import Widths, space
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME, Named
from waxeq_cfamily.values import Values
from waxeq_native.abreast import Abreast, Slid, slid
from waxeq_native.apart import Apart

STREAMED = 16 << 20
"""Bytes of a result from which writing past the cache is a choice. A smaller one may still lie in the last cache when
it is read: alone such a kernel is the faster one, with what reads its result it took a quarter longer for 12 MiB where
that cache has 32, and as long for 16."""


@dataclass(frozen=True, eq=False)
class Walk:
    """The first walk of a call, so that it can be written together with others: what writes it alone, its `values` with
    axes as they are before any are merged, the `widths` of its pieces, how many points of what a text goes through are
    worth a chunk, and the `slot` of its result among the arguments; `columns`: by which operand each is told, and how
    many bytes from there it lies. An element-wise call has no other walk, one of folds may have a second one that puts
    `pieces` together: how those are walked."""

    emitter: Emitter
    values: Values
    widths: Widths
    grain: Callable[[Emitter], int]
    slot: int
    columns: tuple[tuple[int, int], ...]
    pieces: Space | None = None

    @cached_property
    def space(self) -> Space:
        """How it is walked alone, but for axes that are merged."""
        return self.pieces or space(self.values, self.widths, merge=False)

    @property
    def dtypes(self) -> Sequence[str]:
        """Of its operands."""
        return self.emitter.dtypes


@dataclass(frozen=True)
class Joined:
    """One function for several walks. Its arguments are the addresses of theirs. `replaces`: the walks whose results
    may lie where one of their operands does."""

    emitter: Emitter
    grain: int
    replaces: frozenset[int]

    @cached_property
    def text(self) -> Named:
        return Named(self.emitter.function(NAME))

    @property
    def tasks(self) -> int:
        return self.emitter.space.points()


def joined(
    walks: tuple[Walk | Slid, ...], operands: tuple[tuple[int, ...], ...], first: int, past: bool
) -> Joined | Abreast | None:
    """The function of some walks, or of some walks of sweeps; `operands` and so on are those of `_looped`. None where
    they are better written apart."""
    loops = tuple(w for w in walks if isinstance(w, Walk))
    slides = tuple(w for w in walks if isinstance(w, Slid))
    if len(loops) == len(walks):
        return _looped(loops, operands, first, past)
    return slid(slides, operands, first) if len(slides) == len(walks) else None


@lru_cache(maxsize=1 << 10)
def _looped(walks: tuple[Walk, ...], operands: tuple[tuple[int, ...], ...], first: int, past: bool) -> Joined | None:
    """The function of some walks; `operands[i]` are the numbers of those of walk i among the operands of all, and
    `first` is the place of a walk's first operand among its arguments. `past`: results are written past the cache, as
    they are where a walk does so alone. None where they are better written apart."""
    alone = [w.emitter for w in walks]
    functions = _agreed([(e, e.functions) for e in alone])
    limits = _agreed([(e, e.limits) for e in alone])
    found = _space(walks, operands)
    if found is None or functions is None or limits is None or len({x.excess for x in alone}) > 1:
        return None
    s, order = found
    places: dict[int, tuple[str, str]] = {}
    for i, numbers in enumerate(operands):
        for n, (m, (told, apart)) in enumerate(zip(numbers, walks[i].columns, strict=True)):
            own = f"((char *const *)args[{i}])[{first + n}]"
            text = own if told == n else f"({places[numbers[told]][0]} + {apart})"
            places.setdefault(m, (text, alone[i].dtypes[n]))
    texts, dtypes = zip(*(places[m] for m in sorted(places)), strict=True)
    results = [f"((char *const *)args[{i}])[{walks[i].slot}]" for i in order]
    streams = past or any(x.streams for x in alone)
    e = Apart(
        s, functions, texts, results[0], dtypes, limits=limits, streams=streams, others=results[1:],
        excess=alone[0].excess,
    )  # fmt: skip
    if e.limited or e.streams or s.values.folded:  # what is read may be read again after the result was written
        return Joined(e, walks[0].grain(e), frozenset())
    aliased = frozenset(numbers[n] for x, numbers in zip(alone, operands, strict=True) for n in x.aliased)
    e = replace(e, aliased=aliased)
    return Joined(e, walks[0].grain(e), frozenset(i for i, x in enumerate(alone) if x.aliased))


def _agreed(rows: Sequence[tuple[Emitter, Mapping[tuple[str, str], Any]]]) -> dict[tuple[str, str], Any] | None:
    """What walks have each for the functions they compute, together; None where two have another for one."""
    found: dict[tuple[str, str], Any] = {}
    for e, table in rows:
        names = {r.name for r in e.values.rows if r.op == "apply"}
        for pair, what in table.items():
            if pair[0] in names and found.setdefault(pair, what) != what:
                return None
    return found


def _space(walks: Sequence[Walk], operands: Sequence[Sequence[int]]) -> tuple[Space, tuple[int, ...]] | None:
    """How all are walked in one loop, and of which each result is."""
    folds = [bool(w.values.folded) for w in walks]
    if all(folds):
        return folded([w.space for w in walks], operands)
    one = None if any(folds) else joint([w.values for w in walks], operands)
    s = None if one is None else space(one.values, walks[0].widths)
    return None if one is None or s is None or not _plain(s) else (s, one.results)


def _plain(s: Space) -> bool:
    """Whether a walk is one loop that keeps nothing in buffers."""
    return len(s.stages) == 1 and not s.buffered and s.across is None


def numbered(rows: Sequence[Sequence[Hashable]]) -> tuple[tuple[int, ...], ...]:
    """Things by number, in the order in which they are met first."""
    found: dict[Hashable, int] = {}
    return tuple(tuple(found.setdefault(x, len(found)) for x in row) for row in rows)
