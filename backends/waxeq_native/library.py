"""Shared libraries of C: built once for a source, a compiler and a machine, kept on disk and for the process's life."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from waxeq.backend.kernel import Unready, patience
from waxeq.children import INHERITED
from waxeq.errors import WaxeqError, WaxeqWarning
from waxeq.forks import renewed_in_children
from waxeq_native.compiler import CompileFailed, Compiler, done, end, ended, find, first_error
from waxeq_native.files import HALF, in_turn, replace
from waxeq_native.store import LIMIT as SIZE
from waxeq_native.store import Store, size_limit

BUILDING, TURNS = "building-", "turns"
STALE = 24 * 3600.0  # seconds after which a folder of that name is of a process that was killed
FAILED, FORGOTTEN = "failed", 7 * STALE
"""Where the sources of what failed to compile are kept, and seconds after which nobody asks for them."""

ROOM = 1 << 20
"""Bytes that a library may take: where they cannot be written, it is not the source that was wrong."""

LIMIT = 120.0
"""Seconds that the compiler may take for one unit."""

CLEARED = 5.0
"""Seconds in which a thread whose compilers were ended has cleared away what they left."""


Asked = tuple[tuple[Path, ...], tuple[str, ...]]
"""Files of a unit, and flags."""


@dataclass(frozen=True)
class Unit:
    """One call of the compiler: `files` (name to text) are written to a folder and those that end in .c are compiled;
    `entries` (key to C name) are what the library answers. A key without a C name stands for the whole library.
    """

    files: Mapping[str, str]
    entries: Mapping[str, str | None]
    flags: tuple[str, ...] = ()


class Library:
    """The libraries below `directory` that `compiler` builds. Threads may share it.

    Methods raise CompileFailed when a source does not compile or what was built cannot be loaded, Unready when nobody
    waits any more for a compiler.
    """

    def __init__(self, directory: Path, compiler: Compiler, limit: int = SIZE) -> None:
        """`limit`: bytes that libraries on disk may take."""
        self.directory = directory
        self.compiler = compiler
        self.store = Store(directory, limit)
        self._addresses: dict[tuple[str, str, str], int] = {}
        self._units: dict[Asked, ctypes.CDLL] = {}
        self._loaded: dict[str, ctypes.CDLL] = {}
        self._compiled = 0
        self._seconds = 0.0
        self._over = False
        self._begin()
        renewed_in_children(self, Library._begin)

    def _begin(self) -> None:
        """Nothing is compiled: here at first, and in a process that was forked, as compilers are the other's."""
        self._running = set[subprocess.Popen]()
        self._folders = set[Path]()
        self._lock = threading.RLock()

    def functions(self, sources: Mapping[str, str], prelude: str, *, jobs: int = 1) -> Mapping[str, int]:
        """The address of the C function of each name; its text in `sources` defines it, after `prelude`.

        Texts are compiled many to a unit, so whatever else one defines (static functions too) needs a name that no
        other uses. `jobs`: how many compilers may run at once.
        """
        known = {name: self._addresses.get((name, text, prelude)) for name, text in sources.items()}
        missing = {name: sources[name] for name, address in known.items() if address is None}
        if missing:
            with self._lock:
                found = self._functions(missing, prelude, jobs)
            self._addresses.update({(name, sources[name], prelude): address for name, address in found.items()})
            known |= found
        return {name: address for name, address in known.items() if address is not None}

    def units(self, asked: Sequence[Asked]) -> list[ctypes.CDLL]:
        """The library of the C files among the paths of each; the others are headers that they include from their own
        folder. Files are read once in a process. Flags come after those that every unit is built with. Those that are
        not there yet are built all at once.
        """
        if any(a not in self._units for a in asked):
            with self._lock:
                new = [a for a in dict.fromkeys(asked) if a not in self._units]
                files = {a: {path.name: path.read_text(encoding="utf-8") for path in a[0]} for a in new}
                texts = {a: [part for pair in sorted(files[a].items()) for part in pair] for a in new}
                keys = {a: self._key("unit", *a[1], *texts[a]) for a in new}
                built = self._whole({keys[a]: Unit(files[a], {keys[a]: None}, a[1]) for a in new})
                self._units |= {a: built[keys[a]] for a in new}
        return [self._units[a] for a in asked]

    def end(self) -> None:
        """Ends the compilers that run, of which nothing is left then, and those that would begin: whoever waits for
        them is not there any more."""
        self._over = True
        for process in tuple(self._running):
            end(process)
        if self._lock.acquire(timeout=CLEARED):
            self._lock.release()
        for left in tuple(self._folders):
            shutil.rmtree(left, ignore_errors=True)

    def spent(self) -> tuple[int, float]:
        """How many functions and whole units this process has compiled, and the seconds that it waited for them."""
        return self._compiled, self._seconds

    def _functions(self, sources: Mapping[str, str], prelude: str, jobs: int) -> dict[str, int]:
        keys = {name: self._key("function", name, text, prelude) for name, text in sources.items()}
        libraries = {key: self._stored(key) for key in keys.values()}
        missing = {name: text for name, text in sources.items() if libraries[keys[name]] is None}
        units = [
            Unit({"kernels.c": _joined(part, prelude)}, {keys[name]: name for name in part})
            for part in _shared_out(missing, jobs)
        ]
        libraries |= self._built(units)
        return {name: _address(libraries[key], name) for name, key in keys.items()}

    def _whole(self, units: Mapping[str, Unit]) -> dict[str, ctypes.CDLL]:
        """The libraries of units by their keys. They take seconds: one process builds each, and others wait for it."""
        stored = {key: self._stored(key) for key in units}
        missing = [key for key, it in stored.items() if it is None]
        if missing:
            began = time.monotonic()

            def given_up() -> bool:
                return self._over or patience() <= 0 or time.monotonic() > began + LIMIT

            with in_turn(self.directory / TURNS, missing, given_up):
                self._seconds += time.monotonic() - began
                stored |= {key: self._stored(key) for key in missing}
                stored |= self._built([units[key] for key in missing if stored[key] is None])
        return {key: it for key, it in stored.items() if it is not None}

    def _key(self, *parts: str) -> str:
        return sha256("\0".join((self.compiler.identity, *parts)).encode()).hexdigest()

    def _stored(self, key: str) -> ctypes.CDLL | None:
        """The library on disk that answers `key`; None if there is none or it is damaged."""
        try:
            name = self.store.name(key)
            if name in self._loaded:
                return self._loaded[name]
            path = self.store.used(name)
            if path is None:
                return None
            self._loaded[name] = ctypes.CDLL(str(path))
        except (OSError, ValueError):
            return None
        return self._loaded[name]

    def _built(self, units: Sequence[Unit]) -> dict[str, ctypes.CDLL]:
        """Compiles the units, all at once, and stores them. Those that compile are kept even if another does not."""
        if not units:
            return {}
        began = time.perf_counter()
        try:
            with self._folder() as folder:
                found = self._compiled_in(folder, units)
        except OSError as e:
            raise CompileFailed(
                f"Nothing can be compiled in {self.directory} ({e}): name a folder with room in WAXEQ_CACHE."
            ) from e
        finally:
            self._seconds += time.perf_counter() - began
        self._compiled += sum(len(unit.entries) for unit in units)
        self.store.make_room(self._loaded)
        return found

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """A folder for as long as something is compiled. That of tempfile would also go where a process that was forked
        meanwhile ends."""
        made = Path(tempfile.mkdtemp(prefix=BUILDING, dir=self.directory))
        self._folders.add(made)
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
            self._folders.discard(made)

    def _compiled_in(self, folder: Path, units: Sequence[Unit]) -> dict[str, ctypes.CDLL]:
        places = [folder / str(number) for number in range(len(units))]
        running: list[subprocess.Popen] = []
        found: dict[str, ctypes.CDLL] = {}
        failures: list[WaxeqError] = []
        try:
            for place, unit in zip(places, units, strict=True):
                sources = _written(place, unit.files)
                running.append(self.compiler.start(sources, place / "out.so", place / "log", unit.flags))
                self._running.add(running[-1])
            for place, unit, process in zip(places, units, running, strict=True):
                try:
                    self._wait(process, place, unit)
                    found |= dict.fromkeys(unit.entries, self._kept(place / "out.so", unit))
                except (CompileFailed, Unready) as e:
                    failures.append(e)
        finally:
            for process in running:
                end(process)
            self._running.difference_update(running)
        if failures:
            raise failures[0]
        return found

    def _wait(self, process: subprocess.Popen, place: Path, unit: Unit) -> None:
        left = 0.0 if self._over else patience()
        try:
            code = done(process, min(LIMIT, left))
        except subprocess.TimeoutExpired:
            if left < LIMIT:
                raise self._unwanted() from None
            raise self._failure(f"took longer than {LIMIT:.0f} s", place, unit) from None
        if code != 0 and self._over:
            raise self._unwanted()
        if code != 0:
            log = (place / "log").read_text(encoding="utf-8", errors="replace")
            (place / "room").write_bytes(bytes(ROOM))  # on a full disk neither the compiler nor its messages have any
            why = f"{ended(code)}: {first_error(log)}" if log.strip() or code > 0 else ended(code)
            raise self._failure(why.replace(f"{place}{os.sep}", ""), place, unit)
        if not (place / "out.so").exists():
            raise self._failure("says that it compiled, and wrote nothing", place, unit)

    def _unwanted(self) -> Unready:
        return Unready(f"`{' '.join(self.compiler.command)}` was ended, for nobody waits any more")

    def _failure(self, why: str, place: Path, unit: Unit) -> CompileFailed:
        """The error for a unit that did not compile, whose files are kept."""
        kept = self.directory / FAILED / sha256(repr(sorted(unit.files.items())).encode()).hexdigest()[:16]
        for name, text in unit.files.items():
            replace(kept / name, text.encode())
        command = " ".join(self.compiler.command)
        return CompileFailed(f"`{command}` {why}; the source is kept in {kept}.")

    def _kept(self, built: Path, unit: Unit) -> ctypes.CDLL:
        """Loads what was built and moves it to its place: another process may drop it as soon as it lies there."""
        try:
            loaded = ctypes.CDLL(str(built))
        except OSError as e:
            raise CompileFailed(
                f"What was compiled cannot be loaded ({e}): name a folder that allows programs in WAXEQ_CACHE."
            ) from e
        name = self.store.put(built)
        for key in unit.entries:
            self.store.answers(key, name)
        return self._loaded.setdefault(name, loaded)


def functions(sources: Mapping[str, str], prelude: str, *, jobs: int = 1) -> Mapping[str, int]:
    """`Library.functions` of the library of this process. Raises MissingCompiler too."""
    return shared().functions(sources, prelude, jobs=jobs)


def unit(paths: tuple[Path, ...], flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library of some files, of the library of this process. Raises MissingCompiler too."""
    (built,) = units([(paths, flags)])
    return built


def units(asked: Sequence[Asked]) -> list[ctypes.CDLL]:
    """`Library.units` of the library of this process. Raises MissingCompiler too."""
    return shared().units(asked)


def spent() -> tuple[int, float]:
    """`Library.spent` of the library of this process; nothing if none was needed yet."""
    return shared().spent() if shared.cache_info().currsize else (0, 0.0)


@cache
def shared() -> Library:
    """The library of this process: its compiler is looked for, and WAXEQ_CACHE, WAXEQ_CACHE_SIZE and CC are read, when
    it is first used.

    Raises MissingCompiler, and UsageError for a size that is none.
    """
    limit, folder = size_limit(), directory()
    made = Library(folder, find(memory=folder / "compilers"), limit)
    atexit.register(made.end)  # a thread that has something compiled ahead ends with the process, wherever it is
    return made


def directory(chosen: str | Path | None = None) -> Path:
    """The folder of the cache: `native` in `chosen`, in WAXEQ_CACHE or where the system keeps the caches of a user.
    Where that cannot be written, a temporary one, with a warning.
    """
    base = Path(chosen or os.environ.get("WAXEQ_CACHE") or _usual())
    folder = base.expanduser().absolute() / "native"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            _tidy(folder)
        return folder
    except OSError as e:
        base = Path(tempfile.mkdtemp(prefix="waxeq-native-"))
        atexit.register(_removed, base, os.getpid())
        if chosen is None:  # processes that are started here would each make another, and all that is in it
            INHERITED["WAXEQ_CACHE"] = str(base)
        other = base / "native"
        other.mkdir()
        warnings.warn(
            f"The cache {folder} cannot be written ({e.strerror}); compiled kernels are kept in {other}: "
            "name a folder that can be written in WAXEQ_CACHE.",
            WaxeqWarning,
            stacklevel=2,
        )
        return other


def _removed(folder: Path, owner: int) -> None:
    """Unless this is a process that was forked, and ends before the one whose folder it is."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _usual() -> str:
    """Where the system keeps the caches of a user. Plans run without platformdirs, which knows that of every system:
    then it is as on Linux."""
    try:
        from platformdirs import user_cache_dir
    except ImportError:
        return str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "waxeq")
    return user_cache_dir("waxeq")


def _tidy(folder: Path) -> None:
    """Remove what processes left that did not end well, and what failed to compile long ago."""
    folders, files = shutil.rmtree, Path.unlink
    rows = (f"{BUILDING}*", STALE, folders), (f"{FAILED}/*", FORGOTTEN, folders), (f"entries/*/{HALF}*", STALE, files)
    for pattern, age, remove in rows:
        for left in folder.glob(pattern):
            with suppress(OSError):
                if left.stat().st_mtime < time.time() - age:
                    remove(left)


def _shared_out(sources: Mapping[str, str], jobs: int) -> list[dict[str, str]]:
    """The texts in at most `jobs` parts of about equal length, which is about equal time."""
    parts: list[dict[str, str]] = [{} for _ in range(min(max(jobs, 1), len(sources)))]
    lengths = [0] * len(parts)
    for name, text in sorted(sources.items(), key=lambda item: (-len(item[1]), item[0])):
        shortest = lengths.index(min(lengths))
        parts[shortest][name] = text
        lengths[shortest] += len(text)
    return parts


def _joined(sources: Mapping[str, str], prelude: str) -> str:
    """One text of many, in which the compiler's messages name the kernel."""
    texts = (f'#line 1 "{name}"\n{text}\n' for name, text in sources.items())
    return "".join([f'#line 1 "prelude"\n{prelude}\n', *texts])


def _written(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes the files and gives back those to compile."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files if name.endswith(".c")]


def _address(library: ctypes.CDLL | None, name: str) -> int:
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        address = None
    if not address:
        raise CompileFailed(f"The source of {name} defines no function of that name.")
    return address
