"""What timings are held to: what the devices they are of can do at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from waxeq.cost.device import Device, Peaks, measure_peaks
from waxeq.cost.memos import PEAKS, device_of
from waxeq.cost.survey import Present


class Ceilings:
    """Ceilings by device, as the archive that is the current database remembers them (`known`), and those of kernels
    that run elsewhere than on the CPU their timings are filed under.

    A device may have been busy when it was asked. So before a timing is called too fast for one that is here, its
    ceilings are measured once more; `raised` are those that came out higher.
    """

    def __init__(self, db: Any, present: Present, measure: Callable[[int], Peaks] = measure_peaks) -> None:
        rows = db.execute("SELECT key, payload FROM memos WHERE kind = ?", [PEAKS.name]).fetchall()
        self.known = {device: Peaks.from_json(p) for k, p in rows if (device := device_of(k)) is not None}
        self.raised: dict[Device, Peaks] = {}
        self._present, self._measure = present, measure
        self._unasked = {d.id: d for d in present.devices}

    def of(self, row: Mapping[str, Any]) -> Peaks | None:
        """What a row (by column) is held to; None where nothing is known."""
        if self._present.on_cpu(row["kernel"]):
            return self.known.get(row["device"])
        return self._present.ceilings(row["kernel"]) if row["device"] in self._present.ids else None

    def again(self, row: Mapping[str, Any]) -> bool:
        """Measure what a row is held to once more, if that was not done and can be: whether it is higher now."""
        before = self.of(row)
        if before is None or not self._present.on_cpu(row["kernel"]) or row["device"] not in self._unasked:
            return False
        device = self._unasked.pop(row["device"])
        found = before.or_better(self._measure(device.threads))
        if found != before:
            self.known[device.id] = self.raised[device] = found
        return found != before
