"""Files that are whole or absent."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from waxeq.errors import PlanError


def write_atomically(path: str | Path, data: bytes, option: str = "") -> None:
    """Write a file so that it is seen either whole or not at all. Raises PlanError when it cannot be written; `option`
    names another place."""
    write_together({Path(path): data}, option)


def write_together(files: Mapping[Path, bytes], option: str = "") -> None:
    """Write files that belong together: an interruption leaves all as they were, or all new. Raises PlanError when one
    cannot be written; `option` names another place."""
    waiting: list[tuple[str, Path]] = []
    path = Path()
    try:
        for path, data in files.items():
            name = str(path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            waiting.append((name, path))
            with open(name, "xb") as f:  # a temporary file of the library would be for its owner alone
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
        try:
            _put(waiting)
        except KeyboardInterrupt:  # what has begun is finished first
            _put(waiting)
            raise
    except OSError as e:
        raise _refused(path, e, option) from e
    finally:
        for name, _ in waiting:
            with contextlib.suppress(OSError):
                os.unlink(name)


def _refused(path: Path, e: OSError, option: str) -> PlanError:
    """What to say of a place that cannot be written to; without an option it is an argument that names it."""
    return PlanError(f"{path} cannot be written: {e.strerror or e}; name another place{option and ' with '}{option}")


def _put(waiting: list[tuple[str, Path]]) -> None:
    """Move files that are whole to their places."""
    while waiting:
        name, path = waiting[0]
        if os.path.exists(name):  # an interruption may come between the two lines below
            os.replace(name, path)
        del waiting[0]


def read_plan_bytes(path: Path) -> bytes:
    """The content of a plan file, whatever it is. Raises PlanError."""
    if os.path.isdir(path):
        raise PlanError(f"{path} is a folder; give a plan file in it, as {path / 'model.plan.json'}")
    return read_bytes(path, "`waxeq optimize` and Result.save write plans")


def read_bytes(path: str | Path, missing: str = "") -> bytes:
    """The content of a file. Raises PlanError when it cannot be read, `missing` says more when it is not there."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as e:
        raise PlanError(f"{path}: no such file{missing and '; '}{missing}") from e
    except (OSError, ValueError) as e:
        raise PlanError(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}") from e


def require_writable(path: str | Path, option: str = "") -> None:
    """Raise PlanError when a file could not be written there: before the work, not after it. `option` names another
    place."""
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as e:
        raise _refused(path, e, option) from e
