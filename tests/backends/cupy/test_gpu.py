"""Plans on a GPU through a driver that is one in name only: streams, graphs, and arrays of others."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.storage import DeviceArray
from waxeq.errors import TypeMismatch
from waxeq.ir.dlpack import opened
from waxeq_cupy import device as devices
from waxeq_cupy import exchange
from waxeq_cupy import gpu as gpus
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.driver import Driver
from waxeq_cupy.exchange import CudaArray
from waxeq_cupy.gpu import GRAPHS, Gpu, GpuStorage, Started, in_turn
from waxeq_cupy.kernels import Launch, Work
from waxeq_cupy.prepared import Prepared


class Plain(Cubins):
    """No compiler: the stand-in runs the text itself."""

    def __init__(self, stand: Any, folder: Path) -> None:
        super().__init__(folder, None, "sm_90")
        self._stand = stand

    def images(self, sources: Any, prelude: str, architecture: str = "") -> Any:
        return dict.fromkeys(sources, b"image")


@pytest.fixture
def gpu(stand: Any, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.delenv(devices.VARIABLE)
    found = Gpu(Driver(stand), Plain(stand, tmp_path))
    compiled = found.compiled

    def known(launches: list[Launch]) -> None:
        stand.launches |= {x.name: x for x in launches}
        stand.simulated.compiled(launches)
        compiled(launches)

    monkeypatch.setattr(found, "compiled", known)
    monkeypatch.setattr(devices, "_gpu", lambda: found)
    yield found
    gc.collect()


def _model(x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) * gain, np.sqrt(np.abs(x)).T + 1


def _inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((12, 70), dtype=np.float32), rng.standard_normal(70, dtype=np.float32)


@pytest.fixture
def optimized(gpu: Gpu, tmp_path: Path) -> Callable[..., Any]:
    def run(fn: Callable, *inputs: np.ndarray, weights: tuple[str, ...] = (), **more: Any) -> Any:
        options = {"backends": ("cupy",), "trial": False, "cost": "roofline", "polish": False, "algebra": False}
        chosen = wx.Options(table=tmp_path / "t.duckdb", **(options | more))
        return wx.optimize(fn, *inputs, weights=weights, options=chosen)

    return run


def _right(got: Any, x: np.ndarray, gain: np.ndarray) -> bool:
    return all(np.abs(np.asarray(g) - w).max() < 1e-5 for g, w in zip(got, _model(x.astype(float), gain), strict=True))


def test_what_runs_again_is_one_graph(
    optimized: Callable[..., Any], stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",)).program
    rows = []
    for n in range(4):
        stand.started.clear()
        assert _right(program(x + n), x + n, gain)
        assert not n or stand.started.count("upload") == 1, "weights are there already"
        rows.append([s for s in stand.started if s not in ("upload", "download")])
    assert len(rows[0]) > 1 and "graph" not in rows[0] and rows[2] == rows[3] == ["graph"]
    monkeypatch.setenv(GRAPHS, "0")
    program = optimized(_model, x, gain, weights=("gain",)).program
    asked, prepared = list[str](), Driver.prepared

    def noted(driver: Driver, stream: int | None, kernel: int, x: Launch, pointers: Sequence[int]) -> Any:
        asked.append(x.name)
        return prepared(driver, stream, kernel, x, pointers)

    monkeypatch.setattr(Driver, "prepared", noted)
    for n in range(3):
        stand.started.clear()
        assert _right(program(x + n), x + n, gain) and "graph" not in stand.started
    assert asked and len(asked) == len(set(asked)), "arguments are prepared once"
    before = len(stand.memory.blocks)
    del program
    gc.collect()
    assert len(stand.memory.blocks) < before, "memory is given back"


def test_what_happens_while_a_graph_is_captured_is_no_part_of_it(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads wait for their turn, and memory that is collected is given back."""
    x, gain = _inputs()
    program, captured = optimized(_model, x, gain, weights=("gain",)).program, Driver.captured
    others, seen, dropped = list[Thread](), list[np.ndarray](), [gpu.storage.uploaded(x)]
    address = dropped[0].address

    def disturbed(driver: Driver, stream: int, start: Callable[[], object]) -> Any:
        def also() -> None:
            others.append(Thread(target=lambda: seen.append(gpu.storage.uploaded(x).get())))
            others[-1].start()
            others[-1].join(0.05)
            dropped.clear()
            gc.collect()
            start()

        return captured(driver, stream, also)

    monkeypatch.setattr(Driver, "captured", disturbed)
    for n in range(4):
        assert _right(program(x + n), x + n, gain)
    for t in others:
        t.join(60)
    assert len(stand.graphs) == len(others) == len(seen) == 1 and np.array_equal(seen[0], x)
    assert address not in stand.memory.blocks


def test_inputs_that_lie_elsewhere_have_graphs_of_their_own(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any
) -> None:
    """A graph holds addresses: one for each place that inputs come from in turns, and none reads another's."""
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",), device="cuda").program
    places = [gpu.storage.uploaded(x + n) for n in range(2)]
    kept: dict[int, int] = {}
    for turn in range(8):
        stand.started.clear()
        got = [g.get() for g in program(places[turn % 2])]
        assert _right(got, x + turn % 2, gain)
        kept[turn] = stand.started.count("graph")
    assert [*kept.values()][-2:] == [1, 1] and not kept[0]
    places[0].storage.upload(places[0], x - 5)
    assert _right([g.get() for g in program(places[0])], x - 5, gain), "what lies there now is read"


class Faced:
    """An array of somebody else, with the CUDA array interface alone."""

    def __init__(self, a: DeviceArray, stream: int | None = 5) -> None:
        self._a, self._stream = a, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        face = {"shape": self._a.shape, "typestr": self._a.dtype.str, "data": (self._a.address, False), "version": 3}
        return face if self._stream is None else {**face, "stream": self._stream}


class Packed:
    """An array of somebody else, with DLPack alone."""

    def __init__(self, a: CudaArray) -> None:
        self._a, self.asked = a, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._a.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.asked.append(stream)
        return self._a.__dlpack__(stream=-1)


class Streamless:
    """An array of the CPU, which is made on no stream."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: int) -> Any:
        return self._array.__dlpack__()


class Unnamed:
    """An array of somebody else, of a dtype that the CUDA array interface has no name for."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise KeyError("float8_e4m3fn")


def _refused() -> Any:
    raise BufferError("it requires grad")


def test_arrays_of_others_go_in_and_out_with_no_copy(optimized: Callable[..., Any], gpu: Gpu, stand: Any) -> None:
    x, gain = _inputs()
    result = optimized(_model, x, gain, weights=("gain",), device="cuda")
    storage, program = gpu.storage, result.program
    there = storage.uploaded(x)
    packed = Packed(CudaArray.of(there, storage._wire))
    for given in (there, Faced(there), Faced(there, None), packed):
        stand.started.clear()
        stand.waits.clear()
        got = program(given)
        assert not {"upload", "download", "copy"} & set(stand.started)
        assert all(isinstance(g, CudaArray) for g in got)
        assert _right([g.get() for g in got], x, gain)
        assert isinstance(given, DeviceArray | Packed) or stand.waits[0][0] == storage.stream
        again = storage.seen(Packed(got[0]))
        face = got[0].__cuda_array_interface__
        assert again is not None and again.address == got[0].address == face["data"][0] and face["stream"] == 77
        assert np.array_equal(again.get(), got[0].get())
    assert packed.asked == [storage.stream], "who hands over an array is told who will read it"
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(got[0])
    with pytest.raises(TypeMismatch):
        program(Faced(storage.uploaded(gain)))
    kept = Packed(CudaArray.of(there, storage._wire))
    kept.__dlpack__ = lambda **_: _refused()
    with pytest.raises(TypeMismatch, match="not handed over: it requires grad"):
        program(kept)
    with pytest.raises(TypeMismatch, match="class Unnamed is not handed over: 'float8_e4m3fn'"):
        program(Unnamed())


def test_a_capsule_keeps_its_array_and_gives_it_back(gpu: Gpu, stand: Any) -> None:
    storage = gpu.storage
    for dtype, shape in ((np.float16, (3, 4)), (np.int64, ()), (np.bool_, (0, 2)), (np.uint8, (5,))):
        a = CudaArray.of(storage.uploaded(np.ones(shape, dtype)), storage._wire)
        blocks = len(stand.memory.blocks)
        held = storage.seen(Packed(a))
        assert held is not None and (held.shape, held.dtype, held.address) == (a.shape, a.dtype, a.address)
        del a
        gc.collect()
        assert len(stand.memory.blocks) == blocks and np.array_equal(held.get(), np.ones(shape, dtype))
        del held
        gc.collect()
        assert len(stand.memory.blocks) == blocks - 1
    a, b = (CudaArray.of(storage.uploaded(np.ones(3)), storage._wire) for _ in range(2))
    blocks = len(stand.memory.blocks)
    capsule = a.__dlpack__(stream=9)
    assert stand.waits[-1][0] == 9, "whoever will read it waits"
    del capsule, a
    kept = b.__dlpack__()
    assert len(stand.memory.blocks) == blocks - 1, "what nobody took is let go of when the next one is made"
    del kept


@pytest.mark.parametrize("others", ["numpy", "torch", "jax"])
def test_capsules_are_what_others_read(others: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of this GPU is the machine's, so that those who know no GPU can read it where a capsule says CPU."""
    library = pytest.importorskip(others)
    take = library.dlpack.from_dlpack if others == "jax" else library.from_dlpack
    storage = gpu.storage
    monkeypatch.setattr(exchange, "CUDA", 1)
    for dtype in (np.float32, np.float16, np.int32, np.bool_):
        a = (np.arange(24).reshape(4, 6) % 5).astype(dtype)
        made = CudaArray.of(storage.uploaded(a), storage._wire)
        turned = CudaArray.of(made.strided(0, (6, 4), made.strides[::-1], made.dtype), storage._wire)
        storage.wait()
        for x, want in ((made, a), (turned, a.T)):
            theirs = take(x)
            assert np.array_equal(np.asarray(theirs), want)
            if others == "numpy":  # it only reads what it was lent, and lends that to nobody
                continue
            back = storage.seen(Streamless(theirs))
            assert back is not None and (back.address, back.shape, back.dtype) == (x.address, x.shape, x.dtype)
            assert back.strides == x.strides and np.array_equal(back.get(), want)
    with pytest.raises(BufferError, match="not copied"):
        made.__dlpack__(copy=True)
    with pytest.raises(BufferError, match=r"\.get\(\)"):
        made.__dlpack__(dl_device=(2, 0), max_version=(1, 0))


def _look(table: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two kernels that look something up."""
    return np.tanh(table)[at] * 2, table[:7].sum(0) + np.exp(table[at - 2]).sum(0)


def test_positions_outside_their_axis_are_told_by_a_graph_too(optimized: Callable[..., Any], stand: Any) -> None:
    """By the call that they were given to, and without a copy or a wait besides those of its results."""
    table, at = _inputs()[0], np.array([3, 11, 2])
    program, want = optimized(_look, table, at).program, _look(table.astype(float), at)
    asked = []
    program(table, at)
    for outside in (12, -13):
        stand.started.clear()
        stand.waited = 0
        assert all(np.abs(g - w).max() < 1e-4 for g, w in zip(program(table, at), want, strict=True))
        asked.append((stand.started.count("upload"), stand.started.count("download"), stand.waited))
        with pytest.raises(IndexError):
            program(table, np.array([3, outside, 0]))
        with pytest.raises(IndexError):
            program(table, np.array([outside, outside, outside]))
    assert asked == [(2, 2, 2)] * 2 and "graph" in stand.started


def test_results_that_stay_on_the_gpu_are_waited_for_where_something_was_looked_up(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any
) -> None:
    table, at = _inputs()[0], np.array([3, 11, 2])
    program = optimized(_look, table, at, device="cuda").program
    there, places, wrong = (gpu.storage.uploaded(a) for a in (table, at, at + 3))
    program(there, places)
    for _ in range(3):
        stand.waited = 0
        got = program(there, places)
        assert stand.waited == 1, "once for all kernels and results"
        with pytest.raises(IndexError):
            program(there, wrong)
    assert all(np.abs(g.get() - w).max() < 1e-4 for g, w in zip(got, _look(table.astype(float), at), strict=True))
    plain = optimized(_model, *_inputs(), weights=("gain",), device="cuda").program
    stand.waited = 0
    assert len(plain(there)) == 2 and not stand.waited, "nothing else is waited for"


def test_flags_belong_to_the_thread_and_are_lent_again(gpu: Gpu, stand: Any) -> None:
    flags, storage = gpu.storage.flags, gpu.storage
    flag, other = storage.flag(), storage.flag()
    assert flag.address != other.address and not flag.up
    flags.started.add(flag)
    ctypes.c_int.from_address(flag.address).value = 1
    elsewhere = Thread(target=storage.wait)
    elsewhere.start()
    elsewhere.join(60)
    assert flag.up, "another thread's wait does not take it"
    with pytest.raises(IndexError):
        storage.wait()
    storage.wait()
    address, stand.waited = flag.address, 0
    ctypes.c_int.from_address(address).value = 1  # by a kernel that still ran when its program was dropped
    del flag
    gc.collect()
    again = storage.flag()
    assert (again.address, again.up, stand.waited) == (address, False, 1)


def test_large_arrays_go_through_pinned_memory_in_parts(gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part is written again before the GPU has read it, and what is uploaded may be, at once."""
    monkeypatch.setattr(gpus, "_HALF", 1 << 16)
    x = np.arange(5 * (1 << 14) + 7, dtype=np.float32)
    given = x.copy()
    stand.started.clear()
    first = gpu.storage.uploaded(given)
    given[:] = -1
    second = gpu.storage.uploaded(x + 1)
    assert [len(p) for p in stand.pinned] == [1 << 16] * 2 and stand.started == ["upload"] * 12
    assert first.address % 256 == 0 and np.array_equal(first.get(), x) and np.array_equal(second.get(), x + 1)


def test_small_arrays_may_be_written_again_at_once_though_they_are_pinned(gpu: Gpu, stand: Any) -> None:
    """As torch has them; the GPU reads such memory itself, when it comes to it."""
    raw = ctypes.create_string_buffer(4096)
    stand.pinned.append(raw)
    given = np.frombuffer(raw, np.float32)
    made = []
    for n in range(3):
        given[:] = n
        made.append(gpu.storage.uploaded(given))
    given[:] = -1
    stand.started.clear()
    assert [set(a.get()) for a in made] == [{0.0}, {1.0}, {2.0}]


def test_a_kernel_is_started_before_the_one_in_front_has_ended(optimized: Any, gpu: Gpu, stand: Any) -> None:
    """GPUs since compute capability 9.0 have it, and drivers whose graphs keep it. The first has none in front."""
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",)).program
    for _ in range(2):  # one by one, and captured
        stand.started.clear()
        assert _right(program(x), x, gain)
        own = [s for s in stand.started if s not in ("upload", "download", "graph")]
        kinds = ["early" if s == "early" else "kernel" for s in own]
        assert kinds[:3] == ["kernel", "early", "kernel"], "what is started early is noted before its name"
    for version, machine in ((12020, gpu.driver.architecture), (13000, "sm_89")):
        older = Driver(stand)
        stand.version, older.__dict__["architecture"] = version, machine
        assert older.early_threads == 0


def test_not_more_wait_than_leave_room_for_others() -> None:
    """Blocks stay where they came to: where waiting ones filled the GPU, those behind them came to a few processors."""

    class Launched(Prepared):
        def __init__(self, threads: int, *, waits: bool = True) -> None:
            self.row = (threads, waits)

        threads = property(lambda self: self.row[0])
        waits = property(lambda self: self.row[1])

    launches = [Launched(n) for n in (400, 50, 50, 600, 300, 200, 10)]
    steps = [Started(x, None) for x in launches]
    copy = Started(lambda: None, None)
    old = Started(Launched(10, waits=False), None)
    early = [s not in (*steps, copy, old) for s in in_turn([*steps, copy, steps[1], old, steps[2]], 1000)]
    assert early == [False, True, True, False, True, False, True, False, False, False, True]


def test_seconds_are_those_of_the_gpu(gpu: Gpu) -> None:
    assert isinstance(gpu.storage, GpuStorage) and gpu.storage.seconds(lambda: None, 3) == pytest.approx(0.5e-3)
    assert gpu.ceilings["bandwidth"] > 0 and "free" in gpu.about


def test_another_release_of_the_driver_is_another_device(
    gpu: Gpu, stand: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, found = tmp_path / "version", {gpu.identity}
    monkeypatch.setattr("waxeq_cupy.driver._RELEASE", said)
    for release in ("580.65.06", "580.82.07"):
        said.write_text(f"{release}\n")
        found.add(Gpu(Driver(stand), gpu.cubins).identity)
    assert len(found) == 3


def test_results_are_cupy_arrays_where_cupy_is_in_use(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Made:
        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

    cuda = SimpleNamespace(UnownedMemory=Made, MemoryPointer=Made, get_current_stream=lambda: SimpleNamespace(ptr=5))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=Made))
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",), device="cuda").program
    first, _ = program(Faced(gpu.storage.uploaded(x)))
    shape, dtype, pointer, strides = first.arguments
    memory, offset = pointer.arguments
    address, size, owner = memory.arguments
    assert (shape, dtype, strides, offset, size) == ((12, 70), np.float32, (280, 4), 0, 12 * 280) and owner is not None
    assert stand.waits[-1][0] == 5, "the current stream of CuPy waits for the result"
    assert (stand.waits[0][0], stand.memory.around(address, size)[0]) == (gpu.storage.stream, address)


class Tensor(Packed):
    """An array of torch, as far as it matters here: torch says on which stream it works."""

    device = "cuda:0"


@pytest.mark.parametrize(("current", "follows"), [(0, 1), (9, 9)])
def test_owners_of_inputs_wait_until_these_were_read(
    current: int, follows: int, optimized: Callable[..., Any], gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may write there, or give the memory to somebody else, as soon as a call is over."""
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",), device="cuda").program
    there, ours = gpu.storage.uploaded(x), gpu.storage.stream
    for face, stream in ((Faced(there), 5), (Faced(there, None), 1)):
        stand.waits.clear()
        program(face)
        assert [w[0] for w in stand.waits] == [ours, stream], "ours for the owner's, then the owner's for ours"
    stand.waits.clear()
    before = stand.waited
    program(there)
    assert not stand.waits and stand.waited == before, "an array of our own is read and written in turn"
    streams = {Tensor.device: SimpleNamespace(cuda_stream=current)}
    torch = SimpleNamespace(Tensor=Tensor, cuda=SimpleNamespace(current_stream=streams.__getitem__))
    monkeypatch.setitem(sys.modules, "torch", torch)
    program(Tensor(CudaArray.of(there, None)))
    assert [w[0] for w in stand.waits] == [follows] and stand.waited == before
    stand.waits.clear()
    program(Packed(CudaArray.of(there, None)))
    assert not stand.waits and stand.waited == before + 1, "of whom nothing is known: all is waited for"


def test_memory_of_results_is_used_again_when_others_have_read_it(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read on streams of theirs, and let go of an array when that was asked for, not when it has happened."""
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",), device="cuda").program
    there, ours = gpu.storage.uploaded(x), gpu.storage.stream
    waited = list[str]()
    monkeypatch.setattr(Driver, "wait", lambda driver: waited.append("all"))

    def again(read: Callable[[CudaArray], object]) -> list[int]:
        """The streams that wait while a result is written where another one was that somebody had read."""
        first = program(there)[0]
        address = first.address
        read(first)
        stand.waits.clear()
        del first
        second = program(there)[0]
        assert second.address == address
        return [w[0] for w in stand.waits]

    assert again(lambda a: a.get()) == [] and not waited
    assert again(lambda a: opened(a.__dlpack__(stream=1))) == [ours] and not waited
    assert again(lambda a: opened(a.__dlpack__())) == [ours] and not waited
    assert again(lambda a: opened(a.__dlpack__(stream=9))) == [] and waited == ["all"], "stream 9 may be gone"
    assert again(lambda a: a.__cuda_array_interface__) == [] and waited == ["all"] * 2
    assert again(lambda a: a.get()) == [] and len(waited) == 2


def test_any_thread_binds_programs_and_lets_go_of_their_graphs(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver wants to be told which GPU a thread means, whatever the thread does first."""
    x, gain = _inputs()
    made, amiss = [optimized(_model, x, gain, weights=("gain",)).program], list[object]()
    launch = next(iter(stand.launches.values()))
    there = [gpu.storage.uploaded(np.zeros(1 << 16, np.uint8))] * (len(launch.reads) + 2)

    def binds() -> None:
        try:
            assert gpu.bound(Work((replace(launch, shared=launch.shared or 1024),)), there, there[0], there[0])
        except BaseException as e:
            amiss.append(e)

    def lets_go() -> None:
        del made[0]
        gc.collect()

    for _ in range(3):
        made[0](x)
    assert stand.graphs
    monkeypatch.setattr(sys, "unraisablehook", lambda what: amiss.append(what.exc_value))
    for run in (binds, lets_go):
        thread = Thread(target=run)
        thread.start()
        thread.join()
    assert not amiss and not made


def test_an_array_of_another_gpu_is_refused(optimized: Callable[..., Any], gpu: Gpu, stand: Any) -> None:
    x, gain = _inputs()
    program, there = optimized(_model, x, gain, weights=("gain",), device="cuda").program, gpu.storage.uploaded(x)
    stand.others[there.address] = 1
    with pytest.raises(TypeMismatch, match="class Faced does not lie on GPU 0"):
        program(Faced(there))


def test_owners_wait_for_copies_of_inputs_too(
    optimized: Callable[..., Any], gpu: Gpu, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is an input is copied after all else."""
    x, _ = _inputs()
    program = optimized(lambda x: (x, np.exp(x)), x, device="cuda").program
    there, order, copy, read = gpu.storage.uploaded(x), list[str](), GpuStorage.copy, GpuStorage.read
    monkeypatch.setattr(GpuStorage, "copy", lambda *a: (order.append("copy"), copy(*a))[1])
    monkeypatch.setattr(GpuStorage, "read", lambda *a: (order.append("read"), read(*a))[1])
    same, _ = program(Faced(there))
    assert order == ["copy", "read"] and np.array_equal(same.get(), x)


@pytest.mark.parametrize("given", [Faced, Packed])
def test_a_thread_may_begin_with_an_array_of_somebody_else(
    given: Callable[[CudaArray], Any], optimized: Callable[..., Any], gpu: Gpu
) -> None:
    x, gain = _inputs()
    program = optimized(_model, x, gain, weights=("gain",), device="cuda").program
    there, found = given(CudaArray.of(gpu.storage.uploaded(x), None)), list[Any]()

    def run() -> None:
        try:
            found.extend(g.get() for g in program(there))
        except BaseException as e:
            found.append(e)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert _right(found, x, gain)


def test_threads_that_look_for_a_gpu_at_once_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would else have memory and a stream of its own, and know no array of the other."""
    monkeypatch.delenv(devices.VARIABLE, raising=False)

    def found() -> Any:
        sleep(0.05)
        return object()

    monkeypatch.setattr(devices, "_gpu", cache(found))
    rows = list[Any]()
    threads = [Thread(target=lambda: rows.append(devices.current())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(rows) == 4 and len({*map(id, rows)}) == 1
