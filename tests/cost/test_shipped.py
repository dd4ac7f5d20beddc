"""Tables that ship are copied family by family, and of a family nobody asks for no timing is made."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from waxeq.cost import archive, copying
from waxeq.cost.blocks import Block
from waxeq.cost.device import Device, Peaks
from waxeq.cost.estimate import CostModel
from waxeq.cost.key import Family, Timing
from waxeq.cost.known import Known
from waxeq.cost.memos import TOLD
from waxeq.cost.shared import Shared
from waxeq.cost.shipped import SUFFIX, beside
from waxeq.cost.shipping import told
from waxeq.cost.table import TimingTable
from waxeq.cost.told import Told

Make = Callable[..., Timing]
PEAKS = Peaks({"float32": 1e6}, 1e10, 8e10, 1e-6)
KERNELS = ("numpy.gemm", "numpy.copy", "native.loops")


@pytest.fixture
def rows(timing: Make) -> list[Timing]:
    """Timings whose samples are exact in single precision."""
    return [
        timing(n, kernel=k, backend=k.partition(".")[0], samples=(0.5**18 * (n + 1), 0.5**17, 0.5**19),
               features={"launches": 1.0, "flops": 100.0 * n})
        for n in range(12) for k in KERNELS
    ]  # fmt: skip


@pytest.fixture
def shipped(table: TimingTable, rows: list[Timing], tmp_path: Path) -> Path:
    """A Parquet table of them."""
    table.record(rows)
    table.export_parquet(tmp_path / "a.parquet", "here")
    return tmp_path / "a.parquet"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Family]:
    """Families of which timings are made from now on."""
    found, make = list[Family](), Block.timings
    monkeypatch.setattr(Block, "timings", lambda block: found.append(block.family) or make(block))
    return found


def opened(path: Path, *extra: Path) -> TimingTable:
    return TimingTable.open(path, extra=map(str, extra))


def test_they_say_what_they_said(rows: list[Timing], shipped: Path, tmp_path: Path) -> None:
    table = opened(tmp_path / "o.duckdb", shipped)
    known = table.families("here")
    assert list(known) == sorted(rows, key=lambda t: t.key.digest) and len(known) == len(rows)
    assert table.lookup([t.key for t in rows]) == {t.key: t for t in rows}
    assert {f: g.rate() for f, g in known.groups.items()} == {
        f: max(t.rate for t in rows if t.key.family == f) for f in {t.key.family for t in rows}
    }


def test_of_two_tables_the_newer_timing_counts(rows: list[Timing], shipped: Path, timing: Make, tmp_path: Path) -> None:
    newer = timing(3, kernel=KERNELS[0], when=9e6, samples=(0.25,))
    other = TimingTable.open(tmp_path / "n.duckdb")
    other.record([newer])
    other.export_parquet(tmp_path / "b.parquet", "here")
    for extra in ((shipped, tmp_path / "b.parquet"), (tmp_path / "b.parquet", shipped)):
        known = opened(tmp_path / f"{extra[0].stem}.duckdb", *extra).families("here")
        assert [t for t in known if t.key == newer.key] == [newer] and len(known) == len(rows)


def test_of_families_nobody_asks_for_nothing_is_made(
    rows: list[Timing], shipped: Path, tmp_path: Path, made: list[Family]
) -> None:
    model = CostModel(PEAKS, opened(tmp_path / "o.duckdb", shipped).families("here"))
    assert made == [] and model.peaks.flops["float32"] == max(t.rate for t in rows), "ceilings hear of all"
    native = [t for t in rows if t.key.backend == "native"]
    model.estimate(native[0].key, native[0].features)
    assert made == [native[0].key.family] and set(model.measured) == {t.key for t in native}


def test_what_all_timings_tell_together_ships_with_them(
    table: TimingTable, timing: Make, tmp_path: Path, made: list[Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first search of two seconds went through 2,000 timings of kernels it had no call of, a third of one."""
    device = Device("A CPU", 2, 1 << 15, 1 << 20, 1 << 25, 4 << 30, "Linux x86_64", "3.11", "2.5.0", "openblas", 1)
    table.note_peaks(device, PEAKS)
    loops = {"backend": "native", "device": device.id}
    work = {"launches": 1.0, "map:exp:float32": 1.0}
    rows = [
        timing(n, kernel=k, samples=(1e-6 + n * 1e-8 * (1 + i),), features={f: n * v for f, v in work.items()}, **loops)
        for i, k in enumerate(("native.loops", "native.loops_fast")) for n in range(1, 13)
    ]  # fmt: skip
    table.record(rows)
    table.export_parquet(tmp_path / "a.parquet", device.id)
    known = opened(tmp_path / "o.duckdb", tmp_path / "a.parquet").families(device.id)
    made.clear()
    key, features = replace(rows[0].key, text="(Map g)"), {**work, "map:cosh:float32": 3.0}
    model = CostModel(PEAKS, known)
    found = model.estimate(key, features)
    assert found.source == "fitted" and made == [key.family]
    assert found == CostModel(PEAKS, Known(known.groups)).estimate(key, features)
    more = [timing(n, kernel="native.loops_fast", samples=(1.0,), **loops) for n in range(50, 60)]
    before = model.prices(key.family)
    assert model.learn(more) and model.prices(key.family) != before, "with many more, it is worked out anew"
    on_gpu = CostModel(PEAKS, known, others={"native.loops": replace(PEAKS, bandwidth=1e9)})
    monkeypatch.setattr(Shared, "of", staticmethod(lambda *_: pytest.fail("made anew")))
    CostModel(PEAKS, known).estimate(key, features)
    with pytest.raises(pytest.fail.Exception, match="made anew"):
        on_gpu.estimate(key, features)


def test_own_timings_join_those_of_their_family(
    rows: list[Timing], shipped: Path, timing: Make, tmp_path: Path, made: list[Family]
) -> None:
    table = opened(tmp_path / "o.duckdb", shipped)
    own = [timing(n, when=9e6) for n in (3, 50)]
    table.record(own)
    for change in (lambda: None, table.merge):
        change()
        made.clear()
        known = table.families("here")
        assert made == [own[0].key.family]
        assert {t.key: t for t in known} == {t.key: t for t in rows} | {t.key: t for t in own}


def test_estimates_do_not_depend_on_when_timings_are_made(rows: list[Timing], shipped: Path, tmp_path: Path) -> None:
    known = opened(tmp_path / "o.duckdb", shipped).families("here")
    late, early = CostModel(PEAKS, known), CostModel(PEAKS, list(known))
    asked = [replace(t.key, text="(Map g)") for t in rows]
    features = [{**t.features, "map:exp:float32": 9.0} for t in rows]
    assert late.estimates(asked, features) == early.estimates(asked, features)
    new = [Timing(k, (1e-5,), 0.0, 0.0, f, 9e6) for k, f in zip(asked[:3], features, strict=False)]
    assert late.learn(new) == early.learn(new)
    assert late.estimates(asked, features) == early.estimates(asked, features)
    assert late.fits().keys() == early.fits().keys() and late.measured == early.measured


def test_rows_that_are_no_timings_are_passed_over(rows: list[Timing], shipped: Path, tmp_path: Path) -> None:
    bad = {"samples": ("[]", "[0.0]", "[1.0, NULL]", "['NaN'::FLOAT]", "['inf'::FLOAT]", "NULL"),
           "features": ("'no'", "'{\"a\":-1}'", "'{\"a\":\"b\"}'", "'[1.0]'", "'{\"a\":NaN}'", "NULL"),
           "digest": ("'short'", "NULL"), "written": ("NULL",), "max_relative_error": ("NULL",)}  # fmt: skip
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE t AS FROM '{shipped}'")
        for n, (column, value) in enumerate((c, v) for c, values in bad.items() for v in values):
            db.execute(f"UPDATE t SET {column} = {value} WHERE digest = ?", [rows[n].key.digest])
        db.execute(f"COPY t TO '{tmp_path / 'bad.parquet'}' (FORMAT parquet)")
    left = rows[sum(map(len, bad.values())) :]
    table = opened(tmp_path / "o.duckdb", tmp_path / "bad.parquet")
    assert {t.key for t in table.families("here")} == {t.key for t in left}
    assert table.lookup([t.key for t in rows]) == {t.key: t for t in left}


@pytest.mark.parametrize("beside", [True, False])
def test_a_copy_that_is_damaged_is_made_anew(rows: list[Timing], shipped: Path, tmp_path: Path, beside: bool) -> None:
    """Wherever it is, and one of another format too; each time the table says what it said."""
    copy, others = shipped.with_suffix(SUFFIX), tmp_path / "o.duckdb.shipped"
    table = opened(tmp_path / "o.duckdb", shipped)
    if not beside:
        copy.unlink()
        table.families("here")
        copy = others
    whole = copy.read_bytes()
    sqlite3.connect(tmp_path / "sqlite").executescript("CREATE TABLE about (name TEXT, value TEXT)").close()
    bad = [whole[:at] + bytes([whole[at] ^ 0xA5]) + whole[at + 1 :] for at in range(0, len(whole), len(whole) // 20)]
    for content in (*bad, whole[:-1], whole[:40], b"", (tmp_path / "sqlite").read_bytes(), whole + b"x"):
        others.unlink(missing_ok=True)
        copy.write_bytes(content)
        assert table.lookup([t.key for t in rows]) == {t.key: t for t in rows}
        assert list(table.families("here")) == sorted(rows, key=lambda t: t.key.digest)
        assert others.exists() and (beside or copy.read_bytes() == whole)


def test_what_lies_beside_a_table_that_was_replaced_is_not_looked_at(
    rows: list[Timing], shipped: Path, timing: Make, tmp_path: Path
) -> None:
    other = TimingTable.open(tmp_path / "n.duckdb")
    other.record([newer := timing(50, samples=(0.5,))])
    other.export_parquet(tmp_path / "b.parquet", "here")
    table = opened(tmp_path / "o.duckdb", shipped)
    assert len(table.families("here")) == len(rows)
    (tmp_path / "b.parquet").replace(shipped)
    assert list(table.families("here")) == [newer]


def test_a_first_run_does_without_duckdb(
    rows: list[Timing], shipped: Path, timing: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To import and to connect took a tenth of a second, to make an archive and to read Parquet another."""
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda **how: pytest.fail("connected to DuckDB"))
    table = opened(tmp_path / "o.duckdb", shipped)
    table.record([timing(50, when=9e6)])
    assert len(table.families("here")) == len(rows) + 1 and not table.path.exists()
    monkeypatch.setattr("waxeq.cost.table.find_spec", lambda name: None)
    assert len(table.families("here")) == len(rows) + 1, "where there is none"
    monkeypatch.undo()
    assert duckdb.connect is connect
    table.merge()
    assert table.path.exists() and len(table.families("here")) == len(rows) + 1


def test_without_files_beside_tables_the_first_opening_connects_to_duckdb_once(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To connect takes a tenth of all that time."""
    shipped.with_suffix(SUFFIX).unlink()
    times, connect = list[int](), duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda **how: times.append(1) or connect(**how))
    opened(tmp_path / "o.duckdb", shipped).families("here")
    assert times == [1]


def test_blocks_are_read_and_unpacked_once(
    rows: list[Timing], shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look-up read the whole blocks of the families that were asked for."""
    table, unpacked, unpack = opened(tmp_path / "o.duckdb", shipped), list[int](), zlib.decompress
    monkeypatch.setattr("waxeq.cost.blocks.zlib.decompress", lambda b: unpacked.append(1) or unpack(b))
    for t in rows:
        assert table.lookup([t.key]) == {t.key: t}
    assert len(unpacked) == len(KERNELS)


def test_files_beside_the_tables_that_ship_are_of_them(root: Path) -> None:
    """`waxeq calibrate --output` writes both; where features or laws are changed, `python calibration/beside.py`."""
    for path in sorted((root / "calibration").glob("*.parquet")):
        with archive.connect() as db:
            wanted = copying.of_tables(db, [str(path)])
        found = beside([str(path)])
        assert found is not None and found.families == wanted.families, path
        assert {row: v for row, v in found.remembered.items() if row[0] != TOLD.name} == wanted.remembered, path
        for row, text in told(wanted).items():
            now, then = Told.from_json(text), Told.from_json(found.remembered[row])
            assert now.laws.keys() == then.laws.keys() and now.elements == then.elements, path
            for (n, law), (then_n, then_law) in zip(now.laws.values(), then.laws.values(), strict=True):
                assert (n, law.names) == (then_n, then_law.names), path
                np.testing.assert_allclose(then_law.coefficients, law.coefficients, rtol=1e-3, err_msg=str(path))
