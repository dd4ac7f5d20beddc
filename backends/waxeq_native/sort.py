"""Sorting along an axis: rows side by side by all threads; few long rows in pieces, digit by digit."""

from __future__ import annotations

from collections.abc import Iterator

from waxeq.backend.call import Call
from waxeq.backend.kernel import Features
from waxeq_cfamily.scalars import CTYPES
from waxeq_native.sort_text import DIGITS, Sorted, compared, counted, placed, room, whole
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_STACK = 1 << 18
"""Bytes of what is moved that may lie on a thread's stack."""
_LONG = 1 << 15
"""Elements of a row from which pieces of it are worth the turns that threads take at each digit."""
_PIECES = 2
"""Pieces for each thread: one that is held up leaves some to the others."""
_MOST = 1 << 32
"""Positions are numbers of 32 bits."""


class Sort(NativeKernel):
    """Elements of each row in rising order."""

    name = "sort"
    pattern = "(Sort k x)"

    def work(self, call: Call) -> Work | None:
        if call.meaning.head != self.pattern[1:].split()[0] or call.operands[0].dtype not in CTYPES:
            return None
        s = Sorted.of(call)
        if s.size >= _MOST:
            return None
        if call.out.elements == 0:
            return Work(tuple)
        pieces = self._pieces(s, call.threads)
        if pieces > 1:
            return Work(lambda: tuple(_phases(s, pieces)), s.rows * room(s, pieces))
        grain = max(1, min(s.rows, round(GRAIN / _operations(s))))
        if s.short:
            return Work(lambda: (Part(compared(s), s.rows, grain),))
        moved = 2 * s.size * s.width
        kept = 0 if moved <= _STACK else -(-moved // 64) * 64
        return Work(lambda: (Part(whole(s, kept), s.rows, grain),), kept * call.threads)

    def _pieces(self, s: Sorted, threads: int) -> int:
        """Pieces that each row is cut in: one where there are rows enough for all threads, or none is long."""
        return _PIECES * threads if threads > 1 and s.rows < threads and s.size >= _LONG else 1

    def features(self, call: Call) -> Features:
        s = Sorted.of(call)
        side = abs(s.step) == 1 and abs(s.out_step) == 1
        pieces = self._pieces(s, call.threads)
        moved = float(call.bytes_read + call.out.bytes)
        return {
            "launches": 1.0 if pieces == 1 else 2.0 * s.digits,
            "bytes" if side else "strided_bytes": moved,
            "operations": float(s.rows * _operations(s)),
            "rows": float(s.rows),
        }


class Argsort(Sort):
    """Positions that sort each row; equal elements keep their order."""

    name = "argsort"
    pattern = "(Argsort k x)"


def _operations(s: Sorted) -> float:
    """Of a row: of vectors where all are compared; else those of each element at each digit, and of the counts."""
    if s.short:
        return 1.0 + s.size * s.size / 4
    return float(s.digits * (8 * s.size + 2 * DIGITS))


def _phases(s: Sorted, pieces: int) -> Iterator[Part]:
    for p in range(s.digits):
        yield Part(counted(s, pieces, p), s.rows * pieces, 1)
        yield Part(placed(s, pieces, p), s.rows * pieces, 1)


KERNELS = (Sort, Argsort)
