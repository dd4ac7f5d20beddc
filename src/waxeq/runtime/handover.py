"""Arrays that another process of this machine is given: through memory where there is enough, else through a file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from waxeq.ir.types import numpy_dtype

_MEMORY = Path("/dev/shm")
_ROOM = 4
"""A folder in memory is used while it has so many times as much room: others need some too."""
_LINE = 64

Groups = Mapping[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Handed:
    """A file of arrays, and for each of them: group, name, dtype, shape, and where it begins in bytes."""

    path: str
    rows: tuple[tuple[str, str, str, tuple[int, ...], int], ...]

    def taken(self) -> dict[str, dict[str, np.ndarray]]:
        """The arrays, by group and name, in memory of this process."""
        flat = np.memmap(self.path, np.uint8, "r")
        groups: dict[str, dict[str, np.ndarray]] = {}
        for group, name, dtype, shape, at in self.rows:
            a = np.empty(shape, numpy_dtype(dtype))
            a.reshape(-1).view(np.uint8)[:] = flat[at : at + a.nbytes]
            groups.setdefault(group, {})[name] = a
        return groups


@contextmanager
def handed(groups: Groups) -> Iterator[Handed]:
    """Inside, other processes can take these arrays."""
    size = sum(a.nbytes for arrays in groups.values() for a in arrays.values())
    with tempfile.TemporaryDirectory(prefix="waxeq-", dir=_folder(size)) as folder:
        path, rows = Path(folder) / "arrays", list[tuple[str, str, str, tuple[int, ...], int]]()
        with open(path, "wb") as f:
            f.write(bytes(_LINE))  # what has no byte cannot be mapped
            for group, arrays in groups.items():
                for name, a in arrays.items():
                    rows.append((group, name, str(a.dtype), a.shape, f.tell()))
                    f.write(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
                    f.write(bytes(-f.tell() % _LINE))
        yield Handed(str(path), tuple(rows))


def _folder(size: int) -> Path | None:
    """A folder in memory with room for so many bytes; None for the usual place of temporary files."""
    try:
        return _MEMORY if shutil.disk_usage(_MEMORY).free > _ROOM * size else None
    except OSError:
        return None
