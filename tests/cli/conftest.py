"""The command line, called in this process, on models a few lines long."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from waxeq.cli import main
from waxeq.cost.device import Peaks

WEIGHTED = """
import numpy as np

WEIGHTS = ("w",)

def model(x, w):
    return np.maximum(x @ w, 0) + 1

def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((4, 8), dtype=np.float32),
        "w": rng.standard_normal((8, 3), dtype=np.float32),
    }
"""


@dataclass(frozen=True)
class Outcome:
    """What a command did: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Stdout as JSON: it must hold nothing else."""
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one line of an error."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("waxeq: ") and "Traceback" not in self.err
        return lines[0].removeprefix("waxeq: ")


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a table of its own; the machine's ceilings are not measured for each."""
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))


@pytest.fixture(autouse=True)
def usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs the tests may say how wide its own terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a test may have a timing table; there is none yet."""
    return tmp_path_factory.mktemp("table") / "timings.duckdb"


@pytest.fixture
def waxeq(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`waxeq("rules", "list")` runs a command line."""

    def call(*argv: object) -> Outcome:
        capsys.readouterr()
        code = main([str(a) for a in argv])
        got = capsys.readouterr()
        return Outcome(code, got.out, got.err)

    return call


@pytest.fixture
def quick(table: Path) -> tuple[object, ...]:
    """Options that make a search take a moment."""
    return ("--table", table, "--no-trial", "--no-measure", "--quiet")


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """`model(text)` writes a model file."""

    def write(text: str = WEIGHTED, name: str = "small.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def used(waxeq, model, quick, table: Path, tmp_path: Path) -> Path:
    """A table that an optimization measured into."""
    arguments = [a for a in quick if a != "--no-measure"]
    assert waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", *arguments).code == 0
    return table


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small model, its plan, and the table that was used."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.py").write_text(WEIGHTED)
    argv = ["optimize", str(folder / "small.py"), "-o", str(folder / "small.plan.json")]
    assert main([*argv, "--table", str(folder / "t.duckdb"), "--no-trial", "--no-measure", "--quiet"]) == 0
    return folder


@pytest.fixture
def plan(tmp_path: Path, small: Path, model: Callable[..., Path]) -> Path:
    """A plan file of the small model, which lies beside it, and beside the plan its weights."""
    model()
    for path in small.glob("small.plan*"):
        shutil.copyfile(path, tmp_path / path.name)
    return tmp_path / "small.plan.json"
