"""Kernels of calls whose sizes are known only when they are bound: one text for all, compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.extent import Sizes, Unknown, at
from waxeq.backend.kernel import Instruction
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.resolved import resolve
from waxeq_cfamily.sized import SizedEmitter, at_most, require_elements
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native import loops
from waxeq_native.work import NativeKernel, Pack, Work


class Sized(NativeKernel):
    """Takes `Call.over`: the text is that of all its sizes, and what is bound has these sizes among its arguments. A
    call that is the same at all sizes is what the kernel itself takes."""

    def of(self, call: Call) -> Work | None:
        over = call.over
        if over is None:
            return super().of(call)
        everywhere = over.call.remember((self.name, "sized"), lambda: self._everywhere(over.call))
        if everywhere is None:
            return None
        return call.remember((self.name, "work"), lambda: _bound(everywhere, over.sizes))

    def _everywhere(self, call: Call) -> Work | None:
        """The work of a call at all sizes: its numbers are functions of them."""
        try:
            require_elements(self.values(call))
            found = self.work(call)
            if found is None:
                return None
            packs = tuple(map(_Panels.of, found.packs))
            return replace(found, write=lambda parts=found.parts: parts, walk=None, packs=packs)
        except (Unsupported, Unknown):
            return None

    def values(self, call: Call) -> Values:
        if call.over is not None:
            call = call.over.call
        c = call.canonical
        return call.remember("values", lambda: resolve(c.meaning, c.operands, c.out, c.sizes))

    def in_place(self, call: Call) -> tuple[int, ...]:
        found = super().in_place(call if call.over is None else call.over.call)
        return tuple(n for n in found if n < len(call.operands))  # what depends on sizes comes after those

    def features(self, call: Call) -> Mapping[str, float]:
        """Those of the call alone. A kernel that does not take it alone, as an axis of one element is no axis to
        multiply or to run along, moves memory."""
        alone = replace(call, over=None)
        if not self.accepts(alone):
            return {"launches": 1.0, "bytes": float(call.bytes_read + call.out.bytes)}
        return super().features(alone)

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        more = () if call.over is None else call.over.arrays
        return super().bind(call, (*operands, *more), out, workspace)


def _bound(work: Work, sizes: Sizes) -> Work:
    """The work at some sizes: the same text, as many tasks and as much scratch memory as there are at these."""
    parts = tuple(replace(p, tasks=at(p.tasks, sizes)) for p in work.parts)
    return replace(work, write=lambda: parts, workspace=at(work.workspace, sizes))


@dataclass(frozen=True)
class _Panels(Pack):
    """Panels that serve calls of all sizes: by where an operand lies, those that were made of it, and itself, so that
    no other can come to lie there."""

    have: dict[tuple[int, tuple[int, ...]], tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @staticmethod
    def of(pack: Pack) -> _Panels:
        return _Panels(**{f.name: getattr(pack, f.name) for f in fields(Pack)})

    def made(self, operand: np.ndarray) -> np.ndarray:
        place = operand.ctypes.data, operand.strides
        if place not in self.have:
            self.have[place] = operand, super().made(operand)
        return self.have[place][1]


class Walks(Sized, loops.Loops):
    """What all kernels of loops have in common."""

    def looped(self, call: Call) -> Values:
        return self.values(call)  # what is decided when axes are written out is another thing at other sizes

    def emitter(self, call: Call, s: Space, operands: Sequence[str], place: str, dtypes: Sequence[str],
                aliased: frozenset[int]) -> Emitter:  # fmt: skip
        usual = super().emitter(call, s, operands, place, dtypes, aliased)
        if not call.sized:
            return usual
        given = {f.name: getattr(usual, f.name) for f in fields(usual)}
        return SizedEmitter(**given, sizes=call.sized)

    def grain(self, e: Emitter, threads: int) -> int:
        """Never a thread's share of the largest size: that may be all there is at a small one."""
        return super().grain(replace(e, space=at_most(e.space)), max(threads, e.space.points()))


class SizedLoops(Walks):
    """Loops over any sizes."""


class SizedFastLoops(Walks, loops.FastLoops):
    """The same with functions of our own."""


class SizedNarrowLoops(Walks, loops.NarrowLoops):
    """Loops in smaller pieces over any sizes."""


class SizedNarrowFastLoops(Walks, loops.NarrowFastLoops):
    """The same with functions of our own."""


class SizedStreaming(Walks, loops.Streaming):
    """Loops over any sizes whose results are written past the cache."""


class SizedFastStreaming(Walks, loops.FastStreaming):
    """The same with functions of our own."""


KERNELS = (SizedLoops, SizedFastLoops, SizedNarrowLoops, SizedNarrowFastLoops, SizedStreaming, SizedFastStreaming)
"""By name those that take the calls of the kernel of that name."""
