"""Systems of equations by the BLAS and LAPACK that NumPy has loaded; triangular matrices are solved as they are.

Whether a matrix is triangular is seen when it is there: of one that is not, two rows tell so. Substitution then takes
n**2 steps for a right side, where factors take n**3 / 3 more. Right sides are shared out among threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Features
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.taken import NAME
from waxeq_native.blas import SYSTEMS
from waxeq_native.factored import Batch, takes
from waxeq_native.products_blas import AGAIN, ALONE, table, usable
from waxeq_native.steps import OPERANDS, OUT_PLACE, SINGULAR
from waxeq_native.work import GRAIN, NativeKernel, Part, Work

_COLUMNS = 16
"""Right sides that a thread takes at least: a vector of each row, or two."""
_LARGE = 512
"""Rows of a matrix from which BLAS factors one with threads of its own: below that starting them costs as much."""
_TURNED = 16
"""Rows and columns of a block that is transposed in cache."""


def _lies(rows: int | None, columns: int | None, least: int) -> int | None:
    """How far lines of `least` elements are apart: above zero where they are rows, below where they are columns. None
    where BLAS reads neither."""
    if columns == 1 and rows is not None and rows >= least:
        return rows
    return -columns if rows == 1 and columns is not None and columns >= least else None


def _joined(steps: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The one step that goes through all of several axes, the outermost first."""
    inner = zip(steps, steps[1:], sizes[1:], strict=False)
    return steps[-1] if all(a == b * n for a, b, n in inner) else None


@dataclass(frozen=True)
class _System:
    """`matrix` and `target`: how lines of the matrix lie, and those of the solutions of several right sides, as `_lies`
    says it; for one right side `target` is the step from element to element. `given`: the steps of right sides, along
    rows and from one to the next. `pieces`: that right sides of a matrix are shared out in. `known`: the triangle that
    is a matrix, which is not looked for then; nothing where any may come."""

    batch: Batch
    matrix: int
    target: int
    given: tuple[int, int]
    pieces: int
    known: str

    @staticmethod
    def of(b: Batch, threads: int) -> _System | None:
        """None where BLAS cannot read or write it."""
        (a, right), out = b.call.operands, b.call.out
        sides = sorted(b.sides, key=lambda k: -(out.stride(k[0]) or 0))
        names, sizes = [k for k, _ in sides if b.m > 1], [n for _, n in sides if b.m > 1]
        apart, given = (_joined([v.stride(k) or 0 for k in names] or [1], sizes or [1]) for v in (out, right))
        matrix, step = _lies(a.stride(b.i), a.stride(b.j), b.n), out.stride(b.j)
        target = step if b.m == 1 else _lies(step, apart, b.m if apart == 1 else b.n)
        if matrix is None or not target or given is None or right.stride(b.i) is None:
            return None
        worth = b.count < threads and b.n * b.n * b.m >= 4 * GRAIN
        pieces = min(-(-threads // b.count), b.m // _COLUMNS) if worth else 1
        meaning = b.call.meaning
        known = str(meaning.args[0]) if meaning.head == "Triangular" else ""
        return _System(b, matrix, target, (right.stride(b.i) or 0, given), max(1, pieces), known)

    @property
    def lines(self) -> int:
        """How far lines of the matrix are apart, rows or columns."""
        return abs(self.matrix)

    @property
    def parts(self) -> tuple[int, int, int]:
        """Where in a workspace of one matrix the exchanges of rows and what is known of the matrix lie after its
        factors, and where it ends, in bytes."""
        b = self.batch
        turns = -(-b.n * b.n * numpy_dtype(b.dtype).itemsize // LINE) * LINE
        kind = turns + -(-b.n * 8 // LINE) * LINE
        return turns, kind, kind + LINE


def _head(s: _System, pieces: int) -> Iterator[str]:
    """Names, and the loop over matrices and pieces of their right sides."""
    b, t = s.batch, CTYPES[s.batch.dtype]
    integer = "int32_t" if table().bits == 32 else "int64_t"
    turns, kind, each = s.parts
    wide = -(-b.m // pieces)
    yield f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{"
    yield f"  typedef struct {{ wx_blas blas; void {', '.join(f'*{name}' for name in SYSTEMS)}; }} wx_systems;"
    yield f"  enum {{ n = {b.n}, m = {b.m} }};"
    yield "  (void)thread;"
    yield "  wx_systems *of = (wx_systems *)((wx_context *)args[0])->library;"
    yield "  int bad = 0;"
    yield "  for (int64_t t = begin; t < end; t++) {"
    yield f"  const int64_t at = t / {pieces}, first = t % {pieces} * {wide};"
    yield f"  const {integer} many = m - first < {wide} ? m - first : {wide};"
    yield f"  const {t} *a = (const {t} *)args[{OPERANDS}] + {b.begins(b.call.operands[0])};"
    yield "  (void)many, (void)first, (void)of, (void)bad;"
    if not s.known:
        yield f"  char *own = args[1] + {'thread' if s.pieces == 1 else 'at'} * {each};"
        yield f"  {t} *lu = ({t} *)own;"
        yield f"  {integer} *turns = ({integer} *)(own + {turns}), size = n, info = 0;"
        yield f"  int *kind = (int *)(own + {kind});"
        yield "  (void)info, (void)size;"


def _tail() -> Iterator[str]:
    yield "  }"
    yield f"  if (bad) ((wx_context *)args[0])->outside = {SINGULAR};"
    yield "}"


def _factored(s: _System, threads: int) -> Iterator[str]:
    """What a matrix is: 1 where it has zeros above its diagonal, 2 where below, 0 else, and then its factors. What is
    no number is not zero."""
    lead = s.lines
    yield "  int up = 1, down = 1;"
    yield "  for (int64_t p = 0; p < n && (up | down); p++) {"
    yield f"    const {CTYPES[s.batch.dtype]} *line = a + p * {lead};"
    yield "    int left = 0, right = 0;"
    yield "    if (down) for (int64_t q = 0; q < p; q++) left |= line[q] != 0;"
    yield "    if (up) for (int64_t q = p + 1; q < n; q++) right |= line[q] != 0;"
    yield "    down &= !left, up &= !right;"
    yield "  }"
    one, other = (1, 2) if s.matrix > 0 else (2, 1)
    yield f"  *kind = up ? {one} : down ? {other} : 0;"
    yield f"  if (*kind) {_singular(s)}"
    yield "  if (!*kind) {"
    if s.matrix > 0:
        yield f"    for (int64_t r0 = 0; r0 < n; r0 += {_TURNED}) for (int64_t c0 = 0; c0 < n; c0 += {_TURNED})"
        yield f"    for (int64_t c = c0; c < n && c < c0 + {_TURNED}; c++)"
        yield f"    for (int64_t r = r0; r < n && r < r0 + {_TURNED}; r++) lu[c * n + r] = a[r * {lead} + c];"
    else:
        yield f"    for (int64_t c = 0; c < n; c++) memcpy(lu + c * n, a + c * {lead}, n * sizeof *lu);"
    yield from _by_lapack(s, threads)
    yield "    bad |= info > 0;"
    yield "  }"


def _singular(s: _System) -> str:
    return f"for (int64_t p = 0; p < n; p++) bad |= a[p * {s.lines + 1}] == 0;"


def _by_lapack(s: _System, threads: int) -> Iterator[str]:
    """The factors of one large matrix are made by the threads of BLAS, while ours wait."""
    integer = "int32_t" if table().bits == 32 else "int64_t"
    i, t = f"const {integer} *", CTYPES[s.batch.dtype]
    one = s.batch.count == 1 and s.batch.n >= _LARGE and threads > 1
    function = f"(void (*)({i}, {i}, {t} *, {i}, {integer} *, {integer} *))of->{t[0].replace('f', 's')}getrf"
    if one:
        yield from _with(threads)
    yield f"    ({function})(&size, &size, lu, &size, turns, &info);"
    if one:
        yield from _with(1)


def _with(threads: int) -> Iterator[str]:
    yield "    while (__atomic_exchange_n(&of->blas.busy, 1, __ATOMIC_ACQUIRE)) continue;"
    yield f"    of->blas.set_threads({threads});"
    yield "    __atomic_store_n(&of->blas.busy, 0, __ATOMIC_RELEASE);"


def _solved(s: _System) -> Iterator[str]:
    """Right sides, copied to where the solutions are to lie, and solved there."""
    b, t = s.batch, CTYPES[s.batch.dtype]
    right, out = b.call.operands[1], b.call.out
    apart = (s.target, 0) if b.m == 1 else (s.target, 1) if s.target > 0 else (1, -s.target)
    down, along = s.given
    yield f"  const {t} *y = (const {t} *)args[{OPERANDS + 1}] + {b.begins(right)} + first * {along};"
    yield f"  {t} *x = ({t} *)args[{OUT_PLACE}] + {b.begins(out)} + first * {apart[1]};"
    r, c = "for (int64_t r = 0; r < n; r++)", "for (int64_t c = 0; c < many; c++)"
    order = f"{r} {c}" if s.target > 0 else f"{c} {r}"
    yield f"  {order} x[r * {apart[0]} + c * {apart[1]}] = y[r * {down} + c * {along}];"
    if s.known:
        yield f"  {_singular(s)}"
        yield f"  {_substituted(s, 'a', s.matrix, str(int(s.known == 'lower')), 131)};"
        return
    yield f"  if (!*kind) for (int64_t k = 0; k < n; k++) if (turns[k] != k + 1) {c} {{"
    yield f"    {t} *p = x + k * {apart[0]} + c * {apart[1]}, *q = x + (turns[k] - 1) * {apart[0]} + c * {apart[1]};"
    yield f"    const {t} kept = *p; *p = *q, *q = kept;"
    yield "  }"
    yield f"  if (*kind) {_substituted(s, 'a', s.matrix, '*kind == 1', 131)};"
    yield f"  else {{ {_substituted(s, 'lu', -b.n, '1', 132)}; {_substituted(s, 'lu', -b.n, '0', 131)}; }}"


_ROWS, _COLUMN_WISE, _UPPER, _LOWER, _PLAIN, _TURN, _LEFT = 101, 102, 121, 122, 111, 112, 141
"""Of cblas.h; a diagonal that is stored is 131, and 132 where it is ones."""


def _substituted(s: _System, a: str, lies: int, lower: str, diagonal: int) -> str:
    """A call of BLAS with a triangle of a matrix whose lines lie so."""
    b, t = s.batch, CTYPES[s.batch.dtype]
    integer = "int32_t" if table().bits == 32 else "int64_t"
    name, lead = t[0].replace("f", "s"), abs(lies)
    own = _ROWS if lies > 0 else _COLUMN_WISE
    if b.m == 1:
        kind = f"(void (*)(int, int, int, int, {integer}, const {t} *, {integer}, {t} *, {integer}))of->{name}trsv"
        return f"({kind})({own}, {lower} ? {_LOWER} : {_UPPER}, {_PLAIN}, {diagonal}, n, {a}, {lead}, x, {s.target})"
    order = _ROWS if s.target > 0 else _COLUMN_WISE
    sides = (_LOWER, _UPPER) if own == order else (_UPPER, _LOWER)
    turn = _PLAIN if own == order else _TURN
    ints = ", ".join(["int"] * 5 + [integer] * 2)
    kind = f"(void (*)({ints}, {t}, const {t} *, {integer}, {t} *, {integer}))of->{name}trsm"
    said = f"{order}, {_LEFT}, {lower} ? {sides[0]} : {sides[1]}, {turn}, {diagonal}"
    return f"({kind})({said}, n, many, 1, {a}, {lead}, x, {abs(s.target)})"


class _Systems(NativeKernel):
    @property
    def code(self) -> str:
        b = usable()
        parts = (super().code, *((b.name, b.version) if b is not None else ()))
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def work(self, call: Call) -> Work | None:
        found = usable()
        if found is None or set(found.systems) != set(SYSTEMS) or not takes(self.pattern, call):
            return None
        b = Batch.of(call)
        if b is None or b.n < 2 or (table().bits == 32 and _most(b.call) >= 1 << 31):
            return None
        if b.count * b.m == 0:
            return Work(tuple)
        s = _System.of(b, call.threads)
        if s is None:
            return None
        slots = call.threads if s.pieces == 1 else b.count
        kept = 0 if s.known else s.parts[2] * slots
        return Work(lambda: _phases(s, call.threads), kept, may_fail=True, library=ctypes.addressof(table()))

    def features(self, call: Call) -> Features:
        b = Batch.of(call)
        assert b is not None
        moved = float(call.bytes_read + call.out.bytes)
        return {"launches": 1.0, "batches": float(b.count), "bytes": moved, "flops": b.count * self.flops(b)}

    @abstractmethod
    def flops(self, b: Batch) -> float:
        """Of one matrix."""


class Systems(_Systems):
    """Systems of equations by BLAS: substitution where a matrix is triangular, by LAPACK's factors where it is not."""

    name = "solve_blas"
    pattern = "(Solve i j a b)"

    def flops(self, b: Batch) -> float:
        return 2 / 3 * b.n**3 + 2.0 * b.n * b.n * b.m


class Triangular(_Systems):
    """Systems of equations with one triangle of a matrix, by BLAS."""

    name = "triangular_blas"
    pattern = "(Triangular f i j a b)"

    def flops(self, b: Batch) -> float:
        return 1.0 * b.n * b.n * b.m


def _most(call: Call) -> int:
    """The largest number that BLAS is told."""

    def steps(v: View) -> list[int]:
        return [abs(v.stride(k) or 0) for k in v.axes]

    return max([*call.sizes.values(), math.prod(call.sizes.values()), *(n for v in call.operands for n in steps(v))])


def _phases(s: _System, threads: int) -> tuple[Part, ...]:
    b, look = s.batch, () if s.known else tuple(_factored(s, threads))
    if s.pieces == 1 or s.known:
        text = "\n".join((*_head(s, s.pieces), *look, *_solved(s), *_tail()))
        tasks = b.count * s.pieces
        grain = max(1, min(tasks, GRAIN // (b.n * b.n * (b.n + b.m)))) if s.pieces == 1 else 1
        return ALONE, Part(text, tasks, grain), AGAIN
    factors = "\n".join((*_head(s, 1), *look, *_tail()))
    solved = "\n".join((*_head(s, s.pieces), *_solved(s), *_tail()))
    return ALONE, Part(factors, b.count, 1), Part(solved, b.count * s.pieces, 1), AGAIN


KERNELS = (Systems, Triangular)
