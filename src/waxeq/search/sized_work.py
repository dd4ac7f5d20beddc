"""What is known of a model at some sizes, and whether plans are right there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waxeq.backend.kernel import Kernel
from waxeq.errors import AccuracyError, PlanError
from waxeq.frontend.trace import Traced
from waxeq.runtime.program import Program
from waxeq.runtime.verify import Accuracy, Truth, require
from waxeq.search.curves import key
from waxeq.search.session import Session
from waxeq.symbolic.dims import Sizes
from waxeq.symbolic.family import Family
from waxeq.symbolic.plan import Interval, SizedPlan
from waxeq.symbolic.size import written


@dataclass
class Work:
    """What is known at some sizes: the traced model and what it should compute, worked out once. Plans by `id`:
    `refused` where they do not run, or are `wrong`, which is the end of them."""

    session: Session
    family: Family
    kernels: Mapping[str, Kernel]
    traced: dict[tuple[int, ...], Traced] = field(default_factory=dict)
    truths: dict[tuple[int, ...], Truth] = field(default_factory=dict)
    worst: dict[str, Accuracy] = field(default_factory=dict)
    checked: set[tuple[int, ...]] = field(default_factory=set)
    wrong: set[int] = field(default_factory=set)
    refused: dict[int, list[tuple[Sizes, str]]] = field(default_factory=dict)

    def at(self, sizes: Sizes) -> Traced:
        k = key(self.family.dims, sizes)
        if k not in self.traced:
            self.traced[k] = self.family.traced(sizes)
        return self.traced[k]

    def truth(self, sizes: Sizes) -> Truth:
        k = key(self.family.dims, sizes)
        if k not in self.truths:
            t = self.at(sizes)
            self.truths[k] = Truth.of(t.graph, t.inputs, t.tensors)
        return self.truths[k]

    def tried(self, plan: SizedPlan, sizes: Sizes) -> Program | None:
        """A plan at some sizes, found right. None where a kernel does not take its call, and where it is wrong: a plan
        that is so anywhere is trusted nowhere."""
        if id(plan) in self.wrong:
            return None
        try:
            return self._right(plan, sizes)
        except (PlanError, AccuracyError, ValueError, IndexError) as e:  # what does not fit, or is not there, at a size
            self.refused.setdefault(id(plan), []).append((sizes, str(e)))
            self.wrong |= {id(plan)} if isinstance(e, AccuracyError) and not plan.as_written else set()
        return None

    def _right(self, plan: SizedPlan, sizes: Sizes) -> Program:
        traced = self.at(sizes)
        p = Program(plan.at(sizes, self.kernels), self.kernels, traced.tensors)
        rows = self.truth(sizes).accuracy(p.flat_results(traced.inputs))
        require(rows, self.session.options.tolerance)
        self.checked.add(key(self.family.dims, sizes))
        for r in rows:
            if r.output not in self.worst or r.plan[1] > self.worst[r.output].plan[1]:
                self.worst[r.output] = r
        return p

    def refusals(self, plans: Sequence[SizedPlan]) -> list[str]:
        """A sentence for each plan that is not used somewhere."""
        rows = []
        for p in plans:
            for sizes, why in self.refused.get(id(p), ())[:1]:
                others = len({key(self.family.dims, s) for s, _ in self.refused[id(p)]}) - 1
                where = "at no size" if id(p) in self.wrong else f"at all but {others + 1} of the sizes tried"
                one = f"one of {len(plans)} plans" if len(plans) > 1 else "the plan"
                rows.append(f"{one} is used {where}: where {written(sizes)}, {why}")
        return rows


def require_right(found: Sequence[Interval], work: Work) -> None:
    """Raises AccuracyError when even the model as written, at all sizes, is not the model."""
    for i in found:
        for sizes in i.box.corners():
            if work.tried(i.plan, sizes) is None:
                raise AccuracyError(f"no plan is right where {written(sizes)}: {work.refused[id(i.plan)][-1][1]}")
