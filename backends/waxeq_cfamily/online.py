"""Folds along an axis that is taken block by block: attention without the scores of all keys.

A maximum of maxima is a maximum. What is summed are multiples of exp(s - M), M the maximum of s: when M grows, the sum
over the blocks before is multiplied by exp(old M - new M). What multiplies or divides by values that are known after
the last block only, such as 1 / Z of a softmax, is taken out of the sums. As in Milakov and Gimelshein, "Online
normalizer calculation for softmax" (arXiv:1805.02867, 2018), and Dao et al., "FlashAttention" (arXiv:2205.14135, 2022).

A block in which every s is -inf must not make NaN of what comes later: exp(s - M) is made with 0 in place of such an M.
Where M is still -inf at the end, sums are multiplied by exp(0 - M): NaN, as it is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from waxeq.ir.types import is_float
from waxeq_cfamily.products import DTYPES, Product, arranged
from waxeq_cfamily.stages import Space, Stage
from waxeq_cfamily.values import Row, Values, chain, kept, renumbered

_MERGED = frozenset({"sum", "max", "min"})


@dataclass(frozen=True)
class Online:
    """Values whose `axis` can be taken block by block. `carried` has every fold along it, with the maximum that its sum
    hangs on, or None where the results of blocks are folded as they are."""

    values: Values
    axis: str
    carried: Mapping[int, int | None]
    products: tuple[Product, ...]


@dataclass(frozen=True)
class Blocks(Space):
    """A walk whose points take `axis`, which is folded, a block of its tile after another."""

    axis: str = ""
    carried: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def maxima(self) -> tuple[int, ...]:
        """The folds that sums hang on."""
        return tuple(sorted({m for m in self.carried.values() if m is not None}))

    @property
    def running(self) -> tuple[int, ...]:
        """Carried folds whose value so far lies beside that of the block; a product is added to what is there."""
        made = {p.fold for p in self.products}
        return tuple(f for f in self.carried if f not in made)

    @cached_property
    def crossed(self) -> frozenset[int]:
        """A product that is added to block by block lies as it is made."""
        return super().crossed - self.carried.keys()

    @property
    def scratch(self) -> int:
        more = (*self.running, *self.maxima)
        return super().scratch + sum(-(-self.bytes_of(n) // 64) * 64 for n in more)

    @cached_property
    def phases(self) -> tuple[tuple[Stage, ...], tuple[Stage, ...], tuple[Stage, ...]]:
        """The stages before the blocks, of each block, and after the last."""
        phase = _phases(self.values, self.axis)
        found: tuple[list[Stage], list[Stage], list[Stage]] = ([], [], [])
        for s in self.stages:
            if s.result or s.product is not None:
                found[2 if s.product is None else phase[s.product.fold]].append(s)
                continue
            whole = (*s.folds, *s.kept)
            for i in sorted({phase[n] for n in whole}):
                folds, rows = (tuple(n for n in part if phase[n] == i) for part in (s.folds, s.kept))
                found[i].append(s if (folds, rows) == (s.folds, s.kept) else replace(s, folds=folds, kept=rows))
        return tuple(found[0]), tuple(found[1]), tuple(found[2])


def _phases(values: Values, axis: str) -> list[int]:
    """Of each row whether it is made before the blocks (0), in each (1) or after them (2)."""
    phase: list[int] = []
    for r in values.rows:
        inside = axis in r.axes or axis in r.folded
        late = any(phase[a] == 2 or axis in values.rows[a].folded for a in values.reads(r))
        phase.append(1 if inside else 2 if late else 0)
    return phase


def walked(o: Online, whole: Space, width: int) -> Blocks:
    """The walk of a nest with its axis in blocks of `width`."""
    tiles = {**whole.tiles, o.axis: width}
    return Blocks(o.values, whole.outer, tiles, whole.vectors, whole.across, o.products, axis=o.axis, carried=o.carried)


def online(values: Values) -> Online | None:
    """The longest axis that can be taken block by block, and the values as they are computed then; None if there is
    none."""
    axes = {r.folded[0] for r in values.rows if r.op == "fold" and r.name == "max" and is_float(r.dtype)}
    for k in sorted(axes, key=lambda k: (-values.sizes[k], k)):
        if values.scans or values.positions or values.out.stride(k) != 0:
            continue
        apart = _factored(values, k)
        weights = _weights(apart, k)
        found = _rescaled(apart, k, weights) if weights is not None and weights.sums else None
        if found is not None:
            return found
    return None


class _Rows:
    """Rows that are made one after another; equal rows are one row."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._number: dict[Row, int] = {}

    def add(self, r: Row) -> int:
        if r not in self._number:
            self._number[r] = len(self.rows)
            self.rows.append(r)
        return self._number[r]

    def number(self, value: str, dtype: str) -> int:
        return self.add(Row("number", value, (), dtype, frozenset()))

    def apply(self, name: str, *args: int, dtype: str | None = None) -> int:
        axes = frozenset[str]().union(*(self.rows[a].axes for a in args))
        return self.add(Row("apply", name, args, dtype or self.rows[args[-1]].dtype, axes))


# -- factors that are known after the last block


def _factored(values: Values, k: str) -> Values:
    """The same values with factors and divisors that depend on folds along an axis, and lack it, outside its sums."""
    phase = _phases(values, k)
    outside = {n for n in range(len(values.rows)) if _late(values, k, phase, n)}
    made, new = _Rows(), dict[int, int]()

    def parted(n: int) -> tuple[int, list[tuple[str, int]]]:
        """A row without those factors, and the factors."""
        r = values.rows[n]
        if r.op != "apply" or r.name not in ("Mul", "div") or k not in r.axes:
            return new[n], []
        a, b = r.args
        if b in outside:
            x, out = parted(a)
            return x, [*out, (r.name, new[b])]
        if r.name == "Mul" and a in outside:
            x, out = parted(b)
            return x, [*out, ("Mul", new[a])]
        x, out = parted(a)
        y, more = parted(b) if r.name == "Mul" else (new[b], [])
        return made.apply(r.name, x, y) if out or more else new[n], [*out, *more]

    for n, r in enumerate(values.rows):
        x, out = parted(r.args[0]) if r.folded == (k,) and r.name == "sum" else (0, [])
        if not out:
            new[n] = made.add(renumbered(r, new))
            continue
        new[n] = made.add(replace(r, args=(x,), axes=made.rows[x].axes - {k}))
        for name, y in out:
            new[n] = made.apply(name, new[n], y)
    return Values(kept(made.rows, new[values.root]), values.sizes, values.out)


# -- what hangs on a maximum


@dataclass
class _Weights:
    """Rows by the maximum M that they hang on: `exponents` are s - M, `multiples` those of exp(s - M), `sums` their
    folds."""

    exponents: dict[int, int] = field(default_factory=dict)
    multiples: dict[int, int] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)


def _weights(values: Values, k: str) -> _Weights | None:
    """What hangs on maxima along an axis; None where something along it depends on a fold of it in another way."""
    found, phase = _Weights(), _phases(values, k)
    for n, r in enumerate(values.rows):
        if phase[n] != 1:
            continue
        hangs = [
            a for a in values.reads(r) if a in found.exponents or a in found.multiples or _late(values, k, phase, a)
        ]
        if r.folded == (k,):
            if r.op != "fold" or r.name not in _MERGED or r.dtype not in DTYPES or not _alone(values, n):
                return None
            (a,) = r.args
            if a in found.multiples and r.name == "sum":
                found.sums[n] = found.multiples[a]
            elif hangs:
                return None
        elif hangs:
            m = _exponent(values, k, n) if r.op == "apply" and r.name == "sub" else None
            if m is not None:
                found.exponents[n] = m
                continue
            m = _multiple(values, n, found, hangs)
            if m is None:
                return None
            found.multiples[n] = m
    return found


def _late(values: Values, k: str, phase: Sequence[int], n: int) -> bool:
    """Whether a row is known after the last block only."""
    return phase[n] == 2 or k in values.rows[n].folded


def _alone(values: Values, n: int) -> bool:
    """Whether a fold is not one of several over one another."""
    r = values.rows[n]
    above = (values.rows[u] for u in values.users.get(n, ()))
    return chain(values, n) == (r.folded, r.args[0]) and not any(u.op == "fold" and u.name == r.name for u in above)


def _exponent(values: Values, k: str, n: int) -> int | None:
    """The maximum M of s along the axis if a row is s - M."""
    s, m = values.rows[n].args
    top = values.rows[m]
    return m if (top.op, top.name, top.args, top.folded) == ("fold", "max", (s,), (k,)) else None


def _multiple(values: Values, n: int, found: _Weights, hangs: Sequence[int]) -> int | None:
    """The maximum M if a row is exp(s - M) times what does not hang on it."""
    r = values.rows[n]
    if r.op != "apply":
        return None
    if r.name == "exp":
        return found.exponents.get(r.args[0])
    hung = {found.multiples.get(a) for a in hangs}
    (m,) = hung if len(hung) == 1 else (None,)
    if r.name == "Select":
        rest = [values.rows[a] for a in r.args[1:] if a not in hangs]
        return m if r.args[0] not in hangs and all(x.op == "number" and float(x.name) == 0 for x in rest) else None
    linear = r.name == "neg" or (r.name == "Mul" and sum(a in hangs for a in r.args) == 1)
    return m if linear or (r.name == "div" and r.args[1] not in hangs) else None


# -- the values as they are computed block by block


def _rescaled(values: Values, k: str, weights: _Weights) -> Online | None:
    """The same values with 0 in place of a maximum that is -inf where it is subtracted, and sums that are NaN then."""
    made, new = _Rows(), dict[int, int]()
    folds, safe = dict[int, int](), dict[int, int]()
    for n, r in enumerate(values.rows):
        if n in weights.exponents:
            new[n] = made.apply("sub", new[r.args[0]], safe[weights.exponents[n]])
            continue
        new[n] = made.add(renumbered(r, new))
        if k in r.folded:
            folds[n] = new[n]
        if n in weights.exponents.values():
            none = made.apply("eq", new[n], made.number("-inf", r.dtype), dtype="bool")
            safe[n] = made.apply("Select", none, made.number("0.0", r.dtype), new[n])
        if n in weights.sums:
            m = weights.sums[n]
            new[n] = made.apply("Mul", new[n], made.apply("exp", made.apply("sub", safe[m], folds[m])))
    carried = {f: folds[weights.sums[n]] if n in weights.sums else None for n, f in folds.items()}
    return _checked(Online(replace(values, rows=tuple(made.rows)), k, carried, ()))


def _checked(o: Online) -> Online | None:
    """With the products, if one of them has the axis, and a tile of rows runs through all that is carried."""
    products = arranged(o.values)
    if products is None or o.values.root in o.carried or any(o.axis in p.around for p in products):
        return None
    rows = products[0].rows
    if not any(o.axis in (p.depth, p.columns) for p in products):
        return None
    return replace(o, products=products) if all(rows in o.values.rows[f].axes for f in o.carried) else None
