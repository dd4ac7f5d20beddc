"""The benchmark set: every row is a function that waxeq traces, and every form that is written for a peer equals it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from benchmarks.comparison import ROOT
from benchmarks.contestants import CONTESTANTS, NoForm, arrays
from benchmarks.row import reference
from benchmarks.workload import Workload, flat
from benchmarks.workloads import WORKLOADS, select

from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.runtime.timing import results_error

SMALL = [pytest.param(w, id=n) for n, w in WORKLOADS.items() if w.small is not None]
KINDS = {"numpy", "torch", "torch.compile", "onnx", "numba", "numexpr", "jax"}


def small(workload: Workload) -> Any:
    assert workload.small is not None
    return workload.small()


def listed(results: Any) -> list[np.ndarray]:
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("workload", SMALL)
def test_a_row_is_traced_and_stays_in_float32(workload: Workload) -> None:
    arguments = small(workload)
    traced = trace(workload.fn, arguments, weights=workload.weights)
    given = {**traced.graph.constants, **traced.tensors, **traced.inputs}
    want = listed(workload.fn(**arguments))
    assert {a.dtype for a in want} == {np.dtype(np.float32)}
    assert results_error(list(interpret(traced.graph, given).values()), want) < workload.tolerance


@pytest.mark.parametrize("workload", SMALL)
def test_the_reference_is_in_float64_and_near(workload: Workload) -> None:
    arguments = small(workload)
    truth = reference(workload, arguments)
    assert {a.dtype for a in truth} == {np.dtype(np.float64)}
    assert 0 < results_error(listed(workload.fn(**arguments)), truth) < workload.tolerance


@pytest.mark.parametrize("workload", SMALL)
def test_arguments_are_the_same_each_time_and_named_as_the_function_names_them(workload: Workload) -> None:
    first, second = flat(small(workload)), flat(small(workload))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[n], second[n]) for n in first)
    assert workload.weights <= small(workload).keys()
    assert workload.forms.keys() <= KINDS


@pytest.mark.parametrize("peer", [n for n in CONTESTANTS if n not in ("torch.compile", "ort")])
def test_what_is_written_for_a_peer_equals_the_function(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_OPT", "0")  # numba takes a third less time, and is not timed
    contestant = CONTESTANTS[peer]
    missing = [m for m in contestant.modules if find_spec(m.partition(".")[0]) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    took_part = 0
    for name, workload in WORKLOADS.items():
        if workload.small is None:
            continue
        try:
            results = arrays(contestant.ready(workload, small(workload), 1)()())
        except NoForm:
            continue
        error = results_error(results, reference(workload, small(workload)))
        assert error < workload.tolerance, f"{peer} on {name}: {error}"
        took_part += 1
    assert took_part > 0


def test_every_row_says_what_torch_runs() -> None:
    assert [n for n, w in WORKLOADS.items() if "torch" not in w.forms] == []


def test_rows_are_chosen_by_patterns() -> None:
    assert [w.name for w in select("softmax_*, abv")] == ["softmax_4096x4096", "softmax_128x768", "abv"]
    assert len(select("*")) == len(WORKLOADS)
    with pytest.raises(ValueError, match="no row is called 'softmaxx'"):
        select("softmaxx")


def test_the_set_lies_in_the_checkout() -> None:
    assert (ROOT / "pyproject.toml").is_file()
