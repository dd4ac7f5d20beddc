"""Timings of a GPU that is not here keep counting where what they timed is what it was."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from calibration import launched, renamed
from calibration.gpu import prepare
from calibration.renamed import WrongTable

from waxeq.cost import archive
from waxeq.cost.key import TimingKey
from waxeq.cost.rows import KEY

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "calibration" / "8f431a4797ab.parquet"
OPTIONS = ("--since=HEAD", "--gpu=G", "--cuda=13000", "--driver=1.2", "--nvrtc=13.0", "--cublas=7", "--python=3.11")


def rows(path: Path) -> list[TimingKey]:
    with archive.connect() as db:
        found = db.execute(f"SELECT digest, {', '.join(KEY)} FROM read_parquet('{path}')").fetchall()
    keys = [TimingKey(*r[1:]) for r in found]
    assert [k.digest for k in keys] == [r[0] for r in found]
    return keys


def peaks(path: Path) -> list[Any]:
    with archive.connect() as db:
        return archive.shipped_peaks(db, path)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / TABLE.name
    path.write_bytes(TABLE.read_bytes())
    return path


def kernels(table: Path, second: str) -> dict[str, dict[str, Any]]:
    return {k.kernel: {"code": k.code, "calls": {"a": "1", "b": second}} for k in rows(table)}


def test_rows_of_kernels_that_launch_the_same_are_named_anew(table: Path) -> None:
    before = kernels(table, "2")
    now = {n: {"code": f"new {n}", "calls": {"b": "2", "c": "3"}} for n in before}
    now["cupy.gemv"]["calls"]["b"] = "another"
    now["cupy.copy"]["calls"] = {"c": "3"}
    many, ceilings = len(rows(table)), peaks(table)
    said = renamed.renamed(table, before, now, renamed.launched(before, now), any_method=True)
    left = [k for k in rows(table) if k.kernel in ("cupy.gemv", "cupy.copy")]
    assert {k.code for k in left} == {before[n]["code"] for n in ("cupy.gemv", "cupy.copy")}
    assert {k.kernel: k.code for k in rows(table) if k not in left} == {
        n: now[n]["code"] for n in before if n not in ("cupy.gemv", "cupy.copy")
    }
    some = f"{many - len(left)} of {many} rows are named anew, {many - len(left)} count"
    assert said == f"{some}; others are of cupy.copy, cupy.gemv"
    assert len(rows(table)) == many and peaks(table) == ceilings
    assert table.with_suffix(".blocks").exists(), "what a first run reads in its place is of this table"


def test_a_table_of_another_commit_or_gpu_stays_as_it_is(table: Path) -> None:
    before = {n: {**k, "code": "another"} for n, k in kernels(table, "2").items()}
    content = table.read_bytes()
    with pytest.raises(WrongTable, match="no row of"):
        renamed.renamed(table, before, before, lambda k: True)
    assert table.read_bytes() == content


def test_no_commit_is_a_sentence(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert renamed.main([str(table), "--since=no-such-commit", *OPTIONS[1:]]) == 3
    assert "no-such-commit is no commit here" in capsys.readouterr().err


def test_a_kernel_is_what_its_text_comes_to() -> None:
    """Functions and macros that it does not come to, and comments, may change; those that it does, and all else, may
    not."""
    half = "/* one */\nWX_FN float half(float x) {\n  return x / 2;\n}\n"
    before = (
        "#define N 3\n#define P(x) \\\n  (N + x)\nstruct s { int x; };\n"
        f"{half}WX_FN int twice(int x) {{ return 2 * x; }}\nWX_FN float all(float x) {{ return half(x); }}"
    )
    this = launched.needed(before, "y = all(x);")
    assert launched.needed(before.replace("one", "another").replace("2 * x", "x + x"), "y = all(x);") == this
    assert launched.needed(before + "\nWX_FN int thrice(int x) { return 3 * x; }\n", "y = all(x);") == this
    for old, new in (("x / 2", "x * 0.5f"), ("half(x); }", "half(x + 1); }"), ("int x; }", "long x; }")):
        assert launched.needed(before.replace(old, new), "y = all(x);") != this
    for old, new in (("N 3", "N 4"), ("N + x", "N - x")):
        assert launched.needed(before.replace(old, new), "y = all(x);") == this
        assert launched.needed(before.replace(old, new), "y = P(x);") != launched.needed(before, "y = P(x);")
    other = before.replace("2 * x", "x + x")
    assert launched.needed(before, "y = twice(x);") != launched.needed(other, "y = twice(x);")


def test_functions_are_told_apart() -> None:
    """All that begin with what has them inlined, each to its end."""
    from waxeq_cupy.kernels import prelude

    bare = launched.without_comments(prelude())
    found = [m[0] for m in launched._FUNCTION.finditer(bare)]
    assert len(found) == len(re.findall(r"^WX_FN ", bare, re.MULTILINE)) > 100
    assert all(text.count("{") == text.count("}") and text.count("WX_FN") == 1 for text in found)


@pytest.mark.slow
def test_kernels_say_what_they_launch_and_are_named_by_the_gpu(
    table: Path, virtual: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every eighth meaning of the grid, fewer calls drawn at random, and all besides."""
    wanted = {n: getattr(renamed.options([str(table), *OPTIONS]), n) for n in renamed._GPU}
    every = prepare.samples
    monkeypatch.setattr(prepare, "samples", lambda quick: islice(every(quick), 0, None, 8))
    monkeypatch.setattr(prepare, "Scope", partial(prepare.Scope, drawn=2))
    found = launched.described(wanted)
    assert {k.kernel for k in rows(table)} <= found.keys()
    assert all(k["calls"] for k in found.values())
    with launched.device({**wanted, "gpu": "H"}):
        from waxeq_cupy import backend

        assert all(k.code != found[n]["code"] for n, k in backend().kernels.items() if n in found)


def test_one_kind_of_machine_is_said_whole(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, says in ((("--gpu=G", "--cuda=1"), "--driver and --nvrtc"), (("--cpu=x",), "--march"), ((), "--gpu")):
        with pytest.raises(SystemExit) as stopped:
            renamed.options([str(table), "--since=HEAD", *given])
        assert stopped.value.code == 2 and says in capsys.readouterr().err
