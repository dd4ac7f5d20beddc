"""Rules of one's own: they run once they are certified, and not before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from waxeq.cli import main
from waxeq.compile import optimize
from waxeq.cost.table import TimingTable
from waxeq.egraph.rules import read_file
from waxeq.errors import RuleError
from waxeq.options import Options
from waxeq.search.admission import admit, uncertified

SOUND = """(ruleset mine)

; e^x e^x = e^(2 x)
;; reassociating
(rewrite (Mul (Map "exp" x) (Map "exp" x)) (Map "exp" (Add x x)) :ruleset mine :name "mine/exp-square")
"""
UNSOUND = """(ruleset mine)

; the largest sum is the sum of the largest
;; reassociating
(rewrite (Red "max" k (Add a b)) (Add (Red "max" k a) (Red "max" k b)) :ruleset mine :name "mine/max-of-sum")
"""
MODEL = """
import numpy as np

def model(x):
    return np.exp(x) * np.exp(x)

def example_inputs():
    return {"x": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)}
"""


def model(x: np.ndarray) -> np.ndarray:
    return np.exp(x) * np.exp(x)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t.duckdb"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.egg"
    path.write_text(text)
    return path


def test_a_rule_without_a_certificate_does_not_run(tmp_path: Path, table: Path) -> None:
    options = Options.of(table=table, rules=(written(tmp_path, SOUND),), trial=False, measure=False)
    with pytest.raises(RuleError, match=r"mine\.egg:5: rule mine/exp-square has no certificate.*rules check"):
        optimize(model, np.ones((3, 4), np.float32), options=options)


def test_a_certified_rule_runs_in_its_own_ruleset(tmp_path: Path, table: Path) -> None:
    path = written(tmp_path, SOUND)
    for file, rule in uncertified(TimingTable.open(table), [path]):
        admit(TimingTable.open(table), file, rule, "for this test")
    options = Options.of(table=table, rules=(path,), trial=False, measure=False)
    found = optimize(model, np.ones((3, 4), np.float32), options=options)
    space = found.blocks[0].space
    assert space is not None
    root = space.snapshot.classes[space.snapshot.roots["o0"]]
    assert any(n.head == "Map" and n.args[0] == "exp" for n in root.nodes)
    path.write_text(SOUND.replace("e^x e^x = ", "another text of the law: "))
    assert uncertified(TimingTable.open(table), [path]) == []
    path.write_text(SOUND.replace("(Add x x)", "(Mul x x)"))
    assert [r.name for _, r in uncertified(TimingTable.open(table), [path])] == ["mine/exp-square"]
    assert read_file(path).rules[0].name == "mine/exp-square"


def test_the_command_certifies_and_refuses(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    common = ["optimize", "m.py", "--table", str(table), "--no-trial", "--no-measure", "--rules"]
    assert main([*common, str(written(tmp_path, SOUND))]) == 0
    assert "certifying rule mine/exp-square" in capsys.readouterr().err
    (tmp_path / "m.plan.json").unlink()
    assert main([*common, str(written(tmp_path, UNSOUND))]) == 6
    assert "mine/max-of-sum (reassociating) is refuted" in capsys.readouterr().err
    assert not (tmp_path / "m.plan.json").exists()
