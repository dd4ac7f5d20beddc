"""Handing over: another process sees the very same arrays, and nothing is left of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from waxeq.errors import WaxeqError
from waxeq.runtime import handover, room
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
        assert list(arrays.taken()) == list(ARRAYS), "those without arrays too"
    want = {n: (str(a.dtype), a.shape, a.tobytes()) for rows in ARRAYS.values() for n, a in rows.items()}
    assert got == want
    assert not list(tmp_path.iterdir()) and not os.path.exists(arrays.path)


V1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("", "memory.max", "memory.current", "inactive_file")


@pytest.mark.parametrize(("line", "names"), [("4:cpu,memory:/a/b", V1), ("0::/a/b", V2)], ids=["v1", "v2"])
def test_what_control_groups_leave_counts(line: str, names: tuple[str, ...], tmp_path: Path) -> None:
    """The tightest of those a process is in; what is kept for files is given back when it is needed."""
    base, limit, taken, kept = names
    own, root = tmp_path / "cgroup", tmp_path / "sys"
    own.write_text(f"7:cpuset:/elsewhere\n{line}\n")
    assert list(room.grouped(own, root)) == [] == list(room.grouped(tmp_path / "none", root))

    def group(path: str, most: object, used: int, files: int) -> None:
        folder = root / base / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((limit, most), (taken, used), ("memory.stat", f"anon 1\n{kept} {files}")):
            (folder / name).write_text(f"{text}\n")

    group("", 1000, 300, 100)
    assert list(room.grouped(own, root)) == [800], "in a container only the root is there"
    group("a", "max", 10, 0)
    group("a/b", 500, 600, 0)
    assert list(room.grouped(own, root)) == [0, 800]


def test_memory_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_ROOM", 1 << 60)
    assert not handover._fits(1)


def test_no_room_anywhere_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_fits", lambda size: False)
    monkeypatch.setattr(handover, "open", lambda *_: open("/dev/full", "wb", 0), raising=False)  # noqa: SIM115
    with pytest.raises(WaxeqError, match="No space left on device; set TMPDIR"), handed(ARRAYS):
        pass
