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
