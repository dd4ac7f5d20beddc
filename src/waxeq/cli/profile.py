"""Commands that go through plans one by one: paths and profile."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from waxeq.cli.console import finish, working
from waxeq.cli.options import SEARCH, SHOW, UNHURRIED, Search, Show, Unhurried
from waxeq.cli.work import admit_rules, is_plan, load, require_there
from waxeq.errors import PlanError, TargetError, UsageError, WaxeqError
from waxeq.events import Note

if TYPE_CHECKING:
    from waxeq.events import Events
    from waxeq.frontend.trace import Traced
    from waxeq.options import Options
    from waxeq.search.paths import Menu
    from waxeq.search.profile import Profiled
    from waxeq.search.session import Session
    from waxeq.search.tables import Opened

_FROM = (
    "Begin with the path of this number; the cheapest is 1 [default: 1, or where the file named by --state says that "
    "the last listing ended]."
)
_STATE = (
    "File that keeps what was found and how far the list has come. Where it is there already, nothing is searched: the "
    "list goes on."
)
_PROFILE = (
    "Measure: kernels that may change which plan is the best, then all other kernels, then the plans that would be "
    "listed, whole. The timing table remembers all of it, so that the same command goes on where it was stopped. There "
    "is no budget for it unless --budget is given."
)


def paths(
    target: str,
    /,
    *,
    limit: int = 10,
    start: Annotated[int | None, Parameter(name="--from", help=_FROM, show_default=False)] = None,
    state: Annotated[Path | None, Parameter(help=_STATE)] = None,
    profile: Annotated[bool, Parameter(negative=(), show_default=False, help=_PROFILE)] = False,
    search: Search = SEARCH,
    show: Show = SHOW,
) -> int:
    """List all plans of a model in rising predicted cost, and say how many there are.

    Equal blocks of a model are planned alike. Ctrl-C ends the list, or the measuring, and keeps what there is.

    Parameters
    ----------
    target
        FILE.py or FILE.py:NAME.
    limit
        How many to list.
    """
    require_some(limit, "--limit")
    if start is not None:
        require_some(start, "--from")
    if is_plan(target):
        raise UsageError(f"{target} is a plan, which is one path; give the model, as FILE.py")
    require_there(target)
    if profile:
        if start is not None or state is not None:
            kept = "keeps its state in the timing table"
            raise UsageError(f"--profile begins with the cheapest plan and {kept}; leave out --from and --state")
        return profile_models((target,), limit, Unhurried(**vars(search)), show)
    with working(show) as events:
        saved = _Saved.at(state, target, search.options())
        menu = saved.menu if saved.menu is not None else _menu(target, search, events)
        whole = not events.stop_requested
        data = _listed(menu, start or saved.following, limit, events)
        if whole:
            saved.write(menu, data["from"] + len(data["paths"]))
        elif state is not None:
            events.emit(Note(f"interrupted: these are the paths that were found by then; {state} is not written"))
    data["state"] = None if state is None or not whole else str(state)
    from waxeq.inspect.paths import paths_view

    finish(show, data, paths_view)
    return 130 if events.stop_requested else 0


def profile(
    *targets: str,
    list_: Annotated[Path | None, Parameter(name="--list", show_default=False)] = None,
    plans: Annotated[int | None, Parameter(show_default=False)] = None,
    scheduler: Annotated[str | None, Parameter(show_default=False)] = None,
    kind: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    search: Unhurried = UNHURRIED,
    show: Show = SHOW,
) -> int:
    """Measure models one after another: kernels that may change which plan is the best, all other kernels, whole plans.

    Meant to run beside other work, for as long as it likes: --budget is for each model, and there is none unless given.
    Timings are taken one at a time on a machine, by however many such commands. What was measured is in the timing
    table at once: stop it with Ctrl-C (exit code 130) or kill it, and the same command goes on from there. A model that
    fails does not keep the others from being measured; the exit code is that of the first that did.

    Parameters
    ----------
    targets
        FILE.py or FILE.py:NAME; any number.
    list_
        A file that names more of them, one a line, relative to its folder; # begins a comment.
    plans
        How many plans of each model to run whole, the cheapest first [default: 10].
    scheduler
        Time the kernels on the workers of a dask.distributed cluster, by the address of its scheduler
        (tcp://HOST:8786), on every kind of device that is there; no plan is run whole then. Needs the extra
        `distributed`.
    kind
        With --scheduler: time on this kind of device only, one that a first run or `waxeq db status` names (or how its
        name begins); may be repeated.
    """
    require_some(1 if plans is None else plans, "--plans")
    found = (*targets, *(read_list(list_) if list_ is not None else ()))
    if not found:
        raise UsageError("name a model to profile, as FILE.py, or a list of them with --list")
    for t in found:
        if is_plan(t):
            raise UsageError(f"{t} is a plan; give the model, as FILE.py")
    if scheduler is None:
        if kind:
            raise UsageError("--kind is for the workers of a cluster; name its scheduler with --scheduler")
        return profile_models(found, 10 if plans is None else plans, search, show)
    if plans is not None:
        raise UsageError("--plans is for this machine, and --scheduler times kernels only; leave one of them out")
    from waxeq.cli.cluster import spread_models

    return spread_models(found, scheduler, kind, search, show)


def profile_models(targets: Sequence[str], plans: int, search: Unhurried, show: Show) -> int:
    """Profile models and print what was found; the exit code. One that fails does not keep the others from being
    measured, unless it is alone."""
    with working(show) as events:
        options = search.options(trial=False)
        rows = each_model(targets, events, lambda target: _profiled(target, options, plans, events))
    from waxeq.inspect.paths import profile_view

    done = sum(r["failed"] is None and r["finished"] for r in rows)
    finish(show, {"models": rows, "total": len(targets), "finished": done}, profile_view)
    return code_of(rows, events)


def each_model(
    targets: Sequence[str], events: Events, measure: Callable[[str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """What measuring each model gives, until asked to stop; of several one that fails is told of."""
    rows: list[dict[str, Any]] = []
    for number, target in enumerate(targets, 1):
        if events.stop_requested:
            break
        if len(targets) > 1:
            events.emit(Note(f"{number} of {len(targets)}: {target}"))
        try:
            rows.append(measure(target))
        except WaxeqError as e:
            if len(targets) == 1:
                raise
            events.emit(Note(f"{target}: {e}"))
            rows.append({"target": target, "failed": str(e), "code": e.exit_code})
    return rows


def code_of(rows: Sequence[Mapping[str, Any]], events: Events) -> int:
    """The exit code of several models: 130 where it was stopped, else that of the first that failed."""
    return 130 if events.stop_requested else next((r["code"] for r in rows if r["failed"] is not None), 0)


def read_list(path: Path) -> tuple[str, ...]:
    """The models that a file names. Raises TargetError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise TargetError(f"the list {path} cannot be read: {getattr(e, 'strerror', None) or e}") from e
    names = [line.partition("#")[0].strip() for line in lines]
    return tuple(str(path.parent / n) for n in names if n)


def require_some(value: int, option: str) -> None:
    """Raise UsageError for a number below 1."""
    if value < 1:
        raise UsageError(f"{option} {value}: give 1 or more")


@contextmanager
def session_for(options: Options, events: Events, opened: Opened) -> Iterator[Session]:
    """A session in which Ctrl-C asks to stop."""
    from waxeq.search.session import Session

    admit_rules(options, events, opened.table)
    with events.on_interrupt(), Session.open(options, events, opened) as session:
        yield session


def _menu(target: str, search: Search, events: Events) -> Menu:
    from waxeq.inspect.report import path_call
    from waxeq.search.spread import Spread
    from waxeq.search.tables import table_to_look_with

    options = search.options(trial=False, fresh=True)
    traced = load(target)
    with session_for(options, events, table_to_look_with(options.table, events)) as session:
        spread = Spread(session, traced)
        return spread.menu(spread.listings(), path_call)


def _listed(menu: Menu, first: int, limit: int, events: Events) -> dict[str, Any]:
    """Paths of a menu from number `first` on, as plain data."""
    from waxeq.inspect.report import count, path_row

    rows: list[dict[str, Any]] = []
    best = None
    with events.on_interrupt():
        for number, path in enumerate(islice(menu.cheapest(), first + limit - 1), 1):
            best = path.seconds if best is None else best
            if number >= first:
                rows.append(path_row(number, path, menu))
            if events.stop_requested:
                break
    return {
        "model": menu.model, "from": first, "limit": limit, "best": best,
        "complete": len(rows) < limit and not events.stop_requested and menu.listed == menu.count,
        "count": count(menu.count), "listed": count(menu.listed), "unlike": count(menu.unlike),
        "repeated": any(p.repeats > 1 for p in menu.parts), "paths": rows,
    }  # fmt: skip


def _profiled(target: str, options: Options, plans: int, events: Events) -> dict[str, Any]:
    from waxeq.compile import assemble
    from waxeq.events import Deadline
    from waxeq.search.profile import profile as measure
    from waxeq.search.tables import open_table

    clock = Deadline(options.budget)
    traced: Traced = load(target)
    with session_for(options, events, open_table(options.table, events, strict=options.strict)) as session:
        found = measure(session, traced, assemble, plans=plans, clock=clock)
    return {"target": target, "failed": None, **profiled_row(found)}


def profiled_row(found: Profiled) -> dict[str, Any]:
    """What a profile of one model found, as plain data: times in seconds, memory in bytes."""
    from waxeq.inspect.report import count

    rows, fastest = [], found.fastest
    for i, (path, ran) in enumerate(found.plans):
        low, high = ran.quartiles
        rows.append({
            "number": i + 1, "predicted": path.seconds, "seconds": ran.seconds, "low": low, "high": high,
            "fastest": i in fastest, "rms": ran.rms_error, "max": ran.max_error, "peak": ran.peak_bytes,
            "kernels": ran.kernels, "remembered": ran.remembered,
        })  # fmt: skip
    return {
        "model": found.menu.model, "count": count(found.menu.count), "timings": found.timings,
        "decisive": found.decisive, "unmeasured": found.unmeasured, "undecided": found.undecided,
        "finished": found.finished, "interrupted": found.interrupted, "seconds": found.seconds, "plans": rows,
        "winner": None if found.winner is None else found.winner + 1,
    }  # fmt: skip


class _Saved:
    """The file of `--state`: what was found, for which model and options, and the number of the next path."""

    def __init__(self, path: Path | None, about: dict[str, str], menu: Menu | None, following: int) -> None:
        self.path, self.about, self.menu, self.following = path, about, menu, following

    @staticmethod
    def at(path: Path | None, target: str, options: Options) -> _Saved:
        """What lies at `path`, or nothing yet. Raises PlanError for another file, UsageError for that of another model
        or of other options."""
        from waxeq.frontend.load import parted
        from waxeq.runtime.files import require_writable
        from waxeq.search.paths import Menu

        if path is None:
            return _Saved(None, {}, None, 1)
        source = _hash_of(Path(parted(target)[0]))
        about = {"target": target, "source": source, "options": options.fingerprint()}
        about |= {f"rules {n}": _hash_of(rules) for n, rules in enumerate(options.rules)}
        if not os.path.exists(path):  # Path.exists raises where a folder may not be looked into
            require_writable(path, "--state")
            return _Saved(path, about, None, 1)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            was, following, menu = data["about"], int(data["next"]), Menu.from_json(data["menu"])
        except PlanError as e:
            raise PlanError(f"{path} cannot be used: {e}") from e
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise PlanError(f"{path} cannot be used: it is no list of paths; name another file with --state") from e
        other = next((k for k in {**about, **was} if was.get(k) != about.get(k)), None)
        if other is not None:
            what = {"target": f"of {was.get('target')}", "source": "of the model before it was changed"}
            found = what.get(other, "that were found with other options")
            raise UsageError(f"{path} holds paths {found}; remove it, or name another file with --state")
        return _Saved(path, about, menu, following)

    def write(self, menu: Menu, following: int) -> None:
        """Keep the list and how far it has come."""
        from waxeq.runtime.files import write_atomically

        if self.path is not None:
            data = {"about": self.about, "next": following, "menu": menu.to_json()}
            write_atomically(self.path, json.dumps(data).encode(), "--state")


def _hash_of(path: Path) -> str:
    """Of the text of a file, of the model or of rules; empty where it cannot be read, which loading it will say."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
