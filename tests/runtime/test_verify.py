"""What a model should compute, by whichever thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from waxeq.errors import AccuracyError
from waxeq.frontend.trace import trace
from waxeq.runtime import verify
from waxeq.runtime.verify import Truth, require


@pytest.mark.parametrize("apart", [False, True])
def test_both_references_are_worked_out_at_once_when_apart(monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    x = np.linspace(0.0, 1.0, 12, dtype=np.float32)
    traced, seen = trace(lambda x: np.exp(x) - 1, {"x": x}), set[int]()

    def interpret(*args: Any, **named: Any) -> Any:
        seen.add(threading.get_ident())
        return found(*args, **named)

    found = verify.interpret
    monkeypatch.setattr(verify, "interpret", interpret)
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors, apart=apart)
    assert len(seen) == 1 + apart
    (written,), (oracle,) = truth.written.values(), truth.oracle.values()
    np.testing.assert_array_equal(written, np.exp(x) - 1)
    np.testing.assert_array_equal(oracle, np.exp(x.astype(np.float64)) - 1)


def test_results_of_another_shape_are_wrong_though_they_fit() -> None:
    """Two elements were compared to the one that both of them were equal to."""
    x = np.full(1, 50.0, np.float32)
    traced = trace(lambda x: x * 2, {"x": x})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    (name,) = truth.written
    require(truth.accuracy({name: x * 2}), 1e-5)
    with pytest.raises(AccuracyError):
        require(truth.accuracy({name: np.full(2, 100.0, np.float32)}), 1e-5)


def test_where_the_model_overflows_all_else_is_still_looked_at() -> None:
    """One element for which float32 has no number excused a plan whose every element is wrong."""
    x = np.array([1.0, 2.0, 100.0], np.float32)
    traced = trace(lambda x: np.exp(x), {"x": x})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    (name,) = truth.written
    right = truth.written[name]
    assert np.isinf(right[2])
    require(truth.accuracy({name: right}), 1e-5)
    require(truth.accuracy({name: np.array([*right[:2], 1.0], np.float32)}), 1e-5)
    for wrong in (right * 1.01, np.full_like(right, np.nan)):
        with pytest.raises(AccuracyError, match="relative RMS error"):
            require(truth.accuracy({name: wrong}), 1e-5)


def quantized(x: np.ndarray) -> tuple[np.ndarray, ...]:
    q = np.clip(np.rint(x * 3.3) + 4, -128, 127).astype(np.int8)
    whole = (x * 100).astype(np.int32)
    falling = 255 - (x * 1000).astype(np.int32), -whole * 3, (-2.0 * np.rint(x * 500)).astype(np.int32)
    parted = whole >> 1, whole // -2, (x // 0.01).astype(np.int32)
    return q.T, (x * 100).astype(np.uint8) + 1, *falling, *parted, x > 0.3


def test_what_is_rounded_to_the_other_side_of_a_step_is_as_wrong_as_the_float_was() -> None:
    """Of a picture of two million pixels, one whose float was 1e-8 off made a plan wrong, and the model stayed as it
    is written."""
    x = np.random.default_rng(0).uniform(0, 2.5, (40, 50)).astype(np.float32)
    traced = trace(quantized, {"x": x})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    for off, fits in ((1e-7, True), (2e-5, True), (1e-2, False)):
        got = dict(zip(truth.written, quantized(x.astype(np.float64) * (1 + off)), strict=True))
        got |= {n: truth.written[n] for n in list(truth.written)[-1:]}  # a comparison has no steps
        rows = truth.accuracy(got)
        assert all(r.exact or (r.stepped and 0 < r.plan[0] <= 2 * off) for r in rows), rows
        assert any(r.stepped for r in rows) or off < 1e-5
        if fits:
            require(rows, 1e-5)
        else:
            with pytest.raises(AccuracyError, match="relative RMS error"):
                require(rows, 1e-5)


def test_whole_numbers_that_no_float_nearby_comes_to_are_wrong() -> None:
    x = np.array([0.1, 0.5, 1.9, 2.5, np.nan], np.float32)
    traced = trace(quantized, {"x": x})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    for n, name in enumerate(truth.written):
        for at in (0, 4):
            wrong = truth.written[name].copy()
            last = n == len(truth.written) - 1
            wrong.flat[at] = not wrong.flat[at] if last else wrong.flat[at] + 100
            with pytest.raises(AccuracyError, match="relative RMS error"):
                require(truth.accuracy({**truth.written, name: wrong}), 1e-5)
