"""Texts that are kept from process to process: below `text` in the cache of a user, one file for each name, in whose
place the next text of that name is put."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_STALE = 24 * 3600.0
"""Seconds after which whoever began to write a file no longer does."""


def read(name: str, key: str) -> str | None:
    """The text that was kept last under a name, if it was under this key and is whole."""
    try:
        seal, _, text = _path(name).read_text(encoding="utf-8").partition("\n")
    except (OSError, ImportError, UnicodeDecodeError):
        return None
    return text if seal == _seal(key, text) else None


def write(name: str, key: str, text: str) -> None:
    """Keep a text under a name, in the place of what was kept there; where nothing can be written, nothing is."""
    with suppress(OSError, ImportError):
        path = _path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _tidy(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{_seal(key, text)}\n{text}")
            os.replace(temporary, path)  # others see all of it or nothing
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _tidy(folder: Path) -> None:
    """Remove what writers that were killed left behind."""
    for left in folder.glob(".*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _STALE:
                left.unlink()


def _seal(key: str, text: str) -> str:
    return sha256(f"{key}\n{text}".encode()).hexdigest()


def _path(name: str) -> Path:
    """The file of a name. Raises OSError for a user without a home, ImportError without platformdirs, which plans run
    without."""
    folder = os.environ.get("WAXEQ_CACHE")
    if not folder:
        from platformdirs import user_cache_dir

        folder = user_cache_dir("waxeq")
    folder = os.path.expanduser(folder)
    if folder.startswith("~"):
        raise FileNotFoundError(folder)
    tag = f"{sys.implementation.cache_tag}.{name}"  # Pythons differ in their syntax, and take turns
    return Path(folder).absolute() / "text" / sha256(tag.encode()).hexdigest()[:20]
