"""What machine this is, and what it can do at most."""

from __future__ import annotations

import hashlib
import platform
import time
from dataclasses import asdict, dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Device:
    """A machine as far as timings depend on it. `id` names equal machines equally."""

    model: str
    cores: int
    memory_bytes: int
    system: str
    numpy: str
    blas: str
    threads: int

    @property
    def id(self) -> str:
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:12]

    def describe(self) -> str:
        return f"{self.model}, {self.cores} cores, {self.threads} thread{'s' * (self.threads > 1)}, NumPy {self.numpy}, {self.blas}"


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured ceilings: float operations a second of a matrix product by dtype, bytes a second of a copy that does not fit
    in cache, seconds to start one ufunc."""

    flops: dict[str, float]
    bandwidth: float
    launch: float


@lru_cache(maxsize=8)
def current_device(threads: int) -> Device:
    """This machine, running on `threads` threads."""
    import numpy as np
    import psutil
    from threadpoolctl import threadpool_info

    blas = next((f"{i['internal_api']} {i['version']} {i.get('architecture', '')}".strip()
                 for i in threadpool_info() if i["user_api"] == "blas"), "no BLAS")  # fmt: skip
    gib = round(psutil.virtual_memory().total / 2**30)
    return Device(_model(), psutil.cpu_count() or 1, gib << 30, platform.system(), np.__version__, blas, threads)


def _model() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def measure_peaks() -> Peaks:
    """Measure the ceilings of this machine, in about half a second."""
    import numpy as np

    def best(fn, repeat: int = 5) -> float:
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            fn()
            times.append(time.perf_counter() - start)
        return min(times)

    flops = {}
    for dtype in ("float32", "float64"):
        a = np.ones((768, 768), dtype)
        out = np.empty_like(a)
        flops[dtype] = 2 * 768**3 / best(lambda a=a, out=out: np.matmul(a, a, out=out))
    x = np.ones(1 << 24, np.uint8)
    y = np.empty_like(x)
    bandwidth = 2 * x.nbytes / best(lambda: np.copyto(y, x))
    small = np.zeros(8, np.float32)
    launch = best(lambda: [np.add(small, small, small) for _ in range(1000)]) / 1000
    return Peaks(flops, bandwidth, launch)
