"""The constructors of the basis. Each row is one fact in one place: arguments, axes rule, dtype rule, new sizes.

The rules are written in egglog's set language and read by both sides: `egraph.schema` emits them as analyses, and
`evaluate`/`typing` here interprets them. A tensor has a *set* of named axes; an axis an operand lacks is broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Sort = Literal["T", "Axis", "NewAxis", "Fn", "Name", "Dtype", "Axes", "Int", "Float"]
"""What an argument is: a tensor; an axis it binds; an axis it makes; a function name; a leaf name; a dtype; a set of
axes; an integer; a float. All but T, Axes, Int and Float are strings in egglog."""


@dataclass(frozen=True, slots=True)
class Head:
    """A constructor: argument names with sorts, and s-expressions for axes, dtype and sizes over those names.

    `axes` uses set-union, set-insert, set-remove, set-empty and (ax x). `dtype` is (dt x), a literal, or (result f x).
    `sizes` maps each new axis to an expression over (size k), + - *; None where the size is a free choice of the term's
    maker and lies in the size table (a slice's length, a pad's total). `sorts`: of the arguments; `tensors`: the
    positions of those that are tensors.
    """

    name: str
    args: tuple[tuple[str, Sort], ...]
    axes: str
    dtype: str
    sizes: tuple[tuple[str, str], ...] = ()
    polynomial: bool = False
    doc: str = ""
    sorts: tuple[Sort, ...] = field(init=False)
    tensors: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sorts", tuple(s for _, s in self.args))
        object.__setattr__(self, "tensors", tuple(i for i, s in enumerate(self.sorts) if s == "T"))


def _head(name: str, args: str, axes: str, dtype: str, *, sizes=(), polynomial: bool = False, doc: str) -> Head:
    pairs = tuple(a.split(":") for a in args.split())
    return Head(name, tuple((n, s) for n, s in pairs), axes, dtype, tuple(sizes), polynomial, doc)  # pyright: ignore


_ROWS = (
    _head("In", "name:Name axes:Axes dtype:Dtype", "axes", "dtype", polynomial=True, doc="An activation leaf."),
    _head("Par", "name:Name axes:Axes dtype:Dtype", "axes", "dtype", polynomial=True, doc="A weight leaf: bound once."),
    _head("Num", "value:Float dtype:Dtype", "(set-empty)", "dtype", polynomial=True, doc="A scalar constant."),
    _head("Iota", "k:Axis dtype:Dtype", "(set-insert (set-empty) k)", "dtype", doc="0, 1, 2 ... along axis k."),
    _head("Map", "f:Fn x:T", "(ax x)", "(result f x)", doc="A function of one scalar, at every element."),
    _head("Zip", "f:Fn x:T y:T", "(set-union (ax x) (ax y))", "(result f x)", doc="A function of two scalars."),
    _head("Add", "x:T y:T", "(set-union (ax x) (ax y))", "(dt x)", polynomial=True, doc="x + y."),
    _head("Mul", "x:T y:T", "(set-union (ax x) (ax y))", "(dt x)", polynomial=True, doc="x * y."),
    _head("Select", "c:T x:T y:T", "(set-union (ax c) (set-union (ax x) (ax y)))", "(dt x)", doc="x where c, else y."),
    _head("Cast", "dtype:Dtype x:T", "(ax x)", "dtype", doc="Conversion of the elements, as NumPy's astype."),
    _head("Sum", "k:Axis x:T", "(set-remove (ax x) k)", "(dt x)", polynomial=True, doc="Sum over axis k."),
    _head("Red", "f:Fn k:Axis x:T", "(set-remove (ax x) k)", "(reduced f x)", doc="A fold over axis k."),
    _head("Ren", "a:Axis b:Axis x:T", "(set-insert (set-remove (ax x) a) b)", "(dt x)",
          sizes=[("b", "(size a)")], polynomial=True, doc="Axis a is called b."),
    _head("Split", "k:Axis p:NewAxis q:NewAxis x:T", "(set-insert (set-insert (set-remove (ax x) k) p) q)", "(dt x)",
          polynomial=True, doc="Axis k becomes p (outer) and q (inner)."),
    _head("Merge", "p:Axis q:Axis k:NewAxis x:T", "(set-insert (set-remove (set-remove (ax x) p) q) k)", "(dt x)",
          sizes=[("k", "(* (size p) (size q))")], polynomial=True, doc="Axes p (outer) and q (inner) become k."),
    _head("Diag", "i:Axis j:Axis k:NewAxis x:T", "(set-insert (set-remove (set-remove (ax x) i) j) k)", "(dt x)",
          sizes=[("k", "(size i)")], polynomial=True, doc="The elements with equal i and j, along k."),
    _head("Slice", "k:Axis n:NewAxis start:Int step:Int x:T", "(set-insert (set-remove (ax x) k) n)", "(dt x)",
          polynomial=True, doc="Elements start, start+step ... of axis k, size(n) of them; step may be negative."),
    _head("Pad", "k:Axis n:NewAxis low:Int value:Float x:T", "(set-insert (set-remove (ax x) k) n)", "(dt x)",
          doc="Axis k lies in n from position low on; the rest is value."),
    _head("Cat", "p:Axis q:Axis n:NewAxis x:T y:T",
          "(set-insert (set-union (set-remove (ax x) p) (set-remove (ax y) q)) n)", "(dt x)",
          sizes=[("n", "(+ (size p) (size q))")], polynomial=True, doc="x along p, then y along q, is axis n."),
    _head("Gather", "k:Axis i:T x:T", "(set-union (ax i) (set-remove (ax x) k))", "(dt x)",
          doc="x at position i of axis k; i (integers) may share axes with x; negative i count from the end."),
    _head("Scatter", "f:Fn k:Axis p:Axis i:T u:T x:T",
          "(set-insert (set-union (ax x) (set-union (set-remove (ax i) p) (set-remove (ax u) p))) k)", "(dt x)",
          doc="x with u put (f = set), added (add) or kept if larger (max) or smaller (min) at position i of axis k, "
              "for each place of axis p in order."),
    _head("Unfold", "k:Axis o:NewAxis w:NewAxis stride:Int dilation:Int x:T",
          "(set-insert (set-insert (set-remove (ax x) k) o) w)", "(dt x)", polynomial=True,
          doc="Element o*stride + w*dilation of axis k."),
    _head("Scan", "f:Fn k:Axis x:T", "(set-insert (ax x) k)", "(dt x)", doc="Running fold along axis k."),
    _head("Sort", "k:Axis x:T", "(set-insert (ax x) k)", "(dt x)", doc="Sorted along axis k, NaN last."),
    _head("Argsort", "k:Axis x:T", "(set-insert (ax x) k)", "int64", doc="The stable permutation that sorts axis k."),
    _head("Solve", "i:Axis j:Axis a:T b:T",
          "(set-union (set-remove (set-remove (ax a) i) j) (set-insert (set-remove (ax b) i) j))", "(dt a)",
          doc="x, along j, with a x = b, for rows i and columns j of a; b has i and not j."),
    _head("Triangular", "f:Fn i:Axis j:Axis a:T b:T",
          "(set-union (set-remove (set-remove (ax a) i) j) (set-insert (set-remove (ax b) i) j))", "(dt a)",
          doc="Solve of the triangle of a that f names, lower or upper, with zeros in place of the other one."),
    _head("Cholesky", "i:Axis j:Axis a:T", "(set-insert (set-insert (ax a) i) j)", "(dt a)",
          doc="The lower triangular factor, rows i and columns j, of a, whose lower triangle is read."),
    _head("Det", "f:Fn i:Axis j:Axis a:T", "(set-remove (set-remove (ax a) i) j)", "(dt a)",
          doc="The determinant (f = det) along rows i and columns j, its sign, or the log of its magnitude (logabs)."),
)  # fmt: skip

HEADS = MappingProxyType({h.name: h for h in _ROWS})
"""Every constructor of the basis by name."""

LEAVES = frozenset({"In", "Par", "Num", "Iota"})
VIEWS = frozenset({"Ren", "Split", "Merge", "Diag", "Slice", "Unfold"})
"""Heads that only re-index: on a strided tensor they are index maps (Merge only where the strides fit)."""
FACTORED = frozenset({"Solve", "Triangular", "Cholesky", "Det"})
"""Heads that factor square matrices: their operand `a`, along axes `i` and `j`, of a dtype of `MATRICES`."""
MATRICES = ("float32", "float64")
COMPUTED = frozenset({"Map", "Zip", "Add", "Mul", "Select", "Cast"})
"""Heads that compute each element from those at its own place."""
