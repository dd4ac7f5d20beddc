"""Random typed programs in the basis: well-formed terms over named axes that share operands as models do.

`random_program(rng, nodes)` needs nothing but NumPy; `programs(...)` is the same as a Hypothesis strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from waxeq.basis.heads import HEADS
from waxeq.basis.typing import TermType, types
from waxeq.egraph.lower import Lowered
from waxeq.ir.graph import Leaf
from waxeq.ir.op import Named
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import FLOATS, TensorType
from waxeq.testing.wellformed import fault

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_MAPS = ("exp", "tanh", "sigmoid", "sqrt", "rsqrt", "recip", "square", "neg", "abs", "log", "erf", "sin", "isfinite")
_ZIPS = ("sub", "sub", "div", "max", "min", "pow", "lt", "ge", "eq")
_FOLDS = ("max", "min", "prod", "argmax")
_NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0)
_MOST = 4096
"""Elements of the largest tensor of a program."""


@dataclass
class _Making:
    rng: np.random.Generator
    sizes: dict[str, int] = field(default_factory=dict)
    pool: list[Term] = field(default_factory=list)
    known: dict[Term, TermType] = field(default_factory=dict)

    def one(self, options: Sequence[Any]) -> Any:
        """Any of them. Raises IndexError where there is none."""
        return options[int(self.rng.integers(max(1, len(options))))]

    def axes(self, t: Term) -> frozenset[str]:
        return self.known[t].axes

    def axis(self, size: int) -> str:
        """A new axis."""
        k = f"a{len(self.sizes)}"
        self.sizes[k] = size
        return k

    def tensor(self, *dtypes: str, having: int = 0) -> Term:
        """A value made before, recent ones more often. Raises IndexError where there is none."""
        fit = [t for t in self.pool if (not dtypes or self.known[t].dtype in dtypes) and len(self.axes(t)) >= having]
        return fit[-1 - int(self.rng.integers(max(1, len(fit)), size=2).min())]

    def note(self, t: Term) -> Term:
        self.known |= types(t)
        return t


def random_program(rng: np.random.Generator, nodes: int, dtype: str = "float32") -> Lowered:
    """A program of about `nodes` nodes: a few leaves, half of them weights, over axes that they share; all values
    that nothing reads are results."""
    m = _Making(rng)
    for size in rng.choice((2, 3, 4, 5), int(rng.integers(2, 5)), replace=True):
        m.axis(int(size))
    for n in range(int(rng.integers(2, 6))):
        axes = [k for k in m.sizes if rng.random() < 0.5]
        m.pool.append(m.note(Term("Par" if n % 2 else "In", f"x{n}", frozenset(axes[:3]), dtype)))
    makers = [f for f, weight in _MAKERS.items() for _ in range(weight)]
    for _ in range(4 * nodes):
        if len(m.pool) >= nodes:
            break
        try:
            t = m.one(makers)(m)
        except IndexError:
            continue
        if t not in m.pool and _fits(m, t):
            m.pool.append(m.note(t))
    return _lowered(m)


def programs(least: int = 3, most: int = 40) -> SearchStrategy[Lowered]:
    """Hypothesis strategy of `random_program`, of least to most nodes."""
    from hypothesis import strategies as st

    return st.builds(
        lambda seed, nodes: random_program(np.random.default_rng(seed), nodes),
        st.integers(0, 2**32 - 1),
        st.integers(least, most),
    )


def _fits(m: _Making, t: Term) -> bool:
    if fault(t, m.sizes) is not None:
        return False
    return float(np.prod([m.sizes[k] for k in types(t)[t].axes], dtype=float)) <= _MOST


def _lowered(m: _Making) -> Lowered:
    """The values that nothing reads are results; every value is found under its number."""
    number = {t: i for i, t in enumerate(postorder(*m.pool))}
    read = {a for t in number for a in t.terms}
    rows = {t: Named(t, tuple(sorted(m.axes(t)))) for t in number}
    results = {f"y{i}": rows[t] for t, i in number.items() if t not in read}
    leaves = {}
    for t in number:
        if t.head in ("In", "Par"):
            shape = tuple(m.sizes[k] for k in sorted(m.axes(t)))
            kind = "weight" if t.head == "Par" else "input"
            leaves[t.args[0]] = (Leaf(t.args[0], TensorType(t.args[2], shape), kind), rows[t].axes)
    used = {k for t in number for k, s in zip(t.args, HEADS[t.head].sorts, strict=True) if "Axis" in s}
    used |= {k for t in number for k in m.axes(t)}
    sizes = {k: n for k, n in m.sizes.items() if k in used}
    roots = {**results, **{f"%{i}": rows[t] for t, i in number.items()}}
    return Lowered(leaves, roots, tuple(results), sizes)


# -- makers: each makes one node from what there is


def _map(m: _Making) -> Term:
    return Term("Map", m.one(_MAPS), m.tensor(*FLOATS))


def _pair(m: _Making) -> tuple[Term, Term]:
    x = m.tensor(*FLOATS)
    d = m.known[x].dtype
    if m.rng.random() < 0.2:
        return x, m.note(Term("Num", m.one(_NUMBERS), d))
    return x, m.tensor(d)


def _zip(m: _Making) -> Term:
    return Term("Zip", m.one(_ZIPS), *_pair(m))


def _add(m: _Making) -> Term:
    return Term("Add", *_pair(m))


def _mul(m: _Making) -> Term:
    return Term("Mul", *_pair(m))


def _select(m: _Making) -> Term:
    return Term("Select", m.tensor("bool"), *_pair(m))


def _sum(m: _Making) -> Term:
    x = m.tensor(*FLOATS, having=1)
    return Term("Sum", m.one(sorted(m.axes(x))), x)


def _product(m: _Making) -> Term:
    """A contraction: over an axis that both operands have, if there is one."""
    x, y = m.tensor(*FLOATS, having=1), m.tensor(*FLOATS, having=1)
    shared = sorted(m.axes(x) & m.axes(y))
    return Term("Sum", m.one(shared), Term("Mul", x, y))


def _red(m: _Making) -> Term:
    x = m.tensor(*FLOATS, having=1)
    return Term("Red", m.one(_FOLDS), m.one(sorted(m.axes(x))), x)


def _ren(m: _Making) -> Term:
    x = m.tensor(having=1)
    a = m.one(sorted(m.axes(x)))
    others = [k for k, n in m.sizes.items() if n == m.sizes[a] and k not in m.axes(x)]
    return Term("Ren", a, m.one(others) if others else m.axis(m.sizes[a]), x)


def _slice(m: _Making) -> Term:
    x = m.tensor(having=1)
    k = m.one(sorted(m.axes(x)))
    n = int(m.rng.integers(1, m.sizes[k] + 1))
    start = int(m.rng.integers(0, m.sizes[k] - n + 1))
    return Term("Slice", k, m.axis(n), start, 1, x)


def _pad(m: _Making) -> Term:
    x = m.tensor(*FLOATS, having=1)
    k, low = m.one(sorted(m.axes(x))), int(m.rng.integers(0, 2))
    return Term("Pad", k, m.axis(m.sizes[k] + low + 1), low, 0.0, x)


def _merge(m: _Making) -> Term:
    x = m.tensor(having=2)
    p, q = (str(k) for k in m.rng.permutation(sorted(m.axes(x)))[:2])
    return Term("Merge", p, q, m.axis(m.sizes[p] * m.sizes[q]), x)


def _split(m: _Making) -> Term:
    x = m.tensor(having=1)
    k = m.one([k for k in sorted(m.axes(x)) if m.sizes[k] % 2 == 0 and m.sizes[k] > 2])
    return Term("Split", k, m.axis(2), m.axis(m.sizes[k] // 2), x)


def _cat(m: _Making) -> Term:
    x = m.tensor(*FLOATS, having=1)
    y = m.tensor(m.known[x].dtype, having=1)
    p, q = m.one(sorted(m.axes(x))), m.one(sorted(m.axes(y)))
    return Term("Cat", p, q, m.axis(m.sizes[p] + m.sizes[q]), x, y)


def _diag(m: _Making) -> Term:
    x = m.tensor(having=2)
    i, j = (str(k) for k in m.rng.permutation(sorted(m.axes(x)))[:2])
    return Term("Diag", i, j, m.axis(m.sizes[i]), x)


_MAKERS: Mapping[Callable[[_Making], Term], int] = {
    _map: 5, _zip: 4, _add: 4, _mul: 4, _product: 5, _sum: 2, _red: 2, _select: 1, _ren: 2, _slice: 1, _pad: 1,
    _merge: 1, _split: 1, _cat: 1, _diag: 1,
}  # fmt: skip
"""How each node is made, and how often."""
