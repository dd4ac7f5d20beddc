"""waxeq.lock: what a plan was made from, and the plan, so that it can be had again byte for byte.

A lock holds an entry for each model that was locked into it: the plan; hashes of the model, of each file of rules, of
each kernel and of the timings the search began and ended with; the options, seed included; versions; the device. With
it nothing is searched: what is here is compared with what is locked, and where all of it is the same the plan is taken,
bound to the model's weights and checked against float64 as ever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from waxeq.cost.device import Device
from waxeq.cost.table import TimingTable
from waxeq.egraph.installed import rule_files
from waxeq.errors import LockError, PlanError
from waxeq.events import Events, Note
from waxeq.frontend.trace import Traced
from waxeq.ir.array import content
from waxeq.ir.text import print_graph
from waxeq.naming import option
from waxeq.options import Options
from waxeq.plan.encode import decode, encode
from waxeq.runtime.alone import left, lock_path, taken
from waxeq.runtime.files import read_bytes, require_writable, write_atomically
from waxeq.runtime.verify import require
from waxeq.search.result import Report, Result
from waxeq.search.session import Session
from waxeq.search.tables import Opened
from waxeq.search.trial import Proofs

NAME = "waxeq.lock"
FORMAT = 1
_VERSIONS = ("waxeq", "numpy", "egglog", "highspy")
_WAIT = 60.0
"""Seconds that another process may take to write its entry."""
_OURS = b'"waxeq_lock"'
"""What a lock begins with, as far as it was written: what has it not is somebody else's, and stays."""
_ASIDE = {"rules", "table", "strict", "fresh", "trial", "measure", "budget", "max_memory", "lock", "locked"}
"""Options that change nothing about a plan that is taken, or are told apart by what they name."""


class Locked(BaseModel):
    """One model's entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    seed: int
    options: dict[str, Any]
    versions: dict[str, str]
    device: dict[str, Any]
    rules: dict[str, str]
    kernels: dict[str, str]
    table: str
    plan: dict[str, Any]


class Lock(BaseModel):
    """A lock file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    waxeq_lock: int = Field(ge=1)
    models: dict[str, Locked]
    sha256: str


@dataclass(frozen=True)
class Subject:
    """What is locked: the name it is locked under, a hash of what it computes, and the file and function it is from."""

    name: str
    digest: str
    origin: tuple[str, str] | None

    @property
    def path(self) -> Path:
        """Where its lock lies: beside the model, or here where that lies in no file."""
        return Path(self.origin[0]).parent / NAME if self.origin else Path(NAME)


def subject(traced: Traced) -> Subject:
    """A model of one size."""
    return Subject(traced.name, model_hash(traced), traced.origin)


def read(path: Path) -> Lock:
    """The lock at `path`. Raises LockError, one sentence, for what is none."""
    try:
        text = read_bytes(path, "`waxeq optimize --lock FILE` and wx.Options(lock=FILE) write one")
    except PlanError as e:
        raise LockError(str(e)) from e
    try:
        data = json.loads(text)
        lock = Lock.model_validate(data)
    except ValidationError as e:
        first, fix = e.errors()[0], _mend() if _OURS in text else _other()
        place = ".".join(map(str, first["loc"])) or "it"
        raise LockError(f"{path} is no lock of waxeq: {place}: {first['msg']}; {fix}") from e
    except (ValueError, RecursionError) as e:
        if text and _OURS not in text[:64]:
            raise LockError(f"{path} is no lock of waxeq; {_other()}") from e
        raise LockError(f"{path} is damaged or cut off; {_mend()}") from e
    if lock.waxeq_lock != FORMAT:
        raise LockError(f"{path} is a lock of version {lock.waxeq_lock}, this waxeq reads version {FORMAT}; {_anew()}")
    if lock.sha256 != _digest(data["models"]):
        raise LockError(f"{path} was changed by hand or damaged; {_mend()}")
    return lock


def write(session: Session, traced: Traced, result: Result) -> None:
    """Lock a result into the file that the options name; what else is locked there stays. Raises LockError."""
    if session.options.lock is not None:
        lock(session, subject(traced), encode(result.plan))


def lock(session: Session, what: Subject, plan: Mapping[str, Any]) -> None:
    """Lock a plan, as the data of its file; one process after another, so that no entry is lost. Raises LockError."""
    path, entry = session.options.lock or what.path, _entry(session, what, plan).model_dump()
    with _turn(path):
        if session.events.stop_requested and path.exists() and what.name in read(path).models:
            session.events.emit(Note(f"interrupted: {path} keeps the plan of {what.name} that was locked in it"))
            return
        _put(path, what.name, entry)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Inside, no other process changes the file. Raises LockError where that cannot be had."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    turn = lock_path().with_name(f"waxeq-lock-{digest}")
    try:
        held = taken(turn, _WAIT)
    except TimeoutError as e:
        raise LockError(f"{path} has been in use by another process for {_WAIT:.0f} s ({turn}); try again later") from e
    except OSError as e:
        raise LockError(f"the lock {turn} cannot be used: {e.strerror or e}; name another in WAXEQ_TIMING_LOCK") from e
    try:
        yield
    finally:
        left(turn, held)


def _put(path: Path, name: str, entry: Mapping[str, Any]) -> None:
    models = read(path).model_dump()["models"] if path.exists() else {}
    models[name] = dict(entry)
    models = json.loads(json.dumps(models, sort_keys=True))
    data = {"waxeq_lock": FORMAT, "models": models, "sha256": _digest(models)}
    try:
        write_atomically(path, (json.dumps(data, indent=1) + "\n").encode(), option("lock"))
    except PlanError as e:
        raise LockError(str(e)) from e


def require_lockable(options: Options) -> None:
    """Raise LockError before the work where a lock could not be written after it."""
    if options.lock is None or options.locked:
        return
    try:
        require_writable(options.lock, option("lock"))
    except PlanError as e:
        raise LockError(str(e)) from e
    if options.lock.exists():
        read(options.lock)


def reproduce(options: Options, events: Events, traced: Traced, opened: Opened | None = None) -> Result:
    """The locked plan of a model, checked against float64. Options that were not given are as they are locked.

    Raises LockError that names everything that is not as it was locked, with both values and what to do; AccuracyError
    when the plan does not compute the model on its weights.
    """
    with unlocked(options, events, subject(traced), opened) as found:
        result = _result(found.session, traced, found)
        rows = Proofs(found.session, traced, None).accuracy(result)
        require(rows, found.session.options.tolerance)
        notes, kept = (*traced.notes, *found.notes), f"{found.path} locks it" if result.plan.written else None
        spent = found.session.deadline.elapsed
        about = Report(1, result.plan.predicted, seconds=spent, accuracy=rows, notes=notes, kept=kept)
        return replace(result, report=about)


@dataclass(frozen=True)
class Unlocked:
    """A locked plan, as the data of its file, in a session in which all is as it was locked."""

    session: Session
    path: Path
    plan: Mapping[str, Any]
    notes: tuple[str, ...]


@contextmanager
def unlocked(options: Options, events: Events, what: Subject, opened: Opened | None) -> Iterator[Unlocked]:
    """What is locked of a subject. Raises LockError that names everything that is not as it was locked."""
    path = options.lock or what.path
    models = read(path).models
    if what.name not in models:
        held = _few(models) or "nothing"
        raise LockError(f"{path} locks {held}, and not {what.name}; lock it with {option('lock')}, as {path}")
    entry = models[what.name]
    given = {n: getattr(options, n) for n in options.model_fields_set}
    chosen = Options(**{**entry.options, **given})  # pyright: ignore[reportArgumentType]
    with Session.open(chosen, events, opened) as session:
        differences = _differences(session, what, entry, set(given))
        if differences:
            said = "; ".join(f"{d.what} is {d.here}, locked {d.locked} ({d.fix})" for d in differences)
            raise LockError(f"{path} does not fit: {said}")
        notes = [*session.notes, f"the plan is the one that {path} locks; nothing was searched"]
        if entry.table != snapshot(session.table, session.device.id):
            notes.append("the timing table has changed since the plan was locked: a new search might find another one")
        events.emit(Note(notes[-1]))
        yield Unlocked(session, path, entry.plan, tuple(notes))


def snapshot(table: TimingTable, device: str) -> str:
    """A hash of the timings that a search on a device begins with."""
    found = hashlib.sha256()
    for t in table.families(device):
        found.update(f"{t.key.digest}:{t.when!r}:{t.samples!r}\n".encode())
    return found.hexdigest()


def model_hash(traced: Traced) -> str:
    """A hash of what a model computes: its graph, without the places in its source, its constants, the structure of its
    results; not of its weights' values."""
    return graph_hash(print_graph(traced.graph), traced.structure, traced.graph.constants)


def graph_hash(text: str, structure: object, constants: Mapping[str, np.ndarray]) -> str:
    """The same of a graph that is text already."""
    lines = [line.partition("  # ")[0] for line in text.splitlines()]
    found = hashlib.sha256("\n".join([*lines, repr(structure)]).encode())
    for name, a in sorted(constants.items()):
        found.update(f"{name}:{a.dtype}:{a.shape}".encode())
        found.update(content(a))
    return found.hexdigest()


@dataclass(frozen=True)
class Differs:
    """One thing that is not as it was locked."""

    what: str
    here: str
    locked: str
    fix: str


def _entry(session: Session, what: Subject, plan: Mapping[str, Any]) -> Locked:
    return Locked(
        model=what.digest,
        seed=session.options.seed,
        options=json.loads(session.options.model_dump_json(exclude=_ASIDE)),
        versions=_versions(),
        device={f.name: getattr(session.device, f.name) for f in fields(Device)},
        rules=_rules(session),
        kernels=_kernels(session),
        table=snapshot(session.table, session.device.id),
        plan=json.loads(json.dumps(plan)),
    )


def _versions() -> dict[str, str]:
    return {n: version(n) for n in _VERSIONS}


def _rules(session: Session) -> dict[str, str]:
    """A hash of each file of rules, by its name: those of one name together, in the order in which they are used."""
    files = [(p.name, p.read_text(encoding="utf-8")) for p in rule_files()]
    texts: dict[str, list[str]] = {}
    for name, text in (*files, *((f.path.name, f.text) for f in session.own_rules)):
        texts.setdefault(name, []).append(text)
    return {n: _short("\0".join(t)) for n, t in texts.items()}


def _kernels(session: Session) -> dict[str, str]:
    """A hash of each kernel, and of what takes its calls in plans for ranges of sizes where that is another one."""
    rows = {n: f"{k.form}:{k.pattern}:{k.code}" for n, k in session.kernels.items()}
    rows |= {f"{n} at all sizes": k.sized.code for n, k in session.kernels.items() if k.sized is not None}
    return {n: _short(text) for n, text in rows.items()}


def _differences(session: Session, what: Subject, entry: Locked, given: set[str]) -> list[Differs]:
    """Everything that is not as it was locked, the model first."""
    found: list[Differs] = []
    if what.digest != entry.model:
        fix = f"the model computes something else than the one that was locked; go back to that one, {_anew()}"
        found.append(Differs(f"model {what.name}", what.digest[:12], entry.model[:12], fix))
    here = json.loads(session.options.model_dump_json(exclude=_ASIDE))
    chosen = {n: (here.get(n), v) for n, v in entry.options.items() if n in given and here.get(n) != v}
    found += [
        Differs(f"option {n}", str(a), str(b), f"leave out {option(n)}, {_anew()}") for n, (a, b) in chosen.items()
    ]
    device = {f.name: getattr(session.device, f.name) for f in fields(Device)}
    found += _changed("device's", device, entry.device, lambda n, _: f"use the device it was locked for, {_anew()}")
    found += _changed("version of", _versions(), entry.versions, lambda n, v: f"pip install {n}=={v}, {_anew()}")
    found += _changed("rules", _rules(session), entry.rules, lambda n, _: f"bring {n} back, with {option('rules')} "
                      f"if it is your own, {_anew()}")  # fmt: skip
    mended = "use the waxeq, the compiler and the libraries it was locked with"
    kernels = _kernels(session)
    if chosen:  # which kernels may run follows from tolerance and backends
        kernels = {**entry.kernels, **{n: k for n, k in kernels.items() if n in entry.kernels}}
    return found + _changed("kernel", kernels, entry.kernels, lambda n, _: f"{mended}, {_anew()}")


def _changed(what: str, here: Mapping[str, Any], locked: Mapping[str, Any], fix: Any) -> list[Differs]:
    rows = []
    for n in sorted({*here, *locked}):
        a, b = here.get(n, "not there"), locked.get(n, "not there")
        if a != b:
            rows.append(Differs(f"{what} {n}", str(a), str(b), fix(n, b)))
    return rows


def _result(session: Session, traced: Traced, found: Unlocked) -> Result:
    try:
        plan = decode(found.plan, traced.graph.constants)
        plan = plan if plan.written else plan.check()
    except (PlanError, KeyError, ValueError, TypeError) as e:
        raise damaged(found.path) from e
    return Result(plan, traced.tensors, session.kernels, ())


def _anew() -> str:
    return f"or lock it anew with {option('lock')}"


def _mend() -> str:
    return f"remove it, and make it anew with {option('lock')}"


def _other() -> str:
    return f"name another file with {option('lock')}"


def damaged(path: Path) -> LockError:
    """The plan in a lock is none."""
    return LockError(f"the plan that {path} locks is damaged; {_mend()}")


def _few(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _digest(models: Any) -> str:
    return hashlib.sha256(json.dumps(models, sort_keys=True).encode()).hexdigest()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
