"""What the sections of a check work with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from calibration.gpu.journal import Journal, append
from calibration.gpu.kit import Item, Kit
from calibration.gpu.targets import Target, calls, targets

import waxeq_cupy
from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import DeviceArray, Storage
from waxeq.cost.device import Device, current_device
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.shards import read_shard, timing_rows
from waxeq.errors import UsageError
from waxeq.extract.price import timing_key
from waxeq.options import cores
from waxeq.runtime.timing import Bench
from waxeq_cupy.device import Device as Gpu
from waxeq_cupy.device import current

Outcome = tuple[str, dict[str, Any]]
Case = tuple[str, Callable[[], Outcome]]
_CACHE = 256 << 20
"""Bytes that no cache of a GPU holds."""
_SMALL = 1 << 12


class Timings:
    """Timings in a file of JSON lines, one by one, as `waxeq db merge` takes them; `host`: the machine they are of."""

    def __init__(self, path: Path, host: Device) -> None:
        self.path = path
        if not path.exists():
            append(path, {"kind": "device", "id": host.id, "description": host.json()})

    def record(self, timing: Timing) -> None:
        """A line; it is on disk when this returns."""
        (row,) = timing_rows([timing])
        append(self.path, row)

    def taken(self) -> list[Timing]:
        """All that are there."""
        return read_shard(self.path).timings


@dataclass
class Check:
    """`host`: the fingerprint that timings are filed under; `real`: whether the GPU is one, whose times mean
    something."""

    gpu: Gpu
    storage: Storage
    kernels: Mapping[str, Kernel]
    host: Device
    kit: Kit
    journal: Journal
    timings: Timings
    out: Path
    bench: Bench = field(default_factory=Bench)

    @staticmethod
    def of(kit: Kit, out: Path) -> Check:
        """On the first GPU of this machine, or what WAXEQ_CUDA says. Raises MissingDevice, UsageError."""
        gpu = current()
        if gpu.storage is None:
            raise UsageError("the check needs a GPU with memory of its own; WAXEQ_CUDA can be 'virtual', or not set")
        backend, host = waxeq_cupy.backend(), current_device(cores())
        for files in kit.groups.values():
            backend.unpack(files)
        timings = Timings(out / "timings.jsonl", host)
        kept = [i for i in kit.items if i.call.kernel in backend.kernels]  # not what other GPUs alone have
        kit = replace(kit, items=[*kept, *_found_here(kit, backend.kernels)])
        return Check(gpu, gpu.storage, backend.kernels, host, kit, Journal(out / "results.jsonl"), timings, out)

    @property
    def real(self) -> bool:
        return hasattr(self.gpu, "driver")

    @cached_property
    def cache(self) -> DeviceArray:
        """Memory to copy over so that nothing else is in the cache."""
        return self.storage.uploaded(np.zeros(2 * (_CACHE if self.real else _SMALL), np.uint8))

    @cached_property
    def targets(self) -> Mapping[str, Target]:
        """By name."""
        return {t.name: t for t in targets()}

    def items(self, section: str) -> Iterator[Item]:
        """Calls of a section, in the order in which they are to be made."""
        return (i for i in self.kit.items if i.section == section)

    def timing_key(self, call: Call) -> TimingKey:
        """What a timing is filed under."""
        return timing_key(call, self.kernels[call.kernel], self.host.id, self.host.threads)


def _found_here(kit: Kit, kernels: Mapping[str, Kernel]) -> Iterator[Item]:
    """Calls of kernels that were not where the kit was made: those of a library of NVIDIA's, which is here."""
    new = {n: k for n, k in kernels.items() if n not in kit.about["kernels"] and k.form != "transfer"}
    for t in targets() if new else ():
        yield from (Item("correct", f"{t.name}, {c.kernel}", c, 1) for c in calls(t, new, small=True))
        for c in calls(t, new, small=bool(kit.about["small"])):
            yield Item("target", f"{t.name}, {c.kernel}", c, target=t.name)
