"""`waxeq db`: what each command says, and that it does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from waxeq.cost.table import TimingTable


def spoil(table: Path) -> int:
    """Make one of the timings impossible; how many there are."""
    with TimingTable.open(table).database(changes=True) as db:
        db.execute("UPDATE timings SET samples = [0.0] WHERE id = (SELECT min(id) FROM timings)")
        return db.execute("SELECT count(*) FROM timings").fetchone()[0]


def test_status_says_what_counts(waxeq, used: Path) -> None:
    d = waxeq("db", "status", "--table", used, "--json").data
    assert d["rows"]["current"] == sum(p["rows"] for p in d["parts"]) == sum(r["rows"] for r in d["timings"]) > 0
    assert (d["quarantined"], d["rows"]["stale"]) == (0, 0) and d["near_bytes"] > 0
    assert 0 <= d["superseded"] < d["rows"]["current"], "a call that decides may have been timed again"
    out = waxeq("db", "status", "--table", used).out
    assert "current" in out and "near copy" in out


def test_doctor_finds_explains_and_puts_aside(waxeq, used: Path) -> None:
    rows = spoil(used)
    outcome = waxeq("db", "doctor", "--table", used, "--json")
    (found,) = [f for f in outcome.data["findings"] if f["kind"] == "poisoned"]
    assert outcome.code == 1 and "0.0 s" in found["reason"] and "--fix" in found["advice"] and found["rows"] == 1
    said = waxeq("db", "doctor", "--table", used)
    assert said.code == 1 and "poisoned" in said.out and "samples are positive" in " ".join(said.out.split())
    fixed = waxeq("db", "doctor", "--fix", "--table", used, "--json")
    assert fixed.code == 0 and fixed.data["put_aside"] >= 1
    left = waxeq("db", "doctor", "--table", used, "--json")
    assert left.code == 0 and not [f for f in left.data["findings"] if f["kind"] == "poisoned"]
    d = waxeq("db", "status", "--table", used, "--json").data
    assert sum(d["rows"].values()) + d["quarantined"] == rows and d["quarantined"] == fixed.data["put_aside"]


def test_gc_says_how_many_before_it_drops_them(waxeq, used: Path) -> None:
    spoil(used)
    put = waxeq("db", "doctor", "--fix", "--table", used, "--json").data["put_aside"]
    dry = waxeq("db", "gc", "--dry-run", "--table", used, "--json").data
    assert dry["dry_run"] and dry["quarantined"] == put
    assert waxeq("db", "status", "--table", used, "--json").data["quarantined"] == put
    outcome = waxeq("db", "gc", "--table", used, "--json")
    assert f"{put} quarantined" in outcome.err and outcome.data["quarantined"] == put
    assert waxeq("db", "status", "--table", used, "--json").data["quarantined"] == 0
    assert "dropped" in waxeq("db", "gc", "--table", used).out


def test_timings_go_from_table_to_table(waxeq, used: Path, tmp_path: Path) -> None:
    status = waxeq("db", "status", "--table", used, "--json").data
    rows = status["rows"]["current"]
    file, other, third = tmp_path / "x.parquet", tmp_path / "o.duckdb", tmp_path / "third.duckdb"
    assert waxeq("db", "export", file, "--table", used, "--json").data["timings"] == rows
    taken = waxeq("db", "import", file, "--table", other, "--json").data
    assert (taken["timings"], taken["refused"]) == (rows, 0)
    (merged,) = waxeq("db", "merge", used, "--table", third, "--json").data["sources"]
    assert merged["new"] == rows and merged["memos"] > 0 and set(merged["devices"].values()) == {"this machine"}
    assert "refused" in waxeq("db", "merge", used, other, "--table", third).out
    d = waxeq("db", "diff", used, third, "--json").data
    assert len(d["pairs"]) == rows - status["superseded"], "of each call the newest timing is compared"
    assert all(p["ratio"] == 1 for p in d["pairs"]) and d["only_a"] == d["only_b"] == {}
    assert "clearly different" in waxeq("db", "diff", used, third).out


@pytest.mark.parametrize(
    "command",
    [("doctor",), ("gc",), ("export", "x.parquet"), ("merge", "none.duckdb"), ("diff", "none.duckdb", "none.duckdb")],
)
def test_a_table_that_is_not_there(waxeq, tmp_path: Path, monkeypatch, command: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    table = () if command[0] in ("diff", "merge") else ("--table", "none.duckdb")
    outcome = waxeq("db", *command, *table, *(("--table", "own.duckdb") if command[0] == "merge" else ()))
    assert outcome.code == 1 and "there is no table at none.duckdb" in outcome.sentence
    assert list(tmp_path.iterdir()) == [], "nothing is made for a command that has nothing to do"


def test_what_makes_no_sense(waxeq, table: Path, tmp_path: Path) -> None:
    assert waxeq("db", "merge", "--table", table).code == 2
    assert waxeq("db", "import", tmp_path / "x.duckdb", "--table", table).code == 2
