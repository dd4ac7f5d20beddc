"""C text of the function that runs through a row in the first cache, with what it begins with and answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from waxeq.ir.types import is_float
from waxeq_cfamily.scalars import CTYPES, NARROW, number, start
from waxeq_cfamily.scans import Scan, stepped
from waxeq_cfamily.values import Row

_ASKED = 16
"""Elements of a part for which a line is asked for, of what is read next."""
_CHAINS, _PART, _SHORTEST = 4, 128, 16
"""Parts of a row that are run through side by side, and elements of one: at most, and at least."""


@dataclass(frozen=True)
class Run:
    """How one scan goes on from what has come so far. `lies`: whether its rows lie side by side."""

    scan: Scan
    lies: bool

    @property
    def dtype(self) -> str:
        """Of what has come so far. Along rows sums of float32 are made in float64, so that the last digits of long ones
        stay; down columns in order, to the bit as NumPy has them: their own time is what memory leaves of it."""
        wide = self.lies and (self.scan.kind, self.scan.dtype) == ("sum", "float32")
        return "float64" if wide else self.scan.dtype

    @property
    def rounds(self) -> bool:
        """Whether what has come so far has more digits than what is made of it."""
        return self.scan.kind in ("sum", "prod") and self.scan.values.rows[self.scan.row].dtype in NARROW

    @property
    def apart(self) -> bool:
        """Whether parts of a row may be folded on their own: products of floats would overflow, or come to nothing,
        where that of all before does not."""
        return self.scan.kind != "prod" or not is_float(self.scan.dtype)

    @property
    def step(self) -> Row:
        """A step of what has come so far."""
        return replace(self.scan.values.rows[self.scan.row], dtype=self.dtype)

    @property
    def nothing(self) -> str:
        """What a row begins with: nothing changes by it, not even -0."""
        if self.scan.kind == "sum" and is_float(self.dtype):
            return number("-0.0", self.dtype)
        return start(self.scan.kind, self.dtype)

    @property
    def name(self) -> str:
        """The C function that runs through a row."""
        return f"wx_run_{self.scan.kind}_{self.scan.dtype}"

    def text(self) -> str:
        """The text of that function: it has what came before, and answers what the row comes to. `soon`: where what the
        next block is made of lies, elements of `size` bytes."""
        t, c, guard = CTYPES[self.scan.dtype], CTYPES[self.dtype], self.name.upper()
        lines = [
            f"static inline {c} {self.name}({t} *b, int64_t n, {c} c, const char *soon, int64_t size) {{",
            "  int64_t i = 0;",
            *(self._chains() if self.apart else ()),
            f"  for (; i < n; i++) b[i] = ({t})(c = {self._stepped('c', 'b[i]')});",
            "  return c;",
            "}",
        ]
        return "\n".join([f"#ifndef {guard}", f"#define {guard}", *lines, "#endif", ""])

    def _chains(self) -> Iterator[str]:
        """The loop over pieces, of which so many parts are run through side by side: no step waits for those of others.
        A part begins with just what the one before ends with. Memory is asked for meanwhile: it stands still else."""
        t, c = CTYPES[self.scan.dtype], CTYPES[self.dtype]
        chains = range(_CHAINS)
        yield f"  while (n - i >= {_CHAINS * _SHORTEST}) {{"
        yield f"    const int64_t part = (n - i) / {_CHAINS} < {_PART} ? (n - i) / {_CHAINS} : {_PART};"
        yield f"    WX_ALIGNED {c} made[{_CHAINS * _PART}];"
        yield f"    {c} {', '.join(f'p{k} = {self.nothing}' for k in chains)};"
        yield f"    {t} *{', *'.join(f'b{k} = b + i + {k} * part' for k in chains)};"
        yield f"    for (int64_t first = 0; first < part; first += {_ASKED}) {{"
        yield f"      const int64_t last = first + {_ASKED} < part ? first + {_ASKED} : part;"
        yield from (f"      __builtin_prefetch(soon + (i + {k} * part + first) * size, 0, 2);" for k in chains)
        yield "      for (int64_t j = first; j < last; j++) {"
        yield from (f"        made[{k} * part + j] = p{k} = {self._stepped(f'p{k}', f'b{k}[j]')};" for k in chains)
        yield "      }"
        yield "    }"
        for k in chains:
            yield "    #pragma omp simd"
            whole = self._stepped("c", f"made[{k} * part + j]")
            yield f"    for (int64_t j = 0; j < part; j++) b{k}[j] = ({t})({whole});"
            yield f"    c = {self._stepped('c', f'p{k}')};"
        yield f"    i += {_CHAINS} * part;"
        yield "  }"

    def _stepped(self, last: str, x: str) -> str:
        return stepped(self.step, last, x)
