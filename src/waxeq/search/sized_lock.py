"""Plans for ranges of sizes in waxeq.lock, beside those of one size."""

from __future__ import annotations

from waxeq.errors import PlanError
from waxeq.events import Events
from waxeq.options import Options
from waxeq.search.lifting import as_it_is
from waxeq.search.lock import Subject, damaged, graph_hash, lock, unlocked
from waxeq.search.session import Session
from waxeq.search.sized_work import Work, require_right
from waxeq.search.sizes import SizedReport, SizedResult, model_of
from waxeq.search.tables import Opened
from waxeq.symbolic.family import Family
from waxeq.symbolic.file import decode_sized, encode_sized
from waxeq.symbolic.plan import SizedPlan, of_ranges


def write_sizes(session: Session, family: Family, result: SizedResult) -> None:
    """Lock a result into the file that the options name; what else is locked there stays. Raises LockError."""
    if session.options.lock is not None:
        plans = result.plans
        lock(session, _subject(plans.name, plans.intervals[0].plan, family), encode_sized(plans))


def reproduce_sizes(options: Options, events: Events, family: Family, opened: Opened | None = None) -> SizedResult:
    """The locked plans of a model, found right at the edges of their intervals. Options that were not given are as they
    are locked.

    Raises LockError that names everything that is not as it was locked; AccuracyError when a plan does not compute the
    model on its weights; UnsupportedError where the model is not one program at all sizes.
    """
    model = model_of(family, family.traced)
    first = family.traced(model.first.sizes)
    plain = as_it_is(first, model.graph, {})
    with unlocked(options, events, _subject(first.name, plain, family), opened) as found:
        try:
            plans = decode_sized(found.plan, plain.constants)
        except (PlanError, KeyError, ValueError, TypeError) as e:
            raise damaged(found.path) from e
        work = Work(found.session, family, of_ranges(found.session.kernels))
        require_right(plans.intervals, work)
        notes = (*found.notes, *first.notes, *family.notes)
        about = SizedReport((), 1, tuple(work.worst.values()), len(work.checked), False,
                            found.session.deadline.elapsed, tuple(dict.fromkeys(notes)))  # fmt: skip
        return SizedResult(plans, first.tensors, first.inputs, work.kernels, about)


def _subject(name: str, plan: SizedPlan, family: Family) -> Subject:
    """`plan`: any of the model, each of which has its graph."""
    ranges = ", ".join(map(str, family.dims))
    digest = graph_hash(plan.data["graph"], plan.data["structure"], plan.constants)
    return Subject(f"{name} for {ranges}", digest, family.origin)
