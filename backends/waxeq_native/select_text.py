"""C text that finds one place of rows in rising order, or two that are neighbours, without sorting the rest.

Of a row only those keys are kept that lie between two of a sample of it, in whose order the place is looked up; then
so again of what was kept, until little is left. A sample that misleads costs one more pass. Where a round leaves nearly
all of them, most are equal or in an order that hides them: the next one divides them by one key, which it leaves alone,
and if that does not help either, the one after it halves the range of keys. So rounds end, of any row.

Source: R. W. Floyd and R. L. Rivest, Expected Time Bounds for Selection, 1975.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

from waxeq.backend.call import Call
from waxeq_cfamily.taken import NAME
from waxeq_native.partial_text import CELLS, LANES, MASKS, wanted
from waxeq_native.select_rounds import APART, FEW, borders, bounds, found, left
from waxeq_native.sort_text import Sorted

_SHORT = 512
"""Elements of a row up to which all become keys before a sample is taken: in vectors, not one at a time."""
_SAMPLE, _LONG = 1024, 1 << 14
"""The sample of a long row, and the elements from which a row is one: its sample is selected from in its turn."""
_DEVIATIONS = 3.0
"""Standard deviations by which the bounds of a long row lie from where a place is expected in its sample."""
_COMPRESS = {8: "qi", 16: "hi", 32: "si", 64: "di"}
"""What is moved together of vectors, in the names of instructions, by the bits of a key."""
_LINE = 64
"""Bytes between what threads write."""


@dataclass(frozen=True)
class Selected:
    """One call. `first`: the lower one of the places that are wanted. `by`: from the one that is written first to the
    other: 0 where there is one.
    """

    sort: Sorted
    first: int
    by: int
    many: int

    @staticmethod
    def of(call: Call) -> Selected:
        c = call.canonical
        (x,), k = c.operands, c.meaning.terms[-1].args[0]
        n, first, by, many = wanted(c.meaning, c.sizes)
        around = tuple((c.sizes[a], x.stride(a), c.out.stride(a)) for a in c.out.axes if a != n)
        out_step = 0 if n is None else c.out.stride(n)
        by = by if many > 1 else 0
        sort = Sorted(x.dtype, c.sizes[k], x.stride(k), out_step, around, False)
        return Selected(sort, min(first, first + by * (many - 1)), by, many)

    @property
    def last(self) -> int:
        return self.first + abs(self.by) * (self.many - 1)

    @property
    def inside(self) -> bool:
        """Whether the places are places of a row."""
        return self.first >= 0 and self.last < self.sort.size

    @property
    def sample(self) -> int:
        """Elements that bounds are found by."""
        return _SAMPLE if self.sort.size >= _LONG else FEW

    @property
    def places(self) -> tuple[int, int]:
        """The places of the sample that bounds are at; outside of it there is none on that side."""
        share = (self.first + 0.5) / self.sort.size
        apart = ceil(_DEVIATIONS * sqrt(_SAMPLE * share * (1 - share))) + 1 if self.sample > FEW else APART
        low, high = (place * self.sample // self.sort.size for place in (self.first, self.last))
        return low - apart, high + apart + 1

    @property
    def room(self) -> int:
        """Bytes of the keys of a row, and of a vector more, which is written whole."""
        return _lines((self.sort.size + LANES) * self.sort.bits // 8)

    def each(self, pieces: int) -> int:
        """Elements of a piece."""
        return -(-self.sort.size // pieces)

    def room_of(self, pieces: int) -> int:
        """Bytes of a row in pieces: bounds, how many keys each piece kept, and those."""
        return _LINE * (1 + pieces) + _lines(pieces * (self.each(pieces) + LANES) * self.sort.bits // 8)

    def function(self, lines: list[str]) -> str:
        """The whole function, behind those that it calls."""
        text = self.sort.function(lines)
        begin = text.index(f"void {NAME}(")
        t, bits = self.sort.key, self.sort.bits
        helpers = [*self._count(), *self._kept(), *bounds(t, bits), *borders(t), *left(t, bits), *found(t)]
        return "\n".join([text[:begin] + "\n".join(helpers), text[begin:]])

    def _masks(self) -> Iterator[str]:
        """A vector of keys, and which of them are below both bounds and which between them."""
        bits = self.sort.bits
        each = 512 // bits
        number = f"uint{each}_t"
        yield f"  for (int64_t i = 0; i < n; i += {each}) {{"
        yield f"    const {number} live = ({number})(n - i < {each} ? (1ull << (n - i)) - 1 : -1ull);"
        yield f"    const {NAME}_keys v = *(const {NAME}_keys *)(a + i);"
        for name, bound, how in (("less", "least", 1), ("up", "most", 2)):
            mask = f"__builtin_ia32_{MASKS[bits]}512_mask(v, {bound}, {how}, live)"
            yield f"    const {number} {name} = ({number}){mask};"
        yield f"    const {number} in = up & ({number})~less;"

    def _begun(self) -> Iterator[str]:
        """Vectors of both bounds."""
        cell = CELLS[self.sort.bits]
        for name, bound in (("least", "low"), ("most", "high")):
            yield f"  const {NAME}_keys {name} = ({NAME}_keys){{0}} + ({cell}){bound};"

    def _count(self) -> Iterator[str]:
        """The function that tells how many of n keys are below both bounds, and how many between them."""
        t, bits = self.sort.key, self.sort.bits
        yield f"typedef {CELLS[bits]} {NAME}_keys __attribute__((vector_size(64), aligned({bits // 8}), may_alias));"
        yield f"static inline int64_t {NAME}_count(const {t} *a, int64_t n, {t} low, {t} high, int64_t *within) {{"
        yield "  int64_t below = 0, many = 0;"
        yield "#if defined(__AVX512F__) && defined(__AVX512BW__)"
        yield from self._begun()
        yield from self._masks()
        yield "    below += __builtin_popcountll(less), many += __builtin_popcountll(in);"
        yield "  }"
        yield "#else"
        yield "  for (int64_t i = 0; i < n; i++) below += a[i] < low, many += (a[i] >= low) & (a[i] <= high);"
        yield "#endif"
        yield "  *within = many;"
        yield "  return below;"
        yield "}"

    def _kept(self) -> Iterator[str]:
        """The function that writes those of n keys that are between two bounds, behind which it may write a vector
        more, and tells how many they are. They may be written where they are read."""
        t, bits = self.sort.key, self.sort.bits
        asked = "defined(__AVX512F__) && defined(__AVX512BW__)" + " && defined(__AVX512VBMI2__)" * (bits < 32)
        yield "__attribute__((always_inline))"
        arguments = f"const {t} *a, int64_t n, {t} low, {t} high, {t} *to, int64_t *below"
        yield f"static inline int64_t {NAME}_kept({arguments}) {{"
        yield "  int64_t many = 0, under = 0;"
        yield f"#if {asked}"
        yield from self._begun()
        yield from self._masks()
        compress = f"__builtin_ia32_compress{_COMPRESS[bits]}512_mask(v, v, in)"
        yield f"    *({NAME}_keys *)(to + many) = {compress};"
        yield "    under += __builtin_popcountll(less), many += __builtin_popcountll(in);"
        yield "  }"
        yield "#else"
        yield "  for (int64_t i = 0; i < n; i++) {"
        yield f"    const {t} one = a[i];"
        yield "    to[many] = one, under += one < low, many += (one >= low) & (one <= high);"
        yield "  }"
        yield "#endif"
        yield "  *below += under;"
        yield "  return many;"
        yield "}"

    def taken(self, low: str, high: str) -> Iterator[str]:
        """Keys of elements from `begun` to `ended` of the row between two bounds, to `a`."""
        t, step = self.sort.key, self.sort.step
        yield f"for (int64_t p = begun; p < ended; p += {LANES}) {{"
        yield f"  WX_ALIGNED {t} key[{LANES}];"
        yield f"  const int64_t many = ended - p < {LANES} ? ended - p : {LANES};"
        yield f"  if (many == {LANES}) {{"
        yield "    #pragma omp simd"
        yield f"    for (int64_t i = 0; i < {LANES}; i++) key[i] = {self.sort.key_of(f'x[(p + i) * {step}]')};"
        yield "  } else {"
        yield f"    for (int64_t i = 0; i < {LANES}; i++) key[i] = 0;"
        yield f"    for (int64_t i = 0; i < many; i++) key[i] = {self.sort.key_of(f'x[(p + i) * {step}]')};"
        yield "  }"
        yield f"  n += {NAME}_kept(key, many, {low}, {high}, a + n, &below);"
        yield "}"

    def sampled(self) -> Iterator[str]:
        """The bounds, from a sample with one element of each equal part of the row, which comes to lie at `a`."""
        t, many, (low, high) = self.sort.key, self.sample, self.places
        apart = self.sort.size // many
        part = f"(i * {self.sort.size} / {many} + (int64_t)((uint32_t)i * 2654435769u % {apart}u)) * {self.sort.step}"
        yield f"{t} low = 0, high = ({t})-1, both[2], some[{many + LANES if many > FEW else 1}];"
        yield "(void)both, (void)some;"
        yield f"for (int64_t i = 0; i < {many}; i++) a[i] = {self.sort.key_of(f'x[{part}]')};"
        if many == FEW:
            yield f"{NAME}_bounds(a, {low}, {high}, &low, &high);"
            yield "" if low >= 0 else "low = 0;"
            yield "" if high < many else f"high = ({t})-1;"
            return
        for name, place in (("low", low), ("high", high)):
            if 0 <= place < many:
                yield "__builtin_memcpy(some, a, sizeof some);"
                yield f"{NAME}_found(some, {many}, {place}, {place}, both);"
                yield f"{name} = both[0];"

    def short(self) -> Iterator[str]:
        """What is wanted of a row all elements of which become keys."""
        n = self.sort.size
        yield "#pragma omp simd"
        yield f"for (int64_t i = 0; i < {n}; i++) a[i] = {self.sort.keyed('i')};"
        yield f"{self.sort.key} best[2];"
        yield f"{NAME}_found(a, {n}, {self.first}, {self.last}, best);"
        yield from self.written()

    def long(self) -> Iterator[str]:
        """What is wanted of a row of which only those are kept that lie between bounds."""
        yield from self.sampled()
        yield "int64_t n = 0, below = 0;"
        yield f"const int64_t begun = 0, ended = {self.sort.size};"
        yield from self.taken("low", "high")
        yield from self.settled()

    def settled(self) -> Iterator[str]:
        """What is wanted, of the `n` keys that are kept; of all, where it is not among them."""
        yield f"if ({self.first} < below || {self.last} >= below + n) {{"
        yield f"  const int64_t begun = 0, ended = {self.sort.size};"
        yield "  n = below = 0;"
        yield from ("  " + x for x in self.taken("0", f"({self.sort.key})-1"))
        yield "}"
        yield f"{self.sort.key} best[2];"
        yield f"{NAME}_found(a, n, {self.first} - below, {self.last} - below, best);"
        yield from self.written()

    def written(self) -> Iterator[str]:
        """The keys that were found as elements, in the order that is wanted."""
        for i in range(self.many):
            lane = i if self.by >= 0 else 1 - i
            yield f"out[{i} * {self.sort.out_step}] = {self.sort.result(f'best[{lane}]', '0')};"


def alone(s: Selected, kept: int) -> str:
    """The function that does a row after the other. `kept`: bytes of the workspace for each thread, 0 where keys lie
    on the stack."""
    t = s.sort.key
    stack = [f"WX_ALIGNED {t} stack[{s.room * 8 // s.sort.bits}];"] if kept == 0 else []
    lines = [
        *s.sort.row("t"),
        *stack,
        f"{t} *const a = {'stack' if stack else f'({t} *)(args[1] + thread * {kept})'};",
        *(s.short() if s.sort.size <= _SHORT else s.long()),
    ]
    return s.function(lines)


def bounded(s: Selected, pieces: int) -> str:
    """The function that finds the bounds of a row that is done in pieces."""
    lines = [*s.sort.row("t"), "(void)out;", *_room(s, pieces, "t"), *s.sampled(), "bound[0] = low, bound[1] = high;"]
    return s.function(lines)


def gathered(s: Selected, pieces: int) -> str:
    """The function that keeps what lies between the bounds of a piece."""
    each = s.each(pieces)
    lines = [
        *s.sort.row(f"(t / {pieces})"),
        "(void)out;",
        *_room(s, pieces, f"t / {pieces}", f" + t % {pieces} * {each + LANES}"),
        f"const {s.sort.key} low = bound[0], high = bound[1];",
        "int64_t n = 0, below = 0;",
        f"const int64_t begun = t % {pieces} * {each};",
        f"const int64_t ended = begun + {each} < {s.sort.size} ? begun + {each} : {s.sort.size};",
        *s.taken("low", "high"),
        f"int64_t *const count = (int64_t *)(room + {_LINE} * (1 + t % {pieces}));",
        "count[0] = n, count[1] = below;",
    ]
    return s.function(lines)


def joined(s: Selected, pieces: int) -> str:
    """The function that puts together what the pieces of a row kept, and finds what is wanted."""
    lines = [
        *s.sort.row("t"),
        *_room(s, pieces, "t"),
        "(void)bound;",
        "int64_t n = 0, below = 0;",
        f"for (int64_t i = 0; i < {pieces}; i++) {{",
        f"  const int64_t *const count = (const int64_t *)(room + {_LINE} * (1 + i));",
        f"  __builtin_memmove(a + n, a + i * {s.each(pieces) + LANES}, count[0] * sizeof *a);",
        "  n += count[0], below += count[1];",
        "}",
        *s.settled(),
    ]
    return s.function(lines)


def _room(s: Selected, pieces: int, row: str, at: str = "") -> Iterator[str]:
    t = s.sort.key
    yield f"char *const room = args[1] + ({row}) * {s.room_of(pieces)};"
    yield f"{t} *const bound = ({t} *)room;"
    yield f"{t} *const a = ({t} *)(room + {_LINE * (1 + pieces)}){at};"


def _lines(n: int) -> int:
    return -(-n // _LINE) * _LINE
