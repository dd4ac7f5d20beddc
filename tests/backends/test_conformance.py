"""Every kernel of every installed backend computes what it means."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_native import library
from waxeq_native.library import Library

KERNELS = dict(kernels(backends()))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.usefixtures("wide")
def test_a_kernel_computes_what_it_means(
    name: str, little: Library, machine_is_wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variants of a kernel are compiled in a third of the time: they are other orders of what that one does. So are
    sweeps where vectors are made of two. Of both there are fewer calls. Kernels that are another one but that they
    store past the cache have each function in nests of loops, and not by itself as well."""
    few = KERNELS[name].variant_of or (KERNELS[name].form == "sweeps" and not machine_is_wide)
    if few:
        monkeypatch.setattr(library, "shared", lambda: little)
    alone = not getattr(KERNELS[name], "streams", False)
    found = check_kernel(name, KERNELS[name], calls=12 if few else 24, alone=alone).require()
    assert len(found.sizes) > 2, "calls of one size prove little"


def test_what_a_kernel_says_of_itself() -> None:
    for name, k in KERNELS.items():
        assert name == f"{name.partition('.')[0]}.{k.name}"
        assert isinstance(k, Kernel) and type(k).__doc__
        assert (k.form == "pattern") == bool(k.pattern)
        assert 0 <= k.error < 1


def test_what_is_the_same_for_every_tile_outlives_the_tile() -> None:
    """tanh v depends on no row, so tiles of rows may share it; its place must not be one that an earlier stage of the
    next tile writes."""
    x, v = operand(0, "ij", "float32"), operand(1, "j", "float32")
    meaning = Term("Add", Term("Map", "neg", Term("Map", "exp", x)), Term("Map", "tanh", v))
    sizes = {"i": 4000, "j": 100}
    views = View.dense("ij", sizes, "float32"), View.dense("j", sizes, "float32")
    ran = 0
    for name, k in KERNELS.items():
        call = Call(name, meaning, sizes, views, views[0])
        if k.form == "loops" and k.matches(meaning) and k.accepts(call):
            assert check_call(k, call, np.random.default_rng(0)) is None
            ran += 1
    assert ran > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fold_that_another_waits_for_is_whole_before_their_axis_is_cut(threads: int) -> None:
    """sum_j w x / sqrt(sum_j x x): the long sums are made in pieces of j, the square root needs all of it."""
    x, w = operand(0, "j", "float32"), operand(1, "ij", "float32")
    norm = Term("Map", "rsqrt", Term("Sum", "j", Term("Map", "square", x)))
    meaning = Term("Sum", "j", Term("Mul", w, Term("Mul", norm, x)))
    sizes = {"i": 70, "j": 2100}
    rng, ran = np.random.default_rng(0), 0
    a, b = rng.standard_normal(2100).astype(np.float32), rng.standard_normal((2100, 70)).astype(np.float32)
    wanted = (a / np.sqrt((a.astype(np.float64) ** 2).sum())) @ b
    views = View.dense("j", sizes, "float32"), View.dense("ji", sizes, "float32")
    for name, k in KERNELS.items():
        call = Call(name, meaning, sizes, views, View.dense("i", sizes, "float32"), threads=threads)
        if k.form == "loops" and k.matches(meaning) and k.accepts(call):
            out = np.full(70, -7, np.float32)
            for step in k.bind(call, [a, b], out, np.empty(k.workspace(call), np.uint8)):
                step()
            np.testing.assert_allclose(out, wanted, atol=1e-5, err_msg=name)
            ran += 1
    assert ran > 1


FOLDED = [("prod", "int8", 256, 2, 0), ("prod", "int8", 200, 1, 1), ("prod", "uint64", 3, 1 << 33, 0),
          ("sum", "int8", 300, 1, 44), ("sum", "float16", 70_000, 1e-3, 70.0), ("sum", "float16", 70_000, 0.0, 0.0),
          ("sum", "float32", 70_000, 2.0, 140_000.0)]  # fmt: skip


@pytest.mark.parametrize(("fold", "dtype", "count", "value", "want"), FOLDED)
def test_a_fold_along_an_axis_that_is_not_there(fold: str, dtype: str, count: int, value: float, want: float) -> None:
    """Of one number so many times, which may be more than the dtype holds."""
    x = operand(0, "i", dtype)
    meaning = Term("Sum", "k", x) if fold == "sum" else Term("Red", fold, "k", x)
    view = View.dense("i", {"i": 3}, dtype)
    ran = 0
    for name, k in KERNELS.items():
        call = Call(name, meaning, {"i": 3, "k": count}, (view,), view)
        if k.form == "loops" and k.device == "cpu" and k.matches(meaning) and k.accepts(call):
            out = np.empty(3, dtype)
            with np.errstate(all="ignore"):
                for run in k.bind(call, [np.full(3, value, dtype)], out, np.empty(k.workspace(call), np.uint8)):
                    run()
            assert np.allclose(out, np.array(want, dtype), rtol=2e-3), name
            ran += 1
    assert ran
