"""C text of vectors of 64 bytes, as sweeps in lockstep are written with."""

from __future__ import annotations

import re

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.lockstep import VECTOR
from waxeq_cfamily.scalars import CTYPES

_HELPERS = r"""
#ifndef WX_LOCKSTEP_DTYPE
#define WX_LOCKSTEP_DTYPE
typedef TYPE wx_step_DTYPE __attribute__((vector_size(64)));
typedef MASK wx_mask_DTYPE __attribute__((vector_size(64)));
typedef FLOAT wx_plain_DTYPE __attribute__((vector_size(64)));
#ifdef WX_TURNS
#define WX_BESIDE_DTYPE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define WX_BESIDE_DTYPE(x, y, ...) __builtin_shuffle(x, y, (wx_mask_DTYPE){__VA_ARGS__})
#endif
#define WX_ONE static inline __attribute__((always_inline))
WX_ONE wx_step_DTYPE wx_all_DTYPE(TYPE x) { return x - (wx_step_DTYPE){0}; }
WX_ONE wx_step_DTYPE wx_read_DTYPE(const TYPE *p) {
  wx_step_DTYPE v;
  __builtin_memcpy(&v, p, 64);
  return v;
}
/* A value as it is rounded: no compiler joins the product that it is with a sum. */
WX_ONE wx_step_DTYPE wx_rounded_DTYPE(wx_step_DTYPE v) {
#ifdef __AVX512F__
  __asm__("" : "+v"(v));
  return v;
#else
  volatile wx_step_DTYPE kept = v;
  return kept;
#endif
}
/* Past the cache, where a line begins. */
WX_ONE void wx_past_DTYPE(TYPE *p, wx_step_DTYPE v) {
  for (int i = 0; i < 64; i += WX_WIDE) wx_stream_wide((char *)p + i, (const char *)&v + i);
}
WX_ONE void wx_put_DTYPE(TYPE *p, wx_step_DTYPE v) { __builtin_memcpy(p, &v, 64); }
/* The elements of a vector that begins at some place which lie from `low` to `high`, as bits. */
WX_ONE uint32_t wx_between_DTYPE(int64_t at, int64_t low, int64_t high) {
  const int64_t from = low - at < 0 ? 0 : low - at > LANES ? LANES : low - at;
  const int64_t to = high - at < from ? from : high - at > LANES ? LANES : high - at;
  return ((1u << to) - 1) & ~((1u << from) - 1);
}
WX_ONE wx_mask_DTYPE wx_lanes_DTYPE(uint32_t bits) {
  return (((wx_mask_DTYPE){0} + (MASK)bits) >> (wx_mask_DTYPE){COUNT} & 1) != 0;
}
WX_ONE wx_step_DTYPE wx_pick_DTYPE(wx_mask_DTYPE m, wx_step_DTYPE a, wx_step_DTYPE b) {
  return (wx_step_DTYPE)((m & (wx_mask_DTYPE)a) | (~m & (wx_mask_DTYPE)b));
}
/* Elements that have no bit are neither read nor written. A core takes hundreds of cycles for a vector of none of which
   there is memory. */
WX_ONE wx_step_DTYPE wx_part_DTYPE(const TYPE *p, uint32_t bits) {
  if (!bits) return (wx_step_DTYPE){0};
  if (bits == ((1u << LANES) - 1)) return wx_read_DTYPE(p);
#ifdef __AVX512F__
  return (wx_step_DTYPE)__builtin_ia32_loadupSUFFIX512_mask((const void *)p, (wx_plain_DTYPE){0}, bits);
#else
  wx_step_DTYPE v = {0};
  for (int i = 0; i < LANES; i++)
    if (bits >> i & 1) v[i] = p[i];
  return v;
#endif
}
WX_ONE void wx_put_part_DTYPE(TYPE *p, wx_step_DTYPE v, uint32_t bits) {
  if (!bits) return;
  if (bits == ((1u << LANES) - 1)) {
    wx_put_DTYPE(p, v);
    return;
  }
#ifdef __AVX512F__
  __builtin_ia32_storeupSUFFIX512_mask((void *)p, (wx_plain_DTYPE)v, bits);
#else
  for (int i = 0; i < LANES; i++)
    if (bits >> i & 1) p[i] = v[i];
#endif
}
#undef WX_ONE
#endif
"""


def helpers(dtype: str) -> str:
    """What the text of a dtype is written with, once in a unit."""
    size = numpy_dtype(dtype).itemsize
    own = {
        "TYPE": CTYPES[dtype], "MASK": f"int{8 * size}_t", "FLOAT": "float" if size == 4 else "double",
        "LANES": str(VECTOR // size), "COUNT": ", ".join(map(str, range(VECTOR // size))),
    }  # fmt: skip
    text = re.sub(r"\b(TYPE|MASK|FLOAT|LANES|COUNT)\b", lambda x: own[x[0]], _HELPERS.strip())
    return text.replace("DTYPE", dtype).replace("SUFFIX", "s" if size == 4 else "d")
