"""The first or last few places of rows in rising order: what is not among them is not sorted."""

from __future__ import annotations

from typing import ClassVar

from waxeq.backend.call import Call
from waxeq.backend.kernel import Features
from waxeq.ir.term import Term
from waxeq_cfamily.scalars import CTYPES
from waxeq_native.partial_text import Partial, beside, lying, merged
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_MOST = 64
"""Places that are looked for: each one that is new goes past all of them."""
_PIECES, _LONG = 2, 1 << 14
"""Pieces for each thread, and the elements of a row from which it is cut in pieces."""
_SIZE = 1 << 32
"""Positions are numbers of 32 bits, the last of which is none."""
_VECTOR, _INSERTED = 64, 64.0
"""Bytes that are compared in one operation, and operations that each of the best takes."""


class PartialSort(NativeKernel):
    """Some elements of rows in rising order, all near one end."""

    name = "partial_sort"
    pattern = "(Slice k n start step (Sort k x))"
    taken: ClassVar[tuple[str, ...]] = ("Slice", "Sort", "In")
    """The heads of the pattern: how places are taken, of which order, and of what."""

    def work(self, call: Call) -> Work | None:
        if heads(call.meaning) != self.taken or call.operands[0].dtype not in CTYPES:
            return None
        if call.out.elements == 0:
            return Work(tuple)
        p = Partial.of(call)
        if p.sort.size >= _SIZE or not p.inside or p.kept > _MOST:
            return None
        if p.columns is not None:
            return Work(lambda: (Part(beside(p), p.rows, 1),))
        pieces = _pieces(p, call.threads)
        if pieces == 1:
            grain = max(1, min(p.rows, round(GRAIN / _operations(p))))
            return Work(lambda: (Part(lying(p, 1), p.rows, grain),))
        return Work(lambda: _phases(p, pieces), p.rows * pieces * p.room)

    def features(self, call: Call) -> Features:
        p = Partial.of(call)
        moved = float(call.bytes_read + call.out.bytes)
        return {
            "launches": 1.0 + (_pieces(p, call.threads) > 1),
            "bytes" if abs(p.sort.step) == 1 or p.columns else "strided_bytes": moved,
            "operations": p.sort.rows * (1 if p.columns is None else p.columns[0]) * _operations(p),
            "rows": float(p.rows),
        }


class PartialArgsort(PartialSort):
    """Their positions; equal elements keep their order."""

    name = "partial_argsort"
    pattern = "(Slice k n start step (Argsort k x))"
    taken = ("Slice", "Argsort", "In")


class NegatedSort(PartialSort):
    """The same of negatives, which are not made: the way that falling order is written."""

    name = "partial_sort_negated"
    pattern = '(Slice k n start step (Sort k (Map "neg" x)))'
    taken = ("Slice", "Sort", "neg")


class NegatedArgsort(PartialSort):
    """Positions of the largest elements, the largest one first."""

    name = "partial_argsort_negated"
    pattern = '(Slice k n start step (Argsort k (Map "neg" x)))'
    taken = ("Slice", "Argsort", "neg")


class OrderStatistic(PartialSort):
    """One element of rows in rising order, near an end."""

    name = "order_statistic"
    pattern = "(Gather k (Num place dtype) (Sort k x))"
    taken = ("Gather", "Sort", "In")


class ArgOrderStatistic(PartialSort):
    """Its position."""

    name = "arg_order_statistic"
    pattern = "(Gather k (Num place dtype) (Argsort k x))"
    taken = ("Gather", "Argsort", "In")


def heads(t: Term) -> tuple[str, ...] | None:
    """Of what is taken along the axis that is sorted: how it is taken, what it is taken of, and of what that is."""
    inner = t.terms[-1] if t.terms else None
    if inner is None or inner.head not in ("Sort", "Argsort") or t.args[0] != inner.args[0]:
        return None
    if t.head == "Gather" and t.terms[0].head != "Num":
        return None
    (x,) = inner.terms
    below = x.terms[0].head if x.terms else ""
    return t.head, inner.head, x.args[0] if x.head == "Map" and below == "In" else x.head


def _pieces(p: Partial, threads: int) -> int:
    """Pieces that each row is cut in: one where there are rows enough for all threads, or none is long."""
    alone = p.columns is None and threads > 1 and p.sort.rows < threads
    return max(1, min(_PIECES * threads, p.sort.size // _LONG)) if alone else 1


def _operations(p: Partial) -> float:
    """Of a row: of vectors that are compared, and of those that are new among the best in a random order."""
    return 1.0 + p.sort.size * p.sort.bits / 8 / _VECTOR + _INSERTED * p.insertions


def _phases(p: Partial, pieces: int) -> tuple[Part, ...]:
    return Part(lying(p, pieces), p.rows * pieces, 1), Part(merged(p, pieces), p.rows, p.rows)


KERNELS = (PartialSort, PartialArgsort, NegatedSort, NegatedArgsort, OrderStatistic, ArgOrderStatistic)
