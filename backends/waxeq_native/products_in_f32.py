"""Products of float16 and bfloat16 in float32: operands are converted first, weights when the call is bound, and all
else is the kernel for float32 with what it has before and after its products. Few machines multiply narrow floats, and
to convert a matrix takes a small part of a product's time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from waxeq.backend.call import Call, View, multiplies
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.excess import in_float32
from waxeq_cfamily.scalars import NARROW
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported
from waxeq_native.products import OnlineProducts, Products, SmallProducts
from waxeq_native.products_deep import DeepProducts
from waxeq_native.steps import OPERANDS
from waxeq_native.work import NativeKernel, Pack, Part, Work

_CHUNK = 1 << 14
"""Elements that are converted in one go."""
_SPREAD = 2
"""How many times as much memory as it has elements an operand may lie in: all of it is converted."""


@dataclass(frozen=True)
class _Widened:
    """An operand of narrow floats as float32, each element where it was: `at`: its place in the workspace; `low` and
    `high`: the first element in memory, counted from where the operand is said to be, and the one after the last."""

    operand: int
    dtype: str
    at: int
    low: int
    high: int

    @staticmethod
    def of(operand: int, v: View, at: int) -> _Widened:
        """Raises Unsupported."""
        steps = [(n - 1) * s for n, s in zip(v.shape, v.strides, strict=True)]
        low, high = sum(x for x in steps if x < 0), sum(x for x in steps if x > 0) + 1
        if high - low > _SPREAD * v.elements:
            raise Unsupported("an operand that lies far apart")
        return _Widened(operand, v.dtype, at, low, high)

    @property
    def bytes(self) -> int:
        return -(-4 * (self.high - self.low) // LINE) * LINE

    @property
    def place(self) -> str:
        """Where it is said to be as float32."""
        return f"args[1] + {self.at - 4 * self.low}"

    def part(self) -> Part:
        """The phase that converts it."""
        many = self.high - self.low
        lines = [
            f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{",
            "  (void)thread;",
            f"  const uint16_t *from = (const uint16_t *)args[{OPERANDS + self.operand}] + {self.low};",
            f"  float *to = (float *)(args[1] + {self.at});",
            f"  const int64_t first = begin * {_CHUNK}, last = end * {_CHUNK} < {many} ? end * {_CHUNK} : {many};",
            f"  wx_widened_row_{NARROW[self.dtype]}(from + first, to + first, last - first);",
            "}",
        ]
        return Part("\n".join(lines), -(-many // _CHUNK), 1)


@dataclass(frozen=True)
class _WidenedPack(Pack):
    """Panels in float32 of an operand of narrow floats."""

    def made(self, operand: np.ndarray) -> np.ndarray:
        steps = [s // operand.itemsize for s in operand.strides]
        ends = [(n - 1) * s for n, s in zip(operand.shape, steps, strict=True)]
        low, high = sum(x for x in ends if x < 0), sum(x for x in ends if x > 0) + 1
        flat = np.zeros(high - low, np.float32)
        wide = np.lib.stride_tricks.as_strided(flat[-low:], operand.shape, [4 * s for s in steps])
        wide[...] = operand
        return super().made(wide)


class ProductsInFloat32(NativeKernel):
    """Sums of products of narrow floats, with any epilogue; with functions of our own."""

    name = "products_in_f32"
    form = "loops"
    error = Products.error
    wide: ClassVar[NativeKernel] = Products()

    def matches(self, meaning: Term) -> bool:
        return multiplies(meaning) and any(t.head == "Sum" and k.dtype in NARROW for t, k in types(meaning).items())

    def work(self, call: Call) -> Work | None:
        if 0 in call.sizes.values() or call.sized:
            return None
        inner = _inner(call)
        found = self.wide.of(inner)
        if found is None:
            return None
        try:
            widened = tuple(self._widened(call, found))
        except Unsupported:
            return None
        arguments = OPERANDS + len(call.operands) + len(found.packs)

        def write() -> tuple[Part, ...]:
            return (*(w.part() for w in widened), *(_of_wide(p, widened, arguments) for p in found.parts))

        room = max([found.workspace, *(w.at + w.bytes for w in widened)])
        packs = tuple(_widened_pack(p) if call.operands[p.operand].dtype in NARROW else p for p in found.packs)
        return replace(found, write=write, workspace=room, packs=packs, walks=False, walk=None)

    def _widened(self, call: Call, found: Work) -> Iterator[_Widened]:
        """The operands that are converted in each run: all but weights that are read from panels only. They lie behind
        what the kernel for float32 has in its workspace. Raises Unsupported."""
        panels, at = {p.operand for p in found.packs}, -(-found.workspace // LINE) * LINE
        for i, v in enumerate(call.operands):
            if v.dtype in NARROW and not (i in panels and self._once(call, i)):
                w = _Widened.of(i, v, at)
                at += w.bytes
                yield w

    def _once(self, call: Call, operand: int) -> bool:
        """Whether an operand is read for one purpose."""
        values = self.wide.values(_inner(call))
        loads = [n for n, r in enumerate(values.rows) if r.op == "load" and r.name[0] == operand]
        users = [m for n in loads for m in values.users[n]]
        return len(loads) == len(users) == 1 and len(values.users[users[0]]) == 1

    def features(self, call: Call) -> Mapping[str, float]:
        inner = _inner(call)
        return {**self.wide.features(inner), "bytes": float(inner.bytes_read + call.bytes_read + call.out.bytes)}


def _inner(call: Call) -> Call:
    """The call in float32, its operands converted."""

    def made() -> Call:
        views = tuple(replace(v, dtype="float32") if v.dtype in NARROW else v for v in call.operands)
        return replace(call, meaning=in_float32(call.meaning), operands=views)

    return call.remember("in float32", made)


def _widened_pack(pack: Pack) -> Pack:
    return _WidenedPack(**{f.name: getattr(pack, f.name) for f in fields(pack)})


def _of_wide(part: Part, widened: Sequence[_Widened], arguments: int) -> Part:
    """A phase of the kernel for float32, with what was converted in the place of what was given."""
    first, rest = part.text.split("\n", 1)
    own = [
        f"  char *own[{arguments}];",
        f"  for (int i = 0; i < {arguments}; i++) own[i] = args[i];",
        *(f"  own[{OPERANDS + w.operand}] = {w.place};" for w in widened),
        "  args = own;",
    ]
    return replace(part, text="\n".join([first, *own, rest]))


class SmallProductsInFloat32(ProductsInFloat32):
    """The same in narrower tiles."""

    name = "products_in_f32_small"
    usual = ProductsInFloat32
    variant_of = usual.name
    wide = SmallProducts()


class OnlineProductsInFloat32(ProductsInFloat32):
    """The same with a folded axis taken block by block: attention with an online softmax."""

    name = "products_in_f32_online"
    usual = ProductsInFloat32
    variant_of = usual.name
    wide = OnlineProducts()


class DeepProductsInFloat32(ProductsInFloat32):
    """The same in pieces of the depth."""

    name = "products_in_f32_deep"
    wide = DeepProducts()


KERNELS = (ProductsInFloat32, SmallProductsInFloat32, OnlineProductsInFloat32, DeepProductsInFloat32)
