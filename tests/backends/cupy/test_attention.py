"""Attention by blocks of keys in CUDA C++, on the simulated device and through NVIDIA's compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cupy import attention as attentions
from waxeq_cupy import nvrtc
from waxeq_cupy.attention import FlashAttention
from waxeq_cupy.grouped import walked
from waxeq_cupy.kernels import Launch, prelude, resolved
from waxeq_cupy.simulated import Simulated

F16, BF16, F32, F64 = "float16", "bfloat16", "float32", "float64"
KERNEL = FlashAttention()
KERNELS = {f"cupy.{k.name}": k() for k in attentions.KERNELS}


def attention(
    dtype: str,
    sides: tuple[str, str, str],
    mask: Term | None = None,
    *,
    late: bool = False,
    causal: float | None = None,
    repeated: bool = False,
) -> Term:
    """softmax(q k + mask) v over keys n and depth d; divided by the sum of exponentials before the second product, or
    (late) after it. causal: a key counts if its place is at most the query's plus this. repeated: each head h of keys
    and values is for g heads i of queries, one after another."""
    q, k, v = (operand(i, axes, dtype) for i, axes in enumerate(sides))
    if repeated:
        k, v = (Term("Merge", "h", "g", "i", x) for x in (k, v))
    s = Term("Mul", Term("Sum", "d", Term("Mul", q, k)), Term("Num", 0.25, dtype))
    if mask is not None:
        s = Term("Add", s, mask)
    if causal is not None:
        place = Term("Add", Term("Iota", "m", F32), Term("Num", causal, F32))
        s = Term("Select", Term("Zip", "ge", place, Term("Iota", "n", F32)), s, Term("Num", float("-inf"), dtype))
    e = Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", s)))
    total = Term("Sum", "n", e)
    if late:
        return Term("Zip", "div", Term("Sum", "n", Term("Mul", v, e)), total)
    return Term("Sum", "n", Term("Mul", Term("Zip", "div", e, total), v))


def call(
    meaning: Term, sizes: dict[str, int], operands: list[str], out: str, dtype: str, kernel: str = "attention"
) -> Call:
    views = tuple(View.dense(v, sizes, dtype) for v in operands)
    return Call(f"cupy.{kernel}", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def _cases() -> Iterator[tuple[str, Call]]:
    heads = ("hmd", "hnd", "hne")
    sizes = {"h": 2, "m": 70, "n": 130, "d": 40, "e": 40}
    yield "halves", call(attention(F16, heads), sizes, [*heads], "mhe", F16)
    turned = ("hdm", "hdn", "hen")
    late = attention(BF16, turned, operand(3, "mn", BF16), late=True)
    yield "turned, masked", call(late, {"h": 1, "m": 33, "n": 72, "d": 24, "e": 33}, [*turned, "mn"], "hme", BF16)
    small = {"h": 1, "m": 40, "n": 70, "d": 12, "e": 20}
    yield "causal", call(attention(F32, heads, causal=0.0, late=True), small, [*heads], "hme", F32)
    yield "rows without keys", call(attention(F16, heads, causal=-3.0), small, [*heads], "hme", F16)
    shared = ("hmd", "nd", "ne")
    after = Term("Add", Term("Map", "tanh", attention(F32, shared)), operand(3, "hme", F32))
    yield "keys for all heads, in place", call(after, {**small, "h": 3, "m": 7}, [*shared, "hme"], "hme", F32)
    repeated = ("bimd", "bhnd", "bhne")
    again = attention(F16, repeated, causal=2.0, repeated=True)
    wide = {"b": 2, "i": 4, "h": 2, "g": 2, "m": 40, "n": 70, "d": 16, "e": 24}
    yield "repeated keys", call(again, wide, [*repeated], "bmie", F16)
    yield "one query", call(attention(F32, ("hd", "hnd", "hne")), small, ["hd", "hnd", "hne"], "he", F32)
    yield "doubles", call(attention(F64, heads), {**small, "e": 9}, [*heads], "hme", F64)
    deep = {"h": 1, "m": 9, "n": 70, "d": 300, "e": 8}
    yield "queries that do not stay", call(attention(F16, heads), deep, [*heads], "hme", F16)


def _decoded() -> Iterator[tuple[str, Call]]:
    """Few queries and long caches."""
    grouped, sizes = ("hgmd", "hnd", "hne"), {"h": 2, "g": 3, "m": 1, "n": 600, "d": 64, "e": 64}
    for kernel in ("few", "split"):
        c = call(attention(F16, grouped), sizes, [*grouped], "mhge", F16, f"attention_{kernel}")
        yield f"grouped heads, {kernel}", c
    heads, masked = ("hmd", "hnd", "hne"), operand(3, "n", F32)
    long = {"h": 1, "m": 2, "n": 1001, "d": 20, "e": 24}
    after = Term("Add", Term("Map", "tanh", attention(F32, heads, masked, late=True)), operand(4, "hme", F32))
    yield "masked, in place, few", call(after, long, [*heads, "n", "hme"], "hme", F32, "attention_few")
    last = {"h": 2, "m": 3, "n": 700, "d": 16, "e": 33}
    for kernel in ("few", "split"):
        c = call(attention(F32, heads, causal=300.0), last, [*heads], "hme", F32, f"attention_{kernel}")
        yield f"pieces without keys, {kernel}", c
    repeated = ("id", "hnd", "hne")
    alone = {"i": 6, "h": 2, "g": 3, "n": 600, "d": 64, "e": 64}
    for kernel in ("few", "split"):
        c = call(attention(F16, repeated, repeated=True), alone, [*repeated], "ie", F16, f"attention_{kernel}")
        yield f"grouped heads by repeated keys, {kernel}", c
    turned, odd = ("dm", "dn", "en"), {"m": 8, "n": 520, "d": 5, "e": 7}
    yield "turned doubles, few", call(attention(F64, turned), odd, [*turned], "me", F64, "attention_few")
    yield "turned doubles, split", call(attention(F64, turned), odd, [*turned], "me", F64, "attention_split")
    short = {"h": 3, "m": 1, "n": 40, "d": 8, "e": 200}
    yield "few keys, many columns", call(attention(BF16, heads), short, [*heads], "hme", BF16)


CASES = {**dict(_cases()), **dict(_decoded())}


def launches(c: Call) -> tuple[Launch, ...]:
    w = KERNELS[c.kernel].work(c)
    assert w is not None and (len(w.launches) > 1) == (w.workspace > 0)
    return w.launches


@pytest.fixture
def device(simulated_with: Callable[[Iterable[Launch]], Simulated]) -> Simulated:
    return simulated_with(x for c in CASES.values() for x in launches(c))


@pytest.mark.parametrize("name", CASES)
def test_attention_is_what_it_means(name: str, device: Simulated) -> None:
    for device.order in (0, 5):
        assert check_call(KERNELS[CASES[name].kernel], CASES[name], np.random.default_rng(device.order)) is None


def test_keys_are_cut_in_pieces_where_blocks_are_few() -> None:
    count = {n: len(launches(c)) for n, c in CASES.items()}
    assert all((some == 2) == ("grouped" in n or n.endswith((", few", ", split"))) for n, some in count.items())
    few = launches(CASES["grouped heads, few"])
    assert "wx_attention_few<float, 3, 128, 8, 8, 8, 64>" in few[0].text and few[0].blocks == 2 * 2
    assert len({x.writes for x in few}) == 2 and few[1].reads[-1] == few[0].writes and few[1].blocks == 2 * 3
    many = call(attention(F16, ("hmd", "hnd", "hne")), {"h": 300, "m": 1, "n": 999, "d": 64, "e": 64},
                ["hmd", "hnd", "hne"], "hme", F16)  # fmt: skip
    assert len(launches(many)) == 1 and not KERNELS["cupy.attention_split"].accepts(many)
    assert not KERNELS["cupy.attention_few"].differs(many) and KERNELS["cupy.attention_tiled"].differs(many)


def test_queries_are_brought_once_where_shared_memory_has_room() -> None:
    assert "wx_attention_16<wx_f16, 64, 64, true" in launches(CASES["halves"])[0].text
    assert "wx_attention_16<wx_f16, 32, 0, true" in launches(CASES["queries that do not stay"])[0].text


def test_queries_that_share_repeated_keys_are_rows_of_one_product() -> None:
    """As where the heads are told apart by an axis of their own."""
    apart, repeated = (CASES[f"grouped heads{how}, few"] for how in ("", " by repeated keys"))
    found = [KERNELS[c.kernel].product(c) for c in (apart, repeated)]
    assert [(p.many, p.size(p.rows), p.size(p.columns)) for p in found] == [(2, 3, 64)] * 2
    prefilled = KERNEL.product(CASES["repeated keys"])
    assert (prefilled.many, prefilled.size(prefilled.rows)) == (2 * 2, 2 * 40)
    halves = Term("Merge", "h", "g", "i", Term("Map", "tanh", operand(0, "hg", F32)))  # nothing is repeated
    c = call(Term("Mul", halves, operand(1, "i", F32)), {"h": 2, "g": 3, "i": 6}, ["hg", "i"], "i", F32)
    assert walked(resolved(c)) == resolved(c)


def test_the_order_of_threads_changes_no_bit(device: Simulated) -> None:
    c, rng = CASES["masked, in place, few"], np.random.default_rng(0)
    operands = [rng.standard_normal(v.shape).astype(np.float32) for v in c.operands]
    results = []
    for device.order in (0, 1, 2):
        out = np.empty(c.out.shape, np.float32)
        for step in KERNELS[c.kernel].bind(c, operands, out, np.empty(KERNELS[c.kernel].workspace(c), np.uint8)):
            step()
        results.append(out)
    assert all(np.array_equal(results[0], r) for r in results)


def test_later_keys_may_count_most_and_rows_without_keys_are_nan(device: Simulated) -> None:
    c = CASES["rows without keys"]
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(x.shape).astype(np.float16) for x in c.operands)
    k *= np.linspace(0, 8, k.shape[1], dtype=np.float16)[:, None]
    out = np.empty(c.out.shape, np.float16)
    for step in KERNEL.bind(c, [q, k, v], out, np.empty(0, np.uint8)):
        step()
    with np.errstate(all="ignore"):
        s = np.einsum("hmd,hnd->hmn", q.astype(np.float64), k) / 4
        s = np.where(np.arange(40)[:, None] - 3 >= np.arange(70), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        want = np.einsum("hmn,hne->hme", e / e.sum(-1, keepdims=True), v)
    assert np.isnan(out[:, :3]).all() and np.abs(out[:, 3:] - want[:, 3:]).max() < 4e-3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "calls"), [("attention", 3), ("attention_split", 4), ("attention_few", 2)])
def test_drawn_attention_is_what_it_means(name: str, calls: int, device: Simulated) -> None:
    found = check_kernel(f"cupy.{name}", KERNELS[f"cupy.{name}"], calls=calls, seed=3).require()
    assert found.calls == calls or name == "attention_split", "few of those drawn have tiles and keys to cut"


def test_what_is_counted_and_what_is_not_taken() -> None:
    c = CASES["keys for all heads, in place"]
    assert KERNEL.in_place(c) == (3,) and KERNEL.features(c)["flops"] == 2 * 3 * 7 * 70 * (12 + 20)
    wide = {"h": 1, "m": 9, "n": 8, "d": 8, "e": 300}
    heads = ("hmd", "hnd", "hne")
    assert not KERNEL.accepts(call(attention(F16, heads), wide, [*heads], "hme", F16))
    unlike = Term("Sum", "n", Term("Mul", Term("Map", "exp", operand(0, "mn", F32)), operand(1, "ne", F32)))
    assert not KERNEL.accepts(call(unlike, {"m": 4, "n": 8, "e": 8}, ["mn", "ne"], "me", F32))
    e = Term("Sum", "d", Term("Mul", operand(0, "md", F32), operand(1, "nd", F32)))
    other = Term("Map", "exp", Term("Zip", "sub", e, Term("Red", "max", "m", e)))
    across = Term("Sum", "n", Term("Mul", other, operand(2, "ne", F32)))
    assert not KERNEL.accepts(call(across, wide, ["md", "nd", "ne"], "me", F32))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_attention_compiles_and_spills_nothing(architecture: str) -> None:
    try:
        compiler = nvrtc.Nvrtc.found()
    except nvrtc.MissingCompiler as e:
        pytest.skip(str(e))
    heads, sizes = ("hmd", "hnd", "hne"), {"h": 8, "m": 512, "n": 512, "d": 128, "e": 128}
    calls = [call(attention(d, heads, causal=0.0), sizes, [*heads], "hme", d) for d in (F16, F32)]
    decoded = {"h": 8, "g": 8, "m": 1, "n": 4096, "d": 128, "e": 128}
    grouped = ("hgmd", "hnd", "hne")
    calls += [call(attention(F16, grouped), decoded, [*grouped], "hgme", F16, "attention_few")]
    calls += [CASES["turned, masked"], CASES["doubles"], CASES["turned doubles, few"], CASES["grouped heads, split"]]
    kernels = {x.name: x for c in calls for x in launches(c)}
    found = compiler.cubin(prelude() + "\n".join(x.source for x in kernels.values()), architecture).kernels
    assert found.keys() == kernels.keys()
    for name, r in found.items():
        assert r.spilled == r.stack == 0, kernels[name].text
        assert r.registers * kernels[name].threads <= 1 << 15 and r.shared <= 48 << 10, "two blocks fit on a processor"
