"""C functions that find places of keys in any order: rounds that each keep what lies between two bounds."""

from __future__ import annotations

from collections.abc import Iterator

from waxeq_cfamily.taken import NAME
from waxeq_native.partial_text import CELLS, LANES, MASKS

FEW = 32
"""Keys that are put in order by comparing each with every other one: the sample of a short row, and what is left."""
APART = 6
"""Places of such a sample by which the bounds lie from where a place is expected, about two standard deviations."""


def bounds(t: str, bits: int) -> Iterator[str]:
    """The function that finds two places of a few keys in order. The place of a key is how many are below it, and the
    key at a place the largest one whose own place is not behind. Vectors are those of the machine: of longer ones
    compilers compare one key after the other."""
    v, size = f"{NAME}_few", FEW * bits // 8
    yield "#if defined(__AVX512F__) && defined(__AVX512BW__)"
    yield f"enum {{ {v}_bytes = {min(64, size)} }};"
    yield "#else"
    yield f"enum {{ {v}_bytes = {min(32, size)} }};"
    yield "#endif"
    yield f"typedef {t} {v} __attribute__((vector_size({v}_bytes), aligned({bits // 8}), may_alias));"
    yield f"static inline void {NAME}_bounds(const {t} *some, int64_t from, int64_t to, {t} *low, {t} *high) {{"
    yield f"  {t} lower[{FEW}], upper[{FEW}], least = 0, most = 0;"
    yield f"  for (int i = 0; i < {FEW}; i += {v}_bytes / {bits // 8}) {{"
    yield f"    const {v} key = *(const {v} *)(some + i), none = {{0}};"
    yield f"    {v} place = none;"
    yield f"    for (int j = 0; j < {FEW}; j++) place -= ({v})(none + some[j] < key);"
    yield f"    *({v} *)(lower + i) = ({v})(place <= none + ({t})from) & key;"
    yield f"    *({v} *)(upper + i) = ({v})(place <= none + ({t})to) & key;"
    yield "  }"
    yield "  #pragma omp simd reduction(max:least, most)"
    yield f"  for (int i = 0; i < {FEW}; i++) {{"
    yield "    least = lower[i] > least ? lower[i] : least, most = upper[i] > most ? upper[i] : most;"
    yield "  }"
    yield "  *low = least, *high = most;"
    yield "}"


def borders(t: str) -> Iterator[str]:
    """The function that finds the largest key that is not above a bound, and the smallest one that is."""
    yield f"static inline void {NAME}_borders(const {t} *a, int64_t n, {t} bound, {t} *result) {{"
    yield f"  {t} lower = 0, upper = ({t})-1;"
    yield "  #pragma omp simd reduction(max:lower) reduction(min:upper)"
    yield "  for (int64_t i = 0; i < n; i++) {"
    yield f"    const {t} low = a[i] <= bound ? a[i] : 0, up = a[i] > bound ? a[i] : ({t})-1;"
    yield "    lower = low > lower ? low : lower, upper = up < upper ? up : upper;"
    yield "  }"
    yield "  result[0] = lower, result[1] = upper;"
    yield "}"


def left(t: str, bits: int) -> Iterator[str]:
    """The function that finds what is wanted where little is left. Where keys are compared in vectors, those that may
    still be it are the bits of a number, and one of them divides the others."""
    each = 512 // bits
    yield "#if defined(__AVX512F__) && defined(__AVX512BW__)"
    yield f"enum {{ {NAME}_least = {LANES} }};"
    yield f"static inline void {NAME}_left({t} *a, int64_t n, int64_t first, int64_t last, {t} *result) {{"
    yield f"  for (uint64_t live = n < {LANES} ? (1ull << n) - 1 : -1ull;;) {{"
    yield f"    const {t} one = a[__builtin_ctzll(live)];"
    yield "    uint64_t less = 0, most = 0;"
    yield f"    const {NAME}_keys with = ({NAME}_keys){{0}} + ({CELLS[bits]})one;"
    yield f"    for (int i = 0; i < {LANES}; i += {each}) {{"
    yield f"      const {NAME}_keys v = *(const {NAME}_keys *)(a + i);"
    for name, how in (("less", 1), ("most", 2)):
        found = f"__builtin_ia32_{MASKS[bits]}512_mask(v, with, {how}, -1)"
        yield f"      {name} |= (uint64_t)(uint{each}_t){found} << i;"
    yield "    }"
    yield "    const int below = __builtin_popcountll(less & live), up = __builtin_popcountll(most & live);"
    yield "    if (first < below) { live &= less, last = last < below ? last : below; continue; }"
    yield "    if (first >= up) { live &= ~most, first -= up, last -= up; continue; }"
    yield "    result[0] = result[1] = one;"
    yield f"    if (last >= up) {NAME}_borders(a, n, one, result);"
    yield "    return;"
    yield "  }"
    yield "}"
    yield "#else"
    yield f"enum {{ {NAME}_least = {FEW} }};"
    yield f"static inline void {NAME}_left({t} *a, int64_t n, int64_t first, int64_t last, {t} *result) {{"
    yield f"  for (int64_t i = n; i < {FEW}; i++) a[i] = ({t})-1;"
    yield f"  {NAME}_bounds(a, first, last, result, result + 1);"
    yield "}"
    yield "#endif"


def found(t: str) -> Iterator[str]:
    """The function that finds the keys at two places, the same one or neighbours, of n in any order: some are lost."""
    lines = f"""\
static void {NAME}_found({t} *a, int64_t n, int64_t first, int64_t last, {t} *result) {{
  {t} least = 0, most = ({t})-1, some[{FEW}];
  for (int turn = 0; n > {NAME}_least && least < most;) {{
    {t} low = least, high = most;
    if (turn == 2) {{
      high = ({t})(least + ({t})(most - least) / 2);
    }} else {{
      for (int64_t i = 0; i < {FEW}; i++) some[i] = a[(uint64_t)(i * n) / {FEW}];
      const int apart = turn ? 0 : {APART};
      const int64_t from = first * {FEW} / n - apart, to = (turn ? first : last) * {FEW} / n + apart;
      {NAME}_bounds(some, from, to, &low, &high);
      low = from < 0 ? least : low, high = to < {FEW} ? high : most;
    }}
    int64_t within, below = {NAME}_count(a, n, low, high, &within);
    const int64_t above = below + within;
    if (first < below && last >= below) {{ {NAME}_borders(a, n, ({t})(low - 1), result); return; }}
    if (first < above && last >= above) {{ {NAME}_borders(a, n, high, result); return; }}
    if (last < below) high = ({t})(low - 1), low = least, below = 0;
    else if (first >= above) low = ({t})(high + 1), high = most, below = above;
    first -= below, last -= below;
    int64_t passed = 0;
    const int64_t many = {NAME}_kept(a, n, low, high, a, &passed);
    turn = many > n - n / 4 ? (turn + 1) % 3 : 0;
    n = many, least = low, most = high;
  }}
  if (least == most) result[0] = result[1] = least;
  else {NAME}_left(a, n, first, last, result);
}}"""
    yield from lines.split("\n")
