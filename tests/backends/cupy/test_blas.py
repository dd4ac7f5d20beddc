"""Products by NVIDIA's library, which stands in here for itself: it keeps what it is told, holds every call to its
order, and multiplies."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.storage import DeviceArray
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_cupy import backend, cublaslt
from waxeq_cupy import device as devices
from waxeq_cupy.blas import CublasGemm
from waxeq_cupy.copied import Copied
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.cublaslt import EPILOGUES, TYPES, WORKSPACE, Cublaslt
from waxeq_cupy.driver import Driver
from waxeq_cupy.gpu import Gpu, Segment

F16, BF16, F32, F64 = "float16", "bfloat16", "float32", "float64"
KERNEL = CublasGemm()
_DTYPES = {number: name for name, number in TYPES.items()}
_NAMES = {number: name for name, number in EPILOGUES.items()}


class StandBlas:
    """The functions of libcublasLt that are used, on the memory and the stream of a driver that stands in too."""

    def __init__(self, stand: Any) -> None:
        self.stand = stand
        self.things: dict[int, dict[Any, Any]] = {}
        self.calls: list[str] = []
        self.least: list[int] = []
        self.ways = 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublasLt"):
            raise AttributeError(name)

        def called(*arguments: Any) -> int:
            self.calls.append(name)
            if name != "cublasLtMatmul":
                assert self.stand.capturing is None, "nothing is made or asked for while a stream is captured"
            for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
                if name == f"cublasLt{kind}Create":
                    return self._made({"kind": kind, "made": arguments[1:]}, arguments[0])
                if name == f"cublasLt{kind}SetAttribute":
                    return self._set(kind, *arguments)
                if name == f"cublasLt{kind}Destroy":
                    del self.things[arguments[0].value]
                    return 0
            return getattr(self, "_" + name)(*arguments)

        called.argtypes = None  # pyright: ignore[reportFunctionMemberAccess]
        setattr(self, name, called)
        return called

    def _made(self, thing: dict[Any, Any], to: Any) -> int:
        number = len(self.calls)
        self.things[number] = thing
        to._obj.value = number
        return 0

    def _set(self, kind: str, what: Any, attribute: int, value: Any, size: int) -> int:
        thing = self.things[what.value]
        assert thing["kind"] == kind and size == ctypes.sizeof(value._obj)
        thing[attribute] = value._obj.value
        return 0

    def _cublasLtGetVersion(self) -> int:
        return 130100

    def _cublasLtCreate(self, to: Any) -> int:
        return self._made({"kind": "handle"}, to)

    def _cublasLtMatmulAlgoGetHeuristic(self, handle: Any, d: Any, *rest: Any) -> int:
        *_, c, same, preference, count, found, number = rest
        assert self.things[handle.value]["kind"] == "handle" and c.value == same.value and count == 1
        p = self.things[preference.value]
        assert p[1] == WORKSPACE
        self.least = [p[n] for n in (5, 6, 7, 8)]
        if self.things[d.value].get(7, 1) in (4, 6, 36):
            assert self.things[d.value][8], "a bias lies somewhere"
        number._obj.value = self.ways
        found._obj.algorithm[0] = 77
        return 0

    def _cublasLtMatmul(self, handle: Any, d: Any, alpha: Any, *rest: Any) -> int:
        a, la, b, lb, beta, c, lc, to, lto, algorithm, room, size, stream = rest
        assert (alpha._obj.value, beta._obj.value) == (1, 0) and c == to and lc.value == lto.value
        assert algorithm._obj[0] == 77 and size == WORKSPACE and stream in (77, 0)
        self.stand.memory.around(room, size)
        about, layouts = self.things[d.value], [self.things[x.value] for x in (la, lb, lc)]
        for p, n in zip((a, b, c, to), self.least, strict=True):
            assert p % n == 0, "an address is no multiple of what was promised"
        compute, scale = about["made"]
        assert (compute, scale, type(alpha._obj)) in ((68, 0, ctypes.c_float), (70, 1, ctypes.c_double))
        views = [self._view(x, p) for x, p in zip(layouts, (a, b, to), strict=True)]
        if stream:
            self.stand.later(lambda: self._multiplied(about, views), "matmul")
        else:
            self._multiplied(about, views)
        return 0

    def _view(self, layout: dict[Any, Any], address: int) -> np.ndarray:
        """Batches of matrices in the order of Fortran, all of which lie in memory that was allocated."""
        kind, rows, columns, step = layout["made"]
        batch, apart = layout.get(5, 1), layout.get(6, 0)
        assert step >= rows > 0 and columns > 0
        item = numpy_dtype(_DTYPES[kind]).itemsize
        reach = ((batch - 1) * apart + (columns - 1) * step + rows) * item
        self.stand.memory.around(address, reach)
        raw = (ctypes.c_uint8 * reach).from_address(address)
        flat = np.frombuffer(raw, numpy_dtype(_DTYPES[kind]))
        return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), (apart * item, item, step * item))

    def _multiplied(self, about: dict[Any, Any], views: list[np.ndarray]) -> None:
        a, b, out = views
        x = np.swapaxes(a, 1, 2) if about[3] else a
        y = np.swapaxes(b, 1, 2) if about[4] else b
        z = x.astype(np.float64) @ y.astype(np.float64)
        epilogue = _NAMES[about[7]]
        if "bias" in epilogue:
            dtype = numpy_dtype(_DTYPES[about[26]])
            self.stand.memory.around(about[8], out.shape[1] * dtype.itemsize)
            raw = (ctypes.c_uint8 * (out.shape[1] * dtype.itemsize)).from_address(about[8])
            z = z + np.frombuffer(raw, dtype).astype(np.float64)[:, None]
        if "relu" in epilogue:
            z = np.maximum(z, 0)
        if "gelu" in epilogue:
            z = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        out[...] = z


def product(a: str, b: str, dtype: str) -> Term:
    return Term("Sum", "k", Term("Mul", operand(0, a, dtype), operand(1, b, dtype)))


def gelu(x: Term, dtype: str, cubed: float = 0.044715) -> Term:
    cube = Term("Mul", Term("Num", cubed, dtype), Term("Mul", x, Term("Map", "square", x)))
    t = Term("Map", "tanh", Term("Mul", Term("Num", 0.7978845608, dtype), Term("Add", x, cube)))
    return Term("Mul", Term("Mul", Term("Num", 0.5, dtype), x), Term("Add", Term("Num", 1.0, dtype), t))


def quick(x: Term, dtype: str) -> Term:
    """The same function, as some write it."""
    cube = Term("Mul", Term("Num", 0.044715 * 2 * 0.7978845608, dtype), Term("Mul", Term("Mul", x, x), x))
    return Term("Mul", Term("Map", "sigmoid", Term("Add", cube, Term("Mul", Term("Num", 1.5957691216, dtype), x))), x)


SIZES = {"m": 33, "n": 24, "k": 40, "b": 3}


def call(t: Term, operands: list[str], out: str, dtype: str, sizes: dict[str, int] = SIZES) -> Call:
    views = tuple(View.dense(v, sizes, dtype) for v in operands)
    return Call("cupy.gemm_cublas", t, sizes, views, View.dense(out, sizes, types(t)[t].dtype))


def _cases() -> Iterator[tuple[str, str, Call]]:
    for a, b, out in (("mk", "kn", "mn"), ("km", "nk", "mn"), ("mk", "nk", "nm"), ("km", "kn", "nm")):
        yield f"{a} {b} {out}", "", call(product(a, b, F32), [a, b], out, F32)
    yield "float64", "", call(product("mk", "kn", F64), ["mk", "kn"], "mn", F64)
    yield "a batch", "", call(product("bmk", "bkn", F16), ["bmk", "bkn"], "mbn", F16)
    wide = Term("Sum", "k", Term("Mul", *(Term("Cast", F32, operand(i, a, BF16)) for i, a in enumerate(("mk", "kn")))))
    yield "narrow sides, wide sums", "", call(wide, ["mk", "kn"], "mn", BF16)
    for dtype in (F16, F32):
        p, bias, zero = product("mk", "kn", dtype), operand(2, "n", dtype), Term("Num", 0.0, dtype)
        y = Term("Add", bias, p)
        yield f"{dtype} bias", "bias", call(y, ["mk", "kn", "n"], "mn", dtype)
        yield f"{dtype} relu", "relu", call(Term("Zip", "max", zero, p), ["mk", "kn"], "mn", dtype)
        yield f"{dtype} relu bias", "relu bias", call(Term("Zip", "max", y, zero), ["mk", "kn", "n"], "mn", dtype)
        yield f"{dtype} gelu", "gelu", call(gelu(p, dtype), ["mk", "kn"], "mn", dtype)
        yield f"{dtype} gelu bias", "gelu bias", call(gelu(y, dtype), ["mk", "kn", "n"], "mn", dtype)
    yield "another text", "gelu bias", call(quick(y, F32), ["mk", "kn", "n"], "mn", F32)


CASES = {name: (epilogue, c) for name, epilogue, c in _cases()}


@pytest.fixture
def blas(stand: Any, monkeypatch: pytest.MonkeyPatch) -> StandBlas:
    found = StandBlas(stand)
    monkeypatch.setattr(cublaslt.Cublaslt, "found", staticmethod(lambda: Cublaslt(found)))
    return found


@pytest.fixture
def gpu(stand: Any, blas: StandBlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.delenv(devices.VARIABLE)
    found = Gpu(Driver(stand), Cubins(tmp_path, None, "sm_90"))
    monkeypatch.setattr(devices, "_gpu", lambda: found)
    return found


def _ran(gpu: Gpu, c: Call, rng: np.random.Generator, times: int = 1) -> tuple[list[np.ndarray], np.ndarray]:
    """What a call makes of numbers drawn, after so many runs."""
    s = gpu.storage
    operands = [rng.standard_normal(v.shape).astype(numpy_dtype(v.dtype)) for v in c.operands]
    arrays: list[DeviceArray] = [s.uploaded(x) for x in operands]
    out = s.uploaded(np.full(c.out.shape, np.nan, numpy_dtype(c.out.dtype)))
    workspace = s.uploaded(np.zeros(KERNEL.workspace(c), np.uint8))
    step = Segment(s, KERNEL.bind(c, arrays, out, workspace))  # pyright: ignore[reportArgumentType]
    for _ in range(times):
        step()
    return operands, out.get()


@pytest.mark.parametrize("name", CASES)
def test_the_library_is_asked_for_what_a_call_means(name: str, gpu: Gpu, blas: StandBlas) -> None:
    epilogue, c = CASES[name]
    assert KERNEL.accepts(c) and KERNEL.workspace(c) == WORKSPACE
    assert KERNEL.multiplication(c).epilogue == epilogue
    operands, out = _ran(gpu, c, np.random.default_rng(0))
    letters = {name: chr(97 + i) for i, name in enumerate("mnkb")}

    def spelled(axes: tuple[str, ...]) -> str:
        return "".join(letters[k] for k in axes)

    sides = ",".join(spelled(v.axes) for v in c.operands[:2])
    want = np.einsum(f"{sides}->{spelled(c.out.axes)}", *(x.astype(np.float64) for x in operands[:2]))
    want = want + (operands[2].astype(np.float64) if "bias" in epilogue else 0)
    want = np.maximum(want, 0) if "relu" in epilogue else want
    if "gelu" in epilogue:
        want = 0.5 * want * (1 + np.tanh(math.sqrt(2 / math.pi) * (want + 0.044715 * want**3)))
    error = np.abs(out.astype(np.float64) - want).max() / np.sqrt(np.mean(want**2))
    assert error < {F16: 4e-3, BF16: 4e-3, F32: 1e-6, F64: 1e-14}[c.out.dtype]


def test_it_is_started_on_the_stream_and_captured_without_a_question(gpu: Gpu, blas: StandBlas) -> None:
    _, c = CASES["float16 gelu bias"]
    KERNEL.accepts(c)
    _ran(gpu, c, np.random.default_rng(1), times=3)
    started = blas.stand.started
    assert started.count("matmul") == 2 and started.count("graph") == 2, "once, once captured, and its graph twice"
    asked = len(blas.calls) - 1 - blas.calls[::-1].index("cublasLtMatmulAlgoGetHeuristic")
    assert set(blas.calls[asked + 1 :]) <= {"cublasLtMatmul", "cublasLtMatmulPreferenceDestroy"} | {
        x for x in blas.calls if x.endswith("Destroy")
    }


def test_the_library_knows_where_matrices_begin(gpu: Gpu, blas: StandBlas) -> None:
    sizes = {"m": 8, "n": 8, "k": 8}
    view = View("mk", (8, 8), (8, 1), F32, 3)  # pyright: ignore[reportArgumentType]
    c = Call("cupy.gemm_cublas", product("mk", "kn", F32), sizes, (view, View.dense("kn", sizes, F32)),
             View.dense("mn", sizes, F32))  # fmt: skip
    s = gpu.storage
    memory = s.uploaded(np.arange(80, dtype=np.float32))
    x = DeviceArray(s, memory.address + 12, (8, 8), (32, 4), memory.dtype, memory.owner)
    y, out = s.uploaded(np.eye(8, dtype=np.float32)), s.uploaded(np.zeros((8, 8), np.float32))
    room = s.uploaded(np.zeros(WORKSPACE, np.uint8))
    for f in KERNEL.bind(c, [x, y], out, room):  # pyright: ignore[reportArgumentType]
        f()
    assert blas.least == [256, 4, 256, 256], "y is the first matrix of the library"
    np.testing.assert_array_equal(out.get(), np.arange(3, 67, dtype=np.float32).reshape(8, 8))


def test_what_is_made_is_given_back(gpu: Gpu, blas: StandBlas) -> None:
    import gc

    _ran(gpu, CASES["float32 bias"][1], np.random.default_rng(0))
    gc.collect()
    assert {x["kind"] for x in blas.things.values()} == {"handle"}


def test_what_the_library_does_not_do(gpu: Gpu, blas: StandBlas) -> None:
    p, y = product("mk", "kn", F32), Term("Add", product("mk", "kn", F32), operand(2, "n", F32))
    half = Term("Num", 0.5, F32)
    erf = Term("Map", "erf", Term("Mul", p, Term("Num", 0.7071067811865476, F32)))
    erf = Term("Mul", Term("Mul", half, p), Term("Add", Term("Num", 1.0, F32), erf))
    for t, operands in (
        (Term("Map", "tanh", p), ["mk", "kn"]), (erf, ["mk", "kn"]), (gelu(p, F32, 0.044), ["mk", "kn"]),
        (Term("Zip", "max", p, half), ["mk", "kn"]), (Term("Mul", y, half), ["mk", "kn", "n"]),
        (Term("Add", p, operand(2, "m", F32)), ["mk", "kn", "m"]),
        (Term("Add", p, operand(2, "mn", F32)), ["mk", "kn", "mn"]),
        (Term("Sum", "k", Term("Mul", Term("Map", "exp", operand(0, "mk", F32)), operand(1, "kn", F32))), ["mk", "kn"]),
    ):  # fmt: skip
        assert not KERNEL.accepts(call(t, operands, "mn", F32)), t
    assert KERNEL.accepts(CASES["float32 bias"][1])
    blas.ways = 0
    assert not CublasGemm().accepts(call(product("mk", "kn", F16), ["mk", "kn"], "mn", F16)), "it has no way"


def test_it_is_offered_where_it_is_installed(gpu: Gpu, blas: StandBlas, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cupy.gemm_cublas" in backend().kernels and "cuBLASLt 130100" in gpu.about

    def nowhere() -> Cublaslt:
        raise cublaslt.MissingLibrary("nowhere")

    monkeypatch.setattr(cublaslt.Cublaslt, "found", staticmethod(nowhere))
    del gpu.blas
    assert "cupy.gemm_cublas" not in backend().kernels and "pip install nvidia-cublas" in gpu.about
    monkeypatch.setenv(devices.VARIABLE, devices.SIMULATED)
    assert "cupy.gemm_cublas" not in backend().kernels


def test_on_copies_it_multiplies_as_well(stand: Any, blas: StandBlas, tmp_path: Path, monkeypatch: Any) -> None:
    found = Copied(Driver(stand), Cubins(tmp_path, None, "sm_90"))
    monkeypatch.setenv(devices.VARIABLE, devices.COPIED)
    monkeypatch.setattr(devices, "_copied", lambda: found)
    _, c = CASES["mk kn mn"]
    assert KERNEL.accepts(c)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(v.shape).astype(np.float32) for v in c.operands)
    out = np.empty(c.out.shape, np.float32)
    for f in KERNEL.bind(c, [x, y], out, np.empty(WORKSPACE, np.uint8)):
        f()
    np.testing.assert_allclose(out, x @ y, 1e-4, 1e-5)
    assert not stand.memory.blocks, "what was allocated is given back"
