"""What machine this is, and what it can do at most."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from waxeq.backend.blas import function
from waxeq.backend.caches import cache_bytes


@dataclass(frozen=True, slots=True)
class Device:
    """A machine as far as timings depend on it: CPU model, logical cores, cache sizes (bytes, 0 where unknown),
    memory (bytes, whole GiB), operating system, versions of Python, NumPy and BLAS, threads used. Equal machines have
    equal ids."""

    model: str
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    system: str
    python: str
    numpy: str
    blas: str
    threads: int

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits, the same in every process."""
        return hashlib.sha256(self.json().encode()).hexdigest()[:12]

    def json(self) -> str:
        """Canonical JSON of all fields."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Device:
        """The inverse of `json`. Raises ValueError for what describes no device, TypeError for what is no text."""
        said = json.loads(text)
        types = {f.name: f.type for f in fields(Device)}
        if not isinstance(said, dict) or {n: type(v).__name__ for n, v in said.items()} != types:
            raise ValueError(f"this describes no device: {text[:60]!r}")
        return Device(**said)

    def describe(self) -> str:
        """One line for people."""
        caches = "/".join(_size(b) for b in (self.l1_bytes, self.l2_bytes, self.l3_bytes))
        return (
            f"{self.model}, {self.cores} cores, caches {caches}, {_size(self.memory_bytes)}, {self.system}, "
            f"{self.threads} thread{'s' * (self.threads > 1)}, Python {self.python}, NumPy {self.numpy}, {self.blas}"
        )

    def differences(self, other: Device) -> tuple[str, ...]:
        """What is not the same on `other`: "numpy 2.4.6 -> 2.5.0" for each field."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return tuple(f"{name} {a} -> {b}" for name, a, b in pairs if a != b)


def described(rows: Iterable[tuple[str, str]]) -> dict[str, Device]:
    """Devices by id, of rows of ids and descriptions in their order; without those whose description is damaged."""
    found = {}
    for id_, text in rows:
        with suppress(ValueError, TypeError):
            found[id_] = Device.from_json(text)
    return found


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured ceilings: floating-point operations a second of a matrix product by dtype; bytes a second (read plus
    written) of a copy that does not fit in cache and of one that does; seconds to start one ufunc."""

    flops: Mapping[str, float]
    bandwidth: float
    cache_bandwidth: float
    launch: float

    def json(self) -> str:
        """Canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Peaks:
        """The inverse of `json`."""
        return Peaks(**json.loads(text))

    def or_better(self, other: Peaks) -> Peaks:
        """Of each the better: what a machine did at best does not depend on how busy it was another time."""
        flops = {n: max(of.flops[n] for of in (self, other) if n in of.flops) for n in {**self.flops, **other.flops}}
        return Peaks(
            flops, max(self.bandwidth, other.bandwidth), max(self.cache_bandwidth, other.cache_bandwidth),
            min(self.launch, other.launch),
        )  # fmt: skip


@lru_cache(maxsize=8)
def current_device(threads: int) -> Device:
    """This machine, running on `threads` threads; the same where neither psutil nor threadpoolctl is installed."""
    import numpy as np

    l1, l2, l3 = (cache_bytes(level) for level in (1, 2, 3))
    return Device(
        model=_model(),
        cores=os.cpu_count() or 1,
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        memory_bytes=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30) << 30,
        system=f"{platform.system()} {platform.machine()}",
        python=".".join(platform.python_version_tuple()[:2]),
        numpy=np.__version__,
        blas=_blas(),
        threads=threads,
    )


def _model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _blas() -> str:
    """The BLAS that NumPy uses. SciPy loads one of its own, which must not change the fingerprint when it happens to
    be in.
    """
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return _openblas()

    found = [i for i in threadpool_info() if i["user_api"] == "blas"]
    found.sort(key=lambda i: ("numpy" not in i["filepath"], i["filepath"]))
    if not found:
        return _UNKNOWN
    return " ".join(str(found[0].get(k) or "") for k in ("internal_api", "version", "architecture")).strip()


_UNKNOWN = "no known BLAS"


def _openblas() -> str:
    """NumPy's BLAS where it is OpenBLAS, asked as threadpoolctl asks it: plans run where that is not installed."""
    said = function("get_config"), function("get_corename")
    try:
        config, core = (_text(f) for f in said if f is not None)
        return f"openblas {config.split()[1]} {core}"
    except (ValueError, IndexError):
        return _UNKNOWN


def _text(function: Any) -> str:
    function.restype = ctypes.c_char_p
    return function().decode()


def _size(b: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if b >= 1 << shift:
            return f"{b / (1 << shift):g} {unit}"
    return f"{b} B"


def measure_peaks(threads: int) -> Peaks:
    """Measure the ceilings of this machine with BLAS held to `threads` threads, in about a second."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    flops = {}
    with threadpool_limits(limits=threads, user_api="blas"):
        for dtype in ("float32", "float64"):
            a = np.ones((768, 768), dtype)
            out = np.empty_like(a)
            flops[dtype] = 2 * 768**3 / _best(lambda a=a, out=out: np.matmul(a, a, out=out))
    far = min(max(64 << 20, 2 * cache_bytes(3)), 128 << 20)  # touching fresh memory takes longer than the copies
    near = min(max(64 << 10, cache_bytes(2) // 4), 1 << 20)
    small, out = np.ones(8, np.float32), np.empty(8, np.float32)
    launch = _best(lambda: [np.add(small, small, out) for _ in range(1000)]) / 1000
    return Peaks(flops, _copy_bandwidth(far, 1), _copy_bandwidth(near, 50), launch)


def _copy_bandwidth(size: int, times: int) -> float:
    """Of the C library's copy or of a loop of vectors: some processors take twenty times as long for the instruction
    that the first is made of."""
    import numpy as np

    x, y = np.ones(size, np.uint8), np.empty(size, np.uint8)
    copies = (lambda: np.copyto(y, x)), (lambda: np.bitwise_or(x, np.uint8(0), out=y))
    return 2 * size * times / min(_best(lambda copy=copy: [copy() for _ in range(times)]) for copy in copies)


def _best(fn: Callable[[], object], repeat: int = 6) -> float:
    """The shortest of a few runs: a ceiling is what the machine can do when nothing else disturbs it."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return max(min(times), 1e-9)
