"""Running a check: a process that goes from case to case, and one that watches it and starts it again.

A kernel that fails on a GPU may leave nothing there that works, and one that hangs never ends: the process that ran it
is given up then, what it was at is noted, and the next one goes on behind that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from calibration.gpu.check import Check
from calibration.gpu.journal import BEGUN, DIED, FAILED, LEFT_OUT, RIGHT, Journal
from calibration.gpu.kit import Kit
from calibration.gpu.report import ends, write_asked, write_summary
from calibration.gpu.sections import SECTIONS

from waxeq.errors import AccuracyError, BudgetError, UsageError

DONE, WRONG, LATE, AGAIN = 0, AccuracyError.exit_code, BudgetError.exit_code, 75
"""Exit codes: all was tried and is right; something is not; the time was up first; (of the process that is watched) the
GPU does not answer any more, start another."""
_PATIENCE = 120.0
"""Seconds that one case may take."""
_GRACE = 20.0
"""Seconds that a case which was begun in time may go on for once the time is up."""
_LOOK, _MOST = 0.1, 1.0
"""Seconds between two looks at what was found; those that one look counts for at most."""
SHARES: Mapping[str, float] = {
    "machine": 0.1, "correct": 0.3, "target": 0.35, "plan": 0.4, "against": 0.5, "grid": 0.4, "sanitized": 0.6,
    "compiled": 1.0,
}  # fmt: skip
"""The part of what those before it leave that a section may take; what it does not, is for those behind it."""


@dataclass(frozen=True)
class Task:
    """`out`: the folder for what is found; `only`: sections, or all; `until`: seconds since 1970."""

    kit: Path
    out: Path
    only: tuple[str, ...]
    until: float

    def check(self) -> None:
        """Raise UsageError for a section that does not exist."""
        if unknown := sorted(set(self.only) - set(SECTIONS)):
            raise UsageError(f"there is no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")

    @property
    def sections(self) -> Sequence[str]:
        """What is to be done, in order."""
        return [s for s in SECTIONS if s in self.only or not self.only]


def work(task: Task, say: Callable[[str], object]) -> int:
    """Go through what has no outcome yet; an exit code. What a section has no time for comes after all others had
    theirs. Raises MissingDevice, PlanError, UsageError."""
    watcher = os.getppid()
    c = Check.of(Kit.read(task.kit), task.out)

    def late(until: float) -> bool:
        return time.time() > until or os.getppid() != watcher  # whoever was killed watches no more

    write_asked(task.out, {s: [case for case, _ in SECTIONS[s](c)] for s in task.sections})
    cut = False
    until = ends(task.out, task.until, SHARES, time.time())
    for section in task.sections:
        code = _section(c, section, partial(late, until[section]), say)
        if code == AGAIN:
            return AGAIN
        cut |= code == LATE
    for section in task.sections if cut else ():
        if code := _section(c, section, partial(late, task.until), say):
            return code
    return DONE


def _section(c: Check, section: str, late: Callable[[], bool], say: Callable[[str], object]) -> int:
    """Go through what a section has left, until it is `late`; DONE, LATE or AGAIN."""
    for case, run in SECTIONS[section](c):
        if (section, case) in c.journal.done:
            continue
        if late():
            say(f"{section}: its time is up")
            return LATE
        c.journal.begin(section, case)
        try:
            outcome, found = run()
        except ImportError as e:
            outcome, found = LEFT_OUT, {"why": str(e)}
        except Exception as e:
            outcome, found = FAILED, {"why": f"{type(e).__name__}: {e}"}
        c.journal.add(section, case, outcome, **found)
        say(f"{section}: {case}: {outcome}{_why(found)}")
        if outcome not in (RIGHT, LEFT_OUT) and not _answers(c):
            return AGAIN
    write_summary(c.journal, c.out)
    return DONE


def _why(found: dict) -> str:
    return f", {found['why']}" if "why" in found else ""


def _answers(c: Check) -> bool:
    """Whether the GPU still works."""
    try:
        c.storage.wait()
        return True
    except Exception:
        return False


def watch(task: Task, again: Sequence[str], say: Callable[[str], object]) -> int:
    """Have processes (started by `again`) work until all is done or time is up; an exit code. The summary is written
    however it ends."""
    results = task.out / "results.jsonl"
    try:
        code = _until_done(task, results, again, say)
    finally:
        if Journal(results).rows:
            write_summary(Journal(results), task.out)
    bad = any(r["outcome"] not in (BEGUN, RIGHT, LEFT_OUT) for s in task.sections for r in Journal(results).of(s))
    return WRONG if bad and code in (DONE, LATE) else code


def _until_done(task: Task, results: Path, again: Sequence[str], say: Callable[[str], object]) -> int:
    while True:
        before = len(Journal(results).rows)
        code = _watched(again, results, task.until + _GRACE)
        journal = Journal(results)
        if code is None and time.time() > task.until:  # the case that was cut off is tried again the next time
            return LATE
        if code in (DONE, LATE) or (code not in (AGAIN, None) and len(journal.rows) == before):
            return code or DONE
        if code != AGAIN and journal.open is not None:
            ended = "it was stopped: it hung" if code is None else f"its process ended with code {code}"
            journal.add(*journal.open, DIED, why=ended)
            say(f"{': '.join(journal.rows[-1][k] for k in ('section', 'case'))}: {ended}")
        if time.time() > task.until:
            return LATE


def _watched(again: Sequence[str], results: Path, until: float) -> int | None:
    """The exit code of a process that works; None for one that was stopped: it did not come on for long, or it was not
    done by `until`."""
    with subprocess.Popen(again) as process:
        size, waited, last = -1, 0.0, time.monotonic()
        try:
            while (code := process.poll()) is None:
                time.sleep(_LOOK)
                now, at = results.stat().st_size if results.exists() else 0, time.monotonic()
                waited += min(at - last, _MOST)  # whoever was stopped for minutes has not waited for that long
                last = at
                if now != size:
                    size, waited = now, 0.0
                if waited > _PATIENCE or time.time() > until:
                    process.kill()
                    process.wait()
                    return None
        except BaseException:
            process.terminate()
            raise
    return code


def again(task: Task) -> list[str]:
    """The command that works on a task without being watched."""
    line = [sys.executable, sys.argv[0], "--child", "--kit", str(task.kit), "--out", str(task.out)]
    return [*line, "--until", str(task.until), *(x for s in task.only for x in ("--only", s))]
