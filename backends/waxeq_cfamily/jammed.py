"""C text of several rows of a sweep at once, where all of them are inside: what two of them read is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq_cfamily.scalars import CTYPES, nth, var
from waxeq_cfamily.sections import Sections
from waxeq_cfamily.sliding import Row
from waxeq_cfamily.sweeps import Jammed
from waxeq_cfamily.values import Guard


@dataclass(frozen=True)
class Rows(Row):
    """Text of all rows of a step at once; `one`: that of each of them, for the others. Results of different places are
    told apart by `jammed`."""

    one: Row | None = None
    jammed: Jammed | None = None

    @property
    def _one(self) -> Row:
        assert self.one is not None
        return self.one

    def pointers(self) -> Iterator[str]:
        return self._one.pointers()

    def named(self) -> Iterator[tuple[str, str, str]]:
        return self._one.named()

    @cached_property
    def _needs(self) -> Sequence[Guard]:
        """What holds for all of the rows or for none of their elements."""
        assert self.jammed is not None
        (stage,) = self.space.stages
        return tuple(dict.fromkeys((*self.jammed.inside, *Sections(self.loop(stage)).before)))

    def step(self) -> list[str]:
        w, n = self._walk, self.number
        assert w.rows is not None, "of one row there are not several"
        axes, first = w.sweeps[n].axes, w.along(n)[1]
        v = var(axes[w.rows])
        here = [f"const int64_t {v} = now + {first};", *(f"const int64_t {var(axes[i])} = at{i};" for i in w.points)]
        whole = f"{v} >= first{n} && {v} + {w.step - 1} < last{n}"
        inside = self.holds(self._needs)
        all_hold = replace(self, decided={**self.decided, **dict.fromkeys(self._needs, True)})
        return [
            "{",
            *("  " + x for x in here),
            f"  if ({whole}{'' if inside == '1' else f' && ({inside})'}) {{",
            *("    " + x for x in all_hold.text()),
            "  } else {",
            *("    " + x for x in self._one.step()),
            "  }",
            "}",
        ]

    def places(self) -> Iterator[str]:
        w = self._walk
        if self.number >= w.first:
            yield from self._one.places()
            return
        kept = w.one(self.group)[1]
        for i, (which, row) in enumerate(self._results):
            t = CTYPES[self.values.rows[self.values.results[i][0]].dtype]
            yield f"{t} *restrict out{nth(i)} = ring{kept[which]}{self.slot(kept[which], row)};"

    @property
    def _results(self) -> Sequence[tuple[int, int]]:
        assert self.jammed is not None
        return self.jammed.results

    def written(self, i: int) -> str:
        if self.number < self._walk.first:
            return super().written(i)
        return f"out{nth(self._results[i][0])}[{self.index(self.values.results[i][1])}]"
