"""Scalar functions of generated kernels: as exact as their table says, vector code everywhere, C and CUDA C++ alike."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from waxeq.basis.scalar import SCALARS
from waxeq_cfamily.accuracy import BUILDS, DOCUMENT, SIXTEENS, Judge, document, sixteens_text
from waxeq_cfamily.functions import BELOW, DESCRIBED, DTYPES, HEADER, calls, functions, source, symbol
from waxeq_cfamily.sixteens import FUNCTIONS

COMPILERS = {
    "gcc": ("gcc",),
    **({"clang": ("clang",)} if shutil.which("clang") else {}),
    **({"zig": (sys.executable, "-m", "ziglang", "cc")} if find_spec("ziglang") else {}),
}
OWN = frozenset(name for name, row in DESCRIBED.items() if row.kind != "libm")
ODD = ("expm1", "log1p", "tanh", "sinh", "erf", "sin", "tan", "arctan", "arcsin", "arcsinh", "arctanh", "cbrt", "sqrt")

# What stands for the compiler's own names where there is no CUDA.
SHIM = """
#include <math.h>
#include <string.h>
#define __CUDACC__ 1
#define __device__
#define __forceinline__ inline
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
static inline float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
static inline long long __double_as_longlong(double x) { long long i; memcpy(&i, &x, 8); return i; }
static inline double __longlong_as_double(long long i) { double x; memcpy(&x, &i, 8); return x; }
"""


@pytest.fixture(scope="module")
def judge_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Judge]:
    """A judge by dtype: all functions are compiled once."""
    judge = Judge("float32", tmp_path_factory.mktemp("functions"))
    return {"float32": judge, "float64": judge.wide}.__getitem__


def test_functions_are_scalars_of_the_basis() -> None:
    assert {name: row.arity for name, row in DESCRIBED.items()} == {name: SCALARS[name].arity for name in DESCRIBED}


def test_every_function_that_is_called_is_in_the_header() -> None:
    defined = set(re.findall(r"^WX_FN \w+ (wx_\w+)\(", source(), re.M))
    wanted = {row.symbol for row in functions().values()} | {row.beyond for row in functions().values() if row.beyond}
    assert wanted <= defined
    assert {calls(name, dtype) for name in DESCRIBED for dtype in DTYPES} <= defined


def test_what_there_is_no_function_for() -> None:
    assert calls("floor", "float32") is None
    assert calls("exp", "int32") is None


def test_document_is_what_was_measured() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run `python -m waxeq_cfamily.accuracy --document`"


def test_own_functions_are_as_exact_as_was_aimed_at() -> None:
    """2 ULP, and for float64 a little more where sums would need two parts (tan: 2.27 of a hundred million)."""
    over = {row.symbol: row.largest_ulp for row in functions().values() if row.largest_ulp > 2.0}
    assert all(ulp <= 2.3 and name.endswith("_f64") for name, ulp in over.items()), over


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DESCRIBED)
def test_error_is_within_the_table(name: str, dtype: str, judge_of: Callable[[str], Judge]) -> None:
    """On samples and special numbers against libm; a wrong NaN, infinity or sign of zero is an infinite error."""
    found = judge_of(dtype).samples(name, 250_000, seed=0x5EED)
    assert found.judged > 200_000
    most = functions()[name, dtype].largest_ulp
    for build, worst in found.worst.items():
        assert worst.error <= most, f"{build}: {worst.error} at ({worst.x!r}, {worst.y!r}) gives {worst.value!r}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in DESCRIBED.items() if row.arity == 1])
def test_error_is_within_the_table_over_all_exponents(name: str, judge_of: Callable[[str], Judge]) -> None:
    """Every 1009th float32 of both signs, subnormals and NaNs too."""
    found = judge_of("float32").patterns(name, 0, 2**32, 1009)
    assert found.judged > 2_000_000
    most = functions()[name, "float32"].largest_ulp
    for build, worst in found.worst.items():
        assert worst.error <= most, f"{build}: {worst.error} at {worst.x!r} gives {worst.value!r}"


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_that_are_known(dtype: str, build: str, judge_of: Callable[[str], Judge]) -> None:
    judge, inf = judge_of(dtype), np.inf
    for name in ODD:
        zeros = judge.apply(build, name, np.array([0.0, -0.0]))
        assert zeros.tolist() == [0, 0] and np.signbit(zeros).tolist() == [False, True], name
    for name in sorted(OWN):
        assert np.isnan(judge.apply(build, name, np.array([np.nan, -np.nan]), np.array([2.0, 3.0]))).all(), name
    at_ends = {
        "exp": (inf, 0),
        "tanh": (1, -1),
        "erf": (1, -1),
        "sigmoid": (1, 0),
        "expm1": (inf, -1),
        "cosh": (inf, inf),
    }
    for name, ends in at_ends.items():
        assert tuple(judge.apply(build, name, np.array([inf, -inf]))) == ends, name
    assert judge.apply(build, "log", np.array([0.0, inf])).tolist() == [-inf, inf]
    assert judge.apply(build, "rsqrt", np.array([0.0, -0.0, inf])).tolist() == [inf, -inf, 0]
    assert judge.apply(build, "pow", np.array([np.nan, 1.0]), np.array([0.0, np.nan])).tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_stay_in_range(dtype: str, build: str, judge_of: Callable[[str], Judge]) -> None:
    """Rounding takes no value out of the range of its function."""
    judge, x = judge_of(dtype), np.random.default_rng(7).normal(0, 30, 1_000_000)
    for name in ("tanh", "erf", "sin", "cos"):
        assert np.abs(judge.apply(build, name, x)).max() <= 1, name
    sigmoid = judge.apply(build, "sigmoid", x)
    assert sigmoid.min() >= 0 and sigmoid.max() <= 1
    assert judge.apply(build, "exp", x).min() >= 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_beyond_the_limit(dtype: str, judge_of: Callable[[str], Judge]) -> None:
    limited = [(row.name, row.limit) for (_, d), row in functions().items() if d == dtype and row.limit]
    assert limited
    for name, limit in limited:
        x = np.array([limit, -limit, np.nextafter(np.dtype(dtype).type(limit), np.inf, dtype=dtype), 1e30], dtype)
        for build in BUILDS:
            found = judge_of(dtype).apply(build, name, x, np.ones_like(x))
            assert np.isnan(found).tolist() == [False, False, True, True], name


@pytest.mark.slow
def test_functions_for_what_is_beyond_the_limit(tmp_path: Path) -> None:
    """Of float32: vector code too, and as exact on all of float32 as the others are up to their limit."""
    rows = tuple(replace(DESCRIBED[n], limits=None, call=f"wx_far_{n}_{{d}}(x)") for n in ("sin", "cos", "tan"))
    wide = tuple(replace(row, limits=DESCRIBED[row.name].limits) for row in rows)
    judge = Judge("float32", tmp_path, rows=rows)
    judge.__dict__["wide"] = Judge("float64", tmp_path, rows=wide)
    for row in rows:
        assert functions()[row.name, "float32"].beyond == f"wx_far_{row.name}_f32"
        assert all(row.name in names for _, names in judge.loops.values())
        for found in (judge.patterns(row.name, 0, 2**32, 1009), judge.samples(row.name, 250_000, seed=3)):
            assert max(w.error for w in found.worst.values()) <= 1.57


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_remainders_beyond_the_limit_are_those_of_numpy(dtype: str, tmp_path: Path) -> None:
    """To the last bit and the sign of zero, however large the quotient; and so are those up to the limit."""
    of = {"fmod": np.fmod, "mod": np.mod, "floordiv": np.floor_divide}
    near = tuple(DESCRIBED[n] for n in of)
    far = tuple(replace(row, limits=None, call=f"wx_far_{row.name}_{{d}}(x, y)") for row in near)
    judges = [Judge(dtype, tmp_path / kind, rows=rows) for kind, rows in (("near", near), ("far", far))]
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=100_000) * np.exp2(rng.uniform(-60, 60, 100_000)) for _ in range(2))
    x[:7], y[:7] = (np.inf, 5, 0, -0.0, 3, -6, np.nan), (2, -np.inf, 0, 3, 0, 2, 1)
    x, y = x.astype(dtype), y.astype(dtype)
    for judge, name in ((j, n) for j in judges for n in of):
        judge.directory.mkdir(exist_ok=True)
        with np.errstate(all="ignore"):
            limit = judge.limit(name)
            within = ~(np.abs(x) > (limit or np.inf) * np.abs(y))
            assert within.sum() > 50_000
            want = of[name](x, y)[within]
        for build in BUILDS:
            found = judge.apply(build, name, x, y)[within]
            assert np.array_equal(found, want, equal_nan=True), name
            some = ~np.isnan(want)
            assert np.array_equal(np.signbit(found[some]), np.signbit(want[some])), name


@pytest.mark.slow
def test_exponential_of_what_is_zero_or_less(tmp_path: Path, judge_of: Callable[[str], Judge]) -> None:
    """The same as that of anything, to the last bit, down through the subnormals; vector code too."""
    judge = Judge("float32", tmp_path, rows=(replace(DESCRIBED["exp"], call=f"wx_{BELOW}_{{d}}(x)"),))
    assert all("exp" in names for _, names in judge.loops.values())
    x = np.arange(2**31, 2**32, 1009, dtype=np.uint32).view(np.float32)
    x = np.concatenate(
        [x, -np.geomspace(1e-8, 110, 1_000_000, dtype=np.float32), np.float32([0, -0.0, np.nan, -np.inf])]
    )
    for build in judge.builds("exp"):
        assert np.array_equal(judge.apply(build, "exp", x), judge_of("float32").apply(build, "exp", x), equal_nan=True)


def test_exponentials_of_sixteen_at_a_time_end_as_those_of_one(tmp_path: Path) -> None:
    """Subnormals, what overflows, NaN of both signs and infinities, at every place of a vector."""
    ends = [0, -0.0, 1, np.inf, -np.inf, np.nan, -np.nan, 88.72283, 88.72284, 89.5, -87.5, -103.97, -103.98, -1e30]
    x = np.tile(np.array(ends, "float32"), 17)
    for name in ("exp", BELOW):
        judge = Judge("float32", tmp_path, rows=(replace(DESCRIBED["exp"], call=f"wx_{name}_{{d}}(x)"),))
        assert FUNCTIONS[f"wx_{name}_f32"] in sixteens_text(judge.rows)
        some = x if name == "exp" else x[~(x > 0)]
        found, want = (judge.apply(build, "exp", some) for build in (SIXTEENS, "fused"))
        np.testing.assert_array_max_ulp(found[np.isfinite(want)], want[np.isfinite(want)], 2)
        assert np.array_equal(found[~np.isfinite(want)], want[~np.isfinite(want)], equal_nan=True)


SIXTEEN = tuple(name for name in DESCRIBED if f"wx_{name}_f32" in FUNCTIONS)


@pytest.mark.parametrize("name", SIXTEEN)
def test_what_takes_sixteen_ends_as_what_takes_one(name: str, tmp_path: Path) -> None:
    """Zeros, subnormals, what is below 0, infinities and NaN of both signs, at every place of a vector."""
    ends = [0, 1, np.inf, np.nan, 1e-45, 1e-40, 1.17549435e-38, 3.4028235e38, 1e30, 0.5, 3.9, 4.5, 9.5, 104, 1e-20]
    x = np.tile(np.array([*ends, *(-v for v in ends)], "float32"), 17)
    judge = Judge("float32", tmp_path, rows=(DESCRIBED[name],))
    assert FUNCTIONS[f"wx_{name}_f32"] in sixteens_text(judge.rows)
    found, want = (judge.apply(build, name, x) for build in (SIXTEENS, "fused"))
    finite = np.isfinite(want)
    np.testing.assert_array_max_ulp(found[finite], want[finite], 3)
    assert np.array_equal(found[~finite], want[~finite], equal_nan=True)
    real = ~np.isnan(want)
    assert np.array_equal(np.signbit(found[real]), np.signbit(want[real]))


@pytest.mark.parametrize("name", SIXTEEN)
def test_error_of_sixteen_at_a_time_is_within_the_table(name: str, tmp_path: Path) -> None:
    """Every 4001st float32 of both signs, subnormals and NaNs too, and samples."""
    judge = Judge("float32", tmp_path, rows=(DESCRIBED[name],))
    for found in (judge.patterns(name, 0, 2**32, 4001), judge.samples(name, 20_000, seed=0x5EED)):
        worst = found.worst[SIXTEENS]
        assert worst.error <= functions()[name, "float32"].largest_ulp, f"{worst.error} at {worst.x!r}"


def test_erf_of_sixteen_at_a_time_stays_in_range(tmp_path: Path) -> None:
    judge = Judge("float32", tmp_path, rows=(DESCRIBED["erf"],))
    x = np.linspace(3, 5, 1_000_000, dtype="float32")
    assert judge.apply(SIXTEENS, "erf", x).max() == 1


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_loops_become_vector_code(dtype: str, build: str, judge_of: Callable[[str], Judge]) -> None:
    """For this machine's own instructions, and for those that every machine of its kind has (SSE2)."""
    assert judge_of(dtype).loops[build][1] >= OWN


@pytest.mark.parametrize("compiler", COMPILERS)
def test_header_is_c11_without_warnings(compiler: str, tmp_path: Path) -> None:
    (tmp_path / "unit.c").write_text(source(), encoding="utf-8")
    flags = ("-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "unit.c", "-o", "unit.o")
    compiled(*COMPILERS[compiler], *flags, where=tmp_path)


def test_header_is_cuda_c_plus_plus(tmp_path: Path) -> None:
    """The branch for CUDA, in C++17, and with no include of its own."""
    assert "#include" not in source()
    real = {"float32": "float", "float64": "double"}
    uses = [
        f"{real[row.dtype]} (*use_{row.symbol})({', '.join([real[row.dtype]] * row.arity)}) = {row.symbol};"
        for row in functions().values()
    ]
    (tmp_path / "unit.cpp").write_text("\n".join([SHIM, source(), *uses]), encoding="utf-8")
    compiled("g++", "-std=c++17", "-Wall", "-Wno-unused-function", "-Werror", "-c", "unit.cpp", where=tmp_path)


def compiled(*command: str, where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_names_in_c() -> None:
    assert symbol("exp", "float32") == "wx_exp_f32" == calls("exp", "float32")
    assert HEADER.read_text(encoding="utf-8") == source()
