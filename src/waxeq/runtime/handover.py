"""Arrays that another process of this machine is given: through memory where there is enough, else through a file.

The memory has no name that others see: it is free again once nobody holds it, however a process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from waxeq.errors import WaxeqError
from waxeq.ir.array import content
from waxeq.ir.types import numpy_dtype
from waxeq.runtime.room import available

_ROOM = 4
"""Memory is used while there is so many times as much: others need some too."""
_LINE = 64

Groups = Mapping[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Handed:
    """A file of arrays in `groups`, and for each of them: group, name, dtype, shape, and where it begins in bytes.
    `held`: the descriptors that a process must inherit to open it."""

    path: str
    groups: tuple[str, ...]
    rows: tuple[tuple[str, str, str, tuple[int, ...], int], ...]
    held: tuple[int, ...] = ()

    def taken(self) -> dict[str, dict[str, np.ndarray]]:
        """The arrays, by group and name, in memory of this process; of a group without any, none."""
        flat = np.memmap(self.path, np.uint8, "r")
        found: dict[str, dict[str, np.ndarray]] = {g: {} for g in self.groups}
        for group, name, dtype, shape, at in self.rows:
            a = np.empty(shape, numpy_dtype(dtype))
            a.reshape(-1).view(np.uint8)[:] = flat[at : at + a.nbytes]
            found[group][name] = a
        return found


@contextmanager
def handed(groups: Groups) -> Iterator[Handed]:
    """Inside, processes that are started can take these arrays. Raises WaxeqError where there is no room for them."""
    size = sum(a.nbytes for arrays in groups.values() for a in arrays.values())
    if _fits(size):
        with open(os.memfd_create("waxeq"), "wb") as f:
            yield Handed(f"/proc/self/fd/{f.fileno()}", tuple(groups), _written(f, groups), (f.fileno(),))
        return
    with tempfile.TemporaryDirectory(prefix="waxeq-") as folder:
        path = Path(folder) / "arrays"
        try:
            with open(path, "wb") as f:
                rows = _written(f, groups)
        except OSError as e:
            raise WaxeqError(f"{path} cannot be written: {e.strerror or e}; set TMPDIR to a place with room") from e
        yield Handed(str(path), tuple(groups), rows)


def _written(f: BinaryIO, groups: Groups) -> tuple[tuple[str, str, str, tuple[int, ...], int], ...]:
    """What was written of each array, all of it on its way to the file."""
    rows = list[tuple[str, str, str, tuple[int, ...], int]]()
    f.write(bytes(_LINE))  # what has no byte cannot be mapped
    for group, arrays in groups.items():
        for name, a in arrays.items():
            rows.append((group, name, str(a.dtype), a.shape, f.tell()))
            f.write(content(a))
            f.write(bytes(-f.tell() % _LINE))
    f.flush()
    return tuple(rows)


def _fits(size: int) -> bool:
    """Whether memory without a name can be had, and so many bytes of it."""
    return hasattr(os, "memfd_create") and available() > _ROOM * size
