"""Time against error against memory."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import waxeq as wx
from waxeq.backend.discover import backends, kernels
from waxeq.cost.device import Peaks
from waxeq.options import Options
from waxeq.runtime.verify import Accuracy
from waxeq.search.pareto import front, judged
from waxeq.search.session import levels

WIDE = """
import numpy as np

WEIGHTS = ("w",)

def model(x, w):
    return np.tanh(x @ w)

def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((1, 512), dtype=np.float32),
        "w": rng.standard_normal((512, 512), dtype=np.float32) / 23,
    }
"""
points = st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12)


@given(points)
def test_the_front_beats_everything_else_and_nothing_in_it(rows: list[tuple[int, ...]]) -> None:
    found = front(rows)
    for i, p in enumerate(rows):
        beaten = [j for j, q in enumerate(rows) if q != p and all(a <= b for a, b in zip(q, p, strict=True))]
        if i in found:
            assert not beaten
        else:
            assert any(j in found for j in beaten) or any(rows[j] == p for j in found)


def test_there_is_a_level_for_whatever_becomes_possible() -> None:
    there = kernels(backends()).values()
    errors = {k.error for k in there}
    assert levels(Options.of(tolerance=0), there) == [0.0]
    loose = levels(Options.of(tolerance=1e-2), there)
    assert loose == sorted(loose) and {e for e in errors if e <= 1e-2} <= {0.0, *loose}
    assert levels(Options.of(tolerance=1e-5), there) == [t for t in loose if t <= 1e-5]


def test_a_plan_that_is_off_by_more_than_its_kernels_is_for_a_tolerance_of_its_own() -> None:
    def off(*rms: float, written: float = 1e-7) -> tuple[Accuracy, ...]:
        return tuple(Accuracy("out", (2 * e, e), (written, written), False, False) for e in rms)

    assert judged(off(2.5e-4), 3e-4, 1e-2) == (3e-4, None)
    assert judged(off(3.32e-4, 1e-6), 3e-4, 1e-2) == (3.4e-4, None), "two products, each within 3e-4"
    assert judged(off(3.32e-4), 3e-4, 3.35e-4) == (3.35e-4, None)
    assert judged(off(3.32e-4, written=2e-4), 3e-4, 1e-2) == (3e-4, None), "the model as written is as bad"
    level, why = judged(off(1e-6, 2e-2), 3e-4, 1e-2)
    assert level == 3e-4 and why is not None and "over the tolerance 1e-02" in why


_PLANS = ("--plans", "1")


@pytest.mark.slow
def test_plans_that_ran_are_shown_with_time_error_and_memory(
    waxeq, model: Callable[..., Path], table, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as fast as the machine: by a tenth of that sixteen-bit weights cannot be faster than what was timed
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e11, 1e12, 1e-6))
    picture = tmp_path / "front.svg"
    more = ("--plot", picture) if find_spec("matplotlib") else ()
    given_ = (model(WIDE), "--table", table, *_PLANS, "--tolerance", "1e-3", "--quiet", *more)
    d = waxeq("pareto", *given_, "--json").data
    rows = d["plans"]
    assert [r["seconds"] for r in rows] == sorted(r["seconds"] for r in rows)
    assert sum(r["as_written"] for r in rows) == 1 and any(r["front"] for r in rows)
    for r in rows:
        assert r["low"] <= r["seconds"] <= r["high"] and r["peak"] > 512 * 512 * 4 and r["rms"] <= r["max"]
        assert r["as_written"] or (r["rejected"] is None) == (r["rms"] <= max(r["tolerance"], 1e-6))
    if "native.weights_f16" in kernels(backends()):
        assert any("native.weights_f16" in r["kernels"] and 1e-6 < r["rms"] < 1e-3 for r in rows)
    again = (*(a for a in given_ if a not in _PLANS), "--budget", "3s")
    assert "no other plan is as good" in waxeq("optimize", "--pareto", *again).out
    assert not more or picture.read_text().lstrip().startswith("<?xml")


def test_what_makes_no_sense_is_refused(waxeq, model, plan) -> None:
    assert "give the model" in waxeq("pareto", plan).sentence
    assert "--plans 0" in waxeq("pareto", model(), "--plans", "0").sentence
    assert "takes no --output" in waxeq("optimize", "--pareto", model(), "-o", "x.plan.json").sentence
    assert "--plot is for --pareto" in waxeq("optimize", model(), "--plot", "x.svg").sentence


@pytest.mark.skipif("native.weights_f16" not in kernels(backends()), reason="there is no C compiler")
def test_a_kernel_that_admits_to_less_than_it_errs_is_found_out(tmp_path: Path, monkeypatch) -> None:
    kernel = kernels(backends())["native.weights_f16"]
    monkeypatch.setattr(type(kernel), "error", 0.0)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2048), dtype=np.float32), rng.standard_normal((2048, 2048), dtype=np.float32)
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, top_k=1)
    found = wx.optimize(lambda x, w: x @ w, x, w, weights=("w",), options=options)
    chosen = {p.candidate.call.kernel for b in found.blocks if b.choice for p in b.choice.in_order()}
    assert chosen == {"native.weights_f16"}, "it is the fastest"
    assert found.plan.written and any("over the tolerance" in n for n in found.report.notes)
    assert np.allclose(found.program(x), x @ w, rtol=1e-3, atol=1e-3)
