"""What is remembered counts for as long as what it depends on is the same, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.compile import optimize
from waxeq.cost import memos
from waxeq.cost.memos import CERTIFICATE, KINDS, RAN, TOLD
from waxeq.cost.table import TimingTable
from waxeq.egraph.rules import read_file
from waxeq.options import Options
from waxeq.runtime.verify import Truth
from waxeq.search.admission import admit, uncertified
from waxeq.search.result import Result

TEXT = "def model(x):\n    return np.tanh(x @ C) + np.exp(-(x @ C))\n"
RULE = """(ruleset mine)

; e^x e^x = e^(2 x)
;; reassociating
(rewrite (Mul (Map "exp" x) (Map "exp" x)) (Map "exp" (Add x x)) :ruleset mine :name "mine/exp-square")
"""


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The results that were held against float64."""
    rows: list[object] = []
    plain = Truth.accuracy
    monkeypatch.setattr(Truth, "accuracy", lambda self, found: rows.append(found) or plain(self, found))
    return rows


def searched(table: Path, text: str = TEXT, seed: int = 0, name: str = "model", **options: Any) -> Result:
    """A plan of a model with a constant, as it stands in a file."""
    rng = np.random.default_rng(seed)
    place, names = table.with_name("m.py"), {"np": np, "C": rng.standard_normal((20, 5), dtype=np.float32)}
    place.write_text(text)
    exec(compile(text, str(place), "exec"), names)
    given = {"table": table, "trial": False, "measure": False, "threads": 1}
    x = np.linspace(-1, 1, 600, dtype=np.float32).reshape(30, 20)
    return optimize(names[name], x, options=Options.of(**given | options))


def test_a_proof_is_of_the_constants_of_the_model_too(tmp_path: Path, proofs: list[object]) -> None:
    """Of a model whose constant had other numbers the errors of the old ones were told, and no plan was checked."""
    first, again, other = (searched(tmp_path / "t.duckdb", seed=seed) for seed in (0, 0, 1))
    assert len(proofs) == 2 and first.report.accuracy == again.report.accuracy != other.report.accuracy


def test_a_comment_above_a_model_and_its_name_change_no_memo(tmp_path: Path, proofs: list[object]) -> None:
    """A line above a model was enough to prove, time and judge its plan anew."""
    first = searched(tmp_path / "t.duckdb")
    moved = searched(tmp_path / "t.duckdb", "# what it is for\n\n" + TEXT)
    named = searched(tmp_path / "t.duckdb", TEXT.replace("model", "net"), name="net")
    assert len(proofs) == 1 and first.runs == moved.runs == named.runs and len({first.text, moved.text}) == 2


def test_what_another_version_remembers_is_not_taken(
    tmp_path: Path, proofs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of plans, contests, and certificates that a checker of another version gave, counted for ever."""
    (path := tmp_path / "mine.egg").write_text(RULE)
    file, table = read_file(path), TimingTable.open(tmp_path / "t.duckdb")
    searched(tmp_path / "t.duckdb")
    admit(table, file, file.rules[0], "sound")
    assert not uncertified(table, [path])
    keys = {k.key(**dict.fromkeys(k.facts, "")) for k in KINDS}
    monkeypatch.setattr(memos, "__version__", "0.0.0")
    assert keys.isdisjoint(k.key(**dict.fromkeys(k.facts, "")) for k in KINDS)
    assert uncertified(table, [path]) and not searched(tmp_path / "t.duckdb").blocks[0].remembered
    assert len(proofs) == 2


def test_a_key_takes_each_fact_of_its_kind() -> None:
    """A fact that is left out, or made up, would be one that a memo does not depend on."""
    for kind in KINDS:
        facts = dict.fromkeys(kind.facts, "a")
        found = {kind.key(**facts), *(kind.key(**facts | {n: "b"}) for n in kind.facts)}
        assert len(found) == 1 + len(kind.facts)
    for facts in ({"runs": "a"}, {"runs": "a", "device": "b", "numbers": "c"}):
        with pytest.raises(AssertionError, match="a ran depends on"):
            RAN.key(**facts)
    assert memos.device_of(memos.of_device("abc")) == "abc" and memos.device_of(memos.of_device("abc", 0)) is None
    assert CERTIFICATE.own and CERTIFICATE.lasting and not TOLD.own
