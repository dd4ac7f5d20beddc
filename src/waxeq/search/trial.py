"""The last word: is the plan right, and is it faster than the model as written?"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

from waxeq.backend.storage import CPU
from waxeq.cost.memos import ACCURACIES
from waxeq.errors import AccuracyError, BudgetError, FallbackError, WaxeqError
from waxeq.events import StageFinished, StageStarted
from waxeq.frontend.trace import Traced
from waxeq.ir.array import content
from waxeq.naming import option
from waxeq.plan.plan import Plan
from waxeq.runtime.verify import Accuracy, Truth, require
from waxeq.search.blocks import remember, said
from waxeq.search.contest import Ground, ahead, entered, foresee, given, hold
from waxeq.search.result import Result, Trial
from waxeq.search.session import Session


@dataclass(frozen=True)
class Judged:
    """Ways to plan a model, the lowest prediction first, on the model's own numbers: the `right` ones, which agree with
    the float64 reference, with their errors; and the notes to report, with a sentence for each that does not.
    `errors`: those of the first that ran; `wrong`: what is wrong with the last that was dropped; `ran`: seconds of the
    first run of those that were run, by text."""

    results: tuple[Result, ...]
    errors: tuple[Accuracy, ...]
    right: tuple[tuple[Result, tuple[Accuracy, ...]], ...]
    notes: tuple[str, ...]
    wrong: AccuracyError | None
    ran: Mapping[str, float]

    def below(self, session: Session) -> float | None:
        """The tolerance under which to search again for plans of less error than these, None where there is none."""
        return None if self.right else session.below(s.call.kernel for r in self.results for s in r.plan.steps)

    def after(self, others: Judged, tolerance: float) -> Judged:
        """These, found after others that were all dropped, under a lower tolerance."""
        return replace(self, notes=(*dict.fromkeys((*others.notes, searched_again(tolerance), *self.notes)),))

    def last(self, tolerance: float, why: BudgetError) -> Judged:
        """These, where a search under a lower tolerance found none that could be judged."""
        return replace(self, notes=(*dict.fromkeys((*self.notes, searched_again(tolerance, why))),))


def searched_again(tolerance: float, why: BudgetError | None = None) -> str:
    """What to say of a search under a lower tolerance; `why` it found nothing."""
    said = f"searched again, for plans of rules and kernels whose error is at most {tolerance:g}"
    return said if why is None else f"{said}; none was found: {why}"


def judged(session: Session, results: Sequence[Result], proofs: Proofs, tolerance: float | None = None) -> Judged:
    """Run every way to plan a model once; once one is right, no more that there is no time to hold a contest of.
    `tolerance`: of results, where it is not the one of the search. Raises what the last of them does where none can be
    run."""
    session.events.emit(StageStarted("trial", ""))
    right: list[tuple[Result, tuple[Accuracy, ...]]] = []
    notes, wrong, errors = [*results[0].report.notes, *said(results[0].blocks)], None, list[tuple[Accuracy, ...]]()
    for n, r in enumerate(results, 1):
        if right and not proofs.contested([*(done for done, _ in right), r]):
            break
        try:
            errors.append(proofs.accuracy(r))
            require(errors[-1], session.options.tolerance if tolerance is None else tolerance)
            right.append((r, errors[-1]))
        except AccuracyError as e:
            wrong = e
            notes.append(f"a plan was dropped: {e}")
        except (MemoryError, WaxeqError) as e:  # what runs out of something is no reason to give up the others
            if n == len(results) and not errors:
                raise
            notes.append(f"a plan was dropped, as it could not be run: {str(e) or type(e).__name__}")
    return Judged(tuple(results), errors[0], tuple(right), tuple(notes), wrong, proofs.ran)


def confirm(session: Session, traced: Traced, found: Judged, begun: Begun | None = None) -> Result:
    """The fastest result that is right; or the model as written when none is right, or none is faster. Raises
    AccuracyError or FallbackError (with `strict`) in these cases."""
    right, notes = found.right, list(found.notes)
    if not right:
        if session.options.strict and found.wrong is not None:
            raise found.wrong
        rows = tuple(replace(r, plan=r.written) for r in found.errors)
        first = found.results[0]
        return _reported(session, replace(first, plan=as_written(first.plan)), notes, rows, None)
    contest = session.options.trial and not session.events.stop_requested
    winner, trial = 0, None
    if contest:
        took = session.joined(begun.truth).seconds if begun else None
        results, errors = [r for r, _ in right], [max((a.plan[1] for a in rows), default=0.0) for _, rows in right]
        winner, trial, note = hold(session, traced, results, errors, begun and begun.ground, took, found.ran)
        notes += [note] if note else []
    if trial is None and session.events.stop_requested:
        notes.append("stopped early: the plan is right, but it was not timed against the model as written")
    result, rows = right[winner]
    notes += [f"nothing checks output {r.output!r}: the reference is finite nowhere" for r in rows if r.empty]
    session.events.emit(StageFinished("trial", session.deadline.elapsed, ""))
    if trial is not None and trial.verdict != "faster":
        if session.options.strict:
            raise FallbackError(
                f"no plan is faster than the model as written (ratio {trial.ratio:.2f}); without "
                f"{option('strict', 'True')} the model as written would be the plan"
            )
        sure = "in few runs" if trial.brief else f"95 % between {trial.low:.2f} and {trial.high:.2f}"
        span = f"{trial.ratio:.2f}x, {sure}"
        kept = f"the model as written is kept: the plan's speed against it is {span}"
        result = replace(result, plan=as_written(result.plan), report=replace(result.report, kept=kept))
    elif winner > 0:
        for b in result.blocks:
            if b.choice is not None:
                remember(session, b)
    return _reported(session, result, notes, rows, trial)


def truth_of(traced: Traced, *, apart: bool = False) -> Truth:
    """What a traced model should compute on its own inputs and weights."""
    return Truth.of(traced.graph, traced.inputs, traced.tensors, apart=apart)


@dataclass(frozen=True)
class Begun:
    """What the end of a search needs, worked out beside it: what the model should compute, and, where a contest will be
    held, its ground."""

    truth: Future[Truth]
    ground: Future[Ground] | None

    @staticmethod
    def beside(session: Session, traced: Traced) -> Begun:
        """Both on their way. As soon as it is known how long the model takes, so is what the search may have."""
        ground = ahead(session, traced)
        truth = session.beside(partial(truth_of, traced, apart=True), later=True)

        def known(found: Future[Truth]) -> None:
            if found.exception() is None:
                weights = sum(a.nbytes for a in traced.tensors.values())
                foresee(session, found.result().seconds, weights, begun=ground is not None)

        truth.add_done_callback(known)
        return Begun(truth, ground)

    def close(self) -> None:
        """No contest will be held any more: the ground is given up as soon as it is there."""
        if self.ground is not None:
            self.ground.add_done_callback(_left)


def _left(ground: Future[Ground]) -> None:
    if ground.exception() is None:
        with ground.result():
            pass


class Proofs:
    """Errors of plans on the model's own inputs and weights. What was found for the same plan, kernels, numbers and
    machine is remembered: running it again would give the same bits."""

    def __init__(self, session: Session, traced: Traced, begun: Begun | None) -> None:
        self.session, self.traced, self.begun = session, traced, begun
        self.ran: dict[str, float] = {}
        """Seconds of the first run of plans, by text."""

    @cached_property
    def truth(self) -> Truth:
        return self.session.joined(self.begun.truth) if self.begun is not None else truth_of(self.traced)

    def contested(self, results: Sequence[Result]) -> bool:
        """Whether there may still be time for a contest of these plans: nobody knows before one of them ran."""
        if not self.ran or self.begun is None:
            return True
        begun = self.begun.ground is not None
        return entered(self.session, [r.plan.predicted for r in results], self.truth.seconds, begun=begun)

    @cached_property
    def _numbers(self) -> str:
        found = hashlib.sha256()
        for group in given(self.traced).values():
            for name, a in sorted(group.items()):
                found.update(f"{name}:{a.dtype}:{a.shape}".encode())
                found.update(content(a))
        return found.hexdigest()

    def accuracy(self, result: Result) -> tuple[Accuracy, ...]:
        """Errors of every output, measured now or when the table was told."""
        table = self.session.table
        key = self.session.memo_key(ACCURACIES, runs=result.runs, numbers=self._numbers)
        known = None if self.session.options.fresh else table.memo_get(ACCURACIES.name, key)
        if known is None:
            program, truth = result.program, self.truth
            start = time.perf_counter()
            found = program.flat_results(self.traced.inputs)
            self.ran[result.text] = time.perf_counter() - start
            rows = truth.accuracy(found)
            table.memo_put(ACCURACIES.name, key, json.dumps([asdict(r) for r in rows]))
            return rows
        read = json.loads(known)
        return tuple(Accuracy(**{**r, "plan": tuple(r["plan"]), "written": tuple(r["written"])}) for r in read)


def _reported(
    session: Session, result: Result, notes: list[str], rows: tuple[Accuracy, ...], trial: Trial | None
) -> Result:
    report = replace(
        result.report,
        interrupted=session.events.stop_requested,
        seconds=session.deadline.elapsed,
        measuring_seconds=session.measuring_seconds,
        compiling_seconds=session.compiling_seconds,
        opening_seconds=session.opening_seconds,
        accuracy=rows,
        trial=trial,
        notes=tuple(notes),
    )
    return result.reported(report)


def as_written(plan: Plan) -> Plan:
    """The plan that runs the model op by op."""
    kept = ("input", "weight", "state", "constant")
    leaves = {n: replace(b, place=CPU) for n, b in plan.buffers.items() if b.role in kept}
    bare = replace(plan, buffers=leaves, folds=(), steps=(), arena_bytes=0, arenas={}, in_place=(), around=0.0)
    return replace(bare, written=True)
