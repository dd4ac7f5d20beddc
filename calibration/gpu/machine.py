"""The machine that a check runs on: what is installed, which GPU it is, what that does at most."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from calibration.gpu.clocked import copy_bandwidth

from waxeq.backend.storage import Storage
from waxeq.cost.device import Device
from waxeq_cupy.device import Device as Gpu

_PACKAGES = ("numpy", "cupy-cuda12x", "cupy-cuda13x", "torch", "triton", "jax", "ml-dtypes", "nvidia-cuda-nvrtc")
_ASKED = ("name", "driver_version", "clocks.max.sm", "clocks.max.mem", "clocks.sm", "power.limit", "temperature.gpu",
          "ecc.mode.current", "mig.mode.current", "memory.total")  # fmt: skip
_COPIED = 1 << 30
_SIMULATED = 1 << 16
"""Bytes of a copy that no cache holds, on a GPU and where there is none."""


def environment(gpu: Gpu, host: Device, *, real: bool) -> dict[str, Any]:
    """What decides what was measured."""
    installed = {n: v for n in _PACKAGES if (v := _version(n)) is not None}
    return {
        "gpu": gpu.about,
        "real": real,
        "identity": gpu.identity,
        "host": host.describe(),
        "device": host.id,
        "python": platform.python_version(),
        "packages": installed,
        "nvidia-smi": _smi(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _smi() -> dict[str, str]:
    """What nvidia-smi says of the first GPU; nothing where it is not there."""
    if shutil.which("nvidia-smi") is None:
        return {}
    line = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    return dict(zip(_ASKED, (x.strip() for x in done.stdout.split(",")), strict=False)) if done.returncode == 0 else {}


def copy_rate(on: Storage, *, real: bool) -> dict[str, Any]:
    """The measured ceiling of all that is bound by memory."""
    size = _COPIED if real else _SIMULATED
    return {"bytes": size, "bytes_per_second": copy_bandwidth(on, size)}
