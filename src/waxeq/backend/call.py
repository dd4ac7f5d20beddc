"""A call: one kernel on strided views, with its meaning. What is timed, chosen, planned and run."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from waxeq.basis.heads import HEADS
from waxeq.basis.typing import types
from waxeq.basis.ways import Side, crossed, repeated
from waxeq.ir.term import Term, dump, postorder
from waxeq.ir.types import numpy_dtype


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a buffer: named axes with sizes and strides (in elements, may be negative), and an offset
    (elements).
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0

    @staticmethod
    def dense(axes: Iterable[str], sizes: Mapping[str, int], dtype: str) -> View:
        """Row-major in the given order of axes."""
        axes = tuple(axes)
        shape = tuple(sizes[k] for k in axes)
        strides, step = [], 1
        for s in reversed(shape):
            strides.append(step)
            step *= s
        return View(axes, shape, tuple(reversed(strides)), dtype)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Elements a buffer must have to hold the view."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return max(1, self.offset + sum(r for r in reach if r > 0) + 1)

    @property
    def bytes(self) -> int:
        return self.elements * numpy_dtype(self.dtype).itemsize

    @property
    def footprint(self) -> int:
        """Bytes of the elements that it shows, each once: windows of an array overlap."""
        span = 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))
        return min(self.elements, span) * numpy_dtype(self.dtype).itemsize

    @property
    def is_dense(self) -> bool:
        """Row-major in some order of its axes, without gaps or overlap."""
        step = 1
        for s, n in sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if s != step:
                return False
            step *= n
        return True

    def stride(self, axis: str) -> int:
        """The stride along an axis; 0 along an axis the view lacks."""
        return self.strides[self.axes.index(axis)] if axis in self.axes else 0

    def ordered(self, order: Iterable[str]) -> View:
        """The same view with its axes listed in `order` (axes it lacks are left out)."""
        at = [self.axes.index(k) for k in order if k in self.axes]
        return replace(
            self,
            axes=tuple(self.axes[i] for i in at),
            shape=tuple(self.shape[i] for i in at),
            strides=tuple(self.strides[i] for i in at),
        )

    def renamed(self, name: Mapping[str, str]) -> View:
        return replace(self, axes=tuple(name[k] for k in self.axes))

    def array(self, buffer: np.ndarray) -> np.ndarray:
        """The view on a flat array of its dtype."""
        if not self.elements:  # nothing is read, and its offset may lie past the end
            return np.empty(self.shape, buffer.dtype)
        size, raw = buffer.itemsize, buffer.view(np.uint8)  # as bytes: bfloat16 has no buffer protocol
        return np.ndarray(self.shape, buffer.dtype, raw, self.offset * size, tuple(s * size for s in self.strides))


def aligned(array: np.ndarray, view: View, order: Iterable[str]) -> np.ndarray:
    """`array` (laid out as `view.axes`) with its axes in `order`; size 1 where it lacks one."""
    order = tuple(order)
    moved = array.transpose([view.axes.index(k) for k in order if k in view.axes])
    return moved[(*(slice(None) if k in view.axes else None for k in order), ...)]  # an array even of no axes


Value = TypeVar("Value")


@dataclass(frozen=True)
class Over:
    """A call at all sizes in some ranges: `call`, with an `Extent` wherever a number depends on the sizes. It has more
    operands: constants that depend on the sizes, without axes; then each size as int64, along an axis that `size_axis`
    names. `arrays`: these where the sizes are `sizes`."""

    call: Call
    sizes: Mapping[str, int]
    arrays: tuple[np.ndarray, ...]


def size_axis(name: str) -> str:
    """The axis of the operand that is a size."""
    return f"@{name}"


@dataclass(frozen=True)
class Call:
    """`kernel` computes `meaning` of its operands into `out`.

    In the meaning, operand n is the leaf (In "%n" axes dtype). All axes of the meaning are in `sizes`. `shared` says
    which operands are views of one buffer (operands with equal numbers are); empty when no two are. `fixed`: operands
    that stay the same from run to run (weights): a kernel may prepare them when it is bound. `threads`: how many the
    kernel may use. `over`: what it is one of, where it is a call of a plan for ranges of sizes.
    """

    kernel: str
    meaning: Term
    sizes: Mapping[str, int]
    operands: tuple[View, ...]
    out: View
    shared: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    threads: int = 1
    over: Over | None = field(default=None, compare=False, repr=False)

    @property
    def sized(self) -> Mapping[str, int]:
        """The operands that are sizes, by the names of these; none but for `Over.call`."""
        rows = ((v.axes[0], i) for i, v in enumerate(self.operands) if len(v.axes) == 1)
        return {k[1:]: i for k, i in rows if k == size_axis(k[1:])}

    @property
    def bytes_read(self) -> int:
        """Bytes of the operands, what several read in one buffer counted once."""
        largest: dict[int, int] = {}
        for i, v in enumerate(self.operands):
            n = self.shared[i] if self.shared else i
            largest[n] = max(largest.get(n, 0), v.footprint)
        return sum(largest.values())

    def remember(self, what: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` returned when first asked for `what`: for facts about a call that are worked out once."""
        known = self._facts
        if what not in known:
            known[what] = make()
        return known[what]

    @cached_property
    def _facts(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def canonical(self) -> Call:
        """The same call with axes named by first use, so that equal work has equal text."""
        name: dict[str, str] = {}
        for k in (*self.out.axes, *(k for v in self.operands for k in v.axes), *axes_in(self.meaning)):
            name.setdefault(k, f"i{len(name)}")
        sizes = {name[k]: self.sizes[k] for k in name}
        meaning = _renamed(self.meaning, tuple(name))
        operands = tuple(v.renamed(name) for v in self.operands)
        return replace(self, meaning=meaning, sizes=sizes, operands=operands, out=self.out.renamed(name))

    @cached_property
    def text(self) -> str:
        """The lowered text: meaning, with canonical axes."""
        return _dump(self.canonical.meaning)

    @cached_property
    def dims(self) -> str:
        return ",".join(f"{k}={n}" for k, n in self.canonical.sizes.items())

    @cached_property
    def layout(self) -> str:
        """Strides of the result and of every operand, which operands lie in one buffer, and which stay the same."""
        c = self.canonical
        views = ";".join(
            f"{v.dtype}:" + ",".join(f"{k}*{s}" for k, s in zip(v.axes, v.strides, strict=True))
            for v in (c.out, *c.operands)
        )
        notes = [f"{n} {','.join(map(str, rows))}" for n, rows in (("shared", c.shared), ("fixed", c.fixed)) if rows]
        return ";".join([views, *notes])


_dump = lru_cache(maxsize=8192)(dump)


@lru_cache(maxsize=8192)
def _renamed(meaning: Term, axes: tuple[str, ...]) -> Term:
    """With axes named by their place: several kernels are asked about one meaning in one order."""
    return rename_axes(meaning, {k: f"i{n}" for n, k in enumerate(axes)})


@lru_cache(maxsize=8192)
def axes_in(meaning: Term) -> tuple[str, ...]:
    """Every axis that a term names, in order of first use."""
    found: dict[str, None] = {}
    for t in postorder(meaning):
        for a, sort in zip(t.args, HEADS[t.head].sorts, strict=True):
            if sort in ("Axis", "NewAxis"):
                found[a] = None
            elif sort == "Axes":
                found.update(dict.fromkeys(sorted(a)))
    return tuple(found)


@lru_cache(maxsize=8192)
def multiplies(meaning: Term) -> bool:
    """Whether a term has a product of matrices."""
    kinds = types(meaning)

    def side(t: Term) -> Side:
        return kinds[t].axes, repeated(t.head, t.args, kinds[t.terms[0]].axes if t.terms else ())

    for t in postorder(meaning):
        x = t.terms[0] if t.head == "Sum" else t
        if t.head == "Sum" and x.head == "Mul" and crossed(*map(side, x.terms)):
            return True
    return False


def rename_axes(term: Term, name: Mapping[str, str]) -> Term:
    """The term with every axis renamed."""
    done: dict[Term, Term] = {}
    for t in postorder(term):
        args = []
        for a, sort in zip(t.args, HEADS[t.head].sorts, strict=True):
            if sort == "T":
                args.append(done[a])
            elif sort == "Axes":
                args.append(frozenset(name[k] for k in a))
            else:
                args.append(name[a] if sort in ("Axis", "NewAxis") else a)
        done[t] = Term(t.head, *args)
    return done[term]


def sharing(buffers: Sequence[Hashable]) -> tuple[int, ...]:
    """What `Call.shared` is for operands in these buffers."""
    place: dict[Hashable, int] = {}
    numbers = tuple(place.setdefault(b, len(place)) for b in buffers)
    return numbers if len(place) < len(numbers) else ()


def operand(n: int, axes: Iterable[str], dtype: str) -> Term:
    """The leaf that stands for operand n in a meaning."""
    return Term("In", f"%{n}", frozenset(axes), dtype)


def operand_index(leaf: Term) -> int:
    """Which operand a leaf made by `operand` stands for."""
    return int(leaf.args[0][1:])
