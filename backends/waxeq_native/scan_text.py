"""C text of the function that runs through a row in the first cache, with what it begins with and answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.nest import stepped
from waxeq_cfamily.scalars import CTYPES, number, start
from waxeq_cfamily.scans import Scan
from waxeq_cfamily.values import Row
from waxeq_native.gemm import api

_ACCURATE = 256
"""Elements of float32 whose sums are added to what came before with more digits."""
_LANES = {"float32": "f32", "float64": "f64", "int32": "f32", "int64": "f64"}
"""Of what size the elements are of vectors that run, by dtype: as floats of it."""


@dataclass(frozen=True)
class Run:
    """How one scan goes on from what has come so far."""

    scan: Scan

    @property
    def carried(self) -> str:
        """The dtype of what has come so far: float32 loses the last digits of long sums."""
        return "float64" if (self.scan.kind, self.scan.dtype) == ("sum", "float32") else self.scan.dtype

    @property
    def step(self) -> Row:
        """A step of what has come so far."""
        return replace(self.scan.values.rows[self.scan.row], dtype=self.carried)

    @property
    def nothing(self) -> str:
        """What it begins with: nothing changes by it, not even -0."""
        if self.scan.kind == "sum" and is_float(self.scan.dtype):
            return number("-0.0", self.scan.dtype)
        return start(self.scan.kind, self.scan.dtype)

    @property
    def name(self) -> str:
        """The C function that runs through a row."""
        return f"wx_run_{self.scan.kind}_{self.scan.dtype}"

    def text(self) -> str:
        """The text of that function: it has what came before, and answers what the row comes to."""
        t, c, guard = CTYPES[self.scan.dtype], CTYPES[self.carried], self.name.upper()
        vectors = ["#ifdef WX_TURNS", *self._vectors(), "#endif"] if self.scan.dtype in _LANES else []
        lines = [
            f"static inline {c} {self.name}({t} *b, int64_t n, {c} c) {{",
            "  int64_t i = 0;",
            *vectors,
            f"  for (; i < n; i++) b[i] = ({t})(c = {stepped(self.step, 'c', 'b[i]')});",
            "  return c;",
            "}",
        ]
        return "\n".join([f"#ifndef {guard}", f"#define {guard}", *lines, "#endif", ""])

    @cached_property
    def _lanes(self) -> int:
        return int(getattr(api(), f"nr_{_LANES[self.scan.dtype]}")) // 2

    def _vectors(self) -> Iterator[str]:
        """The loop over whole vectors."""
        size, lanes = numpy_dtype(self.scan.dtype).itemsize, self._lanes
        wraps = self.scan.kind in ("sum", "prod") and not is_float(self.scan.dtype)
        element = f"uint{8 * size}_t" if wraps else CTYPES[self.scan.dtype]  # signed sums must not overflow
        yield f"  typedef {element} vec __attribute__((vector_size({lanes * size})));"
        yield f"  typedef int{8 * size}_t mask __attribute__((vector_size({lanes * size})));"
        yield f"  const vec none = {self._every(self.nothing)};"
        if self.carried != self.scan.dtype:
            yield from self._accurately()
            return
        yield f"  vec all = {self._every('c')};"
        yield f"  for (; i + {lanes} <= n; i += {lanes}) {{"
        yield from self._vector("all")
        yield "  }"
        yield f"  c = ({CTYPES[self.scan.dtype]})all[0];"

    def _accurately(self) -> Iterator[str]:
        """The same in pieces that begin with nothing: what came before is added to each element as two numbers, its
        float32 and what that leaves."""
        lanes = self._lanes
        yield f"  while (i + {lanes} <= n) {{"
        yield "    const float first = (float)c;"
        yield "    float more = (float)(c - (double)first);"
        yield "    if (!(more - more == 0) || more == 0) more = -0.0f;"
        yield f"    const vec high = {self._every('first')}, low = {self._every('more')};"
        yield "    vec all = none;"
        yield f"    for (const int64_t to = i + {_ACCURATE}; i < to && i + {lanes} <= n; i += {lanes}) {{"
        yield from ("  " + x for x in self._vector("high + (low + (all + x))"))
        yield "    }"
        yield "    c += all[0];"
        yield "  }"

    def _vector(self, result: str) -> Iterator[str]:
        """One vector, folded with itself shifted by one place, by two, by four. It waits for the one before with its
        last step only."""
        lanes = self._lanes
        yield "    vec x, y;"
        yield "    __builtin_memcpy(&x, b + i, sizeof x);"
        for shift in (1 << n for n in range((lanes - 1).bit_length())):
            places = ", ".join(str(0 if i < shift else lanes + i - shift) for i in range(lanes))
            yield f"    y = __builtin_shufflevector(none, x, {places});"
            yield f"    x = {self._folded('y', 'x')};"
        yield f"    y = {self._folded('all', 'x') if result == 'all' else result};"
        yield "    __builtin_memcpy(b + i, &y, sizeof y);"
        last = ", ".join([str(lanes - 1)] * lanes)
        yield f"    x = __builtin_shufflevector(x, x, {last});"
        yield f"    all = {self._folded('all', 'x')};"

    def _folded(self, before: str, x: str) -> str:
        """A vector with what comes before each of its elements."""
        if self.scan.kind in ("sum", "prod"):
            return f"{before} {'+' if self.scan.kind == 'sum' else '*'} {x}"
        sign = ">" if self.scan.kind == "max" else "<"
        taken = f"((mask)({x} {sign} {before}) | (mask)({x} != {x}))"
        return f"(vec)(((mask){x} & {taken}) | ((mask){before} & ~{taken}))"

    def _every(self, x: str) -> str:
        return "{" + ", ".join([x] * self._lanes) + "}"
