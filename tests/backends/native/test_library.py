"""The compiler is found or missed in words; what it made is found again, by any process, unless it is damaged."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from waxeq.backend.kernel import Unready
from waxeq.children import INHERITED, start
from waxeq_native import compiler as compilers
from waxeq_native import library as libraries
from waxeq_native.compiler import CompileFailed, Compiler, MissingCompiler, done, find
from waxeq_native.library import Library

PRELUDE = "#include <math.h>\n#include <stdint.h>\nstatic double twice(double x) { return 2 * x; }\n"

FULL = """for a; do case "$a" in *out.so) ln -s /dev/full "$(dirname "$a")/room";; esac; done
echo 'final link fai' >&2; exit 1"""
"""A compiler on a full disk, where its own words have no room either."""

WORKER = """
import sys
from pathlib import Path
from waxeq_native.compiler import find
from waxeq_native.library import Library
library = Library(Path(sys.argv[1]), find())
addresses = library.functions({f"f{i}": f"double f{i}(double x) {{ return x + {i}; }}" for i in range(6)}, "", jobs=2)
print(len(addresses), library.spent()[0])
"""


def source(name: str, expression: str) -> dict[str, str]:
    return {name: f"double {name}(double x) {{ return {expression}; }}\n"}


def call(addresses: Mapping[str, int], name: str, x: float) -> float:
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(addresses[name])(x)


def built(library: Library) -> list[Path]:
    return sorted((library.directory / "libraries").glob("*"))


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find()


@pytest.fixture
def library(tmp_path: Path, compiler: Compiler) -> Library:
    return Library(tmp_path, compiler)


@pytest.fixture
def program(tmp_path: Path, compiler: Compiler) -> Callable[[str], Compiler]:
    """`program(text)` is a compiler that is a shell script; in it $CC is the real one."""

    def make(text: str) -> Compiler:
        path = tmp_path / "compiler.sh"
        path.write_text(f'#!/bin/sh\nCC="{" ".join(compiler.command)}"\n{text}\n', encoding="utf-8")
        path.chmod(0o755)
        return replace(compiler, command=(str(path),))

    return make


def test_functions_are_found_and_run(library: Library) -> None:
    sources = source("one", "x + 1") | source("two", "twice(x)")
    addresses = library.functions(sources, PRELUDE)
    assert (call(addresses, "one", 2.0), call(addresses, "two", 5.0)) == (3.0, 10.0)
    assert library.spent()[0] == 2 and library.spent()[1] > 0
    assert library.functions(sources, PRELUDE) == addresses
    assert library.spent()[0] == 2
    assert library.functions({}, PRELUDE) == {}


def test_what_is_on_disk_is_not_compiled_again(library: Library, compiler: Compiler) -> None:
    library.functions(source("one", "x + 1") | source("two", "twice(x)"), PRELUDE)
    later = Library(library.directory, compiler)
    found = later.functions(source("two", "twice(x)") | source("three", "x + 3"), PRELUDE)
    assert (call(found, "two", 4.0), call(found, "three", 4.0)) == (8.0, 7.0)
    assert later.spent()[0] == 1


@pytest.mark.parametrize("what", ["source", "prelude", "version", "flags", "cpu"])
def test_whatever_changes_the_code_is_in_the_key(library: Library, compiler: Compiler, what: str) -> None:
    library.functions(source("f", "twice(x)"), PRELUDE)
    changed = {"version": "another", "flags": (*compiler.flags, "-DANOTHER"), "cpu": "another"}
    other = Library(library.directory, replace(compiler, **{k: v for k, v in changed.items() if k == what}))
    prelude = PRELUDE.replace("2 * x", "3 * x") if what == "prelude" else PRELUDE
    found = other.functions(source("f", "twice(x) + 1" if what == "source" else "twice(x)"), prelude)
    assert call(found, "f", 1.0) == 3.0 if what in ("prelude", "source") else 2.0
    assert other.spent()[0] == 1


def test_one_name_may_have_several_texts(library: Library) -> None:
    first = library.functions(source("f", "x + 1"), PRELUDE)
    second = library.functions(source("f", "x + 2"), PRELUDE)
    assert (call(first, "f", 0.0), call(second, "f", 0.0)) == (1.0, 2.0)


@pytest.mark.parametrize("jobs", [0, 1, 3, 9])
def test_kernels_are_shared_out_to_as_many_units_as_jobs(library: Library, jobs: int) -> None:
    sources = {f"f{i}": f"double f{i}(double x) {{ return x + {i}; }}" for i in range(5)}
    found = library.functions(sources, PRELUDE, jobs=jobs)
    assert [call(found, f"f{i}", 1.0) for i in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(built(library)) == max(1, min(jobs, 5))


def damage_bytes(library: Library) -> None:
    data = bytearray(built(library)[0].read_bytes())
    data[len(data) // 2] ^= 0xFF
    built(library)[0].write_bytes(data)


def damage_length(library: Library) -> None:
    data = built(library)[0].read_bytes()
    built(library)[0].write_bytes(data[: len(data) // 2])


def damage_library(library: Library) -> None:
    built(library)[0].unlink()


def damage_entry(library: Library) -> None:
    for entry in (library.directory / "entries").glob("*/*"):
        entry.write_bytes(b"\xff\x00/../nothing")


def damage_by_folder(library: Library) -> None:
    for entry in (library.directory / "entries").glob("*/*"):
        entry.write_text("")


@pytest.mark.parametrize("damage", [damage_bytes, damage_length, damage_library, damage_entry, damage_by_folder])
def test_damage_is_built_again(library: Library, compiler: Compiler, damage: Callable[[Library], None]) -> None:
    # A process of its own builds first: a library that this one has loaded must not be cut under it.
    subprocess.run([sys.executable, "-c", WORKER, str(library.directory)], check=True, capture_output=True)
    damage(library)
    sources = {f"f{i}": f"double f{i}(double x) {{ return x + {i}; }}" for i in range(6)}
    found = library.functions(sources, "", jobs=2)
    assert [call(found, f"f{i}", 1.0) for i in range(6)] == [float(i + 1) for i in range(6)]
    assert library.spent()[0] > 0
    again = Library(library.directory, compiler)
    assert again.functions(sources, "").keys() == sources.keys()
    assert again.spent()[0] == 0


def test_two_processes_at_once(tmp_path: Path, compiler: Compiler) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert [words[0] for words in said] == ["6", "6"]
    third = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert third.stdout.split() == ["6", "0"]
    assert not list(tmp_path.glob("building-*"))


def test_threads_compile_once(library: Library) -> None:
    sources = source("f", "x + 1") | source("g", "x + 2")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: library.functions(sources, PRELUDE), range(4)))
    assert all(addresses == found[0] for addresses in found)
    assert library.spent()[0] == 2


def test_a_bad_kernel_is_named_and_kept(library: Library, compiler: Compiler) -> None:
    sources = source("good", "x + 1") | {"bad": "double bad(double x) {\n  return y;\n}\n" + "/* long */" * 20}
    with pytest.raises(CompileFailed, match=r"bad:2:.*y.*; the source is kept in .*\.$") as caught:
        library.functions(sources, PRELUDE, jobs=2)
    kept = Path(str(caught.value).rpartition("kept in ")[2].removesuffix("."))
    assert "return y;" in (kept / "kernels.c").read_text(encoding="utf-8")
    assert not list(library.directory.glob("building-*"))
    later = Library(library.directory, compiler)
    later.functions(source("good", "x + 1"), PRELUDE)
    assert later.spent()[0] == 0, "what compiled beside it is kept"


def test_a_name_that_is_not_defined(library: Library) -> None:
    with pytest.raises(CompileFailed, match="one defines no function of that name"):
        library.functions({"one": "double other(double x) { return x; }"}, PRELUDE)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -9 $$", "was ended by signal 9"),
        ("exit 3", "gave up with code 3: it said nothing"),
        ("echo 'cannot write: no space' >&2; exit 1", "cannot write: no space"),
        ("true", "says that it compiled, and wrote nothing; the source is kept in"),
        (FULL, r"Nothing can be compiled in .*No space left on device.*: name a folder with room in WAXEQ_CACHE\."),
    ],
)
def test_a_compiler_that_fails(
    tmp_path: Path, program: Callable[[str], Compiler], compiler: Compiler, script: str, said: str
) -> None:
    with pytest.raises(CompileFailed, match=said):
        Library(tmp_path, program(script)).functions(source("f", "x"), PRELUDE)
    assert call(Library(tmp_path, compiler).functions(source("f", "x"), PRELUDE), "f", 7.0) == 7.0


def test_a_compiler_that_hangs_is_ended(
    tmp_path: Path, program: Callable[[str], Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "LIMIT", 0.3)
    with pytest.raises(CompileFailed, match="took longer than"):
        Library(tmp_path, program(f"sleep 60 & echo $! > {tmp_path}/child; wait")).functions(source("f", "x"), "")
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or ") Z" in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail("what the compiler started still runs")


def test_a_compiler_is_ended_when_nobody_waits_any_more(
    tmp_path: Path, program: Callable[[str], Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with the source then: it is not kept as one that failed."""
    monkeypatch.setattr(libraries, "patience", lambda: 0.3)
    with pytest.raises(Unready, match="nobody waits any more"):
        Library(tmp_path, program("sleep 60")).functions(source("f", "x"), "")
    assert not (tmp_path / libraries.FAILED).exists()


def test_a_unit_is_keyed_by_all_its_texts(tmp_path: Path, compiler: Compiler) -> None:
    def value(number: int, flags: tuple[str, ...] = ()) -> tuple[float, int]:
        (tmp_path / "number.h").write_text(f"#define NUMBER {number}\n", encoding="utf-8")
        library = Library(tmp_path / "cache", compiler)
        asked = [((tmp_path / "number.c", tmp_path / "number.h"), flags)]
        (loaded,) = library.units(asked)
        assert library.units(asked) == [loaded]
        return loaded.number(), library.spent()[0]

    (tmp_path / "cache").mkdir()
    text = '#include "number.h"\n#ifndef PLUS\n#define PLUS 0\n#endif\nint number(void) { return NUMBER + PLUS; }\n'
    (tmp_path / "number.c").write_text(text, encoding="utf-8")
    assert [value(1), value(2), value(1), value(1, ("-DPLUS=5",))] == [(1, 1), (2, 1), (1, 0), (6, 1)]


def test_units_that_are_missing_are_built_at_once(tmp_path: Path, compiler: Compiler) -> None:
    """And each once, however often it is asked for."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "number.c").write_text("int number(void) { return NUMBER; }\n", encoding="utf-8")
    asked = [((tmp_path / "number.c",), (f"-DNUMBER={n}",)) for n in (1, 2, 1, 3)]
    assert [built.number() for built in Library(tmp_path / "cache", compiler).units(asked[:1])] == [1]
    library = Library(tmp_path / "cache", compiler)
    assert [built.number() for built in library.units(asked)] == [1, 2, 1, 3]
    assert library.spent()[0] == 2, "one was there"


def test_infinities_and_zeros_keep_their_meaning(library: Library) -> None:
    sources = source("not_a_number", "isnan(x)") | source("plus", "(x + 1e308) - 1e308") | source("zero", "x + 0.0")
    found = library.functions(sources, PRELUDE)
    assert call(found, "not_a_number", float("nan")) == 1.0
    assert call(found, "plus", 1.0) == 0.0
    assert str(call(found, "zero", -0.0)) == "0.0"


def test_the_cache_lies_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAXEQ_CACHE", str(tmp_path / "one"))
    assert libraries.directory() == tmp_path / "one" / "native"
    assert libraries.directory(tmp_path / "two") == tmp_path / "two" / "native"
    assert (tmp_path / "two" / "native").stat().st_mode & 0o077 == 0


def test_the_cache_has_a_place_where_only_numpy_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAXEQ_CACHE")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert libraries.directory() == tmp_path / "caches" / "waxeq" / "native"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert libraries.directory() == tmp_path / "home" / ".cache" / "waxeq" / "native"


def test_a_cache_that_cannot_be_written_is_replaced_aloud(tmp_path: Path, compiler: Compiler) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match=r"file/native cannot be written .*WAXEQ_CACHE"):
        folder = libraries.directory(tmp_path / "file")
    assert call(Library(folder, compiler).functions(source("f", "x + 1"), ""), "f", 1.0) == 2.0


def test_what_replaces_a_cache_is_that_of_the_processes_that_are_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each had a folder of its own, compiled the same again, and left it in /tmp."""
    (tmp_path / "native").write_text("")
    monkeypatch.setenv("WAXEQ_CACHE", str(tmp_path))
    monkeypatch.setitem(INHERITED, "WAXEQ_CACHE", "")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        folder = libraries.directory()
    look = "from waxeq_native.library import directory; print(directory())"
    with start(lambda _: [sys.executable, "-W", "error", "-c", look], stdout=-1) as child:
        assert child.communicate(timeout=60)[0].decode().strip() == str(folder)
    assert folder.is_dir()


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    folder = libraries.directory(tmp_path)
    (folder / "building-old").mkdir()
    (folder / "building-new").mkdir()
    os.utime(folder / "building-old", (0, 0))
    entries = folder / "entries" / "ab"
    entries.mkdir(parents=True)
    for name in (".old", ".new", "whole"):
        (entries / name).write_text("")
    for name in (".old", "whole"):
        os.utime(entries / name, (0, 0))
    libraries.directory(tmp_path)
    assert [path.name for path in folder.glob("building-*")] == ["building-new"]
    assert sorted(path.name for path in entries.iterdir()) == [".new", "whole"]


def test_a_process_that_does_not_end_is_said_to_have_taken_its_time() -> None:
    """It was said to have taken no time at all."""
    with subprocess.Popen(("sleep", "60")) as slow, pytest.raises(subprocess.TimeoutExpired) as told:
        try:
            done(slow, 0.05)
        finally:
            slow.kill()
    assert told.value.timeout == 0.05


def test_no_compiler_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingCompiler, match=r"^No C compiler works here: install gcc or clang, or .*CC\.$"):
        find({"PATH": str(tmp_path)})


def test_a_compiler_named_in_cc_is_not_replaced(tmp_path: Path, compiler: Compiler) -> None:
    with pytest.raises(MissingCompiler, match=r"CC is `no-such-compiler -x`, which does not work \(no such program\)"):
        find({**os.environ, "CC": "no-such-compiler -x"})
    with pytest.raises(MissingCompiler, match=r"CC is `gcc -D'x`, which is no command \(No closing quotation\)"):
        find({**os.environ, "CC": "gcc -D'x"})
    named = find({**os.environ, "CC": f"{compiler.command[0]} -DNAMED"})
    assert named.command == (compiler.command[0], "-DNAMED")


def test_a_compiler_that_knows_only_the_other_word_for_this_machine(program: Callable[[str], Compiler]) -> None:
    makes = '*-o*) while [ "$1" != -o ]; do shift; done; : > "$2";;'
    refusing = program(f'case "$*" in *-march=native*) echo "error: unknown" >&2; exit 1;; {makes} esac')
    found = find({**os.environ, "CC": refusing.command[0]})
    assert found.flags[: len(compilers.FLAGS) + 1] == (*compilers.FLAGS, "-mcpu=native")


def test_what_a_compiler_was_found_to_know_is_remembered(program: Callable[[str], Compiler], tmp_path: Path) -> None:
    counting = program(f'case "$*" in *--version*) echo one;; *) echo >> {tmp_path}/count; exec $CC "$@";; esac')
    environment = {**os.environ, "CC": counting.command[0]}

    def found() -> tuple[Compiler, int]:
        return find(environment, tmp_path / "memory"), len((tmp_path / "count").read_text().splitlines())

    first, count = found()
    assert (first, count) == (find(environment, tmp_path / "memory"), 1)
    next((tmp_path / "memory").iterdir()).write_bytes(b"\xff")
    assert found() == (first, 2)
    program('case "$*" in *--version*) echo two;; *) exec $CC "$@";; esac')
    assert found()[0] == replace(first, version="two")


def test_a_compiler_may_say_its_version_in_any_bytes(program: Callable[[str], Compiler]) -> None:
    """Regression: it was refused with what Python says of bytes that are no UTF-8."""
    said = program("""case "$*" in *--version*) printf 'gcc \\351\\n';; *) exec $CC "$@";; esac""")
    found = find({**os.environ, "CC": said.command[0]})
    assert found.version == "gcc \ufffd"


def test_what_a_compiler_leaves_lies_beside_what_it_was_to_make(
    program: Callable[[str], Compiler], tmp_path: Path
) -> None:
    """Regression: one that was ended left its files in /tmp."""
    said = program(f'echo "$TMPDIR" > {tmp_path}/room; exec $CC "$@"')
    Library(tmp_path, said).functions(source("one", "x + 1"), PRELUDE)
    assert Path((tmp_path / "room").read_text().strip()).is_relative_to(tmp_path)


def test_a_compiler_that_makes_nothing_does_not_work(program: Callable[[str], Compiler]) -> None:
    with pytest.raises(MissingCompiler, match="it said nothing"):
        find({**os.environ, "CC": program("exit 0").command[0]})


def test_a_compiler_without_headers_does_not_work(program: Callable[[str], Compiler]) -> None:
    broken = program("echo 'probe.c:1:10: fatal error: stdint.h: No such file' >&2; exit 1")
    with pytest.raises(MissingCompiler, match=r"fatal error: stdint\.h"):
        find({**os.environ, "CC": broken.command[0]})


def test_the_processor_is_described() -> None:
    assert compilers.cpu() == compilers.cpu()
    assert len(compilers.cpu()) > len(os.uname().machine)


def test_what_is_compiled_little_reads_its_prelude_precompiled(little: Library, tmp_path: Path) -> None:
    """Nothing else would tell: the compiler reads the header itself, in more time, where it cannot take what is beside
    it."""
    compiler = little.compiler
    said = subprocess.run([*compiler.command, "--version"], capture_output=True, text=True, check=True).stdout
    if "Free Software Foundation" not in said:
        pytest.skip("another compiler than gcc")
    prelude = f"{PRELUDE}/* {tmp_path} */\n"
    assert call(little.functions(source("f", "twice(x) + 1"), prelude), "f", 3.0) == 7.0
    headers = (little.directory / "preludes").glob("*.h")
    (header,) = (path for path in headers if path.read_text(encoding="utf-8") == prelude)
    text = tmp_path / "k.c"
    text.write_text(f'#line 1 "prelude"\n#include "{header}"\n', encoding="utf-8")
    line = [*compiler.command, *compiler.flags, "-H", "-o", str(tmp_path / "k.so"), str(text)]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stderr
    header.unlink()
    Path(f"{header}.gch").unlink()  # the folder is kept, and the next run makes it anew
    assert shown.splitlines()[0] == f"! {header}.gch"
