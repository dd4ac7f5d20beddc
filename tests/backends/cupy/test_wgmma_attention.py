"""Attention by groups of warps: on the simulated device, by NVIDIA's compiler; and what is wrong with it is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cupy import backend, nvrtc
from waxeq_cupy import device as devices
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.simulated import KernelFault, Simulated
from waxeq_cupy.wgmma import TILES, registers
from waxeq_cupy.wgmma_attention import WgmmaAttention

F16, BF16, F32 = "float16", "bfloat16", "float32"
KERNEL = WgmmaAttention()
HEADS = ("hmd", "hnd", "hne")
SIZES: Mapping[str, int] = {"h": 2, "m": 20, "n": 300, "d": 16, "e": 24}


def attention(dtype: str, sides: Sequence[str], mask: str = "", *, causal: float | None = None) -> Term:
    """softmax(q k / 4 + mask) v over keys n and depth d; causal: a key counts if its place is at most the query's plus
    this."""
    q, k, v = (operand(i, axes, dtype) for i, axes in enumerate(sides))
    s = Term("Mul", Term("Sum", "d", Term("Mul", q, k)), Term("Num", 0.25, dtype))
    if mask:
        s = Term("Add", s, operand(3, mask, dtype))
    if causal is not None:
        place = Term("Add", Term("Iota", "m", F32), Term("Num", causal, F32))
        s = Term("Select", Term("Zip", "ge", place, Term("Iota", "n", F32)), s, Term("Num", float("-inf"), dtype))
    e = Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", s)))
    return Term("Sum", "n", Term("Mul", Term("Zip", "div", e, Term("Sum", "n", e)), v))


def call(meaning: Term, sizes: Mapping[str, int], operands: Sequence[str | View], out: str, dtype: str) -> Call:
    views = tuple(v if isinstance(v, View) else View.dense(v, sizes, dtype) for v in operands)
    return Call("cupy.attention_wgmma", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def _cases() -> Iterator[tuple[str, Call]]:
    """Blocks that nothing fills, and some that are full; turns of the rings; what stands around."""
    yield "heads", call(attention(F16, HEADS), SIZES, HEADS, "mhe", F16)
    wide = {"h": 1, "m": 136, "n": 128, "d": 128, "e": 72}
    yield "causal", call(attention(BF16, HEADS, causal=0.0), wide, HEADS, "hme", BF16)
    few = {**SIZES, "h": 1, "n": 700, "d": 72}
    yield "rows without keys", call(attention(F16, HEADS, causal=-3.0), few, HEADS, "hme", F16)
    shared, masked = ("ghmd", "hnd", "hne"), {**SIZES, "g": 3, "n": 136}
    after = Term("Add", Term("Map", "tanh", attention(F16, shared, "mn")), operand(4, "ghme", F16))
    yield "shared keys, masked, in place", call(after, masked, [*shared, "mn", "ghme"], "ghme", F16)
    views = [View(tuple(a), tuple(SIZES[k] for k in a), (SIZES[a[2]], 2 * SIZES[a[2]], 1), F16) for a in HEADS]
    yield "heads side by side", call(attention(F16, HEADS), SIZES, views, "mhe", F16)


CASES = dict(_cases())


def launch(c: Call) -> Launch:
    w = KERNEL.work(c)
    assert w is not None
    (x,) = w.launches
    return x


@pytest.fixture
def device(simulated_with: Callable[[Iterable[Launch]], Simulated]) -> Simulated:
    return simulated_with(map(launch, CASES.values()))


@pytest.mark.parametrize("name", CASES)
def test_attention_is_what_it_means(name: str, device: Simulated) -> None:
    for device.order in (0, 5):
        assert check_call(KERNEL, CASES[name], np.random.default_rng(device.order)) is None


def drawn(c: Call) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(v.shape).astype(numpy_dtype(v.dtype)) for v in c.operands]


def ran(x: Launch, c: Call, operands: Sequence[np.ndarray], device: Simulated) -> np.ndarray:
    out = np.full(c.out.shape, 7, numpy_dtype(c.out.dtype))
    device._step(x, operands, out, np.empty(0, np.uint8))()
    return out


def test_rows_without_keys_are_nan(device: Simulated) -> None:
    c = CASES["rows without keys"]
    out = ran(launch(c), c, drawn(c), device)
    assert np.isnan(out[:, :3]).all() and np.isfinite(out[:, 3:]).all()


def test_memory_that_no_map_can_have_is_read_by_other_text(device: Simulated) -> None:
    c = CASES["heads"]
    w, operands = KERNEL.work(c, aligned=False), drawn(c)
    assert w is not None and not w.launches[0].maps and not w.launches[0].architecture
    raw = np.empty(operands[0].size + 1, operands[0].dtype)
    elsewhere = raw[1:].reshape(operands[0].shape)
    elsewhere[...] = operands[0]
    found = []
    for first in (operands[0], elsewhere):
        out = np.full(c.out.shape, np.nan, np.float16)
        for step in KERNEL.bind(c, [first, *operands[1:]], out, np.empty(0, np.uint8)):
            step()
        found.append(out.astype(float))
    assert np.abs(found[0] - found[1]).max() < 2e-3


@pytest.mark.slow
def test_drawn_attention_is_what_it_means(device: Simulated) -> None:
    assert check_kernel("cupy.attention_wgmma", KERNEL, calls=2).require().calls == 2


def _refused() -> Iterator[tuple[str, Call]]:
    yield "float32", call(attention(F32, HEADS), SIZES, HEADS, "hme", F32)
    turned = ("hmd", "hdn", "hne")
    yield "keys across the depth", call(attention(F16, turned), SIZES, turned, "hme", F16)
    across = ("hmd", "hnd", "hen")
    yield "values across their columns", call(attention(F16, across), SIZES, across, "hme", F16)
    yield "steps of 18 bytes", call(attention(F16, HEADS), {**SIZES, "d": 9}, HEADS, "hme", F16)
    yield "a long depth", call(attention(F16, HEADS), {**SIZES, "d": 136}, HEADS, "hme", F16)
    yield "long values", call(attention(F16, HEADS), {**SIZES, "e": 136}, HEADS, "hme", F16)


@pytest.mark.parametrize("name", dict(_refused()))
def test_what_no_tensor_map_says_is_not_taken(name: str) -> None:
    c = dict(_refused())[name]
    assert not KERNEL.accepts(c) and (name == "long values" or backend().kernels["cupy.attention"].accepts(c))


def test_it_is_a_variant_that_is_timed() -> None:
    offered = backend().kernels["cupy.attention_wgmma"]
    assert offered.variant_of == "attention" and offered.differs(CASES["heads"]) and offered.error == 0
    assert offered.device == backend().device and KERNEL.in_place(CASES["shared keys, masked, in place"]) == (4,)
    each = (1 << 16) // 384 // 8 * 8
    assert registers(384) * 256 + 40 * 128 <= each * 384 and registers(384) == TILES[0].registers == 232
    assert devices.place() == "cpu"


# -- NVIDIA's compiler


def test_attention_compiles_and_its_products_overlap(compiler: nvrtc.Nvrtc) -> None:
    sizes = {"h": 8, "m": 4096, "n": 4096, "d": 128, "e": 128}
    calls = [call(attention(F16, HEADS, causal=0.0), sizes, HEADS, "hme", F16),
             call(attention(BF16, HEADS), {**sizes, "d": 64, "e": 64}, HEADS, "hme", BF16),
             *(CASES[n] for n in ("shared keys, masked, in place", "rows without keys"))]  # fmt: skip
    kernels = {x.name: x for x in map(launch, calls)}
    cubin = compiler.cubin(prelude() + "\n".join(x.source for x in kernels.values()), "sm_90a")
    assert not re.search(r"serializ|setmaxnreg|warning", cubin.log), "wgmma that waits, registers that stay"
    assert cubin.kernels.keys() == kernels.keys()
    for name, r in cubin.kernels.items():
        assert not r.excess(kernels[name].text, 384, kernels[name].shared), kernels[name].text
    x = kernels[launch(calls[0]).name]
    assert x.shared == 161 << 10 and x.blocks == 8 * 32 and " >= 4096" not in x.text.partition("tile::made")[0]
    text = compiler.ptx(prelude() + x.source, "compute_90a")
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16" in text and "st.local" not in text
    assert not re.search(r"ld\.(global|shared)", text) and "ex2.approx.f32" in text


# -- what is wrong is found

EARLY = "shared memory is multiplied before it is there"
HELD = "wx_sums_stay(o), wx_factors_stay(u);"
PLANTED: Mapping[str, tuple[str, str, str]] = {
    "": ("", "", "right"),
    "queries that nobody waits for": ("    wx_mbarrier_wait(bars, 0);\n", "", EARLY),
    "values that nobody waits for": ("wx_mbarrier_wait(full(bars, before, 1), before.parity);", "", EARLY),
    "scores that nobody waits for": ("      wx_wgmma_wait<1>();\n", "", "sums are touched while"),
    "weights that are still multiplied": (
        f"wx_wgmma_wait<0>();\n      {HELD}", f"put(u, s);\n wx_wgmma_wait<0>(); {HELD}", "factors are touched while",
    ),
    "values that are given back too early": (
        "      wx_wgmma_wait<1>();", "      freed(empty(bars, before, 1)); wx_wgmma_wait<1>();", "race: a box|more thr",
    ),
    "keys that are never given back": ("freed(empty(bars, at, 0));\n    weighed", "weighed", "0 bytes do not come"),
    "no fence": ("      wx_wgmma_fence();\n      asked", "      asked", "no wgmma.fence"),
    "no fence at the end": ("    wx_wgmma_fence();\n    added", "    added", "no wgmma.fence"),
    "more bytes than come": ("wx_mbarrier_expect(bars, queries)", "wx_mbarrier_expect(bars, queries + 16)", "16 bytes"),
    "weights in another order": ("H::narrowed(low) |", "H::narrowed(high) |", "wrong"),
    "sums that are not scaled": ("o[j * 4 + n] *= scale[n / 2]", "o[j * 4 + n] *= 1", "wrong"),
    "values of other keys": ("k * 16 * line, N", "(k ^ 1) * 16 * line, N", "wrong"),
    "queries of the other group": ("threadIdx.x / 128 * 64", "(threadIdx.x / 128 ^ 1) * 64", "wrong"),
    "columns that lie along": ("wx_wgmma_held<KIND, D, 1>", "wx_wgmma_held<KIND, D, 0>", f"{EARLY}|wrong|outside"),
}  # fmt: skip


def planted(number: int, x: Launch) -> str:
    """The text of a kernel whose tile has one fault."""
    old, new, _ = list(PLANTED.values())[number]
    own = prelude()[prelude().index("template <wx_kind KIND, class H, int D, int DEPTH") :]
    own = own[: own.index("\n};\n") + 4]
    assert old in own
    text = (own.replace(old, new, 1) if old else own) + x.source.replace(x.name, f"planted_attention_{number}")
    return text.replace("wx_attention_groups", f"wx_attention_groups_{number}")


def test_what_is_planted_is_found_in_any_order(device: Simulated) -> None:
    c = CASES["heads"]
    x, operands = launch(c), drawn(c)
    device.functions({f"planted_attention_{n}": planted(n, x) for n in range(len(PLANTED))})
    want = ran(x, c, operands, device)
    for device.order in (0, 2):
        for number, (name, (_, _, said)) in enumerate(PLANTED.items()):
            wrong = replace(x)
            wrong.__dict__["name"] = f"planted_attention_{number}"
            try:
                found = "right" if np.array_equal(ran(wrong, c, operands, device), want) else "wrong"
            except KernelFault as e:
                found = str(e)
            assert re.search(said, found), f"{name}, order {device.order}: {found}"
