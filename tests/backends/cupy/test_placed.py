"""Plans whose memory lies on a device: on the virtual GPU, whose memory the CPU cannot touch."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import prepare
from waxeq.backend.storage import CPU, LINE, DeviceArray, storages
from waxeq.compile import proposed
from waxeq.errors import BudgetError, PlanError, TypeMismatch, UsageError, WaxeqError
from waxeq.events import Events
from waxeq.extract.candidates import variants
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.ir.term import Term
from waxeq.memory.estimate import device_estimates
from waxeq.plan.encode import decode, encode
from waxeq.plan.plan import Plan
from waxeq.runtime.device_timing import time_on
from waxeq.runtime.program import Program
from waxeq.runtime.save import load_plan
from waxeq.search.placing import placings
from waxeq.search.session import Session
from waxeq.testing.planned import Planner, errors
from waxeq.testing.programs import random_program
from waxeq_cupy import device as devices
from waxeq_cupy.exchange import CudaArray
from waxeq_cupy.virtual import Virtual, VirtualStorage, WildAddress

Optimize = Callable[..., Any]


@pytest.fixture(autouse=True)
def storage(_simulated: None, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualStorage]:
    monkeypatch.setenv(devices.VARIABLE, devices.VIRTUAL)
    found = devices.current()
    assert isinstance(found, Virtual)
    fresh = VirtualStorage()
    monkeypatch.setattr(found, "storage", fresh)
    yield fresh
    gc.collect()


@pytest.fixture
def optimize(tmp_path: Path) -> Optimize:
    def run(fn: Callable, *inputs: Any, backends: tuple[str, ...] = ("cupy", "numpy"), **more: Any) -> Any:
        weights = more.pop("weights", ())
        options = wx.Options(table=tmp_path / "t.duckdb", backends=backends, trial=False, cost="roofline", **more)
        return wx.optimize(fn, *inputs, weights=weights, options=options)

    return run


def _norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain


def _mixed(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorting is nothing that the device can do."""
    return np.sort(np.tanh(x) * w, axis=-1), np.exp(x)


def _array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _steps(plan: Plan) -> list[str]:
    return [s.call.kernel for s in plan.steps]


def test_a_plan_on_the_device_uploads_its_weights_once(optimize: Optimize, storage: VirtualStorage) -> None:
    x, gain = _array(64, 96), _array(96, seed=1)
    result = optimize(_norm, x, gain, weights=["gain"], backends=("cupy",))
    assert _steps(result.plan) == ["cupy.upload", "cupy.loops", "cupy.download"]
    program = result.program
    before = storage.uploads, storage.downloads
    for n in range(3):
        got = program(x + n)
        assert np.abs(got - _norm((x + n).astype(np.float64), gain)).max() < 1e-5
    assert (storage.uploads, storage.downloads) == (before[0] + 3, before[1] + 3), "inputs and results, nothing else"
    del result, program
    gc.collect()
    assert not storage.blocks, "all memory is given back"


def test_results_that_are_views_of_others_are_copied_on_the_device(optimize: Optimize) -> None:
    def model(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x.T, np.tanh(x).reshape(8, 8, 96)

    x = _array(64, 96)
    result = optimize(model, x, backends=("cupy",), device="cuda")
    assert "cupy.copy" in _steps(result.plan)
    for got, want in zip(result.program(x), model(x), strict=True):
        assert np.abs(got - want).max() < 1e-6


def test_large_work_goes_to_the_device_and_small_work_stays(optimize: Optimize) -> None:
    def model(x: np.ndarray) -> np.ndarray:
        return np.tanh(x) * 1.5 + np.exp(-x * x)

    small, large = (optimize(model, _array(n, 256)).plan for n in (1, 1024))
    assert small.devices == () and not small.arenas and "arenas" not in encode(small)
    assert large.devices == ("cuda",) and _steps(large)[0] == "cupy.upload" and _steps(large)[-1] == "cupy.download"


def test_a_plan_may_use_both(optimize: Optimize) -> None:
    x, w = _array(701, 529), _array(529, seed=1)  # 52 bytes beyond a multiple of 256: the next 64 would not do
    result = optimize(_mixed, x, w)
    assert {k.partition(".")[0] for k in _steps(result.plan)} == {"cupy", "numpy"}, "one thing only the CPU can do"
    for got, want in zip(result.program(x, w), _mixed(x, w), strict=True):
        assert np.abs(got - want).max() < 1e-5
    found = device_estimates(result.plan)["cuda"]
    offsets = {b.offset for b in result.plan.buffers.values() if b.place == "cuda" and b.offset is not None}
    assert found.arena_bytes == result.plan.arenas["cuda"] and len(offsets) > 1 and LINE == 256
    assert not any(at % LINE for at in offsets)


def test_plans_are_saved_copied_and_pickled(optimize: Optimize, tmp_path: Path) -> None:
    x, w = _array(700, 512), _array(512, seed=1)
    result = optimize(_mixed, x, w, weights=["w"])
    assert json.loads(result.text) == json.loads(json.dumps(encode(decode(encode(result.plan), {}))))
    result.save(tmp_path / "m.plan.json")
    want = result.program(x)
    programs = [
        wx.load(tmp_path / "m.plan.json"),
        copy.copy(result.program),
        pickle.loads(pickle.dumps(result.program)),
    ]
    for program in programs:
        assert all(np.array_equal(a, b) for a, b in zip(program(x), want, strict=True))


def test_inputs_and_results_may_lie_on_the_device(optimize: Optimize, storage: VirtualStorage) -> None:
    x, gain = _array(64, 96), _array(96, seed=1)
    result = optimize(_norm, x, gain, weights=["gain"], device="cuda")
    assert _steps(result.plan) == ["cupy.loops"], "nothing is copied"
    there, program = storage.uploaded(x), result.program
    before = storage.uploads, storage.downloads
    a = program(there)
    b = program(there)
    assert isinstance(a, DeviceArray) and (storage.uploads, storage.downloads) == before
    assert a.address != b.address and np.array_equal(a.get(), b.get()), "a result that is held is not written again"
    assert np.array_equal(program(x), a.get()), "what is given in the CPU's memory comes back there"
    address, _ = a.address, (a := None)
    assert address in {program(there).address, program(there).address}, "memory that nobody holds is used again"
    with pytest.raises(TypeMismatch, match="takes float32"):
        program(storage.uploaded(x[:3]))
    with pytest.raises(TypeMismatch, match="row by row"):
        program(storage.uploaded(_array(96, 64)).strided(0, (64, 96), (4, 64 * 4), x.dtype))


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Keys and values are repeated for the queries that share them, in the two ways that models have."""
    heads, keys, size = k.shape
    k = np.repeat(k, len(q) // heads, axis=0)
    v = np.broadcast_to(v[:, None], (heads, len(q) // heads, keys, size)).reshape(len(q), keys, size)
    s = q @ k.swapaxes(-1, -2) / 4
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("queries", [1, 9])
def test_keys_that_queries_share_are_never_repeated(queries: int, optimize: Optimize) -> None:
    q, k, v = _array(6, queries, 16), _array(2, 40, 16, seed=1), _array(2, 40, 16, seed=2)
    result = optimize(_attended, q, k, v, device="cuda")
    assert _steps(result.plan) == ["cupy.attention"] and not result.plan.arenas.get("cuda")
    assert np.abs(result.program(q, k, v) - _attended(*(x.astype(np.float64) for x in (q, k, v)))).max() < 1e-5


def _step(x: wx.Input["f32", 300, 512], seen: wx.State["f32", 300, 512]):  # noqa: F821, UP037
    seen[...] = np.tanh(seen) + x
    return np.exp(-(seen * seen))


def test_states_stay_on_the_device(optimize: Optimize, storage: VirtualStorage) -> None:
    x = _array(300, 512)
    result = optimize(_step, x, np.zeros_like(x), device="cuda")
    assert result.plan.buffers["seen"].place == "cuda" and "cupy.upload" not in _steps(result.plan)
    program, state = result.program, np.zeros_like(x)
    before = storage.uploads
    there = storage.uploaded(x)
    for _ in range(3):
        state = np.tanh(state) + x
        assert np.abs(program(there).get() - np.exp(-state * state)).max() < 1e-5
    assert storage.uploads == before + 1 and np.abs(program.states["seen"] - state).max() < 1e-5


def test_blocks_pass_values_on_the_device_where_that_is_cheaper(
    optimize: Optimize, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deep(x: np.ndarray) -> np.ndarray:
        for n in range(3):
            x = np.tanh(x) * (1.0 + n) + np.exp(x).sum(-1, keepdims=True)
        return x

    monkeypatch.setattr("waxeq.ir.blocks._WHOLE", 6)
    monkeypatch.setattr("waxeq.compile.cut", lambda g: cut(g, most=6))
    result = optimize(deep, _array(1024, 256), algebra=False)
    assert result.report.blocks > 1
    copies = [k for k in _steps(result.plan) if k in ("cupy.upload", "cupy.download")]
    assert copies == ["cupy.upload", "cupy.download"]


def test_the_cpu_is_kept_off_the_memory_of_the_device(optimize: Optimize, storage: VirtualStorage) -> None:
    """A planted kernel of the CPU that is given an array of the device, and a plan that would have one."""
    there, found = storage.uploaded(_array(8)), kernels(backends())
    view, x = View.dense("i", {"i": 8}, "float32"), operand(0, "i", "float32")
    for name in ("numpy.loops", "numpy.copy", "native.loops"):
        meaning = x if name == "numpy.copy" else Term("Map", "exp", x)
        call = Call(name, meaning, {"i": 8}, (view,), view)
        with pytest.raises((WaxeqError, AttributeError, TypeError)):
            for f in found[name].bind(call, [there], np.empty(8, np.float32), np.empty(0, np.uint8)):  # pyright: ignore
                f()
    with pytest.raises(TypeMismatch, match="lies in the memory of 'cuda'"):
        np.asarray(there)
    plan = optimize(_norm, _array(64, 96), _array(96), backends=("cupy",)).plan
    (n,) = (n for n, s in enumerate(plan.steps) if s.call.kernel == "cupy.loops")
    call = replace(plan.steps[n].call, kernel="native.loops")
    wrong = replace(plan, steps=tuple(replace(s, call=call) if i == n else s for i, s in enumerate(plan.steps)))
    with pytest.raises(PlanError, match=r"native.loops works on the memory of 'cpu' here"):
        Program(wrong, found, {})


def test_memory_is_known_and_bounded(
    optimize: Optimize, storage: VirtualStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x, gain = _array(64, 96), _array(96)
    result = optimize(_norm, x, gain, weights=["gain"], backends=("cupy",))
    (found,) = device_estimates(result.plan).values()
    assert found.resident == {"weights": 96 * 4}
    assert found.peak_bytes == result.plan.arenas["cuda"] + 96 * 4 >= x.nbytes
    result.save(tmp_path / "m.plan.json")
    saved = load_plan(tmp_path / "m.plan.json")
    monkeypatch.setattr(storage, "_size", found.peak_bytes - 1)
    with pytest.raises(BudgetError, match="device 'cuda' has"):
        Program(saved.plan, kernels(backends()), saved.tensors)
    with pytest.raises(BudgetError, match="device 'cuda' has"):
        optimize(_norm, x, gain, weights=["gain"], backends=("cupy",), fresh=True)


def test_wild_addresses_are_told(storage: VirtualStorage) -> None:
    a = storage.uploaded(_array(100))
    with pytest.raises(WildAddress):
        storage.download(np.empty(101, np.float32), a.strided(0, (101,), (4,), a.dtype))
    address = a.address
    del a
    with pytest.raises(WildAddress):
        storage.bytes_at(address, 4)
    assert np.isnan(storage.empty((4,), np.dtype(np.float16)).get()).sum() == 0, "poison is no number that is meant"


def test_a_device_that_is_not_there_is_a_sentence(optimize: Optimize) -> None:
    with pytest.raises(UsageError, match="no usable backend works on device 'tpu'"):
        optimize(_norm, _array(4, 4), _array(4), device="tpu")


def test_transfers_are_timed_like_other_kernels(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", backends=("cupy",), trial=False, polish=False, algebra=False)
    wx.optimize(_norm, _array(4, 16), _array(16), options=options)
    with Session.open(options, Events()) as session:
        families = {t.key.kernel: t for t in session.table.families(session.device.id)}
    assert {"cupy.upload", "cupy.loops", "cupy.download"} <= families.keys()
    assert families["cupy.loops"].max_relative_error < 1e-5 and families["cupy.upload"].max_relative_error == 0


def test_what_starts_a_run_is_no_part_of_a_short_call(
    tmp_path: Path, storage: VirtualStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of four calls were timed one by one: 5 us each on an H200 where they take 2, as starting a run took 20."""
    made, ran = VirtualStorage.joined, [0]

    def joined(self: VirtualStorage, steps: Any) -> Any:
        return *made(self, steps), lambda: ran.__setitem__(0, ran[0] + len(steps))

    def seconds(self: VirtualStorage, run: Callable[[], object], repeats: int) -> float:
        before = ran[0]
        for _ in range(repeats):
            run()
        return max(2e-5, 1e-6 * (ran[0] - before) / repeats)

    monkeypatch.setattr(VirtualStorage, "joined", joined)
    monkeypatch.setattr(VirtualStorage, "seconds", seconds)
    view = View.dense("a", {"a": 40}, "float32")
    call = Call("cupy.loops", Term("Map", "neg", operand(0, frozenset("a"), "float32")), {"a": 40}, (view,), view)
    with Session.open(wx.Options(table=tmp_path / "t.duckdb", backends=("cupy",)), Events()) as session:
        kernel = session.kernels["cupy.loops"]
        found = time_on(storage, session.bench, kernel, call, session.prices.key(call), 0.01)
    assert found.seconds == pytest.approx(1e-6)


@pytest.mark.parametrize(("device", "ways"), [("cpu", 2), ("cuda", 1)])
def test_what_blocks_pass_lies_where_the_inputs_do(device: str, ways: int, tmp_path: Path) -> None:
    """A search on a GPU looked through each block twice, once with its borders in the memory of the CPU."""

    def model(x: np.ndarray) -> np.ndarray:
        for _ in range(300):
            x = np.tanh(x) + 1
        return x

    graph = expand(trace(model, {"x": np.ones(8, np.float32)}).graph)
    options = wx.Options(table=tmp_path / "t.duckdb", backends=("cupy", "numpy"), device=device, cost="roofline")
    with Session.open(options, Events()) as session:
        blocks = cut(graph)
        assert len(blocks) > 1 and len(placings(session, graph, blocks)) == ways


def test_products_of_few_rows_are_made_by_groups_of_warps_too(tmp_path: Path) -> None:
    """They were ways of the kernel that takes four times as long with eight rows, and never looked at."""
    arrays = {"x": np.ones((8, 256), np.float16), "w": np.ones((256, 256), np.float16)}
    traced = trace(lambda x, w: x @ w, arrays, weights=("w",))
    options = wx.Options(
        table=tmp_path / "t.duckdb", backends=("cupy",), device="cuda", cost="roofline", tolerance=1e-2
    )  # fmt: skip
    with Session.open(options, Events()) as session:
        (result, *_), _ = proposed(session, traced)
        (block,) = result.blocks
        assert block.problem is not None
        every = [p for s in block.problem.roots for p in block.problem.ways(s)]
        assert {"cupy.gemm", "cupy.gemm_wgmma", "cupy.gemv"} <= {p.candidate.call.kernel for p in every}
        (groups,) = (p.candidate for p in every if p.candidate.call.kernel == "cupy.gemm_wgmma")
        assert block.space is not None
        others = {c.call.kernel for c in variants(block.space, groups)}
        assert {"cupy.gemm_wgmma_split", "cupy.gemm_wgmma_ping_pong", "cupy.gemm_wgmma_large"} <= others


def test_a_result_of_another_shape_is_handed_over_as_well(storage: VirtualStorage) -> None:
    a = storage.uploaded(np.arange(6, dtype=np.float32))
    given = CudaArray(storage, a.address, a.shape, a.strides, a.dtype, a.owner)
    seen = given.reshape([np.int64(2), 3])  # pyright: ignore[reportArgumentType]
    assert isinstance(seen, CudaArray) and seen.__dlpack_device__() == given.__dlpack_device__()
    assert seen.strides == (12, 4) and all(type(n) is int for n in seen.strides)
    np.testing.assert_array_equal(seen.get(), [[0, 1, 2], [3, 4, 5]])


def test_random_plans_on_both_are_right(storage: VirtualStorage) -> None:
    programs = [random_program(random.Random(9000 + i)) for i in range(20)]
    with Planner.open() as planner:
        assert storages(planner.kernels.values()) == {"cuda": storage}
        plans = [planner.plan(p, random.Random(i)) for i, p in enumerate(planner.saturated(programs))]
        assert sum(p.devices != () for p in plans) > 3 and sum({CPU} < _where(p) for p in plans) > 1
        with suppress(WaxeqError):
            prepare((planner.kernels[s.call.kernel], s.call) for p in plans for s in p.steps)
        for i, (program, plan) in enumerate(zip(programs, plans, strict=True)):
            assert not errors(program, plan, planner.kernels), f"seed {9000 + i}"


def _where(plan: Plan) -> set[str]:
    """The places of what steps other than transfers write."""
    names: Mapping[str, Any] = plan.buffers
    return {names[s.writes].place for s in plan.steps if s.call.kernel not in ("cupy.upload", "cupy.download")}
