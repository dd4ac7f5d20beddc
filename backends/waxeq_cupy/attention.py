"""Attention: two products of matrices with a softmax between them, by blocks of keys.

What lies between the products is a softmax along the keys of anything element-wise (scaled, masked, biased); what
comes after is anything element-wise. No matrix of all scores ever lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.backend.call import Call
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import NARROW, carried, variable
from waxeq_cfamily.spaces import collapsed, joined
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Unsupported, Values, chain
from waxeq_cupy.gemm import Gemm
from waxeq_cupy.kernels import MOST_BLOCKS, Launch, Work, library, operations, resolved
from waxeq_cupy.products import Product, at
from waxeq_cupy.sides import GROUP, After, Side, indented, loads, nearest, placed, summed
from waxeq_cupy.text import Text

_WIDEST: Mapping[str, int] = {"float16": 128, "bfloat16": 128, "float32": 128, "float64": 64}
"""Columns of values up to which a block holds a row of the result."""


@dataclass(frozen=True)
class Attention:
    """`product`: of weights with the values, its left side the weights. `scores`: the product of queries with keys.
    `scored`: the row that the softmax takes. `total`: the row that is the sum of exponentials, where there is one;
    `divides`: weights are divided by it before they are multiplied."""

    product: Product
    scores: Product
    scored: int
    total: int | None
    divides: bool

    @property
    def keys(self) -> tuple[str, ...]:
        return self.product.depths

    @property
    def flops(self) -> float:
        """Operations of the two products."""
        p = self.product
        each = p.size(self.scores.depths) + p.size(p.columns)
        return 2.0 * p.many * p.size(p.rows) * p.size(p.depths) * each

    @property
    def dtype(self) -> str:
        """What is multiplied: narrow floats, if both products have the same."""
        p, q = self.product, self.scores
        own = q.dtype, p.values.rows[p.right].dtype
        return own[0] if own[0] == own[1] else max(map(carried, own), key=lambda d: numpy_dtype(d).itemsize)


def found(values: Values) -> Attention:
    """The attention that a meaning is. Raises Unsupported."""
    values = joined(collapsed(values))
    rows = values.rows
    tops = [n for n, r in enumerate(rows) if r.op == "fold" and r.name == "max"]
    sums = [n for n, r in enumerate(rows) if r.op == "fold" and r.name == "sum" and rows[r.args[0]].name == "Mul"]
    if not tops or len(sums) < 2:
        raise Unsupported("no attention")
    whole = _outermost(values, sums[-1])
    p = at(values, whole)
    if any(n in p.cone(p.right) for n in tops):
        p = replace(p, left=p.right, right=p.left, rows=p.columns, columns=p.rows)
    weights, total, divides = _weights(p)
    scored, top = _exponential(values, weights)
    chains = [n for n in p.cone(scored) if rows[n].op == "fold"]
    if not chains:
        raise Unsupported("scores that are no product")
    scores = _scores(p, max(chains))
    total = total if total is not None else _total(p, weights)
    folds = {n for f in (whole, scores.fold, top, total) if f is not None for n in _links(values, f)}
    if folds != {n for n, r in enumerate(rows) if r.op == "fold"}:
        raise Unsupported("folds besides attention")
    if {*chain(values, top)[0]} != {*p.depths} or chain(values, top)[1] != scored:
        raise Unsupported("another maximum")
    return Attention(p, scores, scored, total, divides)


def _outermost(values: Values, fold: int) -> int:
    """The fold that a chain of folds ends in."""
    users = values.users.get(fold, ())
    above = [u for u in users if values.rows[u].op == "fold" and values.rows[u].name == values.rows[fold].name]
    return _outermost(values, above[0]) if len(users) == 1 and above else fold


def _links(values: Values, fold: int) -> Iterator[int]:
    """The folds of a chain."""
    axes, n = chain(values, fold)[0], fold
    for _ in axes:
        yield n
        n = values.rows[n].args[0]


def _total(p: Product, weights: int) -> int | None:
    """The row that is the sum of exponentials."""
    rows = p.values.rows
    for n, r in enumerate(rows):
        if r.op == "fold" and r.name == "sum":
            axes, source = chain(p.values, n)
            if source == weights and {*axes} == {*p.depths}:
                return n
    return None


def _weights(p: Product) -> tuple[int, int | None, bool]:
    """(the exponentials, their sum, whether they are divided by it first)."""
    r = p.values.rows[p.left]
    if r.op == "apply" and r.name == "div":
        total = _total(p, r.args[0])
        if total is not None and total == r.args[1]:
            return r.args[0], total, True
        raise Unsupported("weights that are divided by another number")
    return p.left, None, False


def _exponential(values: Values, weights: int) -> tuple[int, int]:
    """(what the softmax takes, its maximum)."""
    r = values.rows[weights]
    if r.op == "apply" and r.name == "exp":
        s = values.rows[r.args[0]]
        if s.op == "apply" and s.name == "sub" and values.rows[s.args[1]].op == "fold":
            return s.args[0], s.args[1]
    raise Unsupported("weights that are no exponentials against a maximum")


def _scores(p: Product, fold: int) -> Product:
    """The product of queries with keys, queries on its left."""
    q = at(p.values, fold)
    rows = p.values.rows
    keys, queries = {*p.depths}, {*p.rows}
    if keys & rows[q.left].axes:
        q = replace(q, left=q.right, right=q.left)
    left, right, value = (rows[n].axes for n in (q.left, q.right, p.right))
    if keys & left or queries & right or queries & value or not keys <= rows[fold].axes:
        raise Unsupported("products that do not share their axes as those of attention do")
    if {*p.columns} & (left | right):
        raise Unsupported("scores for each column")
    return replace(q, rows=p.rows, columns=p.depths)


@dataclass(frozen=True)
class _After(After):
    """After attention, sums come with the `total` of their row."""

    of_row: Attention | None = None

    def known(self) -> tuple[int, ...]:
        assert self.of_row is not None
        return tuple(n for n in (self.product.fold, self.of_row.total) if n is not None)

    def _sum(self, place: str) -> str:
        a, text = self.of_row, self.text
        assert a is not None
        value = f"sums.at[{place}]" + " / total" * a.divides
        return text.known(self.product.fold, text.folded(self.product.fold, value))

    def before(self) -> Iterator[str]:
        a, text = self.of_row, self.text
        assert a is not None
        reads = {n for m in (*self.rows(), text.values.root) for n in text.values.reads(text.values.rows[m])}
        if a.total is not None and a.total in reads:
            yield text.known(a.total, text.folded(a.total, "total"))


@dataclass(frozen=True)
class Written:
    """The kernel of one attention."""

    attention: Attention
    dtypes: tuple[str, ...]
    replaced: frozenset[int]
    aligned: bool

    @property
    def warps(self) -> bool:
        return self.attention.dtype in NARROW

    @property
    def rows(self) -> int:
        """Queries, and keys at a time, of a block."""
        return 32 if self.attention.dtype == "float64" else 64

    @property
    def threads(self) -> int:
        return {"float32": 256, "float64": 64}.get(self.attention.dtype, 128)

    @cached_property
    def columns(self) -> int:
        """Of the values, with those that nobody looks at. Raises Unsupported."""
        p, dtype = self.attention.product, self.attention.dtype
        size, width = p.size(p.columns), 32 if self.warps else 64
        while width < size:
            width *= 2
        if width > _WIDEST[dtype]:
            raise Unsupported("values of many columns")
        return width

    @cached_property
    def text(self) -> Text:
        p = self.attention.product
        space = Space(p.values, (*p.around, *p.rows, *p.columns), {}, (p.columns[-1],))
        return Text(space, library(), (), "", self.dtypes, self.replaced, threads=self.threads, counted=False)

    def launch(self, reads: tuple[int, ...]) -> Launch:
        """Raises Unsupported."""
        self.text.check()
        p = self.attention.product
        blocks = p.many * -(-p.size(p.rows) // self.rows)
        if blocks > MOST_BLOCKS or max(map(p.size, (p.rows, p.depths, self.attention.scores.depths))) >= 1 << 30:
            raise Unsupported("more than a launch has")
        return Launch(self.text.written(self._body()), blocks, self.threads, reads, None, bool(p.values.positions))

    def _side(self, p: Product, row: int, own: tuple[str, ...], names: tuple[str, str]) -> Side:
        wide = GROUP // numpy_dtype(self.attention.dtype).itemsize
        beside = nearest(self.text, loads(p, row), (p.depths[-1], own[-1]), wide) if self.aligned else None
        return Side(self.text, p, row, own, self.attention.dtype, names, beside)

    def _body(self) -> Iterator[str]:
        a, text, p, q = self.attention, self.text, self.attention.product, self.attention.scores
        query = self._side(q, q.left, p.rows, ("m", "k"))
        key = self._side(q, q.right, p.depths, ("n", "k"))
        value = self._side(p, p.right, p.columns, ("c", "n"))
        t, down = summed(a.dtype), -(-p.size(p.rows) // self.rows)
        flags = (query.along, key.along, value.along) if self.warps else (False, False, False)
        if self.warps:
            kind = {"float16": "wx_f16", "bfloat16": "wx_bf16"}[a.dtype]
            on = ", ".join(str(f).lower() for f in flags)
            yield f"typedef wx_attention_16<{kind}, {self.columns}, {on}> tile;"
        else:
            depth = 4 if a.dtype == "float64" else 8
            yield f"typedef wx_attention<{t}, {self.rows}, {self.rows}, {self.columns}, {depth}> tile;"
        for name, size in (("a", "left"), ("b", "right"), ("v", "third")):
            yield f"WX_SHARED({'uint16_t' if self.warps else t}, {name}, tile::{size});"
        yield f"WX_KEPT({t}, s, tile::scored);"
        yield f"WX_KEPT({t}, o, tile::kept);"
        yield f"wx_online<{t}> rows[{2 if self.warps else 4}];"
        yield f"const int row = (int)(blockIdx.x % {down}u) * {self.rows};"
        yield f"const {text.integer} t = ({text.integer})(blockIdx.x / {down}u);"
        yield from text.places("t", p.around, p.values.sizes)
        yield "(void)t;"
        yield from query.lines("query", flags[0])
        yield from key.lines("key", flags[1])
        yield from value.lines("value", flags[2])
        yield f"const auto score = [&](int m, int n, {t} product) {{"
        yield from indented(self._score())
        yield "};"
        sizes = f"{p.size(q.depths)}, {p.size(p.depths)}"
        yield f"tile::made(query, key, value, score, a, b, v, s, o, rows, row, {sizes});"
        made = _After.of(text, p, self._most, aligned=self.aligned)
        after = _After(made.text, p, made.width, a)
        yield f"tile::given<{after.width}>(o, rows, row, [&](int m, int n, const auto &sums, {t} total) {{"
        yield "  (void)total;"
        yield from indented(after.lines())
        yield "});"

    @property
    def _most(self) -> int:
        """How many columns of a row a thread has side by side."""
        return 4 if self.attention.dtype == "float32" else 2

    def _score(self) -> Iterator[str]:
        """What becomes of a product of a query with a key before the softmax; of no key, nothing."""
        a, text, p = self.attention, self.text, self.attention.product
        q = a.scores
        t = summed(a.dtype)
        yield f"if (m >= {p.size(p.rows)} || n >= {p.size(p.depths)}) return wx_lowest<{t}>();"
        yield from placed(text, "m", p.rows, None)
        yield from placed(text, "n", p.depths, None)
        yield text.known(q.fold, text.folded(q.fold, "product"))
        for n in text.need([a.scored], (q.fold,)):
            yield from text.declared(n)
        yield f"return ({variable(carried(a.dtype))}){text.name(a.scored)};"


class FlashAttention(Gemm):
    """Attention of any number of queries, keys and heads, by blocks of keys."""

    name = "attention"
    sought = "cuda product of attention"

    def differs(self, call: Call) -> bool:
        return True

    def attention(self, call: Call) -> Attention:
        """The attention that a call is. Raises Unsupported."""

        def find() -> Attention | Unsupported:
            try:
                return found(resolved(call))
            except Unsupported as e:
                return e

        known = call.remember("cuda attention", find)
        if isinstance(known, Unsupported):
            raise known
        return known

    def find(self, call: Call) -> Product:
        return self.attention(call).product

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            a = self.attention(call)
            if call.out.elements == 0:
                return Work(())
            dtypes = tuple(v.dtype for v in call.operands)
            launch = Written(a, dtypes, frozenset(self.in_place(call)), aligned).launch(
                tuple(range(len(call.operands)))
            )
            return Work((launch,), operations=_beside(a))
        except Unsupported:
            return None

    def features(self, call: Call) -> Mapping[str, float]:
        return {**super().features(call), "flops": self.attention(call).flops}


def _beside(a: Attention) -> float:
    """Operations of what is no product."""
    rows = a.product.values.rows
    inside = {rows[f].args[0] for f in (a.product.fold, a.scores.fold)}
    return sum(operations(a.product.values, n) for n in range(len(rows)) if n not in inside)


KERNELS = (FlashAttention,)
