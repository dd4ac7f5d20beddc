"""Elements anywhere in the rising order of rows, such as medians: what is not near them is passed over."""

from __future__ import annotations

from typing import ClassVar

from waxeq.backend.call import Call
from waxeq.backend.kernel import Features
from waxeq_cfamily.scalars import CTYPES
from waxeq_native.partial import heads
from waxeq_native.select_text import Selected, alone, bounded, gathered, joined
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_MOST = 1 << 32
"""Elements of a row, which samples number in 32 bits."""
_STACK = 1 << 18
"""Bytes of keys that may lie on a thread's stack."""
_PIECES, _LONG = 2, 1 << 15
"""Pieces for each thread, and the elements of a row from which it is cut in pieces."""
_VECTOR, _ROUNDS = 64, 200.0
"""Bytes that are compared in one operation, and operations of the rounds in which little is left of a row."""


class SelectedPair(NativeKernel):
    """One or two elements of each row in rising order, neighbours in it."""

    name = "selected_pair"
    pattern = "(Slice k n start step (Sort k x))"
    taken: ClassVar[tuple[str, ...]] = ("Slice", "Sort", "In")

    def work(self, call: Call) -> Work | None:
        if heads(call.meaning) != self.taken or call.operands[0].dtype not in CTYPES:
            return None
        if call.out.elements == 0:
            return Work(tuple)
        s = Selected.of(call)
        if s.sort.size >= _MOST or not s.inside or s.many > 2 or abs(s.by) > 1:
            return None
        rows, pieces = s.sort.rows, _pieces(s, call.threads)
        if pieces > 1:
            return Work(lambda: _phases(s, pieces), rows * s.room_of(pieces))
        kept = 0 if s.room <= _STACK else s.room
        grain = max(1, min(rows, round(GRAIN / _operations(s))))
        return Work(lambda: (Part(alone(s, kept), rows, grain),), kept * call.threads)

    def features(self, call: Call) -> Features:
        s = Selected.of(call)
        moved = float(call.bytes_read + call.out.bytes)
        return {
            "launches": 3.0 if _pieces(s, call.threads) > 1 else 1.0,
            "bytes" if abs(s.sort.step) == 1 else "strided_bytes": moved,
            "operations": float(s.sort.rows * _operations(s)),
            "rows": float(s.sort.rows),
        }


class SelectedElement(SelectedPair):
    """One element of each row in rising order."""

    name = "selected"
    pattern = "(Gather k (Num place dtype) (Sort k x))"
    taken = ("Gather", "Sort", "In")


def _pieces(s: Selected, threads: int) -> int:
    """Pieces that each row is cut in: one where there are rows enough for all threads, or none is long."""
    return _PIECES * threads if threads > 1 and s.sort.rows < threads and s.sort.size >= _LONG else 1


def _operations(s: Selected) -> float:
    """Of a row: of the vectors that are compared, and of those that are left."""
    return _ROUNDS + s.sort.size * s.sort.bits / 8 / _VECTOR


def _phases(s: Selected, pieces: int) -> tuple[Part, ...]:
    rows = s.sort.rows
    return (
        Part(bounded(s, pieces), rows, rows),
        Part(gathered(s, pieces), rows * pieces, 1),
        Part(joined(s, pieces), rows, rows),
    )


KERNELS = (SelectedPair, SelectedElement)
