"""Handing over: another process sees the very same arrays, and nothing is left of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from waxeq.errors import WaxeqError
from waxeq.runtime import handover
from waxeq.runtime.handover import Handed, handed
from waxeq.runtime.measure import in_fresh_process

ARRAYS = {
    "weight": {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "half": np.array([1.5, np.nan], ml_dtypes.bfloat16),
    },
    "input": {"empty": np.zeros((0, 3)), "scalar": np.array(2.5), "yes": np.array([True, False])},
    "constant": {},
}


def summary(arrays: Handed) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """What another process says of them."""
    return {n: (str(a.dtype), a.shape, a.tobytes()) for rows in arrays.taken().values() for n, a in rows.items()}


@pytest.mark.parametrize("room", [4, 1 << 60], ids=["memory", "file"])
def test_arrays_arrive_as_they_are(room: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(handover, "_ROOM", room)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with handed(ARRAYS) as arrays:
        assert bool(arrays.held) == (room == 4) and len(list(tmp_path.iterdir())) == (room != 4)
        got = in_fresh_process(summary, (arrays,), threads=1, held=arrays.held)
    want = {n: (str(a.dtype), a.shape, a.tobytes()) for rows in ARRAYS.values() for n, a in rows.items()}
    assert got == want
    assert not list(tmp_path.iterdir()) and not os.path.exists(arrays.path)


def test_memory_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_ROOM", 1 << 60)
    assert not handover._fits(1)


def test_no_room_anywhere_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_fits", lambda size: False)
    monkeypatch.setattr(handover, "open", lambda *_: open("/dev/full", "wb", 0), raising=False)  # noqa: SIM115
    with pytest.raises(WaxeqError, match="No space left on device; set TMPDIR"), handed(ARRAYS):
        pass
