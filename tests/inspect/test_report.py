"""What a report says, and what it does not say twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from waxeq.compile import optimize
from waxeq.inspect.report import report
from waxeq.options import Options
from waxeq.search.result import Result, Trial
from waxeq.search.trial import as_written


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    table = tmp_path_factory.mktemp("table") / "t.duckdb"
    options = Options.of(table=table, trial=False, measure=False, threads=1)
    return optimize(lambda x, y: np.tanh(x) * y, np.ones((4, 3)), np.ones((4, 3)), options=options)


def test_why_the_model_as_written_is_kept_is_the_verdict_and_no_note(result: Result, tmp_path: Path) -> None:
    trial = Trial(2.0, 1.0, 0.5, 0.4, 0.6, "slower")
    notes = ("a first note", "the model as written is kept: these words alone make nothing of a note")
    said = replace(result.report, trial=trial, kept="the model as written is kept: it is faster", notes=notes)
    d = report(replace(result, plan=as_written(result.plan), report=said), str(tmp_path))
    assert d["verdict"].startswith("kept the model as written: the plan is slower, 0.50x")
    assert d["notes"] == list(notes)
