"""The README is true: its code runs, what it names exists, its table of exit codes is that of the errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from waxeq import errors

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_paths_exist() -> None:
    links = [p for p in re.findall(r"\]\(([^)#]+)\)", README) if not p.startswith("http")]
    table = re.findall(r"`((?:src|backends|rules|calibration|benchmarks|examples|docs)/[\w./]*)`", README)
    assert links and table
    assert not [p for p in (*links, *table) if not (ROOT / p).exists()]


def test_examples_are_all_named() -> None:
    named = set(re.findall(r"`(\w+)`", README[README.index("[examples/](examples) holds more") :].split("##")[0]))
    assert named | {"minilm"} == {p.stem for p in (ROOT / "examples").glob("*.py")}


def test_exit_codes_are_those_of_the_errors() -> None:
    stated = {int(code) for code in re.findall(r"^\| (\d+) \|", README, flags=re.MULTILINE)}
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.WaxeqError)]
    assert stated == {0, 130, 143, *(c.exit_code for c in classes)}


def test_commands_exist() -> None:
    commands = set(re.findall(r"\bwaxeq ([a-z]+)", README)) - {"is", "optimizes"}
    said = subprocess.run([sys.executable, "-m", "waxeq", "--help"], capture_output=True, text=True, check=True).stdout
    assert commands and all(re.search(rf"\b{c}\b", said) for c in commands)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    text = blocks("python")[number]
    subprocess.run([sys.executable, "-W", "error", "-c", text], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.slow
def test_the_function_of_the_readme_optimizes(tmp_path: Path) -> None:
    (tmp_path / "abv.py").write_text(next(b for b in blocks("python") if "def example_inputs" in b))
    command = [sys.executable, "-m", "waxeq", "optimize", "abv.py", "--table", "t.duckdb", "--budget", "20s"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "e-graph" in done.stdout and (tmp_path / "abv.plan.json").exists()
    assert labels(done.stdout) == labels(sample()), "the sample is of another program"
    assert line_of(done.stdout, "e-graph") == line_of(sample(), "e-graph")


def sample() -> str:
    """What the README shows of an optimization."""
    return re.findall(r"```\n(model .*?)```", README, flags=re.DOTALL)[0]


def labels(report: str) -> list[str]:
    """The words that lines of a report begin with, but for notes on this very run."""
    return [x.split("  ")[0] for x in report.splitlines() if x[:1].isalpha() and not x.startswith("note")]


def line_of(report: str, label: str) -> str:
    return next(x.rstrip() for x in report.splitlines() if x.startswith(label))


def test_the_sample_names_the_lines_of_its_model() -> None:
    model = next(b for b in blocks("python") if "def example_inputs" in b).splitlines()
    places = re.findall(r"abv\.py:(\d+)", sample())
    assert places and all("return" in model[int(n) - 1] for n in places)
