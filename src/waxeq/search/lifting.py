"""From a plan for some sizes to one whose sizes, strides and offsets are functions of the dims.

The plan was chosen at sizes that are no multiples of anything and equal to no other number of the model, so a number
in it that is one of these sizes is that dim. Axes take their sizes from the values of the model that have them, dense
tensors their strides from the order of their axes, views from the index maps that lead to them. What is made here is
held against the reference at other sizes before anyone gets to see it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Kernel
from waxeq.basis.heads import HEADS
from waxeq.basis.typing import read
from waxeq.errors import PlanError
from waxeq.extract.candidates import Space, State
from waxeq.extract.views import Source, sources
from waxeq.frontend.trace import Traced
from waxeq.ir.blocks import Block
from waxeq.ir.graph import Graph
from waxeq.ir.term import Term, rebuild
from waxeq.memory.assign import assign
from waxeq.memory.liveness import Buffer as Lifetime
from waxeq.memory.liveness import InPlace
from waxeq.plan.compose import compose, in_place
from waxeq.plan.encode import encode
from waxeq.plan.plan import Buffer, Fold, Output, Plan, Step
from waxeq.plan.schedule import BlockPlan
from waxeq.search.block import Optimized
from waxeq.symbolic.dims import Dim, Sizes
from waxeq.symbolic.graph import Sized
from waxeq.symbolic.literals import ROUNDED, Literals
from waxeq.symbolic.offsets import places
from waxeq.symbolic.plan import SizedPlan, alike, compiles
from waxeq.symbolic.size import Number, Size, template

Amount = Size | int
Found = TypeVar("Found")


def lifted(
    traced: Traced,
    model: Sized,
    expanded: Graph,
    sizes: Graph,
    blocks: Sequence[Block],
    plans: Mapping[str, Optimized],
    kernels: Mapping[str, Kernel],
    about: Mapping[str, Any],
    at: Sizes,
    dims: Sequence[Dim],
) -> SizedPlan:
    """The plan of a model, block by block. `model`: at all sizes; `expanded`: as it was searched, `at` some; `sizes`:
    the same with functions for numbers; `kernels`: those of ranges. What a kernel does not take at all sizes is done by
    one that compiles nothing. Raises PlanError where a number is no function of the dims, OtherKernel
    where no kernel takes a call."""
    numbers = _Numbers(expanded, sizes, model.literals)
    rows = [_Lift(b, plans[b.key], sizes, numbers).plan() for b in blocks]
    concrete = compose(expanded, blocks, [r[0] for r in rows], traced.name, traced.structure, about)
    leaves = replace(expanded, leaves=model.graph.leaves)
    plan = compose(leaves, blocks, [r[1] for r in rows], traced.name, traced.structure, about)
    plan = replace(plan, graph=model.graph, outputs=_outputs(plan, model.graph))
    taken = [_taken(s.call, kernels) for s in _sized(plan, (), dims).unplaced(at).steps]
    calls = [replace(s.call, kernel=c.kernel) for s, c in zip(plan.steps, taken, strict=True)]
    here = {s.writes: s for s in concrete.steps}  # those that read what is large here may have been moved
    concrete = replace(concrete, steps=tuple(here[s.writes] for s in plan.steps))
    order = _order(_with_calls(concrete, taken), kernels)
    return _sized(_with_calls(plan, calls), order, dims)


class OtherKernel(PlanError):
    """A kernel that a plan uses takes its call at some sizes only, and no other one takes it."""

    def __init__(self, kernel: str) -> None:
        super().__init__(f"kernel {kernel} takes its call at some sizes only")
        self.kernel = kernel


def _taken(call: Call, kernels: Mapping[str, Kernel]) -> Call:
    """The call, by a kernel that takes it at all sizes: of loops another that is compiled, or else one for the same
    meanings that compiles nothing. Raises OtherKernel."""
    if kernels[call.kernel].accepts(call):
        return call
    other = next(_compiled(call, kernels), None) or alike(call, kernels)
    if other is None:
        raise OtherKernel(call.kernel)
    return other


def _compiled(call: Call, kernels: Mapping[str, Kernel]) -> Iterator[Call]:
    """By others for the same meanings, those first that are as exact: exact ones are slow where others are not."""
    own = kernels[call.kernel]
    for name, k in sorted(kernels.items(), key=lambda row: abs(row[1].error - own.error)):
        if k.form == own.form == "loops" and compiles(k) and k.matches(call.meaning):
            other = replace(call, kernel=name)
            if k.accepts(other):
                yield other


def _with_calls(plan: Plan, calls: Sequence[Call]) -> Plan:
    return replace(plan, steps=tuple(replace(s, call=c) for s, c in zip(plan.steps, calls, strict=True)))


def as_it_is(traced: Traced, general: Graph, about: Mapping[str, Any]) -> SizedPlan:
    """The model as written, at all sizes."""
    buffers = {x.name: Buffer(x.name, x.type.dtype, x.type.elements, x.kind) for x in general.leaves}
    outputs = tuple(Output(n, general.type(v), "") for n, v in general.outputs)
    plan = Plan(traced.name, general, buffers, (), (), outputs, (), structure=traced.structure, written=True)
    return _sized(replace(plan, about=about), (), ())


def _sized(plan: Plan, order: Sequence[Any], dims: Sequence[Dim]) -> SizedPlan:
    ranges = {d.name: (d.low, d.high) for d in dims}
    return SizedPlan(template(encode(plan)), tuple(order), plan.graph.constants, ranges)


def _outputs(plan: Plan, general: Graph) -> tuple[Output, ...]:
    types = {n: general.type(v) for n, v in general.outputs}
    return tuple(replace(o, type=types[o.name]) for o in plan.outputs)


def _order(plan: Plan, kernels: Mapping[str, Kernel]) -> tuple[Any, ...]:
    """The places of the arena. Every step has scratch memory here, as it may need some at other sizes."""
    lives: dict[str, tuple[int, int]] = {}
    for i, s in enumerate(plan.steps):
        for n in (*s.reads, s.writes, *((s.workspace,) if s.workspace else ())):
            if plan.buffers[n].role in ("temporary", "workspace"):
                lives[n] = (lives.get(n, (i, i))[0], i)
    ends = {o.buffer for o in plan.outputs}
    lives = {n: (a, len(plan.steps) if n in ends else b) for n, (a, b) in lives.items()}
    wished = in_place(plan, kernels, beside=False)
    pairs = [(a, b) for a, b in wished if plan.buffers[a].elements == plan.buffers[b].elements]
    rows = [Lifetime(n, plan.buffers[n].bytes, *span) for n, span in lives.items()]
    found = assign(rows, [InPlace(a, b) for a, b in pairs])
    return places(lives, found.offsets, [(w.buffer, w.reuses) for w in found.in_place])


class _Numbers:
    """Numbers of a model at the sizes it was searched for, and what they are at others."""

    def __init__(self, here: Graph, sizes: Graph, literals: Literals) -> None:
        self.literals = literals
        self.ints: dict[int, Amount] = {}
        self.floats: dict[float, Number] = {}
        for a, b in zip(here.leaves, sizes.leaves, strict=True):
            self._note(a.type.shape, b.type.shape)
        for n, m in zip(here.nodes, sizes.nodes, strict=True):
            self._note(n.type.shape, m.type.shape)
            for name, x in n.op.attributes.items():
                self._note(x, getattr(m.op, name))

    def _note(self, a: Any, b: Any) -> None:
        if isinstance(a, tuple):
            for x, y in zip(a, b, strict=True):
                self._note(x, y)
        elif isinstance(b, Size):
            self.ints.setdefault(a, b)
            self.floats.setdefault(float(a), Number(str(b.expr)))
        elif isinstance(b, Number):
            self.floats[a] = b

    def size(self, n: int) -> Amount:
        """A size or a place. Raises PlanError as `number` does."""
        found = self.ints.get(n, -self.ints[-n] if -n in self.ints else n)
        return n if found is n else self._told_apart(n, found)

    def number(self, v: float) -> Number | float:
        """A constant, as it is, negated or inverted; an inverse is rounded once more than what it is the inverse of.
        Raises PlanError for one that may as well be a number of the model's own."""
        for form, x in (("{}", v), ("-({})", -v), ("1/({})", 1 / v if v else v), ("-1/({})", -1 / v if v else v)):
            near = next((n for k, n in self.floats.items() if math.isclose(k, x, rel_tol=ROUNDED)), None)
            if near is not None:
                return self._told_apart(v, Number(form.format(near.text)))
        return v

    def _told_apart(self, n: float, found: Found) -> Found:
        """What a number was found to be. Raises PlanError where it may as well be one of the model's own."""
        if self.literals.has(n):
            raise PlanError(f"its number {n:g} may be a size or one that the model has")
        return found


@dataclass
class _Lift:
    """One block."""

    block: Block
    found: Optimized
    sizes: Graph
    numbers: _Numbers

    @property
    def space(self) -> Space:
        assert self.found.space is not None, "a remembered block has no candidates"
        return self.found.space

    @cached_property
    def axes(self) -> dict[str, Amount]:
        """The size of every axis."""
        lowered = self.found.lowered
        assert lowered is not None
        g, here = self.block.graph, self.space.snapshot.sizes
        known: dict[str, Amount] = {k: 1 for k, n in here.items() if n == 1}  # values have no name for those
        values = [*(self.block.leaves[x.name] for x in g.leaves), *self.block.values]
        for v, whole in enumerate(values):
            for k, n in zip(lowered.roots[f"%{v}"].axes, self.sizes.type(whole).shape, strict=True):
                if k is not None and (k not in known or isinstance(n, Size)):
                    known[k] = n
        changed = True
        while changed:
            before = len(known)
            for c in self.space.snapshot.classes:
                for n in (*c.nodes, *c.replaced):
                    if n.head in HEADS:
                        self._infer(n.head, n.args, known)
            changed = len(known) > before
        return known | {k: self.numbers.size(n) for k, n in here.items() if k not in known}

    def _infer(self, head: str, args: Sequence[Any], known: dict[str, Amount]) -> None:
        h = HEADS[head]
        at = {name: a for (name, _), a in zip(h.args, args, strict=True)}
        for new, text in h.sizes:
            uses = list(_uses(read(text)))
            if at[new] not in known and all(at[u] in known for u in uses):
                known[at[new]] = _come_to(read(text), {u: known[at[u]] for u in uses})

    def plan(self) -> tuple[BlockPlan, BlockPlan]:
        """The plan as it was found, with scratch memory for every step, and the same with functions for numbers."""
        p, choice = self.found.plan, self.found.choice
        assert choice is not None
        reads = [c.candidate.inputs for c in choice.in_order()]
        buffers, steps = dict(p.buffers), list[Step]()
        for i, s in enumerate(p.steps):
            name = s.workspace or f"s{i}"
            buffers.setdefault(name, Buffer(name, "uint8", 0, "workspace"))
            steps.append(replace(s, workspace=name, runner_up=None))
        plain = replace(p, buffers=buffers, steps=tuple(steps))
        made = {s.writes: _dense(s.call.out.axes, self.axes, s.call.out.dtype).elements for s in steps}
        made |= {x.name: self.sizes.type(self.block.leaves[x.name]).elements for x in self.block.graph.leaves}
        folds = tuple(map(self._fold, p.folds))
        made |= {f.writes: _dense(f.order, f.sizes, f.dtype).elements for f in folds}
        lifted = {n: replace(b, elements=made.get(n, b.elements)) for n, b in buffers.items()}
        unpriced: Any = {"predicted": 0.0, "low": 0.0, "high": 0.0, "basis": ""}  # what it takes depends on the sizes
        calls = tuple(
            replace(s, call=self._call(s.call, reads[i] if i < len(reads) else ()), **unpriced)
            for i, s in enumerate(steps)
        )
        return plain, BlockPlan(lifted, folds, calls, p.outputs)

    def _fold(self, f: Fold) -> Fold:
        return replace(f, term=self._term(f.term), sizes={k: self.axes[k] for k in f.sizes})

    def _term(self, term: Term) -> Term:
        def change(old: Term, args: tuple[Any, ...]) -> Term:
            sorts = HEADS[old.head].sorts
            return Term(old.head, *(self._number(a, s, old.head) for a, s in zip(args, sorts, strict=True)))

        return rebuild(term, change)

    def _number(self, a: Any, sort: str, head: str) -> Any:
        if sort == "Int" and head in ("Slice", "Pad"):
            return self.numbers.size(a)
        return self.numbers.number(a) if sort == "Float" and head == "Num" else a

    def _call(self, call: Call, reads: Sequence[State]) -> Call:
        states = reads or (None,) * len(call.operands)
        operands = (self._view(v, s) for v, s in zip(call.operands, states, strict=True))
        sizes: Any = {k: self.axes[k] for k in call.sizes}
        out = _dense(call.out.axes, self.axes, call.out.dtype)
        return replace(call, meaning=self._term(call.meaning), sizes=sizes, operands=tuple(operands), out=out)

    def _view(self, v: View, state: State | None) -> View:
        """A view of a tensor in memory: dense in some order of its axes, or by index maps. Raises PlanError."""
        here = self.space.snapshot.sizes
        by_stride = sorted(v.axes, key=lambda k: (-v.stride(k), here[k] == 1, v.axes.index(k)))
        for order in (v.axes, tuple(by_stride)):
            dense = View.dense(order, here, v.dtype).ordered(v.axes)
            if dense == v and (state is None or len(order) == len(state.order)):
                return _dense(order, self.axes, v.dtype).ordered(v.axes)
        if state is not None:
            for path in self._paths.get(state.number, ()):
                found = path.view(View.dense(state.order, here, v.dtype), here)
                if found is not None and (names := self._names(found, v)) is not None:
                    return self._along(path, _dense(state.order, self.axes, v.dtype)).renamed(names)
        raise PlanError("a kernel reads a view that is no function of the dims")

    def _names(self, found: View, v: View) -> dict[str, str] | None:
        """The axes of a view by those of another that lies alike: a kernel that reads one tensor twice has names of its
        own for axes of the second. None where they are not alike."""
        names = dict(zip(found.axes, v.axes, strict=False))
        alike = len(found.axes) == len(v.axes) and all(self.axes[a] == self.axes[b] for a, b in names.items())
        return names if alike and found.renamed(names) == v else None

    @cached_property
    def _paths(self) -> dict[int, list[Source]]:
        """Index maps by the e-class that they begin at."""
        rows: dict[int, list[Source]] = {}
        for number in range(len(self.space.snapshot.classes)):
            for src in sources(self.space.snapshot, number):
                rows.setdefault(src.base, []).append(src)
        return rows

    def _along(self, path: Source, v: View) -> View:
        lifted = replace(path, path=tuple((h, tuple(self._lifted(h, args))) for h, args in path.path))
        known = {k: _Positive(n) for k, n in self.axes.items()}
        found = lifted.view(_wrapped(v), known)  # pyright: ignore[reportArgumentType]
        if found is None:
            raise PlanError("a kernel reads a view that exists at some sizes only")
        return _unwrapped(found)

    def _lifted(self, head: str, args: Sequence[Any]) -> Iterator[Any]:
        for a, sort in zip(args, HEADS[head].sorts, strict=False):
            if head == "Gather" and isinstance(a, int):  # the place, which an index says that is a constant
                yield _Positive(self.numbers.size(a) if isinstance(self.axes[args[0]], Size) else a)
            else:
                yield _Positive(self._number(a, sort, head)) if sort == "Int" else a


class _Positive:
    """An amount in the arithmetic of views, where the only questions are whether two are one and whether one is above
    a number: a dim is, but perhaps at its least size."""

    def __init__(self, of: Amount) -> None:
        self.of = of

    def __add__(self, other: Any) -> _Positive:
        return _Positive(self.of + _plain(other))

    def __mul__(self, other: Any) -> _Positive:
        return _Positive(self.of * _plain(other))

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return self.of == _plain(other)

    def __hash__(self) -> int:
        return hash(self.of)

    def __gt__(self, other: int) -> bool:
        return isinstance(self.of, Size) or self.of > other

    def __bool__(self) -> bool:
        return self.of != 0


def _plain(x: Any) -> Any:
    return x.of if isinstance(x, _Positive) else x


def _wrapped(v: View) -> Any:
    return replace(v, shape=tuple(map(_Positive, v.shape)), strides=tuple(map(_Positive, v.strides)), offset=v.offset)


def _unwrapped(v: View) -> View:
    shape, strides = tuple(map(_plain, v.shape)), tuple(map(_plain, v.strides))
    return replace(v, shape=shape, strides=strides, offset=_plain(v.offset))


def _dense(axes: Sequence[str], sizes: Mapping[str, Any], dtype: str) -> View:
    """Row-major, of sizes that may be functions of dims."""
    return View.dense(axes, sizes, dtype)


def _uses(e: Any) -> Iterator[str]:
    if isinstance(e, tuple):
        if e[0] == "size":
            yield e[1]
        else:
            for x in e[1:]:
                yield from _uses(x)


def _come_to(e: Any, sizes: Mapping[str, Amount]) -> Amount:
    if not isinstance(e, tuple):
        return int(e)
    if e[0] == "size":
        return sizes[e[1]]
    a, b = (_come_to(x, sizes) for x in e[1:])
    return a + b if e[0] == "+" else a * b if e[0] == "*" else a - b
