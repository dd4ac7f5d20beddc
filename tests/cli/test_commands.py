"""Every command does its work and prints data that agrees with itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.cost.device import current_device
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.table import TimingTable
from waxeq_native import NativeBackend, library


def test_of_a_locked_plan_nothing_is_told_that_was_not_done(waxeq, model, quick, tmp_path: Path) -> None:
    """It said "1 block of which 0 distinct (1 repeated)", "of 0 candidate calls" and "0 ns measuring kernels"."""
    source, lock, path = model(), tmp_path / "my.lock", tmp_path / "p.plan.json"
    assert waxeq("optimize", source, "-o", path, "--lock", lock, *quick).code == 0
    again = ("optimize", source, "-o", path, "--lock", lock, "--locked", "--table", tmp_path / "t.duckdb")
    told = waxeq(*again)
    assert told.code == 0 and "nothing was searched" in told.out and "took" in told.out, told.err
    assert not [w for w in ("distinct", "repeated", "e-graph", "candidate", "measuring") if w in told.out]
    assert waxeq(*again, "--json").data["blocks"]["reused"]["within"] == 0


def test_optimize_writes_a_plan_that_computes_the_model(waxeq, model, quick, tmp_path: Path) -> None:
    path = tmp_path / "p.plan.json"
    outcome = waxeq("optimize", model(), "-o", path, "--json", *quick)
    assert outcome.code == 0, outcome.err
    d = outcome.data
    assert d["plan"] == str(path) and d["model"] == "small"
    assert d["nodes"] >= 3 and d["blocks"] == {
        "total": 1,
        "distinct": 1,
        "remembered": 0,
        "cut_short": 0,
        "reused": {"within": 0, "across": 0},
    }
    assert d["kernels"] and all(k["sources"] for k in d["kernels"])
    assert d["predicted"] == pytest.approx(sum(k["seconds"] for k in d["kernels"]))
    assert all(a["rms"] <= 1e-5 for a in d["accuracy"]) and [a["output"] for a in d["accuracy"]] == ["out"]
    assert d["memory"]["peak"] == d["memory"]["arena"] + sum(d["memory"]["resident"].values())
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 8), dtype=np.float32), rng.standard_normal((8, 3), dtype=np.float32)
    np.testing.assert_allclose(wx.load(path)(2 * x), np.maximum(2 * x @ w, 0) + 1, rtol=1e-5)


def test_the_report_for_people_says_the_same(waxeq, model, quick, tmp_path: Path) -> None:
    path = tmp_path / "p.plan.json"
    outcome = waxeq("optimize", model(), "-o", path, *quick)
    assert outcome.code == 0
    for word in ("small: ", "e-nodes", "Saturated", "small.py:7", "verdict", "float64", str(path.name)):
        assert word in outcome.out, word


@pytest.mark.parametrize("columns", [None, 40])
def test_lines_in_a_pipe_end_where_their_text_does(waxeq, plan: Path, monkeypatch, columns: int | None) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    for command in (("bench", plan, "--seconds", "0.1"), ("explain", plan), ("backends",), ("doctor",)):
        lines = waxeq(*command).out.splitlines()
        assert lines and not [x for x in lines if x != x.rstrip()]
        assert max(map(len, lines)) <= (columns or 120)


@pytest.mark.parametrize("columns", ["0", "1", "20", "wide", "-5"])
def test_a_width_that_nobody_can_read_is_the_usual_one(waxeq, monkeypatch, columns: str) -> None:
    """With COLUMNS=0 a pipe was empty, with 1 it had a letter in each line, with 20 tables had lost columns."""
    usual = waxeq("backends").out
    monkeypatch.setenv("COLUMNS", columns)
    assert waxeq("backends").out == usual != ""


def test_a_plan_is_the_same_bytes_twice(waxeq, model, quick, tmp_path: Path) -> None:
    plans = [tmp_path / f"{n}.plan.json" for n in range(2)]
    for path in plans:
        assert waxeq("optimize", model(), "-o", path, "--fresh", *quick).code == 0
    assert plans[0].read_bytes() == plans[1].read_bytes()


def test_the_plan_goes_beside_by_default(waxeq, model, quick, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert waxeq("optimize", model(), *quick).code == 0
    assert (tmp_path / "small.plan.json").is_file()


@pytest.mark.slow
def test_the_contest_decides(waxeq, model, table: Path, tmp_path: Path) -> None:
    chain = """
import numpy as np
def model(a, b, v):
    return a @ b @ v
def example_inputs():
    rng = np.random.default_rng(0)
    return {k: rng.standard_normal(s, dtype=np.float32) for k, s in (("a", (900, 900)), ("b", (900, 900)), ("v", 900))}
"""
    d = waxeq("optimize", model(chain, "chain.py"), "-o", tmp_path / "c.plan.json", "--json", "--table", table).data
    assert d["verdict"].startswith("faster ") and d["trial"]["ratio"] > 2 and not d["as_written"]
    rivals = waxeq("bench", tmp_path / "chain.py", "--seconds", "0.5", "--json", "--table", table).data["rivals"]
    assert {r["name"] for r in rivals} == {"plan", "model as written", "original function"}
    assert all(r["ratio"] > 2 for r in rivals if r["name"] != "plan")


def test_run_on_example_and_given_inputs(waxeq, plan: Path, tmp_path: Path) -> None:
    d = waxeq("run", plan, "--json").data
    assert [(o["name"], o["dtype"], o["shape"]) for o in d["outputs"]] == [("out", "float32", [4, 3])]
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    d = waxeq("run", plan, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "o.npz", "--json").data
    assert (d["outputs"][0]["min"], d["outputs"][0]["max"]) == (1.0, 1.0)
    np.testing.assert_array_equal(np.load(tmp_path / "o.npz")["out"], np.ones((4, 3), np.float32))


def test_bfloat16_goes_in_as_numpy_saves_it(waxeq, model, quick, tmp_path: Path) -> None:
    """NumPy has no name for the dtype, and what `waxeq run` had written itself was refused as "void16"."""
    path, o, x = tmp_path / "p.plan.json", tmp_path / "o.npz", tmp_path / "x.npy"
    text = "import ml_dtypes, numpy as np\ndef model(x): return x * 2\n"
    text += "def example_inputs(): return {'x': np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)}"
    assert waxeq("optimize", model(text), "-o", path, *quick).code == 0
    for largest in (10.0, 20.0):
        d = waxeq("run", path, "-o", o, "--json", *(() if largest == 10 else ("--input", f"x={x}"))).data
        assert (d["outputs"][0]["dtype"], d["outputs"][0]["max"]) == ("bfloat16", largest)
        np.save(x, np.load(o)["out"])


def test_explain_a_plan_and_a_model(waxeq, model, plan: Path, quick) -> None:
    of_plan = waxeq("explain", plan, "--json").data
    of_model = waxeq("explain", model(), "--json", *quick).data
    assert [k["kernel"] for k in of_plan["kernels"]] == [k["kernel"] for k in of_model["kernels"]]
    for k in of_plan["kernels"]:
        assert k["rules"] is not None and k["sources"] and k["seconds"] > 0
    assert of_plan["kernels"][0]["what"] in waxeq("explain", plan).out


def test_paths_come_in_rising_cost(waxeq, model, quick) -> None:
    d = waxeq("paths", model(), "--limit", "4", "--json", *quick).data
    costs = [p["seconds"] for p in d["paths"]]
    assert len(costs) == 4 and costs == sorted(costs)
    assert "predicted" in waxeq("paths", model(), "--limit", "2", *quick).out


def test_mem_of_a_plan_and_of_a_model(waxeq, model, plan: Path, quick) -> None:
    of_plan, of_model = waxeq("mem", plan, "--json").data, waxeq("mem", model(), "--json", *quick).data
    assert of_plan == of_model
    assert of_plan["resident"]["weights"] == 8 * 3 * 4 and of_plan["resident"]["inputs"] == 4 * 8 * 4
    assert "peak" in waxeq("mem", plan).out


def test_rules_list(waxeq) -> None:
    rows = waxeq("rules", "list", "--json").data
    assert len({r["name"] for r in rows}) == len(rows) > 10
    assert all(r["law"] and r["class"] in ("exact", "reassociating", "approximate") for r in rows)
    assert rows[0]["name"] in waxeq("rules", "list").out


def test_backends(waxeq) -> None:
    rows = waxeq("backends", "--json").data
    assert any(b["usable"] and b["kernels"] for b in rows)
    assert rows[0]["kernels"][0]["name"] in waxeq("backends").out


def test_db_status(waxeq, small: Path) -> None:
    table = small / "t.duckdb"
    d = waxeq("db", "status", "--table", table, "--json").data
    assert d["path"] == str(table) and d["bytes"] > 0
    assert str(table.name) in waxeq("db", "status", "--table", table).out.replace("\n", "")


def test_a_bundle_is_a_plan_in_one_file(waxeq, plan: Path, tmp_path: Path) -> None:
    made = waxeq("bundle", plan, "--json").data
    assert made["path"] == str(tmp_path / "small.waxeq") and "plan.json" in made["files"]
    said = waxeq("bundle", plan, "-o", tmp_path / "b.waxeq", "--backend", "numpy").out
    assert "plan.json" in said and f"waxeq run {tmp_path / 'b.waxeq'}" in " ".join(said.split())
    nowhere = waxeq("bundle", plan, "-o", tmp_path / "c.waxeq", "--arch", "sm_90")
    assert nowhere.code == 2 and "nothing can be compiled for sm_90" in nowhere.sentence
    assert not (tmp_path / "c.waxeq").exists()
    plan.unlink()
    rows = [waxeq("run", tmp_path / f"{n}.waxeq", "--json").data["outputs"] for n in ("small", "b")]
    assert rows[0] == rows[1]
    wrong = waxeq("bundle", tmp_path / "small.plan.json", "-o", tmp_path / "b.zip")
    assert wrong.code == 2 and "NAME.waxeq" in wrong.sentence


def test_doctor_finds_nothing_wrong(waxeq, small: Path) -> None:
    outcome = waxeq("doctor", "--table", small / "t.duckdb", "--json")
    assert outcome.code == 0 and all(r["ok"] for r in outcome.data), outcome.out
    assert {"python", "backends", "rules", "e-graph", "timing table"} <= {r["check"] for r in outcome.data}


def test_doctor_names_what_is_wrong(waxeq, tmp_path: Path) -> None:
    (tmp_path / "bad.duckdb").write_bytes(b"no table at all" * 100)
    outcome = waxeq("doctor", "--table", tmp_path / "bad.duckdb", "--json")
    wrong = [r for r in outcome.data if not r["ok"]]
    assert [r["check"] for r in wrong] == ["timing table"] and "bad.duckdb" in wrong[0]["found"]
    assert outcome.code == wrong[0]["exit_code"] == 1


def test_doctor_fails_where_the_users_compiler_does_not_work(waxeq, small: Path, monkeypatch) -> None:
    """It said ok; but for want of any compiler plans are NumPy's, and nothing is wrong."""
    monkeypatch.setattr(library, "shared", library.shared.__wrapped__)  # which reads CC each time
    monkeypatch.setenv("CC", "/nowhere/cc")
    outcome = waxeq("doctor", "--table", small / "t.duckdb", "--json")
    (wrong,) = [r for r in outcome.data if not r["ok"]]
    assert wrong["check"] == "backends" and "CC is `/nowhere/cc`, which does not work" in wrong["found"]
    assert outcome.code == wrong["exit_code"] == 2
    monkeypatch.delenv("CC")
    monkeypatch.setattr(NativeBackend, "unusable", lambda self: "no C compiler works here")
    assert waxeq("doctor", "--table", small / "t.duckdb").code == 0


def test_what_the_model_prints_is_not_data(waxeq, model, quick, tmp_path: Path) -> None:
    noisy = model(
        'print("loading")\n' + model().read_text().replace("return np.max", 'print("run")\n    return np.max')
    )
    outcome = waxeq("optimize", noisy, "-o", tmp_path / "n.plan.json", "--json", *quick)
    assert outcome.data["model"] == "small"
    assert "loading" in outcome.err and "run" in outcome.err


def test_help_loads_nothing_heavy() -> None:
    heavy = ("numpy", "scipy", "egglog", "duckdb", "pydantic", "highspy", "sympy", "rich.markdown")
    program = f"""
import sys, waxeq.cli
assert waxeq.cli.main(["--help"]) == 0
sys.exit(" ".join(m for m in {heavy!r} if m in sys.modules) or None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "optimize" in done.stdout


def test_every_command_has_help(waxeq) -> None:
    for command in (
        "optimize",
        "run",
        "explain",
        "paths",
        "profile",
        "mem",
        "bench",
        "calibrate",
        "backends",
        "doctor",
    ):
        outcome = waxeq(command, "--help")
        assert outcome.code == 0 and "--json" in outcome.out, command
    for group in ("rules", "db"):
        assert waxeq(group, "--help").code == 0


@pytest.mark.parametrize("command", [["rules", "list", "--json"], ["--help"], ["run", "--help"], ["--version"]])
def test_a_closed_pipe_is_quiet(command: list[str]) -> None:
    """Help ended with 1, as an internal error does."""
    _ends_quietly(f"import sys; from waxeq.cli import main; sys.exit(main({command}))")


BARE = """
import sys, waxeq.cli
waxeq.cli.find_spec = lambda name: None
sys.exit(waxeq.cli.main(["run", {!r}]))
"""


def test_a_closed_pipe_is_quiet_where_only_numpy_is_installed(waxeq, plan: Path, tmp_path: Path) -> None:
    """The command that needs no packages ended with a traceback there."""
    waxeq("bundle", plan, "-o", tmp_path / "b.waxeq")
    _ends_quietly(BARE.format(str(tmp_path / "b.waxeq")))


def _ends_quietly(program: str) -> None:
    """The program, whose output nobody reads, ends with 0 and says nothing."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 0
    child.stderr.close()


def test_a_full_disk_is_a_sentence_and_no_bug() -> None:
    program = "import sys; from waxeq.cli import main; sys.exit(main(['rules', 'list', '--json']))"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "disk is full" in done.stderr


def test_json_has_no_infinity(waxeq, model, quick, tmp_path: Path) -> None:
    text = model().read_text().replace("np.maximum(x @ w, 0) + 1", "(x @ w) / 0.0")
    path = tmp_path / "inf.plan.json"
    assert waxeq("optimize", model(text, "inf.py"), "-o", path, *quick).code == 0
    row = json.loads(waxeq("run", path, "--json").out, parse_constant=pytest.fail)["outputs"][0]
    assert row["infinite"] == 12


def test_db_status_says_how_far_estimates_are_off(waxeq, table: Path, known: int) -> None:
    (row,) = waxeq("db", "status", "--table", table, "--json").data["estimates"]
    assert row["kernel"] == "numpy.copy" and row["timings"] == known
    assert 0 < row["median"] <= row["ninth"] and 0 <= row["inside"] <= 1
    assert "median error" in waxeq("db", "status", "--table", table).out


def test_db_plot_draws_curves(waxeq, table: Path, known: int, tmp_path: Path) -> None:
    picture = tmp_path / "curves.svg"
    outcome = waxeq("db", "plot", picture, "--table", table, "--json")
    if find_spec("matplotlib") is None:
        assert outcome.code == 2 and "matplotlib" in outcome.sentence
        return
    assert outcome.data["families"][0]["kernel"] == "numpy.copy" and picture.read_text().lstrip().startswith("<?xml")
    assert "too few" in waxeq("db", "plot", picture, "--table", table, "--kernel", "numpy.sort").sentence
    assert waxeq("db", "plot", tmp_path / "curves.txt", "--table", table).code == 2


@pytest.fixture
def known(table: Path) -> int:
    """Timings of one kernel in the table, at sizes that double; how many."""
    store, device = TimingTable.open(table), replace(current_device(1), model="a machine of its own")
    store.peaks(device)
    rows = [
        Timing(
            TimingKey("numpy", "numpy.copy", "c0de", f'(In "%0" {{i{n % 2}}} "float32")', f"i0={16 << n // 2}",
                      "float32:i0*1;float32:i0*1", "float32", device.id, 1),
            (1e-9 * (16 << n // 2) * (1.0 + n % 3 / 10),), 0.0, 0.0, {"bytes": 8.0 * (16 << n // 2)}, 1000.0 + n,
        )
        for n in range(24)
    ]  # fmt: skip
    store.record(rows)
    return len(rows)


CLOSED = 'exec "$0" -m waxeq "$@" {}'


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_an_output_that_is_closed_is_no_error(root: Path, closed: str) -> None:
    for argv, code in ((["rules", "list"], 0), (["frobnicate"], 2)):
        command = ["sh", "-c", CLOSED.format(closed), sys.executable, *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code and "internal error" not in done.stderr, done.stderr


LOUD = """
import ctypes, os, subprocess
import numpy as np

os.write(1, b"loaded")
ctypes.CDLL(None).puts(b"from C")

def model(x):
    os.write(1, b"traced")
    subprocess.run(["echo", "child"], check=True)
    return np.tanh(x) + 1

def example_inputs():
    return {"x": np.ones((8, 8), np.float32)}
"""


def test_what_a_model_writes_past_python_is_not_among_the_data(model, table: Path, tmp_path: Path) -> None:
    """Neither here, nor in the process that times the model as written."""
    argv = ("optimize", model(LOUD), "-o", tmp_path / "p.plan.json", "--table", table, "--budget", "5s", "--json")
    command = [sys.executable, "-m", "waxeq", *map(str, argv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["model"] == "small", done.stderr
    for word in ("loaded", "from C", "traced", "child"):
        assert word in done.stderr
