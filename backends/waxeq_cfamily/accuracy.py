"""Measures functions.h: `python -m waxeq_cfamily.accuracy` writes accuracy.json and docs/functions.md.

All functions are judged on dense samples and special numbers against libm, in long double (float64) or float64
(float32); those of one float32 besides on all 2^32 inputs, or every `--step`th, against the same function for float64.
Each is judged as the loop that generated kernels have, compiled with fused multiply-add and without; and what has a
function of sixteen elements at a time also as that. Takes about half an hour on two cores; what else runs then matters
only for the nanoseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np

from waxeq_cfamily.functions import DESCRIBED, DTYPES, HERE, MEASURED, Described, functions, limit_of, symbol
from waxeq_cfamily.sixteens import FUNCTIONS, beginning, in_sixteens

DOCUMENT = HERE.parents[1] / "docs" / "functions.md"

FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
BUILDS = MappingProxyType(
    {
        "fused": ("-march=native", "-ffp-contract=fast"),
        "plain": ("-ffp-contract=off",),  # on x86-64: SSE2 alone
    }
)
SIXTEENS = "sixteens"
"""The build of loops over sixteen elements at a time, of functions that have such; the same as fused where a machine
has no such vectors."""
REAL = MappingProxyType({"float32": ("float", "F32"), "float64": ("double", "F64")})
SPECIAL = (
    *(0.0, 1.0, 2.0, 0.5, 3.0, 1.5, 4.0, 7.0, 128.0, 149.0, 150.0, 1024.0, 1074.0, 1075.0, 1e15, 8388607.0, 8388607.5),
    *(16777215.0, 16777216.0, 9007199254740991.0, 9007199254740992.0, 4503599627370495.5, 88.72283, 88.72284, 89.41598),
    *(103.97208, 87.33655, 709.782712893384, 710.4758600739439, 745.1332191019412, 708.3964185322641, 1e30, 1e300),
    *(1e-30, 1e-40, 1.4e-45, 1e-310, 5e-324, 1.17549435e-38, 2.2250738585072014e-308, 3.4028235e38),
    *(1.7976931348623157e308, 0.9999999999999999, 0.99999994, 1.0000001, 1.0000000000000002, math.pi, math.inf),
)
"""Both signs of each are judged, and NaN."""


class Worst(ctypes.Structure):
    """The largest error that was found, in ULP, and where."""

    _fields_ = (
        ("error", ctypes.c_double),
        ("x", ctypes.c_double),
        ("y", ctypes.c_double),
        ("value", ctypes.c_double),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What a judgement found: how many inputs it judged, and the worst of each build."""

    judged: int
    worst: Mapping[str, Worst]


def loops_text(rows: Iterable[Described], dtype: str) -> str:
    """A loop over each function, one a line: line numbers tell which of them a compiler has vectorized."""
    real, _ = REAL[dtype]
    lines = [f'#include "{HERE / "functions.h"}"', "#include <stdint.h>"]
    for row in rows:
        name, arguments = symbol(row.name, dtype), "x, y" if row.arity == 2 else "x"
        call = row.call.format(s=name, d=DTYPES[dtype]) if row.call else f"{name}({arguments})"
        call = re.sub(r"\b([xy])\b", r"\1[i]", call)
        lines.append(
            f"void loop_{name}(int64_t n, const {real} *restrict x, const {real} *restrict y, {real} *restrict out)"
            f' {{ (void)y; _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = {call}; }}'
        )
    return "\n".join(lines) + "\n"


def sixteens_text(rows: Iterable[Described]) -> str:
    """A loop over each function of float32 that is there for sixteen elements, as kernels have it."""
    lines = [f'#include "{HERE / "functions.h"}"', "#include <stdint.h>", beginning()]
    for row in rows:
        name = symbol(row.name, "float32")
        call = row.call.format(s=name, d=DTYPES["float32"]) if row.call else f"{name}(x)"
        lines += [
            f"void loop_{name}(int64_t n, const float *restrict x, const float *restrict y, float *restrict out) {{",
            "  (void)y;",
            "  #pragma omp simd",
            "  for (int64_t i = 0; i < n; i++) {",
            "    const float r0 = x[i];",
            f"    const float r1 = {call.replace('(x)', '(r0)')};",
            "    out[i] = r1;",
            "  }",
            "}",
        ]
    return in_sixteens("\n".join(lines) + "\n")


def judge_text(rows: Iterable[Described], dtype: str) -> str:
    """accuracy.c for a dtype, with the reference of each function."""
    lines = [f"#define {REAL[dtype][1]}", f'#include "{HERE / "accuracy.c"}"']
    for row in rows:
        body = row.reference.format(w="l" if dtype == "float64" else "")
        name = symbol(row.name, dtype)
        lines.append(f"wide reference_{name}(wide x, wide y) {{ (void)x, (void)y; return {body}; }}")
        lines.append(
            f"void references_{name}(int64_t n, const wide *x, const wide *y, wide *out)"
            f" {{ for (int64_t i = 0; i < n; i++) out[i] = reference_{name}(x[i], y[i]); }}"
        )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Judge:
    """Loops over functions of one dtype, compiled in every build, and what judges them.

    command: the compiler. directory: where sources and libraries go.
    """

    dtype: str
    directory: Path
    command: tuple[str, ...] = ("gcc",)
    rows: tuple[Described, ...] = tuple(DESCRIBED.values())

    def compile(self, name: str, text: str, *flags: str, to: str = "so") -> tuple[Path, str]:
        """The library (or assembly, `to` "s") made of a text, and what the compiler said."""
        stem = f"{name}_{DTYPES[self.dtype]}"
        path, made = self.directory / f"{stem}.c", self.directory / f"{stem}.{to}"
        path.write_text(text, encoding="utf-8")
        form = "-S" if to == "s" else "-shared"
        command = [*self.command, *FLAGS, *flags, form, str(path), "-o", str(made), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
        return made, done.stderr

    @cached_property
    def loops(self) -> Mapping[str, tuple[ctypes.CDLL, frozenset[str]]]:
        """The loops in each build, and the names of those that gcc says it has vectorized."""
        text, out = loops_text(self.rows, self.dtype), {}
        for build, flags in BUILDS.items():
            made, said = self.compile(build, text, *flags, "-fopt-info-vec")
            lines = {int(n) for n in re.findall(rf"{build}_f..\.c:(\d+):\d+: optimized: loop vectorized", said)}
            names = frozenset(row.name for line, row in enumerate(self.rows, 3) if line in lines)
            out[build] = ctypes.CDLL(str(made)), names
        return out

    @cached_property
    def sixteens(self) -> ctypes.CDLL:
        """The loops over sixteen elements at a time."""
        text = sixteens_text(row for row in self.rows if SIXTEENS in self.builds(row.name))
        return ctypes.CDLL(str(self.compile(SIXTEENS, text, *BUILDS["fused"])[0]))

    def builds(self, name: str) -> tuple[str, ...]:
        """The builds that a function is judged in."""
        return (*BUILDS, *(SIXTEENS,) * (symbol(name, self.dtype) in FUNCTIONS))

    def built(self, build: str) -> ctypes.CDLL:
        """The loops of a build."""
        return self.sixteens if build == SIXTEENS else self.loops[build][0]

    @cached_property
    def wide(self) -> Judge:
        """The judge of float64."""
        return Judge("float64", self.directory, self.command, self.rows)

    @cached_property
    def library(self) -> ctypes.CDLL:
        """accuracy.c."""
        made = ctypes.CDLL(str(self.compile("judge", judge_text(self.rows, self.dtype), "-march=native")[0]))
        for how in ("judge_samples", *(("judge_patterns",) if self.dtype == "float32" else ())):
            getattr(made, how).restype = ctypes.c_int64
        made.nanoseconds.restype = ctypes.c_double
        return made

    def limit(self, name: str) -> float | None:
        """As `limit_of` has it."""
        return limit_of(self.row(name), self.dtype)

    def row(self, name: str) -> Described:
        """What is known of a function."""
        return next(row for row in self.rows if row.name == name)

    def loop(self, build: str, name: str) -> int:
        """The address of a function's loop."""
        return _address(self.built(build), f"loop_{symbol(name, self.dtype)}")

    def apply(self, build: str, name: str, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """The function over arrays of the dtype, by the loop of a build."""
        x = np.ascontiguousarray(x, self.dtype)
        other, out = np.ascontiguousarray(x if y is None else y, self.dtype), np.empty_like(x)
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, other, out))
        getattr(self.built(build), f"loop_{symbol(name, self.dtype)}")(ctypes.c_int64(x.size), *pointers)
        return out

    def patterns(self, name: str, begin: int, end: int, step: int) -> Found:
        """Judges every step-th bit pattern of float32 from begin to end, against the function for float64, or libm's
        where that ends sooner."""
        span = (ctypes.c_uint64(begin), ctypes.c_uint64(end), ctypes.c_uint64(step))
        wide = self.wide.loop("fused", name)
        if not self.limit(name) and self.wide.limit(name):
            wide = _address(self.library, f"references_{symbol(name, self.dtype)}")
        return self._judge(name, self.library.judge_patterns, wide, *span)

    def samples(self, name: str, count: int, seed: int) -> Found:
        """Judges as many samples, and all pairs of special numbers."""
        with np.errstate(over="ignore", under="ignore"):
            special = np.array([*SPECIAL, *(-x for x in SPECIAL), math.nan], self.dtype)
        given = (ctypes.c_int(self.row(name).arity), ctypes.c_int64(count), ctypes.c_uint64(seed))
        at = (ctypes.c_void_p(special.ctypes.data), ctypes.c_int64(special.size))
        reference = _address(self.library, f"reference_{symbol(name, self.dtype)}")
        return self._judge(name, self.library.judge_samples, reference, *given, *at)

    def _judge(self, name: str, how: Callable[..., int], against: int, *arguments: object) -> Found:
        limit = self.limit(name) or 0.0
        builds = self.builds(name)
        worst = (Worst * len(builds))(*(Worst(-1.0) for _ in builds))
        loops = (ctypes.c_void_p * len(builds))(*(self.loop(build, name) for build in builds))
        count = ctypes.c_int64(len(builds))
        judged = how(ctypes.c_void_p(against), loops, count, ctypes.c_double(limit), *arguments, worst)
        return Found(judged, dict(zip(builds, worst, strict=True)))

    def nanoseconds(self, name: str, tries: int = 300) -> float:
        """Of one element in cache, by the fused build: the best of many tries."""
        return self.library.nanoseconds(ctypes.c_void_p(self.loop("fused", name)), ctypes.c_int64(tries))

    def instructions(self) -> Mapping[str, float]:
        """Instructions of one element's share of a vector of AVX2, by name, counted in the assembly on x86-64."""
        made, _ = self.compile("assembly", loops_text(self.rows, self.dtype), "-mavx2", "-mfma", to="s")
        return _counted(made.read_text(encoding="utf-8"), self.dtype)


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _counted(assembly: str, dtype: str) -> Mapping[str, float]:
    """For each loop_wx_NAME_DTYPE: the instructions of its innermost vector loop over the elements one round does."""
    found: dict[str, float] = {}
    for name, body in re.findall(rf"^loop_wx_(\w+)_{DTYPES[dtype]}:\n(.*?)\.cfi_endproc", assembly, re.M | re.S):
        for label, inside in re.findall(r"^(\.L\d+):\n((?:(?!^\.L).*\n)*?)\tj\w+\t\1$", body, re.M):
            steps = [int(n) for n in re.findall(r"add[ql]\t\$(\d+), %r\w+", inside) if int(n) >= 32]
            if label and steps and "ymm" in inside:
                count = len(re.findall(r"^\t[a-z]", inside, re.M)) + 1
                found.setdefault(name, round(count * np.dtype(dtype).itemsize / max(steps), 2))
    return found


def _merged(found: Sequence[Found]) -> Found:
    """The worst of several judgements."""
    worst = {build: max((f.worst[build] for f in found), key=lambda w: w.error) for build in found[0].worst}
    return Found(sum(f.judged for f in found), worst)


def _row(row: Described, dtype: str, found: Found, judge: Judge, counted: Mapping[str, float]) -> dict:
    build, worst = max(found.worst.items(), key=lambda item: item[1].error)
    return {
        "largest_ulp": _rounded_up(worst.error),
        "at": [repr(worst.x), repr(worst.y)][: row.arity],
        "build": build,
        **{b: _rounded_up(w.error) for b, w in found.worst.items()},
        "judged": found.judged,
        "instructions": counted[row.name],
        "nanoseconds": round(judge.nanoseconds(row.name), 2),
    }


def _rounded_up(error: float) -> float:
    """To three digits: a test holds functions to it."""
    return math.ceil(error * 1000) / 1000 if math.isfinite(error) else error


def measure(step: int, samples: int, names: Sequence[str], jobs: int, directory: Path) -> dict[str, dict]:
    """What accuracy.json says of the functions named, by C name."""
    out: dict[str, dict] = {}
    for dtype in DTYPES:
        judge = Judge(dtype, directory)
        counted = judge.instructions()
        for name in names:
            row, quarter = DESCRIBED[name], 2**32 // (4 * jobs)
            with ThreadPoolExecutor(jobs) as pool:
                tasks = [pool.submit(judge.samples, name, samples // (4 * jobs), k) for k in range(4 * jobs)]
                if dtype == "float32" and row.arity == 1:
                    spans = [(k * quarter, (k + 1) * quarter) for k in range(4 * jobs)]
                    tasks += [pool.submit(judge.patterns, name, *span, step) for span in spans]
                found = _merged([task.result() for task in tasks])
            out[symbol(name, dtype)] = _row(row, dtype, found, judge, counted)
            print(symbol(name, dtype), out[symbol(name, dtype)], file=sys.stderr, flush=True)
    return out


def document() -> str:
    """docs/functions.md."""
    lines = [
        "# Scalar functions of generated kernels",
        "",
        "Generated by `python -m waxeq_cfamily.accuracy` from `functions.h` and what was measured; a test holds the",
        "functions to it. ULP: the largest error in units in the last place, of loops compiled with fused multiply-add",
        "and without it (0.5 is rounded right), on samples of all exponents, dense ranges and special numbers, and for",
        "functions of one float32 on bit patterns in even steps (4.3e+09 inputs: on all of them). Instructions (AVX2)",
        "and nanoseconds are of one element. With AVX-512 and gcc, loops of kernels compute some functions of sixteen",
        "elements at a time in another way, and what is left of a row as everywhere: what is said of NaN, infinities",
        "and subnormals is true of both.",
        "",
        *_behaviour(),
        "",
        "| function | dtype | kind | ULP fused | ULP plain | worst at | inputs | instructions | ns | note |",
        "|---|---|---|---:|---:|---|---:|---:|---:|---|",
    ]
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    for (name, dtype), row in functions().items():
        found = measured["functions"][row.symbol]
        of = "x" if row.arity == 1 else "x / y"
        limit = rf"\|{of}\| ≤ 2^{math.log2(row.limit):.0f}; " if row.limit else ""
        many = f"of sixteen at a time {found[SIXTEENS]:g} ULP" if SIXTEENS in found else ""
        lines.append(
            f"| `{name}` | {dtype} | {row.kind} | {found['fused']:g} | {found['plain']:g} "
            f"| {', '.join(f'{float(x):.6g}' for x in found['at'])} | {found['judged']:.2g} "
            f"| {found['instructions']} | {found['nanoseconds']} | {limit}{row.note}{many} |"
        )
    return "\n".join([*lines, "", f"Measured on: {measured['machine']}.", ""])


def _behaviour() -> Sequence[str]:
    return (
        "For all of them: NaN gives NaN (but `pow(1, NaN)`, `pow(NaN, 0)` and `hypot(inf, NaN)`, as in C); infinities,",
        "overflow, poles and -0 give what C's libm gives; subnormal inputs and results are not flushed. No exception",
        "flag is promised. `sin`, `cos` and `tan` beyond their limit give NaN: a kernel that meets such an argument",
        "computes again with `wx_far_sin_f32` and so on, which take any: in float32 vector code of twice the work and",
        "the same errors, in float64 libm's. So it does for `fmod`, `mod` and `floordiv`, whose limit is of |x / y|,",
        "by libm's fmod. `exact` functions are the machine's own operations, or have what NumPy computes of these, bit",
        "for bit.",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and writes accuracy.json and docs/functions.md; see `--help`."""
    parser = argparse.ArgumentParser(prog="python -m waxeq_cfamily.accuracy", description=__doc__)
    parser.add_argument("names", nargs="*", help="functions to measure anew (default: all)")
    parser.add_argument("--step", type=int, default=1, help="judge every STEP-th float32 (default: all)")
    parser.add_argument("--samples", type=int, default=200_000_000, help="samples of the other functions")
    parser.add_argument("--jobs", type=int, default=2, help="threads")
    parser.add_argument("--document", action="store_true", help="only write docs/functions.md")
    given = parser.parse_args(arguments)
    if not given.document:
        found = json.loads(MEASURED.read_text(encoding="utf-8"))["functions"] if MEASURED.exists() else {}
        with tempfile.TemporaryDirectory() as directory:
            names = given.names or list(DESCRIBED)
            found |= measure(given.step, given.samples, names, given.jobs, Path(directory))
        gcc = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        text = json.dumps({"machine": f"{platform.machine()}, {gcc}", "functions": found}, indent=1)
        MEASURED.write_text(text + "\n", encoding="utf-8")
    functions.cache_clear()
    DOCUMENT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
