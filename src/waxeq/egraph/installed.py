"""Rule files that are installed, found through the entry-point group `waxeq.rules`: waxeq's own as a plug-in's."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from waxeq.backend.discover import failure
from waxeq.errors import TargetError


def rule_files() -> tuple[Path, ...]:
    """Every installed rule file, by entry point and then by name. Raises TargetError that names the plug-in whose
    folder cannot be had: without its rules other plans would be found, and nobody told."""
    found: list[Path] = []
    for e in _entry_points(tuple((place, _changed(place)) for place in sys.path)):
        found += _files(e)
    return tuple(found)


def _files(e: EntryPoint) -> list[Path]:
    try:
        folder = Path(e.load()())
    except (Exception, SystemExit) as err:
        raise _refused(e, failure(err)) from err
    if not folder.is_dir():
        raise _refused(e, f"it names {folder}, which is no folder")
    files = sorted(folder.glob("*.egg"))
    if not files:
        raise _refused(e, f"no .egg file lies in its folder {folder}")
    return files


def _refused(e: EntryPoint, why: str) -> TargetError:
    where = f"{e.dist.name} {e.dist.version}" if e.dist else "an unknown package"
    name = e.dist.name if e.dist else e.value
    return TargetError(
        f"the rule plug-in {e.name} of {where} ({e.value}) cannot be used: {why}; it is to name a function that "
        f"returns a folder of .egg files: mend it, or pip uninstall {name}"
    )


@cache
def _entry_points(_places: tuple[tuple[str, int | None], ...]) -> tuple[EntryPoint, ...]:
    """By name, of all that is installed in these places: to look takes as long as to read every rule, and a search asks
    four times."""
    return tuple(sorted(entry_points(group="waxeq.rules"), key=lambda e: e.name))


def _changed(place: str) -> int | None:
    """When something was installed there last; None where there is nothing."""
    try:
        return os.stat(place or os.curdir).st_mtime_ns
    except OSError:
        return None
