"""C text that runs through several rows at once, each in a lane of a vector: rows are turned into columns in registers,
added in order, and turned back. No lane waits for another, which takes two thirds of the time of a row on its own, and
memory gives several rows sooner than one (Zen 4)."""

from __future__ import annotations

from waxeq_native.scan_through import Through

ROWS, _COLUMNS = 8, 16
"""Rows that are run through at once: float64 sums of a vector. Columns that are turned in one go: a line of each."""

_TEXT = r"""
#if WX_THROUGH && !defined(WX_TWO_ROWS)
#define WX_TWO_ROWS
/* Eight columns of eight rows, of which two rows lie in each vector; and the lines of these rows. */
static inline __attribute__((always_inline)) wx_line_float32 wx_two_rows(const float *low, const float *high) {
  wx_half_float32 a, b;
  __builtin_memcpy(&a, low, 32);
  __builtin_memcpy(&b, high, 32);
  return WX_BOTH(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
static inline __attribute__((always_inline)) void wx_widened_rows(const wx_line_float32 *x, wx_sums_float32 *a) {
  for (int k = 0; k < 4; k++) {
    a[2 * k] = WX_WIDE_HALF(WX_BOTH(x[k], x[k], 0, 1, 2, 3, 4, 5, 6, 7));
    a[2 * k + 1] = WX_WIDE_HALF(WX_BOTH(x[k], x[k], 8, 9, 10, 11, 12, 13, 14, 15));
  }
}
static inline __attribute__((always_inline)) void wx_narrowed_rows(const wx_sums_float32 *a, wx_line_float32 *x) {
  for (int k = 0; k < 4; k++) {
    const wx_half_float32 low = __builtin_convertvector(a[2 * k], wx_half_float32);
    const wx_half_float32 high = __builtin_convertvector(a[2 * k + 1], wx_half_float32);
    x[k] = WX_BOTH(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
}
#endif
#if WX_THROUGH && !defined(GUARD)
#define GUARD
/* Whether it was done. What comes next is turned while sums wait for one another: the steps of both take turns. */
static int NAME(const float *const *from, float *const *to, int64_t n) {
  wx_line_float32 x[4], y[4], next[4], after[4];
  wx_sums_float32 a[8], b[8], c = -(wx_sums_float32){0};
  int64_t i = 0;
  ALIGNED
  if (n >= 16) {
    for (int k = 0; k < 4; k++) next[k] = wx_two_rows(from[2 * k], from[2 * k + 1]);
    for (int k = 0; k < 4; k++) after[k] = wx_two_rows(from[2 * k] + 8, from[2 * k + 1] + 8);
    wx_turned_floats(next);
    wx_turned_floats(after);
  }
  for (; n - i >= 16; i += 16) {
    const int64_t soon = n - i >= 32 ? i + 16 : i;
    wx_widened_rows(next, a);
    wx_widened_rows(after, b);
    for (int k = 0; k < 4; k++) a[k] = c += a[k];
    for (int k = 0; k < 4; k++) next[k] = wx_two_rows(from[2 * k] + soon, from[2 * k + 1] + soon);
    for (int k = 4; k < 8; k++) a[k] = c += a[k];
    wx_turned_floats(next);
    wx_narrowed_rows(a, x);
    for (int k = 0; k < 4; k++) b[k] = c += b[k];
    wx_turned_floats(x);
    for (int k = 0; k < 4; k++) after[k] = wx_two_rows(from[2 * k] + soon + 8, from[2 * k + 1] + soon + 8);
    for (int k = 4; k < 8; k++) b[k] = c += b[k];
    wx_turned_floats(after);
    wx_narrowed_rows(b, y);
    wx_turned_floats(y);
    for (int k = 0; k < 4; k++) {
      const wx_line_float32 low = WX_BOTH(x[k], y[k], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      const wx_line_float32 high = WX_BOTH(x[k], y[k], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
      STORED
    }
  }
  for (; i < n; i++)
    for (int k = 0; k < 8; k++) to[k][i] = (float)(c[k] += from[k][i]);
  return 1;
}
#endif
"""

_ALIGNED = """for (int k = 0; k < 8; k++)
    if ((uintptr_t)to[k] & 63) return 0;"""
_PLAIN = """__builtin_memcpy(to[2 * k] + i, &low, 64);
      __builtin_memcpy(to[2 * k + 1] + i, &high, 64);"""
_PAST = """wx_stream_wide((char *)(to[2 * k] + i), (const char *)&low);
      wx_stream_wide((char *)(to[2 * k + 1] + i), (const char *)&high);"""
"""How two lines are written; past the cache only where all are whole ones there: parts of lines of several rows take
longer than of one after the other (1.3 times, Zen 4)."""


def taken(through: Through) -> bool:
    """Whether rows of a scan are run through at once where there are several: of float64 memory takes longer."""
    return through.run.scan.dtype == "float32"


def name(through: Through) -> str:
    """The C function that runs through `ROWS` rows: it has where each is read and written, and their length,
    and answers whether it ran."""
    return f"wx_rows_{'past_' * through.past}{through.run.scan.dtype}"


def text(through: Through) -> str:
    """The text of that function, after that of `through`."""
    made = _TEXT.replace("GUARD", name(through).upper()).replace("NAME", name(through))
    made = made.replace("ALIGNED", _ALIGNED if through.past else "")
    return made.replace("STORED", _PAST if through.past else _PLAIN).replace("  \n", "")
