"""Products of matrices by NVIDIA's own library, with a bias, ReLU or GELU after them.

The GELU of the library is that with tanh, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (D. Hendrycks, K. Gimpel,
2016), and only what is that function is taken for it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.kernel import Instruction
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.values import Unsupported, Values, pointed
from waxeq_cupy import device
from waxeq_cupy.cublaslt import TYPES, WORKSPACE, Matrix, Multiplication
from waxeq_cupy.gemm import Gemm
from waxeq_cupy.kernels import Work, decided
from waxeq_cupy.products import Product, Read, plain, steps

_LONGEST = 1 << 31
"""What the sizes and steps of a matrix are below."""
_CLOSE = 1e-6
"""How far two texts of one function may be apart, whose constants are written with some digits."""
_BIAS_BEGINS = 16
"""Bytes at multiples of which a bias is to begin."""
_ANALYTIC: Mapping[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "sub": np.subtract,
    "div": np.divide,
    "neg": np.negative,
    "square": np.square,
    "recip": np.reciprocal,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
"""Functions that are what they are near 0 wherever they are defined: two made of these that are one on many points are
one."""


def multiplication(p: Product) -> Multiplication:
    """What the library is asked for. Raises Unsupported."""
    values = p.values
    if any(len(x) != 1 for x in (p.rows, p.columns, p.depths)) or len(p.around) > 1:
        raise Unsupported("axes that are no matrix")
    left, right = plain(values, p.left), plain(values, p.right)
    out = Read(-1, values.rows[values.root].dtype, values.out.const, steps(values, values.out))
    fast, slow = p.rows[0], p.columns[0]
    if out.steps.get(slow) == 1:
        left, right, fast, slow = right, left, slow, fast
    sizes, depth = values.sizes, p.depths[0]
    if left.dtype not in TYPES or left.dtype != right.dtype or out.dtype not in (left.dtype, "float32"):
        raise Unsupported("dtypes that the library does not multiply")
    if min(sizes[fast], sizes[slow], sizes[depth]) < 2:
        raise Unsupported("no matrices")
    around = p.around[0] if p.around else None
    a, a_turned = _matrix(left, left.operand, fast, depth, sizes, around)
    b, b_turned = _matrix(right, right.operand, depth, slow, sizes, around)
    c, c_turned = _matrix(out, None, fast, slow, sizes, around)
    if c_turned:
        raise Unsupported("a result whose elements lie apart")
    epilogue, bias = _epilogue(p, fast, out.dtype)
    if epilogue and (around is not None or left.dtype == "float64"):
        raise Unsupported("what the library does not do after such a product")
    return Multiplication(a, b, c, (a_turned, b_turned), epilogue, bias)


def _matrix(
    x: Read, operand: int | None, down: str, across: str, sizes: Mapping[str, int], around: str | None
) -> tuple[Matrix, bool]:
    """The matrix whose columns lie along `down`, and whether it lies in memory the other way round. Raises
    Unsupported."""
    turned = x.steps.get(down) != 1
    rows, columns = (across, down) if turned else (down, across)
    step, batch_step = x.steps.get(columns, 0), x.steps.get(around, 0) if around else 0
    if x.steps.get(rows) != 1 or not sizes[rows] <= step < _LONGEST or batch_step < 0 or sizes[columns] >= _LONGEST:
        raise Unsupported("a matrix that does not lie in columns")
    if set(x.steps) - {rows, columns, around}:
        raise Unsupported("other axes")
    batch = sizes[around] if around else 1
    apart = batch_step >= step * sizes[columns] or (batch_step >= sizes[rows] and batch_step * batch <= step)
    if operand is None and batch > 1 and not apart:
        raise Unsupported("results that lie in each other")
    return Matrix(operand, x.dtype, sizes[rows], sizes[columns], step, batch, batch_step, x.offset), turned


def _epilogue(p: Product, fast: str, dtype: str) -> tuple[str, tuple[int, int] | None]:
    """What comes after the product, and the bias. Raises Unsupported where the library does not do it."""
    values, n, kind = p.values, p.values.root, ""
    rows = values.rows
    n = _uncast(values, n)
    if rows[n].op == "apply" and rows[n].name == "max":
        zero = [a for a in rows[n].args if rows[a].op == "number" and float(rows[a].name) == 0]
        if len(zero) != 1:
            raise Unsupported("another maximum")
        kind, n = "relu", _uncast(values, next(a for a in rows[n].args if a != zero[0]))
    elif n != p.fold and not _biased(p, n, fast, dtype):
        inner = _inner(p, n, fast, dtype)
        x = np.linspace(-9, 9, 241)
        wanted = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        made = _evaluated(values, n, {inner: x})
        if not np.all(np.abs(made - wanted) <= _CLOSE * (1 + np.abs(wanted))):
            raise Unsupported("another function")
        kind, n = "gelu", inner
    if n == p.fold:
        return kind, None
    bias = _biased(p, n, fast, dtype)
    if bias is None:
        raise Unsupported("more than a bias")
    return f"{kind} bias".strip(), bias


def _uncast(values: Values, n: int) -> int:
    """What was widened, or rounded as the result is: the library rounds once, at the end."""
    r = values.rows[n]
    if r.op != "apply" or r.name != "Cast" or r.dtype not in TYPES:
        return n
    (x,) = r.args
    widened = numpy_dtype(r.dtype).itemsize > numpy_dtype(values.rows[x].dtype).itemsize
    return _uncast(values, x) if widened or n == values.root else n


def _biased(p: Product, n: int, fast: str, dtype: str) -> tuple[int, int] | None:
    """The bias, if a row is its sum with the product: its operand, and the element where it begins."""
    rows = p.values.rows
    if rows[n].op != "apply" or rows[n].name != "Add":
        return None
    args = [_uncast(p.values, a) for a in rows[n].args]
    if p.fold not in args:
        return None
    r = rows[args[1 - args.index(p.fold)]]
    if r.op != "load" or r.guards or r.dtype != dtype or any(True for _ in pointed(r.name[1])):
        return None
    number, where = r.name
    begins = where.const * numpy_dtype(dtype).itemsize % _BIAS_BEGINS == 0
    return (number, where.const) if where.terms == ((fast, 1),) and begins else None


def _inner(p: Product, n: int, fast: str, dtype: str) -> int:
    """What a function of one number is taken of: the product, or its sum with the bias."""
    sums = [m for m in p.cone(n) if _biased(p, m, fast, dtype)]
    return sums[0] if sums else p.fold


def _evaluated(values: Values, n: int, known: Mapping[int, np.ndarray]) -> np.ndarray:
    """A row in float64. Raises Unsupported for what is no function of what is known."""
    if n in known:
        return known[n]
    r = values.rows[n]
    if r.op == "number":
        return np.asarray(float(r.name))
    if r.op != "apply" or (r.name not in _ANALYTIC and r.name != "Cast") or r.dtype not in TYPES:
        raise Unsupported("another function")
    args = [_evaluated(values, a, known) for a in r.args]
    with np.errstate(all="ignore"):
        return args[0] if r.name == "Cast" else _ANALYTIC[r.name](*args)


class CublasGemm(Gemm):
    """Products of matrices by cuBLASLt, plain or with a bias, ReLU or the GELU with tanh after them."""

    name = "gemm_cublas"

    @property
    def code(self) -> str:
        """With the version of the library."""
        try:
            blas = device.current().blas
        except device.MissingDevice:
            blas = None
        version = "none" if blas is None else str(blas.version)
        return hashlib.sha256(f"{super().code}|{version}".encode()).hexdigest()[:16]

    def multiplication(self, call: Call) -> Multiplication:
        """What the library is asked for. Raises Unsupported, also where it is not here or has no way."""

        def find() -> Multiplication:
            m, blas = multiplication(self.product(call)), device.current().blas
            if blas is None or not blas.takes(m):
                raise Unsupported("no library for it")
            return m

        return decided(call, ("cublas", device.identity()), find)

    def _work(self, call: Call, aligned: bool) -> Work | None:
        """None of our own launches."""
        try:
            if call.out.elements == 0:
                return None
            self.multiplication(call)
        except (Unsupported, device.MissingDevice):
            return None
        return Work((), WORKSPACE)

    def in_place(self, call: Call) -> tuple[int, ...]:
        """None: the library does not say what it reads when."""
        return ()

    def features(self, call: Call) -> Mapping[str, float]:
        return {
            "launches": 1.0,
            "bytes": float(call.bytes_read + call.out.bytes),
            "flops": 2.0 * self.product(call).volume,
        }

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        return device.current().multiplied(self.multiplication(call), operands, out, workspace)


KERNELS = (CublasGemm,)
