"""Timings of a GPU that is not here keep counting where what they timed is what it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from calibration import renamed

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


def kernels(table: Path, launched: str) -> dict[str, dict[str, Any]]:
    return {k.kernel: {"code": k.code, "launches": {"a": "1", "b": launched}} for k in rows(table)}


def test_rows_of_kernels_that_launch_the_same_are_named_anew(table: Path) -> None:
    before = (
        "#define N 3\n#define P(x) \\\n  (N + x)\nstruct s { int x; };\n"
        f"{half}WX_FN int twice(int x) {{ return 2 * x; }}\nWX_FN float all(float x) {{ return half(x); }}"
    )
    this = renamed.needed(before, "y = all(x);")
    assert renamed.needed(before.replace("one", "another").replace("2 * x", "x + x"), "y = all(x);") == this
    assert renamed.needed(before + "\nWX_FN int thrice(int x) { return 3 * x; }\n", "y = all(x);") == this
    for old, new in (("x / 2", "x * 0.5f"), ("half(x); }", "half(x + 1); }"), ("int x; }", "long x; }")):
        assert renamed.needed(before.replace(old, new), "y = all(x);") != this
    for old, new in (("N 3", "N 4"), ("N + x", "N - x")):
        assert renamed.needed(before.replace(old, new), "y = all(x);") == this
        assert renamed.needed(before.replace(old, new), "y = P(x);") != renamed.needed(before, "y = P(x);")
    assert renamed.needed(before, "y = twice(x);") != renamed.needed(before.replace("2 * x", "x + x"), "y = twice(x);")


def test_functions_are_told_apart() -> None:
    """All that begin with what has them inlined, each to its end."""
    from waxeq_cupy.kernels import prelude

    bare = renamed.without_comments(prelude())
    found = [m[0] for m in renamed._FUNCTION.finditer(bare)]
    assert len(found) == len(re.findall(r"^WX_FN ", bare, re.MULTILINE)) > 100
    assert all(text.count("{") == text.count("}") and text.count("WX_FN") == 1 for text in found)


@pytest.mark.slow
def test_kernels_say_what_they_launch_and_are_named_by_the_gpu(table: Path, virtual: None) -> None:
    found = renamed.described(renamed.options([str(table), *OPTIONS]))
    assert {k.kernel for k in rows(table)} <= found.keys()
    assert all(k["launches"] for k in found.values())
    other = renamed.options([str(table), *OPTIONS, "--gpu=H"])
    with renamed._device(other):
        from waxeq_cupy import backend

        assert all(k.code != found[n]["code"] for n, k in backend().kernels.items() if n in found)
