"""What tests of the frontend share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.ir.interpret import interpret
from waxeq_native import library


@pytest.fixture(autouse=True)
def _compiled_little(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are of what is traced, whose kernels others test; most tests compile nothing, and need no compiler."""
    usual = library.shared

    def little() -> library.Library:
        with monkeypatch.context() as patch:
            patch.setattr(library, "shared", usual)  # which `little` is made of
            return request.getfixturevalue("little")

    monkeypatch.setattr(library, "shared", little)


@pytest.fixture(scope="session")
def check() -> Callable[..., None]:
    """A function that holds what another one gives once it is traced to what NumPy gives: values, dtypes and shapes."""

    def held(fn: Callable[..., Any], *arrays: np.ndarray) -> None:
        traced = wx.trace(fn, *arrays)
        found = list(interpret(traced.graph, traced.inputs).values())
        want = fn(*(a.copy() for a in arrays))
        for g, w in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
            assert (g.dtype, g.shape) == (np.asarray(w).dtype, np.shape(w))
            np.testing.assert_allclose(g, w, rtol=1e-6)

    return held
