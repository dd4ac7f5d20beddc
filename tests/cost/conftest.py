"""Tables, and timings to put into them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from waxeq.cost.key import METHOD, Timing, TimingKey
from waxeq.cost.table import TimingTable

MakeTiming = Callable[..., Timing]


@pytest.fixture(scope="session")
def timing() -> MakeTiming:
    """`timing(n, ...)`: the n-th of many timings; any field of the key or the timing by name."""

    def make(n: int = 0, **given: object) -> Timing:
        key = {"backend": "numpy", "kernel": "numpy.gemm", "code": "c0de", "text": f"(Map f {n})", "dims": f"i0={n}",
               "layout": "float32:i0*1", "dtype": "float32", "device": "here", "threads": 1,
               "method": METHOD}  # fmt: skip
        key |= {k: given.pop(k) for k in list(given) if k in key}
        row = {"samples": (1e-6 * (n + 1), 2e-6), "max_relative_error": 1e-7, "rms_relative_error": 1e-8,
               "features": {"launches": 1.0, "bytes": float(n)}, "when": 1000.0 + n} | given  # fmt: skip
        return Timing(TimingKey(**key), **row)  # pyright: ignore[reportArgumentType]

    return make


@pytest.fixture
def table(tmp_path: Path) -> TimingTable:
    """One with an archive, and nothing in it yet."""
    table = TimingTable.open(tmp_path / "t.duckdb")
    table.merge()
    return table
