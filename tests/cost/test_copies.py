"""Near copies follow their archive through whatever is done to it, and are made anew only where they cannot."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from waxeq.cost import archive
from waxeq.cost.device import Device
from waxeq.cost.examine import Finding, set_aside
from waxeq.cost.exchange import merge
from waxeq.cost.gc import collect
from waxeq.cost.key import Timing
from waxeq.cost.near import Near
from waxeq.cost.shipped import Shipped
from waxeq.cost.survey import Present
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import UnsavedTable

Make = Callable[..., Timing]
HERE = Device("A CPU", 2, 1 << 15, 1 << 20, 1 << 25, 4 << 30, "Linux x86_64", "3.11", "2.5.0", "openblas", 1)
KERNELS = ("numpy.gemm", "numpy.copy", "numpy.gone")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the near copies that are made from now on."""
    names: list[str] = []
    make = Near.made
    monkeypatch.setattr(Near, "made", lambda path, rows: names.append(path.name) or make(path, rows))
    return names


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Families keep few calls, so that they are full."""
    for module in ("near", "copying", "copies"):
        monkeypatch.setattr(f"waxeq.cost.{module}.RECENT", 4)


def said(table: TimingTable, keys: list) -> tuple:
    return table.lookup(keys), table.families("here"), table.memos("plan", list("abcdef")), table.devices()


def put_aside(table: TimingTable, which: str) -> int:
    with table.database() as db:
        ids = [i for (i,) in db.execute(f"SELECT id FROM timings WHERE {which} ORDER BY id").fetchall()]
    return set_aside(table, [Finding("bimodal", "k", "here", "x", "two moods", 1, (i,)) for i in ids])


def dropped(table: TimingTable, *kernels: str) -> int:
    codes = {k: lambda k=k: "other" if k in kernels else "c0de" for k in KERNELS}
    found = collect(table, Present(codes, frozenset({"numpy"}), (HERE,)))
    return found.superseded + found.unused


def steps(table: TimingTable, timing: Make, rng: random.Random, elsewhere: TimingTable) -> Iterator[None]:
    """Some of all that can be done to a table, in any order."""

    def rows(n: int) -> list[Timing]:
        numbers = [rng.randrange(12) for _ in range(n)]
        return [
            timing(m, kernel=rng.choice(KERNELS), when=rng.random() * 1e6, samples=(rng.random(), 1.0)) for m in numbers
        ]

    def given() -> None:
        elsewhere.record(rows(8))
        elsewhere.memo_put("plan", rng.choice("abcdef"), str(rng.random()))
        merge(table, [elsewhere.path])

    todo = [
        *2 * [lambda: table.record(rows(6)), lambda: table.memo_put("plan", rng.choice("abcdef"), str(rng.random()))],
        *2 * [table.tidy, lambda: put_aside(table, f"id % 5 = {rng.randrange(5)}")],
        *(given, lambda: dropped(table), lambda: dropped(table, "numpy.gone")),
    ]
    rng.shuffle(todo)
    for do in todo:
        do()
        yield


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_done_a_copy_that_followed_says_what_one_made_anew_says(
    table: TimingTable, timing: Make, tmp_path: Path, made: list[str], seed: int
) -> None:
    table.record([timing(n, kernel=kernel) for n in range(9) for kernel in KERNELS])
    table.merge()
    keys = [timing(n, kernel=kernel).key for n in range(12) for kernel in KERNELS]
    elsewhere = TimingTable.open(tmp_path / "other.duckdb")
    for _ in steps(table, timing, random.Random(seed), elsewhere):
        followed, before = said(table, keys), len(made)
        assert [n for n in made if n.startswith("t.")] == []
        whole = UnsavedTable.at(table.path)
        assert said(whole, keys) == followed and len(made) == before
    assert len(followed[0]) > 5


KILLED = """
import os, sys
from waxeq.cost import copies
from waxeq.cost.exchange import merge
from waxeq.cost.table import TimingTable
from pathlib import Path
at = sys.argv[1]
killed = lambda *a, **k: os.kill(os.getpid(), 9)
if at == "before":
    follow, times = copies.catch_up, []
    copies.catch_up = lambda *a, **k: follow(*a, **k) if not times.append(0) and len(times) == 1 else killed()
elif at == "within":
    copies.Near.say = killed
else:
    copies.Beside.say = killed
merge(TimingTable(Path(sys.argv[2])), [Path(sys.argv[3])])
"""


@pytest.mark.parametrize("at", ["before", "within", "after"])
def test_a_copy_takes_in_what_was_merged_by_one_that_was_killed(
    table: TimingTable, timing: Make, tmp_path: Path, made: list[str], at: str
) -> None:
    table.record([timing(n) for n in range(5)])
    table.merge()
    other = TimingTable.open(tmp_path / "o.duckdb")
    other.record([timing(n, when=9e6) for n in range(3, 8)])
    other.memo_put("plan", "a", "one")
    other.merge()
    done = subprocess.run([sys.executable, "-c", KILLED, at, table.path, other.path], check=False)
    assert done.returncode == -signal.SIGKILL
    made.clear()
    found = said(table, [timing(n).key for n in range(8)])
    assert len(found[0]) == 8 and found[0][timing(4).key].when == 9e6 and found[2] == {"a": "one"}
    assert made == [] and len(found[1]) == 8


def test_a_copy_takes_in_more_rows_than_are_fetched_at_once(
    table: TimingTable, timing: Make, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked of the archive meanwhile took the place of the rows that were not fetched yet."""
    monkeypatch.setattr("waxeq.cost.copying._BATCH", 3)
    rows = [timing(n) for n in range(11)]
    table.record(rows[:1])
    table.merge()
    table.record(rows[1:8])
    table.merge()
    assert len(table.lookup([t.key for t in rows])) == 8 == len(table.families("here"))
    table.record(rows[8:])
    assert put_aside(table, "written < 1002") == 2
    assert len(table.lookup([t.key for t in rows])) == 9 == len(table.families("here")) and made == []


def test_a_row_without_an_id_hides_no_others(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    """Older versions took such rows in; from then on nothing was merged."""
    table.record([timing(n, kernel="numpy.copy") for n in range(3)])
    with table.database(changes=True) as db:
        for when in (1.0, 2.0):
            db.execute(f"INSERT INTO timings SELECT * REPLACE (NULL AS id, {when} AS written) FROM timings LIMIT 1")
    other = TimingTable.open(tmp_path / "o.duckdb")
    other.record([timing(n, kernel="numpy.copy") for n in range(2, 5)])
    (found,) = merge(table, [other.path])
    assert (found.new, found.known) == (2, 1)
    dropped(table)
    assert len(table.families("here")) == 5 == len(table.lookup([t.key for t in table.families("here")]))


def test_a_copy_of_an_archive_that_was_changed_otherwise_is_made_anew(
    table: TimingTable, timing: Make, made: list[str]
) -> None:
    table.record([timing(n) for n in range(5)])
    with table.database() as db:
        archive.touch(db)
        db.execute("DELETE FROM timings WHERE text = '(Map f 4)'")
    assert len(table.families("here")) == 4 and made == ["t.duckdb.near"]
    made.clear()
    with table.database() as db:  # as by one of which the copy knows nothing: not even the mark tells
        db.execute("DELETE FROM timings WHERE text = '(Map f 3)'")
        db.execute("CHECKPOINT")
    assert len(table.families("here")) == 3 and made == ["t.duckdb.near"]


def test_tables_that_ship_have_a_copy_of_their_own(
    table: TimingTable, timing: Make, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade brings others, a second installation has them elsewhere: what is large is not copied for it."""
    table.record([timing(n, device=HERE.id) for n in range(4)])
    other = TimingTable.open(tmp_path / "o.duckdb")
    other.record([timing(n, device=HERE.id, when=1002.5) for n in (1, 3, 7)])
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        other.export_parquet(tmp_path / name / f"{HERE.id}.parquet", HERE.id)
        (tmp_path / name / f"{HERE.id}.blocks").unlink()
    write = Shipped.write
    monkeypatch.setattr(Shipped, "write", lambda it, path, of: made.append(path.name) or write(it, path, of))
    table.merge()
    made.clear()
    for name in ("a", "a", "b"):
        with_more = replace(table, extra=(str(tmp_path / name / f"{HERE.id}.parquet"),))
        found = {t.key.text: t.when for t in with_more.families(HERE.id)}
        assert found == {"(Map f 0)": 1000.0, "(Map f 1)": 1002.5, "(Map f 2)": 1002.0, "(Map f 3)": 1003.0,
                         "(Map f 7)": 1002.5}  # fmt: skip
        assert {
            k.text: t.when for k, t in with_more.lookup([t.key for t in with_more.families(HERE.id)]).items()
        } == found
    assert made == ["t.duckdb.shipped"] * 2
    assert len(table.families(HERE.id)) == 4


def test_nothing_of_duckdb_is_drawn_among_the_data(table: TimingTable, tmp_path: Path) -> None:
    """What takes it longer than two seconds would be, as a bar on stdout."""
    for t in (table, UnsavedTable.at(tmp_path / "none.duckdb")):
        with t.database() as db:
            assert db.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (False,)
    sources = [p for p in Path(archive.__file__).parents[1].rglob("*.py") if "duckdb.connect(" in p.read_text()]
    assert sources == [Path(archive.__file__)]


def test_a_copy_of_an_archive_that_another_took_the_place_of_is_not_said_to_be_of_that(tmp_path: Path) -> None:
    """Whoever only brought shards in noted that the copy was of what lay there by then."""
    tables = [TimingTable.open(tmp_path / f"{n}.duckdb") for n in "ab"]
    for t in tables:
        t.memo_put("plan", "a", t.path.stem)
        t.merge()
        assert t.memo_get("plan", "a") == t.path.stem
    tables[1].path.replace(tables[0].path)
    with TimingTable(tables[0].path).database():
        pass
    assert TimingTable(tables[0].path).memo_get("plan", "a") == "b"


def test_a_table_with_the_name_of_what_lies_beside_stays_a_table(table: TimingTable, tmp_path: Path) -> None:
    to = tmp_path / "x.blocks"
    table.export_parquet(to, HERE.id)
    assert to.read_bytes().startswith(b"PAR1")
