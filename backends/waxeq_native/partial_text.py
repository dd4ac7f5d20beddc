"""C text that finds the first few places of rows in rising order, without sorting the rest.

The best so far are kept in order; the last of them is a limit, and of 64 keys that are compared with limits at once
nearly none is below its own. The last places are the first ones in falling order of the row read backwards: equal
elements keep their order there too.

Source: D. E. Knuth, The Art of Computer Programming 3, 5.2.1 (straight insertion) and 5.3.3 (the largest few).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from waxeq.backend.call import Call
from waxeq.ir.term import Term
from waxeq.ir.types import is_float
from waxeq_cfamily.taken import NAME
from waxeq_native.sort_text import Sorted

LANES = 64
"""Keys that are compared at once: as many as a number has bits."""
_NARROWEST = 8
"""Columns from which they are compared side by side."""
_VECTOR = 64
"""Bytes of a vector of the best."""
CELLS = {8: "char", 16: "short", 32: "int", 64: "long long"}
MASKS = {8: "ucmpb", 16: "ucmpw", 32: "ucmpd", 64: "ucmpq"}
"""What vectors of keys are made of, and instructions that compare them without signs, by their bits."""


@dataclass(frozen=True)
class Partial:
    """One call. `sort`: the rows, in the order in which they are read. `first`, `by`, `many`: the places that are
    wanted, in that order. `back`: elements are read from the last one on, and the largest come first. `negated`: what
    is sorted is the negative of what is read. `columns`: neighbours in memory, the rows of which are read together,
    and the step of the result from the one to the next; one row at a time where there are none.
    """

    sort: Sorted
    first: int
    by: int
    many: int
    back: bool
    negated: bool
    columns: tuple[int, int] | None

    @staticmethod
    def of(call: Call) -> Partial:
        c = call.canonical
        (x,), inner = c.operands, c.meaning.terms[-1]
        k = inner.args[0]
        n, first, by, many = wanted(c.meaning, c.sizes)
        size, step = c.sizes[k], x.stride(k)
        out_step = 0 if n is None else c.out.stride(n)
        back = max(first, first + by * (many - 1)) >= size - 1 - min(first, first + by * (many - 1))
        around = tuple((c.sizes[a], x.stride(a), c.out.stride(a)) for a in c.out.axes if a != n)
        beside = max((r for r in around if r[1] == 1), default=None)
        columns = None
        if abs(step) != 1 and beside is not None and beside[0] >= _NARROWEST:
            columns, around = (beside[0], beside[2]), _without(around, beside)
        if back:
            first, by, step = size - 1 - first, -by, -step
        sort = Sorted(x.dtype, size, step, out_step, around, inner.head == "Argsort")
        return Partial(sort, first, by, many, back, inner.terms[0].head == "Map", columns)

    @property
    def rows(self) -> int:
        """Tasks: rows, or groups of columns."""
        return self.sort.rows * (1 if self.columns is None else -(-self.columns[0] // LANES))

    @property
    def kept(self) -> int:
        """How many of the best are looked for."""
        return 1 + max(self.first, self.first + self.by * (self.many - 1))

    @property
    def inside(self) -> bool:
        """Whether all places that are wanted are places of a row."""
        last = self.first + self.by * (self.many - 1)
        return min(self.first, last) >= 0 and max(self.first, last) < self.sort.size

    @property
    def lanes(self) -> int:
        """How many of the best are in a vector: of keys alone, with their places, or of keys and of places."""
        return _VECTOR // min(8, self.sort.width)

    @property
    def vectors(self) -> int:
        return -(-self.kept // self.lanes)

    @property
    def wide(self) -> bool:
        """Whether places are in vectors of their own."""
        return self.sort.width > 8

    @property
    def room(self) -> int:
        """Bytes of the best."""
        return self.vectors * _VECTOR * (1 + self.wide)

    @property
    def insertions(self) -> float:
        """Of a row in random order."""
        kept = max(1, self.kept)
        return kept * (1.0 + log(max(1.0, self.sort.size / kept)))

    def keyed(self, x: str) -> str:
        """The key of an element: what comes first has the smaller one."""
        s = self.sort
        if self.negated:
            x = f"({s.key})({x} ^ {s.number(1 << (s.bits - 1))})" if is_float(s.dtype) else f"({s.key})(0 - {x})"
        return f"({s.key})~{s.key_of(x)}" if self.back else s.key_of(x)

    def function(self, lines: Sequence[str]) -> str:
        text = self.sort.function(lines)
        begin = text.index(f"void {NAME}(")
        return "\n".join([text[:begin] + "\n".join([*self._inserted(), *self._below()]), text[begin:]])

    def row(self, number: str) -> Iterator[str]:
        """Where a row, or the first one of a group of columns, begins as it is read, and where it is written."""
        if self.columns is None:
            yield from self.sort.row(number)
        else:
            groups = -(-self.columns[0] // LANES)
            yield f"const int64_t column = {number} % {groups} * {LANES};"
            yield f"const int64_t many = {self.columns[0]} - column < {LANES} ? {self.columns[0]} - column : {LANES};"
            yield from self.sort.row(f"({number} / {groups})")

    @property
    def start(self) -> str:
        """Where the first element of a row that is read lies from its first one in memory."""
        return f"x + {-(self.sort.size - 1) * self.sort.step}" if self.back else "x"

    def empty(self, best: str) -> str:
        """Nothing has been found: what is there comes after everything."""
        return f"__builtin_memset(&{best}, 255, sizeof {best});"

    def limit(self, best: str) -> str:
        """The key of the last of the best."""
        t = self.sort.key if self.wide else self.sort.moved
        return f"({self.sort.key})(((const {t} *){best}.v)[{self.kept - 1}] >> {0 if self.wide else self.sort.low})"

    def written(self, best: str, to: str) -> str:
        """The places that are wanted of the best."""
        s, at = self.sort, f"{self.first} + i * {self.by}"
        key, place = self.parts(f"{best}", at)
        place = f"(int64_t)(uint32_t){place}"
        if s.placed:
            value = f"{s.size - 1} - {place}" if self.back else place
        else:
            value = s.result(f"({s.key})~{key}" if self.back else key, place)
        return f"for (int64_t i = 0; i < {self.many}; i++) {to}[i * {s.out_step}] = {value};"

    def parts(self, best: str, at: str) -> tuple[str, str]:
        """The key and the place of one of the best; its key alone is all there is where no places are wanted."""
        s = self.sort
        one = f"((const {s.key if self.wide else s.moved} *){best}.v)[{at}]"
        if self.wide:
            return one, f"((const {s.key} *){best}.v)[{self.vectors * self.lanes} + {at}]"
        return (f"({s.key})({one} >> {s.low})", one) if s.placed else (one, "0")

    def _inserted(self) -> Iterator[str]:
        """The best and the function that inserts into them, in vectors of the machine: of longer ones gcc compares one
        key after the other."""
        yield "#if defined(__AVX512F__) && defined(__AVX512BW__)"
        yield from (*self._best(1), *self._put(1))
        yield "#else"
        yield from (*self._best(2), *self._put(2))
        yield "#endif"

    def _best(self, parts: int) -> Iterator[str]:
        """The types of the best, each vector in so many parts, and the function that moves them by one place."""
        n, moved = self.lanes // parts, self.sort.key if self.wide else self.sort.moved
        places = range(n - 1, 2 * n - 1)
        yield f"typedef {moved} {NAME}_vector __attribute__((vector_size({_VECTOR // parts}), may_alias));"
        yield f"typedef struct {{ {NAME}_vector v[{self.room // _VECTOR * parts}]; }} {NAME}_best;"
        yield f"static inline {NAME}_vector {NAME}_moved({NAME}_vector a, {NAME}_vector b) {{"
        yield "#ifdef __clang__"
        yield f"  return __builtin_shufflevector(a, b, {', '.join(map(str, places))});"
        yield "#else"
        yield f"  return __builtin_shuffle(a, b, ({NAME}_vector){{{', '.join(map(str, places))}}});"
        yield "#endif"
        yield "}"

    def _put(self, parts: int) -> Iterator[str]:
        """The function that inserts one that is new into the best, behind those that equal it: the last vector first,
        as each takes in the last one of that before it."""
        v, s = f"{NAME}_vector", self.sort
        yield "__attribute__((always_inline))"
        yield f"static inline void {NAME}_put({NAME}_best *best, {s.key} key, uint32_t place) {{"
        moved = f"({s.moved})key << {s.low} | place" if s.placed and not self.wide else "key"
        yield f"  const {v} none = {{0}}, new = none + ({s.key if self.wide else s.moved})({moved});"
        if self.wide:
            yield f"  const {v} at = none + place;"
        vectors = self.vectors * parts
        for i in reversed(range(vectors)):
            yield f"  {{ const {v} a = best->v[{i}], b = {NAME}_moved({self._before(i, 0)}, a);"
            if not self.wide:
                yield f"    const {v} here = ({v})(a > new), later = ({v})(b > new);"
            else:
                j = vectors + i
                yield f"    const {v} p = best->v[{j}], q = {NAME}_moved({self._before(i, vectors)}, p);"
                for name, x, y in (("here", "a", "p"), ("later", "b", "q")):
                    yield f"    const {v} {name} = ({v})(({x} > new) | (({x} == new) & ({y} > at)));"
                yield f"    const {v} r = (here & at) | (~here & p);"
                yield f"    best->v[{j}] = (later & q) | (~later & r);"
            yield f"    const {v} c = (here & new) | (~here & a);"
            yield f"    best->v[{i}] = (later & b) | (~later & c); }}"
        yield "}"

    def _before(self, i: int, begin: int) -> str:
        return f"best->v[{begin + i - 1}]" if i else "none"

    def _below(self) -> Iterator[str]:
        """The function that tells which of 64 keys are below their limits: one for each, or one for all."""
        t, bits = self.sort.key, self.sort.bits
        each = 512 // bits
        limit = "limit[i]" if self.columns else "limit"
        yield f"static inline uint64_t {NAME}_below(const {t} *key, const {t} {'*' * bool(self.columns)}limit) {{"
        yield "  uint64_t found = 0;"
        yield "#if defined(__AVX512F__) && defined(__AVX512BW__)"
        yield f"  typedef {CELLS[bits]} wx_keys __attribute__((vector_size(64), may_alias));"
        every = f"(wx_keys){{0}} + ({CELLS[bits]})limit"
        yield f"  for (int i = 0; i < {LANES}; i += {each}) {{"
        yield f"    const wx_keys most = {'*(const wx_keys *)(limit + i)' if self.columns else every};"
        less = f"__builtin_ia32_{MASKS[bits]}512_mask(*(const wx_keys *)(key + i), most, 1, -1)"
        yield f"    found |= (uint64_t)(uint{each}_t){less} << i;"
        yield "  }"
        yield "#else"
        yield f"  {t} any = 0;"
        yield "  #pragma omp simd reduction(|:any)"
        yield f"  for (int i = 0; i < {LANES}; i++) any |= key[i] < {limit};"
        yield "  if (any)"
        yield f"    for (int i = 0; i < {LANES}; i++) found |= (uint64_t)(key[i] < {limit}) << i;"
        yield "#endif"
        yield "  return found;"
        yield "}"


def wanted(t: Term, sizes: Mapping[str, int]) -> tuple[str | None, int, int, int]:
    """The axis of the result that places lie along, the first place, the step and how many there are."""
    if t.head == "Gather":
        return None, int(t.args[1].args[0]), 1, 1
    n, first, by = t.args[1:4]
    return n, first, by, sizes[n]


def _without(rows: tuple[tuple[int, int, int], ...], one: tuple[int, int, int]) -> tuple[tuple[int, int, int], ...]:
    at = rows.index(one)
    return rows[:at] + rows[at + 1 :]


def lying(p: Partial, pieces: int) -> str:
    """The function that goes through a row, or one of its pieces: what that comes to is left in the workspace."""
    s, t, short = p.sort, p.sort.key, p.sort.size < LANES
    at = "low" if short else f"high - p < {LANES} && high - low >= {LANES} ? high - {LANES} : p"
    lines = [
        *p.row(f"(t / {pieces})"),
        f"const {t} *const row = {p.start};",
        *_piece(s.size, pieces),
        f"{NAME}_best best;",
        p.empty("best"),
        "int64_t p = low;",
        f"for (; p < high && p < low + {p.kept}; p++) {NAME}_put(&best, {p.keyed(f'row[p * {s.step}]')}, p);",
        f"{t} limit = {p.limit('best')};",
        f"for (; p < high; p += {LANES}) {{",
        f"  const int64_t at = {at};",
        *("  " + x for x in _keys(p, str(s.size) if short else "high - at", f"row[(at + i) * {s.step}]")),
        f"  uint64_t bits = {NAME}_below(key, limit) & (~0ull << (p - at));",
        "  for (; bits; bits &= bits - 1) {",
        "    const int i = __builtin_ctzll(bits);",
        "    if (key[i] >= limit) continue;",
        f"    {NAME}_put(&best, key[i], at + i);",
        f"    limit = {p.limit('best')};",
        "  }",
        "}",
    ]
    if pieces == 1:
        return p.function([*lines, p.written("best", "out")])
    return p.function([*lines, "(void)out;", f"__builtin_memcpy(args[1] + t * {p.room}, &best, sizeof best);"])


def merged(p: Partial, pieces: int) -> str:
    """The function that puts the best of the pieces of a row together. What a short piece has none of is after all."""
    key, place = p.parts("found", "j")
    lines = [
        *p.row("t"),
        "(void)x;",
        f"{NAME}_best best;",
        p.empty("best"),
        f"{NAME}_best found;",
        f"for (int i = 0; i < {pieces}; i++) {{",
        f"  __builtin_memcpy(&found, args[1] + (t * {pieces} + i) * {p.room}, sizeof found);",
        f"  for (int j = 0; j < {p.kept}; j++) {NAME}_put(&best, {key}, {place});",
        "}",
        p.written("best", "out"),
    ]
    return p.function(lines)


def beside(p: Partial) -> str:
    """The function that goes down columns side by side."""
    assert p.columns is not None
    s, t, (_, apart) = p.sort, p.sort.key, p.columns
    lines = [
        *p.row("t"),
        f"const {t} *const row = {p.start} + column;",
        f"{NAME}_best best[{LANES}];",
        f"WX_ALIGNED {t} limit[{LANES}];",
        f"for (int i = 0; i < {LANES}; i++) {{ {p.empty('best[i]')} limit[i] = ({t})-1; }}",
        "const uint64_t every = ~0ull >> (64 - many);",
        f"for (int64_t p = 0; p < {s.size}; p++) {{",
        *("  " + x for x in _keys(p, "many", f"row[p * {s.step} + i]")),
        f"  for (uint64_t bits = p < {p.kept} ? every : {NAME}_below(key, limit); bits; bits &= bits - 1) {{",
        "    const int i = __builtin_ctzll(bits);",
        f"    {NAME}_put(best + i, key[i], p);",
        f"    limit[i] = {p.limit('best[i]')};",
        "  }",
        "}",
        f"for (int64_t c = 0; c < many; c++) {{ {p.written('best[c]', f'(out + (column + c) * {apart})')} }}",
    ]
    return p.function(lines)


def _keys(p: Partial, many: str, x: str) -> Iterator[str]:
    """The keys of elements number i; after all others those that are missing."""
    t = p.sort.key
    yield f"WX_ALIGNED {t} key[{LANES}];"
    yield f"if ({many} >= {LANES}) {{"
    yield "  #pragma omp simd"
    yield f"  for (int64_t i = 0; i < {LANES}; i++) key[i] = {p.keyed(x)};"
    yield "} else {"
    yield f"  for (int64_t i = 0; i < {LANES}; i++) key[i] = ({t})-1;"
    yield f"  for (int64_t i = 0; i < {many}; i++) key[i] = {p.keyed(x)};"
    yield "}"


def _piece(size: int, pieces: int) -> Iterator[str]:
    if pieces == 1:
        yield f"const int64_t low = 0, high = {size};"
        return
    each = -(-size // pieces)
    yield f"const int64_t low = t % {pieces} * {each};"
    yield f"const int64_t high = low + {each} < {size} ? low + {each} : {size};"
