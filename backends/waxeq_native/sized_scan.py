"""Running folds in nests whose sizes are known only when they are bound: one text for all, compiled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from waxeq.backend.call import Call
from waxeq_cfamily.scans import Scan
from waxeq_cfamily.sized import SizedEmitter
from waxeq_native import scan
from waxeq_native.sized import Walks


@dataclass(frozen=True, kw_only=True)
class SizedWayEmitter(scan.WayEmitter, SizedEmitter):
    """Text for one scan whose sizes are arguments."""


class _Scans(Walks, scan.Scans):
    """What all of them have in common."""

    def way(self, call: Call) -> scan.Way:
        """Of rows in one piece: how many there are is not known. Raises Unsupported."""
        if not call.sized:
            return super().way(call)
        operand = len(call.operands)
        return call.remember("way of a scan", lambda: scan.Way.of(Scan.of(self.values(call)), 1, operand))

    def writer(self, call: Call) -> Callable[..., scan.WayEmitter]:
        return partial(SizedWayEmitter, sizes=call.sized) if call.sized else super().writer(call)


class SizedScans(_Scans):
    """Running folds of any sizes."""


class SizedFastScans(_Scans, scan.FastScans):
    """The same with functions of our own."""


class SizedStreamingScans(_Scans, scan.StreamingScans):
    """The same with results that are written past the cache."""


class SizedFastStreamingScans(_Scans, scan.FastStreamingScans):
    """The same with functions of our own."""


KERNELS = (SizedScans, SizedFastScans, SizedStreamingScans, SizedFastStreamingScans)
"""By name those that take the calls of the kernel of that name."""
