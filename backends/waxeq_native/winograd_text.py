"""C text of convolutions by minimal filtering: squares of inputs into 16 numbers, products, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.taken import NAME
from waxeq_native.steps import OPERANDS
from waxeq_native.winograd_block import Block, Convolution

_INPUTS = ("{0} - {2}", "{1} + {2}", "{2} - {1}", "{1} - {3}")
"""B' of theirs: four numbers of a line of four inputs."""
_RESULTS = ("{0} + {1} + {2}", "{1} - {2} - {3}")
"""A' of theirs: two results of a line of four sums."""


CALM = 32
"""How many times the usual size the largest may be, of inputs of a block and of weights at one place of the window: a
result keeps so much less of its digits where what is large is multiplied by next to nothing."""
_ALONE = 3
"""How many times the largest of a channel all of a block must be together: of few inputs one alone would be usual."""


class Text(Protocol):
    """What is done with results while they are in cache."""

    def text(self) -> Iterator[str]: ...


def multiplied(conv: Convolution, b: Block, filters: str, result: str, scratch: int, tail: Text | None) -> str:
    """The function of the convolution: a task for each block. With a tail, results are kept until that has been done
    with those of a chunk, else they are written where `result` lies."""
    t = CTYPES[conv.dtype]
    kept = [f"  WX_ALIGNED {t} made[{b.chunk * b.kept(conv)}];"] if tail is not None else []
    return "\n".join([
        *head(conv),
        "  const wx_api *api = (const wx_api *)((wx_context *)args[0])->api;",
        f"  const {t} *u = (const {t} *){filters};",
        f"  WX_ALIGNED {t} before[{16 * b.ahead(conv)}];",
        f"  WX_ALIGNED {t} after[{16 * b.back}];",
        *kept,
        f"  WX_ALIGNED char scratch[{scratch}];",
        "  for (int64_t t = begin; t < end; t++) {",
        *("    " + x for x in _place(conv, b)),
        *("    " + x for x in _calm(conv, b)),
        "    if (calm) {",
        *("      " + x for x in _turned(conv, b)),
        "    }",
        f"    for (int64_t o_lo = o_first; o_lo < o_last; o_lo += {b.chunk}) {{",
        f"      const int64_t many = o_last - o_lo < {b.chunk} ? o_last - o_lo : {b.chunk};",
        *("      " + x for x in _chunk(conv, b, result, tail)),
        "    }",
        "  }",
        "}",
    ])  # fmt: skip


def _chunk(conv: Convolution, b: Block, result: str, tail: Text | None) -> Iterator[str]:
    """Some results of a block, from turned inputs or as the convolution is written, and what is done with them."""
    t, s, y = CTYPES[conv.dtype], DTYPES[conv.dtype], _steps(conv, b, tail is not None)
    if tail is None:
        yield f"{t} *y = ({t} *){result} + {conv.at(conv.out)} + o_lo * {y['o']} + 2 * line * {y['h']};"
    else:
        yield f"{t} *y = made;"
    yield "int done = 0;"
    yield "if (calm) {"
    name, steps = (f"gemm_any_{s}", f", {b.columns}, 1") if b.lying else (f"gemm_{s}", "")
    yield "  for (int64_t q = 0; q < 16; q++)"
    yield f"    api->{name}(many, {b.columns}, {conv.channels}, u + (q * {conv.outputs} + o_lo) * {conv.channels},"
    yield f"      {conv.channels}, 1, before + q * {b.ahead(conv)}{steps}, after + q * {b.back}, {b.columns},"
    yield "      WX_CAREFUL, scratch);"
    yield from ("  " + x for x in _back(conv, b, y))
    yield "}"
    yield "if (!done) {"
    yield from ("  " + x for x in _plainly(conv, y))
    yield "}"
    if tail is not None:
        yield from tail.text()


def _steps(conv: Convolution, b: Block, kept: bool) -> Mapping[str, int]:
    """How far apart results of a chunk are."""
    return {"o": b.kept(conv), "h": conv.width, "w": 1} if kept else conv.steps(conv.out)


def head(conv: Convolution) -> list[str]:
    """How functions of phases begin."""
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
    yield f"const int64_t o_first = t % {parts} * {b.outputs}, line = t / {parts} % {stacks} * {b.lines};"
    last = f"o_first + {b.outputs}"
    yield f"const int64_t o_last = {last} < {conv.outputs} ? {last} : {conv.outputs};"
    yield f"const int64_t lines = {conv.down} - line < {b.lines} ? {conv.down} - line : {b.lines};"
    rest = f"t / {parts * stacks}"
    for k in reversed(conv.batch):
        yield f"const int64_t {k} = {rest} % {conv.sizes[k]};"
        rest = f"{rest} / {conv.sizes[k]}"
    yield f"const {CTYPES[conv.dtype]} *x = source + {conv.at(conv.where)};"


def _calm(conv: Convolution, b: Block) -> Iterator[str]:
    """Whether the filters of a block are calm, and its inputs: whether the largest of each channel are together no more
    than so many times as large as they are on average, and not most of what there is."""
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
    yield f"        const {t} found = {size_of(conv)}(from[(at + l) * {x['w']}]);"
    yield "        largest[l] = found > largest[l] ? found : largest[l], sum[l] += at + l < next ? 0 : found;"
    yield "      }"
    yield "    }"
    yield "  }"
    yield f"  for (int64_t l = 1; l < {size}; l++)"
    yield "    largest[0] = largest[l] > largest[0] ? largest[l] : largest[0], sum[0] += sum[l];"
    yield "  most += largest[0], all += sum[0];"
    yield "}"
    yield f"int calm = all - all == 0 && {_ALONE} * most <= all;"
    yield f"calm &= most * (high * {wide}) <= {CALM} * all;"
    yield f"for (int64_t o = o_first; o < o_last; o++) calm &= u[{16 * conv.outputs * conv.channels} + o] != 0;"


def _pieces(count: int, lanes: int) -> tuple[int, str]:
    """How many of `count` neighbours are one vector, and the head of a loop over such vectors, of which the last may
    overlap the one before: it begins at `at`, not yet taken is what begins at `next`. What is left after whole vectors
    would be taken one by one, which takes longer than all of these."""
    size = min(lanes, 1 << max(0, count.bit_length() - 1))
    at = f"next + {size} <= {count} ? next : {count - size}"
    return size, f"for (int64_t next = 0, at = 0; next < {count}; next += {size}, at = {at}) {{"


def _turned(conv: Convolution, b: Block) -> Iterator[str]:
    """Squares of inputs as 16 numbers each. What lies past the end is not read: no result that is there has it.

    Lines are summed down as they lie, then parted into the four columns of squares, of which sums across are made as
    matrices have them. Each of these is done to all lines of a block before the next: what is read in other vectors
    than it was just written in waits until it is in the cache.
    """
    t, x, n, wide = CTYPES[conv.dtype], conv.steps(conv.where), b.columns, 2 * b.lanes
    past, line = f"2 * (line + r) + 3 > {conv.height + 1}", 2 * conv.across + 2
    parts = ", ".join(f"k{j}[{4 * n}] = {{0}}" for j in range(4))
    yield f"WX_ALIGNED {t} down[{4 * line * b.lines}] = {{0}}, {parts};"
    yield f"for (int64_t c = 0; c < {conv.channels}; c++) {{"
    yield "  for (int64_t r = 0; r < lines; r++) {"
    yield f"    const {t} *x0 = x + c * {x['c']} + 2 * (line + r) * {x['h']}, *x1 = x0 + {x['h']}, *x2 = x1 + {x['h']};"
    yield f"    const {t} *x3 = {past} ? x2 : x2 + {x['h']};"
    yield f"    {t} *sums = down + r * {4 * line};"
    yield from ("    " + row for row in _down(conv, b, line))
    yield "  }"
    yield "  for (int64_t r = 0; r < lines; r++)"
    yield "    for (int64_t q = 0; q < 4; q++) {"
    yield f"      const {t} *sums = down + (4 * r + q) * {line};"
    yield f"      const int64_t first = q * {n} + r * {conv.across};"
    yield from ("      " + row for row in _parted(conv, b))
    yield "    }"
    place = f"c * {n} + p" if b.lying else f"p / {wide} * {wide * conv.channels} + c * {wide} + p % {wide}"
    yield f"  for (int64_t p = 0; p < {n}; p += {b.lanes}) {{"
    yield f"    {t} *to = before + {place};"
    yield from ("    " + row for row in _across(conv, b))
    yield "  }"
    yield "}"


def _down(conv: Convolution, b: Block, line: int) -> Iterator[str]:
    """Sums of four lines of inputs, which end with a zero where there is no input for the last square."""
    t, step = CTYPES[conv.dtype], conv.steps(conv.where)["w"]
    size, head = _pieces(conv.width + 2, b.lanes)
    yield from (head, "#pragma omp simd", f"  for (int64_t l = 0; l < {size}; l++) {{")
    yield f"    const {t} " + ", ".join(f"d{i} = x{i}[(at + l) * {step}]" for i in range(4)) + ";"
    for q in range(4):
        yield f"    sums[{q * line} + at + l] = {of(_INPUTS[q], [f'd{i}' for i in range(4)])};"
    yield from ("  }", "}")


def _parted(conv: Convolution, b: Block) -> Iterator[str]:
    """The columns of squares of a line of sums."""
    size, head = _pieces(conv.across, b.lanes)
    yield from (head, "#pragma omp simd", f"  for (int64_t l = 0; l < {size}; l++) {{")
    for j in range(4):
        yield f"    k{j}[first + at + l] = sums[2 * (at + l) + {j}];"
    yield from ("  }", "}")


def _across(conv: Convolution, b: Block) -> Iterator[str]:
    """Sums of the four columns of each, of a vector of squares."""
    yield from ("#pragma omp simd", f"for (int64_t l = 0; l < {b.lanes}; l++) {{")
    for q in range(4):
        columns = [f"k{j}[{q * b.columns} + p + l]" for j in range(4)]
        for j in range(4):
            yield f"  to[{(4 * q + j) * b.ahead(conv)} + l] = {of(_INPUTS[j], columns)};"
    yield "}"


def size_of(conv: Convolution) -> str:
    """The C function for how far a number is from zero."""
    return "fabsf" if conv.dtype == "float32" else "fabs"


def of(text: str, names: Sequence[str]) -> str:
    """A sum of some of these names."""
    return text.format(*names)


def _back(conv: Convolution, b: Block, y: Mapping[str, int]) -> Iterator[str]:
    """Sums as squares of results. They are done with where all of them are finite."""
    t, n = CTYPES[conv.dtype], b.columns
    size, head = _pieces(conv.width // 2, b.lanes)
    yield f"{t} odd[{size}] = {{0}};  /* not zero where one of them is not finite */"
    yield "for (int64_t o = 0; o < many; o++)"
    yield "  for (int64_t r = 0; r < lines; r++) {"
    yield f"    const {t} *from = after + o * {n} + r * {conv.across};"
    yield f"    {t} *y0 = y + o * {y['o']} + 2 * r * {y['h']}, *y1 = y0 + {y['h']};"
    whole = f"2 * (line + r) + 1 < {conv.height}" if conv.height % 2 else "1"
    for condition, rows in ((f"if ({whole}) ", (0, 1)), ("else ", (0,)))[: 1 + conv.height % 2]:
        yield f"    {condition}{{"
        yield f"      {head}"
        yield "#pragma omp simd"
        yield f"        for (int64_t l = 0; l < {size}; l++) {{"
        yield "          const int64_t p = at + l;"
        yield from ("          " + line for line in _results(conv, b, y["w"], "p", rows, (0, 1)))
        yield f"          odd[l] += {_sum_of_nothing(rows, (0, 1))};"
        yield from ("        }", "      }")
        if conv.width % 2:
            yield from ("      " + line for line in _results(conv, b, y["w"], str(conv.across - 1), rows, (0,)))
            yield f"      odd[0] += {_sum_of_nothing(rows, (0,))};"
        yield "    }"
    yield "  }"
    yield "done = 1;"
    yield f"for (int64_t l = 0; l < {size}; l++) done &= odd[l] == 0;"


def _sum_of_nothing(rows: Sequence[int], columns: Sequence[int]) -> str:
    """Zero, or NaN where one of some results is not finite."""
    return " + ".join(f"(r{i}{j} - r{i}{j})" for i in rows for j in columns)


def _results(
    conv: Convolution, b: Block, step: int, place: str, rows: Sequence[int], columns: Sequence[int]
) -> Iterator[str]:
    """Those results of one square that are there."""
    t = CTYPES[conv.dtype]
    for i in rows:
        for j in range(4):
            sums = of(_RESULTS[i], [f"from[{(4 * p + j) * b.back} + {place}]" for p in range(4)])
            yield f"const {t} s{i}{j} = {sums};"
    for i in rows:
        for j in columns:
            yield f"const {t} r{i}{j} = {of(_RESULTS[j], [f's{i}{q}' for q in range(4)])};"
            yield f"y{i}[2 * {place} * {step} + {j * step}] = r{i}{j};"


def _plainly(conv: Convolution, y: Mapping[str, int]) -> Iterator[str]:
    """The block as the convolution is written: a product for each place of the window."""
    t, s = CTYPES[conv.dtype], DTYPES[conv.dtype]
    x, w = conv.steps(conv.where), conv.steps(conv.weights)
    weights = f"weights + {conv.weights.const} + o_lo * {w['o']} + i * {w['i']} + j * {w['j']}, {w['o']}, {w['c']}"
    inputs = f"x + (h + i) * {x['h']} + j * {x['w']}, {x['c']}, {x['w']}"
    yield f"for (int64_t h = 2 * line; h < 2 * (line + lines) && h < {conv.height}; h++) {{"
    yield "  for (int64_t i = 0; i < 3; i++)"
    yield "    for (int64_t j = 0; j < 3; j++)"
    yield f"      api->gemm_any_{s}(many, {conv.width}, {conv.channels}, {weights},"
    yield f"                       {inputs}, after, {conv.width}, i || j ? WX_ADD | WX_OF_SEVERAL : 0, scratch);"
    yield "  for (int64_t o = 0; o < many; o++) {"
    yield f"    {t} *to = y + o * {y['o']} + (h - 2 * line) * {y['h']};"
    yield f"    for (int64_t p = 0; p < {conv.width}; p++) to[p * {y['w']}] = after[o * {conv.width} + p];"
    yield "  }"
    yield "}"
