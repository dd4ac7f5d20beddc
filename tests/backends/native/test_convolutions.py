"""Convolutions as sums of products over windows that are read where they are: no unfolded tensor in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq.search.samples import windows
from waxeq.testing.conformance import check_call

NATIVE = backends(["native"])[0].kernels


@dataclass(frozen=True)
class Convolution:
    """x[n, c, height, width] (padded already) with a square kernel; `order`: the result's axes in memory."""

    n: int
    c: int
    o: int
    height: int
    width: int
    side: int
    stride: int = 1
    dilation: int = 1
    order: str = "nohw"
    dtype: str = "float32"
    lines: str = "nchw"
    """How x lies in memory: in planes, or with its channels between its lines ("nhcw")."""

    @property
    def sizes(self) -> dict[str, int]:
        h, w = ((k - self.dilation * (self.side - 1) - 1) // self.stride + 1 for k in (self.height, self.width))
        named = {"H": self.height, "W": self.width, "h": h, "w": w, "i": self.side, "j": self.side}
        return {"n": self.n, "c": self.c, "o": self.o, **named}

    @property
    def view(self) -> View:
        """The windows of x, as a view."""
        s, row, plane = self.sizes, self.width, self.width * self.height
        row, plane = (self.c * row, row) if self.lines == "nhcw" else (row, plane)
        whole = self.c * self.width * self.height
        strides = (whole, plane, self.stride * row, self.stride, self.dilation * row, self.dilation)
        return View(tuple("nchwij"), tuple(s[k] for k in "nchwij"), strides, self.dtype, 0)

    def call(self, fixed: tuple[int, ...] = (1,)) -> Call:
        """The convolution of the view with weights."""
        meaning = _folded(operand(0, "nchwij", self.dtype), operand(1, "ocij", self.dtype), "cij")
        views = (self.view, View.dense("ocij", self.sizes, self.dtype))
        out = View.dense(self.order, self.sizes, self.dtype)
        return Call("native.products", meaning, self.sizes, views, out, fixed=fixed, threads=2)

    @property
    def windows(self) -> Term:
        """The windows of x, as a term on x."""
        return windows(operand(0, "ncHW", "float32"), self.stride, self.dilation)


def _folded(x: Term, kernel: Term, axes: str) -> Term:
    total = Term("Mul", x, kernel)
    for k in axes:
        total = Term("Sum", k, total)
    return total


SHAPES = (
    Convolution(1, 32, 64, 16, 16, 3),
    Convolution(2, 17, 9, 11, 13, 3, order="nhwo"),
    Convolution(1, 3, 16, 30, 31, 5, stride=2),
    Convolution(1, 8, 5, 20, 19, 3, dilation=2),
    Convolution(2, 40, 33, 9, 9, 1),
)


@pytest.mark.parametrize("seen", ["view", "unfold"])
@pytest.mark.parametrize("c", SHAPES)
def test_direct_convolution_with_and_without_an_epilogue(c: Convolution, seen: str) -> None:
    kernel, calls = NATIVE["native.products"], list[Call]()
    first = View.dense("ncHW", c.sizes, "float32") if seen == "unfold" else c.view
    x = c.windows if seen == "unfold" else operand(0, "nchwij", "float32")
    for fixed in ((), (1,)):
        plain = _folded(x, operand(1, "ocij", "float32"), "cij")
        bias = Term("Add", plain, operand(2, "o", "float32"))
        for meaning, more in ((plain, ""), (Term("Zip", "max", bias, Term("Num", 0.0, "float32")), "o")):
            views = (first, View.dense("ocij", c.sizes, "float32"), *(View.dense(k, c.sizes, "float32") for k in more))
            out = View.dense(c.order, c.sizes, "float32")
            calls.append(Call("native.products", meaning, c.sizes, views, out, fixed=fixed, threads=2))
    assert len(calls) == 4 and all(map(kernel.accepts, calls))
    kernel.prepare([(kernel, call) for call in calls])  # a compiler is started once for all
    for call in calls:
        assert check_call(kernel, call, np.random.default_rng(0)) is None
        assert kernel.workspace(call) + kernel.retained(call) <= 2 * (first.bytes + call.operands[1].bytes)


def test_windows_that_overlap_are_not_packed() -> None:
    c = SHAPES[0]
    meaning = _folded(operand(0, "nchwij", "float32"), operand(1, "ocij", "float32"), "cij")
    views = (c.view, View.dense("ocij", c.sizes, "float32"))
    for fixed in ((), (0, 1)):
        call = Call("p", meaning, c.sizes, views, View.dense("nohw", c.sizes, "float32"), fixed=fixed, threads=2)
        used = NATIVE["native.products"].workspace(call) + NATIVE["native.products"].retained(call)
        assert used <= 2 * views[1].bytes, "only weights are put in panels"


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("c", [s for s in SHAPES if s.side > 1])
def test_depthwise_convolution_is_loops(c: Convolution, dtype: str) -> None:
    kernel = NATIVE["native.loops"]
    view = View(c.view.axes, c.view.shape, c.view.strides, dtype, 0)
    meaning = _folded(operand(0, "nchwij", dtype), operand(1, "cij", dtype), "ij")
    views, out = (view, View.dense("cij", c.sizes, dtype)), View.dense("nchw", c.sizes, dtype)
    call = Call("native.loops", meaning, c.sizes, views, out, threads=2)
    assert kernel.accepts(call)
    assert check_call(kernel, call, np.random.default_rng(0)) is None
    assert kernel.workspace(call) == 0


def test_windows_are_read_on_the_left_and_weights_lie_in_panels() -> None:
    """No panels can be made of windows, and weights on the left are packed anew for every row of pixels."""
    for c in (s for s in SHAPES if s.side > 1 and s.o >= 16):
        meaning = _folded(operand(0, "nchwij", "float32"), operand(1, "ocij", "float32"), "cij")
        out = View.dense("nohw", c.sizes, "float32")
        call = Call("p", meaning, c.sizes, (c.view, View.dense("ocij", c.sizes, "float32")), out, fixed=(1,))
        assert NATIVE["native.products"].retained(call) >= 4 * c.o * c.c * c.side**2


BETWEEN = (
    (3, Convolution(1, 64, 64, 14, 30, 3, lines="nhcw")),
    (3, Convolution(1, 64, 48, 9, 11, 3, order="nhwo", lines="nhcw")),
    (3, Convolution(2, 37, 41, 13, 31, 3, stride=2, lines="nhcw")),
    (5, Convolution(1, 33, 100, 12, 23, 5, lines="nhcw")),
    (3, Convolution(1, 45, 70, 11, 19, 3, dtype="float64", lines="nhcw")),
    (1, Convolution(1, 40, 64, 12, 24, 3, dilation=2, lines="nhcw")),
    (1, Convolution(1, 40, 64, 12, 24, 3)),
    (1, Convolution(1, 128, 64, 8, 24, 3, lines="nhcw")),
)
"""Convolutions, and how many layers deep the panels of their weights are."""


@pytest.mark.parametrize("fixed", [(1,), ()])
@pytest.mark.parametrize(("layers", "c"), BETWEEN)
def test_lines_that_lie_around_the_channels_make_a_product_deeper(
    layers: int, c: Convolution, fixed: tuple[int, ...]
) -> None:
    """A tile to which three shallow products are added takes longer than one of a deeper one. Lines that lie further
    apart than all channels, and channels enough for a product of their own, stay what they are."""
    kernel, call = NATIVE["native.products"], c.call(fixed)
    assert check_call(kernel, call, np.random.default_rng(0)) is None
    work = kernel.of(call)
    if fixed:
        (pack,) = work.packs
        assert pack.layers == layers
        assert pack.depth == layers * c.c
    text = "\n".join(p.source for p in work.parts)
    assert ("WX_OF_SEVERAL" in text) == (layers > 1)
    assert (f"{c.c} * {c.side}" in text) == (layers > 1)


@pytest.mark.parametrize("order", ["nohw", "nhwo"])
@pytest.mark.parametrize("columns", [64, 1024])
def test_lines_are_fetched_before_a_turned_tile_is_written(order: str, columns: int) -> None:
    """Short pieces of many planes, none of which a machine expects; not where a tile fills the cache by itself."""
    c = Convolution(1, 16, columns, 34, 34, 3, order=order)
    text = "\n".join(p.source for p in NATIVE["native.products"].of(c.call()).parts)
    turned = "wx_turned(" in text
    assert turned == (order == "nohw")
    assert ("__builtin_prefetch(out" in text) == (turned and columns == 64)
