"""How a nest is walked: which axes are points that threads share out, which are loops, which is the vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, permutations

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.crossed import crossed
from waxeq_cfamily.products import Product
from waxeq_cfamily.stages import TURNED, Space
from waxeq_cfamily.values import Index, Row, Values, indices, pointed, reindexed, renumbered

_SHORT = 8
"""A vector axis with fewer elements leaves lanes empty."""
_FAR = 6.0
"""How much longer an element takes that does not lie beside the last one."""
_BESIDE = 4
"""Cheap functions for each element that is looked up, of which vectors would still save little."""


@dataclass(frozen=True, slots=True)
class Widths:
    """How many elements of the vector axis one point takes: `flat` where nothing is folded, `columns` where rows are
    added to rows, `square` of both axes where one is read across, and `turned` where that is turned in registers (0: as
    else; just so many, so that squares begin with lines of the cache where rows do); `pairs`: whether folds over pairs
    have tiles of their own, in which those of `held` rows stay in registers; `rewrites`: whether a value that is needed
    again may lie where the result will be; `looked`: from how many rows elements are taken at a time where that is at
    the same positions (0: from one); `lookups`: whether what is looked up at other positions at each element counts as
    far."""

    flat: int = 8192
    columns: int = 512
    square: int = 32
    turned: int = 0
    pairs: bool = False
    held: int = 0
    rewrites: bool = False
    looked: int = 0
    lookups: bool = False


def space(values: Values, widths: Widths, *, merge: bool = True) -> Space:
    """The walk of a nest: whole rows where the vector axis is folded, strips of columns where it is not. Neighbouring
    axes are merged first, unless others know them by name."""
    values = collapsed(values) if merge else values
    order = [k for k, _ in sorted(_out_strides(values).items(), key=lambda row: -abs(row[1]))]
    loops = values.folded  # every point of the others needs all of these
    outer = [k for k in order if k not in loops]
    pairs = crossed(values) if widths.pairs else None
    if pairs is not None:
        tiles = {pairs.rows: pairs.tile_rows, pairs.columns: pairs.tile_columns}
        return Space(values, tuple(outer), tiles, (pairs.columns,), pairs.across, held=widths.held)
    v = _vector(values, order, widths.lookups and not loops)
    shares = widths.looked and v is not None and not scattered(values, v)
    rows = _looked_up(values, order, v) if shares and v is not None else None
    if v is not None and rows is not None:
        tiles = {v: _piece(values.sizes[v], widths.flat), rows: _piece(values.sizes[rows], widths.looked)}
        return Space(values, tuple(outer), tiles, (rows,), looked=True)
    tiles: dict[str, int] = {}
    across = None
    if v is not None and v in outer:
        width = widths.columns if loops else widths.flat
        across = None if loops else _across(values, outer, v)
        if across is not None:
            turned = _turned(values, across, v, widths.turned)
            sides = {k: values.sizes[k] for k in (across, v)}
            tiles = {k: min(n, turned) if turned else _piece(n, widths.square) for k, n in sides.items()}
        else:
            tiles = {v: _piece(values.sizes[v], width)}
    return Space(values, tuple(outer), tiles, () if v is None else (v,), across, rewrites=widths.rewrites)


def _out_strides(values: Values) -> dict[str, int]:
    return {a: c for a, c in values.out.terms if isinstance(a, str) and a in values.sizes} | {
        k: 0 for k in values.sizes if k not in values.folded and values.out.stride(k) == 0
    }


def _vector(values: Values, order: list[str], lookups: bool) -> str | None:
    """The axis along which most of what is read and written lies side by side; of `lookups` nothing does along axes of
    their positions, and of axes that are as good otherwise the one of shorter steps is taken."""
    axes = [k for k in values.sizes if values.sizes[k] > 1]
    if not axes:
        return None
    loads = [(r, taken_from(values, r) if lookups else frozenset[str]()) for r in values.rows if r.op == "load"]
    apart = any(places for _, places in loads)

    def price(k: str) -> float:
        total = 0.0
        for r, places in loads:
            volume = math.prod(values.sizes[a] for a in r.axes)
            total += volume * (1.0 if r.name[1].stride(k) in (-1, 0, 1) and k not in places else _FAR)
        out = math.prod(values.sizes[a] for a in order)
        step = values.out.stride(k)
        total += out * (1.0 if step == 1 or (k in values.folded and not step) else _FAR)
        return total * max(1.0, _SHORT / values.sizes[k])

    def steps(k: str) -> int:
        return abs(values.out.stride(k) or 0) if apart else int(values.out.stride(k) != 1)

    return min(axes, key=lambda k: (price(k), steps(k), -values.sizes[k], k))


def taken_from(values: Values, r: Row) -> frozenset[str]:
    """The axes along which what is read is looked up at other positions."""
    return frozenset[str]().union(*(values.rows[n].axes for n, _ in pointed(r.name[1])))


def scattered(values: Values, v: str) -> bool:
    """Whether most of what is done at places along an axis is to look up neighbours at the same positions, as colours
    of a pixel: there are few cheap functions for each, and no folds. One element after the other finds them in one
    line; vectors look up each by itself, and take neighbours of a result apart again."""
    taken = [r.name for r in values.rows if r.op == "load" and v in taken_from(values, r)]
    made = [r for r in values.rows if r.op == "apply" and v in r.axes]
    if values.folded or len(taken) < 2 * len({(operand, where.terms) for operand, where in taken}):
        return False
    return 0 < len(made) <= _BESIDE * len(taken) and not any(r.costly for r in made)


def _looked_up(values: Values, order: list[str], v: str) -> str | None:
    """An axis along which positions are the same that are others along the vector axis, where looking up is most of
    what is done: each is read and looked at once for several places of that axis. Folds would take in one number after
    the other, which is less exact."""
    taken = [(values.rows[n].axes, r) for r in values.rows if r.op == "load" for n, _ in pointed(r.name[1])]
    made = [r for r in values.rows if r.op == "apply"]
    if not taken or values.folded or values.scans or any(r.costly for r in made):
        return None
    for k in reversed(order):
        shared = any(v in axes and k not in axes and k in r.axes for axes, r in taken)
        beside = any(r.name[1].stride(k) == 1 for _, r in taken) or values.out.stride(k) == 1
        each = sum(k in r.axes for r in made)
        if k != v and values.sizes[k] > 1 and shared and not beside and each <= _BESIDE * len(taken):
            return k
    return None


def _across(values: Values, outer: list[str], v: str) -> str | None:
    """An axis along which something is read side by side that is read with steps along the vector axis."""
    for r in values.rows:
        if r.op == "load" and r.name[1].stride(v) not in (-1, 0, 1, None):
            for k in outer:
                if k != v and r.name[1].stride(k) == 1:
                    return k
    return None


def _turned(values: Values, across: str, v: str, side: int) -> int:
    """Elements along the sides of squares in which all that is read across can be turned in registers: `side`, and
    fewer of more bytes than four. 0 where it cannot."""
    loads = (r for r in values.rows if r.op == "load" and r.name[1].stride(across) == 1)
    items = {numpy_dtype(r.dtype).itemsize for r in loads if r.name[1].stride(v) not in (0, 1)}
    return min(side, side * 4 // max(items, default=4)) if items <= TURNED.keys() else 0


@lru_cache(maxsize=1 << 12, typed=True)  # whether a size of a range is a multiple of so many widths takes long
def _piece(size: int, width: int) -> int:
    """A width that cuts an axis in equal pieces where there is one near."""
    if size <= width + width // 2:
        return size
    for w in range(width, width // 2, -1):
        if size % w == 0:
            return w
    return width


# -- axes that lie one in the other are one axis


def collapsed(values: Values) -> Values:
    """The same values with neighbouring axes merged wherever every index runs through both in one go."""
    while True:
        pair = next(_mergeable(values), None)
        if pair is None:
            return values
        values = _merge(values, *pair)


def _mergeable(values: Values) -> Iterator[tuple[str, str]]:
    order = sorted(_out_strides(values).items(), key=lambda row: -abs(row[1]))
    names = [k for k, _ in order if k not in values.folded]
    every = [*(i for _, i in values.results), *(i for r in values.rows for i in indices(r))]
    for a, b in pairwise(names):
        if all(_nested(i, a, b, values.sizes[b]) for i in every) and all(
            (a in r.axes) == (b in r.axes) for r in values.rows
        ):
            yield a, b


def _nested(i: Index, a: str, b: str, size: int) -> bool:
    for atom, _ in i.terms:
        if isinstance(atom, tuple) and atom[0] != "row" and (_mentions(atom[1], a) or _mentions(atom[1], b)):
            return False
    found = dict(i.terms)
    return found.get(a, 0) == found.get(b, 0) * size


def _mentions(i: Index, axis: str) -> bool:
    return any(a == axis or (isinstance(a, tuple) and a[0] != "row" and _mentions(a[1], axis)) for a, _ in i.terms)


def _merge(values: Values, a: str, b: str) -> Values:
    """Axis a (outer) is taken up by b."""

    def index(i: Index) -> Index:
        return Index(tuple((atom, c) for atom, c in i.terms if atom != a), i.const)

    rows = tuple(replace(reindexed(r, index), axes=r.axes - {a}) for r in values.rows)
    sizes = {k: n * values.sizes[a] if k == b else n for k, n in values.sizes.items() if k != a}
    return Values(rows, sizes, index(values.out), tuple((n, index(i)) for n, i in values.others))


def joined(values: Values) -> Values:
    """The same values with neighbouring folded axes merged, where they are folded together and every index runs through
    both in one go: a fold of a whole matrix is one of a vector."""
    while True:
        pair = next(_joinable(values), None)
        if pair is None:
            return values
        values = _join(values, *pair)


def _joinable(values: Values) -> Iterator[tuple[str, str]]:
    """Pairs (outer, inner) of folded axes. Every fold of one is the only user, or the only operand, of one of the
    other."""
    every = [values.out, *(i for r in values.rows for i in indices(r))]
    for r in values.rows:
        if r.op != "fold" or values.rows[r.args[0]].op != "fold":
            continue
        for a, b in permutations((r.folded[0], values.rows[r.args[0]].folded[0])):
            if a != b and _twins(values, a, b) and all(_nested(i, a, b, values.sizes[b]) for i in every):
                yield a, b


def _twins(values: Values, a: str, b: str) -> bool:
    """Whether two axes always go together: in what has them, and in what folds them."""
    inner: set[int] = set()
    for n, r in enumerate(values.rows):
        if r.folded and r.folded[0] in (a, b) and n not in inner:
            below = values.rows[r.args[0]]
            if below.op == "fold" and {*r.folded, *below.folded} == {a, b}:
                if r.op != "fold" or r.name != below.name or values.users[r.args[0]] != (n,):
                    return False
                inner.add(r.args[0])
    for n, r in enumerate(values.rows):
        if n in inner:
            continue
        if r.folded and r.folded[0] in (a, b) and r.args[0] not in inner:
            return False
        if (a in r.axes) != (b in r.axes):
            return False
    return True


def _join(values: Values, a: str, b: str) -> Values:
    """Axis a (outer) is taken up by b, and of two folds along them one is left."""
    whole = {n: r.args[0] for n, r in enumerate(values.rows) if r.folded and r.folded[0] in (a, b)}
    gone = {n: below for n, below in whole.items() if below in whole}
    merged = _merge(
        replace(values, rows=tuple(replace(r, folded=()) if r.folded == (a,) else r for r in values.rows)), a, b
    )
    new, rows = {}, []
    for n, r in enumerate(merged.rows):
        if n in gone:
            new[n] = new[gone[n]]
            continue
        new[n] = len(rows)
        row = renumbered(r, new)
        rows.append(replace(row, folded=(b,), axes=row.axes - {b}) if n in whole else row)
    return Values(tuple(rows), merged.sizes, merged.out)


# -- products


def chained(values: Values, products: tuple[Product, ...]) -> bool:
    """Whether a tile of rows must have all columns: another product is made of them, or they are folded."""
    return len({p.columns for p in products}) > 1 or products[-1].columns in values.folded


def tiled(values: Values, products: tuple[Product, ...], most: Tile) -> Space:
    """The walk of a nest around products: a tile of rows goes through all of them."""
    rows = products[0].rows
    columns = tuple(dict.fromkeys(p.columns for p in reversed(products)))
    order = [k for k, _ in sorted(_out_strides(values).items(), key=lambda row: -abs(row[1]))]
    last = next((p for p in reversed(products) if values.out.stride(p.columns) == 1), products[-1])
    whole = chained(values, products)
    outer = [k for k in order if k not in values.folded and not (whole and k == last.columns)]
    tiles = {rows: _piece(values.sizes[rows], most.rows)}
    if not whole:
        tiles[last.columns] = min(values.sizes[last.columns], most.columns)
    depths = (p.depth for p in products)  # what a side is made from is folded along it
    turned = (rows,) if values.out.stride(rows) == 1 else ()
    vectors = tuple(dict.fromkeys((*turned, last.columns, *columns, *depths)))
    return Space(values, tuple(outer), tiles, vectors, products=products)


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of a product that one point makes."""

    rows: int
    columns: int
