"""Going through plans: lists that go on, profiles that are stopped and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from waxeq.search import spread
from waxeq.search.session import Session

PROGRAM = "import sys; from waxeq.cli import main; sys.exit(main())"
DEEP = """
import numpy as np

def model(x, y):
    return np.tanh(np.tanh(x) @ y + 1) @ y

def example_inputs():
    rng = np.random.default_rng(0)
    return {k: rng.standard_normal((40, 40), dtype=np.float32) for k in "xy"}
"""


def test_all_plans_are_listed_once_and_counted(waxeq, model: Callable[..., Path], quick) -> None:
    d = waxeq("paths", model(), "--limit", "100000", "--json", *quick).data
    assert d["complete"] and d["count"] == {"number": len(d["paths"]), "exact": True}
    costs = [p["seconds"] for p in d["paths"]]
    assert costs == sorted(costs) and [p["number"] for p in d["paths"]] == list(range(1, len(costs) + 1))
    assert len({json.dumps(p["calls"]) for p in d["paths"]}) > 1


def test_a_list_goes_on_without_a_search(waxeq, model, quick, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "small.paths.json"
    whole = waxeq("paths", model(), "--limit", "7", "--json", *quick).data["paths"]
    first = waxeq("paths", model(), "--limit", "3", "--state", state, "--json", *quick).data
    monkeypatch.setattr(Session, "open", lambda *a: pytest.fail("it was searched again"))
    second = waxeq("paths", model(), "--limit", "4", "--state", state, "--json", *quick).data
    assert second["from"] == 4 and first["paths"] + second["paths"] == whole
    again = waxeq("paths", model(), "--limit", "2", "--from", "2", "--state", state, "--json", *quick).data
    assert again["paths"] == whole[1:3]


def test_a_list_of_a_search_that_was_stopped_is_not_kept(
    waxeq, model, quick, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the search left a short list, which the same command took for all there is from then on."""
    state, search = tmp_path / "small.paths.json", spread.searched

    def stopped(session: Session, *given: Any, **more: Any) -> Any:
        session.events.request_stop()
        return search(session, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(spread, "searched", stopped)
        cut = waxeq("paths", model(), "--limit", "3", "--state", state, "--json", *quick[:-1])
    assert cut.code == 130 and not state.exists() and cut.data["state"] is None and "is not written" in cut.err
    assert waxeq("paths", model(), "--limit", "3", "--state", state, *quick).code == 0 and state.exists()


def test_a_list_of_another_model_is_refused(waxeq, model, quick, tmp_path) -> None:
    state = tmp_path / "small.paths.json"
    assert waxeq("paths", model(), "--state", state, *quick).code == 0
    refused = waxeq("paths", model(), "--state", state, "--threads", "1", "--seed", "7", *quick)
    assert refused.code == 2 and "other options" in refused.sentence
    changed = waxeq("paths", model(model().read_text() + "\n# changed"), "--state", state, *quick)
    assert changed.code == 2 and "before it was changed" in changed.sentence
    state.write_text("{}")
    assert "no list of paths" in waxeq("paths", model(), "--state", state, *quick).sentence


def test_a_list_without_a_rule_is_refused_where_the_rule_is_given(waxeq, model, quick, tmp_path) -> None:
    """It went on, as if the rule had been tried, also with one whose text was changed since."""
    state, rule = tmp_path / "small.paths.json", tmp_path / "mine.egg"
    law = '(rewrite (Mul (Map "exp" x) (Map "exp" x)) (Map "exp" (Add x x)) :ruleset mine :name "mine/own")'
    rule.write_text(f"(ruleset mine)\n\n; e^x e^x = e^(2 x)\n;; reassociating\n{law}\n")

    def listed(*more: object) -> tuple[int, str]:
        outcome = waxeq("paths", model(), "--state", state, *more, *quick)
        return outcome.code, outcome.sentence if outcome.code == 2 else ""

    assert listed()[0] == 0
    assert listed("--rules", rule)[0] == 2 and "other options" in listed("--rules", rule)[1]
    state.unlink()
    assert listed("--rules", rule)[0] == 0 == listed("--rules", rule)[0]
    rule.write_text(rule.read_text() + "; another text\n")
    assert listed("--rules", rule)[0] == listed()[0] == 2


def test_a_profile_leaves_no_kernel_unmeasured_and_times_nothing_twice(waxeq, model, table) -> None:
    def rows() -> int:
        return sum(r["rows"] for r in waxeq("db", "status", "--table", table, "--json").data["timings"])

    given = (model(), "--table", table, "--plans", "2", "--json", "--quiet")
    (m,) = waxeq("profile", *given).data["models"]
    assert m["finished"] and m["unmeasured"] == m["undecided"] == 0 and m["timings"] >= m["decisive"]
    assert [p["number"] for p in m["plans"]] == [1, 2] and m["winner"] in (1, 2)
    assert all(p["seconds"] > 0 and p["low"] <= p["seconds"] <= p["high"] and p["rms"] < 1e-5 for p in m["plans"])
    assert min(m["plans"], key=lambda p: p["seconds"])["fastest"]
    before = rows()
    (again,) = waxeq("profile", *given).data["models"]
    assert again["timings"] == rows() - before <= 2, "near a choice another call may be looked at, for the first time"
    if not again["timings"]:
        assert all(p["remembered"] for p in again["plans"])
        assert [p["seconds"] for p in again["plans"]] == [p["seconds"] for p in m["plans"]]
    assert "could have changed the winner" in waxeq("paths", *given[:3], "--profile", "--limit", "2", "--quiet").out


def test_a_model_that_fails_does_not_keep_others_from_being_profiled(waxeq, model, table, tmp_path) -> None:
    model()
    (tmp_path / "bad.py").write_text("def model(x):\n    return x.tofile('y')\n")
    names = tmp_path / "models.txt"
    names.write_text("# what we run\nbad.py\n\nsmall.py  # the one\n")
    outcome = waxeq("profile", "--list", names, "--table", table, "--plans", "1", "--json")
    bad, good = outcome.data["models"]
    assert outcome.code == bad["code"] in (3, 4) and outcome.data["finished"] == 1
    assert bad["failed"] and good["failed"] is None and good["plans"]
    assert "1 of 2" in outcome.err and "2 of 2" in outcome.err
    assert waxeq("profile", tmp_path / "bad.py", "--table", table).code in (3, 4)


def test_what_makes_no_sense_is_refused(waxeq, model, plan, tmp_path) -> None:
    assert "name a model" in waxeq("profile").sentence
    assert "give the model" in waxeq("profile", plan).sentence
    assert "--plans 0" in waxeq("profile", model(), "--plans", "0").sentence
    assert waxeq("profile", "--list", tmp_path / "none.txt").code == 3
    assert "leave out" in waxeq("paths", model(), "--profile", "--from", "3").sentence
    assert "--from 0" in waxeq("paths", model(), "--from", "0").sentence


@pytest.mark.slow
def test_a_profile_that_is_stopped_goes_on_where_it_was(waxeq, model, table) -> None:
    path = model(DEEP, "deep.py")
    command = ["profile", str(path), "--table", str(table), "--plans", "1", "--json", "--verbose"]
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, *command], stdout=-1, stderr=-1, bufsize=0)
    assert child.stderr is not None
    batches = (line for line in child.stderr if line.startswith(b"kernels"))
    assert next(batches) and next(batches)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, err.decode()
    (stopped,) = json.loads(out)["models"]
    assert not stopped["finished"] and stopped["timings"] > 0
    (rest,) = waxeq("profile", path, "--table", table, "--plans", "1", "--budget", "none", "--json", "--quiet").data[
        "models"
    ]
    assert rest["finished"] and rest["unmeasured"] == 0
    rows = waxeq("db", "status", "--table", table, "--json").data["timings"]
    assert sum(r["rows"] for r in rows) >= stopped["timings"] + rest["timings"]
