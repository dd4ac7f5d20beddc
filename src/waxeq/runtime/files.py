"""Files that are whole or absent."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from waxeq.errors import PlanError


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write a file so that it is seen either whole or not at all. Raises PlanError when it cannot be written."""
    path = Path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as f:
            temporary = f.name
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except OSError as e:
        raise PlanError(f"{path} cannot be written: {e.strerror or e}; name another place with --output") from e
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file. Raises PlanError when it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise PlanError(f"{path} cannot be read: {e.strerror or e}") from e


def require_writable(path: str | Path) -> None:
    """Raise PlanError when a file could not be written there: before the work, not after it."""
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as e:
        raise PlanError(f"{path} cannot be written: {e.strerror or e}; name another place with --output") from e
