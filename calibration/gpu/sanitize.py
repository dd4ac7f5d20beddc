"""NVIDIA's compute-sanitizer over the small calls: memory, races, barriers, and what is read before it is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from calibration.gpu.check import Check, Outcome
from calibration.gpu.journal import FAILED, LEFT_OUT, RIGHT, WRONG, Journal

from waxeq.errors import BudgetError

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_FOUND = 99
"""Exit code of the sanitizer where it found something."""
_ENDED = (0, BudgetError.exit_code)
"""Exit codes of a process that came to its end, or as far as it had time for."""
_SECONDS = 45
"""For each tool: a case takes tens of times as long under it."""
_HOMES = ("/usr/local/cuda/bin", "/opt/cuda/bin")


def program() -> str | None:
    """Where compute-sanitizer is; None where it is not."""
    return shutil.which("compute-sanitizer", path=os.pathsep.join((os.environ.get("PATH", ""), *_HOMES)))


def run(c: Check, tool: str) -> Outcome:
    """The first section of calls once more, under a tool, in a process of its own; as far as it comes in time."""
    found = program()
    if found is None or not c.real:
        return LEFT_OUT, {"why": "there is no GPU" if not c.real else "compute-sanitizer is not installed"}
    place = c.out / f"sanitized_{tool}"
    place.mkdir(exist_ok=True)
    kit = place / "calls.kit"
    c.kit.write(kit)
    line = [found, "--tool", tool, "--error-exitcode", str(_FOUND), sys.executable, sys.argv[0], "--child"]
    line += ["--out", str(place), "--kit", str(kit), "--only", "correct", "--until", str(time.time() + _SECONDS)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=2 * _SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return FAILED, {"why": f"it was stopped after {2 * _SECONDS} seconds", "cases": _cases(place)}
    (place / "said.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    kit.unlink()
    rows = {"cases": _cases(place), "said": (done.stdout + done.stderr)[-600:]}
    if done.returncode == _FOUND:
        return WRONG, {**rows, "why": f"{tool} found something, see {place.name}/said.txt"}
    if not rows["cases"] or done.returncode not in _ENDED:  # what died under the tool was not found to be sound
        return FAILED, {**rows, "why": f"exit code {done.returncode} after {rows['cases']} cases"}
    return RIGHT, rows


def _cases(place: Path) -> int:
    return len(Journal(place / "results.jsonl").of("correct"))
