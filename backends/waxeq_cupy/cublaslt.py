"""NVIDIA's own library of products of matrices, by ctypes: cuBLASLt.

It comes with CUDA, with the wheel `nvidia-cublas` and with torch. What a product takes (descriptors, its algorithm, its
workspace) is made when it is prepared; starting it allocates nothing and asks nothing, so that it may be captured.

Source: cuBLAS library documentation, https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api; numbers of
enumerators are those of cublasLt.h and library_types.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from waxeq.errors import WaxeqError
from waxeq.ir.types import numpy_dtype
from waxeq_cupy.nvrtc import libraries

TYPES: Mapping[str, int] = MappingProxyType({"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14})
"""CUDA_R_32F, _64F, _16F, _16BF."""
_COMPUTE = {"float32": 68, "float64": 70}
"""CUBLAS_COMPUTE_32F (never tf32), _64F."""
EPILOGUES: Mapping[str, int] = MappingProxyType(
    {"": 1, "relu": 2, "bias": 4, "relu bias": 6, "gelu": 32, "gelu bias": 36}
)
"""CUBLASLT_EPILOGUE_DEFAULT, _RELU, _BIAS, _RELU_BIAS, _GELU, _GELU_BIAS. The GELU is that with tanh."""
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26
"""CUBLASLT_MATMUL_DESC_..."""
_BATCH, _BATCH_STEP = 5, 6
"""CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, _STRIDED_BATCH_OFFSET."""
_ROOM, _ALIGNMENTS = 1, (5, 6, 7, 8)
"""CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _MIN_ALIGNMENT_A_BYTES and those of B, C, D."""
WORKSPACE = 32 << 20
"""Bytes that NVIDIA recommends for its largest GPUs."""
_ALIGNED = 256

_P = ctypes.c_void_p
_TAKES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_P,),
    "cublasLtMatmulDescCreate": (_P, ctypes.c_int, ctypes.c_int),
    "cublasLtMatmulDescSetAttribute": (_P, ctypes.c_int, _P, ctypes.c_size_t),
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatrixLayoutCreate": (_P, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutSetAttribute": (_P, ctypes.c_int, _P, ctypes.c_size_t),
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, ctypes.c_int, _P, ctypes.c_size_t),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_P,) * 7, ctypes.c_int, _P, _P),
    "cublasLtMatmul": (*(_P,) * 14, ctypes.c_size_t, _P),
}
"""Parameters of the functions that are used; each answers 0 when all went well."""


class MissingLibrary(WaxeqError):
    """cuBLASLt is not on this machine; says what to install."""

    exit_code = 5


class LibraryFailed(WaxeqError):
    """cuBLASLt refused something."""


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory, or `batch` of them, `batch_step` elements apart: `rows` that lie side by side, `columns` that
    begin `step` elements apart (the order of Fortran). It is operand number `operand` (None: the result), from element
    `offset` on."""

    operand: int | None
    dtype: str
    rows: int
    columns: int
    step: int
    batch: int = 1
    batch_step: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Multiplication:
    """out = epilogue(op(a) op(b) + bias), where op turns a side that is `turned`. `bias`: an operand and the element
    where a vector begins in it, which is added to every column of the result."""

    a: Matrix
    b: Matrix
    out: Matrix
    turned: tuple[bool, bool]
    epilogue: str = ""
    bias: tuple[int, int] | None = None

    @property
    def scale(self) -> str:
        """The dtype of sums."""
        return "float64" if self.a.dtype == "float64" else "float32"


class Cublaslt:
    """The library, for the GPU of the calling thread."""

    def __init__(self, library: Any) -> None:
        self._library = library
        for name, takes in _TAKES.items():
            getattr(library, name).argtypes = takes
        library.cublasLtGetVersion.restype = ctypes.c_size_t

    @staticmethod
    def found() -> Cublaslt:
        """The first that loads of those that wheels bring and the one of the system. Raises MissingLibrary."""
        for path in libraries("libcublasLt", "cublas"):
            try:
                return Cublaslt(ctypes.CDLL(path))
            except (OSError, AttributeError):
                continue
        raise MissingLibrary(
            "There is no cuBLASLt on this machine, and products are made by our own kernels alone: "
            "`pip install nvidia-cublas` brings it."
        )

    @cached_property
    def version(self) -> int:
        """130100 is 13.1."""
        return int(self._library.cublasLtGetVersion())

    @cached_property
    def _handle(self) -> ctypes.c_void_p:
        return self._made("cublasLtCreate")

    def call(self, name: str, *arguments: object) -> None:
        """A function of the library. Raises LibraryFailed."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise LibraryFailed(f"{name} failed with code {code}.")

    def takes(self, m: Multiplication) -> bool:
        """Whether the library has a way to make a product, wherever its matrices begin."""
        try:
            described = _Described(self, m, None)
            described.algorithm([numpy_dtype(x.dtype).itemsize for x in (m.a, m.b, m.out, m.out)], WORKSPACE)
        except LibraryFailed:
            return False
        return True

    def prepared(
        self, m: Multiplication, operands: Sequence[int], out: int, workspace: tuple[int, int], stream: int
    ) -> Callable[[], None]:
        """What starts a product on a stream. `operands` and `out` are addresses, `workspace` an address and bytes that
        nobody else uses meanwhile. Raises LibraryFailed."""
        bias = None
        if m.bias is not None:
            number, at = m.bias
            bias = operands[number] + at * numpy_dtype(m.out.dtype).itemsize
        described = _Described(self, m, bias)
        places = [
            (out if x.operand is None else operands[x.operand]) + x.offset * numpy_dtype(x.dtype).itemsize
            for x in (m.a, m.b, m.out)
        ]
        a, b, c = places
        room, size = workspace
        algorithm = described.algorithm([min(p & -p, _ALIGNED) if p else _ALIGNED for p in (a, b, c, c)], size)
        kind = ctypes.c_double if m.scale == "float64" else ctypes.c_float
        one, zero = kind(1), kind(0)
        x, y, z = described.layouts
        row = (
            self._handle, described.descriptor, ctypes.byref(one), a, x, b, y, ctypes.byref(zero), c, z, c, z,
            ctypes.byref(algorithm), room, size, stream,
        )  # fmt: skip

        def start(_: Any = (described, one, zero, algorithm)) -> None:  # what is pointed to lives as long as this
            self.call("cublasLtMatmul", *row)

        return start

    def _made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made


class _Described:
    """A product in the terms of the library, which is told when nobody needs it any longer."""

    def __init__(self, library: Cublaslt, m: Multiplication, bias: int | None) -> None:
        self._library = library
        self.descriptor = self._own("MatmulDesc", _COMPUTE[m.scale], TYPES[m.scale])
        self._set("MatmulDesc", self.descriptor, _TRANSA, ctypes.c_int(m.turned[0]))
        self._set("MatmulDesc", self.descriptor, _TRANSB, ctypes.c_int(m.turned[1]))
        self._set("MatmulDesc", self.descriptor, _EPILOGUE, ctypes.c_int(EPILOGUES[m.epilogue]))
        if m.bias is not None:
            # an algorithm is looked for before it is known where the bias lies: any address that is not null
            self._set("MatmulDesc", self.descriptor, _BIAS_POINTER, ctypes.c_void_p(bias or _ALIGNED))
            self._set("MatmulDesc", self.descriptor, _BIAS_TYPE, ctypes.c_int(TYPES[m.out.dtype]))
        self.layouts = tuple(map(self._layout, (m.a, m.b, m.out)))

    def _own(self, kind: str, *arguments: object) -> ctypes.c_void_p:
        made = self._library._made(f"cublasLt{kind}Create", *arguments)
        weakref.finalize(self, self._library.call, f"cublasLt{kind}Destroy", made).atexit = False
        return made

    def _set(self, kind: str, what: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        self._library.call(f"cublasLt{kind}SetAttribute", what, attribute, ctypes.byref(value), size)

    def _layout(self, x: Matrix) -> ctypes.c_void_p:
        made = self._own("MatrixLayout", TYPES[x.dtype], x.rows, x.columns, x.step)
        if x.batch > 1:
            self._set("MatrixLayout", made, _BATCH, ctypes.c_int(x.batch))
            self._set("MatrixLayout", made, _BATCH_STEP, ctypes.c_int64(x.batch_step))
        return made

    def algorithm(self, alignments: Sequence[int], room: int) -> Any:
        """The way that the library finds best, for matrices a, b, c and d that begin at multiples of so many bytes and
        so much workspace. Raises LibraryFailed where it has none."""
        preference = self._own("MatmulPreference")
        self._set("MatmulPreference", preference, _ROOM, ctypes.c_size_t(room))
        for attribute, n in zip(_ALIGNMENTS, alignments, strict=True):
            self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(n))
        found, count = _Found(), ctypes.c_int()
        a, b, c = self.layouts
        self._library.call(
            "cublasLtMatmulAlgoGetHeuristic", self._library._handle, self.descriptor, a, b, c, c, preference, 1,
            ctypes.byref(found), ctypes.byref(count),
        )  # fmt: skip
        if not count.value or found.state:
            raise LibraryFailed("cuBLASLt has no way to make this product.")
        return found.algorithm
