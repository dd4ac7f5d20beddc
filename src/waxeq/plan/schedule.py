"""From a choice to steps: an order, buffers, folded weights, results in the shape the model gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU
from waxeq.egraph.lower import Lowered
from waxeq.egraph.snapshot import Snapshot
from waxeq.errors import BudgetError
from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced
from waxeq.ir.term import Term, postorder
from waxeq.plan.plan import Buffer, Fold, RunnerUp, Step


@dataclass(frozen=True)
class BlockPlan:
    """The plan of one block: buffers by local names (leaves by their own), results by output name."""

    buffers: Mapping[str, Buffer]
    folds: tuple[Fold, ...]
    steps: tuple[Step, ...]
    outputs: Mapping[str, str]


class _Writer:
    def __init__(
        self, lowered: Lowered, snapshot: Snapshot, leaves: Mapping[int, State], kernels: Mapping[str, Kernel]
    ) -> None:
        self.lowered, self.snapshot, self.kernels = lowered, snapshot, kernels
        self.buffers: dict[str, Buffer] = {}
        self.folds: list[Fold] = []
        self.steps: list[Step] = []
        self.at: dict[State, str] = {}
        self.terms = smallest_terms(snapshot)
        for name, (leaf, _) in lowered.leaves.items():
            role, place = leaf.kind, CPU
            number = snapshot.roots.get(f"%{list(lowered.leaves).index(name)}")
            if number is not None and number in leaves:
                place = leaves[number].place
                self.at.setdefault(leaves[number], name)
            self.buffers[name] = Buffer(name, leaf.type.dtype, leaf.type.elements, role, place=place)

    def buffer(self, s: State) -> str:
        """Where a state lies: a buffer already made, or a fold."""
        if s not in self.at:
            c = self.snapshot.classes[s.number]
            if not c.weights_only:
                raise KeyError(s)
            self.at[s] = self._fold(s)
        return self.at[s]

    def _fold(self, s: State) -> str:
        c = self.snapshot.classes[s.number]
        term = self.terms[s.number]
        if term.head == "Par" and s.place == CPU:
            axes = self.lowered.leaves[term.args[0]][1]
            if tuple(k for k in axes if k is not None) == s.order:
                return term.args[0]
        used = {t.args[0]: self.lowered.leaves[t.args[0]][1] for t in postorder(term) if t.head == "Par"}
        name = f"folded{len(self.folds)}"
        view = View.dense(s.order, self.snapshot.sizes, c.dtype)
        self.buffers[name] = Buffer(name, c.dtype, view.elements, "folded", place=s.place)
        self.folds.append(Fold(name, term, dict(self.snapshot.sizes), s.order, c.dtype, used))
        return name

    def step(self, p: Priced, runner_up: Priced | None, sources: tuple[str, ...]) -> None:
        c = p.candidate
        reads = tuple(self.buffer(i) for i in c.inputs)
        name = self._temporary(c.out, c.call.out, c.out.place)
        e = p.estimate
        other = None if runner_up is None else _runner_up(runner_up)
        kept = self.kernels[c.call.kernel].retained(c.call)
        about = (e.seconds, e.low, e.high, e.source, sources, other, kept)
        self.steps.append(Step(c.call, reads, name, self._workspace(c.call), *about))

    def _temporary(self, s: State | None, v: View, place: str) -> str:
        name = f"t{len(self.buffers)}"
        self.buffers[name] = Buffer(name, v.dtype, v.elements, "temporary", place=place)
        if s is not None:
            self.at[s] = name
        return name

    def _workspace(self, call: Call) -> str | None:
        need = self.kernels[call.kernel].workspace(call)
        if not need:
            return None
        name = f"w{len(self.buffers)}"
        self.buffers[name] = Buffer(name, "uint8", need, "workspace", place=self.kernels[call.kernel].device)
        return name

    def result(self, name: str, s: State) -> str:
        """The buffer of an output: its state, spread along axes that its term lacks."""
        want = tuple(k for k in self.lowered.roots[name].axes if k is not None)
        have = self.buffer(s)
        if want == s.order:
            return have
        c = self.snapshot.classes[s.number]
        sizes = {k: self.lowered.sizes[k] for k in want}
        out = View.dense(want, sizes, c.dtype)
        src = View.dense(s.order, self.snapshot.sizes, c.dtype)
        threads = max((s.call.threads for s in self.steps), default=1)
        for kernel, k in self.kernels.items():
            call = Call(kernel, operand(0, c.axes, c.dtype), sizes, (src,), out, threads=threads)
            if k.form == "copy" and k.device == s.place and k.accepts(call):
                made = self._temporary(None, out, s.place)
                self.steps.append(Step(call, (have,), made, self._workspace(call)))
                return made
        raise BudgetError(f"no kernel spreads output {name!r} along the axes it is constant in")


def _runner_up(p: Priced) -> RunnerUp:
    return RunnerUp(p.candidate.call.kernel, p.cost, p.estimate.source)


def smallest_terms(snapshot: Snapshot) -> dict[int, Term]:
    """For each weights-only class, a smallest term of basis heads over weight leaves."""
    from waxeq.basis.heads import HEADS

    best: dict[int, tuple[int, Term]] = {}
    numbers = [i for i, c in enumerate(snapshot.classes) if c.weights_only]
    changed = True
    while changed:
        changed = False
        for i in numbers:
            for n in snapshot.classes[i].nodes:
                if n.head not in HEADS or any(a not in best for a in n.tensors):
                    continue
                size = 1 + sum(best[a][0] for a in n.tensors)
                if i not in best or size < best[i][0]:
                    sorts = HEADS[n.head].sorts
                    args = (best[a][1] if s == "T" else a for a, s in zip(n.args, sorts, strict=True))
                    best[i] = (size, Term(n.head, *args))
                    changed = True
    return {i: t for i, (_, t) in best.items()}


def schedule(
    choice: Choice,
    lowered: Lowered,
    snapshot: Snapshot,
    leaves: Mapping[int, State],
    kernels: Mapping[str, Kernel],
    sources: Mapping[int, Sequence[str]],
) -> BlockPlan:
    """Steps in an order that runs. `sources`: for e-classes of the model as written, the places they come from."""
    w = _Writer(lowered, snapshot, leaves, kernels)
    for p in choice.in_order():
        covered = dict.fromkeys(s for number, _ in p.candidate.nodes for s in sources.get(number, ()))
        w.step(p, choice.runners_up.get(p.candidate.out), tuple(covered))
    outputs = {n: w.result(n, r) for n, r in zip(lowered.outputs, choice.roots, strict=True)}
    return BlockPlan(w.buffers, tuple(w.folds), tuple(w.steps), outputs)
