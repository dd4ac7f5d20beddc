"""Convolutions by fewer products: right wherever they are taken, whatever is not finite, and as exact as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.search.samples import windows
from waxeq.testing.conformance import check_call
from waxeq_native import winograd
from waxeq_native.winograd import Winograd

(BACKEND,) = backends(["native"])
KERNEL = BACKEND.kernels["native.winograd"]
X, W, AXES = (2, 7, 12, 11), (9, 7, 3, 3), "nohw"


def convolution(
    x: tuple[int, int, int, int] = X, w: tuple[int, int, int, int] = W, *, out: str = AXES, lies: str = "ncHW",
    dtype: str = "float32", steps: tuple[int, int] = (1, 1), fixed: tuple[int, ...] = (), after: str = "",
    threads: int = 1,
) -> Call:  # fmt: skip
    """The call for images x, channels and edges included, and weights w; `steps`: stride and dilation. `after`: the
    axes of something that is added before what is negative becomes zero."""
    stride, dilation = steps
    sizes = dict(zip("ncHWoij", (*x, w[0], *w[2:]), strict=True))
    sizes |= {a: (sizes[b] - dilation * (sizes[k] - 1) - 1) // stride + 1 for a, b, k in ("hHi", "wWj")}
    meaning = Term("Mul", windows(operand(0, "ncHW", dtype), stride, dilation), operand(1, "ocij", dtype))
    for k in "cij":
        meaning = Term("Sum", k, meaning)
    views = [View.dense(lies, sizes, dtype), View.dense("ocij", sizes, dtype)]
    if after:
        views.append(View.dense(after, sizes, dtype))
        meaning = Term("Zip", "max", Term("Add", meaning, operand(2, after, dtype)), Term("Num", 0.0, dtype))
    result = View.dense(out, sizes, dtype)
    return Call("native.winograd", meaning, sizes, tuple(views), result, fixed=fixed, threads=threads)


def run(call: Call, *operands: np.ndarray) -> np.ndarray:
    """The result, its axes as the call has them."""
    out = np.full(call.out.shape, 7, numpy_dtype(call.out.dtype))
    for instruction in KERNEL.bind(call, operands, out, np.full(KERNEL.workspace(call) + 64, 0xA5, np.uint8)):
        instruction()
    return out


def plainly(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution in float64."""
    seen = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], (2, 3))
    with np.errstate(all="ignore"):
        return np.einsum("nchwij,ocij->nohw", seen, w.astype(np.float64))


def drawn(call: Call, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(numpy_dtype(v.dtype)) for v in call.operands]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fixed", [(), (1,)])
@pytest.mark.parametrize("after", ["", "o", "nohw", "hw"])
@pytest.mark.parametrize(("out", "lies"), [("nohw", "ncHW"), ("nhwo", "nHWc"), ("ohwn", "nHcW"), ("wnoh", "WHnc")])
def test_a_convolution_is_what_it_means(out: str, lies: str, after: str, fixed: tuple[int, ...], threads: int) -> None:
    call = convolution(out=out, lies=lies, after=after, fixed=fixed, threads=threads)
    assert KERNEL.accepts(call)
    assert check_call(KERNEL, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("height", "width"), [(4, 4), (5, 4), (4, 5), (5, 19), (20, 7), (37, 36)])
def test_any_size(height: int, width: int, seed: int, dtype: str) -> None:
    call = convolution((1, 5, height, width), (4, 5, 3, 3), dtype=dtype, threads=2)
    assert check_call(KERNEL, call, np.random.default_rng(seed)) is None


@pytest.mark.parametrize("x", [(1, 64, 58, 58), (1, 300, 9, 9), (3, 16, 34, 33)])
@pytest.mark.parametrize("threads", [1, 2])
def test_many_blocks(x: tuple[int, int, int, int], threads: int) -> None:
    call = convolution(x, (70, x[1], 3, 3), fixed=(1,), threads=threads)
    a, w = drawn(call)
    got, want = run(call, a, w), plainly(a, w)
    size = plainly(abs(a), abs(w))
    assert np.max(abs(got - want) / size) < Winograd.error
    assert np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)) < 3e-7


@pytest.mark.parametrize("where", [(0, 0, 0, 0), (1, 3, 5, 6), (0, 6, 11, 10), (1, 2, 11, 0)])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("operand", [0, 1])
def test_what_is_not_finite_reaches_what_it_reaches_as_written(
    operand: int, value: float, where: tuple[int, int, int, int]
) -> None:
    """Sums and differences of inputs would make NaN of infinities, and infinities of what is nearly as large."""
    call = convolution()
    both = drawn(call)
    place = where if operand == 0 else tuple(min(i, n - 1) for i, n in zip(where, W, strict=True))
    both[operand][place] = value
    got, want = run(call, *both), plainly(*both)
    with np.errstate(over="ignore"):
        want = want.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.isinf(got), np.isinf(want)) and np.array_equal(np.sign(got), np.sign(want), equal_nan=True)
    ordinary = np.isfinite(want) & (abs(want) < 1e30)
    np.testing.assert_allclose(got[ordinary], want[ordinary], rtol=1e-4, atol=1e-4)


def _centre(w: np.ndarray) -> np.ndarray:
    """Filters of one weight."""
    found = np.zeros_like(w)
    found[:, :, 1, 1] = w[:, :, 1, 1]
    return found


def _heavy(w: np.ndarray) -> np.ndarray:
    """Filters with one weight that is a million times the others."""
    found = w.copy()
    found[:, :, 0, 2] *= 1e6
    return found


@pytest.mark.parametrize("fixed", [(), (1,)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "spoilt", ["a bright pixel", "a bright pixel of many channels", "one weight", "a heavy weight"]
)
def test_what_is_large_leaves_no_trace_where_it_is_multiplied_by_nothing(
    spoilt: str, threads: int, fixed: tuple[int, ...]
) -> None:
    """Sums and differences keep the digits of the largest: each result has those that its own terms have."""
    call = convolution((1, 16, 20, 37), (24, 16, 3, 3), threads=threads, fixed=fixed)
    a, w = drawn(call)
    if "pixel" in spoilt:  # the weights of one place, of these channels: those of others are as large as anywhere
        channels = slice(None, None, 2) if "channels" in spoilt else 3
        a[0, channels, 10, 10], w[:, channels, 0, 1] = 1e6, 0.0
    elif spoilt == "one weight":
        a[0, :, 10, 10], w = 20.0, _centre(w)
    else:
        a[0, :, 5:9, 10:30], w = 0.0, _heavy(w)
    got, want, size = run(call, a, w), plainly(a, w), plainly(abs(a), abs(w))
    assert np.all(abs(got - want) <= 1e-6 * size)


@pytest.mark.parametrize("every", [1000, 40])
@pytest.mark.parametrize("shape", [(4, 4), (6, 6), (8, 8), (8, 9), (12, 12), (20, 37)])
def test_what_is_large_is_seen_among_few_too(shape: tuple[int, int], every: int) -> None:
    """Of 64 inputs and less the largest is never 64 times as large as they are on average."""
    call = convolution((1, 16, *shape), (24, 16, 3, 3))
    a, w = drawn(call)
    a[0, 3].reshape(-1)[shape[1] + 1 :: every], w[:, 3, 0, 1] = 1e6, 0.0
    got, want, size = run(call, a, w), plainly(a, w), plainly(abs(a), abs(w))
    assert np.all(abs(got - want) <= 1e-6 * size)


def test_sums_of_inputs_that_overflow_are_not_made() -> None:
    """Differences of what is nearly the largest number are infinite, products with small weights are not."""
    call = convolution()
    a, w = drawn(call)
    a, w = np.copysign(np.float32(3e38), a), w * np.float32(1e-3)
    got, want = run(call, a, w), plainly(a, w)
    assert np.isfinite(got).all()
    assert np.all(abs(got - want) <= 1e-6 * plainly(abs(a), abs(w)))


@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("after", ["o", "nohw"])
@pytest.mark.parametrize("sizes", [(64, 70, 58, 58), (16, 70, 21, 34), (16, 9, 20, 37)])
def test_what_comes_after_takes_each_result_once(sizes: tuple[int, int, int, int], after: str, spoilt: bool) -> None:
    """Chunks of a block, of which the last is smaller, turned back or computed as written."""
    channels, outputs, high, wide = sizes
    call = convolution((2, channels, high, wide), (outputs, channels, 3, 3), after=after, fixed=(1,), threads=2)
    a, w, more = drawn(call)
    if spoilt:
        a[0, 3, 10, 10] = np.inf
    got, added = run(call, a, w, more), more[:, None, None] if after == "o" else more
    want, size = plainly(a, w) + added, plainly(abs(a), abs(w)) + abs(added)
    finite = np.isfinite(want)
    assert np.array_equal(np.isfinite(got), finite | (want == -np.inf))
    assert np.all(abs(got[finite] - np.maximum(want[finite], 0)) <= 1e-6 * size[finite])


def test_what_comes_after_is_no_phase_of_its_own() -> None:
    """Results went to memory and back. Where they are written far apart they still do."""
    near, far = (convolution(after="nohw", out=out, fixed=(1,)) for out in ("nohw", "nhwo"))
    for call, phases in ((near, 1), (far, 2)):
        work = Winograd().of(call)
        assert work is not None and len(work.parts) == phases
        assert (KERNEL.workspace(call) > 0) == (phases > 1)


def test_weights_lie_anywhere() -> None:
    """Backwards, and with gaps: they are read once, when the call is bound."""
    call = convolution(fixed=(1,))
    a, w = drawn(call)
    steps = 7 * 7 * 9, 7 * 9, 21, -2
    held = np.zeros(W[0] * steps[0], np.float32)
    view = np.lib.stride_tricks.as_strided(held[5:], W, [4 * s for s in steps])
    view[...] = w
    odd = replace(call, operands=(call.operands[0], View(tuple("ocij"), W, steps, "float32", 5)))
    np.testing.assert_array_equal(run(odd, a, view), run(call, a, w))


def test_images_that_are_all_the_same_are_convolved_once() -> None:
    """A result has axes that no operand has a step along."""
    call = convolution()
    lies = replace(call.operands[0], strides=(0, *call.operands[0].strides[1:]))
    call = replace(call, operands=(lies, call.operands[1]))
    assert KERNEL.accepts(call)
    assert check_call(KERNEL, call, np.random.default_rng(0)) is None


def test_what_it_does_not_take() -> None:
    assert KERNEL.accepts(convolution())
    for call in (
        convolution(steps=(2, 1)),
        convolution(steps=(1, 2)),
        convolution((2, 7, 12, 11), (9, 7, 5, 5)),
        convolution((2, 7, 12, 11), (9, 7, 1, 3)),
        convolution((2, 3, 12, 11), (9, 3, 3, 3)),
        convolution((2, 7, 12, 11), (3, 7, 3, 3)),
        convolution((2, 7, 3, 11), (9, 7, 3, 3)),
        convolution(dtype="float16"),
        convolution(dtype="int32"),
    ):
        assert not KERNEL.accepts(call), call.sizes


def test_weights_that_stay_are_turned_once() -> None:
    kept, turned = convolution(fixed=(1,)), convolution()
    assert (KERNEL.retained(kept), KERNEL.workspace(kept)) == ((16 * 7 + 1) * 9 * 4, 0)
    assert KERNEL.retained(turned) == 0 and KERNEL.workspace(turned) >= (16 * 7 + 1) * 9 * 4


def test_it_makes_fewer_products() -> None:
    call = convolution((1, 64, 58, 58), (64, 64, 3, 3), fixed=(1,))
    usual = BACKEND.kernels["native.products"].features(replace(call, kernel="native.products"))
    assert KERNEL.features(call)["flops"] * 2.2 < usual["flops"]


def test_a_block_has_all_results_where_caches_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2 MiB of second-level cache blocks were too large for a frame, and halved: inputs were turned twice."""
    assert winograd._NEAR <= winograd._MOST
    for near in (480 << 10, 960 << 10, min(1920 << 10, winograd._MOST)):
        monkeypatch.setattr(winograd, "_NEAR", near)
        for channels, size in ((64, 114), (64, 58), (128, 58), (128, 30)):
            call = convolution((1, channels, size, size), (channels, channels, 3, 3), fixed=(1,))
            conv = winograd.convolution(KERNEL.values(call))
            assert conv is not None
            block = winograd._block(conv, 1)
            assert block.outputs == channels and winograd._fits(conv, block, winograd.FRAME)
