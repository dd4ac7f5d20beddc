"""What a call is made of in C: functions, and phases that run them."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from waxeq.amounts import cores
from waxeq.backend.call import Call
from waxeq.backend.code import code_hash
from waxeq.backend.extent import Extent, variable
from waxeq.backend.kernel import OUT, Instruction, Kernel
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.products import Product, overlaps
from waxeq_cfamily.resolved import resolve
from waxeq_cfamily.scalars import CTYPES, var
from waxeq_cfamily.settled import settled
from waxeq_cfamily.taken import NAME, Named, bare_hash
from waxeq_cfamily.values import Index, Unsupported, Values
from waxeq_native import library
from waxeq_native.abreast import Slid
from waxeq_native.gemm import FILES, entry
from waxeq_native.joint import Walk
from waxeq_native.steps import OPERANDS, OUT_PLACE, Run, Step, compiled, prelude

HERE = Path(__file__).parent
Value = TypeVar("Value")
GRAIN = 1 << 15
"""Operations that a chunk of tasks should have: starting one costs about as much as a thousand."""


@dataclass(frozen=True)
class Part(Named):
    """One phase: a C function and how many tasks it has, taken `grain` at a time."""

    tasks: int
    grain: int


@dataclass(frozen=True)
class Pack:
    """The right side of a product as panels: one stack of them for each place along `axes` (name, size, step). Its
    depth is that of `layers` layers, each `layer_step` elements after the last."""

    operand: int
    dtype: str
    axes: tuple[tuple[str, int, int], ...]
    depth: int
    columns: int
    depth_step: int
    column_step: int
    start: int
    layers: int = 1
    layer_step: int = 0

    @classmethod
    def of(cls, values: Values, p: Product, operand: int, where: Index) -> Self:
        others = sorted(values.rows[p.right].axes - {p.depth, p.columns})
        axes = tuple((k, values.sizes[k], where.stride(k) or 0) for k in others)
        steps = where.stride(p.depth) or 0, where.stride(p.columns) or 0
        dtype = values.rows[p.right].dtype
        return cls(operand, dtype, axes, values.sizes[p.depth], values.sizes[p.columns], *steps, where.const)

    @property
    def each(self) -> int:
        """Elements of one stack of panels."""
        return int(entry("packed_size", self.dtype)(self.depth, self.columns))

    @property
    def tall(self) -> int:
        """Elements of a panel for each of its columns."""
        return self.depth

    @property
    def stacks(self) -> int:
        return math.prod(n for _, n, _ in self.axes)

    @property
    def bytes(self) -> int:
        return self.stacks * self.each * numpy_dtype(self.dtype).itemsize

    @property
    def repeats(self) -> bool:
        """Whether elements lie in many panels: windows that overlap are better read where they are."""
        around = ((n, step) for _, n, step in self.axes)
        return overlaps((*around, (self.depth, self.depth_step), (self.columns, self.column_step)))

    @property
    def varies(self) -> bool:
        """Whether it is another at other sizes."""
        own = (self.depth, self.columns, self.depth_step, self.column_step, self.start)
        return any(isinstance(n, Extent) for n in (*own, *(n for _, *row in self.axes for n in row)))

    def deeper(self, axis: str) -> Pack:
        """The same panels with the places along one of the axes on top of each other, one layer for each."""
        n, step = next((n, step) for k, n, step in self.axes if k == axis)
        axes = tuple(row for row in self.axes if row[0] != axis)
        return replace(self, axes=axes, depth=n * self.depth, layers=n, layer_step=step)

    def offset(self) -> str:
        """Where the stack at the loops' places begins, in elements."""
        text = "0"
        for k, n, _ in self.axes:
            text = f"({text} * {n} + {var(k)})"
        return f"{text} * {self.each}"

    def made(self, operand: np.ndarray) -> np.ndarray:
        """The panels of an operand; they begin with a cache line."""
        flat = self._flat()
        pack = entry("pack_b", self.dtype)
        item, layer = flat.itemsize, self.depth // self.layers
        wide = self.columns if self.layers == 1 else self._nr
        for i, place in enumerate(product(*(range(n) for _, n, _ in self.axes))):
            step = self.start + sum(x * s for x, (_, _, s) in zip(place, self.axes, strict=True))
            for j, k in product(range(0, self.columns, wide), range(self.layers)):
                source = operand.ctypes.data + (step + j * self.column_step + k * self.layer_step) * item
                to = flat.ctypes.data + (i * self.each + j * self.depth + k * layer * wide) * item
                pack(layer, min(wide, self.columns - j), source, self.depth_step, self.column_step, to)
        return flat

    @property
    def _nr(self) -> int:
        """Columns of a panel."""
        return int(entry("nr", self.dtype))

    def _flat(self) -> np.ndarray:
        """Memory for the panels: a vector across two lines is read twice, and malloc keeps to 16 bytes only."""
        raw = np.empty(self.bytes + LINE, np.uint8)
        begin = -raw.ctypes.data % LINE
        return raw[begin : begin + self.bytes].view(numpy_dtype(self.dtype))

    def part(self, at: int, sizes: Mapping[str, int]) -> Part:
        """The phase that packs into the workspace, from byte `at` on: a task for some columns of a stack. `sizes`: for
        each size that numbers depend on the operand that it is."""
        t, s = CTYPES[self.dtype], DTYPES[self.dtype]
        wide = self._nr if self.layers > 1 else -(-128 // self._nr) * self._nr
        pieces, layer = -(-self.columns // wide), self.depth // self.layers
        lines = [
            f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{",
            "  (void)thread;",
            "  const wx_api *api = (const wx_api *)((wx_context *)args[0])->api;",
            *(f"  const int64_t {variable(k)} = *(const int64_t *)args[{OPERANDS + n}];" for k, n in sizes.items()),
            f"  const {t} *x = (const {t} *)args[{OPERANDS + self.operand}];",
            f"  {t} *to = ({t} *)(args[1] + {at});",
            "  for (int64_t t = begin; t < end; t++) {",
            f"    const int64_t n = t % {pieces} * {wide}, stack = t / {pieces};",
        ]
        rest, place = "stack", str(self.start)
        for k, n, step in reversed(self.axes):
            lines.append(f"    const int64_t {var(k)} = {rest} % {n};")
            rest, place = f"{rest} / {n}", f"{place} + {var(k)} * {step}"
        lines += [
            f"    const int64_t many = {self.columns} - n < {wide} ? {self.columns} - n : {wide};",
            f"    for (int64_t k = 0; k < {self.layers}; k++)",
            f"      api->pack_b_{s}({layer}, many, x + {place} + n * {self.column_step} + k * {self.layer_step}, "
            f"{self.depth_step}, {self.column_step}, "
            f"to + stack * {self.each} + n * {self.depth} + k * {layer * wide});",
            "  }",
            "}",
        ]
        return Part("\n".join(lines), self.stacks * pieces, 1)


@dataclass(frozen=True)
class Work:
    """The phases of a call, and the bytes of workspace that they share. `write` makes the phases: most calls that a
    search looks at are never run, and their text is never written. `packs`: operands that are packed when the call is
    bound; their panels come after the operands among the arguments. `may_fail`: positions are read from memory, and
    one may lie outside its axis, or a matrix may have no solution or factor. `library`: address of what `wx_context`
    names so. `walks`: the first phase goes through what it reads in the order of its tasks. `walk`: of work that may be
    written together with that of other calls, what that takes."""

    write: Callable[[], tuple[Part, ...]]
    workspace: int = 0
    may_fail: bool = False
    packs: tuple[Pack, ...] = ()
    library: int | None = None
    walks: bool = False
    walk: Walk | Slid | None = None

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return self.write()


_MOST = 1 << 13
_known: dict[Hashable, Any] = {}
"""What was found for equal calls, the oldest first; forgotten beyond `_MOST`. A search asks for the same work under
many names, and for one meaning on behalf of several kernels."""


def same(call: Call) -> tuple[Hashable, ...]:
    """What calls have in common that differ only in names of axes, and in which parts of buffers they read."""
    return call.text, call.dims, call.layout, call.threads, _offsets(call)


def _offsets(call: Call) -> tuple[tuple[int, bool], ...]:
    """For each operand how far it begins from the first one in its buffer, and whether it begins where the result does
    in its own: a kernel is given the address of what it reads, and knows of no other offsets."""
    firsts: dict[int, int] = {}
    groups = call.shared or range(len(call.operands))
    rows = zip(groups, (v.offset for v in call.operands), strict=True)
    return tuple((at - firsts.setdefault(group, at), at == call.out.offset) for group, at in rows)


def kept(key: Hashable, make: Callable[[], Value]) -> Value:
    """What `make` answers or raises for equal calls, found once."""
    if key not in _known:
        while len(_known) >= _MOST:
            _known.pop(next(iter(_known)), None)
        try:
            _known[key] = make()
        except Unsupported as e:
            _known[key] = e
    found = _known[key]
    if isinstance(found, Unsupported):
        raise Unsupported(*found.args)
    return found


class NativeKernel(Kernel):
    """A kernel of generated C."""

    pace = 0.15
    pool = "native"
    usual: ClassVar[type[NativeKernel] | None] = None
    """What a variant is one of."""

    @property
    def code(self) -> str:
        """The class and what it uses, the C that it is compiled with, and the compiler."""
        parts = (code_hash(type(self)), written(), library.shared().compiler.identity)
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    @abstractmethod
    def work(self, call: Call) -> Work | None:
        """The work of a call; None for a call that the kernel does not take."""

    def of(self, call: Call) -> Work | None:
        """The work of a call, made once for all calls that are the same but for names."""
        return call.remember((self.name, "work"), lambda: kept((self.name, *same(call)), lambda: self.work(call)))

    def values(self, call: Call) -> Values:
        """The scalar values of a call's canonical form, resolved once for all kernels that look at it. Raises
        Unsupported."""
        c = call.canonical

        def make() -> Values:
            return settled(resolve(c.meaning, c.operands, c.out, c.sizes))

        return call.remember("values", lambda: kept(same(call), make))

    def accepts(self, call: Call) -> bool:
        return self.of(call) is not None

    def differs(self, call: Call) -> bool:
        own, theirs = self.of(call), self.usual().of(call) if self.usual is not None else None
        return own is None or theirs is None or own.parts != theirs.parts

    def workspace(self, call: Call) -> int:
        w = self.of(call)
        return 0 if w is None else w.workspace

    def retained(self, call: Call) -> int:
        w = self.of(call)
        return 0 if w is None else sum(p.bytes for p in w.packs)

    @staticmethod
    def prepare(rows: Sequence[tuple[Kernel, Call]]) -> None:
        works = (k.of(c) for k, c in rows if isinstance(k, NativeKernel))
        compiled((p for w in works if w is not None for p in w.parts), cores())

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        w = self.of(call)
        assert w is not None
        if not w.parts:
            return ()
        return (Step(w, call.threads, operands, out, workspace),)

    def repoint(self, steps: Sequence[Instruction], places: Mapping[int, int]) -> bool:
        for s in steps:
            if not isinstance(s, Step):
                return False
            for i, address in places.items():
                s.point(OUT_PLACE if i == OUT else OPERANDS + i, address)
        return True

    @staticmethod
    def join(steps: Sequence[Instruction]) -> Sequence[Instruction]:
        own = [s for s in steps if isinstance(s, Step)]
        return steps if len(own) < 2 or len(own) < len(steps) else (Run(own),)


@cache
def written() -> str:
    """A hash of the C that is not generated, without its comments."""
    texts = [prelude(), *(f.read_text(encoding="utf-8") for f in (*FILES, HERE / "team.c"))]
    return bare_hash("\n".join(texts))
