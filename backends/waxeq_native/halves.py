"""Products of a few rows with weights that are kept in sixteen bits: what such a product takes is reading the weights.

Each column of the weights is scaled by a power of two, rounded to float16 or bfloat16 when the call is bound, and read
back as float32; sums are taken in float32. They are choices only under a tolerance that allows for the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from waxeq.backend.call import Call, View
from waxeq_cfamily.taken import NAME
from waxeq_native.work import OPERANDS, NativeKernel, Pack, Part, Work

_ROWS = 4
"""Rows up to which reading the weights takes longer than the arithmetic."""
_LANES = 8


@dataclass(frozen=True)
class Halves(Pack):
    """Weights as panels of `wide` columns, [panel][depth][wide] in sixteen bits, zeros beyond the last column; then the
    scale of each column in float32."""

    wide: int = 32
    brain: bool = False

    @property
    def panels(self) -> int:
        return -(-self.columns // self.wide)

    @property
    def scales_at(self) -> int:
        """The byte where the scales begin."""
        return -(-self.panels * self.depth * self.wide * 2 // 64) * 64

    @property
    def bytes(self) -> int:
        return self.scales_at + self.panels * self.wide * 4

    def made(self, operand: np.ndarray) -> np.ndarray:
        """The panels of a matrix of shape (depth, columns) or, where `start` is 1, (columns, depth)."""
        w = operand.T if self.start else operand
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(w), axis=0, initial=0.0)
            known = np.isfinite(largest) & (largest > 0) & (not self.brain)
            power = np.minimum(127.0, np.ceil(np.log2(np.where(known, largest, 1.0))))
            scale = np.where(known, np.exp2(power), 1.0).astype(np.float32)
            bits = brain_bits(w) if self.brain else (w / scale).astype(np.float16).view(np.uint16)
        whole = np.zeros((self.depth, self.panels * self.wide), np.uint16)
        whole[:, : self.columns] = bits
        flat = np.zeros(self.bytes, np.uint8)
        panels = whole.reshape(self.depth, self.panels, self.wide).transpose(1, 0, 2)
        flat[: panels.nbytes] = np.ascontiguousarray(panels).reshape(-1).view(np.uint8)
        flat[self.scales_at :].view(np.float32)[: self.columns] = scale
        return flat


def brain_bits(w: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, ties to even, as bits; NaN stays NaN."""
    bits = np.ascontiguousarray(w, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(w), (bits >> 16) | 0x40, rounded).astype(np.uint16)


@dataclass(frozen=True)
class _Roles:
    """A product of rows with fixed weights: which operand is which, its axes, and where each row of the left side and
    of the result begins, in elements."""

    weights: int
    left: int
    depth: str
    column: str
    rows: tuple[tuple[int, int], ...]

    @staticmethod
    def of(call: Call) -> _Roles | None:
        c = call.canonical
        t, summed = c.meaning, []
        while t.head == "Sum":
            summed.append(t.args[0])
            t = t.args[1]
        if len(summed) != 1 or len(c.operands) != 2 or len(c.fixed) != 1 or 0 in c.sizes.values():
            return None
        (w,), depth = c.fixed, summed[0]
        x = 1 - w
        matrix, left = c.operands[w], c.operands[x]
        columns = [k for k in matrix.axes if k != depth]
        around = [k for k in left.axes if k != depth]
        if len(matrix.axes) != 2 or len(columns) != 1 or columns[0] in around or depth not in left.axes:
            return None
        if set(c.out.axes) != {*around, *columns} or math.prod(c.sizes[k] for k in around) > _ROWS:
            return None
        rows = [(0, 0)]
        for k in around:
            steps = left.stride(k), c.out.stride(k)
            rows = [(a + i * steps[0], b + i * steps[1]) for a, b in rows for i in range(c.sizes[k])]
        return _Roles(w, x, depth, columns[0], tuple(rows))


class FloatHalves(NativeKernel):
    """Products of up to four rows with fixed weights, which are kept in float16 with a scale for each column."""

    name = "weights_f16"
    pattern = "(Sum* ks (Mul a b))"
    dtypes = ("float32",)
    error = 3e-4
    smallest = 256
    brain = False

    def work(self, call: Call) -> Work | None:
        r = _Roles.of(call)
        c = call.canonical
        if r is None or any(v.dtype != "float32" for v in (c.out, *c.operands)):
            return None
        depth, columns = c.sizes[r.depth], c.sizes[r.column]
        transposed = int(c.operands[r.weights].axes[0] == r.column)
        wide = 32 if len(r.rows) <= 2 else 16
        shape = {"depth": depth, "columns": columns, "depth_step": 0, "column_step": 0, "start": transposed}
        pack = Halves(r.weights, "float32", (), **shape, wide=wide, brain=self.brain)
        left = c.operands[r.left]
        return Work(lambda: (_part(r, pack, left, c.out, self.brain),), packs=(pack,))

    def features(self, call: Call) -> Mapping[str, float]:
        work = self.of(call)
        assert work is not None
        (pack,) = work.packs
        other = call.bytes_read + call.out.bytes - 4 * pack.depth * pack.columns
        products = float(pack.depth * pack.columns * (call.out.elements // pack.columns))
        return {"launches": 1.0, "bytes": float(pack.bytes + max(0, other)), "operations": products / _LANES}


class BrainHalves(FloatHalves):
    """Products of up to four rows with fixed weights, which are kept in bfloat16."""

    name = "weights_bf16"
    error = 2e-3
    brain = True


KERNELS = (FloatHalves, BrainHalves)

_READ = {
    True: """  const wx_bits8 bits = __builtin_convertvector(*(const wx_half8 *)p, wx_bits8) << 16;
  return (wx_float8)bits;""",
    False: """#if defined(__F16C__)
  wx_eight_halves h;
  __builtin_memcpy(&h, p, sizeof h);
  return WX_WIDENED_8(h);
#else
  const wx_bits8 bits = __builtin_convertvector(*(const wx_half8 *)p, wx_bits8);
  const wx_float8 size = (wx_float8)((bits & 0x7fff) << 13) * 0x1p112f;
  const wx_bits8 endless = (wx_bits8)((bits & 0x7c00) == 0x7c00) & 0x7f800000u;
  return (wx_float8)((wx_bits8)size | endless | (bits & 0x8000) << 16);
#endif""",
}
"""Eight numbers of sixteen bits at `p`, as float32."""
_HEAD = """typedef float wx_float8 __attribute__((vector_size(32)));
typedef uint32_t wx_bits8 __attribute__((vector_size(32)));
typedef uint16_t wx_half8 __attribute__((vector_size(16), aligned(2)));
static inline __attribute__((always_inline)) wx_float8 WX_FUNCTION_read(const uint16_t *p) {
%s
}
"""


def _part(r: _Roles, pack: Halves, left: View, out: View, brain: bool) -> Part:
    """The phase that makes all columns, a task for each panel."""
    place = f"args[{OPERANDS + 2}]"
    vectors, step = pack.wide // _LANES, left.stride(r.depth)
    sums = [(i, v) for i in range(len(r.rows)) for v in range(vectors)]
    lines = [
        f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{",
        "  (void)thread;",
        f"  const uint16_t *const panels = (const uint16_t *){place};",
        f"  const float *const scales = (const float *)({place} + {pack.scales_at});",
        f"  const float *const x = (const float *)args[{OPERANDS + r.left}];",
        "  float *const out = (float *)args[2];",
        "  for (int64_t t = begin; t < end; t++) {",
        f"    const uint16_t *w = panels + t * {pack.depth * pack.wide};",
        f"    wx_float8 {', '.join(f's{i}_{v} = {{0}}' for i, v in sums)};",
        f"    for (int64_t k = 0; k < {pack.depth}; k++, w += {pack.wide}) {{",
        *(f"      const wx_float8 w{v} = {NAME}_read(w + {v * _LANES});" for v in range(vectors)),
        *(f"      const float x{i} = x[{at} + k * {step}];" for i, (at, _) in enumerate(r.rows)),
        *(f"      s{i}_{v} += x{i} * w{v};" for i, v in sums),
        "    }",
        f"    WX_ALIGNED float sums[{len(r.rows)}][{pack.wide}];",
        *(f"    *(wx_float8 *)(sums[{i}] + {v * _LANES}) = s{i}_{v};" for i, v in sums),
        f"    const int64_t first = t * {pack.wide};",
        f"    const int64_t many = {pack.columns} - first < {pack.wide} ? {pack.columns} - first : {pack.wide};",
        "    for (int64_t j = 0; j < many; j++) {",
        *(
            f"      out[{at} + (first + j) * {out.stride(r.column)}] = sums[{i}][j] * scales[first + j];"
            for i, (_, at) in enumerate(r.rows)
        ),
        "    }",
        "  }",
        "}",
    ]
    return Part(_HEAD % _READ[brain] + "\n".join(lines), pack.panels, 1)
