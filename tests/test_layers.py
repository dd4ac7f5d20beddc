"""Who may import whom: a module of waxeq imports only from the layers to its left."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

LAYERS = (
    *("__about__", "share", "errors", "naming", "events", "amounts", "children", "forks"),
    *("collecting", "settings", "options"),
    *("ir", "basis", "ops", "frontend"),
    *("backend", "egraph"),
    *("cost", "extract", "plan", "memory", "symbolic", "runtime", "search", "compile", "inspect", "testing", "cli"),
)
OUTSIDE = LAYERS[: LAYERS.index("backend") + 1]  # what a backend may know

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "waxeq"
FILES = sorted(SOURCE.rglob("*.py"))
BACKENDS = sorted((ROOT / "backends").rglob("*.py"))

KNOW_EGGLOG = {SOURCE / "egraph" / "engine.py", SOURCE / "egraph" / "rules.py"}
LAZY = ("egglog", "duckdb", "scipy", "sympy", "highspy", "rich", "cyclopts", "pydantic", "distributed")


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of every import in a file, those inside functions too."""
    return tuple(found(path))


def found(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "waxeq":
            yield from ((node.lineno, f"waxeq.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_module_is_in_a_layer() -> None:
    found = {layer_of(path) for path in FILES} - {"__init__", "__main__"}
    assert sorted(found - set(LAYERS)) == []


def test_imports_point_left() -> None:
    wrong = []
    for path in FILES:
        here = layer_of(path)
        if here not in LAYERS:
            continue
        for line, name in imports(path):
            there = name.split(".")[1] if name.startswith("waxeq.") else here
            if there in LAYERS and LAYERS.index(there) > LAYERS.index(here):
                wrong.append(f"{at(path, line)}: {here} imports {there}, which is to its right")
    assert not wrong, "\n".join(wrong)


def test_imports_are_absolute() -> None:
    wrong = [at(path, line) for path in FILES + BACKENDS for line, name in imports(path) if name.startswith(".")]
    assert not wrong, "\n".join(wrong)


def test_only_the_engine_and_the_rule_reader_know_egglog() -> None:
    wrong = [
        at(path, line)
        for path in FILES + BACKENDS
        for line, name in imports(path)
        if name.split(".")[0] == "egglog" and path not in KNOW_EGGLOG
    ]
    assert not wrong, "\n".join(wrong)


def test_no_source_file_names_a_backend() -> None:
    backends = [path.name for path in (ROOT / "backends").iterdir() if path.is_dir()]
    named = re.compile("|".join([*map(re.escape, backends), r"waxeq_(numpy|native|cupy)"]))
    wrong = [
        at(path, number)
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if named.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_backends_import_no_more_than_the_backend_contract() -> None:
    wrong = [
        f"{at(path, line)}: imports {name}"
        for path in BACKENDS
        for line, name in imports(path)
        if name.startswith("waxeq.") and name.split(".")[1] not in OUTSIDE
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", ["waxeq", "waxeq.cli"])
def test_importing_is_quiet_and_light(module: str) -> None:
    program = f"import sys, {module}; sys.exit(' '.join(m for m in {LAZY!r} if m in sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
