"""Every example through the whole compiler: the plan agrees with the model, and MiniLM's with torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from waxeq.compile import optimize_traced
from waxeq.events import Events
from waxeq.frontend.load import load_target
from waxeq.frontend.trace import trace
from waxeq.options import Options
from waxeq.search.result import Result
from waxeq.search.session import Session

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
GOLDEN = Path(__file__).with_name("minilm_golden.npz")

pytestmark = [pytest.mark.slow, pytest.mark.shipped]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table") / "timings.duckdb"


def planned(name: str, table: Path) -> Result:
    """The plan of an example by estimated cost: what it computes does not depend on timings."""
    found = load_target(str(FOLDER / f"{name}.py"))
    traced = trace(found.fn, found.example, weights=found.weights, name=found.name, origin=found.origin)
    options = Options.of(table=table, measure=False, trial=False, budget=120)
    with Session.open(options, Events()) as session:
        return optimize_traced(session, traced)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_right(name: str, table: Path, relative_rms: Callable[[np.ndarray, np.ndarray], float]) -> None:
    result = planned(name, table)
    assert not result.plan.written, result.report.notes
    assert all(a.plan[1] <= 1e-5 for a in result.report.accuracy)
    assert all(b.facts["stop"] == "Saturated" for b in result.blocks)
    if name == "minilm":
        with np.load(GOLDEN) as golden:
            inputs = {n: golden[n] for n in ("input_ids", "attention_mask")}
            assert relative_rms(result.program(**inputs), golden["embeddings"]) < 1e-5
