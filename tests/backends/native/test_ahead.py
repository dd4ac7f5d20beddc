"""The products of matrices in C, which take a compiler seconds: compiled beside a search that may need them, and done
without where they do not compile."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.errors import FallbackError
from waxeq.events import Event, Events, StageStarted
from waxeq.ir.term import Term
from waxeq_native import NativeBackend, gemm, library
from waxeq_native.compiler import CompileFailed
from waxeq_native.steps import compiled
from waxeq_native.work import NativeKernel

SIZES = {"i": 8, "j": 8, "k": 8}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing is compiled yet, as far as this process knows; for which kinds of elements it is asked for, then."""
    known, units = list[str](), library.units

    def noted(wanted: Sequence[library.Asked]) -> Any:
        known.extend(kind for kind, unit in gemm.UNITS.items() if unit in wanted)
        return units(wanted)

    monkeypatch.setattr(library, "units", noted)
    monkeypatch.setattr(gemm, "_filled", set())
    monkeypatch.setattr(gemm, "_failed", {})
    return known


def call(name: str, meaning: Term, dtype: str) -> tuple[NativeKernel, Call]:
    views = (View.dense("ik", SIZES, dtype), View.dense("kj", SIZES, dtype))
    kernel = backends(["native"])[0].kernels[name]
    assert isinstance(kernel, NativeKernel)
    return kernel, Call(name, meaning, SIZES, views, View.dense("ij" if meaning.head == "Sum" else "ik", SIZES, dtype))


def product(dtype: str) -> tuple[NativeKernel, Call]:
    a, b = operand(0, "ik", dtype), operand(1, "kj", dtype)
    return call("native.products", Term("Sum", "k", Term("Mul", a, b)), dtype)


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "f32"), ("float64", "f64")])
def test_a_product_compiles_what_it_calls(asked: list[str], dtype: str, kind: str) -> None:
    kernel, made = product(dtype)
    work = kernel.of(made)
    assert work is not None
    asked.clear()
    gemm._filled.clear()  # what it is made of was known in another process
    compiled(work.parts)
    assert asked == [kind] and gemm._filled == {kind}


def test_loops_need_no_products(asked: list[str]) -> None:
    kernel, made = call("native.loops", Term("Map", "exp", operand(0, "ik", "float32")), "float32")
    work = kernel.of(made)
    assert work is not None
    compiled(work.parts)
    assert not asked


def _gated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.tanh(x @ w) * 2 + 1


def _options(tmp_path: Path, **more: Any) -> wx.Options:
    return wx.Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=1, **more)


@pytest.mark.parametrize(
    ("dtype", "kinds"), [(np.float16, {"f32"}), (np.float32, {"f32"}), (np.float64, {"f32", "f64"})]
)
def test_a_search_has_compiled_what_the_elements_of_a_model_need(
    asked: list[str], tmp_path: Path, dtype: type[np.generic], kinds: set[str]
) -> None:
    x = np.ones((16, 16), dtype)
    wx.optimize(_gated, x, x, options=_options(tmp_path))
    assert gemm._filled == kinds and sorted(asked) == sorted(kinds), "each is asked for once"


@pytest.mark.parametrize("strict", [False, True])
def test_products_that_do_not_compile_are_a_sentence_and_a_plan(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    """What was found without them is not remembered for the day on which they compile."""
    bad = {kind: (files, (*flags, "-Dint64_t=0")) for kind, (files, flags) in gemm.UNITS.items()}
    x = np.ones((16, 16), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(gemm, "UNITS", bad)
        if strict:
            with pytest.raises(FallbackError, match=r"could not be made ready: .*the source is kept in"):
                wx.optimize(_gated, x, x, options=_options(tmp_path, strict=True))
            return
        result = wx.optimize(_gated, x, x, options=_options(tmp_path))
    (note,) = [n for n in result.report.notes if "native" in n]
    assert note.startswith("backend native could not be used: ") and "error" in note
    assert {s.call.kernel.partition(".")[0] for s in result.plan.steps} == {"numpy"}
    gemm._failed.clear()
    later = wx.optimize(_gated, x, x, options=_options(tmp_path))
    assert not later.blocks[0].remembered
    assert any(s.call.kernel.startswith("native.") for s in later.plan.steps)


def test_one_kind_that_does_not_compile_is_no_fault_of_the_other(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, flags = gemm.UNITS["f64"]
    monkeypatch.setattr(gemm, "UNITS", {**gemm.UNITS, "f64": (files, (*flags, "-Dint64_t=0"))})
    for _ in range(2):
        with pytest.raises(CompileFailed, match="error"):
            gemm.made(gemm.KINDS)
    assert gemm.entry("nr", "float32") > 1 and asked.count("f64") == 2, "it is not tried again and again"


def test_who_stops_a_search_waits_for_no_compiler(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is of what can be used then. Regression: Ctrl-C had no effect while a compiler hung."""
    going_on, seen = threading.Event(), list[Event]()
    events = Events(seen.append)
    monkeypatch.setattr(NativeBackend, "ready", lambda self, dtypes: going_on.wait(60) or None)
    threading.Timer(0.5, events.request_stop).start()
    x, begun = np.ones((16, 16), np.float32), time.monotonic()
    try:
        result = wx.optimize(_gated, x, x, options=_options(tmp_path), events=events)
    finally:
        going_on.set()
    assert time.monotonic() - begun < 30
    assert StageStarted("compile", "what backend native needs") in seen, "who waits sees what for"
    assert any(
        "backend native could not be used: what its kernels need was not compiled" in n for n in result.report.notes
    )
    assert {s.call.kernel.partition(".")[0] for s in result.plan.steps} == {"numpy"}
