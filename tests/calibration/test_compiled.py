"""Timings of a CPU that is not here keep counting, row by row, where its compiler sees what it saw."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from calibration import compiled, preprocessed, renamed

from waxeq.backend.call import Call
from waxeq.cost import archive
from waxeq.cost.device import current_device
from waxeq.cost.key import METHOD, TimingKey
from waxeq.cost.rows import KEY
from waxeq_native.library import shared
from waxeq_native.work import Work

ROOT = Path(__file__).resolve().parents[2]
ZEN4 = ROOT / "calibration" / "machines" / "zen4.cpuinfo"
TABLE = ROOT / "calibration" / "b72fa6de5fba.parquet"
PRELUDE = """#include <stdint.h>
/* Half. */
static inline float half(float x) { return x / 2; }
static inline float twice(float x) {
  struct { float y; } s = {x};
  return 2 * s.y;
}
typedef float wx_pair __attribute__((vector_size(8)));
static inline wx_pair both(wx_pair x) { return x; }
#ifdef __AVX512F__
enum { MANY = 16 };
#else
enum { MANY = 8 };
#endif
static const float table[MANY] = {1};
"""
FUNCTION = """void wx_this(float *x) { /* one */
#ifdef __AVX512F__
  x[0] = half(x[0]);
#else
  x[0] = twice(x[0]);
#endif
  x[1] = table[MANY - 1];
}"""


def command() -> tuple[str, ...]:
    return shared().compiler.command


def gcc() -> bool:
    return "clang" not in shared().compiler.version and "ziglang" not in command()


def said(prelude: str, function: str, *flags: str) -> dict[str, Any]:
    """What `compiled.described` says of a kernel of one call."""
    call = {"functions": [0], "products": False, "rest": "a"}
    return {
        "command": command(), "flags": ["-O3", "-shared", *flags], "prelude": prelude, "functions": [function],
        "files": {"team": [{"texts": {"team.c": "int team;"}, "flags": []}], "products": []},
        "kernels": {"native.x": {"code": "c", "calls": {"call": [call]}}},
    }  # fmt: skip


def seen(prelude: str, function: str, *flags: str) -> str:
    return preprocessed.calls_seen(said(prelude, function, *flags))["native.x"]["calls"]["call"]


def test_a_call_is_what_its_compiler_sees() -> None:
    """What other machines have, comments and what a function does not come to may change; all else may not."""
    wide = "-D__AVX512F__"
    this = seen(PRELUDE, FUNCTION, wide)
    for old, new in (("Half.", "A half."), ("2 * s.y", "s.y + s.y"), ("return x; }", "return -x; }"), ("= 8", "= 4")):
        assert old in PRELUDE
        assert seen(PRELUDE.replace(old, new), FUNCTION, wide) == this, old
    for old, new in (("one", "another"), ("twice(x[0])", "3 * twice(x[0])")):
        assert seen(PRELUDE, FUNCTION.replace(old, new), wide) == this, old
    for old, new in (("x / 2", "x * 0.5f"), ("= 16", "= 32"), ("= {1}", "= {2}")):
        assert seen(PRELUDE.replace(old, new), FUNCTION, wide) != this, old
    for old, new in (("half(x[0])", "half(x[1])"), ("MANY - 1", "MANY - 2")):
        assert seen(PRELUDE, FUNCTION.replace(old, new), wide) != this, old
    assert seen("#pragma GCC optimize(1)\n" + PRELUDE, FUNCTION, wide) != this
    narrow = seen(PRELUDE, FUNCTION, "-U__AVX512F__")
    assert narrow != seen(PRELUDE.replace("2 * s.y", "s.y + s.y"), FUNCTION, "-U__AVX512F__")
    assert narrow == seen(PRELUDE.replace("x / 2", "x * 0.5f"), FUNCTION, "-U__AVX512F__")


@pytest.mark.parametrize("change", ["rest", "team", "flags", "products"])
def test_a_call_is_all_that_makes_a_run_of_it(change: str) -> None:
    before, now = said(PRELUDE, FUNCTION), said(PRELUDE, FUNCTION)
    call = now["kernels"]["native.x"]["calls"]["call"][0]
    if change == "rest":
        call["rest"] = "b"
    elif change == "team":
        now["files"]["team"][0]["texts"]["team.c"] = "int team = 1;"
    elif change == "flags":
        now["flags"].append("-fwrapv")
    else:
        call["products"] = True
        now["files"]["products"] = now["files"]["team"]
    assert preprocessed.calls_seen(before) != preprocessed.calls_seen(now)


def test_macros_of_a_function_hold_for_no_other() -> None:
    d = said(PRELUDE, "#define N 3\nint wx_this(void) { return N; }")
    d["functions"].append("int wx_this(int N) { return N; }")
    d["kernels"]["native.x"]["calls"]["other"] = [{"functions": [1], "products": False, "rest": "a"}]
    alone = said(PRELUDE, "int wx_this(int N) { return N; }")
    found, other = (preprocessed.calls_seen(x)["native.x"]["calls"] for x in (d, alone))
    assert found["other"] == other["call"] != found["call"]


def test_what_stands_before_functions_is_told_apart() -> None:
    """The text that all kernels have: each function to its end, named by its name."""
    from waxeq_native.steps import prelude

    text, _ = preprocessed._all(command(), ["-O3", "-std=gnu11", "-march=native"], prelude(), [])
    found = [x.strip() for x in preprocessed.items(text.text)]
    functions = [x for x in found if x.startswith("static") and x.endswith("}")]
    assert len(functions) > 100 and "".join(found).split() and all(x.count("{") == x.count("}") for x in found)
    assert all(1 <= len(preprocessed.declared(x)) < 6 for x in functions)
    assert preprocessed.declared("static inline __typeof__(x) f(int a) { return a; }") >= {"x", "f"}


@pytest.mark.skipif(not gcc(), reason="another compiler says otherwise what it makes code for")
def test_vectors_are_those_of_the_processor() -> None:
    """A gcc that does not know a Zen 4 takes it for a Zen 3 with wider vectors."""
    flags = preprocessed.vector_flags(command(), "znver3", ZEN4.read_text())
    assert flags[0] == "-march=znver3" and {"-mavx512f", "-mavx512bf16", "-mgfni"} <= {*flags}
    none = preprocessed.vector_flags(command(), "znver3", "fpu avx")
    assert {"-mno-avx2", "-mno-vaes"} <= {*none} and "-mavx512f" not in none


# -- kernels


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, Any]]:
    """What is said of a handful of calls of a calibration on this machine, its vectors aside."""
    from waxeq.search import samples

    whole = samples.samples
    monkeypatch.setattr(samples, "samples", lambda quick: [s for n, s in enumerate(whole(True)) if n % 40 == 0])
    device = asdict(current_device(1))
    yield {"cpu": shared().compiler.cpu, "flags": ["-march=native"], "device": device}


def test_kernels_say_what_they_run_as_they_are_named_here(few: Mapping[str, Any]) -> None:
    from waxeq.backend.discover import backends, kernels

    found = compiled.described(few)
    own = kernels(backends(("native", "numpy")))
    assert {n: k["code"] for n, k in found["kernels"].items()} == {n: k.code for n, k in own.items()}
    calls = {n: k["calls"] for n, k in found["kernels"].items() if k["calls"]}
    assert len(calls) > 5 and all(n.startswith("native.") for n in calls)
    assert len(preprocessed.calls_seen(found)["native.loops"]["calls"]) == len(calls["native.loops"])


@pytest.mark.parametrize("edit", ["text", "features"])
def test_an_edit_of_some_calls_leaves_just_those_stale(few: Mapping[str, Any], edit: str) -> None:
    """What is said of a call's cost is part of a row, too."""
    from waxeq_native import work
    from waxeq_native.loops import Loops

    before = preprocessed.calls_seen(compiled.described(few))["native.loops"]["calls"]
    written, features = Loops._written, Loops.features

    def other(self: Loops, call: Call, *more: Any) -> Work:
        found = written(self, call, *more)
        parts = (replace(p, text=p.text.replace("{", "{ (void)0;", 1)) for p in found.parts)
        return replace(found, write=lambda made=tuple(parts): made) if call.out.dtype == "float64" else found

    def more(self: Loops, call: Call) -> Any:
        return {**features(self, call), **({"seconds": 1.0} if call.out.dtype == "float64" else {})}

    work._known.clear()  # works of calls that are known are not made again
    try:
        with patch.object(Loops, *(("_written", other) if edit == "text" else ("features", more))):
            now = preprocessed.calls_seen(compiled.described(few))["native.loops"]["calls"]
    finally:
        work._known.clear()
    changed = {c for c in before if now[c] != before[c]}
    assert changed == {c for c in before if json.loads(c)[3] == "float64"} and before.keys() - changed and changed


def test_rows_of_calls_that_are_seen_the_same_are_named_anew(tmp_path: Path) -> None:
    """Each for itself; those of another way of timing, and of calls that nobody knows, stay."""
    table = tmp_path / TABLE.name
    table.write_bytes(TABLE.read_bytes())
    keys = _rows(table)
    calls: dict[str, dict[str, str]] = {}
    for k in keys:
        calls.setdefault(k.kernel, {})[json.dumps([k.text, k.dims, k.layout, k.dtype])] = "1"
    codes = {k.kernel: k.code for k in keys}
    before = {n: {"code": codes[n], "calls": dict(c)} for n, c in calls.items()}
    now = {n: {"code": f"new {n}", "calls": dict(c)} for n, c in calls.items()}
    one, other = list(calls["native.loops"])[:2]
    now["native.loops"]["calls"][one] = "2"
    del before["native.loops"]["calls"][other]
    renamed.renamed(table, before, now, renamed.seen(before, now))
    left = [k for k in _rows(table) if not k.code.startswith("new ")]
    current = [k for k in left if k.method == METHOD and k.code == codes[k.kernel]]  # others are of older kernels
    assert {json.dumps([k.text, k.dims, k.layout, k.dtype]) for k in current} == {one, other}
    assert {k.kernel for k in current} == {"native.loops"} and len(left) > len(current)
    assert len(_rows(table)) == len(keys)


def _rows(path: Path) -> list[TimingKey]:
    with archive.connect() as db:
        found = db.execute(f"SELECT digest, {', '.join(KEY)} FROM read_parquet('{path}')").fetchall()
    keys = [TimingKey(*r[1:]) for r in found]
    assert [k.digest for k in keys] == [r[0] for r in found]
    return keys


def test_what_is_seen_the_same_is_the_same_code(tmp_path: Path) -> None:
    """The check itself: objects of two versions that differ where this machine's compiler does not look."""
    objects, edited = [], PRELUDE.replace("2 * s.y", "s.y + s.y + 1")
    assert seen(PRELUDE, FUNCTION, "-D__AVX512F__") == seen(edited, FUNCTION, "-D__AVX512F__")
    for n, prelude in enumerate((PRELUDE, edited)):
        source, built = tmp_path / f"{n}.c", tmp_path / "out.o"
        source.write_text(f"{prelude}\n{FUNCTION}\n")
        line = [*command(), "-O3", "-w", "-D__AVX512F__", "-c", "-x", "c", "-", "-o", str(built)]
        subprocess.run(line, input=source.read_text(), text=True, check=True)
        objects.append(built.read_bytes())
    assert objects[0] == objects[1]
