"""Weights of convolutions by minimal filtering, turned: when a call is bound, or by a phase of their own."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.lib.stride_tricks import as_strided

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.values import Values
from waxeq_native.winograd_block import Convolution
from waxeq_native.winograd_text import CALM, head, of, size_of
from waxeq_native.work import Pack

_WINDOW = 3
_AHEAD = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
"""G of Lavin and Gray: how a line of three weights is turned."""


class Filters(Pack):
    """Weights as the products read them, [16][columns][depth]: G g G' of each filter g, made in float64; and for each
    column whether its weights are of about one size all over the window. `axes` are those of the window."""

    @property
    def bytes(self) -> int:
        return (16 * self.depth + 1) * self.columns * numpy_dtype(self.dtype).itemsize

    def made(self, operand: np.ndarray) -> np.ndarray:
        """The filters of an operand."""
        dtype = numpy_dtype(self.dtype)
        (*_, down), (*_, across) = self.axes
        shape, steps = (self.columns, self.depth, _WINDOW, _WINDOW), (self.column_step, self.depth_step, down, across)
        ends = [(n - 1) * s for n, s in zip(shape, steps, strict=True)]
        low, high = sum(min(0, s) for s in ends), sum(max(0, s) for s in ends)
        first = operand.ctypes.data + (self.start + low) * dtype.itemsize
        raw = (ctypes.c_char * ((high - low + 1) * dtype.itemsize)).from_address(first)
        g = as_strided(
            np.frombuffer(memoryview(raw), dtype)[-low:], shape, [s * dtype.itemsize for s in steps], writeable=False
        )
        with np.errstate(all="ignore"):
            g = g.astype(np.float64)
            u = np.einsum("pi,ocij,qj->pqoc", _AHEAD, g, _AHEAD).astype(dtype)
            sizes = np.abs(g).sum(axis=1).reshape(self.columns, -1)
            calm = sizes.max(axis=1) <= CALM * sizes.min(axis=1)
        return np.concatenate([u.reshape(-1), calm.astype(dtype)])


def filters(values: Values, conv: Convolution) -> Filters:
    """The filters of a convolution."""
    o, c, _, _, i, j = conv.axes[-6:]
    w = conv.steps(conv.weights)
    window = tuple((k, values.sizes[k], w[n]) for k, n in ((i, "i"), (j, "j")))
    sizes = values.sizes[c], values.sizes[o]
    return Filters(conv.filter, conv.dtype, window, *sizes, w["c"], w["o"], conv.weights.const)


def filtered(conv: Convolution, filters: str) -> str:
    """The function that makes filters of weights: a task for each result, whose numbers are made side by side and then
    put where they belong, far apart. After all filters comes for each result whether it is calm."""
    t, w, n = CTYPES[conv.dtype], conv.steps(conv.weights), conv.channels
    turned = ("{0}", "({0} + {1} + {2}) / 2", "({0} - {1} + {2}) / 2", "{2}")
    reads = (f"g{i}{j} = g[c * {w['c']} + {i * w['i'] + j * w['j']}]" for i in range(3) for j in range(3))
    lines = [f"const {t} {', '.join(reads)};"]
    for p in range(4):
        sums = (f"h{p}{j} = {of(turned[p], [f'g{i}{j}' for i in range(3)])}" for j in range(3))
        lines.append(f"const {t} {', '.join(sums)};")
    for p in range(4):
        lines += (f"to[{4 * p + q}][c] = {of(turned[q], [f'h{p}{j}' for j in range(3)])};" for q in range(4))
    return "\n".join([
        *head(conv),
        f"  {t} *u = ({t} *){filters};",
        f"  WX_ALIGNED {t} to[16][{n}], sizes[9];",
        "  for (int64_t o = begin; o < end; o++) {",
        f"    const {t} *g = weights + {conv.weights.const} + o * {w['o']};",
        "#pragma omp simd",
        f"    for (int64_t c = 0; c < {n}; c++) {{",
        *("      " + line for line in lines),
        "    }",
        "    for (int64_t q = 0; q < 16; q++)",
        f"      for (int64_t c = 0; c < {n}; c++) u[(q * {conv.outputs} + o) * {n} + c] = to[q][c];",
        "    for (int64_t k = 0; k < 9; k++) sizes[k] = 0;",
        f"    for (int64_t c = 0; c < {n}; c++)",
        "      for (int64_t k = 0; k < 9; k++)",
        f"        sizes[k] += {size_of(conv)}(g[c * {w['c']} + k / 3 * {w['i']} + k % 3 * {w['j']}]);",
        f"    {t} least = sizes[0], most = sizes[0];",
        "    for (int64_t k = 1; k < 9; k++)",
        "      least = sizes[k] < least ? sizes[k] : least, most = sizes[k] > most ? sizes[k] : most;",
        f"    u[{16 * conv.outputs * n} + o] = most <= {CALM} * least;",
        "  }",
        "}",
    ])  # fmt: skip
