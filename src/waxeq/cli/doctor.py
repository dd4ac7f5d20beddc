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
from waxeq.cost.archive import name_another
from waxeq.cost.device import current_device
from waxeq.cost.table import default_path
from waxeq.cost.unsaved import look
from waxeq.egraph.installed import rule_files
from waxeq.egraph.lower import lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import Rule, core_directory, read_file
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.errors import RuleError, TableError, TableLockedError, TableWriteError, UsageError, WaxeqError
from waxeq.ir.graph import GraphBuilder
from waxeq.ir.types import TensorType
from waxeq.memory.estimate import amount
from waxeq.options import cores
from waxeq.search.admission import uncertified
from waxeq.search.tables import table_status
from waxeq.testing.rule import check_rule

_NEEDED = ("waxeq", "numpy", "scipy", "egglog", "duckdb", "highspy", "safetensors")


def examine(table: Path | None) -> list[dict[str, Any]]:
    """Every check in order: name, whether it went well, what was found or the sentence, exit code."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", lambda: f"{platform.python_version()} at {sys.executable}, {platform.platform()}"),
        ("packages", lambda: ", ".join(f"{p} {version(p)}" for p in _NEEDED)),
        ("machine", _machine),
        ("backends", _backends),
        ("rules", lambda: _rules(table)),
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


def _rules(table: Path | None) -> str:
    """Those of plug-ins that no certificate is known for are tried, as the next optimization would."""
    files = [read_file(p) for p in rule_files()]
    known = f"{sum(len(f.rules) for f in files)} rules in {len(files)} files"
    new = _uncertified(table)
    for rule in new:
        if not check_rule(rule).admitted:
            raise RuleError(
                f"{rule.place}: rule {rule.name} may not run, and no search will: `waxeq rules check {rule.file}` says "
                "what it does wrong; mend it, or uninstall the plug-in"
            )
    return f"{known}, {len(new)} of plug-ins not certified yet: `waxeq optimize` does it" if new else known


def _uncertified(table: Path | None) -> list[Rule]:
    """Rules of plug-ins without a certificate; all where the table cannot be read, which another check tells."""
    foreign = [p for p in rule_files() if p.parent != core_directory()]
    if not foreign:
        return []
    try:
        return [rule for _, rule in uncertified(look(table or default_path(), wait=5.0), rule_files())]
    except (TableError, TableLockedError):
        return [rule for p in foreign for rule in read_file(p).rules]


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
        raise TableWriteError(f"{path} cannot be written; make it writable, or room there, or {name_another()}")
    lost = "" if status["writable"] else ", which cannot be written: new timings are kept in memory and then lost"
    if not status["exists"]:
        return f"none yet at {status['path']}{lost or '; `waxeq optimize` makes it'}"
    known = sum(r["rows"] for r in status["timings"])
    return f"{status['path']}: {number_of(known, 'timing')}, {amount(status['bytes'])}{lost}"
