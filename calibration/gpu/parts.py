"""What was made of a kit so far, beside where it will lie: making one that was cut off goes on from there."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from waxeq.runtime.files import write_atomically


class Parts:
    """Files in a folder, each whole or absent, by what decides them."""

    def __init__(self, kit: Path) -> None:
        self.folder = kit.with_name(kit.name + ".parts")
        self.folder.mkdir(parents=True, exist_ok=True)

    def _place(self, *key: str) -> Path:
        return self.folder / sha256("\0".join(key).encode()).hexdigest()[:32]

    def row(self, *key: str) -> Any:
        """A value of JSON that was kept; None where there is none."""
        place = self._place(*key)
        return json.loads(place.read_bytes()) if place.exists() else None

    def keep(self, value: Any, *key: str) -> None:
        """Keep a value of JSON."""
        write_atomically(self._place(*key), json.dumps(value).encode())

    def files(self, make: Callable[[], Mapping[str, bytes]], *key: str) -> Mapping[str, bytes]:
        """Files by name: those that were kept, or what `make` makes, kept from now on."""
        place = self._place(*key)
        if not place.exists():
            made = BytesIO()
            with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as z:
                for name, content in make().items():
                    z.writestr(name, content)
            write_atomically(place, made.getvalue())
        with zipfile.ZipFile(place) as z:
            return {n: z.read(n) for n in z.namelist()}

    def remove(self) -> None:
        """The kit is written: nothing of this is needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)
