"""Where `waxeq optimize` writes what it found: never a plan of a search that was cut short over one that was there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

_ENDS = (".plan.json", ".json")


@dataclass(frozen=True)
class Place:
    """The place of a plan; `kept`: a sentence where it is beside the one that was asked for."""

    path: Path
    kept: tuple[str, ...] = ()

    def told(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """A report with what is to be said of the place among its notes."""
        return {**report, "notes": [*report["notes"], *self.kept]}


def place_of(path: Path, *, interrupted: bool) -> Place:
    """Where a plan goes that was to be written to `path`. How two plans compare is not known without timing both, for
    which nobody waits who pressed Ctrl-C: one that was there stays, and the new one lies beside it, by a name that
    nothing has, be it a plan or not."""
    if not interrupted or not os.path.lexists(path):
        return Place(path)
    from waxeq.runtime.save import tensors_path

    beside = next(p for p in _beside(path) if not any(map(os.path.lexists, (p, tensors_path(p)))))
    return Place(
        beside,
        (f"interrupted: the plan that was in {path} stays as it was, and this search's lies in {beside}; "
         "`waxeq bench` times either",),
    )  # fmt: skip


def _beside(path: Path) -> Iterator[Path]:
    """Names beside a plan, for those of searches that were cut short."""
    end = next(e for e in _ENDS if path.name.endswith(e))
    for n in count(1):
        yield path.with_name(f"{path.name.removesuffix(end)}.interrupted{'' if n == 1 else f'-{n}'}{end}")
