"""The way to a GPU and back, on a driver that is one in name only: its memory is the machine's, its kernels those of
the simulated device. What a GPU computes, it does not say."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
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


class Uncompiled(Cubins):
    """Images of nothing: the stand-in runs the text itself."""

    def images(self, sources: Mapping[str, str], prelude: str, architecture: str = "") -> Mapping[str, bytes]:
        self.made += len(sources)
        return dict.fromkeys(sources, b"image")


@pytest.fixture
def copied(stand: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    driver = Driver(stand)
    found = Copied(driver, Uncompiled(tmp_path, None, driver.architecture))
    monkeypatch.setattr(devices, "current", lambda: found)
    return found


def check(loops: Loops, calls: Iterable[Call], kernels: Mapping[str, Launch], copied: Copied, stand: Any) -> int:
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
    stand: Any,
) -> None:  # fmt: skip
    some = [c for c in cases.values() if c.out.elements < 20_000]
    assert check(loops, some, kernels_of(some), copied, stand) > 30


def test_what_is_compiled_gets_there(
    named: Callable[[str], Call], kernels_of: Callable[[Iterable[Call]], dict[str, Launch]], loops: Loops,
    copied: Copied, compiler: nvrtc.Nvrtc, stand: Any, tmp_path: Path,
) -> None:  # fmt: skip
    copied.cubins = Cubins(tmp_path, compiler, copied.driver.architecture)
    some = [named("element-wise"), named("softmax of rows of 1000")]
    assert check(loops, some, kernels_of(some), copied, stand) == 2


def test_drawn_calls_get_there_and_back(
    kernels_of: Callable[[Iterable[Call]], dict[str, Launch]], loops: Loops, copied: Copied, stand: Any
) -> None:
    drawn = list(generated("cupy.loops", loops, np.random.default_rng(5), 10))
    kernels = kernels_of(drawn)
    stand.simulated.compiled(list(kernels.values()))
    assert any(loops.in_place(c) for c in drawn)
    assert check(loops, drawn, kernels, copied, stand) > 50


def test_positions_outside_their_axis_are_told(
    named: Callable[[str], Call], loops: Loops, copied: Copied, stand: Any
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


def test_what_the_driver_says_is_told(stand: Any, copied: Copied) -> None:
    stand.failing["cuCtxSynchronize"] = 700
    with pytest.raises(DriverFailed, match=r"cuCtxSynchronize failed with code 700 \(what went wrong\)"):
        copied.driver.wait()


def test_a_driver_without_a_gpu_is_a_sentence(stand: Any) -> None:
    stand.gpus = 0
    with pytest.raises(MissingDevice, match="no GPU"):
        Driver(stand)


def test_no_driver_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refused)
    with pytest.raises(MissingDevice, match=r"libcuda\.so\.1"):
        Driver.found()
