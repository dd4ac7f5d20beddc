"""Is every e-class one value? Each e-node of a snapshot is evaluated and compared with the others of its class."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.basis.evaluate import Evaluator, Field, Ideal, NamedArray, Native, NotPolynomial
from waxeq.basis.heads import FACTORED, HEADS
from waxeq.basis.matrices import make_regular, places
from waxeq.egraph.snapshot import EClass, ENode, Snapshot
from waxeq.errors import AccuracyError
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import FLOATS

Meaning = Callable[[str, tuple[Any, ...]], Term]
"""The term that a constructor beyond the basis stands for, given terms for its tensor arguments."""

TOLERANCE = 1e-8
"""Largest difference allowed between two nodes of a class in the reals, in units of the RMS of the class."""

_CANCELLED = 1e-2
"""What remains of operands that cancel is judged on this fraction of their size, and what is made of such remains on
a fraction of that: where all cancels, only noise is left to compare."""


class Reals(Ideal):
    """The reals in float64, with constants not rounded to their dtype: rules fold constants in float64, and the
    rounding of a folded constant is not the rule's fault."""

    def number(self, value: float, dtype: str) -> np.ndarray:
        return np.asarray(value, dtype=np.float64) if dtype in FLOATS else super().number(value, dtype)


def in_field(head: str, args: tuple[Any, ...]) -> bool:
    """Whether a node can be evaluated over a prime field. A constant with many binary places cannot: rules fold
    constants in float64, which rounds."""
    if head == "Num":
        return math.isfinite(args[0]) and args[0] * 1024 % 1 == 0
    return HEADS[head].polynomial or head in ("Map", "Zip")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Class `number` holds `a` and `b`, whose values differ by `error` (relative to the RMS of the class where the
    domain is the reals, else 1.0); `a` is `b` where a node cannot be evaluated at all."""

    number: int
    a: ENode
    b: ENode
    error: float
    message: str

    def __str__(self) -> str:
        return f"e-class #{self.number}: {self.a} and {self.b}: {self.message}"


@dataclass(frozen=True)
class Verification:
    """What was found. `rows` e-nodes in `classes` classes; `evaluated` of them had a value; `compared` were held
    against another node; `skipped` have no meaning in the domain or are too large, or read a class without a value;
    `unvalued` classes have no node with a value. `values` by class number."""

    disagreements: tuple[Disagreement, ...]
    rows: int
    classes: int
    evaluated: int
    compared: int
    skipped: int
    unvalued: int
    values: Mapping[int, NamedArray]

    def check(self) -> Verification:
        """Raise AccuracyError if any class holds two values. Returns itself."""
        if self.disagreements:
            n = len(self.disagreements)
            raise AccuracyError(f"{n} e-node{'s' * (n > 1)} of the e-graph disagree: {self.disagreements[0]}")
        return self


def disagreements(
    snapshot: Snapshot,
    leaves: Mapping[str, NamedArray] | int = 0,
    domain: Native | None = None,
    *,
    tolerance: float = TOLERANCE,
    meaning: Meaning | None = None,
) -> list[Disagreement]:
    """The e-nodes of `snapshot` whose value is not that of their class, in the order they were evaluated; see
    `verify`.
    """
    return list(verify(snapshot, leaves, domain, tolerance=tolerance, meaning=meaning).disagreements)


def verify(
    snapshot: Snapshot,
    leaves: Mapping[str, NamedArray] | int = 0,
    domain: Native | None = None,
    *,
    tolerance: float = TOLERANCE,
    meaning: Meaning | None = None,
    elements: int = 1 << 24,
) -> Verification:
    """Evaluate every e-node; each class gets the value of its first node with one, all others are compared with it.

    leaves: arrays by leaf name in the dtypes of the domain, or a seed for `random_leaves`.
    domain: `Reals()` (the default) or `Ideal()`: differences relative to the RMS of the class, where both are finite;
    integers and booleans exactly. `Native()`: bit for bit, all NaNs being one. `Field()`: exactly, over a prime
    field; what is no polynomial is skipped.
    meaning: of constructors beyond the basis; without it such nodes are skipped. elements: the largest value computed.
    """
    domain = Reals() if domain is None else domain
    given = random_leaves(snapshot, leaves, domain) if isinstance(leaves, int) else leaves
    return _Run(snapshot, given, domain, tolerance, meaning, elements).run()


class _Run:
    def __init__(
        self,
        snapshot: Snapshot,
        leaves: Mapping[str, NamedArray],
        domain: Native,
        tolerance: float,
        meaning: Meaning | None,
        elements: int,
    ) -> None:
        self.snapshot, self.leaves, self.domain = snapshot, leaves, domain
        self.tolerance, self.meaning, self.elements = tolerance, meaning, elements
        self.evaluator = Evaluator(snapshot.sizes, domain)
        self.values: dict[int, NamedArray] = {}
        self.scale: dict[int, float] = {}
        self.first: dict[int, ENode] = {}
        self.found: list[Disagreement] = []
        self.evaluated = self.compared = 0

    def run(self) -> Verification:
        users: dict[int, list[tuple[int, ENode]]] = {}
        waiting: dict[tuple[int, ENode], int] = {}
        ready: deque[tuple[int, ENode]] = deque()
        for i, c in enumerate(self.snapshot.classes):
            for n in c.nodes:
                reads = set(n.tensors)
                waiting[i, n] = len(reads)
                for r in reads:
                    users.setdefault(r, []).append((i, n))
                if not reads:
                    ready.append((i, n))
        while ready:
            i, n = ready.popleft()
            known = i in self.values
            self._node(i, n)
            if not known and i in self.values:
                for user in users.get(i, ()):
                    waiting[user] -= 1
                    if waiting[user] == 0:
                        ready.append(user)
        self._constants()
        rows, classes = self.snapshot.nodes, len(self.snapshot.classes)
        return Verification(
            tuple(self.found), rows, classes, self.evaluated, self.compared, rows - self.evaluated,
            classes - len(self.values), self.values,
        )  # fmt: skip

    def _node(self, i: int, n: ENode) -> None:
        try:
            value = self._value(n)
        except (NotPolynomial, _Skip):
            return
        except (ValueError, IndexError, KeyError) as e:
            self.found.append(Disagreement(i, n, n, 1.0, f"cannot be evaluated: {e}"))
            return
        self.evaluated += 1
        wrong = self._shape_fault(self.snapshot.classes[i], value)
        if wrong:
            self.found.append(Disagreement(i, self.first.get(i, n), n, 1.0, wrong))
        elif i in self.values:
            self.compared += 1
            self._compare(i, n, value, self._size(n))
        else:
            self.values[i], self.first[i] = value, n
            self.scale[i] = max(_rms(value.data), _CANCELLED * self._size(n)) if self._in_reals else 0.0

    @property
    def _in_reals(self) -> bool:
        return isinstance(self.domain, Ideal)

    def _value(self, n: ENode) -> NamedArray:
        if n.head in HEADS:
            if isinstance(self.domain, Field) and not in_field(n.head, n.args):
                raise _Skip
            args = [self.values[a] if p in n.places else a for p, a in enumerate(n.args)]
            self._refuse_large(n)
            try:
                return self.evaluator.apply(n.head, args, self.leaves)
            except ValueError as e:  # NumPy refuses some, such as an integer to a negative power
                refused = n.head in ("Map", "Zip") and "broadcast" not in str(e)
                if refused or isinstance(e, np.linalg.LinAlgError):
                    raise _Skip from e
                raise
            except IndexError as e:
                if n.head in ("Gather", "Scatter"):  # the index was computed, so its range could not be arranged
                    raise _Skip from e
                raise
        if self.meaning is None:
            raise _Skip
        stand = tuple(self._stand_in(a) if p in n.places else a for p, a in enumerate(n.args))
        self._refuse_large(n)
        meaning = self.meaning(n.head, stand)
        if isinstance(self.domain, Field) and not all(in_field(t.head, t.args) for t in postorder(meaning)):
            raise _Skip
        return self.evaluator.term(meaning, {f"#{a}": self.values[a] for a in n.tensors})

    def _stand_in(self, number: int) -> Term:
        c = self.snapshot.classes[number]
        return Term("In", f"#{number}", c.axes, c.dtype)

    def _refuse_large(self, n: ENode) -> None:
        axes = frozenset().union(*(self.values[a].axes for a in n.tensors))
        if math.prod(self.snapshot.sizes[k] for k in axes) > self.elements:
            raise _Skip

    def _shape_fault(self, c: EClass, value: NamedArray) -> str | None:
        extra = set(value.axes) - c.axes
        if extra:
            return f"the class has axes {sorted(c.axes)}, the value also {sorted(extra)}"
        for k, s in zip(value.axes, value.data.shape, strict=True):
            if s != self.snapshot.sizes[k]:
                return f"axis {k} has size {s}, not {self.snapshot.sizes[k]}"
        return None

    def _size(self, n: ENode) -> float:
        return max((self.scale[a] for a in n.tensors), default=0.0)

    def _compare(self, i: int, n: ENode, value: NamedArray, operands: float) -> None:
        first = self.first[i]
        order = tuple(sorted(self.snapshot.classes[i].axes))
        a, b = np.broadcast_arrays(self.values[i].aligned(order), value.aligned(order))
        if not self._in_reals:
            same = a == b if isinstance(self.domain, Field) else same_bits(a, b)
            if not np.all(same):
                self.found.append(Disagreement(i, first, n, 1.0, _where(order, a, b, ~same)))
            return
        scale = max(self.scale[i], _CANCELLED * max(operands, self._size(first)))
        far, error = _far(a, b, scale, self.tolerance)
        if far.any():
            self.found.append(Disagreement(i, first, n, error, _where(order, a, b, far)))

    def _constants(self) -> None:
        """A class that the analysis calls constant must have that value everywhere."""
        if isinstance(self.domain, Field):
            return
        for i, c in enumerate(self.snapshot.classes):
            if c.constant is not None and i in self.values:
                claim = ENode("Num", (c.constant, c.dtype), ())
                self._compare(i, claim, NamedArray((), self.domain.number(c.constant, c.dtype)), 0.0)


class _Skip(Exception):
    """A node that has no value here."""


def _far(a: np.ndarray, b: np.ndarray, scale: float, tolerance: float) -> tuple[np.ndarray, float]:
    """Where two arrays differ, and by how much relative to `scale`; non-finite places are left out."""
    if a.dtype.kind in "biu" or b.dtype.kind in "biu":
        return a != b, 1.0
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        difference = np.where(finite, np.abs(a - b), 0.0)
    far = difference > tolerance * scale
    return far, float(difference.max(initial=0.0) / scale) if scale > 0 else math.inf


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal values of one dtype, told apart by the sign of zero; one NaN is as good as another."""
    if a.dtype != b.dtype:
        return np.zeros(a.shape, dtype=bool)
    with np.errstate(all="ignore"):
        if a.dtype.kind in "biu":
            return a == b
        return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def _rms(x: np.ndarray) -> float:
    if x.dtype.kind in "biu":
        x = x.astype(np.float64)
    finite = x[np.isfinite(x)]
    top = float(np.max(np.abs(finite), initial=0.0))
    return top * float(np.sqrt(np.mean(np.square(finite / top)))) if top > 0 else 0.0


def _where(order: tuple[str, ...], a: np.ndarray, b: np.ndarray, far: np.ndarray) -> str:
    at = tuple(int(x[0]) for x in np.nonzero(far)) if far.ndim else ()
    place = ", ".join(f"{k}={x}" for k, x in zip(order, at, strict=True)) or "the only element"
    return f"{a[at]} against {b[at]} at {place} ({int(far.sum())} of {far.size} elements)"


# -- leaves


def random_leaves(
    snapshot: Snapshot, seed: int, domain: Native | None = None, *, positive: bool = False, special: bool = False
) -> dict[str, NamedArray]:
    """Arrays for every leaf of a snapshot, in the dtypes of the domain, axes in alphabetical order.

    Floats are normal, weights of two or more axes scaled down so that products keep their size; `positive` gives floats
    between 0.5 and 1.5; `special` sprinkles NaN, infinities and both zeros. Integers are small, and an index into an
    axis lies within it, and matrices that are factored are positive definite. Over a prime field every leaf is uniform
    in the field.
    """
    domain = Reals() if domain is None else domain
    bounds, matrices = _index_bounds(snapshot), _factored(snapshot)
    found: dict[str, NamedArray] = {}
    rows = {(n.args[0], i, n) for i, c in enumerate(snapshot.classes) for n in c.nodes if n.head in ("In", "Par")}
    for name, i, n in sorted(rows, key=lambda row: row[:2]):
        random = np.random.default_rng([seed, *name.encode()])
        axes = tuple(sorted(n.args[1]))
        shape = tuple(snapshot.sizes[k] for k in axes)
        if isinstance(domain, Field):
            from waxeq.basis.evaluate import PRIME

            data = random.integers(0, PRIME, shape, dtype=np.uint64)
        elif n.args[2] in FLOATS:
            data = _floats(random, shape, n.head == "Par", positive, special).astype(domain.dtype(n.args[2]))
        else:
            data = _integers(random, shape, n.args[2], bounds.get(i)).astype(domain.dtype(n.args[2]))
        found[name] = NamedArray(axes, np.asarray(data))
        if i in matrices:
            make_regular(found[name].data, axes, *matrices[i])
    return found


_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])


def _floats(
    random: np.random.Generator, shape: tuple[int, ...], weight: bool, positive: bool, special: bool
) -> np.ndarray:
    if positive:
        return random.uniform(0.5, 1.5, shape)
    data = random.standard_normal(shape)
    if weight and len(shape) > 1:
        data = data / math.sqrt(max(1, *shape))
    if special:
        data = np.where(random.random(shape) < 0.25, random.choice(_SPECIAL, shape), data)
    return data


def _integers(random: np.random.Generator, shape: tuple[int, ...], dtype: str, bound: int | None) -> np.ndarray:
    if dtype == "bool":
        return random.integers(0, 2, shape)
    if bound is not None:
        return random.integers(0, max(1, min(bound, 127)), shape)
    return random.integers(0 if dtype[0] == "u" else -4, 5, shape)


_KEEP_VALUES = frozenset({"Ren", "Split", "Merge", "Diag", "Slice", "Unfold", "Cat", "Cast", "Gather", "Select"})


def _index_bounds(snapshot: Snapshot) -> dict[int, int]:
    """For each class whose elements become indices unchanged: the size of the smallest axis they index."""
    bounds: dict[int, int] = {}
    work: list[tuple[int, int]] = []
    for c in snapshot.classes:
        for n in c.nodes:
            if n.head in ("Gather", "Scatter"):
                k = n.args[[s for s, _ in HEADS[n.head].args].index("k")]
                work.append((n.args[[s for s, _ in HEADS[n.head].args].index("i")], snapshot.sizes[k]))
    while work:
        i, bound = work.pop()
        if bounds.get(i, bound + 1) <= bound:
            continue
        bounds[i] = bound
        for n in snapshot.classes[i].nodes:
            if n.head in _KEEP_VALUES:
                work += [(r, bound) for r in _valued(n)]
    return bounds


def _factored(snapshot: Snapshot) -> dict[int, tuple[str, str]]:
    """The classes of matrices that are factored, with the axes of their rows and columns."""
    nodes = (n for c in snapshot.classes for n in c.nodes if n.head in FACTORED)
    return {a: (i, j) for i, j, a in (places(n.head, n.args) for n in nodes)}


def _valued(n: ENode) -> Iterable[int]:
    """The operands whose elements are elements of the node: not the index of a Gather, not the condition of a
    Select.
    """
    return n.tensors[1:] if n.head in ("Gather", "Select") else n.tensors
