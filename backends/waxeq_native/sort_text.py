"""C text that sorts rows by the digits of their keys, from the last digit to the first: equal elements keep their
order. The order of keys, whole numbers from 0 on, is that of the elements that they stand for, NaN last.

Sources: D. E. Knuth, The Art of Computer Programming 3, 5.2.5 (sorting by distribution); floats as integers in the same
order: M. Herf, Radix Tricks, 2001; pieces of one row, counted and placed side by side: M. Zagha and G. E. Blelloch,
Radix Sort for Vector Multiprocessors, 1991.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from waxeq.backend.call import Call
from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.taken import NAME
from waxeq_native.steps import OPERANDS

DIGITS = 256
"""Values of a digit: its counts lie in the first cache, and its places in as many lines."""
_COUNTED = 64
"""Elements of a row up to which each is compared with every other one."""
_INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
"""Infinity as bits: what is larger, without its sign, is NaN."""


@dataclass(frozen=True)
class Sorted:
    """One call: which rows it sorts. A row has `size` elements, `step` apart in the operand and `out_step` in the
    result; the other axes are `around`: their sizes and both their steps. `placed`: positions are wanted, not values.
    """

    dtype: str
    size: int
    step: int
    out_step: int
    around: tuple[tuple[int, int, int], ...]
    placed: bool

    @staticmethod
    def of(call: Call) -> Sorted:
        c = call.canonical
        (x,), k = c.operands, c.meaning.args[0]
        around = tuple((c.sizes[a], x.stride(a), c.out.stride(a)) for a in c.out.axes if a != k)
        return Sorted(x.dtype, c.sizes[k], x.stride(k), c.out.stride(k), around, c.meaning.head == "Argsort")

    @property
    def rows(self) -> int:
        return int(np.prod([n for n, _, _ in self.around], dtype=np.int64))

    @property
    def bits(self) -> int:
        """Of a key."""
        return 8 * numpy_dtype(self.dtype).itemsize

    @property
    def digits(self) -> int:
        """Of a key."""
        return self.bits // 8

    @property
    def low(self) -> int:
        """Bits of what is moved that are below its key: its position, which is under 2^32."""
        return 0 if not self.placed else 32 if self.bits <= 32 else 64

    @property
    def width(self) -> int:
        """Bytes of what is moved: a key, with its position where that is wanted."""
        return self.bits // 8 if not self.placed else 8 if self.bits <= 32 else 16

    @property
    def short(self) -> bool:
        """Whether every element is compared with every other one."""
        return self.size <= _COUNTED

    @property
    def key(self) -> str:
        """The C type of a key, and of an element as it lies in memory."""
        return f"uint{self.bits}_t"

    @property
    def moved(self) -> str:
        """The C type of what is moved."""
        return self.key if not self.placed else "uint64_t" if self.bits <= 32 else "unsigned __int128"

    @property
    def written(self) -> str:
        """The C type of an element of the result."""
        return "int64_t" if self.placed else self.key

    def keyed(self, i: str) -> str:
        """The key of an element of the row `x`."""
        return self.key_of(f"x[{i} * {self.step}]")

    def key_of(self, x: str) -> str:
        """The key of an element."""
        if self.dtype == "bool" or self.dtype.startswith("u"):
            return x
        sign = self.number(1 << (self.bits - 1))
        return f"{NAME}_key({x})" if is_float(self.dtype) else f"(({self.key})({x} ^ {sign}))"

    def result(self, key: str, place: str) -> str:
        """What is written for a key that was found at a place."""
        if self.placed:
            return place
        sign = self.number(1 << (self.bits - 1))
        if self.dtype == "bool" or self.dtype.startswith("u"):
            return key
        return f"{NAME}_value({key})" if is_float(self.dtype) else f"({self.key})({key} ^ {sign})"

    def digit(self, x: str, number: str) -> str:
        """A digit of what is moved, the last one being number 0."""
        return f"((uint32_t)({x} >> ({self.low} + 8 * {number})) & {DIGITS - 1})"

    def functions(self) -> list[str]:
        """Functions from floats to keys and back. Zeros of both signs are equal where positions are wanted; among
        values -0 comes first, which NumPy has in any order."""
        if not is_float(self.dtype):
            return []
        t, n = self.key, self.number
        infinite, sign, every = _INFINITE[self.dtype], 1 << (self.bits - 1), (1 << self.bits) - 1
        zero = "  u = size ? u : 0;\n" * self.placed
        return [
            f"static inline {t} {NAME}_key({t} u) {{",
            f"  const {t} size = u & {n(sign - 1)};",
            f"{zero}  const {t} key = u & {n(sign)} ? ~u : u | {n(sign)};",
            f"  return size > {n(infinite)} ? {n(every)} : key;",
            "}",
            f"static inline {t} {NAME}_value({t} key) {{ return key & {n(sign)} ? key ^ {n(sign)} : ~key; }}",
        ][: None if not self.placed else -1]

    def number(self, value: int) -> str:
        """A key as text."""
        return f"(({self.key}){value:#x}{'ull' if self.bits == 64 else 'u'})"

    def function(self, lines: Sequence[str]) -> str:
        """The whole function, of what it does in task t."""
        head = [
            f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{",
            "  (void)thread;",
            f"  const {self.key} *const from = (const {self.key} *)args[{OPERANDS}];",
            f"  {self.written} *const to = ({self.written} *)args[2];",
            "  for (int64_t t = begin; t < end; t++) {",
        ]
        return "\n".join([*self.functions(), *head, *("    " + x for x in lines), "  }", "}"])

    def row(self, number: str) -> Iterator[str]:
        """Where row `number` is read, and where it is written."""
        rest, read, write = number, ["from"], ["to"]
        for n, step, out_step in reversed(self.around):
            read.append(f"{rest} % {n} * {step}")
            write.append(f"{rest} % {n} * {out_step}")
            rest = f"{rest} / {n}"
        yield f"const {self.key} *const x = {' + '.join(read)};"
        yield f"{self.written} *const out = {' + '.join(write)};"


def compared(s: Sorted) -> str:
    """The function that sorts short rows: the place of an element is how many come before it."""
    t, n = s.key, s.size
    lines = [
        *s.row("t"),
        f"WX_ALIGNED {t} key[{n}], place[{n}];",
        f"for (int64_t i = 0; i < {n}; i++) key[i] = {s.keyed('i')}, place[i] = 0;",
        f"for (int64_t j = 0; j < {n}; j++) {{",
        f"  const {t} one = key[j];",
        "  #pragma omp simd",
        f"  for (int64_t i = 0; i < {n}; i++)",
        f"    place[i] = ({t})(place[i] + ((one < key[i]) | ((one == key[i]) & (({t})j < ({t})i))));",
        "}",
        f"for (int64_t i = 0; i < {n}; i++) out[place[i] * {s.out_step}] = {s.result('key[i]', 'i')};",
    ]
    return s.function(lines)


def whole(s: Sorted, kept: int) -> str:
    """The function that sorts a row after the other. `kept`: bytes of the workspace for each thread, 0 where what is
    moved lies on the stack. Digits that all elements of a row have alike are passed over."""
    t, n = s.moved, s.size
    stack = [f"WX_ALIGNED {t} stack[{2 * n}];"] if kept == 0 else []
    here = "stack" if stack else f"({t} *)(args[1] + thread * {kept})"
    lines = [
        *s.row("t"),
        *stack,
        f"{t} *a = {here}, *b = a + {n};",
        f"uint32_t count[{s.digits}][{DIGITS}] = {{{{0}}}};",
        f"for (int64_t i = 0; i < {n}; i++) a[i] = {_made(s)};",
        f"for (int64_t i = 0; i < {n}; i++) {{",
        *(f"  count[{p}][{s.digit('a[i]', str(p))}]++;" for p in range(s.digits)),
        "}",
        f"for (int p = 0; p < {s.digits}; p++) {{",
        "  uint32_t *const at = count[p];",
        "  uint32_t begun = 0;",
        f"  if (at[{s.digit('a[0]', 'p')}] == {n}) continue;",
        f"  for (int d = 0; d < {DIGITS}; d++) {{",
        "    const uint32_t many = at[d];",
        "    at[d] = begun, begun += many;",
        "  }",
        f"  for (int64_t i = 0; i < {n}; i++) b[at[{s.digit('a[i]', 'p')}]++] = a[i];",
        f"  {t} *const made = b;",
        "  b = a, a = made;",
        "}",
        f"for (int64_t i = 0; i < {n}; i++) out[i * {s.out_step}] = {_result(s, 'a[i]')};",
    ]
    return s.function(lines)


def counted(s: Sorted, pieces: int, p: int) -> str:
    """The function that counts, in each piece of each row, the elements with each digit number p; the first one also
    brings the elements into the workspace."""
    lines = [*s.row(f"t / {pieces}"), "(void)x, (void)out;", *_piece(s, pieces, p)]
    first = f"const {s.moved} one = a[i] = {_made(s)};" if p == 0 else f"const {s.moved} one = a[i];"
    lines += [
        f"for (int d = 0; d < {DIGITS}; d++) count[d] = 0;",
        f"for (int64_t i = low; i < high; i++) {{ {first} count[{s.digit('one', str(p))}]++; }}",
    ]
    return s.function(lines)


def placed(s: Sorted, pieces: int, p: int) -> str:
    """The function that moves the elements of each piece to where they come by digit number p, the last one to the
    result: behind those of smaller digits, and of the same one in earlier pieces."""
    last = p == s.digits - 1
    to = f"out[begun[d]++ * {s.out_step}] = {_result(s, 'a[i]')};" if last else "b[begun[d]++] = a[i];"
    lines = [*s.row(f"t / {pieces}"), "(void)x, (void)out;", *_piece(s, pieces, p)]
    lines += [
        "(void)b;",
        f"uint32_t begun[{DIGITS}], sum = 0;",
        f"for (int d = 0; d < {DIGITS}; d++) {{",
        f"  for (int64_t q = 0; q < {pieces}; q++) {{",
        "    if (q == piece) begun[d] = sum;",
        f"    sum += every[q * {DIGITS} + d];",
        "  }",
        "}",
        f"for (int64_t i = low; i < high; i++) {{ const uint32_t d = {s.digit('a[i]', str(p))}; {to} }}",
    ]
    return s.function(lines)


def room(s: Sorted, pieces: int) -> int:
    """Bytes of the workspace that a row takes which is sorted in pieces."""
    return -(-(_counts(pieces) + 2 * s.size * s.width) // 64) * 64


def _counts(pieces: int) -> int:
    """Bytes of the counts, which come first: what is moved may end anywhere."""
    return pieces * DIGITS * 4


def _piece(s: Sorted, pieces: int, p: int) -> Iterator[str]:
    """The places of a piece, what is moved by digit number p, and the counts."""
    each = -(-s.size // pieces)
    yield f"const int64_t piece = t % {pieces}, low = piece * {each};"
    yield f"const int64_t high = low + {each} < {s.size} ? low + {each} : {s.size};"
    yield f"char *const room = args[1] + t / {pieces} * {room(s, pieces)};"
    rows = f"({s.moved} *)(room + {_counts(pieces)})"
    a, b = (rows, f"{rows} + {s.size}")[:: 1 if p % 2 == 0 else -1]
    yield f"{s.moved} *const a = {a}, *const b = {b};"
    yield "uint32_t *const every = (uint32_t *)room;"
    yield f"uint32_t *const count = every + piece * {DIGITS};"
    yield "(void)count;"


def _made(s: Sorted) -> str:
    """What is moved of element number i of a row."""
    key = s.keyed("i")
    return f"({s.moved})({key}) << {s.low} | (uint32_t)i" if s.placed else key


def _result(s: Sorted, x: str) -> str:
    return s.result(x, f"(int64_t)(uint32_t){x}")
