"""Whoever ends while something is compiled in another thread leaves no compiler, and nothing half made in the cache."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from waxeq.backend.kernel import Unready
from waxeq_native.compiler import find
from waxeq_native.library import BUILDING, FAILED, Library

MODEL = """
import numpy as np

def model(x, w):
    return np.tanh(x @ w) * 2 + 1

def example_inputs():
    return {k: np.ones((16, 16), np.float32) for k in "xw"}
"""
PROGRAM = "import sys; from waxeq.cli import main; sys.exit(main())"


def hanging(folder: Path, when: str) -> Path:
    """A compiler that hangs where an argument of it is this, after it has written `begun` beside it."""
    path, real = folder / "hangs.sh", " ".join(find().command)
    hangs = f"touch {folder}/begun; exec sleep 60"
    path.write_text(f'#!/bin/sh\ncase "$*" in *{when}*) {hangs};; esac\nexec {real} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def wait_for(path: Path, over: Callable[[], bool]) -> None:
    while not path.exists():
        assert not over()
        time.sleep(0.01)


def left(cache: Path) -> list[Path]:
    return [*cache.rglob(f"{BUILDING}*"), *cache.rglob(f"{FAILED}/*")]


def test_a_thread_whose_compilers_are_ended_clears_away_and_begins_no_other(tmp_path: Path) -> None:
    """The folder that it built in was left, and a source that was never wrong kept as one that does not compile."""
    cache = tmp_path / "cache"
    cache.mkdir()
    library = Library(cache, replace(find(), command=(str(hanging(tmp_path, "out.so")),)))
    with ThreadPoolExecutor() as threads:
        found = threads.submit(library.functions, {"f": "int f(void) { return 1; }"}, "")
        wait_for(tmp_path / "begun", found.done)
        library.end()
        assert left(cache) == []
        with pytest.raises(Unready, match="nobody waits any more"):
            found.result(30)
    with pytest.raises(Unready, match="nobody waits any more"):
        library.functions({"g": "int g(void) { return 1; }"}, "")
    assert left(cache) == []


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_search_that_is_ended_while_products_are_compiled_leaves_nothing(tmp_path: Path, end: signal.Signals) -> None:
    """Compilers went on, and the folder that they built in was left for a day."""
    model, cache = tmp_path / "m.py", tmp_path / "cache"
    model.write_text(MODEL)
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may run under nohup
    options = ("--table", str(tmp_path / "t.duckdb"), "-o", str(tmp_path / "m.plan.json"))
    command = [sys.executable, "-c", f"{heard}; {PROGRAM}", "optimize", str(model), *options]
    how = {**os.environ, "WAXEQ_CACHE": str(cache), "CC": str(hanging(tmp_path, "-DWX_ONLY"))}
    with subprocess.Popen(command, stdout=-1, stderr=-1, env=how) as child:
        wait_for(tmp_path / "begun", lambda: child.poll() is not None)
        started = list[psutil.Process]()
        while not any(p.name() == "sleep" for p in started):
            assert child.poll() is None
            started = psutil.Process(child.pid).children(recursive=True)
        assert left(cache)
        child.send_signal(end)
        _, err = child.communicate(timeout=60)
    assert child.returncode == -end and err.decode().endswith("waxeq: interrupted; nothing was written\n")
    assert not psutil.wait_procs(started, timeout=5)[1]
    assert left(cache) == []
