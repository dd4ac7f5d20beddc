"""The way to a GPU and back, on a driver that is one in name only: its memory is the machine's, its kernels those of
the simulated device. What a GPU computes, it does not say."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.testing.calls import generated
from waxeq.testing.conformance import check_call
from waxeq_cupy import device as devices
from waxeq_cupy import nvrtc
from waxeq_cupy.copied import Copied
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.device import MissingDevice
from waxeq_cupy.driver import Driver, DriverFailed
from waxeq_cupy.kernels import Launch, Loops
from waxeq_cupy.simulated import Argument, Simulated


class Memory:
    """What the driver calls device memory: blocks at multiples of 256, poisoned, each with its size."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[int, Any]] = {}

    def new(self, size: int) -> int:
        raw = np.full(size + 256, 0xEE, np.uint8)
        start = -(-raw.ctypes.data // 256) * 256
        self.blocks[start] = size, raw
        return start

    def around(self, address: int, size: int) -> tuple[int, int]:
        """The block that these bytes lie in."""
        for start, (n, _) in self.blocks.items():
            if start <= address and address + size <= start + n:
                return start, start + n
        raise AssertionError("memory that was never allocated, or no longer is")


class Stand:
    """The functions of libcuda that are used."""

    def __init__(self, simulated: Simulated, gpus: int = 1) -> None:
        self.memory, self.simulated, self.gpus = Memory(), simulated, gpus
        self.names: list[str] = []
        self.launches: dict[str, Launch] = {}
        self.failing: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        own = getattr(type(self), f"_{name}", None)

        def called(*arguments: Any) -> int:
            if self.failing.get(name):
                return self.failing[name]
            return (own(self, *arguments) if own is not None else None) or 0

        found = SimpleNamespace(argtypes=None)
        called.argtypes = found  # pyright: ignore[reportFunctionMemberAccess]
        setattr(self, name, called)
        return called

    def _cuDeviceGetCount(self, to: Any) -> None:
        to._obj.value = self.gpus

    def _cuDeviceGetAttribute(self, to: Any, which: int, number: int) -> None:
        to._obj.value = {75: 9, 76: 0}[which]

    def _cuDeviceGetName(self, to: Any, size: int, number: int) -> None:
        to.value = b"Stand"

    def _cuGetErrorString(self, code: int, to: Any) -> None:
        to._obj.value = b"what went wrong"

    def _cuMemAlloc_v2(self, to: Any, size: int) -> None:
        to._obj.value = self.memory.new(size)

    def _cuMemFree_v2(self, address: int) -> None:
        del self.memory.blocks[address]

    def _cuMemcpyHtoD_v2(self, to: int, host: int, size: int) -> None:
        self.memory.around(to, size)
        ctypes.memmove(to, host, size)

    def _cuMemcpyDtoH_v2(self, host: int, address: int, size: int) -> None:
        self.memory.around(address, size)
        ctypes.memmove(host, address, size)

    def _cuMemsetD8_v2(self, address: int, value: int, size: int) -> None:
        self.memory.around(address, size)
        ctypes.memset(address, value, size)

    def _cuModuleGetFunction(self, to: Any, module: Any, name: bytes) -> None:
        self.names.append(name.decode())
        to._obj.value = len(self.names)

    def _cuLaunchKernel(self, kernel: int, *rest: Any) -> None:
        blocks, y, z, threads, u, v, shared, stream, parameters, extra = rest
        assert (y, z, u, v, shared, stream, extra) == (1, 1, 1, 1, 0, None, None)
        launch = self.launches[self.names[kernel - 1]]
        assert (blocks, threads) == (launch.blocks, launch.threads)
        pointers = [ctypes.c_uint64.from_address(p).value for p in parameters]
        assert len(pointers) == len(launch.reads) + 1 + launch.looked_up
        self.simulated.compiled([launch])
        sizes = _sizes(launch)
        arguments = []
        for p, item in zip(pointers, sizes, strict=True):
            low, high = self.memory.around(p, 0)
            arguments.append(Argument(p, -((p - low) // item), (high - p) // item))
        self.simulated.started(launch.name, arguments, len(launch.reads), sizes[len(launch.reads)], blocks, threads)


def _sizes(launch: Launch) -> list[int]:
    """Bytes of an element behind each parameter, as the text declares them."""
    types = {"float": 4, "double": 8, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4,
             "uint32_t": 4, "int64_t": 8, "uint64_t": 8}  # fmt: skip
    head = launch.text[launch.text.index("WX_FUNCTION(") + len("WX_FUNCTION(") : launch.text.index(") {")]
    return [4 if p.startswith("WX_FLAG") else types[p[p.index("(") + 1 : p.index(")")]] for p in head.split(", ")]


@pytest.fixture
def stand(device: Simulated) -> Stand:
    return Stand(device)


@pytest.fixture
def copied(stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    try:
        compiler = nvrtc.Nvrtc.found()
    except nvrtc.MissingCompiler as e:
        pytest.skip(str(e))
    driver = Driver(stand)
    found = Copied(driver, Cubins(tmp_path, compiler, driver.architecture))
    monkeypatch.setattr(devices, "current", lambda: found)
    return found


def check(loops: Loops, calls: Iterable[Call], kernels: Mapping[str, Launch], copied: Copied, stand: Stand) -> int:
    stand.launches |= kernels
    copied.compiled(list(kernels.values()))
    assert set(stand.names) == set(kernels) and copied.cubins.made == len(kernels)
    count = 0
    for count, c in enumerate(calls, 1):
        assert check_call(loops, c, np.random.default_rng(count)) is None, c
        assert not stand.memory.blocks, "all memory is given back"
    return count


def test_every_form_gets_there_and_back(
    cases: Mapping[str, Call], kernels_of: Callable[[Iterable[Call]], dict[str, Launch]], loops: Loops, copied: Copied,
    stand: Stand,
) -> None:  # fmt: skip
    some = [c for c in cases.values() if c.out.elements < 20_000]
    assert check(loops, some, kernels_of(some), copied, stand) > 30


def test_drawn_calls_get_there_and_back(
    kernels_of: Callable[[Iterable[Call]], dict[str, Launch]], loops: Loops, copied: Copied, stand: Stand
) -> None:
    drawn = list(generated("cupy.loops", loops, np.random.default_rng(5), 10))
    kernels = kernels_of(drawn)
    stand.simulated.compiled(list(kernels.values()))
    assert any(loops.in_place(c) for c in drawn)
    assert check(loops, drawn, kernels, copied, stand) > 50


def test_positions_outside_their_axis_are_told(
    named: Callable[[str], Call], loops: Loops, copied: Copied, stand: Stand
) -> None:
    call = named("gathered rows")
    w = loops.work(call)
    assert w is not None
    stand.launches |= {x.name: x for x in w.launches}
    table, out, at = np.ones((4, 64), np.float32), np.empty((30, 64), np.float32), np.full(30, 4)
    (step,) = loops.bind(call, [at, table], out, np.empty(0, np.uint8))
    with pytest.raises(IndexError):
        step()
    at[:] = 3
    step()
    assert np.array_equal(out, table[at]) and not stand.memory.blocks


def test_what_the_driver_says_is_told(stand: Stand, copied: Copied) -> None:
    stand.failing["cuCtxSynchronize"] = 700
    with pytest.raises(DriverFailed, match=r"cuCtxSynchronize failed with code 700 \(what went wrong\)"):
        copied.driver.wait()


def test_a_driver_without_a_gpu_is_a_sentence(device: Simulated) -> None:
    with pytest.raises(MissingDevice, match="no GPU"):
        Driver(Stand(device, gpus=0))


def test_no_driver_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refused)
    with pytest.raises(MissingDevice, match=r"libcuda\.so\.1"):
        Driver.found()
