"""Handing over: another process sees the very same arrays, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

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


@pytest.mark.parametrize("memory", ["/dev/shm", "/nowhere"])
def test_arrays_arrive_as_they_are(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_MEMORY", Path(memory))
    with handed(ARRAYS) as arrays:
        got = in_fresh_process(summary, (arrays,), threads=1)
    want = {n: (str(a.dtype), a.shape, a.tobytes()) for rows in ARRAYS.values() for n, a in rows.items()}
    assert got == want
    assert not Path(arrays.path).parent.exists()


def test_memory_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_ROOM", 1 << 60)
    assert handover._folder(1) is None
