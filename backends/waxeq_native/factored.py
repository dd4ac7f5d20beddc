"""Batches of small matrices: systems of equations, Cholesky factors and determinants, a vector of matrices at a time.

LAPACK is called matrix by matrix, and most of a call on a small one is the call. Here the elements that several
matrices have at one place lie side by side, so that every step of the elimination is a vector's; rows are exchanged as
LAPACK does it, for each matrix by itself, by choosing between both.

Source: J. J. Dongarra et al., A Proposed API for Batched Basic Linear Algebra Subprograms, 2016 (interleaved batches).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Features
from waxeq.basis.heads import MATRICES
from waxeq.basis.matrices import places
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.taken import NAME
from waxeq_native.steps import INDEFINITE, OPERANDS, OUT_PLACE, SINGULAR
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_MOST, _SIDES = 32, 64
"""Rows of a matrix, and right sides of one, up to which a vector of matrices takes less than one after another: what is
computed lies in the second cache at least."""
_VECTOR = 64
"""Bytes of what is computed at once: the longest vector there is; machines of shorter ones take some steps for it."""


def takes(pattern: str, call: Call) -> bool:
    """Whether a call is of the head that a kernel's pattern has, and of a dtype of matrices that are factored."""
    return call.meaning.head == pattern[1:].split()[0] and call.out.dtype in MATRICES


@dataclass(frozen=True)
class Batch:
    """A canonical call: the axes of rows i and columns j, n of each; axes around them, `around`, with their sizes; and
    those of right sides alone, `sides`."""

    call: Call
    i: str
    j: str
    around: tuple[tuple[str, int], ...]
    sides: tuple[tuple[str, int], ...]

    @staticmethod
    def of(call: Call) -> Batch | None:
        """None where the result has axes that the meaning has not."""
        c = call.canonical
        i, j, _ = places(c.meaning.head, c.meaning.args)
        around = [k for k in c.operands[0].axes if k not in (i, j)]
        sides = [k for v in c.operands[1:] for k in v.axes if k != i and k not in around]
        made = {"Solve": {j}, "Triangular": {j}, "Cholesky": {i, j}}.get(c.meaning.head, set())
        if {*c.out.axes} != {*around, *sides, *made}:
            return None
        around.sort(key=lambda k: -abs(c.operands[0].stride(k) or 0))
        rows = (tuple((k, c.sizes[k]) for k in axes) for axes in (around, sides))
        return Batch(c, i, j, *rows)

    @property
    def n(self) -> int:
        return self.call.sizes[self.i]

    @property
    def m(self) -> int:
        """Right sides of a matrix."""
        return math.prod(size for _, size in self.sides)

    @property
    def count(self) -> int:
        """Matrices."""
        return math.prod(size for _, size in self.around)

    @property
    def dtype(self) -> str:
        return self.call.out.dtype

    @property
    def lanes(self) -> int:
        """Matrices in a vector."""
        return _VECTOR // numpy_dtype(self.dtype).itemsize

    @property
    def groups(self) -> int:
        return -(-self.count // self.lanes)

    def begins(self, v: View) -> str:
        """Where the matrix number `at` of an operand or of the result begins, in elements."""
        rest, terms = "at", []
        for k, size in reversed(self.around):
            step = v.stride(k) or 0
            terms += [f"{rest} % {size} * {step}"] if step else []
            rest = f"{rest} / {size}"
        return " + ".join(terms) or "0"

    def aside(self, v: View) -> str:
        """Where each right side begins, as the elements of an array."""
        steps = [v.stride(k) or 0 for k, _ in self.sides]
        every = product(*(range(size) for _, size in self.sides))
        return ", ".join(str(sum(p * s for p, s in zip(at, steps, strict=True))) for at in every)


def _lanes(*lines: str) -> Iterator[str]:
    """Lines for each matrix of a vector."""
    yield '  _Pragma("omp simd")'
    yield "  for (int l = 0; l < W; l++) { " + " ".join(lines) + " }"


def _begin(b: Batch) -> Iterator[str]:
    """Names, and the loop over vectors of matrices; a last one that is not full has its last matrix several times. A
    product that is not rounded before it is subtracted would leave its rounding error where a pivot is zero."""
    t = CTYPES[b.dtype]
    names = {"n": b.n, "m": b.m, "W": b.lanes}
    yield from ("#ifndef __clang__", '__attribute__((optimize("fp-contract=off")))', "#endif")
    yield f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{"
    yield "#pragma clang fp contract(off)"
    yield "  (void)thread;"
    yield f"  enum {{ {', '.join(f'{k} = {v}' for k, v in names.items())} }};"
    yield f"  const {t} *x = (const {t} *)args[{OPERANDS}];"
    yield f"  {t} *out = ({t} *)args[{OUT_PLACE}];"
    yield "  int bad = 0;"
    yield "  for (int64_t g = begin; g < end; g++) {"
    yield f"  {t} a[n][n][W] __attribute__((aligned({_VECTOR})));"
    yield f"  const int full = {b.count} - g * W < W ? (int)({b.count} - g * W) : W;"
    yield "  int64_t from[W], to[W];"
    yield "  for (int l = 0; l < W; l++) {"
    yield "    const int64_t at = g * W + (l < full ? l : full - 1);"
    yield f"    from[l] = {b.begins(b.call.operands[0])}; to[l] = {b.begins(b.call.out)};"
    yield "  }"


def _end(code: int) -> Iterator[str]:
    yield "  }"
    yield f"  if (bad) ((wx_context *)args[0])->outside = {code};"  # 0: nothing is wrong
    yield "}"


def _read(b: Batch, lower: bool = False) -> Iterator[str]:
    v = b.call.operands[0]
    row, column = v.stride(b.i) or 0, v.stride(b.j) or 0
    yield f"  for (int r = 0; r < n; r++) for (int c = 0; c < {'r + 1' if lower else 'n'}; c++)"
    yield f"  for (int l = 0; l < W; l++) a[r][c][l] = x[from[l] + r * {row} + c * {column}];"


def _eliminated(t: str, sides: bool) -> Iterator[str]:
    """Steps of the elimination with partial pivoting, applied to right sides where there are some. `flips`: whether the
    sign of the determinant is the other one. Multipliers are products with a reciprocal where that is a number; of a
    pivot of zero, below which there is nothing to eliminate, they are zero."""
    s, least = ("f", "0x1p-126f") if t == "float" else ("", "0x1p-1022")
    yield "  for (int k = 0; k < n; k++) {"
    yield f"  {t} most[W], by[W]; int which[W]; int tiny = 0;"
    yield from _lanes(f"most[l] = __builtin_fabs{s}(a[k][k][l]); which[l] = k;")
    yield "  for (int r = k + 1; r < n; r++)"
    yield from _lanes(
        f"const {t} size = __builtin_fabs{s}(a[r][k][l]); const int more = size > most[l];",
        "most[l] = more ? size : most[l]; which[l] = more ? r : which[l];",
    )
    yield "  for (int r = k + 1; r < n; r++) {"
    yield "  for (int c = k; c < n; c++)"
    yield from _lanes(*_exchanged(t, "a[k][c][l]", "a[r][c][l]"))
    if sides:
        yield "  for (int c = 0; c < m; c++)"
        yield from _lanes(*_exchanged(t, "b[k][c][l]", "b[r][c][l]"))
    else:
        yield from _lanes("flips[l] ^= which[l] == r;")
    yield "  }"
    yield "  for (int l = 0; l < W; l++) { bad |= most[l] == 0; " + f"tiny |= most[l] > 0 && most[l] < {least}; }}"
    yield from _lanes("by[l] = most[l] == 0 ? 0 : 1 / a[k][k][l];")
    yield "  for (int r = k + 1; r < n; r++) {"
    yield f"  {t} f[W];"
    yield "  if (tiny)"
    yield from _lanes("f[l] = most[l] == 0 ? 0 : a[r][k][l] / a[k][k][l];")
    yield "  else"
    yield from _lanes("f[l] = a[r][k][l] * by[l];")
    yield "  for (int c = k + 1; c < n; c++)"
    yield from _lanes("a[r][c][l] -= f[l] * a[k][c][l];")
    if sides:
        yield "  for (int c = 0; c < m; c++)"
        yield from _lanes("b[r][c][l] -= f[l] * b[k][c][l];")
    yield "  }"
    yield "  }"


def _exchanged(t: str, one: str, other: str) -> tuple[str, ...]:
    """Two elements, exchanged where the pivot lies in row r."""
    return (
        f"const {t} p = {one}, q = {other}; const int it = which[l] == r;",
        f"{one} = it ? q : p; {other} = it ? p : q;",
    )


class _Factored(NativeKernel):
    _code = SINGULAR

    def work(self, call: Call) -> Work | None:
        if not takes(self.pattern, call):
            return None
        b = Batch.of(call)
        if b is None or not 1 <= b.n <= _MOST or b.m > _SIDES:
            return None
        if b.count * b.m == 0:
            return Work(tuple)
        grain = max(1, min(b.groups, round(GRAIN / (b.lanes * self.operations(b)))))
        return Work(lambda: (Part("\n".join(self.lines(b)), b.groups, grain),), may_fail=self._code > 0)

    @abstractmethod
    def operations(self, b: Batch) -> float:
        """Of one matrix."""

    @abstractmethod
    def lines(self, b: Batch) -> Iterator[str]:
        """The C of a vector of matrices after another."""

    def features(self, call: Call) -> Features:
        b = Batch.of(call)
        assert b is not None
        moved = float(call.bytes_read + call.out.bytes)
        return {"launches": 1.0, "bytes": moved, "operations": b.groups * b.lanes * self.operations(b)}


class Solve(_Factored):
    """Systems of equations with a small matrix each, by elimination with partial pivoting."""

    name = "solve"
    pattern = "(Solve i j a b)"

    def operations(self, b: Batch) -> float:
        return float(b.n**3 + 2 * b.n * b.n * b.m + 4 * b.n)

    def lines(self, b: Batch) -> Iterator[str]:
        t, (_, right) = CTYPES[b.dtype], b.call.operands
        yield from _begin(b)
        yield f"  static const int64_t aside[m] = {{{b.aside(right)}}}, placed[m] = {{{b.aside(b.call.out)}}};"
        yield f"  const {t} *y = (const {t} *)args[{OPERANDS + 1}];"
        yield f"  {t} b[n][m][W] __attribute__((aligned({_VECTOR})));"
        yield from _read(b)
        yield "  for (int l = 0; l < W; l++) {"
        yield "    const int64_t at = g * W + (l < full ? l : full - 1);"
        yield f"    const {t} *own = y + ({b.begins(right)});"
        yield "    for (int r = 0; r < n; r++) for (int c = 0; c < m; c++)"
        yield f"      b[r][c][l] = own[r * {right.stride(b.i) or 0} + aside[c]];"
        yield "  }"
        yield from _eliminated(t, True)
        yield "  for (int k = n - 1; k >= 0; k--) for (int c = 0; c < m; c++) {"
        yield f"  {t} s[W];"
        yield from _lanes("s[l] = b[k][c][l];")
        yield "  for (int r = k + 1; r < n; r++)"
        yield from _lanes("s[l] -= a[k][r][l] * b[r][c][l];")
        yield from _lanes("b[k][c][l] = s[l] / a[k][k][l];")
        yield "  }"
        yield "  for (int l = 0; l < full; l++) for (int r = 0; r < n; r++) for (int c = 0; c < m; c++)"
        yield f"    out[to[l] + r * {b.call.out.stride(b.j) or 0} + placed[c]] = b[r][c][l];"
        yield from _end(self._code)


class Cholesky(_Factored):
    """Cholesky factors of small matrices, row by row."""

    name = "cholesky"
    pattern = "(Cholesky i j a)"
    _code = INDEFINITE

    def operations(self, b: Batch) -> float:
        return float(b.n**3 / 3 + 2 * b.n * b.n)

    def lines(self, b: Batch) -> Iterator[str]:
        t, out = CTYPES[b.dtype], b.call.out
        row, column = out.stride(b.i) or 0, out.stride(b.j) or 0
        yield from _begin(b)
        yield from _read(b, lower=True)
        yield "  for (int k = 0; k < n; k++) {"
        yield f"  {t} by[W];"
        yield "  for (int c = 0; c < k; c++)"
        yield from _lanes("a[k][k][l] -= a[k][c][l] * a[k][c][l];")
        yield "  for (int l = 0; l < W; l++) bad |= a[k][k][l] <= 0;"
        yield from _lanes(
            f"a[k][k][l] = __builtin_sqrt{'f' if t == 'float' else ''}(a[k][k][l]); by[l] = 1 / a[k][k][l];"
        )
        yield "  for (int r = k + 1; r < n; r++) {"
        yield "  for (int c = 0; c < k; c++)"
        yield from _lanes("a[r][k][l] -= a[r][c][l] * a[k][c][l];")
        yield from _lanes("a[r][k][l] *= by[l];")
        yield "  }"
        yield "  }"
        yield "  for (int l = 0; l < full; l++) for (int r = 0; r < n; r++) for (int c = 0; c < n; c++)"
        yield f"    out[to[l] + r * {row} + c * {column}] = c <= r ? a[r][c][l] : 0;"
        yield from _end(self._code)


class Determinant(_Factored):
    """Determinants of small matrices: the product of the pivots, as a number and a power of two, which does not
    overflow."""

    name = "determinant"
    pattern = "(Det f i j a)"
    _code = 0

    def operations(self, b: Batch) -> float:
        return float(b.n**3 + 20 * b.n)

    def lines(self, b: Batch) -> Iterator[str]:
        t = CTYPES[b.dtype]
        yield from _begin(b)
        yield "  int flips[W] = {0};"
        yield from _read(b)
        yield from _eliminated(t, False)
        yield "  for (int l = 0; l < full; l++) {"
        yield "    double part = flips[l] ? -1 : 1; int64_t power = 0;"
        yield "    for (int k = 0; k < n; k++) { int e = 0; part *= __builtin_frexp(a[k][k][l], &e); power += e; }"
        yield f"    out[to[l]] = ({t})({_OF_A_PRODUCT[b.call.meaning.args[0]]});"
        yield "  }"
        yield from _end(self._code)


_OF_A_PRODUCT = {
    "det": "__builtin_ldexp(part, (int)power)",
    "sign": "part < 0 ? -1 : part != 0",
    "logabs": "__builtin_log(__builtin_fabs(part)) + (double)power * 0x1.62e42fefa39efp-1",
}
"""Of part * 2**power, which is 0 where a pivot was."""

KERNELS = (Solve, Cholesky, Determinant)
