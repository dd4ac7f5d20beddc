"""Products by groups of warps: every tile and orientation on the simulated device, by NVIDIA's compiler, and through a
driver that is one in name only; and what is wrong with them is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.storage import DeviceArray
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cupy import backend, nvrtc
from waxeq_cupy import device as devices
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.driver import Driver, DriverFailed
from waxeq_cupy.gpu import Gpu, Segment
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.packed import bring_all, compiled_for, images, launches
from waxeq_cupy.simulated import KernelFault, Simulated
from waxeq_cupy.tensormaps import TensorMap
from waxeq_cupy.wgmma import KERNELS, TILES, WgmmaGemm

F16, BF16, F32 = "float16", "bfloat16", "float32"
NAMED: Mapping[str, WgmmaGemm] = {f"cupy.{k.name}": k() for k in KERNELS}
SHARED = 227 << 10
"""Bytes that a block may have at most."""


def call(
    name: str, meaning: Term, sizes: Mapping[str, int], operands: Sequence[str | View], out: str, dtype: str
) -> Call:
    views = tuple(v if isinstance(v, View) else View.dense(v, sizes, dtype) for v in operands)
    return Call(f"cupy.gemm_wgmma{name}", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def product(a: str, b: str, dtype: str) -> Term:
    return Term("Sum", "k", Term("Mul", operand(0, a, dtype), operand(1, b, dtype)))


def _tiles() -> Iterator[tuple[str, Call]]:
    """Every tile, dtype and orientation; more than one tile each way, and ends that fill none."""
    for size, dtype, (m, n, k), a, b in (
        ("_large", F16, (136, 264, 72), "mk", "kn"), ("_large", BF16, (40, 16, 200), "km", "nk"),
        ("_middle", BF16, (136, 136, 136), "mk", "nk"), ("_middle", F16, (16, 40, 328), "km", "kn"),
        ("_small", F16, (72, 136, 328), "mk", "kn"), ("_small", BF16, (72, 16, 8), "mk", "nk"),
        ("_ping_pong", F16, (264, 264, 392), "mk", "kn"), ("_ping_pong", BF16, (72, 136, 72), "km", "nk"),
        ("_split", F16, (8, 136, 520), "mk", "nk"), ("_split", BF16, (72, 136, 1032), "mk", "kn"),
        ("_tf32", F32, (70, 132, 100), "mk", "nk"),
    ):  # fmt: skip
        t = Term("Map", "tanh", Term("Add", product(a, b, dtype), operand(2, "n", dtype)))
        yield f"{size} {dtype} {a} {b}", call(size, t, {"m": m, "n": n, "k": k}, [a, b, "n"], "mn", dtype)


def _around() -> Iterator[tuple[str, Call]]:
    """What may stand around a product."""
    sizes = {"m": 24, "n": 16, "k": 40, "b": 3, "c": 5}
    added = Term("Add", product("mk", "kn", F16), operand(2, "mn", F16))
    yield "a residual in place", call("", added, {**sizes, "m": 23}, ["mk", "kn", "mn"], "mn", F16)
    yield "a batch", call("", product("bmk", "bkn", F16), sizes, ["mbk", "bkn"], "mbn", F16)
    yield "one matrix for many", call("", product("cbmk", "nk", BF16), sizes, ["cbmk", "nk"], "bcnm", BF16)
    wide = [Term("Cast", F32, operand(i, a, BF16)) for i, a in enumerate(("mk", "kn"))]
    t = Term("Sum", "k", Term("Mul", *wide))
    yield "narrow sides, wide sums", call("", t, {**sizes, "n": 8}, ["mk", "kn"], "mn", BF16)
    at = {**sizes, "k": 200}
    rows = Term("Gather", "c", operand(2, "n", "int64"), operand(3, "cm", F16))
    looked = Term("Mul", product("mk", "nk", F16), rows)
    views = ["mk", "nk", View.dense("n", at, "int64"), "cm"]
    yield "rows that are looked up", call("_small", looked, at, views, "nm", F16)
    inner = View("mk", (24, 40), (96, 1), F16, 16)  # pyright: ignore[reportArgumentType]
    yield "a part of a matrix", call("", product("mk", "kn", F16), sizes, [inner, "kn"], "mn", F16)


CASES = {**dict(_tiles()), **dict(_around())}


def launched(c: Call) -> Sequence[Launch]:
    w = NAMED[c.kernel].work(c)
    assert w is not None
    return w.launches


def launch(c: Call) -> Launch:
    """The only one, or that of the pieces."""
    return launched(c)[0]


@pytest.fixture
def device(simulated_with: Callable[[Iterable[Launch]], Simulated]) -> Simulated:
    return simulated_with(x for c in CASES.values() for x in launched(c))


@pytest.mark.parametrize("name", CASES)
def test_a_product_is_what_it_means(name: str, device: Simulated) -> None:
    c = CASES[name]
    for device.order in (0, 7):
        assert check_call(NAMED[c.kernel], c, np.random.default_rng(device.order)) is None


@pytest.mark.slow
def test_drawn_products_are_what_they_mean(device: Simulated) -> None:
    assert check_kernel("cupy.gemm_wgmma_small", NAMED["cupy.gemm_wgmma_small"], calls=2).require().calls == 2


def ran(c: Call, device: Simulated, operands: Sequence[np.ndarray], x: Launch) -> np.ndarray:
    out = np.full(c.out.shape, np.nan, numpy_dtype(c.out.dtype))
    device._step(x, operands, out, np.empty(0, np.uint8))()
    return out


def drawn(c: Call) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(v.shape).astype(numpy_dtype(v.dtype)) for v in c.operands]


@pytest.mark.parametrize(("name", "tiles"), [("_small float16 mk kn", 4), ("_ping_pong float16 mk kn", 9)])
def test_one_block_makes_all_tiles_with_the_same_bits(name: str, tiles: int, device: Simulated) -> None:
    c = CASES[name]
    x, operands = launch(c), drawn(c)
    results = []
    for blocks, device.order in ((tiles, 0), (1, 0), (1, 1), (3, 2), (4, 7)):
        results.append(ran(c, device, operands, replace(x, blocks=blocks)))
    assert x.blocks == tiles and all(np.array_equal(results[0], r) for r in results)


def test_a_few_rows_take_all_processors_in_pieces_of_the_depth() -> None:
    sizes = {"m": 8, "n": 4096, "k": 4096}
    first, second = launched(call("_split", product("mk", "nk", F16), sizes, ["mk", "nk"], "mn", F16))
    assert 132 <= first.blocks <= 264 and first.maps and not second.maps
    whole = {"m": 4096, "n": 4096, "k": 4096}
    assert not NAMED["cupy.gemm_wgmma_split"].accepts(
        call("_split", product("mk", "nk", F16), whole, ["mk", "nk"], "mn", F16)
    )


def test_memory_that_no_map_can_have_is_multiplied_by_other_text(device: Simulated) -> None:
    c = CASES["_small bfloat16 mk nk"]
    k, operands = NAMED[c.kernel], drawn(c)
    w = k.work(c, aligned=False)
    assert w is not None and not w.launches[0].maps and not w.launches[0].architecture
    raw = np.empty(operands[0].size + 1, operands[0].dtype)
    there = raw[1:].reshape(operands[0].shape)
    there[...] = operands[0]
    out = np.empty(c.out.shape, numpy_dtype(c.out.dtype))
    for step in k.bind(c, [there, *operands[1:]], out, np.empty(0, np.uint8)):
        step()
    apart = np.abs(out.astype(float) - ran(c, device, operands, launch(c)).astype(float))
    assert apart.max() < 0.02


def _refused() -> Iterator[tuple[str, Call]]:
    sizes = {"m": 16, "n": 16, "k": 40, "b": 3}
    p = product("mk", "kn", F16)
    yield "steps of 30 bytes", call("", p, {**sizes, "n": 15}, ["mk", "kn"], "mn", F16)
    begins = View("mk", (16, 40), (48, 1), F16, 4)  # pyright: ignore[reportArgumentType]
    yield "a beginning at 8 bytes", call("", p, sizes, [begins, "kn"], "mn", F16)
    apart = View("mk", (16, 40), (96, 2), F16)  # pyright: ignore[reportArgumentType]
    yield "every other element", call("", p, sizes, [apart, "kn"], "mn", F16)
    back = View("mk", (16, 40), (-40, 1), F16, 600)  # pyright: ignore[reportArgumentType]
    yield "backwards", call("", p, sizes, [back, "kn"], "mn", F16)
    made = Term("Sum", "k", Term("Mul", Term("Map", "exp", operand(0, "mk", F16)), operand(1, "kn", F16)))
    yield "a side that is computed", call("", made, sizes, ["mk", "kn"], "mn", F16)
    deep = Term("Sum", "b", Term("Sum", "k", Term("Mul", operand(0, "mbk", F16), operand(1, "kbn", F16))))
    yield "two depths", call("", deep, sizes, ["mbk", "kbn"], "mn", F16)
    yield "float32", call("", product("mk", "nk", F32), sizes, ["mk", "nk"], "mn", F32)
    yield "tf32 across the depth", call("_tf32", product("mk", "kn", F32), sizes, ["mk", "kn"], "mn", F32)
    yield "tf32 of halves", call("_tf32", product("mk", "nk", F16), sizes, ["mk", "nk"], "mn", F16)


@pytest.mark.parametrize("name", dict(_refused()))
def test_what_no_tensor_map_says_is_not_taken(name: str) -> None:
    c = dict(_refused())[name]
    assert not NAMED[c.kernel].accepts(c)
    assert backend().kernels["cupy.gemm"].accepts(c), "and others take it"


def test_tiles_suit_their_product() -> None:
    def text(m: int, n: int) -> str:
        return launch(call("", product("mk", "kn", F16), {"m": m, "n": n, "k": 64}, ["mk", "kn"], "mn", F16)).text

    assert "<WX_F16, 128, 256, 4" in text(8192, 8192) and "<WX_F16, 64, 128, 4" in text(64, 1024)
    large, small = (NAMED[f"cupy.gemm_wgmma_{n}"] for n in ("large", "small"))
    c = call("", product("mk", "kn", F16), {"m": 64, "n": 1024, "k": 64}, ["mk", "kn"], "mn", F16)
    assert large.differs(c) and not small.differs(c)
    for t in TILES:
        each = (1 << 16) // (t.threads * t.together) // 8 * 8
        assert t.registers % 8 == 0 and t.registers <= 232
        assert t.registers * (t.threads - 128) + 40 * 128 <= each * t.threads, "setmaxnreg would wait for ever"


# -- NVIDIA's compiler


def test_products_compile_for_their_architecture_alone_and_spill_nothing(compiler: nvrtc.Nvrtc) -> None:
    some = ("_large", "_middle bfloat16", "_ping_pong", "_split", "_tf32", "rows that")
    names = [n for n in CASES if n.startswith(some)]
    kernels = {x.name: x for x in (launch(CASES[n]) for n in (*names, "a batch", "_small float16 mk kn"))}
    cubin = compiler.cubin(prelude() + "\n".join(x.source for x in kernels.values()), "sm_90a")
    assert not re.search(r"serializ|setmaxnreg|warning", cubin.log), "wgmma that waits, registers that stay"
    assert cubin.kernels.keys() == kernels.keys()
    for name, r in cubin.kernels.items():
        x = kernels[name]
        assert r.spilled == r.stack == 0, x.text
        together = 2 if ", 64, 128, " in x.text else 1
        assert r.registers * x.threads * together <= 1 << 16
        assert (r.shared + x.shared + 1024) * together <= SHARED + 1024, x.text
    x = launch(CASES["_small float16 mk kn"])
    with pytest.raises(nvrtc.CompileFailed):
        compiler.cubin(prelude() + x.source, "sm_90")
    text = compiler.ptx(prelude() + x.source, "compute_90a")
    for said in ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "cp.async.bulk.tensor.2d", "setmaxnreg.dec"):
        assert said in text
    assert "st.local" not in text and not re.search(r"ld\.global(?!\.nc\.v4)", text)


def test_kernels_are_kept_for_each_architecture(
    compiler: nvrtc.Nvrtc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = launch(CASES["_small float16 mk kn"])
    plain = launch_of_gemm(CASES["_small float16 mk kn"])
    assert compiled_for({y.name: y for y in (x, plain)}) == {
        "sm_80": [plain.name], "sm_90": [plain.name], "sm_90a": [x.name]
    }  # fmt: skip
    assert compiled_for({x.name: x}) == {"sm_90a": [x.name]}
    made: list[tuple[str, set[str]]] = []

    def cubin(self: nvrtc.Nvrtc, source: str, architecture: str, flags: object = ()) -> nvrtc.Cubin:
        names = {n for n in (x.name, plain.name) if n in source}
        made.append((architecture, names))
        said = "".join(f"Compiling entry function '{n}' for '{architecture}'" for n in names)
        return nvrtc.Cubin(f"code for {architecture}".encode(), said)

    monkeypatch.setattr(nvrtc.Nvrtc, "cubin", cubin)
    cubins = Cubins(tmp_path, compiler, "sm_90")
    for architecture in ("sm_90a", "", "sm_90a"):
        cubins.images({x.name: x.source}, prelude(), architecture)
    assert made == [("sm_90a", {x.name}), ("sm_90", {x.name})], "one is never taken for the other"
    c = CASES["_small float16 mk kn"]
    rows = [(NAMED[c.kernel], c), (WgmmaGemm.otherwise, replace(c, kernel="cupy.gemm"))]
    files = images(launches(rows), simulated=False)
    assert sorted(made[2:]) == [("sm_80", {plain.name}), ("sm_90", {plain.name}), ("sm_90a", {x.name})]
    bring_all(files)
    there = Cubins(tmp_path / "elsewhere", None, "sm_90")
    assert there.images({x.name: x.source}, prelude(), "sm_90a")[x.name] == b"code for sm_90a"
    assert there.images({plain.name: plain.source}, prelude())[plain.name] == b"code for sm_90"
    with pytest.raises(nvrtc.MissingCompiler, match="compiled for sm_80"):
        Cubins(tmp_path / "elsewhere", None, "sm_80").images({x.name: x.source}, prelude())


def launch_of_gemm(c: Call) -> Launch:
    w = WgmmaGemm.otherwise.work(replace(c, kernel="cupy.gemm"))
    assert w is not None
    return w.launches[0]


# -- a driver


@pytest.fixture
def gpu(stand: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.delenv(devices.VARIABLE)
    found = Gpu(Driver(stand), Cubins(tmp_path, None, "sm_90"))
    monkeypatch.setattr(devices, "_gpu", lambda: found)

    def known(launches: Sequence[Launch]) -> None:
        stand.launches |= {x.name: x for x in launches}
        found._kernels |= {x.name: found.driver.kernel(b"image", x.name) for x in launches}

    monkeypatch.setattr(found, "compiled", known)
    return found


def test_maps_are_made_where_the_operands_lie(gpu: Gpu, stand: Any, device: Simulated) -> None:
    c = CASES["a batch"]
    k, s, operands = NAMED[c.kernel], gpu.storage, drawn(c)
    want = np.einsum("mbk,bkn->mbn", *(x.astype(float) for x in operands))
    for n in (1, 2):
        arrays: list[DeviceArray] = [s.uploaded(x * n) for x in operands]
        out = s.uploaded(np.full(c.out.shape, np.nan, np.float16))
        workspace = s.uploaded(np.zeros(0, np.uint8))
        step = Segment(s, k.bind(c, arrays, out, workspace))  # pyright: ignore[reportArgumentType]
        for _ in range(3):
            step()
        assert stand.started[-2:] == ["graph", "download"] or stand.started[-1] == "graph"
        assert np.abs(out.get().astype(float) - n * n * want).max() < 0.05 * n * n
        assert len(stand.maps) == 2 * n, "once for each place that an operand lies at, not for each run"
        assert [m.base for m in stand.maps[-2:]] == [a.address for a in arrays]
    (x,) = (y for y in stand.launches.values())
    assert stand.room == dict.fromkeys(stand.room, x.shared) and x.shared > 48 << 10


def test_a_map_that_the_driver_refuses_is_an_error(gpu: Gpu) -> None:
    m = launch(CASES["a batch"]).maps[0]
    address = gpu.storage.uploaded(np.zeros(4096, np.float16)).address
    with pytest.raises(DriverFailed, match="cuTensorMapEncodeTiled"):
        gpu.driver.mapped(m, address + 2)


@pytest.mark.parametrize(
    ("capability", "maps", "there"), [((9, 0), True, True), ((9, 0), False, False), ((8, 0), True, False),
                                      ((10, 0), True, False), ((12, 0), True, False)]
)  # fmt: skip
def test_they_are_offered_where_they_run(
    capability: tuple[int, int], maps: bool, there: bool, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "architecture", "sm_{}{}".format(*capability))
    if not maps:
        monkeypatch.setattr(Driver, "maps", False)
    offered = {n for n in backend().kernels if "wgmma" in n}
    assert offered == ({*NAMED, "cupy.attention_wgmma"} if there else set())


# -- what is wrong is found

PLAIN = """
WX_KERNEL(256) NAME(WX_IN(uint16_t) x0, WX_IN(uint16_t) x1, WX_OUT(float) out, WX_MAP left_map, WX_MAP right_map) {
  typedef TILE<WX_F16, 64, 64, 2, true, false> tile;
  WX_RING(ring, tile::ring);
  WX_MBARRIERS(bars, 2 * tile::stages);
  tile::begun(bars);
  tile::turn at;
  const auto left = [&](uint32_t to, uint32_t bar, int x, int y) { wx_tma_load(to, left_map, bar, x, y); };
  const auto right = [&](uint32_t to, uint32_t bar, int x, int y) { wx_tma_load(to, right_map, bar, x, y); };
  if (threadIdx.x >= tile::multiplying) {
    if (threadIdx.x == tile::multiplying) tile::brought(ring, bars, at, left, right, 0, 0, 0, 4);
  } else {
    WX_SUMS_OF(c, tile::parts, tile::kept);
    tile::multiplied(ring, bars, at, c, 4);
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int n = 0; n < tile::kept; n++) out[(row + n / 2 % 2 * 8) * 64 + column + n / 4 * 8 + n % 2] = c[0][n];
  }
}
"""
"""64 x 256 by 256 x 64."""
EARLY = "shared memory is multiplied before it is there"
PLANTED: Mapping[str, tuple[str, str, str]] = {
    "more bytes expected than come": ("stage);\n      sided<L", "stage + 16);\n      sided<L", "16 bytes do not come"),
    "fewer bytes expected": ("stage);\n      sided<L", "left);\n      sided<L", EARLY),
    "no bytes expected": ("wx_mbarrier_expect(full(bars, at), stage)", "wx_mbarrier_arrive(full(bars, at))", EARLY),
    "nobody waits for a full stage": ("wx_mbarrier_wait(full(bars, at), at.parity);", "", EARLY),
    "nobody waits for an empty stage": (
        "wx_mbarrier_wait(empty(bars, at), at.parity ^ 1);",
        "",
        "two boxes are brought",
    ),
    "the other parity": ("at.parity ^ 1", "at.parity", "1 threads and 0 bytes do not come"),
    "a stage that is given back too early": ("wx_wgmma_wait<1>();", "", "race: a box"),
    "a stage that is never given back": (
        "freed(empty(bars, last));\n      }",
        "}",
        "1 threads and 0 bytes do not come",
    ),
    "a stage that every lane gives back": ("if ((threadIdx.x & 31) == 0)", "", "1 threads and 0 bytes do not come"),
    "sums that nobody waits for": ("wx_wgmma_wait<0>();", "", "may still add to them"),
    "groups that are not closed": ("wx_wgmma_commit();", "", "race: a box"),
    "no fence before wgmma": ("wx_wgmma_fence();", "", "no wgmma.fence"),
    "mbarriers that are not made known": ("wx_mbarrier_fence();", "", "not known to all"),
    "mbarriers before they are made": ("__syncthreads();", "", "was not made|not known to all"),
    "other factors for each warp": (
        "group() * box), b",
        "group() * box) + threadIdx.x / 32 % 2 * 32, b",
        "warps of a group",
    ),
    "no swizzle": ("swizzle = 1;", "swizzle = 0;", "does not know"),
    "another stride": ("stride = 1024 >> 4", "stride = 512 >> 4", "wrong"),
    "another step": ("LEFT_ALONG ? step : 16", "LEFT_ALONG ? 2 * step : 16", "wrong"),
    "a side that is turned": ("!LEFT_ALONG, !RIGHT_ALONG>(c", "!LEFT_ALONG, RIGHT_ALONG>(c", EARLY),
}


TURNS: Mapping[str, tuple[str, str, str]] = {
    "nobody waits for a turn": ("wx_mbarrier_wait(turn_of(bars, group()), (number - !group()) & 1), ", "", EARLY),
    "no stages are skipped": (", at.skip(steps)", "", "two boxes are brought|wrong|do not come"),
    "a turn is never given": ("if constexpr (PING_PONG) freed(turn_of", "if (0) freed(turn_of", "do not come"),
}
"""Faults of two groups that take turns."""


def own_tile(fault: tuple[str, str, str], number: str) -> str:
    """The text of the tile with one fault, under another name."""
    old, new, _ = fault
    own = prelude()[prelude().index("/* How a matrix lies in shared memory, for wgmma") :]
    own = own[: own.index("\n};\n", own.index("struct wx_warpgroups")) + 4]
    assert old in own
    own = own.replace(old, new, 1) if old else own
    for made in ("wx_wgmma_matrix", "wx_turn", "wx_warpgroups"):
        own = re.sub(rf"\b{made}\b", f"{made}_{number}", own)
    return own


def planted(name: str) -> str:
    """The text of a kernel whose tile has one fault."""
    number = f"{list(PLANTED).index(name)}" if name else "right"
    own = own_tile(PLANTED.get(name, ("", "", "")), number)
    return own + PLAIN.replace("TILE", f"wx_warpgroups_{number}").replace("NAME", f"planted_wgmma_{number}")


def ping_pong(name: str) -> Launch:
    """Two groups that take turns at nine tiles of one block, with one fault."""
    x = launch(CASES["_ping_pong float16 mk kn"])
    number = f"turns{list(TURNS).index(name)}" if name else "turns"
    text = x.text.replace("wx_warpgroups<", f"wx_warpgroups_{number}<")
    return replace(x, text=own_tile(TURNS.get(name, ("", "", "")), number) + text, blocks=1)


def outcome(name: str, device: Simulated, *, swizzled: bool = True, step: int = 256) -> str:
    """What a planted kernel comes to: what is found, "wrong" or "right". `step`: from row to row of the left side."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 256), (256, 64)))
    out = np.full((64, 64), np.nan, np.float32)
    sides = (TensorMap(0, F16, 0, ("k", "m"), (256, 64), (1, step), (64, 64)),
             TensorMap(1, F16, 0, ("n", "k"), (64, 256), (1, 64), (64, 64)))  # fmt: skip
    number = f"{list(PLANTED).index(name)}" if name else "right"
    x = replace(launch(CASES["a batch"]), text="", maps=sides, blocks=1, threads=256, reads=(0, 1))
    x.__dict__["name"] = f"planted_wgmma_{number}"
    try:
        run = device._step(x, [a, b], out, np.empty(0, np.uint8))
        (_, maps), *_ = getattr(run, "__defaults__")  # noqa: B009
        maps[0].swizzled = swizzled
        run()
    except KernelFault as e:
        return str(e)
    return "right" if np.abs(out - a.astype(float) @ b.astype(float)).max() < 1e-2 else "wrong"


@pytest.fixture
def faulty(device: Simulated) -> Simulated:
    names = ("", *PLANTED)
    device.functions({f"planted_wgmma_{list(PLANTED).index(n) if n else 'right'}": planted(n) for n in names})
    return device


def test_what_is_planted_is_found_in_any_order(faulty: Simulated) -> None:
    for faulty.order in (0, 1, 2):
        assert outcome("", faulty) == "right"
        assert outcome("", faulty, swizzled=False) == "wrong", "a map that swizzles otherwise than wgmma reads"
        assert "an operand is read outside of it" in outcome("", faulty, step=264)
        for name, (_, _, said) in PLANTED.items():
            assert re.search(said, found := outcome(name, faulty)), f"{name}, order {faulty.order}: {found}"
    assert outcome("", faulty) == "right", "the device works after a fault"


def test_groups_that_do_not_take_turns_are_found(device: Simulated) -> None:
    c = CASES["_ping_pong float16 mk kn"]
    operands = drawn(c)
    made = {n: ping_pong(n) for n in ("", *TURNS)}
    device.compiled(list(made.values()))
    want = ran(c, device, operands, launch(c))
    for name, x in made.items():
        said = list[str]()
        for device.order in (0, 1, 2):
            try:
                said.append("right" if np.array_equal(ran(c, device, operands, x), want) else "wrong")
            except KernelFault as e:
                said.append(str(e))
        if name:
            assert any(re.search(TURNS[name][2], x) for x in said), f"{name}: {said}"
        else:
            assert said == ["right"] * 3
