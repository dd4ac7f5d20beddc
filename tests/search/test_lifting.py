"""Which kernels take calls of a plan that another one takes at some sizes only."""

from __future__ import annotations

import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.ir.term import Term
from waxeq.search.lifting import _compiled
from waxeq.symbolic.plan import of_ranges

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", ["native.loops", "native.loops_fast"])
def test_kernels_that_are_as_exact_come_first(name: str) -> None:
    """Regression: the first that took a call did, so that fast loops became exact ones, which are slow."""
    found = of_ranges(kernels(backends()))
    if name not in found:
        pytest.skip("no C compiler is installed")
    x = View.dense("i", {"i": 64}, "float32")
    call = Call(name, Term("Map", "tanh", operand(0, "i", "float32")), {"i": 64}, (x,), x)
    others = [found[c.kernel].error for c in _compiled(call, found) if c.kernel != name]
    assert {*others} == {0.0, found["native.loops_fast"].error}
    assert others[0] == found[name].error
