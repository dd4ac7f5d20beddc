"""The check of a GPU, on one that is not there: from the kit to the table, cut off and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from calibration.gpu import against, prepare, sanitize, tuned
from calibration.gpu import run as running
from calibration.gpu.check import Check
from calibration.gpu.clocked import cold, copy_bandwidth
from calibration.gpu.journal import DIED, FAILED, LEFT_OUT, RIGHT, WRONG, Journal, append
from calibration.gpu.kit import Kit
from calibration.gpu.plans import PLANS
from calibration.gpu.prepare import Scope, write_kit
from calibration.gpu.report import ends, write_summary
from calibration.gpu.run import Task, watch
from calibration.gpu.sections import SECTIONS
from calibration.gpu.targets import COPIED, targets
from calibration.gpu.tuned import by, fastest, rivals

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.cli import main
from waxeq.cost.key import Timing
from waxeq.cost.table import TimingTable
from waxeq.errors import PlanError, UsageError
from waxeq.frontend.trace import trace
from waxeq.memory.plan import assign_plan
from waxeq.plan.plan import Buffer, Output, Plan, Step
from waxeq.runtime.device_timing import Turns
from waxeq.runtime.program import Program
from waxeq_cupy import nvrtc
from waxeq_cupy.device import VARIABLE, VIRTUAL, MissingDevice
from waxeq_cupy.driver import Driver
from waxeq_cupy.virtual import WildAddress

PROGRAM = Path(__file__).resolve().parents[2] / "calibration" / "gpu_check.py"


def started(environment: dict[str, str], *arguments: str | Path) -> subprocess.Popen[str]:
    line = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def test_cut_off_and_gone_on_with_where_only_numpy_is(
    kit: Path, bare: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    results = out / "results.jsonl"
    for lines, end, code in ((5, signal.SIGTERM, 130), (9, signal.SIGKILL, -signal.SIGKILL)):
        process = started(bare, "--kit", kit, "--out", out)
        while process.poll() is None and (not results.exists() or results.read_bytes().count(b"\n") < lines):
            time.sleep(0.02)
        process.send_signal(end)  # to the process that watches alone
        process.communicate()  # until nobody has its pipes: the one that is watched ends too
        assert process.returncode == code and "# Check on a GPU" in (out / "summary.md").read_text()
    before = results.read_bytes()
    assert Journal(results).done, "the outcome of what was done is on disk"
    code, said, err = ended(started(bare, "--kit", kit, "--out", out))
    assert code == 0, err
    assert results.read_bytes().startswith(before)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    times = Counter((r["section"], r["case"]) for r in rows if r["outcome"] != "begun")
    assert set(times.values()) == {1} and {r["outcome"] for r in rows} == {"begun", RIGHT, LEFT_OUT}
    assert {s for s, _ in times} == set(SECTIONS)
    correct = [r for r in rows if r["section"] == "correct" and r["outcome"] == RIGHT]
    assert correct and all(r["simulated"] == "same bits" for r in correct)
    assert said == (out / "summary.md").read_text() + "\n" and "| softmax float16 | cupy.loops |" in said
    _timings_come_into_a_table(out / "timings.jsonl", tmp_path, [r for r in rows if r["section"] in ("target", "grid")])
    capsys.readouterr()


def _timings_come_into_a_table(timings: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """The two commands that make the file of a device in calibration/."""
    table, parquet = tmp_path / "t.duckdb", tmp_path / "device.parquet"
    first = json.loads(timings.read_text().splitlines()[0])
    assert main(["db", "merge", str(timings), "--table", str(table), "--json"]) == 0
    assert main(["db", "export", str(parquet), "--device", first["id"], "--table", str(table), "--json"]) == 0
    own = TimingTable.open(tmp_path / "other.duckdb", extra=[str(parquet)])
    found = own.families(first["id"])
    assert len(found) >= sum(r["outcome"] == RIGHT for r in rows) > 3, "and what plans were timed by"
    assert {t.key.kernel for t in found} == {"cupy.loops", "cupy.gemv"}
    with duckdb.connect() as db:
        described = db.execute(f"SELECT DISTINCT description FROM '{parquet}'").fetchall()
    assert described == [(first["description"],)]


def test_a_machine_without_a_gpu_is_a_sentence(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        Driver.found()
        pytest.skip("there is a GPU")
    except MissingDevice:
        monkeypatch.delenv(VARIABLE, raising=False)
    code, out, err = ended(started(dict(os.environ), "--kit", kit, "--out", tmp_path / "out"))
    assert code == MissingDevice.exit_code == 5 and not out.strip()
    assert "gpu_check: " in err and "NVIDIA driver" in err and "Traceback" not in err


@pytest.fixture
def check(kit: Path, virtual: None, tmp_path: Path) -> Check:
    return Check.of(Kit.read(kit), tmp_path)


class Idle(Kernel):
    """Leaves the result as it was."""

    def __init__(self, real: Kernel) -> None:
        self._real = real

    @property
    def device(self) -> str:
        return self._real.device

    def __getattribute__(self, name: str) -> Any:
        if name in ("bind", "_real", "__class__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_real"), name)

    def accepts(self, call: Any) -> bool: ...

    def features(self, call: Any) -> Any: ...

    def bind(self, call: Any, operands: Any, out: Any, workspace: Any) -> Any:
        return ()


def test_what_is_not_computed_is_told(check: Check, tmp_path: Path) -> None:
    check.kernels = {n: Idle(k) for n, k in check.kernels.items()}
    for section in ("correct", "target"):
        case, tried = next(SECTIONS[section](check))
        outcome, found = tried()
        assert outcome == WRONG and found["why"]
        check.journal.add(section, case, outcome, **found)
    assert not check.timings.taken(), "a wrong kernel's time is not kept"
    write_summary(check.journal, tmp_path)
    assert "## What is not right" in (tmp_path / "summary.md").read_text()


def test_other_bits_than_the_simulated_gpu_had_are_told(check: Check) -> None:
    first = next(i for i in check.items("correct") if i.shown)
    off = replace(first, shown=tuple(x * 1.001 for x in first.shown))
    for item, said in ((off, "other bits"), (replace(first, drawn="others"), "not compared")):
        check.kit = replace(check.kit, items=[item])
        outcome, found = next(SECTIONS["correct"](check))[1]()
        assert outcome == RIGHT and found["simulated"].startswith(said)


DYING = """
import os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from calibration.gpu.journal import Journal
j = Journal(Path({out!r}) / "results.jsonl")
for case in ("a", "b", "c"):
    if ("correct", case) not in j.done:
        j.begin("correct", case)
        if case == "b":
            {end}
        j.add("correct", case, "right")
"""


@pytest.mark.parametrize("end", ["os._exit(9)", "os.kill(os.getpid(), 11)", "time.sleep(60)"])
def test_a_case_that_ends_the_process_is_noted_and_passed_by(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_PATIENCE", 1.0)
    script = DYING.format(path=sys.path, out=str(tmp_path), end=end)
    task = Task(tmp_path, tmp_path, ("correct",), time.time() + 100)
    assert watch(task, [sys.executable, "-c", script], lambda text: None) == 6
    assert {r["case"]: r["outcome"] for r in Journal(tmp_path / "results.jsonl").of("correct")} == {
        "a": RIGHT, "b": DIED, "c": RIGHT,
    }  # fmt: skip


def test_when_the_time_is_up_the_rest_is_left(kit: Path, virtual: None, tmp_path: Path) -> None:
    task = Task(kit, tmp_path, ("machine",), time.time() - 1)
    assert running.work(task, lambda text: None) == 7 and not Journal(tmp_path / "results.jsonl").rows
    with pytest.raises(UsageError, match="no section 'none'"):
        replace(task, only=("none",)).check()


@pytest.mark.parametrize(("seconds", "code", "last"), [(300.0, 7, "compiled"), (470.0, 0, "machine")])
def test_each_section_has_its_share_and_what_is_left_comes_last(
    seconds: float, code: int, last: str, check: Check, kit: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Six cases of ten seconds in each: something of every section, then what was cut in order."""
    now, done = [1000.0], list[tuple[str, str]]()

    def cases(section: str) -> Any:
        def run(case: str) -> Any:
            now[0] += 10.0
            done.append((section, case))
            return LEFT_OUT, {"why": "nothing is computed"}

        return lambda c: [(str(n), lambda n=n: run(str(n))) for n in range(6)]

    monkeypatch.setattr(running, "SECTIONS", {s: cases(s) for s in SECTIONS})
    monkeypatch.setattr(Check, "of", lambda kit, out: check)
    monkeypatch.setattr(running.time, "time", lambda: now[0])
    task = Task(kit, tmp_path, (), 1000.0 + seconds)
    assert running.work(task, lambda text: None) == code and now[0] <= task.until + 10.0
    first = list(dict.fromkeys(section for section, _ in done))
    assert first == list(SECTIONS) == list(running.SHARES) and done[-1][0] == last
    assert ends(tmp_path, task.until, running.SHARES, now[0])["machine"] < now[0], "a process that goes on has no more"
    write_summary(check.journal, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    lost = [line for line in text.splitlines() if " of 6 |" in line]
    assert ("## Not tried, as the time was up" in text) == bool(code)
    assert sum(int(line.split("|")[2].split()[0]) for line in lost) == 6 * len(SECTIONS) - len(done)


def test_a_case_that_goes_on_when_the_time_is_up_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_GRACE", 0.3)
    script = DYING.format(path=sys.path, out=str(tmp_path), end="time.sleep(60)")
    begin = time.time()
    task = Task(tmp_path, tmp_path, ("correct",), begin + 1.5)
    assert watch(task, [sys.executable, "-c", script], lambda text: None) == 7
    journal = Journal(tmp_path / "results.jsonl")
    assert journal.open == ("correct", "b"), "it did not fail, and is tried again by whoever goes on"


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    journal = Journal(path)
    journal.begin("correct", "a")
    journal.add("correct", "a", RIGHT, error=float("nan"))
    path.write_bytes(path.read_bytes() + b'{"section": "corr')
    append(path, {"section": "correct", "case": "b", "outcome": "begun"})
    again = Journal(path)
    assert again.done == {("correct", "a")} and again.open == ("correct", "b") and len(again.rows) == 3


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_a_damaged_kit_is_a_sentence(damage: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "k.kit"
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(PlanError, match="--prepare"):
        Kit.read(path)


def test_a_kit_for_real_gpus_needs_the_compiler(virtual: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the kit would have no machine code, and who carries it to a GPU would see that there."""
    monkeypatch.setattr(nvrtc, "libraries", lambda *names: [])
    with pytest.raises(nvrtc.MissingCompiler, match="pip install"):
        write_kit(tmp_path / "gpu_check.kit", Scope(), lambda text: None)


def test_a_kit_of_other_kernels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.kit"
    Kit([], {}).write(path)
    assert not Kit.read(path).items
    monkeypatch.setattr("calibration.gpu.kit.written", lambda: "others")
    with pytest.raises(PlanError, match="another checkout"):
        Kit.read(path)


def test_kernels_that_were_not_where_the_kit_was_made_are_checked_too(kit: Path, virtual: None, tmp_path: Path) -> None:
    made = Kit.read(kit)
    others = [n for n in made.about["kernels"] if n != "cupy.gemv"]
    made = replace(made, items=[], about={**made.about, "kernels": others})
    found = {(i.section, i.case) for i in Check.of(made, tmp_path).kit.items}
    assert {(s, "1 rows float16, cupy.gemv") for s in ("correct", "target")} <= found
    assert all(case.endswith("cupy.gemv") for _, case in found)


def test_making_a_kit_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the simulated GPU did, and what was compiled, is not done again; nothing of it is left in the end."""
    monkeypatch.setenv(VARIABLE, VIRTUAL)
    path, said = tmp_path / "a.kit", list[str]()
    scope = Scope(drawn=0, grid=1, small=True, kernels=("cupy.loops",), targets=("softmax float16",), plans=())
    simulated, compiled = prepare._simulated, prepare.images

    def cut_off(self: Kit, where: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Kit, "write", cut_off)
        write_kit(path, scope, said.append)
    assert not path.exists() and [p for p in tmp_path.iterdir() if p.is_dir()]

    def again(*_: Any, **__: Any) -> Any:
        raise AssertionError("this was done before")

    monkeypatch.setattr(prepare, "_simulated", again)
    monkeypatch.setattr(prepare, "images", again)
    write_kit(path, scope, said.append)
    assert [p.name for p in tmp_path.iterdir()] == ["a.kit"] and said[-1].endswith("MiB")
    monkeypatch.setattr(prepare, "_simulated", simulated)
    monkeypatch.setattr(prepare, "images", compiled)
    write_kit(tmp_path / "b.kit", scope, said.append)
    first, other = Kit.read(path), Kit.read(tmp_path / "b.kit")
    assert first.items == other.items and first.code.keys() == other.code.keys() and first.groups["0"]


def test_every_goal_is_answered_yes_no_or_not_measured(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "results.jsonl")
    rows = {t.name: t.goal for t in targets()} | dict(PLANS)
    journal.add("machine", "copy", RIGHT, bytes_per_second=4e12)
    moved = {"outcome": RIGHT, "kernel": "k", "operations": 7e14, "cold": 2.0, "samples": 3}
    for name, speed in (("softmax float16", 3.6e12), ("softmax float32", 3.2e12), ("attention 4096 float16", 3.6e12)):
        journal.add("target", f"{name}, k", target=name, seconds=1.0, bytes=speed, **moved)
    names = [n for n, g in rows.items() if g.of in ("cublas", "compiled", "torch")]
    for name, ratios in zip(names, ({"eager": 0.99}, {"eager": 0.97}, {"eager": 2.0, "compiled": 1.2}), strict=False):
        journal.add("against", name, RIGHT, seconds={"ours": 1.0, **ratios}, ratios=ratios)
    mirage = next(n for n, g in PLANS.items() if g.of == "torch")
    journal.add("against", mirage, RIGHT, seconds={"ours": 1.0}, ratios={"eager": 0.9, "compiled": 1.3})
    write_summary(journal, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    lines = text[text.index("## Goals") :].split("\n\n")[0].splitlines()[3:]
    found = {r[1].strip(): (r[3].strip(), r[4].strip()) for r in (line.split("|") for line in lines)}
    assert found.keys() == rows.keys() - {COPIED}
    assert found["softmax float16"] == ("90% of a copy", "yes") and found["softmax float32"][1] == "no"
    assert found["attention 4096 float16"] == ("700 TFLOP/s", "yes") and found["RMS norm float16"][0] == "not measured"
    assert [found[n][1] for n in names[:3]] == ["yes", "no", "yes"] and found[mirage] == ("0.90 of torch", "no")


@pytest.fixture
def timed(check: Check, monkeypatch: pytest.MonkeyPatch) -> Check:
    """After its targets were timed, on what passes for a GPU."""
    for case, run in SECTIONS["target"](check):
        outcome, found = run()
        check.journal.add("target", case, outcome, **found)
    monkeypatch.setattr(Check, "real", True)
    return check


@pytest.mark.parametrize("section", ["against", "compiled"])
def test_torch_is_warmed_up_captured_and_replayed_in_turns_with_ours(
    section: str, timed: Check, torch_on_numpy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = torch_on_numpy()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(against, "find_spec", lambda name: name == "torch")
    cases = {name: run for name, run in SECTIONS[section](timed) if name == "softmax float16"}
    outcome, found = cases["softmax float16"]()
    peers = {"eager"} | ({"compiled"} if section == "compiled" else set())
    assert outcome == RIGHT and found["seconds"].keys() == {"ours", *peers} and found["ratios"].keys() == peers
    assert found["kernel"].startswith("cupy.") and all(r > 0 for r in found["ratios"].values())
    assert torch.compiled == len(peers) - 1 and torch.replays > 11 * len(peers)
    assert torch.precision == "highest", "tf32 is a target of its own"
    assert torch.eager == 3 * len(peers) * 4, "warmed up on every set of arguments; after that, graphs alone"


def test_a_peer_that_fails_fails_alone(
    timed: Check, torch_on_numpy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("an operator | of another version")

    monkeypatch.setattr(against, "find_spec", lambda name: name)
    for broken, left in (("compile", {"eager"}), ("softmax", set[str]())):
        torch = torch_on_numpy()
        monkeypatch.setattr(torch, broken, refused)
        monkeypatch.setitem(sys.modules, "torch", torch)
        (case,) = (run for name, run in SECTIONS["compiled"](timed) if name == "softmax float16")
        outcome, found = case()
        assert outcome == RIGHT and found["seconds"].keys() == {"ours", *left} and found["ratios"].keys() == left
        assert found["failed"].keys() == {"eager", "compiled"} - left
        timed.journal.add("compiled", f"softmax float16, {broken}", outcome, **found)
    write_summary(timed.journal, tmp_path)
    assert "failed: NotImplementedError: an operator / of" in (tmp_path / "summary.md").read_text()


def test_why_torch_was_not_compared_with_is_said(
    timed: Check, torch_on_numpy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against, "find_spec", lambda name: None)
    ((_, first), *_) = SECTIONS["against"](timed)
    assert first()[0] == LEFT_OUT
    monkeypatch.setattr(against, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "torch", torch_on_numpy(available=False))
    (case,) = (run for name, run in SECTIONS["against"](timed) if name == "softmax float16")
    assert case() == (LEFT_OUT, {"why": "torch sees no GPU"})


def test_the_ceiling_of_products_is_that_of_the_fastest(check: Check) -> None:
    cases = dict(SECTIONS["machine"](check))
    assert cases["product float16"]() == (LEFT_OUT, {"why": "the kit has no such product"})
    rows = [replace(i, target="product 40 float16") for i in check.items("target") if "rows" in i.target]
    check.kit = replace(check.kit, items=rows)
    outcome, found = cases["product float16"]()
    assert outcome == RIGHT and found["kernel"] in {i.call.kernel for i in rows} and found["sizes"]["n"] == 40
    assert found["operations_per_second"] > 0


SANITIZER = """#!{python}
import os, subprocess, sys
tool, code = sys.argv[sys.argv.index("--tool") + 1], sys.argv[sys.argv.index("--error-exitcode") + 1]
program = sys.argv[sys.argv.index(code) + 1 :]
ran = subprocess.run(program)
print("======== ERROR SUMMARY:", tool)
sys.exit({{"racecheck": int(code), "synccheck": 139}}.get(tool, ran.returncode))
"""


def test_the_sanitizer_runs_the_small_calls(check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a program that stands for it, and finds something with one of its tools."""
    program = tmp_path / "compute-sanitizer"
    program.write_text(SANITIZER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(Check, "real", True)
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    outcome, found = sanitize.run(check, "memcheck")
    assert outcome == RIGHT and found["cases"] == len(list(check.items("correct"))), found
    outcome, found = sanitize.run(check, "racecheck")
    assert outcome == WRONG and "racecheck found something" in found["why"]
    assert "ERROR SUMMARY" in (tmp_path / "sanitized_racecheck" / "said.txt").read_text()
    outcome, found = sanitize.run(check, "synccheck")
    assert outcome == FAILED and "exit code 139" in found["why"]


def _product_plan(call: Call, c: Check) -> Plan:
    """One product of an input and a weight, on the device."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(v.shape).astype(np.float16) for v in call.operands)
    graph = trace(lambda a, b: a @ b.T, {"a": a, "b": b}, weights=["b"]).graph
    sizes = {"a": a.size, "b": b.size, "t": call.out.elements}
    roles = {"a": "input", "b": "weight", "t": "temporary"}
    buffers = {n: Buffer(n, "float16", size, roles[n], place="cuda") for n, size in sizes.items()}  # pyright: ignore
    ((name, value),) = graph.outputs
    out = Output(name, graph.type(value), "t")
    step = Step(call, ("a", "b"), "t")
    return assign_plan(Plan("p", graph, buffers, (), (step,), (out,), ()), c.kernels)


def _ran(plan: Plan, c: Check) -> np.ndarray:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(v.shape).astype(np.float16) for v in plan.steps[0].call.operands)
    (found,) = Program(plan, c.kernels, {"b": b}).flat_results({"a": a}).values()
    return found


def test_a_plan_gets_the_kernels_that_are_the_fastest(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call by every kernel that makes it, timed once; and the plan is what it was."""
    product = next(i.call for i in check.items("target") if i.call.kernel == "cupy.gemv")
    assert [c.kernel for c in rivals(product, check.kernels)][:1] == ["cupy.gemv"]
    assert {"cupy.gemm", "cupy.gemm_split"} <= {c.kernel for c in rivals(product, check.kernels)} - {"cupy.loops"}
    asked: list[str] = []
    quick = {"cupy.gemm_split": 1e-6}

    def time_on(on: Any, bench: Any, kernel: Any, call: Any, key: Any, seconds: float) -> Timing:
        asked.append(call.kernel)
        if call.kernel == "cupy.gemm_middle":
            raise RuntimeError("it does not compile")
        error = 1.0 if call.kernel == "cupy.gemm_large" else 0.0
        return Timing(key, (quick.get(call.kernel, 1e-9 if error else 1e-3),) * 3, error, error, {}, 0.0)

    monkeypatch.setattr(tuned, "time_on", time_on)
    plan = _product_plan(product, check)
    chosen, failed = fastest(check, plan, 1e-2)
    assert failed == {"cupy.gemm_middle": "RuntimeError: it does not compile"}, "and nobody else's fault"
    assert chosen == {0: "cupy.gemm_split"} and len(asked) == len(set(asked)) > 3, "a wrong one is not the fastest"
    first = len(asked)
    assert fastest(check, plan, 1e-2) == (chosen, failed)
    assert {*asked[first:]} == {"cupy.gemm_large", "cupy.gemm_middle"}, "timings are kept"
    other = by(plan, chosen, check.kernels)
    assert other.steps[0].call.kernel == "cupy.gemm_split" and other.steps[0].workspace in other.buffers
    want, got = (_ran(p, check) for p in (plan, other))
    assert np.abs(want.astype(float) - got.astype(float)).max() < 1e-2 < np.abs(want).max()


def test_clocks(check: Check) -> None:
    assert copy_bandwidth(check.storage, 1 << 12) > 0
    flush = check.storage.uploaded(np.zeros(1 << 12, np.uint8))
    item = next(i for i in check.items("target") if i.call.kernel == "cupy.loops")
    turns = Turns(check.storage, check.bench, check.kernels["cupy.loops"], item.call)
    assert cold(check.storage, turns, flush) > 0
    (left, *_) = turns.steps
    left()
    del turns
    with pytest.raises(WildAddress):
        left()  # what keeps the memory of a call is no more: a GPU would be written to where others have theirs


def test_every_target_has_a_call_and_a_peer(check: Check) -> None:
    from calibration.gpu.peers import PEERS
    from calibration.gpu.targets import calls

    for t in targets():
        rows = [calls(t, check.kernels, small=small) for small in (True, False)]
        assert t.peer in PEERS and all(rows)
        assert {check.kernels[c.kernel].error > 0 for row in rows for c in row} == {t.rounded}, "like is held to like"
