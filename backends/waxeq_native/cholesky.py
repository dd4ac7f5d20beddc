"""Cholesky factors of matrices that are not small, in blocks of rows.

What is computed is the upper factor, whose rows lie where they are read as vectors; the lower one is its transpose. A
block of rows is made of the matrix, negated, and of the product of all rows above, which the kernels of products add to
it: each element is written once, however many blocks there are. Then its square is factored, and the rest of its rows
is solved by that.

Source: R. A. van de Geijn and E. S. Quintana-Orti, The Science of Programming Matrix Computations, 2008 (left-looking).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waxeq.backend.call import Call
from waxeq.backend.kernel import Features
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.taken import NAME
from waxeq_native.factored import Batch, takes
from waxeq_native.gemm import entry
from waxeq_native.steps import INDEFINITE, OPERANDS, OUT_PLACE
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_ROWS = 16
"""Rows of a block: a row of its square is a vector or two. With more rows squares, which no product makes, are more of
a matrix."""
_ABREAST = 4
"""Vectors of columns that are solved at once: their sums stay in registers."""
_TURNED = 16
"""Rows and columns of what is transposed in cache."""
_SHARED = 128
"""Rows of a matrix from which threads share it: below that their turns cost more than its blocks."""


@dataclass(frozen=True)
class _Matrix:
    """One of n rows in a workspace, `lead` elements apart: whole vectors, and not whole pages, in which lines of one
    column would take each other's place in cache."""

    batch: Batch
    shared: bool

    @staticmethod
    def of(b: Batch, threads: int) -> _Matrix:
        return _Matrix(b, b.count == 1 and threads > 1 and b.n >= _SHARED)

    @property
    def lead(self) -> int:
        lanes = self.batch.lanes
        vectors = -(-self.batch.n // lanes)
        return (vectors + (vectors % 8 == 0)) * lanes

    @property
    def scratch(self) -> int:
        """Bytes that a thread needs for its products."""
        n, need = self.batch.n, entry("gemm_any_scratch", self.batch.dtype)
        return max(int(need(_ROWS, wide, k)) for k in range(0, n, _ROWS) for wide in (self.lead - k, _ROWS))

    @property
    def bytes(self) -> int:
        """Of the matrix, after a line of its own."""
        return LINE + -(-self.batch.n * self.lead * numpy_dtype(self.batch.dtype).itemsize // LINE) * LINE

    @property
    def each(self) -> int:
        """Bytes of scratch of a thread, whole lines."""
        return -(-self.scratch // LINE) * LINE

    def workspace(self, threads: int) -> int:
        return LINE + self.bytes * (1 if self.shared else threads) + self.each * threads


def _head(m: _Matrix, threads: int) -> Iterator[str]:
    """Names; u is the matrix, `step` how many of its rows are done, which a phase of one task counts."""
    b, t = m.batch, CTYPES[m.batch.dtype]
    own = 0 if m.shared else f"thread * {m.bytes}"
    yield f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{"
    yield f"  typedef {t} vec __attribute__((vector_size({LINE}), aligned(sizeof({t})), may_alias));"
    yield f"  enum {{ n = {b.n}, lead = {m.lead}, W = {b.lanes} }};"
    yield "  const wx_api *api = (const wx_api *)((wx_context *)args[0])->api;"
    yield f"  char *line = (char *)(((uintptr_t)args[1] + {LINE - 1}) / {LINE} * {LINE});"
    yield f"  char *here = line + {own};"
    yield f"  char *scratch = line + {m.bytes * (1 if m.shared else threads)} + thread * {m.each};"
    yield f"  int64_t *step = (int64_t *)here; {t} *u = ({t} *)(here + {LINE});"
    yield "  int bad = 0; (void)thread, (void)scratch, (void)step, (void)api;"


def _tail() -> Iterator[str]:
    yield f"  if (bad) ((wx_context *)args[0])->outside = {INDEFINITE};"
    yield "}"


def _read(m: _Matrix, at: str, low: str, high: str) -> Iterator[str]:
    """Rows of the lower triangle as columns of the upper one, negated; what lies right of the last is zero."""
    b, t = m.batch, CTYPES[m.batch.dtype]
    v = b.call.operands[0]
    yield f"  {{ const int64_t at = {at}; (void)at;"
    yield f"  const {t} *a = (const {t} *)args[{OPERANDS}] + {b.begins(v)};"
    yield from _squares(low, high)
    yield f"    u[c * lead + r] = -a[r * {v.stride(b.i) or 0} + c * {v.stride(b.j) or 0}];"
    yield f"  for (int64_t c = {low}; c < {high}; c++) for (int64_t r = n; r < lead; r++) u[c * lead + r] = 0; }}"


def _written(m: _Matrix, at: str, low: str, high: str) -> Iterator[str]:
    """Rows of the result: columns of the upper factor, and zeros."""
    b, t = m.batch, CTYPES[m.batch.dtype]
    row, column = b.call.out.stride(b.i) or 0, b.call.out.stride(b.j) or 0
    yield f"  {{ const int64_t at = {at}; (void)at;"
    yield f"  {t} *out = ({t} *)args[{OUT_PLACE}] + {b.begins(b.call.out)};"
    yield from _squares(low, high)
    yield f"    if (c <= r) out[r * {row} + c * {column}] = u[c * lead + r];"
    yield f"  for (int64_t r = {low}; r < {high}; r++) for (int64_t c = r + 1; c < n; c++)"
    yield f"    out[r * {row} + c * {column}] = 0; }}"


def _squares(low: str, high: str) -> Iterator[str]:
    """Loops over places (r, c) of the lower triangle in rows low to high, square by square."""
    yield f"  for (int64_t r0 = {low}; r0 < {high}; r0 += {_TURNED}) for (int64_t c0 = 0; c0 <= r0; c0 += {_TURNED})"
    yield f"  for (int64_t c = c0; c < n && c < c0 + {_TURNED}; c++)"
    yield f"  for (int64_t r = r0; r < n && r < r0 + {_TURNED}; r++)"


def _product(m: _Matrix, begin: str, end: str) -> Iterator[str]:
    """What rows above add to columns of the block of rows from k on."""
    yield f"  if (k > 0 && {end} > {begin})"
    yield f"    api->gemm_any_{DTYPES[m.batch.dtype]}(w, {end} - {begin}, k, u + k, 1, lead, u + {begin}, lead, 1, "
    yield f"      u + k * lead + {begin}, lead, WX_ADD, scratch);"


def _square(m: _Matrix) -> Iterator[str]:
    """The square of a block, factored; where its columns end a vector may not."""
    t = CTYPES[m.batch.dtype]
    root = "__builtin_sqrtf" if t == "float" else "__builtin_sqrt"
    yield f"  {{ {t} *d = u + k * lead + k;"
    yield "  for (int64_t c = 0; c < w; c++) {"
    yield f"    {t} *p = d + c * lead; const {t} pivot = -p[c];"
    yield f"    bad |= pivot <= 0; const {t} root = {root}(pivot), by = -1 / root;"
    yield f"    if (w == {_ROWS}) {{"
    yield f"      for (int64_t r = 0; r < {_ROWS}; r += W) *(vec *)(p + r) *= by;"
    yield "      for (int64_t j = c + 1; j < w; j++)"
    yield f"        for (int64_t r = 0; r < {_ROWS}; r += W) *(vec *)(d + j * lead + r) += p[j] * *(vec *)(p + r);"
    yield "    } else {"
    yield "      for (int64_t r = c; r < w; r++) p[r] *= by;"
    yield "      for (int64_t j = c + 1; j < w; j++)"
    yield "        for (int64_t r = j; r < w; r++) d[j * lead + r] += p[j] * p[r];"
    yield "    }"
    yield "    p[c] = root;"
    yield "  } }"


def _rest(m: _Matrix, begin: str, end: str) -> Iterator[str]:
    """Columns of a block right of its square, solved by that."""
    yield f"  {{ int64_t r = {begin};"
    yield f"  for (; r + {_ABREAST} * W <= {end}; r += {_ABREAST} * W) {{"
    yield from _columns(CTYPES[m.batch.dtype], _ABREAST)
    yield "  }"
    yield f"  for (; r + W <= {end}; r += W) {{"
    yield from _columns(CTYPES[m.batch.dtype], 1)
    yield "  }"
    yield f"  for (; r < {end}; r++) for (int64_t c = 0; c < w; c++) {{"
    yield f"    {CTYPES[m.batch.dtype]} s = u[(k + c) * lead + r];"
    yield "    for (int64_t j = 0; j < c; j++) s += u[(k + j) * lead + k + c] * u[(k + j) * lead + r];"
    yield "    u[(k + c) * lead + r] = -s / u[(k + c) * lead + k + c];"
    yield "  } }"


def _columns(t: str, vectors: int) -> Iterator[str]:
    every = range(vectors)
    yield f"    {t} *x = u + k * lead + r;"
    yield "    for (int64_t c = 0; c < w; c++) {"
    yield f"      vec {', '.join(f's{i} = *(vec *)(x + c * lead + {i} * W)' for i in every)};"
    yield "      for (int64_t j = 0; j < c; j++) {"
    yield f"        const {t} f = u[(k + j) * lead + k + c];"
    yield f"        {' '.join(f's{i} += f * *(vec *)(x + j * lead + {i} * W);' for i in every)}"
    yield "      }"
    yield f"      const {t} by = -1 / u[(k + c) * lead + k + c];"
    yield f"      {' '.join(f'*(vec *)(x + c * lead + {i} * W) = s{i} * by;' for i in every)}"
    yield "    }"


def _alone(m: _Matrix, threads: int) -> Iterator[str]:
    """A matrix after another, each by one thread."""
    yield from _head(m, threads)
    yield "  for (int64_t t = begin; t < end; t++) {"
    yield from _read(m, "t", "0", "n")
    yield f"  for (int64_t k = 0; k < n; k += {_ROWS}) {{"
    yield f"  const int64_t w = n - k < {_ROWS} ? n - k : {_ROWS};"
    yield from _product(m, "k", "lead")
    yield from _square(m)
    yield from _rest(m, "(k + w)", "lead")
    yield "  }"
    yield from _written(m, "t", "0", "n")
    yield "  }"
    yield from _tail()


def _shared(m: _Matrix, threads: int) -> tuple[Part, ...]:
    """Phases of one matrix by all threads: a square and then the rest of its rows, block by block. Which block it is
    lies in memory: phases that differ in nothing else are one text."""
    lines = -(-m.batch.n // _TURNED)
    ends = f"begin * {_TURNED}", f"(end * {_TURNED} < n ? end * {_TURNED} : n)"
    read, done = ("\n".join((*_head(m, threads), *of(m, "0", *ends), *_tail())) for of in (_read, _written))
    known = f"  const int64_t k = *step, w = n - k < {_ROWS} ? n - k : {_ROWS}; (void)w;"
    begun = "\n".join((*_head(m, threads), "  (void)begin, (void)end; *step = 0;", "}"))
    moved = f"  *step = k + {_ROWS}; (void)begin, (void)end;"
    square = (*_head(m, threads), known, *_product(m, "k", "(k + w)"), *_square(m), moved, *_tail())
    before = f"  const int64_t k = *step - {_ROWS}, w = {_ROWS};"
    vector, pieces = _ABREAST * m.batch.lanes, 2 * threads
    cut = (
        f"  const int64_t from = k + w, wide = (lead - from + {vector * pieces - 1}) / {vector * pieces} * {vector};",
        "  const int64_t low = from + begin * wide < lead ? from + begin * wide : lead;",
        "  const int64_t high = from + end * wide < lead ? from + end * wide : lead;",
    )
    rest = (*_head(m, threads), before, *cut, *_product(m, "low", "high"), *_rest(m, "low", "high"), *_tail())
    blocks = -(-m.batch.n // _ROWS)
    one, other = Part("\n".join(square), 1, 1), Part("\n".join(rest), pieces, 1)
    steps = [p for _ in range(blocks) for p in (one, other)][:-1]
    return Part(begun, 1, 1), Part(read, lines, 2), *steps, Part(done, lines, 2)


class Cholesky(NativeKernel):
    """Cholesky factors of matrices that are not small, in blocks; one large matrix is shared by all threads."""

    name = "cholesky_blocked"
    pattern = "(Cholesky i j a)"

    def work(self, call: Call) -> Work | None:
        if not takes(self.pattern, call):
            return None
        b = Batch.of(call)
        if b is None or b.n < 2:
            return None
        if b.count == 0:
            return Work(tuple)
        m, threads = _Matrix.of(b, call.threads), call.threads
        grain = max(1, min(b.count, GRAIN // b.n**3))

        def write() -> tuple[Part, ...]:
            return _shared(m, threads) if m.shared else (Part("\n".join(_alone(m, threads)), b.count, grain),)

        return Work(write, m.workspace(threads), may_fail=True)

    def features(self, call: Call) -> Features:
        b = Batch.of(call)
        assert b is not None
        blocks = -(-b.n // _ROWS)
        return {
            "launches": 1.0 + (2.0 * blocks if _Matrix.of(b, call.threads).shared else 0.0),
            "batches": float(b.count * blocks),
            "bytes": float(call.bytes_read + call.out.bytes),
            "flops": b.count * b.n**3 / 3,
        }


KERNELS = (Cholesky,)
