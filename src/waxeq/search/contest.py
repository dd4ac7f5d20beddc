"""The contest: which plan is the fastest, and is it faster than the model as written?

Whole plans are timed side by side with the model, in a process of its own: what the compiler used of threads, caches
and memory would else be part of the result. Where the budget has no room for that, plan and model have a turn each
here, or a few.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from waxeq.cost.memos import CONTEST
from waxeq.errors import WaxeqError
from waxeq.events import NOTICE
from waxeq.extract.closer import CLOSER
from waxeq.frontend.trace import Traced
from waxeq.naming import setting
from waxeq.runtime.handover import Groups, handed
from waxeq.runtime.measure import WIDE, Fresh, Samples
from waxeq.runtime.turns import take_turns
from waxeq.runtime.written import Written
from waxeq.search.duel import FAR, FEWEST, LONG, MOST, Closer, contest, laid_out
from waxeq.search.pace import CLOSING
from waxeq.search.result import Result, Trial
from waxeq.search.session import Session

_LONGEST = 3.0
_PROCESS, _READY, _RUNS = 2.0, 0.3, FEWEST + 2
"""Seconds that a process takes to start, import and load, and one that waits for plans; and how often each contestant
runs at least."""
_PLANS = 1.0
"""What the plans of most contests take together, as a multiple of the model's time."""
_ENDS, _BYTE = 1.5, 8e-9
"""Seconds that proofs, notes and the search's last step take as well, and what of them hangs on bytes of weights, which
are hashed, folded, packed, and read for the first time."""
_LAST, _SINGLE = 0.35, 6
"""Seconds that the last compilation and the proof take where a contest is not waited for, and runs of about the model's
length: of the plan for the proof, when its memory is new, and two turns of both."""
_SHARED = 2 / 3
"""What more threads than the one that it was run on leave of a model's time."""
_LARGE = 256 << 20
"""Bytes of arrays that are not copied for a contest before it is known that there will be one."""
_CLEAR = (1.2, 1.1, 1.02)
"""What a plan must gain in each turn to be believed: in one, in two, or in three and more. Of plans that take as long
as the model one in eight is faster in three turns at all, and hardly one in a hundred by a tenth in two."""
_TURNS, _SPARE = 5, 1.0
"""Turns that plan and model have here at most, and seconds of the budget that all but the first may always take."""
_WAITED, _SURE = 0.04, 1.5
"""Seconds of a run of the model that is not made again where the budget is spent, and how far ahead of it the plan must
be for that: in its first run, in which weights are packed."""
_FIRST = 10.0
"""What a first run takes at most of what was predicted, where later ones take as long; what goes beyond made ready what
they find."""
_RESTLESS = 3.0
"""What the ends of an interval are apart, as a ratio, where threads may have waited for others."""
BRIEF = "there was no time for a whole trial: the plan and the model as written were timed in a turn or a few each"


class Held(NamedTuple):
    """How a contest ended: the number of the fastest result; how it does against the model as written, None where the
    user did not wait for that; and a note on what kind of contest it was, where it was no whole one, or on others that
    had a part in it."""

    winner: int
    trial: Trial | None
    note: str = ""


class Ground:
    """Where a contest can be held at once: a process that has been started and has the arrays, until it is closed."""

    def __init__(self, process: Fresh, until: ExitStack) -> None:
        self.process, self._until = process, until

    @staticmethod
    def made(traced: Traced, threads: int) -> Ground:
        """A process that is starting. Raises WaxeqError where there is no room for the arrays."""
        with ExitStack() as stack:
            arrays = stack.enter_context(handed(given(traced)))
            process = Fresh(threads=threads, held=arrays.held, begin=(laid_out, (arrays,)))
            return Ground(stack.enter_context(process), stack.pop_all())

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *exc: object) -> None:
        self._until.close()


def ahead(session: Session, traced: Traced) -> Future[Ground] | None:
    """The ground of a contest that is to come, made beside the search: starting Python takes as long as many a contest.
    None where none will be held, or arrays are so large that nobody should copy them for nothing."""
    size = sum(a.nbytes for arrays in given(traced).values() for a in arrays.values())
    left = session.deadline.left
    if not session.options.trial or session.hurried or left < 2 * _PROCESS or size > _LARGE:
        return None
    return session.beside(partial(Ground.made, traced, session.options.threads))


def foresee(session: Session, took: float, size: int, *, begun: bool) -> None:
    """Leave the search what a contest does not need, of a model that takes so long as written, on one thread, with
    weights of so many bytes. A contest that does not go into what is kept for it is not waited for: a few turns must
    do. `begun`: its process is."""
    alone, most, proofs = session.options.threads == 1, session.kept * (session.deadline.seconds or 0.0), _BYTE * size
    took *= 1.0 if alone else _SHARED
    session.enough = proofs + _LAST + CLOSING
    if not session.options.trial:
        return session.leave(session.enough + took)
    session.contest = _ENDS + (_READY if begun else _PROCESS) + _RUNS * (2 + _PLANS) * took
    brief = 0.0 < most <= proofs + session.contest
    session.took = took if alone and brief else 0.0
    session.leave(session.enough + _SINGLE * took if brief else proofs + session.contest)


def hold(
    session: Session,
    traced: Traced,
    results: Sequence[Result],
    errors: Sequence[float],
    ground: Future[Ground] | None = None,
    took: float | None = None,
    ran: Mapping[str, float] = MappingProxyType({}),
) -> Held:
    """Which result is the fastest in a contest of whole plans, and how it does against the model as written; the first
    when the user does not wait for the outcome. `errors`: that of each result's output that is furthest off; `ground`:
    where, if that was thought of `ahead`; `took`: seconds of a run of the model that was made before; `ran`: those of
    the first run of plans, by text.

    It takes what is left of the budget, at most three seconds or twice that; never less than one timed run of the first
    result and of the model, after a first where that could matter. Where there is time for some of the results alone,
    these are the first. Where the process of a contest cannot be had, or ends before the contest does, a few runs are
    what there is, and the note says why. Raises WaxeqError then with `strict`.
    """
    texts, closer = [r.text for r in results], _closer(errors)
    known = _recalled(session, results, closer)
    if known is not None:
        return known
    written = partial(Written(results[0].plan.graph, traced.tensors), traced.inputs)
    if took is None:
        took = _seconds(written)
    took = max(took, 1e-9)
    alone, opens = session.options.threads == 1, _READY if ground is not None and ground.done() else _PROCESS
    note, some = BRIEF, _fit(session, [r.plan.predicted for r in results], took, opens)
    if some:
        try:
            return _apart(session, traced, results[:some], _closer(errors[:some]), ground, opens)
        except WaxeqError as e:
            if session.options.strict:
                raise
            note = _failed(e)
    session.blas(session.options.threads)
    turns = _TURNS * (results[0].plan.predicted + took)
    ends = CLOSING + results[0].plan.predicted  # and the user's first call
    spare = min(max(_SPARE, turns), max(0.0, session.deadline.left - ends))
    return Held(0, _brief(results[0], traced, written, took, ran.get(texts[0]), spare, alone=alone), note)


def entered(session: Session, predicted: Sequence[float], took: float, *, begun: bool) -> bool:
    """Whether there still is time for a contest that the last of these plans has a part in: where there is not, nobody
    needs to know if it is right. `took`: seconds of a run of the model; `begun`: the process of a contest is."""
    return _fit(session, predicted, took, _READY if begun else _PROCESS) == len(predicted)


def _fit(session: Session, predicted: Sequence[float], took: float, opens: float) -> int:
    """How many plans there is time to hold a contest of, that are predicted to take so long."""
    once, some = 2 * (took if session.options.threads == 1 else _SHARED * took), 0
    for seconds in predicted:
        once += seconds
        some += session.deadline.left >= opens + _RUNS * once
    return some


def _apart(
    session: Session,
    traced: Traced,
    results: Sequence[Result],
    closer: Closer,
    ground: Future[Ground] | None,
    opens: float,
) -> Held:
    """The contest in a process of its own, which has begun after so many seconds. Raises WaxeqError where there is none
    in the end."""
    made = Ground.made(traced, session.options.threads) if ground is None else _begun(session, ground)
    if made is None:
        return Held(0, None)
    with made as held:
        budget = min(_LONGEST, max(0.0, 0.4 * (session.deadline.left - opens - CLOSING)))
        job = ([r.text for r in results], closer, traced.origin, budget)
        answer = held.process.call(contest, job, stopped=lambda: session.events.stop_requested)
    if answer is None:
        return Held(0, None)
    winner, found, note = answer
    trial = Trial(**found)
    _remember(session, results, closer, winner, trial)
    return Held(winner, trial, "; ".join(filter(None, (note, _restless(trial, session.options.threads)))))


def _restless(trial: Trial, threads: int) -> str:
    """What to say where nobody can tell how much faster a plan is, as threads that wait for each other may be."""
    if threads == 1 or trial.brief or trial.high < _RESTLESS * trial.low:
        return ""
    return (
        f"the plan's speed against the model as written varies from {trial.low:.2f} to {trial.high:.2f}: threads of "
        "NumPy's BLAS wait long for each other where other work has some of the cores; "
        f"{setting('threads', 1)} compares both on one core"
    )


def _begun(session: Session, ground: Future[Ground]) -> Ground | None:
    """Where a contest can be held, once it is made; None where the user does not wait for that. Raises WaxeqError where
    the budget ends first."""
    while not wait([ground], NOTICE).done:
        if session.events.stop_requested:
            return None
        if session.deadline.expired:
            raise WaxeqError("its process had not begun when the budget ended")
    return ground.result()


def _closer(errors: Sequence[float]) -> Closer:
    """Of each plan those of clearly less error, that of the least first: they may take what is not believed to be a
    gain longer, of far less error twice that."""
    order = sorted(range(len(errors)), key=lambda i: errors[i])
    return [[(i, MOST[errors[i] < FAR * e]) for i in order if errors[i] < CLOSER * e] for e in errors]


def _failed(why: WaxeqError) -> str:
    return f"the plan and the model as written were timed in a turn or a few each, as no contest could be held: {why}"


def _recalled(session: Session, results: Sequence[Result], closer: Closer) -> Held | None:
    """How a contest between plans ended that the table remembers."""
    known = None if session.options.fresh else session.table.memo_get(CONTEST.name, _key(session, results, closer))
    if known is None:
        return None
    winner, trial = json.loads(known)
    return Held(winner, replace(Trial(**trial), remembered=True))


def _remember(session: Session, results: Sequence[Result], closer: Closer, winner: int, trial: Trial) -> None:
    """Keep how a contest ended, if that is settled: of these plans, and of the winner alone, which is all there is the
    next time. An interval that is wide, and not as far from 1, is not: the next time is another chance."""
    if trial.high < WIDE * trial.low or trial.low > WIDE or trial.high < 1 / WIDE:
        for plans, others, n in ((results, closer, winner), (results[winner : winner + 1], [[]], 0)):
            outcome = json.dumps([n, asdict(trial)], sort_keys=True)
            session.table.memo_put(CONTEST.name, _key(session, plans, others), outcome)


def _key(session: Session, results: Sequence[Result], closer: Closer) -> str:
    return session.memo_key(CONTEST, runs=json.dumps([r.runs for r in results]), closer=json.dumps(closer))


def _brief(
    result: Result,
    traced: Traced,
    written: Callable[[], object],
    took: float,
    ran: float | None,
    spare: float,
    *,
    alone: bool,
) -> Trial:
    """A turn of each, and more of them for `spare` seconds; so few have no interval. `took`: seconds that a run of the
    model had a core; `ran`: seconds of the plan's first run, if it was made here. Where the model takes long and that
    run is far ahead of one of the model's, these count: of the one whose seconds are known, where one thread is all it
    has (`alone`), else of one that is made here. The model has that one before its turns, as the plan had its first."""
    plan = model = 0.0
    if ran is not None and took > _WAITED:
        told = alone and took > _SURE * ran
        plan, model = ran, took if told else _seconds(written)
        spare = max(0.0, spare - (0.0 if told else model))
    sure = model > _SURE * plan > 0.0
    if not sure:
        rivals = {"plan": partial(result.program.flat_results, traced.inputs), "written": written}
        long = ran is not None and LONG < ran < _FIRST * result.plan.predicted
        known = {"written": model or took} | ({"plan": ran} if ran is not None and long else {})
        ends = (lambda now: () if _shown(now) else rivals) if took > _WAITED else None
        times = take_turns(rivals, rounds=_TURNS, fewest=1, budget=spare, ran=known, long=LONG, unsettled=ends)
        plan, model, sure = times["plan"].median, times["written"].median, _shown(times)
    ratio = model / plan
    verdict = "faster" if sure else "slower" if ratio < 1.0 else "within noise"
    return Trial(plan, model, ratio, ratio, ratio, verdict, brief=True)


def _shown(times: Mapping[str, Samples]) -> bool:
    """Whether so few turns, taken in pairs, show that the plan is faster than the model as written."""
    pairs = zip(times["plan"].seconds, times["written"].seconds, strict=False)  # who is far behind has fewer
    gains = [written / plan for plan, written in pairs]
    return min(gains) > _CLEAR[min(len(gains), len(_CLEAR)) - 1]


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def given(traced: Traced) -> Groups:
    """The arrays that plans of a model are timed on."""
    return {"weight": traced.tensors, "constant": traced.graph.constants, "input": traced.inputs}
