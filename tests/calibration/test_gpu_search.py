"""Searching on a GPU: here on the simulated one, at small sizes, with nobody beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibration import gpu_search

from waxeq_cupy import device


def test_a_workload_is_searched_checked_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.VARIABLE, device.VIRTUAL)
    asked = ["--out", str(tmp_path), "--budget", "2", "--small", "--alone", "mirage_ntrans_b8"]
    assert gpu_search.main(asked) == 0
    (row,) = map(json.loads, (tmp_path / "searched.jsonl").read_text().splitlines())
    assert row["workload"] == "mirage_ntrans_b8" and 0 < row["error"] <= row["most"] and "Result" in row["found"]
    assert (tmp_path / "mirage_ntrans_b8.txt").read_text().startswith("model")


def test_what_cannot_be_searched_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        gpu_search.main(["--out", str(tmp_path), "nothing"])
    assert "no such workload: nothing" in capsys.readouterr().err
    for chosen, why in ((device.SIMULATED, "no memory on this device"), ("off", "it can be 'simulated'")):
        monkeypatch.setenv(device.VARIABLE, chosen)
        assert gpu_search.main(["--out", str(tmp_path)]) == 5
        assert why in capsys.readouterr().err
