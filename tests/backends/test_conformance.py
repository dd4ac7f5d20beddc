"""Every kernel of every installed backend computes what it means."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call, check_kernel

KERNELS = dict(kernels(backends()))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_means(name: str) -> None:
    found = check_kernel(name, KERNELS[name], calls=40).require()
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
