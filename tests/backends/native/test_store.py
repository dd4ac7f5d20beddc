"""What was compiled takes no more room than it may: what was not used for longest goes, and is built again."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from waxeq.errors import UsageError
from waxeq_native import library as libraries
from waxeq_native.compiler import Compiler, find
from waxeq_native.library import Library
from waxeq_native.store import YOUNG, Store, size_limit

WORKER = """
import sys
from pathlib import Path
from waxeq_native import store
from waxeq_native.compiler import find
from waxeq_native.library import Library
store.YOUNG = 0.0  # so that processes do drop what others are about to load
library = Library(Path(sys.argv[1]), find(), 1)
for turn in range(3):
    names = [f"f{i}" for i in range(4)]
    for name in names:
        library.functions({name: f"double {name}(double x) {{ return x + {turn}; }}"}, "")
print(len(library._loaded), library.store.taken() > 0)
"""

SHARED = libraries.shared
"""As it is where tests put nothing in its place."""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find()


def built(store: Store, content: bytes, key: str, age: float = 0.0) -> str:
    """A file in the store that answers `key`, last used `age` seconds ago."""
    path = store.directory / "out.so"
    path.write_bytes(content)
    name = store.put(path)
    store.answers(key, name)
    os.utime(store.library(name), (time.time() - age, time.time() - age))
    return name


def there(store: Store) -> set[str]:
    return {path.stem for path in (store.directory / "libraries").iterdir()}


@pytest.mark.quick
def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, 1000)
    names = [built(store, bytes([i]) * 300, f"key{i}", 1000.0 - i) for i in range(5)]
    assert store.used(names[0]) == store.library(names[0])  # which makes it the last used
    store.make_room()
    assert there(store) == {names[0], names[3], names[4]} and store.taken() == 900
    assert sorted(path.name for path in (tmp_path / "entries").glob("*/*")) == ["key0", "key3", "key4"]
    with pytest.raises(FileNotFoundError):
        store.used(names[1])


@pytest.mark.quick
def test_what_is_loaded_or_new_stays(tmp_path: Path) -> None:
    store = Store(tmp_path, 100)
    old = [built(store, bytes([i]) * 300, f"key{i}", 10 * YOUNG) for i in range(3)]
    new = built(store, b"new" * 100, "new", YOUNG / 2)
    store.make_room(needed=[old[1]])
    assert there(store) == {old[1], new}


@pytest.mark.quick
def test_the_folder_is_looked_at_when_the_room_that_was_seen_is_filled(tmp_path: Path) -> None:
    store, other = Store(tmp_path, 1000), Store(tmp_path, 10_000)
    built(store, b"a" * 400, "a", 10 * YOUNG)
    store.make_room()
    built(other, b"b" * 800, "b", 20 * YOUNG)
    built(store, b"c" * 300, "c", 5 * YOUNG)
    store.make_room()
    assert store.taken() == 1500, "this process has filled 300 of the 600 bytes that it saw"
    built(store, b"d" * 301, "d")
    store.make_room()
    assert store.taken() == 601, "what was used longest ago went until nine tenths of the limit were left"


@pytest.mark.quick
def test_damaged_libraries_are_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    name = built(store, b"whole", "key")
    store.library(name).write_bytes(b"damaged")
    assert store.used(name) is None


def test_what_was_dropped_runs_on_and_is_built_again(tmp_path: Path, compiler: Compiler) -> None:
    def value(library: Library, name: str) -> float:
        address = library.functions({name: f"double {name}(void) {{ return {name[1:]}; }}"}, "")[name]
        return ctypes.CFUNCTYPE(ctypes.c_double)(address)()

    first = Library(tmp_path, compiler, 1 << 30)
    assert [value(first, f"f{i}") for i in range(3)] == [0.0, 1.0, 2.0]
    for path in (tmp_path / "libraries").iterdir():
        os.utime(path, (0, 0))
    second = Library(tmp_path, compiler, 1)
    assert value(second, "f3") == 3.0
    assert len(there(second.store)) == 1 and len(list((tmp_path / "entries").glob("*/*"))) == 1
    assert value(first, "f0") == 0.0, "what a process has loaded stays with it"
    assert value(second, "f0") == 0.0 and second.spent()[0] == 2


@pytest.mark.slow
def test_processes_that_drop_what_others_load(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    children = [subprocess.Popen(command, stdout=-1, stderr=-1, text=True) for _ in range(3)]
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0 and out.split() == ["12", "True"], err


@pytest.mark.quick
def test_the_size_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAXEQ_CACHE_SIZE", raising=False)
    assert size_limit() == 512 << 20
    monkeypatch.setenv("WAXEQ_CACHE_SIZE", "2GiB")
    assert size_limit() == 2 << 30
    monkeypatch.setenv("WAXEQ_CACHE_SIZE", "large")
    with pytest.raises(UsageError, match="WAXEQ_CACHE_SIZE: 'large' is not an amount of memory"):
        SHARED.__wrapped__()


def test_doctor_says_how_much_it_takes(tmp_path: Path, begin_cache: Callable[[Path], None]) -> None:
    begin_cache(tmp_path)
    environment = {**os.environ, "WAXEQ_CACHE": str(tmp_path), "WAXEQ_CACHE_SIZE": "3MiB"}
    command = [sys.executable, "-m", "waxeq", "doctor", "--json", "--table", str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert re.search(rf"takes \d\.\d MiB of at most 3\.0 MiB in {tmp_path / 'native'}", done.stdout)
