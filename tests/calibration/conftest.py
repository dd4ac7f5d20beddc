"""The check of a GPU is a program of the checkout, not of the distribution."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from calibration.gpu.prepare import Scope, write_kit  # noqa: E402

from waxeq.cost.device import Peaks  # noqa: E402
from waxeq_cupy import device as devices  # noqa: E402

MISSING = (
    *("egglog", "duckdb", "pydantic", "safetensors", "psutil", "scipy", "sympy", "highspy"),
    *("rustworkx", "opt_einsum", "ml_dtypes", "platformdirs", "filelock", "threadpoolctl", "cyclopts", "rich"),
)


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit for the simulated GPU: two targets, a plan, a little of the grid."""
    path = tmp_path_factory.mktemp("kit") / "gpu_check.kit"
    scope = Scope(
        drawn=0, grid=2, small=True, kernels=("cupy.loops", "cupy.gemv"), targets=("softmax float16", "1 rows float16"),
        plans=("mirage_ntrans_b8",),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(devices.VARIABLE, devices.VIRTUAL)
        patch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))
        write_kit(path, scope, lambda text: None)
    return path


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and those it starts, the GPU is the one that is not there."""
    monkeypatch.setenv(devices.VARIABLE, devices.VIRTUAL)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the CPU does at most decides nothing here."""
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))


@pytest.fixture
def bare(tmp_path: Path, virtual: None) -> Iterator[dict[str, str]]:
    """An environment in which of all packages only NumPy can be imported."""
    place = tmp_path / "missing"
    place.mkdir()
    for name in MISSING:
        (place / f"{name}.py").write_text(f"raise ImportError('{name} is not installed')\n", encoding="utf-8")
    yield {**os.environ, "PYTHONPATH": str(place)}


class Tensor:
    """An array that says where it is."""

    def __init__(self, array: np.ndarray, where: str = "cpu") -> None:
        self.array, self.where = array, where

    def cuda(self) -> Tensor:
        return Tensor(self.array, "cuda")


class Stream:
    warm = 0

    def synchronize(self) -> None:
        pass


class Torch:
    """What the check asks of torch, on NumPy: it is held to warming up before it captures, to capturing on the stream
    that it warmed up on, and to replaying what was captured and nothing else. `available`: whether it sees a GPU.
    `eager`: how often something was computed where no graph was captured."""

    def __init__(self, available: bool = True) -> None:
        self.stream: Stream | None = None
        self.capturing: list[Callable[[], Any]] | None = None
        self.eager = self.replays = self.compiled = 0
        self._dynamo = SimpleNamespace(reset=lambda: None)
        self.cuda = SimpleNamespace(
            is_available=lambda: available, Stream=Stream, stream=self._on, graph=self._captured, CUDAGraph=self._graph,
            Event=self._event, synchronize=lambda: None, empty_cache=lambda: None,
        )  # fmt: skip

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.precision = precision

    def from_numpy(self, array: np.ndarray) -> Tensor:
        return Tensor(array)

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        yield

    @contextmanager
    def _on(self, stream: Stream) -> Iterator[None]:
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    @contextmanager
    def _captured(self, graph: Any, stream: Stream) -> Iterator[None]:
        assert stream.warm, "what is captured ran before, on the same stream"
        self.capturing = graph.work
        with self._on(stream):
            yield
        self.capturing = None

    def _graph(self) -> Any:
        made = SimpleNamespace(work=[])
        made.replay = lambda: self._replayed(made.work)
        return made

    def _replayed(self, work: list[Callable[[], Any]]) -> None:
        assert work and self.stream is not None and self.capturing is None
        self.replays += 1

    def _event(self, enable_timing: bool) -> Any:
        assert enable_timing
        made = SimpleNamespace(at=None, synchronize=lambda: None)

        def record() -> None:
            made.at = self.replays

        made.record = record
        made.elapsed_time = lambda last: 1.0 + last.at - made.at  # milliseconds: one for each replay
        return made

    def compile(self, fn: Callable[..., Any], mode: str) -> Callable[..., Any]:
        assert mode == "max-autotune-no-cudagraphs", "graphs are captured by the check itself"
        self.compiled += 1
        return fn

    def _done(self, x: Tensor, value: np.ndarray) -> Tensor:
        assert x.where == "cuda" and self.stream is not None
        if self.capturing is None:
            self.eager += 1
            self.stream.warm += 1
        else:
            self.capturing.append(lambda: value)
        return Tensor(value, "cuda")

    def softmax(self, x: Tensor, axis: int) -> Tensor:
        e = np.exp(x.array.astype(float) - x.array.max(axis, keepdims=True))
        return self._done(x, e / e.sum(axis, keepdims=True))


@pytest.fixture
def torch_on_numpy() -> Callable[..., Torch]:
    """A stand-in for torch; `available=False`: one that sees no GPU."""
    return Torch
