"""What the texts of all kernels of CUDA C++ have in common: parameters, places, rows of values.

A kernel is one function. Its memory is touched through names of prelude.cuh only, so that the simulated device can look
at every access.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.scalars import CTYPES, narrowed, rounded, var, variable, widened
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Index, indices
from waxeq_cupy.threads import divides, movable

BEHIND = "WX_BEHIND"
"""What a kernel does first, in its text."""
_LARGEST = (1 << 31) - (1 << 20)
"""Where 32 bits no longer hold every place that is computed."""


@dataclass(frozen=True)
class Text(Emitter):
    """Text for one nest. `width`: how many elements of the vector axis are moved at once. `threads`: of a block.
    `together`: how many blocks a processor is to run at one time at least; 0 where it does not matter. `counted`: the
    number of a point counts the places along all axes, those of folds as well. `partial`: the dtype of a partial
    result, where the kernel writes one. `maps`: names of tensor maps."""

    threads: int = 256
    together: int = 0
    counted: bool = True
    width: int = 1
    partial: str = ""
    maps: tuple[str, ...] = ()
    hides: ClassVar[bool] = False
    converts: ClassVar[bool] = False
    grouped: ClassVar[bool] = False
    ahead: ClassVar[None] = None
    careful: ClassVar[bool] = False

    # -- the function around it

    def written(self, body: Iterable[str]) -> str:
        """The whole kernel."""
        watched = bool(self.values.positions)
        bounds = f"{self.threads}, {self.together}" if self.together else f"{self.threads}"
        lines = [f"WX_KERNEL({bounds}) {NAME}({', '.join(self._parameters(watched))}) {{"]
        lines += [f"  {BEHIND}();", *["  int bad = 0;"] * watched]
        lines += ["  " + x for x in body]
        lines += ["  if (bad) WX_RAISE(outside);"] * watched
        return "\n".join([*lines, "}", ""])

    def _parameters(self, watched: bool) -> Iterator[str]:
        for n, dtype in enumerate(self.dtypes):
            yield f"WX_{'REPLACED' if n in self.aliased else 'IN'}({CTYPES[dtype]}) x{n}"
        out = CTYPES[self.partial or self.values.rows[self.values.root].dtype]
        yield f"WX_{'REPLACING' if self.aliased else 'OUT'}({out}) out"
        if watched:
            yield "WX_FLAG outside"
        yield from (f"WX_MAP {name}" for name in self.maps)

    # -- places

    @cached_property
    def integer(self) -> str:
        """The type of places: 32 bits where they hold all, as 64 take a GPU several times as long."""
        most = max((self._reach(i) for r in self.values.rows for i in indices(r)), default=0)
        whole = 1
        for n in self.values.sizes.values() if self.counted else ():
            whole *= n
        return "int32_t" if max(most, self._reach(self.values.out), whole) < _LARGEST else "int64_t"

    def _reach(self, index: Index) -> int:
        """The farthest that an index leads from 0 on its way."""
        total = abs(index.const)
        for a, c in index.terms:
            if isinstance(a, str):
                total += abs(c) * self.values.sizes[a.removesuffix(":t")]
            else:
                inner = a[2] if a[0] == "row" else max(self._reach(a[1]), a[2])
                total += abs(c) * inner
        return total

    def places(self, number: str, axes: Sequence[str], extents: Mapping[str, int]) -> Iterator[str]:
        """The places along `axes`, the last the fastest, from the number of a point; of an axis in pieces, where its
        piece begins and ends."""
        rest = number
        for k in reversed(axes):
            first, n = k == axes[0], extents[k]
            text = rest if first or n == 1 else f"{rest} % {n}"
            if n == 1:
                text = "0"
            width = self.space.tiles.get(k)
            if width is None:
                yield f"const {self.integer} {var(k)} = {text};"
            else:
                size = self.values.sizes[k]
                yield f"const {self.integer} {var(k)}_t = {text}, {var(k)}_lo = {var(k)}_t * {width};"
                high = f"{var(k)}_lo + {width}"
                high = high if size % width == 0 else f"{high} < {size} ? {high} : {size}"
                yield f"const {self.integer} {var(k)}_hi = {high};"
            if not first and n > 1:
                yield f"const {self.integer} {var(k)}_over = {rest} / {n};"
                rest = f"{var(k)}_over"

    def bounds(self, axis: str) -> tuple[str, str]:
        """Where a loop begins and ends."""
        v = var(axis)
        return (f"{v}_lo", f"{v}_hi") if axis in self.space.tiles else ("0", str(self.values.sizes[axis]))

    # -- rows

    def need(self, starts: Iterable[int], known: Iterable[int]) -> list[int]:
        """The rows that must be computed for these, operands first; `known` are there already, and numbers are text."""
        have = frozenset(known)
        seen: set[int] = set()
        stack = list(starts)
        while stack:
            n = stack.pop()
            if n in seen or n in have or self.values.rows[n].op == "number":
                continue
            seen.add(n)
            stack += self.values.reads(self.values.rows[n])
        return sorted(seen)

    def wide(self, n: int, axis: str) -> bool:
        """Whether a row is read several elements of the axis at once."""
        r = self.values.rows[n]
        return self.width > 1 and movable(self.values, r, axis) and divides(r.name[1], axis, self.width)

    def taken(self, n: int) -> str:
        """Several elements of a row, from the place of the loops on."""
        r = self.values.rows[n]
        kind = f"wx_group<{CTYPES[r.dtype]}, {self.width}>"
        return f"const {kind} g{n} = wx_taken<{self.width}>(x{r.name[0]}, {self.index(r.name[1])});"

    def one(self, n: int, place: str) -> str:
        """One of the elements that were taken together."""
        return self.known(n, widened(f"g{n}.at[{place}]", self.values.rows[n].dtype))

    def known(self, n: int, text: str) -> str:
        """A row's variable, from something that is there already."""
        return f"const {variable(self.values.rows[n].dtype)} r{n} = {text};"

    def folded(self, n: int, value: str) -> str:
        """The value of a fold: sums of narrow floats are rounded at their end, and not twice."""
        r = self.values.rows[n]
        return rounded(value, r.dtype) if r.name == "sum" and n != self.values.root else value

    @property
    def stored(self) -> str:
        """The result as it is written to memory."""
        root = self.values.root
        return narrowed(self.name(root), self.values.rows[root].dtype)

    @property
    def wide_result(self) -> bool:
        """Whether several elements of the result are written at once."""
        v = self.space.vector
        out = self.values.out
        return self.width > 1 and v is not None and (v, 1) in out.terms and divides(out, v, self.width)
