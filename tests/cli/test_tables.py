"""Timing tables as the command line meets them: not there, read-only, damaged, of another version, on a full disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from waxeq.cost.exchange import export
from waxeq.cost.shards import Shards
from waxeq.cost.table import TimingTable, default_path
from waxeq.cost.unsaved import exists
from waxeq.errors import TableError

NOWHERE = "/proc/waxeq"
"""A home for data in which nothing can be made, not even by root."""
QUICK = ("--no-trial", "--no-measure")
RULE = """(ruleset mine)

; e^x e^x = e^(2 x)
;; reassociating
(rewrite (Mul (Map "exp" x) (Map "exp" x)) (Map "exp" (Add x x)) :ruleset mine :name "mine/own")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's data lies: an empty folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    return folder


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's table would lie, had it a place."""
    monkeypatch.setenv("XDG_DATA_HOME", NOWHERE)
    return default_path()


# -- what is no file


@pytest.mark.parametrize("place", [".", "/", "folder"])
@pytest.mark.parametrize("command", ["status", "optimize"])
def test_a_folder_is_no_table(waxeq, model, home: Path, command: str, place: str) -> None:
    """One without a name, such as `.`, was an internal error."""
    (home / "folder").mkdir()
    folder = home / place if place == "folder" else place
    outcome = waxeq(*(("db", "status") if command == "status" else ("optimize", model(), *QUICK)), "--table", folder)
    assert outcome.code != 0 and f"waxeq: {folder} is a folder; name a file in it for the table" in outcome.err


# -- looking makes nothing


def test_status_of_no_table(waxeq, home: Path) -> None:
    outcome = waxeq("db", "status")
    assert outcome.code == 0 and "there is no timing table yet" in outcome.out and outcome.err == ""
    d = waxeq("db", "status", "--json").data
    assert d["path"] == str(default_path()) and not d["exists"] and d["writable"] and d["timings"] == []
    assert list(home.iterdir()) == []


def test_doctor_without_a_table(waxeq, home: Path) -> None:
    outcome = waxeq("doctor", "--json")
    (row,) = [r for r in outcome.data if r["check"] == "timing table"]
    assert outcome.code == 0 and row["ok"] and row["found"].startswith(f"none yet at {default_path()}")
    assert list(home.iterdir()) == []
    outcome = waxeq("doctor", "--table", home / "none.duckdb", "--json")
    assert outcome.code == 1 and "there is no table at" in outcome.data[-1]["found"]


@pytest.mark.parametrize("command", ["explain", "paths", "mem"])
@pytest.mark.parametrize("named", [False, True])
def test_looking_at_a_model_makes_no_table(waxeq, model, home: Path, command: str, named: bool) -> None:
    path = home / "named.duckdb" if named else default_path()
    outcome = waxeq(command, model(), "--json", *QUICK, *(("--table", path) if named else ()))
    assert outcome.code == 0 and outcome.data["model"] == "small"
    assert f"note: there is no timing table at {path} yet" in outcome.err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("command", ["explain", "mem"])
def test_looking_at_a_plan_needs_no_table(waxeq, plan: Path, home: Path, command: str) -> None:
    outcome = waxeq(command, plan, "--json")
    assert (outcome.code, outcome.err) == (0, "") and list(home.iterdir()) == []


def test_looking_uses_the_table_that_is_there(waxeq, model, home: Path, tmp_path: Path) -> None:
    assert waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", *QUICK).code == 0
    assert "db status" in waxeq("optimize", "--help").out and exists(default_path())
    assert waxeq("db", "status", "--json").data["memos"]["block"] == 1
    outcome = waxeq("explain", model(), *QUICK)
    assert outcome.code == 0 and "no timing table" not in outcome.err


def test_checking_installed_rules_makes_no_table(waxeq, home: Path, monkeypatch) -> None:
    monkeypatch.setattr("waxeq.testing.rule.check_files", lambda files, **how: ())  # all of them would take minutes
    assert waxeq("rules", "check").code == 0 and list(home.iterdir()) == []


# -- no place for a table


def test_optimizing_without_a_place_for_a_table(waxeq, model, no_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.plan.json"
    outcome = waxeq("optimize", model(), "-o", path, "--json", *QUICK)
    assert outcome.code == 0 and path.is_file()
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith("note: timings of this run are kept in memory and then lost: ") and str(no_home) in line
    assert outcome.data["notes"] == [line.removeprefix("note: ")]


def test_own_rules_without_a_place_for_certificates(waxeq, model, no_home: Path, tmp_path: Path) -> None:
    rule, plan = tmp_path / "mine.egg", tmp_path / "p.plan.json"
    rule.write_text(RULE)
    outcome = waxeq("optimize", model(), "-o", plan, "--rules", rule, *QUICK)
    assert outcome.code == 0 and "certifying rule mine/own" in outcome.err
    outcome = waxeq("rules", "check", rule)
    assert outcome.code == 0 and outcome.err.startswith("note: timings of this run are kept in memory")


@pytest.mark.usefixtures("no_home")
def test_strict_wants_a_table_that_stays(waxeq, model, tmp_path: Path) -> None:
    path = tmp_path / "p.plan.json"
    outcome = waxeq("optimize", model(), "-o", path, "--strict", *QUICK)
    assert outcome.code == 5 and "--strict needs a timing table that can be written" in outcome.sentence
    assert not path.exists()


@pytest.mark.usefixtures("no_home")
def test_calibrating_for_nothing_is_an_error(waxeq) -> None:
    outcome = waxeq("calibrate", "--quick")
    assert outcome.code == 1 and "--table" in outcome.sentence


@pytest.mark.parametrize("command", ["optimize", "explain", "mem", "paths", "bench"])
def test_a_named_table_that_cannot_be_written_is_an_error(waxeq, model, home: Path, command: str, request) -> None:
    path = home / "t.duckdb"
    TimingTable.open(path)
    request.getfixturevalue("read_only_tables")
    outcome = waxeq(command, model(), "--table", path, *QUICK)
    assert outcome.code == 1 and "is read-only" in outcome.sentence and "--table" in outcome.sentence


def test_doctor_says_that_a_named_table_cannot_be_written(waxeq, home: Path, request) -> None:
    """It said ok, and that timings are kept in memory: that is so for the user's own table alone."""
    for path in (home / "t.duckdb", default_path()):
        TimingTable.open(path).merge()
    request.getfixturevalue("read_only_tables")
    outcome = waxeq("doctor", "--table", home / "t.duckdb", "--json")
    (wrong,) = [r for r in outcome.data if not r["ok"]]
    assert outcome.code == 1 and wrong["check"] == "timing table" and "lost" not in wrong["found"]
    assert "t.duckdb cannot be written; make it writable" in wrong["found"] and "--table" in wrong["found"]
    assert waxeq("doctor").code == 0


def test_a_table_that_is_there_cannot_be_written_rather_than_made(home: Path, monkeypatch) -> None:
    path = home / "t.duckdb"
    TimingTable.open(path).merge()

    def refused(*given: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(TableError, match=r"t\.duckdb cannot be written: Read-only file system; name another"):
        TimingTable.open(path)
    path.unlink()
    with pytest.raises(TableError, match=r"t\.duckdb cannot be made: Read-only file system"):
        TimingTable.open(path)


@pytest.fixture
def read_only_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there of tables may not be written; it holds for root too."""
    may = os.access
    ours = (".duckdb", ".shards")
    monkeypatch.setattr(os, "access", lambda p, mode: not (mode & os.W_OK and str(p).endswith(ours)) and may(p, mode))


def test_what_a_read_only_table_knows_is_used(waxeq, model, home: Path, tmp_path: Path, request) -> None:
    arguments = ("optimize", model(), "-o", tmp_path / "p.plan.json", "--json", *QUICK)
    assert waxeq(*arguments).data["blocks"]["remembered"] == 0
    request.getfixturevalue("read_only_tables")
    outcome = waxeq(*arguments)
    assert outcome.data["blocks"]["remembered"] == 1 and "is read-only" in outcome.data["notes"][0]
    status = waxeq("db", "status", "--json").data
    assert status["exists"] and not status["writable"] and status["memos"]["block"] == 1
    assert "cannot be written" in waxeq("db", "status").out and "cannot be written" in waxeq("doctor").out


# -- tables that are no good


@pytest.mark.parametrize("named", [False, True])
def test_a_table_of_a_newer_version(waxeq, model, home: Path, tmp_path: Path, monkeypatch, named: bool) -> None:
    path = home / "t.duckdb" if named else default_path()
    TimingTable.open(path).merge()
    monkeypatch.setattr("waxeq.cost.archive.SCHEMA", 1)
    more = ("--table", path) if named else ()
    for command in (("optimize", model(), "-o", tmp_path / "p.plan.json", *QUICK), ("db", "status"), ("mem", model())):
        outcome = waxeq(*command, *more)
        assert outcome.code == 1 and "upgrade waxeq" in outcome.sentence and str(path) in outcome.sentence
    assert not (tmp_path / "p.plan.json").exists()


def test_a_damaged_table_of_the_users_own_is_not_passed_over(waxeq, model, home: Path, tmp_path: Path) -> None:
    default_path().parent.mkdir(parents=True)
    default_path().write_bytes(b"not a table" * 1000)
    outcome = waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", *QUICK)
    assert outcome.code == 1 and "move it aside and a new one is made" in outcome.sentence
    assert default_path().read_bytes() == b"not a table" * 1000


@pytest.mark.parametrize("named", [False, True])
def test_nothing_is_left_beside_a_damaged_table(waxeq, model, home: Path, tmp_path: Path, named: bool) -> None:
    path = home / "t.duckdb" if named else default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a table" * 1000)
    rule = tmp_path / "mine.egg"
    rule.write_text(RULE)
    searching = ("optimize", "mem", "explain", "paths", "bench")
    for command in (
        *((c, model(), *QUICK) for c in searching),
        ("db", "status"),
        ("doctor",),
        ("rules", "check", rule),
    ):
        outcome = waxeq(*command, *(("--table", path) if named else ()))
        assert outcome.code == 1 and "move it aside" in outcome.out + outcome.err
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_disk_that_fills_up_meanwhile(waxeq, model, home: Path, tmp_path: Path, monkeypatch) -> None:
    before = TimingTable.open(home / "t.duckdb")
    before.memo_put("plan", "a", "one")

    def full(shards: Shards, lines: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Shards, "write", full)
    outcome = waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", "--table", before.path, *QUICK)
    assert outcome.code == 1 and "No space left on device" in outcome.sentence
    assert before.memo_get("plan", "a") == "one" and not (tmp_path / "p.plan.json").exists()


def test_a_table_that_cannot_be_begun_on_a_full_disk_leaves_no_empty_file(home: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom waxeq.cost.table import TimingTable\nfrom waxeq.errors import TableWriteError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
        "try:\n    TimingTable.open(sys.argv[1])\nexcept TableWriteError as e:\n    print(e)\n"
    )
    path = tmp_path / "t.duckdb"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code, path], env=env, capture_output=True, text=True, check=False)
    assert "cannot be written" in done.stdout, done.stderr
    assert not path.exists()
    TimingTable.open(path).memo_put("plan", "a", "one")


def test_a_place_for_parquet_that_cannot_be_written_is_named(home: Path, tmp_path: Path, monkeypatch) -> None:
    """A read-only disk refuses even to remove a file that is not there."""
    table = TimingTable.open(tmp_path / "t.duckdb")

    def refused(*given: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refused)
    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(TableError, match=r"out\.parquet cannot be written: Read-only file system; name another place"):
        export(table, tmp_path / "out.parquet")


# -- files that are no tables

FOREIGN = ("t.parquet", "t.json", "t.csv", "t.duckdb", "t.sqlite", "users.duckdb", "views.duckdb")


def foreign(path: Path) -> bytes:
    """Write what is somebody else's, of the kind that its name says."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE people (name TEXT)")
    elif path.name in ("users.duckdb", "views.duckdb"):
        with duckdb.connect(path) as db:
            db.execute("CREATE TABLE about (name TEXT)" if path.stem == "users" else "CREATE VIEW one AS SELECT 1")
    elif path.suffix == ".parquet":
        duckdb.sql("SELECT 1 AS a").write_parquet(str(path))
    else:
        path.write_text({".json": '[{"a": 1}]', ".csv": "a,b\n1,2\n"}.get(path.suffix, ""))
    return path.read_bytes()


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_table_is_refused_and_left_as_it_is(waxeq, model, tmp_path: Path, used: Path, name: str) -> None:
    """DuckDB opened Parquet, JSON and CSV as tables in memory: timings were lost, and `db gc` replaced the file. For
    SQLite it went to the network."""
    path = tmp_path / "other" / name
    path.parent.mkdir()
    before = foreign(path)
    commands = (
        ("db", "status"), ("db", "doctor", "--fix"), ("db", "gc", "--dry-run"), ("db", "merge", used),
        ("db", "export", tmp_path / "e.parquet"), ("optimize", model(), "-o", tmp_path / "p.plan.json", *QUICK),
        ("explain", model(), *QUICK), ("calibrate", "--quick"), ("doctor",),
    )  # fmt: skip
    for command in (("db", "gc"), *commands[list(FOREIGN).index(name) % 3 :: 3]):  # each meets two files and more
        outcome = waxeq(*command, "--table", path, "--quiet")
        assert outcome.code == 1 and path.read_bytes() == before, command
        said = outcome.out if command == ("doctor",) else outcome.sentence
        assert "is no timing table" in " ".join(said.split()) and "archive.py" not in said, command
    assert [p.name for p in path.parent.iterdir()] == [name], "nothing is made beside it"
    if path.suffix != ".parquet":
        assert "is no timing table" in waxeq("db", "merge", path, "--table", used).sentence


def test_a_device_and_a_kernel_that_are_unknown_are_said_to_be(waxeq, used: Path, tmp_path: Path) -> None:
    place = tmp_path / "e.parquet"
    outcome = waxeq("db", "export", place, "--device", "abc", "--table", used)
    (device,) = waxeq("db", "status", "--table", used, "--json").data["devices"]
    assert outcome.code == 2 and f"no timings of a device 'abc'; it has those of {device}" in outcome.sentence
    assert not place.exists()
    assert waxeq("db", "export", place, "--device", device, "--table", used, "--json").data["timings"] > 0
    pytest.importorskip("matplotlib")
    outcome = waxeq("db", "plot", tmp_path / "p.png", "--kernel", "numpy.gem", "--table", used)
    assert outcome.code == 2 and "--kernel numpy.gem: there is no such kernel" in outcome.sentence
    assert "numpy.gemm" in outcome.sentence and "`waxeq backends` lists all" in outcome.sentence


def test_doctor_tells_of_a_place_in_which_no_table_can_be_made(waxeq, no_home: Path) -> None:
    row = waxeq("doctor", "--json").data[-1]
    assert f"none yet at {no_home}, which cannot be written" in row["found"] and "makes it" not in row["found"]


def test_an_export_takes_the_place_of_nothing_else(waxeq, used: Path, tmp_path: Path) -> None:
    model, named = tmp_path / "m.py", used.with_name("named.parquet")
    model.write_text("x = 1")
    outcome = waxeq("db", "export", model, "--table", used)
    assert outcome.code == 2 and "are called NAME.parquet; name another, as m.parquet" in outcome.sentence
    assert waxeq("calibrate", "--quick", "-o", model, "--table", used).code == 2 and model.read_text() == "x = 1"
    assert waxeq("db", "merge", used, "--table", named).code == 0
    link = tmp_path / "link.parquet"
    link.symlink_to(named)
    before = named.read_bytes()
    for place, table in ((named, named), (link, named), (named, link)):
        for command in (("db", "export", place), ("calibrate", "--quick", "-o", place)):
            outcome = waxeq(*command, "--table", table)
            assert outcome.code == 2 and f"{place} is the timing table itself" in outcome.sentence
    assert named.read_bytes() == before and waxeq("db", "export", tmp_path / "e.parquet", "--table", named).code == 0
