"""C text that runs through a row from where it is read to where it is written, with no block in between: what is copied
to one and from it takes as long as the sums."""

from __future__ import annotations

import re
from dataclasses import dataclass

from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.scans import stepped
from waxeq_cfamily.values import Row
from waxeq_native.scan_text import Run

_LANES = {"float32": 16, "float64": 8, "int32": 16, "int64": 8}
"""Elements of a vector, by the dtypes of which rows are run through in vectors."""
_TOGETHER = {"float32": 4, "float64": 8, "int32": 4, "int64": 4}
"""Vectors that are run through at once: of floats eight rows of eight."""

_VECTORS = r"""
#ifndef WX_THROUGH
#if defined(__AVX512F__) && defined(WX_TURNS)
#define WX_THROUGH 1
#else
#define WX_THROUGH 0
#endif
#define WX_BOTH(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#endif
"""

_EIGHTS = r"""
#if WX_THROUGH && !defined(WX_EIGHTS)
#define WX_EIGHTS
typedef double wx_eight_sums __attribute__((vector_size(64)));
/* Eight columns of eight, before the first of which `sums` come. Each begins with just what the one before ends with:
   sums of what is not below 0 never fall. */
static inline __attribute__((always_inline)) void wx_run_eights(wx_eight_sums *a, wx_eight_sums *sums) {
  const wx_eight_sums none = -(wx_eight_sums){0};
  wx_eight_sums c = *sums;
  for (int k = 1; k < 8; k++) a[k] += a[k - 1];
  c += WX_BOTH(none, a[7], 0, 8, 8, 8, 8, 8, 8, 8);
  c += WX_BOTH(none, a[7], 0, 0, 9, 9, 9, 9, 9, 9);
  c += WX_BOTH(none, a[7], 0, 0, 0, 10, 10, 10, 10, 10);
  c += WX_BOTH(none, a[7], 0, 0, 0, 0, 11, 11, 11, 11);
  c += WX_BOTH(none, a[7], 0, 0, 0, 0, 0, 12, 12, 12);
  c += WX_BOTH(none, a[7], 0, 0, 0, 0, 0, 0, 13, 13);
  c += WX_BOTH(none, a[7], 0, 0, 0, 0, 0, 0, 0, 14);
  for (int k = 0; k < 8; k++) a[k] += c;
  *sums = WX_BOTH(a[7], a[7], 7, 7, 7, 7, 7, 7, 7, 7);
}
#endif
"""

_FLOAT64 = r"""
typedef double wx_line_float64 __attribute__((vector_size(64)));
typedef double wx_sums_float64 __attribute__((vector_size(64)));
static inline __attribute__((always_inline)) void wx_turned_doubles(wx_line_float64 *x) {
  wx_line_float64 y[8];
  for (int n = 0; n < 3; n++) {
    for (int i = 0; i < 4; i++) {
      y[2 * i] = WX_BOTH(x[i], x[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      y[2 * i + 1] = WX_BOTH(x[i], x[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i++) x[i] = y[i];
  }
}
static inline __attribute__((always_inline)) void wx_together_float64(wx_line_float64 *x, wx_sums_float64 *sums) {
  wx_turned_doubles(x);
  wx_run_eights(x, sums);
  wx_turned_doubles(x);
}
"""

_FLOAT32 = r"""
typedef float wx_line_float32 __attribute__((vector_size(64)));
typedef float wx_half_float32 __attribute__((vector_size(32)));
typedef double wx_sums_float32 __attribute__((vector_size(64)));
/* gcc 12 widens a half at a time */
#ifdef __clang__
#define WX_WIDE_HALF(v) __builtin_convertvector(v, wx_sums_float32)
#else
#define WX_WIDE_HALF(v) ((wx_sums_float32)__builtin_ia32_cvtps2pd512_mask(v, (wx_sums_float32){0}, -1, 4))
#endif
static inline __attribute__((always_inline)) void wx_turned_floats(wx_line_float32 *x) {
  wx_line_float32 y[4];
  for (int k = 0; k < 2; k++) {
    y[k] = WX_BOTH(x[2 * k], x[2 * k + 1], 0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    y[k + 2] = WX_BOTH(x[2 * k], x[2 * k + 1], 4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
  }
  for (int k = 0; k < 4; k += 2) {
    x[k] = WX_BOTH(y[k], y[k + 1], 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    x[k + 1] = WX_BOTH(y[k], y[k + 1], 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  }
}
static inline __attribute__((always_inline)) void wx_together_float32(wx_line_float32 *x, wx_sums_float32 *sums) {
  wx_sums_float32 a[8];
  wx_turned_floats(x);
  for (int k = 0; k < 4; k++) {
    a[2 * k] = WX_WIDE_HALF(WX_BOTH(x[k], x[k], 0, 1, 2, 3, 4, 5, 6, 7));
    a[2 * k + 1] = WX_WIDE_HALF(WX_BOTH(x[k], x[k], 8, 9, 10, 11, 12, 13, 14, 15));
  }
  wx_run_eights(a, sums);
  for (int k = 0; k < 4; k++) {
    const wx_half_float32 low = __builtin_convertvector(a[2 * k], wx_half_float32);
    const wx_half_float32 high = __builtin_convertvector(a[2 * k + 1], wx_half_float32);
    x[k] = WX_BOTH(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  wx_turned_floats(x);
}
"""

_WHOLE = r"""
typedef uDTYPE_t wx_line_DTYPE __attribute__((vector_size(64)));
typedef uDTYPE_t wx_sums_DTYPE __attribute__((vector_size(64)));
static inline __attribute__((always_inline)) void wx_together_DTYPE(wx_line_DTYPE *x, wx_sums_DTYPE *sums) {
  for (int k = 0; k < TOGETHER; k++) {
    wx_line_DTYPE a = x[k];
STEPS
    x[k] = a + *sums;
    *sums += WX_BOTH(a, a, LAST);
  }
}
"""
"""Whole numbers come to the same in any order."""

_THROUGH = r"""
#ifndef GUARD
#define GUARD
#if WX_THROUGH
VECTORS
#endif
static inline CARRIED NAME(const TYPE *from, TYPE *to, int64_t n, CARRIED c) {
  int64_t i = 0;
#if WX_THROUGH
  wx_line_DTYPE x[TOGETHER], next[TOGETHER];
  wx_sums_DTYPE sums = -(wx_sums_DTYPE){0} + c;
  if (n >= EACH)
    for (int k = 0; k < TOGETHER; k++) __builtin_memcpy(&next[k], from + LANES * k, 64);
  /* What comes next is read before anything is written: a load waits for a store at the same place of another page. */
  for (; n - i >= EACH; i += EACH) {
    const TYPE *soon = n - i >= 2 * EACH ? from + i + EACH : from + i;
    for (int k = 0; k < TOGETHER; k++) __builtin_prefetch((const char *)(from + i + LANES * k) + 4096, 0, 2);
    for (int k = 0; k < TOGETHER; k++) x[k] = next[k];
    for (int k = 0; k < TOGETHER; k++) __builtin_memcpy(&next[k], soon + LANES * k, 64);
    wx_together_DTYPE(x, &sums);
    for (int k = 0; k < TOGETHER; k++) STORED;
  }
  c = sums[0];
  for (; i < n; i++) to[i] = (TYPE)(c = STEP);
#else
  for (; i < n; i += 1024) {
    const int64_t many = n - i < 1024 ? n - i : 1024;
    WX_ALIGNED TYPE b[1024];
    for (int64_t j = 0; j < many; j++) b[j] = from[i + j];
    c = RUN(b, many, c, (const char *)(from + i + 1024), sizeof(TYPE));
    WRITTEN
  }
#endif
  return c;
}
#endif
"""
"""A whole row."""

_PLAIN = "__builtin_memcpy({to}, &x[k], 64)"
_PAST = "if ((uintptr_t)to & 63) __builtin_memcpy({to}, &x[k], 64); else wx_stream_wide((char *)({to}), (char *)&x[k])"
"""How a vector is written: past the cache where it is a whole line there."""
_COPIED = "for (int64_t j = 0; j < many; j++) to[i + j] = b[j];"


@dataclass(frozen=True)
class Through:
    """A scan whose row is read from one place and written to another as it is: `load` is where from. `past`: it is
    written past the cache."""

    run: Run
    load: Row
    past: bool

    @staticmethod
    def of(run: Run, past: bool) -> Through | None:
        """None for a scan with anything before or after it, or of another kind than sums."""
        scan = run.scan
        values, r = scan.values, scan.values.rows[scan.row]
        load = values.rows[r.args[0]]
        if not run.lies or scan.kind != "sum" or r.dtype not in _LANES or load.dtype != r.dtype:
            return None
        if values.others or values.root != scan.row or values.out.stride(scan.axis) != 1:
            return None
        read = load.op == "load" and not load.guards and load.name[1].stride(scan.axis) == 1
        return Through(run, load, past) if read else None

    @property
    def name(self) -> str:
        """The C function that runs through a row."""
        return f"wx_through_{'past_' * self.past}{self.run.scan.dtype}"

    def text(self) -> str:
        """The text of that function, after that of the one that runs through a block."""
        dtype = self.run.scan.dtype
        t, lanes, together = CTYPES[dtype], _LANES[dtype], _TOGETHER[dtype]
        to = f"to + i + {lanes} * k"
        written = f"wx_stream(to + i, b, many * (int64_t)sizeof({t}));" if self.past else _COPIED
        own = {
            "NAME": self.name, "TYPE": t, "CARRIED": CTYPES[self.run.dtype], "RUN": self.run.name, "WRITTEN": written,
            "STORED": (_PAST if self.past else _PLAIN).format(to=to), "STEP": stepped(self.run.step, "c", "from[i]"),
            "LANES": str(lanes), "TOGETHER": str(together), "EACH": str(lanes * together),
        }  # fmt: skip
        text = re.sub(rf"\b({'|'.join(own)})\b", lambda x: own[x[0]], _THROUGH)
        text = text.replace("GUARD", self.name.upper()).replace("VECTORS", _vectors(dtype)).replace("DTYPE", dtype)
        return _VECTORS + _EIGHTS * dtype.startswith("float") + text


def _vectors(dtype: str) -> str:
    """The text of the function that runs through several vectors of a row, once in a unit."""
    lanes = _LANES[dtype]
    steps, last = list[str](), ", ".join([str(lanes - 1)] * lanes)
    for by in (1 << i for i in range(lanes.bit_length() - 1)):
        places = ", ".join(str(0 if i < by else lanes + i - by) for i in range(lanes))
        steps.append(f"    a += WX_BOTH((wx_line_DTYPE){{0}}, a, {places});")
    whole = _WHOLE.replace("STEPS", "\n".join(steps)).replace("LAST", last).replace("TOGETHER", str(_TOGETHER[dtype]))
    text = {"float32": _FLOAT32, "float64": _FLOAT64}.get(dtype, whole)
    return f"#ifndef WX_TOGETHER_{dtype.upper()}\n#define WX_TOGETHER_{dtype.upper()}\n{text.strip()}\n#endif"
