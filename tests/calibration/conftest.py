"""The check of a GPU is a program of the checkout, not of the distribution."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from calibration.gpu.prepare import Scope, write_kit  # noqa: E402

from waxeq.cost.device import Peaks  # noqa: E402
from waxeq_cupy import device as devices  # noqa: E402

MISSING = (
    *("egglog", "duckdb", "pydantic", "pydantic_settings", "safetensors", "psutil", "scipy", "sympy", "highspy"),
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
def bare(tmp_path: Path, virtual: None) -> Iterator[dict[str, str]]:
    """An environment in which of all packages only NumPy can be imported."""
    place = tmp_path / "missing"
    place.mkdir()
    for name in MISSING:
        (place / f"{name}.py").write_text(f"raise ImportError('{name} is not installed')\n", encoding="utf-8")
    yield {**os.environ, "PYTHONPATH": str(place)}
