"""Products of matrices in CUDA C++: every tile and orientation on the simulated device, and by NVIDIA's compiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.calls import generated
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cupy import backend, nvrtc
from waxeq_cupy.kernels import Launch, Loops, prelude
from waxeq_cupy.simulated import Simulated

F16, BF16, F32, F64 = "float16", "bfloat16", "float32", "float64"
KERNELS: Mapping[str, Loops] = {n: k for n, k in backend().kernels.items() if isinstance(k, Loops)}
PRODUCTS = ("cupy.gemm", "cupy.gemm_large", "cupy.gemm_middle", "cupy.gemm_small", "cupy.gemv")


def call(
    name: str, meaning: Term, sizes: Mapping[str, int], operands: list[str | View], out: str, dtype: str = F32
) -> Call:
    views = tuple(v if isinstance(v, View) else View.dense(v, sizes, dtype) for v in operands)
    return Call(f"cupy.{name}", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def product(a: str, b: str, dtype: str = F32, over: str = "k") -> Term:
    t = Term("Mul", operand(0, a, dtype), operand(1, b, dtype))
    for k in over:
        t = Term("Sum", k, t)
    return t


def _tiles() -> Iterator[tuple[str, Call]]:
    """Every tile, dtype and orientation; sizes that fill groups, and sizes that fill nothing."""
    sides = (("mk", "kn"), ("mk", "nk"), ("km", "kn"), ("km", "nk"))
    for n, (size, dtypes) in enumerate(
        (("large", (F32, F16)), ("middle", (F64, BF16)), ("small", (F16, F32)), ("large", (F64, BF16)))
    ):
        for i, dtype in enumerate(dtypes):
            for j, (a, b) in enumerate((sides[(n + 2 * i) % 4], sides[(n + 2 * i + 1) % 4])):
                sizes = {"m": 136, "n": 40, "k": 72} if j == i else {"m": 33, "n": 139, "k": 35}
                t = Term("Map", "tanh", Term("Add", product(a, b, dtype), operand(2, "n", dtype)))
                yield f"{size} {dtype} {a} {b}", call(f"gemm_{size}", t, sizes, [a, b, "n"], "mn", dtype)


def _rounded() -> Iterator[tuple[str, Call]]:
    for a, b, sizes in (("mk", "kn", {"m": 40, "n": 72, "k": 36}), ("km", "nk", {"m": 33, "n": 9, "k": 20})):
        yield f"tf32 {a} {b}", call("gemm_tf32", Term("Map", "neg", product(a, b)), sizes, [a, b], "mn")


def _around() -> Iterator[tuple[str, Call]]:
    """What may stand before and after a product."""
    sizes = {"m": 40, "n": 48, "k": 24, "b": 3, "c": 5}
    gelu = product("mk", "kn")
    gelu = Term("Add", Term("Mul", gelu, Term("Map", "sigmoid", gelu)), operand(2, "mn", F32))
    yield "a residual in place", call("gemm", gelu, sizes, ["mk", "kn", "mn"], "mn")
    flat = Term("Add", product("mk", "kn"), operand(2, "mn", F32))
    yield "a shallow product", call("gemm", flat, {"m": 64, "n": 64, "k": 16}, ["mk", "kn", "mn"], "mn")
    yield "a batch", call("gemm", product("bmk", "bkn", F16), sizes, ["bmk", "bkn"], "mbn", F16)
    scaled = Term("Mul", Term("Map", "exp", operand(0, "mk", F32)), operand(2, "k", F32))
    t = Term("Sum", "k", Term("Mul", scaled, operand(1, "kn", F32)))
    yield "a prologue", call("gemm", t, sizes, ["mk", "kn", "k"], "mn")
    wide = [Term("Cast", F32, operand(i, a, BF16)) for i, a in enumerate(("mk", "kn"))]
    yield "narrow sides, wide sums", call("gemm", Term("Sum", "k", Term("Mul", *wide)), sizes, ["mk", "kn"], "mn", BF16)
    yield "two depths", call("gemm", product("mck", "ckn", over="kc"), sizes, ["mck", "kcn"], "nm")
    rows = Term("Gather", "c", operand(2, "m", "int64"), operand(0, "ck", F32))
    looked = Term("Sum", "k", Term("Mul", rows, operand(1, "kn", F32)))
    yield "rows that are looked up", call("gemm", looked, sizes, ["ck", "kn", View.dense("m", sizes, "int64")], "mn")
    windows = Term("Unfold", "x", "p", "w", 1, 1, Term("Pad", "i", "x", 1, 0.0, operand(0, "bci", F16)))
    conv = Term("Sum", "c", Term("Sum", "w", Term("Mul", windows, operand(1, "ncw", F16))))
    at = {"b": 2, "c": 5, "i": 20, "x": 22, "p": 20, "w": 3, "n": 16}
    yield "a convolution", call("gemm", conv, at, ["bci", "ncw"], "bnp", F16)
    back = View("mk", (40, 24), (-24, -1), F32, 959)  # pyright: ignore[reportArgumentType]
    yield "backwards", call("gemm", product("mk", "kn"), sizes, [back, "kn"], "mn")


def _few() -> Iterator[tuple[str, Call]]:
    """Rows that are few, with depths that one block folds and depths in pieces."""
    for dtype, (m, n, k), (a, b) in (
        (F32, (1, 70, 300), ("mk", "kn")), (F32, (3, 70, 260), ("mk", "nk")), (F16, (5, 64, 1024), ("mk", "nk")),
        (F16, (4, 264, 520), ("mk", "kn")), (BF16, (8, 33, 640), ("km", "kn")), (F64, (2, 33, 9), ("mk", "nk")),
        (F32, (1, 5, 2000), ("mk", "nk")), (F32, (70, 2, 40), ("mk", "kn")), (F32, (3, 72, 40), ("mk", "kn")),
    ):  # fmt: skip
        t = Term("Add", product(a, b, dtype), operand(2, "mn", dtype))
        sizes = {"m": m, "n": n, "k": k}
        yield f"{m} rows of {dtype} {a} {b} {n}", call("gemv", t, sizes, [a, b, "mn"], "mn", dtype)
    yield "a vector", call("gemv", product("k", "kn", F16), {"n": 64, "k": 40}, ["k", "kn"], "n", F16)
    sizes = {"m": 2, "n": 6, "k": 128, "c": 160}
    deep = call("gemv", product("mkc", "nck", over="kc"), sizes, ["mkc", "nck"], "nm")
    yield "two depths in pieces", deep


def _split() -> Iterator[tuple[str, Call]]:
    """Few tiles and much depth."""
    for dtype, (m, n, k), (a, b) in (
        (F16, (40, 24, 1100), ("mk", "kn")), (F32, (17, 33, 517), ("km", "nk")), (F64, (16, 40, 256), ("mk", "kn")),
    ):  # fmt: skip
        t = Term("Map", "tanh", Term("Add", product(a, b, dtype), operand(2, "mn", dtype)))
        yield f"split {dtype} {a} {b}", call("gemm_split", t, {"m": m, "n": n, "k": k}, [a, b, "mn"], "mn", dtype)
    windows = Term("Unfold", "x", "p", "w", 1, 1, operand(0, "bcx", BF16))
    conv = Term("Sum", "c", Term("Sum", "w", Term("Mul", windows, operand(1, "ncw", BF16))))
    at = {"b": 2, "c": 200, "x": 12, "p": 10, "w": 3, "n": 16}
    yield "split convolution", call("gemm_split", conv, at, ["bcx", "ncw"], "bnp", BF16)


CASES = {**dict(_tiles()), **dict(_rounded()), **dict(_around()), **dict(_few()), **dict(_split())}


def launches(calls: Mapping[str, Call]) -> dict[str, Launch]:
    works = (KERNELS[c.kernel].work(c) for c in calls.values())
    return {x.name: x for w in works if w is not None for x in w.launches}


@pytest.fixture
def device(simulated_with: Callable[[Iterable[Launch]], Simulated]) -> Simulated:
    return simulated_with(launches(CASES).values())


@pytest.mark.parametrize("name", CASES)
def test_a_product_is_what_it_means(name: str, device: Simulated) -> None:
    c = CASES[name]
    assert KERNELS[c.kernel].accepts(c)
    for device.order in (0, 7):
        assert check_call(KERNELS[c.kernel], c, np.random.default_rng(device.order)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "calls"), [("cupy.gemm", 7), ("cupy.gemv", 5), ("cupy.gemm_split", 4)])
def test_drawn_products_are_what_they_mean(name: str, calls: int, device: Simulated) -> None:
    assert check_kernel(name, KERNELS[name], calls=calls, seed=2).require().calls == calls


def test_groups_of_16_bytes_go_past_registers_where_they_can() -> None:
    works = {n: KERNELS[c.kernel].work(c) for n, c in CASES.items()}
    found = {n: w.launches[0].text for n, w in works.items() if w}
    assert found["middle bfloat16 mk kn"].count("wx_copied<8>") == 2
    assert found["middle float64 mk nk"].count("wx_copied") == 0, "tiles of threads are turned"
    assert sum("wx_copied" in t for t in found.values()) > 6
    assert "wx_copied" not in found["a prologue"].split("right =")[0]
    assert "tile_16" in found["narrow sides, wide sums"]


def test_the_order_of_threads_changes_no_bit(device: Simulated) -> None:
    c = CASES["4 rows of float16 mk kn 264"]
    rng, k = np.random.default_rng(0), KERNELS["cupy.gemv"]
    operands = [rng.standard_normal(v.shape).astype(np.float16) for v in c.operands]
    results = []
    for device.order in (0, 1, 2):
        out = np.empty(c.out.shape, np.float16)
        for step in k.bind(c, operands, out, np.empty(k.workspace(c), np.uint8)):
            step()
        results.append(out)
    assert all(np.array_equal(results[0], r) for r in results)


def test_launches_and_features() -> None:
    count = {n: len(w.launches) for n, c in _few() if (w := KERNELS[c.kernel].work(c))}
    assert {n for n, some in count.items() if some == 2} >= {"4 rows of float16 mk kn 264", "two depths in pieces"}
    assert count["2 rows of float64 mk nk 33"] == 1
    assert all(KERNELS[c.kernel].features(c)["launches"] == 2 for _, c in _split())
    c = CASES["a residual in place"]
    features = KERNELS[c.kernel].features(c)
    assert features["flops"] == 2 * 40 * 48 * 24 and features["launches"] == 1
    assert features["bytes"] == 4 * (40 * 24 + 24 * 48 + 2 * 40 * 48)
    assert KERNELS[c.kernel].in_place(c) == (2,)


def test_tiles_suit_their_product() -> None:
    def text(m: int, n: int, dtype: str) -> str:
        c = call("gemm", product("mk", "kn", dtype), {"m": m, "n": n, "k": 64}, ["mk", "kn"], "mn", dtype)
        w = KERNELS["cupy.gemm"].work(c)
        assert w is not None
        return w.launches[0].text

    assert "<float, 128, 128" in text(4096, 4096, F32) and "<float, 32, 32" in text(64, 64, F32)
    assert "<wx_bf16, 64, 64" in text(768, 768, BF16)
    square = call("gemm", product("mk", "kn"), {"m": 4096, "n": 4096, "k": 64}, ["mk", "kn"], "mn")
    assert not KERNELS["cupy.gemm_split"].accepts(square)
    assert not KERNELS["cupy.gemm_large"].differs(square) and KERNELS["cupy.gemm_small"].differs(square)


def test_what_products_do_not_take() -> None:
    sizes = {"m": 16, "n": 16, "k": 16}
    p = product("mk", "kn")
    centred = Term("Zip", "sub", p, Term("Red", "max", "n", p))
    assert not KERNELS["cupy.gemm"].accepts(call("gemm", centred, sizes, ["mk", "kn"], "mn"))
    assert not KERNELS["cupy.gemv"].accepts(call("gemv", p, sizes, ["mk", "kn"], "mn"))
    counted = product("mk", "kn", "int32")
    assert not KERNELS["cupy.gemm"].accepts(call("gemm", counted, sizes, ["mk", "kn"], "mn", "int32"))
    alone = Term("Sum", "k", operand(0, "mk", F32))
    assert not KERNELS["cupy.gemv"].matches(alone) and not KERNELS["cupy.gemm"].matches(alone)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_products_compile_and_spill_nothing(architecture: str, compiler: nvrtc.Nvrtc) -> None:
    names = {
        "large float32 mk kn",
        "large float16 km kn",
        "middle bfloat16 mk kn",
        "a convolution",
        "a residual in place",
        "a shallow product",
        "tf32 mk kn",
    }
    names |= {n for n in CASES if n.startswith(("8 rows", "3 rows", "split convolution"))}
    works = {n: KERNELS[c.kernel].work(c) for n, c in CASES.items() if n in names}
    works["apart"] = KERNELS["cupy.gemm"].work(CASES["a shallow product"], aligned=False)
    kernels = {w.launches[0].name: w.launches[0] for w in works.values() if w}
    found = compiler.cubin(prelude() + "\n".join(x.source for x in kernels.values()), architecture).kernels
    assert found.keys() == kernels.keys() and len(found) == 12
    for name, r in found.items():
        assert r.spilled == r.stack == 0, kernels[name].text
        assert r.registers * kernels[name].threads <= 1 << 15, "two blocks of 256 fit on a processor"
        assert r.shared <= 48 << 10


@pytest.mark.parametrize(("kernel", "dtype"), [("gemm_tf32", F32), ("gemm_large", "float16")])
def test_sides_of_several_operands_spill_nothing(kernel: str, dtype: str, compiler: nvrtc.Nvrtc) -> None:
    """What is on its way to the largest tiles takes twice the registers."""
    x, y, z = operand(0, "mk", dtype), operand(1, "kn", dtype), operand(2, "kn", dtype)
    meaning = Term("Sum", "k", Term("Mul", x, Term("Add", y, z)))
    w = KERNELS[f"cupy.{kernel}"].work(
        call(kernel, meaning, dict.fromkeys("mnk", 2000), ["mk", "kn", "kn"], "mn", dtype)
    )
    assert w is not None and w.launches[0].threads == 256
    (r,) = compiler.cubin(prelude() + w.launches[0].source, "sm_90").kernels.values()
    assert r.spilled == r.stack == 0 and 128 < r.registers <= 255


def test_pieces_of_sides_of_several_operands_spill_nothing(compiler: nvrtc.Nvrtc) -> None:
    """Queries and keys with their biases, a few heads of 32 columns: the depth is cut in two."""
    sizes = {"b": 2, "h": 12, "m": 40, "n": 40, "k": 32}
    x, y, z, w = (operand(n, axes, F32) for n, axes in enumerate(("bmhk", "hk", "bhkn", "hk")))
    meaning = Term("Sum", "k", Term("Mul", Term("Add", x, y), Term("Add", z, w)))
    work = KERNELS["cupy.gemm_split"].work(call("gemm_split", meaning, sizes, ["bmhk", "hk", "bhkn", "hk"], "bhmn"))
    assert work is not None and len(work.launches) == 2
    (r,) = compiler.cubin(prelude() + work.launches[0].source, "sm_90").kernels.values()
    assert r.spilled == r.stack == 0 and 128 < r.registers <= 255


def test_tensor_cores_and_copies_are_used(compiler: nvrtc.Nvrtc) -> None:
    w = KERNELS["cupy.gemm_middle"].work(CASES["middle bfloat16 mk kn"])
    assert w is not None
    text = compiler.ptx(prelude() + w.launches[0].source, "compute_90")
    assert "mma.sync.aligned.m16n8k16" in text and "cp.async.cg" in text and "ldmatrix" in text
    few = KERNELS["cupy.gemv"].work(CASES["5 rows of float16 mk nk 64"])
    assert few is not None
    text = compiler.ptx(prelude() + few.launches[0].source, "compute_90")
    assert len(re.findall(r"ld\.global\.nc\.v4", text)) >= 2 and "st.local" not in text


def test_drawn_calls_have_no_surprises() -> None:
    """What is drawn is taken, apart from folds besides the product."""
    drawn = list(generated("cupy.gemm", KERNELS["cupy.gemm"], np.random.default_rng(0), 30))
    assert len(drawn) == 30


def test_a_result_along_the_depth_is_no_product() -> None:
    """What is multiplied with the sum has a place for each that was summed."""
    a, b = operand(0, "mk", F32), operand(1, "nk", F32)
    t = Term("Mul", a, Term("Sum", "k", Term("Mul", a, b)))
    sizes = {"m": 2, "n": 64, "k": 40}
    views = tuple(View.dense(axes, sizes, F32) for axes in ("mk", "nk"))
    for name, kernel in backend().kernels.items():
        if "gem" in name:
            assert not kernel.accepts(Call(name, t, sizes, views, View.dense("mnk", sizes, F32))), name
