"""C text of the functions that find the first place of the largest or smallest element, or of NaN where there is one.

Where a row lies side by side its extreme is found first, a block at a time, and its place is looked for in one block
only, after all. Down columns each element is compared with the best so far of its column, of which the place is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.scalars import CTYPES, start

_BYTES = 8192
"""Of a block: it is still in the first cache when a place is looked for in it."""
_LANES = 256
"""Bytes that are compared side by side: four of the widest vectors."""
_CHUNK = 256
"""Elements among which it is asked at once whether the one looked for is there."""
_ROWS = 4
"""Rows that a column takes in before what it has come to is written."""


_COMPARED = {(4, True): "float", (8, True): "double", (4, False): "int", (8, False): "long long"}
"""What elements are compared as where it is told which equal one, by their bytes and whether they are floats."""
_MASKS = {"float": "cmpps512_mask", "double": "cmppd512_mask", "int": "cmpd512_mask", "long long": "cmpq512_mask"}
"""Instructions that tell so."""


@dataclass(frozen=True)
class Pick:
    """`kind`: "argmax" or "argmin". `row`: how many elements there are at least, but for an end."""

    kind: str
    dtype: str
    row: int

    @property
    def ctype(self) -> str:
        """The C type of an element."""
        return CTYPES[self.dtype]

    @property
    def counted(self) -> str:
        """The C type of a place, as wide as an element: vectors of both have as many."""
        return f"int{8 * numpy_dtype(self.dtype).itemsize}_t"

    @property
    def name(self) -> str:
        """What the C names begin with."""
        return f"wx_{self.kind}_{self.dtype}_{self.lanes}"

    @property
    def nothing(self) -> str:
        """What no element is worse than."""
        return start(self.kind[3:], self.dtype)

    @property
    def lanes(self) -> int:
        """Elements that are compared side by side."""
        most = _LANES // numpy_dtype(self.dtype).itemsize
        return max(2, min(most, 1 << (self.row.bit_length() - 1)))

    def better(self, x: str, y: str) -> str:
        """Whether x is, and neither is NaN."""
        return f"{x} {'>' if self.kind == 'argmax' else '<'} {y}"

    def taken(self, x: str, best: str) -> str:
        """Whether x replaces what is the best so far: NaN is replaced by nothing."""
        if not is_float(self.dtype):
            return self.better(x, best)
        return f"!({x} {'<=' if self.kind == 'argmax' else '>='} {best}) & ({best} == {best})"

    def lying(self) -> str:
        """The text of functions for elements that lie side by side."""
        return _once(f"{self.name}_lies", [*self._found(), *self._nan(), *self._lies()])

    def columns(self) -> str:
        """The text of the function for rows of columns, `step` elements apart, the first of them at place `at`."""
        t, c = self.ctype, self.counted
        lines = [
            f"static inline void {self.name}_columns(const {t} *b, int64_t step, int64_t rows, int64_t many, {c} at,",
            f"                                       {t} *restrict best, {c} *restrict place) {{",
            "  int64_t r = 0;",
            f"  for (; r + {_ROWS} <= rows; r += {_ROWS}, at += {_ROWS}) {{",
            *self._taken(_ROWS),
            "  }",
            "  for (; r < rows; r++, at++) {",
            *self._taken(1),
            "  }",
            "}",
        ]
        return _once(f"{self.name}_columns", lines)

    def _taken(self, rows: int) -> Iterator[str]:
        yield f"    const {self.ctype} *from = b + r * step;"
        yield "    #pragma omp simd"
        yield "    for (int64_t j = 0; j < many; j++) {"
        yield f"      {self.ctype} y = best[j];"
        yield f"      {self.counted} p = place[j];"
        for i in range(rows):
            yield f"      {{ const {self.ctype} x = from[{i} * step + j]; const int32_t new = {self.taken('x', 'y')};"
            yield f"        y = new ? x : y; p = new ? at + {i} : p; }}"
        yield "      best[j] = y; place[j] = p;"
        yield "    }"

    def _found(self) -> Iterator[str]:
        """Where the first element is that equals one of which it is known to be there, among at least as many as there
        are lanes. What is looked at twice has no other place."""
        yield f"static inline int64_t {self.name}_found(const {self.ctype} *b, int64_t many, {self.ctype} best) {{"
        yield "#if defined(__AVX512F__)"
        yield from self._masked()
        yield "#else"
        yield from self._asked()
        yield "#endif"
        yield "}"

    def _masked(self) -> Iterator[str]:
        """By the bits that comparisons of whole vectors are: compilers make vectors of them, and those one number."""
        size = numpy_dtype(self.dtype).itemsize
        n, kind = 64 // size, _COMPARED[size, is_float(self.dtype)]
        more = ", 4" * is_float(self.dtype)  # rounded as ever
        yield f"  typedef {kind} wx_wide __attribute__((vector_size(64), aligned({size}), may_alias));"
        yield f"  const wx_wide want = (wx_wide){{0}} + ({kind})best;"
        mask = f"(uint64_t)(uint{n}_t)__builtin_ia32_{_MASKS[kind]}(*(const wx_wide *)(b + {{0}}), want, 0, -1{more})"
        yield "  int64_t i = 0;"
        yield f"  for (; i + {4 * n} <= many; i += {4 * n}) {{"
        every = " | ".join(f"{mask.format(f'i + {k * n}')} << {k * n}" for k in range(4))
        yield f"    const uint64_t bits = {every};"
        yield "    if (bits) return i + __builtin_ctzll(bits);"
        yield "  }"
        yield f"  for (;; i += {n}) {{"
        yield f"    i = i + {n} <= many ? i : many - {n};"
        yield f"    const uint64_t bits = {mask.format('i')};"
        yield "    if (bits) return i + __builtin_ctzll(bits);"
        yield "  }"

    def _asked(self) -> Iterator[str]:
        """Among so many at once whether it is there, and then where."""
        n, c = min(16, self.lanes), self.counted
        yield "  int64_t i = 0;"
        yield f"  for (; i + {_CHUNK} < many; i += {_CHUNK}) {{"
        yield f"    {c} u[{n}];"
        yield from _each(n, "u[l] = 0;", "    ")
        yield f"    for (int64_t j = i; j < i + {_CHUNK}; j += {n}) {{"
        yield from _each(n, "u[l] |= -(b[j + l] == best);", "      ")
        yield "    }"
        yield from _halved(n, "u[l] |= u[l + {half}];", "    ")
        yield "    if (u[0]) break;"
        yield "  }"
        yield f"  {c} p[{n}];"
        yield from _each(n, f"p[l] = {_CHUNK};", "  ")
        yield f"  if (many - i < {n}) i = many - {n};"
        yield f"  const int64_t size = many - i < {_CHUNK} ? many - i : {_CHUNK};"
        step = f"const {c} q = b[i + j + l] == best ? ({c})(j + l) : {_CHUNK}; p[l] = q < p[l] ? q : p[l];"
        yield f"  for (int64_t j = 0; j + {n} <= size; j += {n}) {{"
        yield from _each(n, step, "    ")
        yield "  }"
        yield f"  {{ const int64_t j = size - {n};"
        yield from _each(n, step, "    ")
        yield "  }"
        yield from _halved(n, "p[l] = p[l + {half}] < p[l] ? p[l + {half}] : p[l];", "  ")
        yield "  return i + p[0];"

    def _nan(self) -> Iterator[str]:
        if is_float(self.dtype):
            yield f"static int64_t {self.name}_nan(const {self.ctype} *b, int64_t at) {{"
            yield "  while (b[at] == b[at]) at++;"
            yield "  return at;"
            yield "}"

    def _lies(self) -> Iterator[str]:
        """What goes on from the best so far, with elements the first of which is at place `at`."""
        t, n, size = self.ctype, self.lanes, numpy_dtype(self.dtype).itemsize
        floats = is_float(self.dtype)
        yield f"static inline void {self.name}_lies(const {t} *b, int64_t many, int64_t at,"
        yield f"                                    {t} *best, int64_t *place) {{"
        yield f"  {t} most = *best;"
        if floats:
            yield "  if (most != most) return;"
        yield f"  if (many < {n}) {{"
        new = self.taken("b[i]", "most")
        yield f"    for (int64_t i = 0; i < many; i++) if ({new}) {{ most = b[i]; *place = at + i; }}"
        yield "    *best = most;"
        yield "    return;"
        yield "  }"
        yield "  int64_t found = -1;"
        yield f"  for (int64_t first = 0; first < many; first += {_BYTES // size}) {{"
        yield f"    const int64_t last = first + {_BYTES // size} < many ? first + {_BYTES // size} : many;"
        yield from ("    " + x for x in self._block(n))
        yield f"    if ({self.better('m[0]', 'most')}) {{ most = m[0]; found = first; }}"
        yield "  }"
        yield "  if (found < 0) return;"
        yield f"  const int64_t begin = found + {n} <= many ? found : many - {n};"
        yield f"  const int64_t left = many - begin < {_BYTES // size} ? many - begin : {_BYTES // size};"
        yield f"  *place = at + begin + {self.name}_found(b + begin, left, most);"
        yield "  *best = most;"
        yield "}"

    def _block(self, n: int) -> Iterator[str]:
        """The extreme of a block as m[0]. Its end is met with elements before it once more. NaN is looked for in two
        elements at once."""
        t, half, floats = self.ctype, n // 2, is_float(self.dtype)
        yield f"{t} m[{n}];"
        yield from _each(n, "m[l] = most;")
        if floats:
            yield f"{self.counted} u[{half}];"
            yield from _each(half, "u[l] = 0;")
        step = f"const {t} x = b[i + l], y = b[i + l + {half}]; m[l] = {self.better('x', 'm[l]')} ? x : m[l]; "
        step += f"m[l + {half}] = {self.better('y', f'm[l + {half}]')} ? y : m[l + {half}];"
        step += " u[l] |= -__builtin_isunordered(x, y);" * floats
        yield f"for (int64_t i = first; i + {n} <= last; i += {n}) {{"
        yield from _each(half, step, "  ")
        yield "}"
        yield f"if ((last - first) % {n}) {{ const int64_t i = last - {n};"
        yield from _each(half, step, "  ")
        yield "}"
        if floats:
            yield from _halved(half, "u[l] |= u[l + {half}];")
            yield f"if (u[0]) {{ const int64_t i = {self.name}_nan(b, first); *best = b[i]; *place = at + i; return; }}"
        yield from _halved(n, f"m[l] = {self.better('m[l + {half}]', 'm[l]')} ? m[l + {{half}}] : m[l];")


def _each(many: int, line: str, indent: str = "") -> Iterator[str]:
    yield f"{indent}#pragma omp simd"
    yield f"{indent}for (int64_t l = 0; l < {many}; l++) {{ {line} }}"


def _halved(many: int, line: str, indent: str = "") -> Iterator[str]:
    """Numbers side by side become the first one."""
    half = many // 2
    while half:
        yield from _each(half, line.format(half=half), indent)
        half //= 2


def _once(name: str, lines: list[str]) -> str:
    return "\n".join([f"#ifndef {name.upper()}", f"#define {name.upper()}", *lines, "#endif", ""])
