"""C text of convolutions by minimal filtering: squares of inputs into 16 numbers, products, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Index
from waxeq_native.steps import OPERANDS

AHEAD = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
"""G of Lavin and Gray: how a line of three weights is turned."""
_INPUTS = ("{0} - {2}", "{1} + {2}", "{2} - {1}", "{1} - {3}")
"""B' of theirs: four numbers of a line of four inputs."""
_RESULTS = ("{0} + {1} + {2}", "{1} - {2} - {3}")
"""A' of theirs: two results of a line of four sums."""


CALM = 64
"""How many times the usual size the largest may be, of inputs of a block and of weights at one place of the window: a
result keeps so much less of its digits where what is large is multiplied by next to nothing."""


@dataclass(frozen=True)
class Convolution:
    """Fold number `fold`, of windows of operand `source` that lie at `where`, and of weights, operand `filter`. Results
    are written to `out`. `axes`: those of the batch, of results, of channels, down and across the result, and down and
    across the window."""

    fold: int
    dtype: str
    source: int
    filter: int
    where: Index
    weights: Index
    out: Index
    axes: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def batch(self) -> tuple[str, ...]:
        return self.axes[:-6]

    @property
    def batches(self) -> int:
        return math.prod(self.sizes[k] for k in self.batch)

    @property
    def outputs(self) -> int:
        return self.sizes[self.axes[-6]]

    @property
    def channels(self) -> int:
        return self.sizes[self.axes[-5]]

    @property
    def height(self) -> int:
        return self.sizes[self.axes[-4]]

    @property
    def width(self) -> int:
        return self.sizes[self.axes[-3]]

    @property
    def elements(self) -> int:
        return self.batches * self.outputs * self.height * self.width

    @property
    def down(self) -> int:
        """Lines of squares."""
        return -(-self.height // 2)

    @property
    def across(self) -> int:
        """Squares in a line."""
        return -(-self.width // 2)

    def steps(self, index: Index) -> dict[str, int]:
        """How far a step leads along what it is called here: o, c, h, w, i, j."""
        return {n: index.stride(k) or 0 for n, k in zip("ochwij", self.axes[-6:], strict=True)}

    def at(self, index: Index) -> str:
        """Where the elements of a batch begin."""
        terms = [f"{k} * {index.stride(k) or 0}" for k in self.batch]
        return " + ".join([str(index.const), *terms])


@dataclass(frozen=True)
class Block:
    """`lines` of squares, `outputs` results for each place; matrices have `columns` columns, whole vectors of `lanes`
    numbers."""

    lines: int
    outputs: int
    columns: int
    lanes: int

    def plane(self, rows: int) -> int:
        """Elements from one of 16 matrices of so many rows to the next: these are written side by side, and would meet
        in the same few places of a cache, were they powers of two apart."""
        return rows * self.columns + self.lanes

    def bytes(self, conv: Convolution) -> int:
        """What the 16 numbers of inputs and of results take."""
        return 16 * (self.plane(conv.channels) + self.plane(self.outputs)) * numpy_dtype(conv.dtype).itemsize

    def least(self, conv: Convolution) -> int:
        """Squares of the smallest block."""
        return (conv.down % self.lines or self.lines) * conv.across

    def tasks(self, conv: Convolution) -> int:
        return conv.batches * -(-conv.down // self.lines) * -(-conv.outputs // self.outputs)


def filtered(conv: Convolution, filters: str) -> str:
    """The function that makes filters of weights: a task for each result, whose numbers are made side by side and then
    put where they belong, far apart. After all filters comes for each result whether it is calm."""
    t, w, n = CTYPES[conv.dtype], conv.steps(conv.weights), conv.channels
    turned = ("{0}", "({0} + {1} + {2}) / 2", "({0} - {1} + {2}) / 2", "{2}")
    reads = (f"g{i}{j} = g[c * {w['c']} + {i * w['i'] + j * w['j']}]" for i in range(3) for j in range(3))
    lines = [f"const {t} {', '.join(reads)};"]
    for p in range(4):
        sums = (f"h{p}{j} = {_of(turned[p], [f'g{i}{j}' for i in range(3)])}" for j in range(3))
        lines.append(f"const {t} {', '.join(sums)};")
    for p in range(4):
        lines += (f"to[{4 * p + q}][c] = {_of(turned[q], [f'h{p}{j}' for j in range(3)])};" for q in range(4))
    return "\n".join([
        *_head(conv),
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
        f"        sizes[k] += {_size(conv)}(g[c * {w['c']} + k / 3 * {w['i']} + k % 3 * {w['j']}]);",
        f"    {t} least = sizes[0], most = sizes[0];",
        "    for (int64_t k = 1; k < 9; k++)",
        "      least = sizes[k] < least ? sizes[k] : least, most = sizes[k] > most ? sizes[k] : most;",
        f"    u[{16 * conv.outputs * n} + o] = most <= {CALM} * least;",
        "  }",
        "}",
    ])  # fmt: skip


def multiplied(conv: Convolution, b: Block, filters: str, result: str, scratch: int) -> str:
    """The function of the convolution: a task for each block."""
    t, s, y, n = CTYPES[conv.dtype], DTYPES[conv.dtype], conv.steps(conv.out), b.columns
    ahead, back = b.plane(conv.channels), b.plane(b.outputs)
    return "\n".join([
        *_head(conv),
        "  const wx_api *api = (const wx_api *)((wx_context *)args[0])->api;",
        f"  const {t} *u = (const {t} *){filters};",
        f"  WX_ALIGNED {t} before[{16 * ahead}];",
        f"  WX_ALIGNED {t} after[{16 * back}];",
        f"  WX_ALIGNED char scratch[{scratch}];",
        "  for (int64_t q = 0; q < 16; q++)  /* what fills the last vectors: nothing, or an earlier block */",
        f"    for (int64_t c = 0; c < {conv.channels}; c++)",
        f"      for (int64_t p = {b.least(conv)}; p < {n}; p++) before[q * {ahead} + c * {n} + p] = 0;",
        "  for (int64_t t = begin; t < end; t++) {",
        *("    " + x for x in _place(conv, b)),
        f"    {t} *y = ({t} *){result} + {conv.at(conv.out)} + o_lo * {y['o']};",
        *("    " + x for x in _calm(conv, b)),
        "    if (calm) {",
        *("      " + x for x in _turned(conv, b)),
        "      for (int64_t q = 0; q < 16; q++)",
        f"        api->gemm_any_{s}(many, {n}, {conv.channels}, u + (q * {conv.outputs} + o_lo) * {conv.channels}, "
        f"{conv.channels}, 1, before + q * {ahead}, {n}, 1, after + q * {back}, {n}, "
        "WX_CAREFUL, scratch);",
        f"      {t} odd = 0;",
        *("      " + x for x in _back(conv, b)),
        "      if (odd == 0) continue;",
        "    }",
        *("    " + x for x in _plainly(conv)),
        "  }",
        "}",
    ])  # fmt: skip


def _head(conv: Convolution) -> list[str]:
    t = CTYPES[conv.dtype]
    return [
        f"void {NAME}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{",
        "  (void)thread;",
        f"  const {t} *source = (const {t} *)args[{OPERANDS + conv.source}];",
        f"  const {t} *weights = (const {t} *)args[{OPERANDS + conv.filter}];",
        "  (void)source, (void)weights;",
    ]


def _place(conv: Convolution, b: Block) -> Iterator[str]:
    """Which block a task is."""
    parts, stacks = -(-conv.outputs // b.outputs), -(-conv.down // b.lines)
    yield f"const int64_t o_lo = t % {parts} * {b.outputs}, line = t / {parts} % {stacks} * {b.lines};"
    yield f"const int64_t many = {conv.outputs} - o_lo < {b.outputs} ? {conv.outputs} - o_lo : {b.outputs};"
    yield f"const int64_t lines = {conv.down} - line < {b.lines} ? {conv.down} - line : {b.lines};"
    rest = f"t / {parts * stacks}"
    for k in reversed(conv.batch):
        yield f"const int64_t {k} = {rest} % {conv.sizes[k]};"
        rest = f"{rest} / {conv.sizes[k]}"
    yield f"const {CTYPES[conv.dtype]} *x = source + {conv.at(conv.where)};"


def _calm(conv: Convolution, b: Block) -> Iterator[str]:
    """Whether the filters of a block are calm, and its inputs: whether the largest of each channel are together no more
    than so many times as large as they are on average."""
    t, x, high, wide = CTYPES[conv.dtype], conv.steps(conv.where), conv.height + 2, conv.width + 2
    yield f"const int64_t high = {high} - 2 * line < 2 * lines + 2 ? {high} - 2 * line : 2 * lines + 2;"
    size, head = _pieces(wide, b.lanes)
    yield f"{t} most = 0, all = 0;"
    yield f"for (int64_t c = 0; c < {conv.channels}; c++) {{"
    yield f"  {t} largest[{size}] = {{0}}, sum[{size}] = {{0}};"
    yield "  for (int64_t r = 0; r < high; r++) {"
    yield f"    const {t} *from = x + c * {x['c']} + (2 * line + r) * {x['h']};"
    yield f"    {head}"
    yield "#pragma omp simd"
    yield f"      for (int64_t l = 0; l < {size}; l++) {{"
    yield f"        const {t} found = {_size(conv)}(from[(at + l) * {x['w']}]);"
    yield "        largest[l] = found > largest[l] ? found : largest[l], sum[l] += at + l < next ? 0 : found;"
    yield "      }"
    yield "    }"
    yield "  }"
    yield f"  for (int64_t l = 1; l < {size}; l++)"
    yield "    largest[0] = largest[l] > largest[0] ? largest[l] : largest[0], sum[0] += sum[l];"
    yield "  most += largest[0], all += sum[0];"
    yield "}"
    yield f"int calm = all - all == 0 && most * (high * {wide}) <= {CALM} * all;"
    yield f"for (int64_t o = o_lo; o < o_lo + many; o++) calm &= u[{16 * conv.outputs * conv.channels} + o] != 0;"


def _pieces(count: int, lanes: int) -> tuple[int, str]:
    """How many of `count` neighbours are one vector, and the head of a loop over such vectors, of which the last may
    overlap the one before: it begins at `at`, not yet taken is what begins at `next`. What is left after whole vectors
    would be taken one by one, which takes longer than all of these."""
    size = min(lanes, 1 << max(0, count.bit_length() - 1))
    at = f"next + {size} <= {count} ? next : {count - size}"
    return size, f"for (int64_t next = 0, at = 0; next < {count}; next += {size}, at = {at}) {{"


def _turned(conv: Convolution, b: Block) -> Iterator[str]:
    """Squares of inputs as 16 numbers each. What lies past the end is not read: no result that is there has it."""
    t, x, n = CTYPES[conv.dtype], conv.steps(conv.where), b.columns
    past = f"2 * (line + r) + 3 > {conv.height + 1}"
    yield f"for (int64_t c = 0; c < {conv.channels}; c++)"
    yield "  for (int64_t r = 0; r < lines; r++) {"
    yield f"    const {t} *x0 = x + c * {x['c']} + 2 * (line + r) * {x['h']}, *x1 = x0 + {x['h']}, *x2 = x1 + {x['h']};"
    yield f"    const {t} *x3 = {past} ? x2 : x2 + {x['h']};"
    yield f"    {t} *to = before + c * {n} + r * {conv.across};"
    size, head = _pieces(conv.width // 2, b.lanes)
    yield from (f"    {head}", "#pragma omp simd", f"      for (int64_t p = at; p < at + {size}; p++) {{")
    yield from ("        " + line for line in _square(conv, b, x["w"], "p", 3))
    yield from ("      }", "    }")
    if conv.width % 2:
        yield "    {"
        yield from ("      " + line for line in _square(conv, b, x["w"], str(conv.across - 1), 2))
        yield "    }"
    yield "  }"


def _square(conv: Convolution, b: Block, step: int, place: str, last: int) -> Iterator[str]:
    """One square; its last column is column `last`."""
    t = CTYPES[conv.dtype]
    for i in range(4):
        reads = (f"d{i}{j} = x{i}[2 * {place} * {step} + {min(j, last) * step}]" for j in range(4))
        yield f"const {t} {', '.join(reads)};"
    for p in range(4):
        sums = (f"k{p}{j} = {_of(_INPUTS[p], [f'd{i}{j}' for i in range(4)])}" for j in range(4))
        yield f"const {t} {', '.join(sums)};"
    for p in range(4):
        for q in range(4):
            number = _of(_INPUTS[q], [f"k{p}{j}" for j in range(4)])
            yield f"to[{(4 * p + q) * b.plane(conv.channels)} + {place}] = {number};"


def _size(conv: Convolution) -> str:
    return "fabsf" if conv.dtype == "float32" else "fabs"


def _of(text: str, names: Sequence[str]) -> str:
    return text.format(*names)


def _back(conv: Convolution, b: Block) -> Iterator[str]:
    """Sums as squares of results. `odd` is not zero where one of them is not finite."""
    t, y, n = CTYPES[conv.dtype], conv.steps(conv.out), b.columns
    size, head = _pieces(conv.width // 2, b.lanes)
    yield "for (int64_t o = 0; o < many; o++)"
    yield "  for (int64_t r = 0; r < lines; r++) {"
    yield f"    const {t} *from = after + o * {n} + r * {conv.across};"
    yield f"    {t} *y0 = y + o * {y['o']} + 2 * (line + r) * {y['h']}, *y1 = y0 + {y['h']};"
    whole = f"2 * (line + r) + 1 < {conv.height}" if conv.height % 2 else "1"
    for condition, rows in ((f"if ({whole}) ", (0, 1)), ("else ", (0,)))[: 1 + conv.height % 2]:
        yield f"    {condition}{{"
        yield f"      {head}"
        yield "#pragma omp simd reduction(+:odd)"
        yield f"        for (int64_t p = at; p < at + {size}; p++) {{"
        yield from ("          " + line for line in _results(conv, b, y["w"], "p", rows, (0, 1)))
        yield from ("        }", "      }")
        if conv.width % 2:
            yield from ("      " + line for line in _results(conv, b, y["w"], str(conv.across - 1), rows, (0,)))
        yield "    }"
    yield "  }"


def _results(
    conv: Convolution, b: Block, step: int, place: str, rows: Sequence[int], columns: Sequence[int]
) -> Iterator[str]:
    """Those results of one square that are there."""
    t = CTYPES[conv.dtype]
    each = b.plane(b.outputs)
    for i in rows:
        for j in range(4):
            sums = _of(_RESULTS[i], [f"from[{(4 * p + j) * each} + {place}]" for p in range(4)])
            yield f"const {t} s{i}{j} = {sums};"
    for i in rows:
        for j in columns:
            yield f"const {t} r{i}{j} = {_of(_RESULTS[j], [f's{i}{q}' for q in range(4)])};"
            yield f"y{i}[2 * {place} * {step} + {j * step}] = r{i}{j}, odd += r{i}{j} - r{i}{j};"


def _plainly(conv: Convolution) -> Iterator[str]:
    """The block as the convolution is written: a product for each place of the window."""
    t, s = CTYPES[conv.dtype], DTYPES[conv.dtype]
    x, w, y = (conv.steps(i) for i in (conv.where, conv.weights, conv.out))
    weights = f"weights + {conv.weights.const} + o_lo * {w['o']} + i * {w['i']} + j * {w['j']}, {w['o']}, {w['c']}"
    inputs = f"x + (h + i) * {x['h']} + j * {x['w']}, {x['c']}, {x['w']}"
    yield f"for (int64_t h = 2 * line; h < 2 * (line + lines) && h < {conv.height}; h++) {{"
    yield "  for (int64_t i = 0; i < 3; i++)"
    yield "    for (int64_t j = 0; j < 3; j++)"
    yield f"      api->gemm_any_{s}(many, {conv.width}, {conv.channels}, {weights},"
    yield f"                       {inputs}, after, {conv.width}, i || j ? WX_ADD | WX_OF_SEVERAL : 0, scratch);"
    yield "  for (int64_t o = 0; o < many; o++) {"
    yield f"    {t} *to = y + o * {y['o']} + h * {y['h']};"
    yield f"    for (int64_t p = 0; p < {conv.width}; p++) to[p * {y['w']}] = after[o * {conv.width} + p];"
    yield "  }"
    yield "}"
