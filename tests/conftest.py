"""What every test may use: where the checkout lies, and the examples as modules."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

# Each of several test processes stays on a core of its own, before NumPy counts cores: threads of BLAS that wait for a
# core that another process has make a product forty times slower.
if (xdist := os.environ.get("PYTEST_XDIST_WORKER", "")) and hasattr(os, "sched_setaffinity"):
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[int(xdist.removeprefix("gw")) % len(cpus)]})

import numpy as np
import platformdirs
import pytest
from hypothesis import settings

from waxeq.cost import table
from waxeq.cost.device import Peaks
from waxeq.egraph.saturate import Worker
from waxeq.errors import WaxeqError
from waxeq_native.compiler import find
from waxeq_native.files import replace as replace_file

if TYPE_CHECKING:
    from ctypes import CDLL

    from waxeq_native.library import Asked, Library, Unit

ROOT = Path(__file__).resolve().parents[1]

# Machines differ in speed: a deadline would test the machine. One fixed seed, so that a failure comes again.
settings.register_profile("waxeq", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("waxeq")


NOBODY = Path(tempfile.mkdtemp(prefix="waxeq-nobody-"))
"""Where the table of whoever runs the tests would lie: in this process, and in those that a test starts."""
COMPILED = NOBODY.with_name(NOBODY.name.replace("nobody", "compiled"))
"""What was compiled, where pytest has no cache of its own to keep it in."""
UNITS = NOBODY.with_name(NOBODY.name.replace("nobody", "units"))
"""Likewise of what is compiled once for a machine, and not for a model, which caches of tests begin with."""
OWN_TURN = Path(tempfile.mkdtemp(prefix="waxeq-turn-"))
"""Where this process, and those that a test starts, take turns at timing. Test processes have a core each, and disturb
each other all the time, whether they compile or are timed: waiting for each other's timings would gain nothing."""


@atexit.register  # also where pytest ends before it has begun: an option that makes no sense, an error in this file
def leave_nothing() -> None:
    for folder in (NOBODY, COMPILED, UNITS, OWN_TURN):
        shutil.rmtree(folder, ignore_errors=True)


def terminated(number: int, frame: object) -> None:
    """As Ctrl-C, so that what a test made is removed: `timeout` and CI end what is late with this signal."""
    raise KeyboardInterrupt


PEAKS = Peaks({"float32": 9.9e10, "float64": 5.0e10}, 2.4e10, 9.2e10, 2.8e-7)
LITTLE = 1 << 30
"""Bytes of a process that is kept for the next search: the limit on its memory counts from what it has."""
OBJECTS = 10_000
"""Objects that are made before Python looks for cycles among them."""
BEFORE, AFTER = '#line 1 "prelude"\n', '\n#line 1 "'
"""What stands around the prelude in a text of kernels."""
PLAINLY = ("-O0", "-Dalways_inline=unused", "-nolibc")
"""Flags with which a compiler does next to nothing but to translate: the attribute is made one that says nothing, and
the C library, which is in the process already, is not read through for what is missing: a third of linking."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ["XDG_DATA_HOME"] = str(NOBODY)
    os.environ["WAXEQ_TIMING_LOCK"] = str(OWN_TURN / "timing.lock")
    if not xdist:  # what was compiled is kept from run to run, and by no other checkout
        kept = getattr(config, "cache", None)
        os.environ["WAXEQ_CACHE"] = str(COMPILED if kept is None else kept.mkdir("waxeq-compiled"))
        os.environ["WAXEQ_TEST_UNITS"] = str(UNITS if kept is None else kept.mkdir("waxeq-units"))
    if getattr(config.option, "dist", "no") == "load":  # what `-n` alone means
        # A module has most of its tests in one process, which makes once what they share.
        config.option.dist = "worksteal"
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminated)


@pytest.hookimpl(tryfirst=True)  # before xdist starts the processes that share the tests
def pytest_sessionstart() -> None:
    """The products of matrices take compilers half as long as all tests of some folders. Compiled here, they are once,
    on all cores, and are there for each of several processes and for each cache that a test makes.
    """
    if xdist:
        return
    from waxeq_native import calling, gemm, library, team

    with suppress(WaxeqError):  # who needs a compiler says that there is none
        folder = library.directory(os.environ["WAXEQ_TEST_UNITS"])
        own = library.Library(folder, find(memory=folder / "compilers"))
        own.units([*gemm.UNITS.values(), team.UNIT, (calling.FILES, ())])
    begun(Path(os.environ["WAXEQ_CACHE"]))


def begun(cache: Path) -> None:
    """What is compiled once for a machine is put into a cache, where it is not there yet."""
    units = Path(os.environ["WAXEQ_TEST_UNITS"])
    for path in units.rglob("*"):
        target = cache / path.relative_to(units)
        if path.is_file() and not target.exists():
            replace_file(target, path.read_bytes())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every other process begins at the end of each folder: what the first one has compiled of it by then, test modules
    and what they import, is there for the second, and the other way round."""
    report = yield
    if xdist and int(xdist.removeprefix("gw")) % 2 and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)  # before tests are put beside those that share a parameter
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where processes share the tests, all have them in one order, and modules with long ones first, those that lie in
    no folder before others: else the longest runs alone at the end."""
    if xdist:
        slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
        items.sort(key=lambda item: (item.path not in slow, len(item.path.parts), item.path))


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay to the end: looking through them whenever what is timed asks for a
    collection, or searches have made many objects, finds nothing. What tests make is looked through less often: most of
    it has gone by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])


@pytest.fixture(autouse=True)
def nobodys_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that would write to the table or the cache of whoever runs it fails: it is to name others."""

    def refused(name: str, *args: object, **named: object) -> str:
        return (
            pytest.fail("a test asked for the user's cache: WAXEQ_CACHE is to say another")
            if name == "waxeq"
            else (
                user_cache_dir(name, *args, **named)  # pyright: ignore[reportArgumentType]
            )
        )

    user_cache_dir = platformdirs.user_cache_dir
    monkeypatch.setattr(platformdirs, "user_cache_dir", refused)
    yield
    written = sorted(str(p.relative_to(NOBODY)) for p in NOBODY.rglob("*"))
    for p in NOBODY.iterdir():
        shutil.rmtree(p, ignore_errors=True)
    assert not written, f"the test wrote to the user's own folder: {', '.join(written)}; name a table in tmp_path"


@pytest.fixture(scope="session")
def machine_is_wide() -> bool:
    """Whether this machine has vectors of 64 bytes."""
    from waxeq_native import sliding

    return sliding.wide()


@pytest.fixture
def wide(machine_is_wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for vectors of 64 bytes take calls on every machine: compilers make such a vector of several shorter
    ones."""
    monkeypatch.setattr("waxeq_native.sliding.wide", lambda: True)


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """Most tests have a table of their own. What the machine does at most is what one core of a Zen 4 at rest was found
    to do: measured beside other tests it was anything, and estimates with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("waxeq.cost.table.measure_peaks", lambda threads: PEAKS)
        yield
    table._AT_EXIT.clear()  # the tables that searches left: this process would go through hundreds of them at its end


class Lent(Worker):
    """What a search or an explanation saturates with. A process that has done all it was asked for goes to whoever is
    next, which is what happens between two blocks: reading the rules takes longer than most models of tests."""

    idle: ClassVar[list[tuple[Any, Any, Any]]] = []

    @staticmethod
    def start() -> Worker:
        w = Lent()
        if Lent.idle:
            w._process, w._connection, w._known = Lent.idle.pop()
        else:
            w._spawn()
        return w

    def close(self) -> None:
        if self._connection is None or Lent.idle or not self.turn.acquire(blocking=False):
            return super().close()
        try:
            if self.rested():
                Lent.idle.append((self._process, self._connection, self._known))
                self._process = self._connection = self._known = None
            super().close()
        finally:
            self.turn.release()

    def rested(self) -> bool:
        """Whether nothing is left of what was asked for, the memory that it took neither."""
        assert self._process is not None and self._connection is not None
        if self._process.poll() is not None or self._connection.poll():
            return False
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") < LITTLE


@pytest.fixture(scope="session", autouse=True)
def lent() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for user in ("waxeq.search.session", "waxeq.inspect.explain"):
            patch.setattr(f"{user}.Worker", Lent)
        yield
    while Lent.idle:
        w = Worker()
        w._process, w._connection, w._known = Lent.idle.pop()
        w.close()


@pytest.fixture(autouse=True)
def nothing_shipped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a checkout knows of this machine is read by tests that are marked `shipped`: fits to it are made anew in
    each session, and again whenever something is timed, which takes most of what a search of a few calls takes."""
    if request.node.get_closest_marker("shipped") is None:
        monkeypatch.setattr("waxeq.search.tables.calibration_tables", tuple)


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches have new processes: one that did something before has room for more."""
    monkeypatch.setattr("waxeq.search.session.Worker", Worker)


@pytest.fixture(scope="session")
def begin_cache() -> Callable[[Path], None]:
    """`begin_cache(folder)` has a cache in `folder` begin with what is compiled once for a machine: tests of what else
    is compiled, or of none, do not wait for it."""
    return begun


@pytest.fixture(scope="session")
def little() -> Library:
    """Compiles with -O0, in a third of the time: for tests of what is generated, which is right however far a compiler
    looks through it, or it was never right. Put in the place of `waxeq_native.library.shared`. Functions that are to be
    inlined always are called: their texts a hundred times over take a compiler as long as all else.
    """
    from waxeq_native.library import Library, shared

    usual = shared()

    class Little(Library):
        def units(self, asked: Sequence[Asked]) -> list[CDLL]:  # no generated kernels: one for all in a process
            return usual.units(asked)

    return Little(usual.directory, replace(usual.compiler, flags=(*usual.compiler.flags, *PLAINLY)))


@pytest.fixture(scope="session", autouse=True)
def preludes_are_precompiled() -> Iterator[None]:
    """In the cache that most tests share. A test that makes one of its own compiles as users do."""
    from waxeq_native.library import Library

    shared, built = Path(os.environ["WAXEQ_CACHE"], "native").absolute(), Library._built

    def shortly(self: Library, units: Sequence[Unit]) -> Mapping[str, Any]:
        if self.directory == shared:
            units = [replace(u, files={name: shortened(text, self) for name, text in u.files.items()}) for u in units]
        return built(self, units)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Library, "_built", shortly)
        yield


def shortened(text: str, own: Library) -> str:
    """The text of kernels whose prelude is read from where it was precompiled; any other as it is."""
    prelude, _, kernels = text.removeprefix(BEFORE).partition(AFTER)
    return f"{precompiled(prelude, own)}{AFTER}{kernels}" if text.startswith(BEFORE) and kernels else text


def precompiled(prelude: str, own: Library) -> str:
    """What stands for a prelude: to read it takes a compiler a third of the time that it takes a small kernel. gcc
    looks for what is compiled beside a header by itself; other compilers read the header."""
    header = own.directory / "preludes" / f"{sha256((own.compiler.identity + prelude).encode()).hexdigest()}.h"
    if not header.exists():
        with tempfile.TemporaryDirectory(dir=own.directory) as folder:
            text, made = Path(folder, header.name), Path(folder, "made")
            text.write_text(prelude, encoding="utf-8")
            language = "c++-header" if "c++" in own.compiler.flags else "c-header"
            line = [*own.compiler.command, *own.compiler.flags, "-x", language, "-c", text, "-o", made]
            if subprocess.run(line, capture_output=True, check=False).returncode == 0:
                replace_file(header.with_name(f"{header.name}.gch"), made.read_bytes())
        replace_file(header, prelude.encode())
    return f'#include "{header}"'


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: the folder with pyproject.toml, src/, rules/ and examples/."""
    return ROOT


@pytest.fixture(scope="session")
def load_example() -> Callable[[str], ModuleType]:
    """`load_example("mlp")` imports examples/mlp.py afresh, outside of any package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def relative_rms() -> Callable[[np.ndarray, np.ndarray], float]:
    """The error of `got` against `want`, both arrays of one shape, as a fraction of the RMS of `want`."""

    def error(got: np.ndarray, want: np.ndarray) -> float:
        return float(np.sqrt(np.mean((got - want) ** 2)) / np.sqrt(np.mean(want**2)))

    return error


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """One child process for all saturations of a test run."""
    w = Worker.start()
    yield w
    w.close()


@pytest.fixture
def inverses() -> Callable[[np.ndarray], np.ndarray]:
    """A model of many functions of elements that are put beside each other."""

    def inverses(a: np.ndarray) -> np.ndarray:
        """Of 3x3 matrices, by cofactors."""
        r = [[a[:, i, j] for j in range(3)] for i in range(3)]
        minors = [
            [r[i - 2][j - 2] * r[i - 1][j - 1] - r[i - 2][j - 1] * r[i - 1][j - 2] for i in range(3)] for j in range(3)
        ]
        det = r[0][0] * minors[0][0] + r[0][1] * minors[1][0] + r[0][2] * minors[2][0]
        return np.stack([np.stack(row, -1) for row in minors], 1) / det[:, None, None]

    return inverses
