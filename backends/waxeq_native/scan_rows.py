"""C text that runs through several rows at once, each in a lane of a vector: rows are turned into columns in registers,
added in order, and turned back. No lane waits for another, which takes two thirds of the time of a row on its own, and
memory gives several rows sooner than one (Zen 4)."""

from __future__ import annotations

from waxeq_native.scan_through import Through

ROWS, _COLUMNS = 8, 16
"""Rows that are run through at once: float64 sums of a vector. Columns that are turned in one go: a line of each."""

_TEXT = r"""
#ifndef WX_ROWS_AT_ONCE
#if WX_THROUGH || (defined(__AVX2__) && defined(WX_TURNS))
#define WX_ROWS_AT_ONCE 1
#else
#define WX_ROWS_AT_ONCE 0
#endif
#endif
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
#elif WX_ROWS_AT_ONCE && !defined(GUARD)
#define GUARD
EIGHT
/* Whether it was done: half of the rows in the lanes of one vector of sums, half in those of another. */
static int NAME(const float *const *from, float *const *to, int64_t n) {
  wx_four_sums low = -(wx_four_sums){0}, high = low;
  int64_t i = 0;
  ALIGNED
  for (; n - i >= 16; i += 16) {
    wx_eight_floats x[16];
    for (int k = 0; k < 8; k++) __builtin_prefetch((const char *)(from[k] + i) + AHEAD, 0, 2);
    for (int h = 0; h < 16; h += 8) {
      _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) x[h + k] = *(const wx_eight_anywhere *)(from[k] + i + h);
      wx_turned_eight(x + h);
      for (int k = h; k < h + 8; k++) {
        low += WX_WIDE_FOUR(WX_BOTH(x[k], x[k], 0, 1, 2, 3));
        high += WX_WIDE_FOUR(WX_BOTH(x[k], x[k], 4, 5, 6, 7));
        x[k] = WX_BOTH(WX_NARROW_FOUR(low), WX_NARROW_FOUR(high), 0, 1, 2, 3, 4, 5, 6, 7);
      }
      wx_turned_eight(x + h);
    }
    for (int k = 0; k < 8; k++) {
      HALVES
    }
  }
  for (; i < n; i++)
    for (int k = 0; k < 8; k++) {
      double *c = k < 4 ? (double *)&low + k : (double *)&high + (k - 4);
      to[k][i] = (float)(*c += from[k][i]);
    }
  return 1;
}
#endif
"""

_EIGHT = r"""
#ifndef WX_EIGHT_ROWS
#define WX_EIGHT_ROWS
typedef float wx_eight_floats __attribute__((vector_size(32)));
typedef float wx_eight_anywhere __attribute__((vector_size(32), aligned(4), may_alias));
typedef float wx_four_floats __attribute__((vector_size(16)));
typedef double wx_four_sums __attribute__((vector_size(32), may_alias));
/* gcc 12 converts two at a time */
#ifdef __clang__
#define WX_WIDE_FOUR(v) __builtin_convertvector(v, wx_four_sums)
#define WX_NARROW_FOUR(v) __builtin_convertvector(v, wx_four_floats)
#else
#define WX_WIDE_FOUR(v) ((wx_four_sums)__builtin_ia32_cvtps2pd256(v))
#define WX_NARROW_FOUR(v) ((wx_four_floats)__builtin_ia32_cvtpd2ps256(v))
#endif
/* Eight rows of eight as columns, and back. */
static inline __attribute__((always_inline)) void wx_turned_eight(wx_eight_floats *x) {
  wx_eight_floats y[8];
  for (int k = 0; k < 8; k += 2) {
    y[k] = WX_BOTH(x[k], x[k + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[k + 1] = WX_BOTH(x[k], x[k + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int k = 0; k < 8; k += 4) {
    x[k] = WX_BOTH(y[k], y[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    x[k + 1] = WX_BOTH(y[k], y[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    x[k + 2] = WX_BOTH(y[k + 1], y[k + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    x[k + 3] = WX_BOTH(y[k + 1], y[k + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int k = 0; k < 4; k++) {
    const wx_eight_floats low = WX_BOTH(x[k], x[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[k + 4] = WX_BOTH(x[k], x[k + 4], 4, 5, 6, 7, 12, 13, 14, 15), x[k] = low;
  }
}
#endif
"""
"""For machines of which a vector holds one row."""

_ALIGNED = """for (int k = 0; k < 8; k++)
    if ((uintptr_t)to[k] & 63) return 0;"""
_PLAIN = """__builtin_memcpy(to[2 * k] + i, &low, 64);
      __builtin_memcpy(to[2 * k + 1] + i, &high, 64);"""
_PAST = """wx_stream_wide((char *)(to[2 * k] + i), (const char *)&low);
      wx_stream_wide((char *)(to[2 * k + 1] + i), (const char *)&high);"""
_PLAIN_HALVES = """__builtin_memcpy(to[k] + i, &x[k], 32);
      __builtin_memcpy(to[k] + i + 8, &x[k + 8], 32);"""
_PAST_HALVES = """wx_stream_wide((char *)(to[k] + i), (const char *)&x[k]);
      wx_stream_wide((char *)(to[k] + i + 8), (const char *)&x[k + 8]);"""
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
    made = made.replace("EIGHT", _EIGHT.strip()).replace("ALIGNED", _ALIGNED if through.past else "")
    made = made.replace("HALVES", _PAST_HALVES if through.past else _PLAIN_HALVES).replace("AHEAD", "1024")
    return made.replace("STORED", _PAST if through.past else _PLAIN).replace("  \n", "")
