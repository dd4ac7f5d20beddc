"""The notebooks, cell by cell, as whoever reads them would run them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from waxeq.cost.device import Peaks

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


def cells(path: Path) -> list[tuple[int, str]]:
    """The first line and the text of every cell of code; a cell begins at a line "# %%"."""
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("# %%")]
    ends = [*starts[1:], len(lines)]
    return [
        (a + 1, "\n".join(lines[a + 1 : b])) for a, b in zip(starts, ends, strict=True) if "[markdown]" not in lines[a]
    ]


@pytest.mark.shipped
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))
    monkeypatch.setenv("WAXEQ_CUDA", "")  # what a cell sets is taken back
    monkeypatch.chdir(tmp_path)
    space = {"__name__": path.stem}
    for line, text in cells(path):
        exec(compile("\n" * line + text, str(path), "exec"), space)


def test_they_are_numbered_from_one() -> None:
    assert [int(p.stem[:2]) for p in NOTEBOOKS] == list(range(1, len(NOTEBOOKS) + 1)) and len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_they_are_text_with_a_title(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(r"# %% \[markdown\]\n# # \w", text)
    assert ast.parse(text)
