"""Arrays between writes to parts of them. What was written is kept as it is, with where it lies, until the array is
used as a whole: what was written at once is read without an op, so that a table that is filled element by element is a
program of its elements, and is put together once."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np

from waxeq.frontend.explicit import Value
from waxeq.ir.graph import GraphBuilder
from waxeq.ir.types import TensorType, is_float
from waxeq.ops.movement import BroadcastTo, Concat, Reshape, Slice
from waxeq.ops.source import Const

_DEEP = 4
"""Patches in patches that are kept apart: a register that is shifted would be one deeper at each step."""

_MANY, _GROUP = 24, 12
"""Pieces that are put together at once, and of more than these how many at a time: about what one loop reads."""

Box = tuple[tuple[int, int], ...]
"""For each axis where it begins and where it ends."""


@dataclass(frozen=True)
class Patch:
    """What was written to a part: `at` is where that begins, `axes` the axes of the array that the content has; along
    the others the part is of size 1."""

    content: Content
    at: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Patchwork:
    """The content of an array, or of a part of one. `edges` cut each axis where patches begin and end; `owner` says for
    each cell between them which patch was put there last. `shown` are the axes it has as an array: the others, of size
    1, were indexed by a number. `patches` only ever grows, and is one for all that came of one array."""

    builder: GraphBuilder
    dtype: str
    patches: list[Patch]
    edges: tuple[tuple[int, ...], ...]
    owner: np.ndarray
    shown: tuple[int, ...]

    @staticmethod
    def of(b: GraphBuilder, v: Value) -> Patchwork:
        dtype, shape = b.type(v).dtype, b.type(v).shape
        axes, start = tuple(range(len(shape))), (0,) * len(shape)
        edges, owner = tuple((0, n) for n in shape), np.zeros((1,) * len(shape), np.int32)
        return Patchwork(b, dtype, [Patch(v, start, axes)], edges, owner, axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of all axes."""
        return tuple(e[-1] - e[0] for e in self.edges)

    @cached_property
    def depth(self) -> int:
        """How deep patches are in patches."""
        inner = (self.patches[i].content for i in set(self.owner.flat))
        return 1 + max(x.depth if isinstance(x, Patchwork) else 0 for x in inner)

    @cached_property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(self.sizes[a] for a in self.shown))

    def _box(self, runs: Sequence[range]) -> Box:
        box = [(e[0], e[-1]) for e in self.edges]
        for a, r in zip(self.shown, runs, strict=True):
            box[a] = (self.edges[a][0] + r.start, self.edges[a][0] + r.stop)
        return tuple(box)

    def _cells(self, box: Box) -> tuple[slice, ...]:
        pairs = zip(self.edges, box, strict=True)
        return tuple(slice(bisect_right(e, lo) - 1, bisect_left(e, hi)) for e, (lo, hi) in pairs)

    def window(self, runs: Sequence[range], kept: Sequence[int]) -> Content:
        """A part, with these of its axes; the others are of size 1."""
        box, shown = self._box(runs), tuple(self.shown[a] for a in kept)
        if shown == self.shown and all((e[0], e[-1]) == lh for e, lh in zip(self.edges, box, strict=True)):
            return self
        cells = self._cells(box)
        triples = zip(self.edges, cells, box, strict=True)
        edges = tuple((lo, *e[c.start + 1 : c.stop], hi) for e, c, (lo, hi) in triples)
        part = replace(self, edges=edges, owner=self.owner[cells], shown=shown)
        one = part.owner.flat[0]
        return part if (part.owner != one).any() else self._of_patch(one, box, shown, part.type.shape)

    def _of_patch(self, owner: int, box: Box, shown: Sequence[int], shape: tuple[int, ...]) -> Content:
        """What a patch has there, in a shape that these axes have, or one of as many elements."""
        p = self.patches[owner]
        runs = [range(box[a][0] - p.at[a], box[a][1] - p.at[a]) for a in p.axes]
        kept = [i for i, a in enumerate(p.axes) if a in shown]
        return shaped(self.builder, window(self.builder, p.content, runs, kept), shape)

    def written(self, runs: Sequence[range], kept: Sequence[int], content: Content) -> Content:
        """With new content in a part, of which it has these axes."""
        box = self._box(runs)
        if all((e[0], e[-1]) == lh for e, lh in zip(self.edges, box, strict=True)):
            return shaped(self.builder, content, self.type.shape)
        if isinstance(content, Patchwork) and content.depth >= _DEEP:
            content = content.value
        edges, owner = self._cut_at(box)
        self.patches.append(Patch(content, tuple(lo for lo, _ in box), tuple(self.shown[a] for a in kept)))
        new = replace(self, edges=edges, owner=owner)
        new.owner[new._cells(box)] = len(self.patches) - 1
        return new

    def _cut_at(self, box: Box) -> tuple[tuple[tuple[int, ...], ...], np.ndarray]:
        """Edges also where a box begins and ends, and the owners of the cells between them, to be written to."""
        edges, owner = list(self.edges), self.owner.copy()
        for axis, ends in enumerate(box):
            new = sorted({*edges[axis], *ends})
            if len(new) > len(edges[axis]):
                owner = owner.take([bisect_right(edges[axis], e) - 1 for e in new[:-1]], axis)
                edges[axis] = tuple(new)
        return tuple(edges), owner

    @property
    def joined(self) -> bool:
        """Whether it has been put together."""
        return "value" in self.__dict__

    @cached_property
    def value(self) -> Value:
        """The value of the graph that it is, put together from all that was written."""
        whole = tuple((0, n) for n in self.owner.shape)
        tree = min((self._tree(whole, pick) for pick in (min, _fewest)), key=lambda t: sum(1 for _ in t.leaves()))
        return valued(shaped(self.builder, self._joined(tree, whole), self.type.shape))

    def _tree(self, box: Box, pick: Callable[[dict[int, list[int]]], int]) -> Tree:
        """How cells are joined: those of one patch as they are, else along the axis that is picked."""
        owner = self.owner[tuple(slice(*lh) for lh in box)]
        if owner.min() == owner.max():
            return Tree(box)
        ends = {d: found for d in range(owner.ndim) if (found := _changes(owner, d))}
        axis = pick(ends)
        lo, hi = box[axis]
        bounds = [lo, *(lo + e for e in ends[axis]), hi]
        boxes = ((*box[:axis], (a, z), *box[axis + 1 :]) for a, z in pairwise(bounds))
        return Tree(box, axis, tuple(self._tree(part, pick) for part in boxes))

    def _joined(self, tree: Tree, whole: Box) -> Value:
        """The value of a tree, with all axes or in a row where it would be put together from rows that are."""
        sizes = self._sizes(tree.box)
        if not tree.parts:
            return self._piece(tree.box, sizes)
        b, leaves = self.builder, list(tree.leaves())
        deep = any(p.parts for p in tree.parts) or len(self.shown) < len(self.edges)
        if deep and self._in_a_row(tree.box, [leaf.box for leaf in leaves]):
            row = (self._piece(leaf.box, (math.prod(self._sizes(leaf.box)),)) for leaf in leaves)
            joined = together(b, 0, row, len(leaves))
            return joined if tree.box == whole else valued(shaped(b, joined, sizes))
        return together(b, tree.axis, (self._joined(p, whole) for p in tree.parts), len(tree.parts))

    def _in_a_row(self, outer: Box, boxes: list[Box]) -> bool:
        """Whether the elements of boxes, one box after another, follow each other in the one around them."""
        around = self._sizes(outer)
        for sizes in map(self._sizes, boxes):
            cut = [d for d, (n, m) in enumerate(zip(sizes, around, strict=True)) if n < m]
            if cut and math.prod(sizes[: cut[-1]]) > 1:
                return False
        starts = [tuple(lo for lo, _ in box) for box in boxes]
        return starts == sorted(starts)

    def _sizes(self, box: Box) -> tuple[int, ...]:
        return tuple(e[hi] - e[lo] for e, (lo, hi) in zip(self.edges, box, strict=True))

    def _piece(self, cells: Box, shape: tuple[int, ...]) -> Value:
        """What is of one patch, in another shape."""
        owner = self.owner[tuple(lo for lo, _ in cells)]
        box = tuple((e[lo], e[hi]) for e, (lo, hi) in zip(self.edges, cells, strict=True))
        return valued(self._of_patch(owner, box, range(len(box)), shape))


Content = Value | Patchwork
"""What an array is: a value of the graph, or one that is yet to be put together."""


@dataclass(frozen=True)
class Tree:
    """Cells that are joined along an axis from parts; without parts they are of one patch."""

    box: Box
    axis: int = 0
    parts: tuple[Tree, ...] = ()

    def leaves(self) -> Iterator[Tree]:
        if not self.parts:
            yield self
        for p in self.parts:
            yield from p.leaves()


def _fewest(ends: dict[int, list[int]]) -> int:
    return min(ends, key=lambda d: len(ends[d]))


def _changes(owner: np.ndarray, axis: int) -> list[int]:
    """Where cells along an axis are not owned as those before them."""
    rows = np.moveaxis(owner, axis, 0).reshape(owner.shape[axis], -1)
    return (1 + np.flatnonzero((rows[1:] != rows[:-1]).any(1))).tolist()


# -- parts of values


def content_of(x: int | Content) -> Content:
    """A value by its number, or what is one."""
    return Value(x) if isinstance(x, int) else x


def valued(x: Content) -> Value:
    """The value of the graph that a content is."""
    return x.value if isinstance(x, Patchwork) else x


def type_of(b: GraphBuilder, x: Content) -> TensorType:
    """Its dtype and shape."""
    return x.type if isinstance(x, Patchwork) else b.type(x)


def shaped(b: GraphBuilder, x: Content, shape: tuple[int, ...]) -> Content:
    """The same elements in another shape."""
    if type_of(b, x).shape == shape:
        return x
    one = _repeated(b, v := valued(x))
    return Value(b(Reshape(shape), v) if one is None else _full(b, one, shape))


def window(b: GraphBuilder, x: Content, runs: Sequence[range], kept: Sequence[int]) -> Content:
    """A part of an array, with these of its axes; the others are of size 1."""
    if isinstance(x, Patchwork):
        return x.window(runs, kept)
    return shaped(b, _cut(b, x, runs), tuple(len(runs[a]) for a in kept))


def _repeated(b: GraphBuilder, v: int) -> int | None:
    """The number that all elements of a value are, where that is seen."""
    node = b.node(v)
    once = node is not None and isinstance(node.op, BroadcastTo) and not b.type(node.inputs[0]).shape
    return node.inputs[0] if node is not None and once else None


def _full(b: GraphBuilder, number: int, shape: tuple[int, ...]) -> int:
    return b(BroadcastTo(shape), number) if shape else number


def together(b: GraphBuilder, axis: int, pieces: Iterable[int], count: int) -> Value:
    """So many pieces one after another along an axis: many of them a few at a time, and what that makes again. Equal
    groups are equal blocks, and none is copied as often as it has others before it."""
    rows, groups = iter(pieces), list[int]()
    if count <= _MANY:
        return Value(b(Concat(axis), *rows))
    while group := [*islice(rows, _GROUP)]:
        groups.append(b(Concat(axis), *group) if len(group) > 1 else group[0])
    return together(b, axis, groups, len(groups))


def cut(b: GraphBuilder, v: int, axis: int, r: range) -> Value:
    """What is at some places of an axis, which stays. Nothing begins where it would if it were not, so that models that
    are traced at many sizes have the same slice at all of them."""
    if (r.start, r.step, len(r)) == (0, 1, b.type(v).shape[axis]):
        return Value(v)
    return Value(b(Slice(axis, max(r.start, 0), r.step, len(r)), v))


def positions(p: Any, n: int) -> range:
    """Where a part of an index, a slice or an int, picks from an axis of a size."""
    if isinstance(p, slice):
        return range(*p.indices(n))
    if not -n <= p < n:
        raise IndexError(f"index {p} is out of bounds for axis with size {n}")
    return range(p % n, p % n + 1)


def one_by_one(runs: Sequence[range]) -> bool:
    """Whether places follow each other on all axes."""
    return all(r.step == 1 or len(r) == 1 for r in runs)


def read(b: GraphBuilder, x: Content, parts: Sequence[Any]) -> Content:
    """x[parts]: ints, slices and new axes."""
    shape = type_of(b, x).shape
    real = [p for p in parts if p is not None]
    runs = [positions(p, n) for p, n in zip(real, shape, strict=True)]
    kept = [a for a, p in enumerate(real) if isinstance(p, slice)]
    sizes = iter(len(runs[a]) for a in kept)
    final = tuple(1 if p is None else next(sizes) for p in parts if p is None or isinstance(p, slice))
    if not isinstance(x, Patchwork):
        return shaped(b, _cut(b, x, runs), final)
    if 0 in final:
        zero = b(Const(0.0 if is_float(x.dtype) else x.type.numpy.type(0).item(), x.dtype))
        return Value(b(BroadcastTo(final), zero))
    lows = [min(r[0], r[-1]) for r in runs]
    y = x.window([range(lo, max(r[0], r[-1]) + 1) for lo, r in zip(lows, runs, strict=True)], kept)
    if not one_by_one(runs):
        shifted = [range(runs[a].start - lows[a], runs[a].stop - lows[a], runs[a].step) for a in kept]
        y = _cut(b, valued(y), shifted)
    return shaped(b, y, final)


def _cut(b: GraphBuilder, v: Value, runs: Sequence[range]) -> Value:
    if (one := _repeated(b, v)) is not None and all(map(len, runs)):
        return Value(_full(b, one, tuple(map(len, runs))))
    for axis, r in enumerate(runs):
        v = cut(b, v, axis, r)
    return v


def write(b: GraphBuilder, x: Content, parts: Sequence[Any], v: Content) -> Content:
    """What x is with `v`, which is of the shape of what is written, at ints and slices that go on by one."""
    runs = [positions(p, n) for p, n in zip(parts, type_of(b, x).shape, strict=True)]
    kept = [a for a, p in enumerate(parts) if isinstance(p, slice)]
    # what was put together is not put together once more from all its patches
    old = x if isinstance(x, Patchwork) and not x.joined else Patchwork.of(b, valued(x))
    return old.written([range(r[0], r[-1] + 1) for r in runs], kept, v)
