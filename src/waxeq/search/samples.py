"""What calibration measures: small meanings over a grid of sizes, and every call of every kernel that computes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product

from waxeq.backend.call import View, operand
from waxeq.basis.scalar import SCALARS, Group
from waxeq.ir.term import Term
from waxeq.ir.types import HALVES
from waxeq.search.sample import Sample, Sizes


def samples(quick: bool) -> Iterator[Sample]:
    """The grid: matrix products, convolutions, attention, scalar functions, fused chains, folds, copies, and kernels of
    a single head."""
    for dtype in ("float32", "float64"):
        yield from _products(dtype, quick)
        yield from _chains(dtype, quick or dtype != "float32")
    for dtype in HALVES:
        yield from _narrow_products(dtype, quick)
    yield from _whole_products(quick)
    yield from _convolutions(quick)
    yield from _functions((1 << 12, 1 << 18) if quick else (1 << 8, 1 << 12, 1 << 16, 1 << 19))
    yield from _attentions((512,) if quick else (320, 1024))
    yield from _large()
    yield from _stencils((256, 2048) if quick else (512, 1024, 2048))
    yield from _copies((256,) if quick else (64, 256, 1024))
    yield from _single((64,) if quick else (64, 200, 512))
    yield from _factored((3, 64) if quick else (3, 6, 16, 64, 256))


def _sample(meaning: Term, sizes: Sizes, operands: Iterable[tuple[str, str]], order: str) -> Sample:
    """`operands`: (axes in memory order, dtype), one letter an axis."""
    return Sample(meaning, sizes, tuple(View.dense(a, sizes, d) for a, d in operands), tuple(order))


def _ins(*leaves: tuple[str, str]) -> list[Term]:
    return [operand(i, axes, dtype) for i, (axes, dtype) in enumerate(leaves)]


# -- matrix products

_SQUARE = (16, 64, 128, 256, 512, 1024)
_MATRICES = (
    (1, 1024, 1024), (8, 512, 512), (32, 1024, 256), (128, 384, 1536), (256, 1024, 784), (512, 10, 1024),
    (1024, 64, 64), (2048, 32, 2048), (2048, 2, 512), (64, 4096, 64), (4096, 384, 384),
)  # fmt: skip
_RAGGED = ((2000, 50, 50), (512, 20, 64), (1024, 100, 40))
"""Few columns that fill no whole panels, and so deep that what is multiplied by them lies in the nearest cache."""
_DEEP = ((40, 2048), (64, 65536), (200, 16384))
"""Columns and rows of matrices that are multiplied turned, with another one and with themselves."""
_LAYERS = (
    (16, 4096, 1024), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (128, 2048, 2048), (128, 8192, 2048),
    (128, 2048, 8192), (512, 4096, 1024), (1, 4096, 4096), (2, 6144, 4096), (8, 4096, 4096),
)  # fmt: skip
"""Rows, results and inputs of layers of transformers, of whole texts and of a word each: what they read leaves the
caches, and a call that takes as long is the last that a search should have to time."""
_BATCHES = ((4, 16, 16, 32), (8, 64, 64, 64), (12, 128, 128, 32), (8, 512, 512, 64), (64, 16, 16, 16))


def _products(dtype: str, quick: bool) -> Iterator[Sample]:
    square = [(n, n, n) for n in (_SQUARE[:4] if quick else _SQUARE)]
    for m, n, k in (*square, *_MATRICES[:: 3 if quick else 1]):
        sizes = {"m": m, "n": n, "k": k}
        for right in ("kn", "nk"):
            yield _product(sizes, ("mk", right), "mn", dtype)
        yield _product(sizes, ("km", "kn"), "mn", dtype)
        yield _product(sizes, ("mk", "k"), "m", dtype)
        yield _product(sizes, ("km", "k"), "m", dtype)
    for m, n, k in _RAGGED[: 1 if quick else None]:
        for right in ("kn", "nk"):
            yield _product({"m": m, "n": n, "k": k}, ("mk", right), "mn", dtype)
    for n, k in _DEEP[: 1 if quick else None]:
        other = _product({"m": n, "n": n, "k": k}, ("km", "kn"), "mn", dtype)
        yield from (other, replace(other, shared=(0, 0)))
    for m, n, k in () if quick or dtype != "float32" else _LAYERS:
        for right in ("kn", "nk"):
            yield _product({"m": m, "n": n, "k": k}, ("mk", right), "mn", dtype)
    for b, m, n, k in _BATCHES[:: 2 if quick else 1]:
        sizes = {"b": b, "m": m, "n": n, "k": k}
        for left, right, order in (("bmk", "bkn", "bmn"), ("mbk", "nbk", "bmn"), ("bmn", "nbk", "mbk")):
            yield _product(sizes, (left, right), order, dtype)


def _narrow_products(dtype: str, quick: bool) -> Iterator[Sample]:
    """A few of each kind: what a product in float32 takes is known, and what it takes to convert its sides grows with
    them."""
    for m, n, k in ((64, 64, 64), (256, 256, 256), *((_LAYERS[1],) if not quick else ())):
        for right in ("kn", "nk"):
            yield _product({"m": m, "n": n, "k": k}, ("mk", right), "mn", dtype)
    n, k = _DEEP[0]
    yield _product({"m": n, "n": n, "k": k}, ("km", "kn"), "mn", dtype)
    yield from _attentions((320,), dtype)


def _whole_products(quick: bool) -> Iterator[Sample]:
    """Of whole numbers of eight bits, summed in 32: layers that were quantized."""
    for m, n, k in ((64, 64, 64), (256, 256, 256), *(_LAYERS[1:4] if not quick else ())):
        for right in ("kn", "nk"):
            leaves = [("mk", "int8"), (right, "int8")]
            left, weights = (Term("Cast", "int32", x) for x in _ins(*leaves))
            t = Term("Sum", "k", Term("Mul", left, weights))
            yield _sample(t, {"m": m, "n": n, "k": k}, leaves, "mn")


def _product(sizes: Sizes, axes: tuple[str, str], order: str, dtype: str) -> Sample:
    leaves = [(a, dtype) for a in axes]
    used = set("".join(axes))
    t = _summed(Term("Mul", *_ins(*leaves)), sorted(used - set(order)))
    return _sample(t, {k: n for k, n in sizes.items() if k in used}, leaves, order)


def _summed(t: Term, axes: Iterable[str]) -> Term:
    return reduce(lambda t, k: Term("Sum", k, t), axes, t)


_LAYERED = ((16, 32, 34), (64, 64, 16), (64, 64, 58), (128, 128, 30), (256, 256, 16))
"""Channels before and after, and lines of images with their edges."""


def _convolutions(quick: bool) -> Iterator[Sample]:
    """Windows of 3 x 3, over planes of channels and over channels that lie between the lines."""
    for c, o, side in _LAYERED[: 2 if quick else None]:
        sizes = {"c": c, "o": o, "H": side, "W": side, "h": side - 2, "w": side - 2, "i": 3, "j": 3}
        for planes in ("cHW", "HcW"):
            x, weights = _ins((planes, "float32"), ("ocij", "float32"))
            meaning = _summed(Term("Mul", windows(x), weights), "jic")
            yield _sample(meaning, sizes, [(planes, "float32"), ("ocij", "float32")], "ohw")
    for c, o, side in _LAYERED[:2]:
        yield _of_windows(c, o, side)


def _of_windows(c: int, o: int, side: int) -> Sample:
    """The same of windows that are looked at where they lie, as kernels of products take them."""
    n, leaves = side - 2, [("chiwj", "float32"), ("ocij", "float32")]
    sizes = {"c": c, "o": o, "h": n, "w": n, "i": 3, "j": 3}
    meaning = _summed(Term("Mul", *_ins(*leaves)), "jic")
    windows = View(tuple("chiwj"), (c, n, 3, n, 3), (side * side, side, side, 1, 1), "float32")
    return Sample(meaning, sizes, (windows, View.dense("ocij", sizes, "float32")), tuple("ohw"))


def windows(x: Term, stride: int = 1, dilation: int = 1) -> Term:
    """Of images with lines H and places W in them: those at h and w, with lines i and places j of their own."""
    for whole, place, window in ("Hhi", "Wwj"):
        x = Term("Unfold", whole, place, window, stride, dilation, x)
    return x


# -- element by element

_DTYPES: Mapping[Group, tuple[str, ...]] = {
    "float": ("float32", "float64"),
    "number": ("float32", "float64", "int64"),
    "integer": ("int64",),
    "bool": ("bool",),
    "any": ("float32",),
}


def _functions(sizes: Sequence[int]) -> Iterator[Sample]:
    """Every scalar function on vectors; those on other dtypes than the usual one at two sizes, as they are seldom
    used: of what was timed at one size only nothing nearby is left to tell what another takes."""
    for f, n in product(SCALARS.values(), sizes):
        for dtype in _DTYPES[f.takes][: None if n in sizes[1:3] else 1]:
            leaves = [("i", dtype)] * f.arity
            yield _sample(Term("Map" if f.arity == 1 else "Zip", f.name, *_ins(*leaves)), {"i": n}, leaves, "i")
    for n, (head, dtype) in product(sizes, product(("Add", "Mul"), ("float32", "float64", "int64"))):
        yield _sample(Term(head, *_ins(("i", dtype), ("i", dtype))), {"i": n}, [("i", dtype)] * 2, "i")
    for n, (a, b) in product(sizes, (("float32", "float64"), ("float64", "float32"), ("bool", "float32"))):
        yield _sample(Term("Cast", b, *_ins(("i", a))), {"i": n}, [("i", a)], "i")


def _large() -> Iterator[Sample]:
    """Results that no cache of a core holds, and such that it pays to write past all caches."""
    x = operand(0, "i", "float32")
    for n, f in product((1 << 22, 1 << 23), ("neg", "exp")):
        for meaning in (made := Term("Map", f, x), Term("Scan", "sum", "i", made)):
            yield _sample(meaning, {"i": n}, [("i", "float32")], "i")
    x = operand(0, "ij", "float32")
    for n, along in product((1 << 11, 1 << 12), "ij"):
        yield _sample(Term("Scan", "sum", along, x), {"i": n, "j": n}, [("ij", "float32")], "ij")


# -- loops that read each other


_SWEPT = ("float32", "neg"), ("float32", "tanh"), ("float64", "neg")


def _stencils(sizes: Sequence[int]) -> Iterator[Sample]:
    """Sums of four neighbours, of what such sums are, and a function of all, in grids that get smaller by two, down to
    these sizes: of each dtype and function enough for a fit that is sure of itself, or nobody takes such loops where
    none can be timed."""
    for n, times, (dtype, f) in product(sizes, (2, 3, 4), _SWEPT):
        t = operand(0, ("i0", "j0"), dtype)
        table = {f"{k}{m}": n + 2 * (times - m) for k, m in product("ij", range(times + 1))}
        for m in range(times):
            views = (
                Term("Slice", f"j{m}", f"j{m + 1}", y, 1, Term("Slice", f"i{m}", f"i{m + 1}", x, 1, t))
                for x, y in ((0, 1), (2, 1), (1, 0), (1, 2))
            )
            t = Term("Map", f, Term("Mul", _number(0.25, dtype), reduce(partial(Term, "Add"), views)))
        given = View.dense(("i0", "j0"), table, dtype)
        yield Sample(t, table, (given,), (f"i{times}", f"j{times}"))


# -- fused chains over rows

_ROWS = ((16, 16), (64, 384), (256, 1024), (2048, 384), (1024, 4096), (4096, 2048))


def _chains(dtype: str, coarse: bool) -> Iterator[Sample]:
    for (rows, columns), (meaning, leaves, order) in product(_ROWS[1:5:2] if coarse else _ROWS, _meanings(dtype)):
        yield _sample(meaning, {"i": rows, "j": columns}, [(a, dtype) for a in leaves], order)


def _meanings(dtype: str) -> list[tuple[Term, tuple[str, ...], str]]:
    """(meaning, axes of each operand, order of the result) over matrices with rows i and columns j."""
    x, v = operand(0, "ij", dtype), operand(1, "j", dtype)
    y, w = operand(1, "ij", dtype), operand(2, "j", dtype)
    shifted = Term("Add", x, v)
    centred = Term("Zip", "sub", x, Term("Mul", Term("Sum", "j", x), _number(1 / 384, dtype)))
    spread = Term("Mul", Term("Sum", "j", Term("Map", "square", centred)), _number(1 / 384, dtype))
    scaled = Term("Mul", centred, Term("Map", "rsqrt", Term("Add", spread, _number(1e-5, dtype))))
    half, root = _number(0.5, dtype), _number(0.70710678, dtype)
    erf = Term("Add", Term("Map", "erf", Term("Mul", shifted, root)), _number(1.0, dtype))
    positive = Term("Zip", "gt", x, y)
    return [
        (Term("Add", x, y), ("ij", "ij"), "ij"),
        (Term("Zip", "max", shifted, _number(0.0, dtype)), ("ij", "j"), "ij"),
        (Term("Mul", Term("Mul", shifted, half), erf), ("ij", "j"), "ij"),
        (Term("Mul", Term("Mul", x, Term("Map", "sigmoid", x)), y), ("ij", "ij"), "ij"),
        (Term("Select", positive, x, Term("Map", "neg", y)), ("ij", "ij"), "ij"),
        (softmax(x, "j"), ("ij",), "ij"),
        (Term("Add", Term("Mul", scaled, v), w), ("ij", "j", "j"), "ij"),
        (Term("Add", Term("Map", "tanh", Term("Mul", Term("Add", x, y), half)), w), ("ij", "ij", "j"), "ij"),
        (Term("Sum", "j", x), ("ij",), "i"),
        (Term("Sum", "i", x), ("ij",), "j"),
        (Term("Red", "max", "j", x), ("ij",), "i"),
        (Term("Red", "max", "i", x), ("ij",), "j"),
        (Term("Sum", "j", Term("Mul", x, y)), ("ij", "ij"), "i"),
        (Term("Sum", "i", Term("Sum", "j", Term("Map", "square", x))), ("ij",), ""),
    ]


def _attentions(sizes: Sequence[int], dtype: str = "float32") -> Iterator[Sample]:
    """Heads h, queries i, keys j, depth k, values l: scores, softmax and what it weighs, in one, and scores on their
    own; of one head, and as layers of transformers have them."""
    for heads, n in (*((1, n) for n in sizes), (12, sizes[0] // 5 * 2), (12, sizes[-1])):
        h, several = "h" * (heads > 1), {"h": heads} if heads > 1 else {}
        extents = {**several, "i": n, "j": n}
        leaves = [(h + axes, dtype) for axes in ("ik", "jk", "jl")]
        q, k, v = _ins(*leaves)
        scores = Term("Sum", "k", Term("Mul", q, k))
        yield _sample(_weighed(scores, v), {**extents, "k": 64, "l": 64}, leaves, h + "il")
        yield _sample(scores, {**extents, "k": 64}, leaves[:2], h + "ij")
        apart = [(h + axes, dtype) for axes in ("ij", "jl")]
        yield _sample(_weighed(*_ins(*apart)), {**extents, "l": 64}, apart, h + "il")


def _weighed(scores: Term, values: Term) -> Term:
    """Values weighed by the softmax of scores along the keys."""
    return Term("Sum", "j", Term("Mul", softmax(scores, "j"), values))


def softmax(x: Term, k: str) -> Term:
    """Along an axis, as it is computed: stable, from the differences to the maximum."""
    e = exponentials(x, k)
    return Term("Zip", "div", e, Term("Sum", k, e))


def exponentials(x: Term, k: str) -> Term:
    """What a softmax along an axis has parts of."""
    return Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", k, x)))


def _number(value: float, dtype: str) -> Term:
    return Term("Num", value, dtype)


# -- copies, and kernels of a single head


def _copies(sizes: Sequence[int]) -> Iterator[Sample]:
    orders = (("ij", "ij"), ("ij", "ji"), ("ijk", "jik"), ("ijk", "kji"), ("j", "ij"), ("i", "ij"))
    for n, dtype, (axes, order) in product(sizes, ("float32", "float64"), orders):
        table = {"i": n, "j": n, "k": 64}
        used = {k: table[k] for k in sorted(set(axes + order))}
        yield _sample(*_copy(axes, dtype, used), order)


def _copy(axes: str, dtype: str, sizes: Sizes) -> tuple[Term, Sizes, list[tuple[str, str]]]:
    return operand(0, axes, dtype), sizes, [(axes, dtype)]


def _single(sizes: Sequence[int]) -> Iterator[Sample]:
    f, at = "float32", "int64"
    for n in sizes:
        s = _extents(n)
        (x,) = _ins(("ij", f))
        orders = [Term(h, "j", t) for t in (x, Term("Map", "neg", x)) for h in ("Sort", "Argsort")]
        yield from (
            _sample(meaning, {k: v for k, v in s.items() if k in used}, leaves, order)
            for meaning, used, leaves, order in (
                (Term("Gather", "k", *_ins(("i", at), ("kj", f))), "ijk", [("i", at), ("kj", f)], "ij"),
                (Term("Gather", "k", *_ins(("j", at), ("kj", f))), "jk", [("j", at), ("kj", f)], "j"),
                (Term("Scatter", "add", "k", "i", *_ins(("i", at), ("ij", f), ("kj", f))), "ijk",
                 [("i", at), ("ij", f), ("kj", f)], "kj"),
                (Term("Scatter", "add", "k", "i", *_ins(("i", at), ("i", f), ("k", f))), "ik",
                 [("i", at), ("i", f), ("k", f)], "k"),
                (Term("Cat", "i", "k", "l", *_ins(("ij", f), ("kj", f))), "ijkl", [("ij", f), ("kj", f)], "lj"),
                (Term("Pad", "i", "k", 1, 0.0, x), "ijk", [("ij", f)], "kj"),
                (Term("Pad", "j", "l", 1, 0.0, Term("Pad", "i", "k", 1, 0.0, x)), "ijkl", [("ij", f)], "kl"),
                (Term("Scan", "sum", "j", x), "ij", [("ij", f)], "ij"),
                (Term("Scan", "sum", "i", x), "ij", [("ij", f)], "ij"),
                (Term("Sort", "j", x), "ij", [("ij", f)], "ij"),
                (Term("Argsort", "j", x), "ij", [("ij", f)], "ij"),
                *((Term("Slice", "j", "w", 0, 1, t), "ijw", [("ij", f)], "iw") for t in orders),
                *((Term("Gather", "j", Term("Num", 2.0, at), t), "ij", [("ij", f)], "i") for t in orders[:2]),
                (Term("Slice", "j", "q", n // 2 - 1, 1, orders[0]), "ijq", [("ij", f)], "iq"),
                (Term("Gather", "j", Term("Num", float(n // 2), at), orders[0]), "ij", [("ij", f)], "i"),
                *((Term("Red", h, "j", x), "ij", [("ij", f)], "i") for h in ("argmax", "argmin")),
                (Term("Red", "argmax", "j", Term("Map", "exp", x)), "ij", [("ij", f)], "i"),
                (Term("Iota", "k", at), "k", [], "k"),
                (Term("Ren", "i", "r", x), "ijr", [("ij", f)], "rj"),
                (Term("Split", "i", "p", "q", x), "ijpq", [("ij", f)], "pqj"),
                (Term("Merge", "i", "q", "m", *_ins(("iqj", f))), "ijqm", [("iqj", f)], "mj"),
                (Term("Diag", "i", "j", "r", x), "ijr", [("ij", f)], "r"),
                (Term("Slice", "i", "h", 0, 2, x), "ijh", [("ij", f)], "hj"),
                (Term("Unfold", "i", "o", "w", 1, 1, x), "ijow", [("ij", f)], "owj"),
            )
        )  # fmt: skip


def _extents(n: int) -> Sizes:
    """Sizes that fit each other as the heads above ask for."""
    return {
        "i": n, "j": n, "k": 4 * n, "l": 5 * n, "m": 2 * n, "p": n // 2, "q": 2, "w": 3, "o": n - 2, "h": n // 2, "r": n
    }  # fmt: skip


def _factored(sizes: Sequence[int]) -> Iterator[Sample]:
    """Matrices of so many rows: many small ones, one large one."""
    for n, d in product(sizes, ("float32", "float64")):
        s = {"c": max(1, (1 << 16) // n**3), "i": n, "j": n, "m": 4}
        a, b = _ins(("cij", d), ("cim", d))
        yield _sample(Term("Solve", "i", "j", a, b), s, [("cij", d), ("cim", d)], "cjm")
        yield _sample(Term("Triangular", "lower", "i", "j", a, b), s, [("cij", d), ("cim", d)], "cjm")
        one = {k: s[k] for k in "cij"}
        yield _sample(Term("Cholesky", "i", "j", a), one, [("cij", d)], "cij")
        yield _sample(Term("Det", "det", "i", "j", a), one, [("cij", d)], "c")
