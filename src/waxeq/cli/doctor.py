"""What `waxeq doctor` looks at: each check says what it found, or what is wrong and what to do."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from waxeq.amounts import number_of
from waxeq.backend.discover import Found, found
from waxeq.cost.archive import NAME_ANOTHER
from waxeq.cost.device import current_device
from waxeq.egraph.lower import lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import read_file, rule_files
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.errors import TableWriteError, UsageError, WaxeqError
from waxeq.ir.graph import GraphBuilder
from waxeq.ir.types import TensorType
from waxeq.memory.estimate import amount
from waxeq.options import cores
from waxeq.search.tables import table_status

_NEEDED = ("waxeq", "numpy", "scipy", "egglog", "duckdb", "highspy", "safetensors")


def examine(table: Path | None) -> list[dict[str, Any]]:
    """Every check in order: name, whether it went well, what was found or the sentence, exit code."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", lambda: f"{platform.python_version()} at {sys.executable}, {platform.platform()}"),
        ("packages", lambda: ", ".join(f"{p} {version(p)}" for p in _NEEDED)),
        ("machine", _machine),
        ("backends", _backends),
        ("rules", _rules),
        ("e-graph", _e_graph),
        ("timing table", lambda: _table(table)),
    ]
    return [_row(name, check) for name, check in checks]


def _row(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": name, "ok": True, "found": check(), "exit_code": 0}
    except WaxeqError as e:
        return {"check": name, "ok": False, "found": str(e), "exit_code": e.exit_code}
    except Exception as e:
        return {"check": name, "ok": False, "found": f"{type(e).__name__}: {e}", "exit_code": 1}


def _machine() -> str:
    free = amount(psutil.virtual_memory().available)
    return f"{current_device(cores()).describe()}; {free} of memory available"


def _backends() -> str:
    rows = found()
    if not any(f.why is None for f in rows):
        reasons = "; ".join(f"{f.name}: {f.why}" for f in rows) or "none is installed"
        raise UsageError(f"no backend can be used ({reasons}); reinstall waxeq")
    for f in rows:
        if f.why is not None and f.backend is not None and f.backend.chosen():
            raise UsageError(_backend(f))
    return ", ".join(_backend(f) for f in rows)


def _backend(f: Found) -> str:
    if f.why is not None or f.backend is None:
        return f"{f.name} cannot be used: {f.why}"
    about = f.backend.about()
    return f"{f.name} ({about})" if about else f.name


def _rules() -> str:
    files = [read_file(p) for p in rule_files()]
    return f"{sum(len(f.rules) for f in files)} rules in {len(files)} files"


def _e_graph() -> str:
    """Saturate a one-op program in a worker process, as every optimization does."""
    b = GraphBuilder()
    x = b.leaf("x", TensorType("float32", (2,)))
    worker = Worker.start()
    try:
        lowered = lower(b.finish([("y", x)], keep=[x]))
        stop = saturate(lowered, RuleProgram((), ()), Limits(seconds=20.0), worker).stop
    finally:
        worker.close()
    return f"the worker process answers ({stop.name})"


def _table(path: Path | None) -> str:
    status = table_status(path, wait=5.0)
    if path is not None and not status["writable"]:  # nothing takes the place of a table that is named
        raise TableWriteError(f"{path} cannot be written; make it writable, or room there, or {NAME_ANOTHER}")
    lost = "" if status["writable"] else ", which cannot be written: new timings are kept in memory and then lost"
    if not status["exists"]:
        return f"none yet at {status['path']}{lost or '; `waxeq optimize` makes it'}"
    known = sum(r["rows"] for r in status["timings"])
    return f"{status['path']}: {number_of(known, 'timing')}, {amount(status['bytes'])}{lost}"
