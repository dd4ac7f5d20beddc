"""Files that several processes write."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

HALF = "."
"""How the name of a file begins that is not whole: of a process that was killed it stays."""


def replace(path: Path, data: bytes) -> None:
    """Writes a file that others see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=HALF)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
