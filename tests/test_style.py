"""The style that a program can hold: the linter, the type checker, and sizes that ask for a missing idea."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for folder in ("src", "backends") for path in (ROOT / folder).rglob("*.py"))
RULES = sorted((ROOT / "rules").glob("*.egg"))

FILE_LINES = 400
FUNCTION_LINES = 40
RULE_LINES = 200


def run(*command: str, **environment: str) -> None:
    line, env = [sys.executable, "-m", *command], {**os.environ, **environment}
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring not counted."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_ruff() -> None:
    run("ruff", "check", "--no-cache", "--output-format=concise", ".")


@pytest.mark.slow
def test_pyright() -> None:
    """What is new has more room than node gives it by itself: a type lives a little longer than to the next collection,
    and is copied in each."""
    run("pyright", "--pythonpath", sys.executable, NODE_OPTIONS="--max-semi-space-size=128")


def test_no_file_is_too_long() -> None:
    limits = {**dict.fromkeys(FILES, FILE_LINES), **dict.fromkeys(RULES, RULE_LINES)}
    long = [
        f"{path.relative_to(ROOT)}: {lines_of(path)} lines, more than {limit}"
        for path, limit in limits.items()
        if lines_of(path) > limit
    ]
    assert not long, "look for the missing idea:\n" + "\n".join(long)


def test_no_function_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {code_lines(node)} lines, more than {FUNCTION_LINES}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and code_lines(node) > FUNCTION_LINES
    ]
    assert not long, "look for the missing idea:\n" + "\n".join(long)
