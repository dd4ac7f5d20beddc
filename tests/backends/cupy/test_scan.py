"""Running folds in CUDA C++, on the simulated device and through NVIDIA's compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.scalar import SCANS
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cupy import nvrtc
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.scan import Scans
from waxeq_cupy.simulated import Simulated

F16, F32, F64 = "float16", "float32", "float64"
KERNEL = Scans()


def call(meaning: Term, sizes: dict[str, int], operands: Sequence[str | View], out: str, dtype: str = F32) -> Call:
    views = tuple(v if isinstance(v, View) else View.dense(v, sizes, dtype) for v in operands)
    return Call("cupy.scan", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def _cases() -> Iterator[tuple[str, Call]]:
    x = operand(0, "ij", F32)
    ran = Term("Scan", "sum", "j", x)
    for rows, n in ((3, 1), (70, 3), (40, 64), (9, 129), (3, 4096), (2, 9001), (1, 40_000)):
        yield f"rows of {n}", call(ran, {"i": rows, "j": n}, ["ij"], "ij")
    down = Term("Scan", "sum", "i", x)
    for n, columns in ((5, 300), (70, 33), (1300, 8)):
        yield f"columns of {n}", call(down, {"i": n, "j": columns}, ["ij"], "ij")
    half = operand(0, "ij", F16)
    soft = Term("Mul", Term("Scan", "sum", "j", Term("Map", "exp", half)), operand(1, "j", F16))
    yield "halves, around", call(soft, {"i": 5, "j": 512}, ["ij", "j"], "ij", F16)
    yield "turned", call(Term("Scan", "prod", "j", operand(0, "ij", F64)), {"i": 33, "j": 40}, ["ji"], "ij", F64)
    back = View("ij", (6, 90), (-90, -1), F32, 539)  # pyright: ignore[reportArgumentType]
    yield "backwards", call(Term("Scan", "max", "j", x), {"i": 6, "j": 90}, [back], "ij")
    for kind, dtype in (("min", "int8"), ("sum", "bool"), ("prod", "int64"), ("max", "bfloat16")):
        t = Term("Scan", kind, "j", operand(0, "ij", dtype))
        yield f"{kind} of {dtype}", call(t, {"i": 3, "j": 8300 if kind == "max" else 200}, ["ij"], "ij", dtype)
    rows = Term("Scan", "sum", "j", Term("Gather", "k", operand(0, "i", "int64"), operand(1, "kj", F32)))
    sizes = {"i": 7, "k": 4, "j": 50}
    yield "looked up", call(rows, sizes, [View.dense("i", sizes, "int64"), "kj"], "ij")


CASES = dict(_cases())


def launches(c: Call) -> tuple[Launch, ...]:
    works = (KERNEL.work(c, aligned=a) for a in (True, False))
    return tuple(x for w in works if w is not None for x in w.launches)


@pytest.fixture
def device(simulated_with: Callable[[Iterable[Launch]], Simulated]) -> Simulated:
    return simulated_with(x for c in CASES.values() for x in launches(c))


@pytest.mark.parametrize("name", CASES)
def test_a_scan_is_what_it_means(name: str, device: Simulated) -> None:
    assert KERNEL.matches(CASES[name].meaning) and KERNEL.accepts(CASES[name])
    for device.order in (0, 4):
        assert check_call(KERNEL, CASES[name], np.random.default_rng(device.order)) is None


def ran(c: Call, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for step in KERNEL.bind(c, [x], out, np.empty(KERNEL.workspace(c), np.uint8)):
        step()
    return out


def test_every_kind_runs_through_nan_zeros_and_infinities(device: Simulated) -> None:
    rows = [[-0.0, -0.0, 3, np.nan, 1], [np.inf, 2, -np.inf, 1, 0], [-0.0, 0.0, -1, 1e30, 1e30]]
    x = np.asarray([[*r, *([1, 2] * 30)] for r in rows], np.float32)
    for kind in SCANS:
        c = call(Term("Scan", kind, "j", operand(0, "ij", F32)), {"i": 3, "j": 65}, ["ij"], "ij")
        out = ran(c, x)
        with np.errstate(all="ignore"):
            want = getattr(np, {"sum": "add", "prod": "multiply"}.get(kind, kind + "imum")).accumulate(x, 1)
        np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
        np.testing.assert_allclose(out, want, 1e-6)
        np.testing.assert_array_equal(np.signbit(out[0, :2]), np.signbit(want[0, :2]))


def test_long_rows_and_columns_are_cut_in_pieces(device: Simulated) -> None:
    count = {n: w.launches for n, c in CASES.items() if (w := KERNEL.work(c)) is not None}
    cut = {n for n, some in count.items() if len(some) == 2}
    assert cut == {"rows of 9001", "rows of 40000", "columns of 1300", "max of bfloat16"}
    assert KERNEL.features(CASES["rows of 40000"])["launches"] == 2
    results = []
    x = np.random.default_rng(0).standard_normal((1, 40_000)).astype(np.float32)
    for device.order in (0, 1, 2):
        results.append(ran(CASES["rows of 40000"], x))
    assert all(np.array_equal(results[0], r) for r in results), "the order of threads changes no bit"


@pytest.mark.slow
def test_drawn_scans_are_what_they_mean(device: Simulated) -> None:
    assert check_kernel("cupy.scan", KERNEL, calls=2, seed=1).require().calls >= len(SCANS)


def test_what_is_no_scan() -> None:
    x = operand(0, "ij", F32)
    both = Term("Zip", "sub", Term("Scan", "sum", "j", x), Term("Sum", "j", x))
    twice = Term("Scan", "max", "j", Term("Scan", "sum", "j", x))
    sizes = {"i": 3, "j": 4}
    for t in (both, twice):
        assert not KERNEL.accepts(call(t, sizes, ["ij"], "ij"))
    assert not KERNEL.accepts(call(Term("Scan", "prod", "j", operand(0, "ij", F16)), sizes, ["ij"], "ij", F16))
    assert not KERNEL.matches(Term("Sum", "j", x))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_scans_compile_and_spill_nothing(architecture: str, compiler: nvrtc.Nvrtc) -> None:
    kernels = {x.name: x for c in CASES.values() for x in launches(c)}
    found = compiler.cubin(prelude() + "\n".join(x.source for x in kernels.values()), architecture).kernels
    assert found.keys() == kernels.keys()
    for name, r in found.items():
        assert r.spilled == r.stack == 0 and r.registers <= 64 and r.shared <= 48 << 10, kernels[name].text


def test_rows_are_read_once_and_16_bytes_at_a_time(compiler: nvrtc.Nvrtc) -> None:
    w = KERNEL.work(CASES["rows of 4096"])
    assert w is not None and len(w.launches) == 1
    text = compiler.ptx(prelude() + w.launches[0].source, "compute_90")
    assert text.count("ld.global.nc.v4") == 1 and text.count("st.global.v4") == 1 and ".local" not in text
