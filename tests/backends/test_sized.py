"""Kernels that are compiled once for all sizes in a range compute what they mean at each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, Over, View, operand, size_axis
from waxeq.backend.discover import backends, kernels
from waxeq.backend.extent import Extent
from waxeq.backend.kernel import Kernel
from waxeq.ir.term import Term
from waxeq.testing.sized import check_sized, everywhere
from waxeq_native import library
from waxeq_native.library import Library

KERNELS = {n: k for n, k in kernels(backends()).items() if k.sized is not None}
EASY = Term(
    "Zip", "div", Term("Map", "exp", operand(0, "tj", "float32")), Term("Sum", "j", operand(0, "tj", "float32"))
)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_means_at_every_size(
    name: str, little: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variants are other orders of what a kernel does, and are compiled in a third of the time."""
    if KERNELS[name].variant_of:
        monkeypatch.setattr(library, "shared", lambda: little)
    found = check_sized(name, KERNELS[name], calls=6 if KERNELS[name].variant_of else 9).require()
    assert len(found.sizes) > 9


def one_size(kernel: Kernel, name: str, t: int) -> tuple[Call, Call]:
    """A call of one size, and the same over a range of which that size is all."""
    sizes = {"t": t, "j": 33}
    x = View.dense("tj", sizes, "float32")
    call = Call(name, EASY, sizes, (x,), x, threads=2)
    assert Extent.of("T", t, t) == t
    more = View((size_axis("T"),), (1,), (1,), "int64")
    template = replace(call, operands=(x, more), sizes={**sizes, size_axis("T"): 1})
    return call, replace(call, over=Over(template, {"T": t}, (np.array([t]),)))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("t", [1, 7, 5000])
def test_a_range_of_one_size_has_the_text_of_a_call_of_it(name: str, t: int) -> None:
    """Where no number depends on a size the text is that of the kernel itself, but for the arguments that are sizes."""
    kernel = KERNELS[name]
    call, sized = one_size(kernel, name, t)
    assert kernel.sized is not None
    if not kernel.accepts(call):
        return
    own, theirs = kernel.of(call), kernel.sized.of(sized)  # pyright: ignore[reportAttributeAccessIssue]
    lines = [[x.replace("(uint64_t)", "") for x in p.text.splitlines()] for p in theirs.parts]
    for part, text in zip(own.parts, lines, strict=True):
        assert [x for x in text if x in part.text.splitlines()] == part.text.splitlines()


@pytest.mark.parametrize("name", KERNELS)
def test_one_text_for_all_sizes(name: str) -> None:
    """Calls of a range differ in their arguments and in how many tasks they have."""
    kernel, rng = KERNELS[name].sized, np.random.default_rng(1)
    sizes = {"t": 50, "j": 33}
    x = View.dense("tj", sizes, "float32")
    call = Call(name, EASY, sizes, (x,), x, threads=2)
    assert kernel is not None
    for _ in range(4):
        works = [kernel.of(c) for c in everywhere(call, rng) if kernel.accepts(c)]  # pyright: ignore[reportAttributeAccessIssue]
        assert len({tuple(p.text for p in w.parts) for w in works}) <= 1


@pytest.mark.parametrize("t", [2, 300, 5000, 20_000])
def test_long_sums_along_an_axis_that_varies_are_shared_out(t: int) -> None:
    """In pieces of one width: a width that hung on the size was refused, and NumPy summed."""
    meaning = Term("Mul", operand(1, "", "float32"), Term("Sum", "t", operand(0, "tj", "float32")))
    low, rng = Extent.of("T", 2, 20_000), np.random.default_rng(0)
    inputs = rng.normal(size=(t, 64)).astype(np.float32), np.array(1 / t, np.float32)

    def made(n: int) -> Call:
        sizes = {"t": n, "j": 64}
        operands = (View.dense("tj", sizes, "float32"), View.dense("", sizes, "float32"))
        return Call("native.loops", meaning, sizes, operands, View.dense("j", sizes, "float32"), threads=2)

    template = made(low)
    more = View((size_axis("T"),), (1,), (1,), "int64")
    template = replace(template, operands=(*template.operands, more), sizes={**template.sizes, size_axis("T"): 1})
    call, kernel = replace(made(t), over=Over(template, {"T": t}, (np.array([t]),))), KERNELS["native.loops"].sized
    assert kernel is not None and kernel.accepts(call)
    out = np.empty(64, np.float32)
    for run in kernel.bind(call, inputs, out, np.zeros(max(1, kernel.workspace(call)), np.uint8)):
        run()
    np.testing.assert_allclose(out, inputs[0].mean(0, dtype=np.float64), atol=1e-6)
