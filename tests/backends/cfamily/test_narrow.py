"""float16 and bfloat16 in C: every bit as NumPy and ml_dtypes have it."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import source
from waxeq_cfamily.scalars import NARROW

LOOP = "for (long n = 0; n < many; n++) to[n] = wx_{name}(from[n]);"
SIGNATURES = {
    **{f"widened_{s}": ("unsigned short", "float") for s in NARROW.values()},
    **{f"narrowed_{s}": ("float", "unsigned short") for s in NARROW.values()},
    **{f"rounded_{s}": ("float", "float") for s in NARROW.values()},
    "odd_f32": ("double", "float"),
}
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-w")
BUILDS = {"machine": ("-march=native",), "baseline": ()}


class Built:
    """The functions in loops, compiled in one of the builds; `vectors` are the names that became vector code."""

    def __init__(self, folder: Path, build: str) -> None:
        text = [source()]
        for name, (takes, gives) in SIGNATURES.items():
            text.append(
                f"void loop_{name}(const {takes} *restrict from, {gives} *restrict to, long many) {{\n"
                f"#pragma omp simd\n{LOOP.format(name=name)}\n}}"
            )
        (folder / "narrow.c").write_text("\n".join(text))
        line = ["gcc", *FLAGS, *BUILDS[build], "-fopt-info-vec-optimized=vec.txt", "narrow.c", "-o", "narrow.so"]
        subprocess.run(line, check=True, cwd=folder)
        rows = {
            int(n) for n in re.findall(r"narrow\.c:(\d+):\d+: optimized: loop vectorized", _read(folder / "vec.txt"))
        }
        lines = (folder / "narrow.c").read_text().splitlines()
        self.vectors = {m for n in rows for m in re.findall(r"to\[n\] = wx_(\w+)\(", lines[n - 1])}
        self.library = ctypes.CDLL(str(folder / "narrow.so"))

    def __call__(self, name: str, x: np.ndarray, gives: np.dtype) -> np.ndarray:
        x, out = np.ascontiguousarray(x), np.empty(x.shape, gives)
        self.library[f"loop_{name}"](ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), x.size)
        return out


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module", params=BUILDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("narrow"), request.param)


def _floats() -> np.ndarray:
    """Every number of the narrow dtypes, the places half way between two of them, what is beside those, and a walk over
    all of float32."""
    sixteen = np.arange(1 << 16, dtype=np.uint16)
    exact = np.concatenate([sixteen.view(numpy_dtype(d)).astype(np.float32) for d in NARROW])
    with np.errstate(all="ignore"):
        middles = np.concatenate([(exact[:-1] / 2 + exact[1:] / 2), exact])
        beside = np.concatenate([np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))])
    walk = np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([middles, beside, walk])


def _same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bits; NaN is NaN of any bits."""
    assert a.dtype == b.dtype
    nan = np.isnan(a.astype(np.float32))
    assert np.array_equal(nan, np.isnan(b.astype(np.float32)))
    assert a[~nan].tobytes() == b[~nan].tobytes()


@pytest.mark.parametrize("dtype", NARROW)
def test_reading_every_number(dtype: str, built: Built) -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    _same(built(f"widened_{NARROW[dtype]}", x, np.dtype(np.float32)), x.view(numpy_dtype(dtype)).astype(np.float32))


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_and_writing(dtype: str, built: Built) -> None:
    x = _floats()
    with np.errstate(all="ignore"):
        want = x.astype(numpy_dtype(dtype))
    _same(built(f"narrowed_{NARROW[dtype]}", x, np.dtype(np.uint16)).view(want.dtype), want)
    _same(built(f"rounded_{NARROW[dtype]}", x, x.dtype), want.astype(np.float32))


def test_float64_is_rounded_to_float16_once(built: Built) -> None:
    with np.errstate(all="ignore"):
        near = _floats().astype(np.float64)
        x = np.concatenate([near, near * (1 + 2.0**-40), near * (1 - 2.0**-40), np.geomspace(1e-300, 1e300, 10_000)])
        want = x.astype(np.float16)
    odd = built("odd_f32", x, np.dtype(np.float32))
    _same(built("narrowed_f16", odd, np.dtype(np.uint16)).view(np.float16), want)


def test_loops_become_vector_code(built: Built) -> None:
    assert built.vectors == set(SIGNATURES)
