/* The products of integer.h. Both sides are read as pairs of sixteen-bit numbers that follow each other along the depth:
 * one instruction multiplies them and adds the two products, which is exact but for the largest of all (-2^15 four
 * times: 2^31, which wraps around to what NumPy has). No instruction that saturates is used. Panels keep the bytes of
 * what they are made from and are widened as they are read: with few rows, reading them is what takes the time.
 *
 * Numbers of 32 bits are low + high * 2^16, so that a * b is low * low + (low * high + high * low) * 2^16 modulo 2^32;
 * what has a high part of zeros, as small numbers do whose size nobody declared, is not multiplied with it. */
#include "integer.h"

#include <string.h>
#if !defined(__SSE2__) && !defined(WX_PORTABLE)
#define WX_PORTABLE
#endif
#ifndef WX_PORTABLE
#include <immintrin.h>
#endif

/* Bytes of a vector register, and rows of a tile that is two vectors wide: 2 * rows sums, two vectors of B, one pair of
 * A and what the products come to fill the registers. */
#if defined(__AVX512BW__) && !defined(WX_PORTABLE)
enum { WX_VECTOR = 64, WX_ROWS = 12 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif defined(__AVX2__)
enum { WX_VECTOR = 32, WX_ROWS = 6 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
enum { WX_VECTOR = 16, WX_ROWS = 4 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4)
#endif

typedef uint32_t wx_sums __attribute__((vector_size(WX_VECTOR), may_alias));
typedef int32_t wx_signs __attribute__((vector_size(WX_VECTOR), may_alias));
typedef int16_t wx_pairs __attribute__((vector_size(WX_VECTOR), may_alias));
typedef uint32_t wx_sums_at __attribute__((vector_size(WX_VECTOR), aligned(4), may_alias));
typedef int16_t wx_pairs_at __attribute__((vector_size(WX_VECTOR), aligned(2), may_alias));
typedef int8_t wx_signed_at __attribute__((vector_size(WX_VECTOR / 2), aligned(1), may_alias));
typedef uint8_t wx_unsigned_at __attribute__((vector_size(WX_VECTOR / 2), aligned(1), may_alias));

enum {
  WX_LANES = WX_VECTOR / 4,
  WX_COLUMNS = 2 * WX_LANES,
  WX_PANEL_BYTES = 16 << 10, /* of a panel of B, which stays in the first-level cache while rows of A pass */
  WX_WIDTH = 256,            /* columns that are packed at a time where B lies as it is */
  WX_SHALLOW = 1 << 13,      /* elements of A that a product of few rows takes at a time: it reads each panel once */
  WX_LINE = 32,              /* elements of a line of memory: rows of A lie an odd number of them apart */
};

enum { WX_ADD = 1, WX_SHIFTED = 2 }; /* how a tile goes into C: added to it, times 2^16 */

#define WX_INLINE static inline __attribute__((always_inline))
#define WX_UNROLL _Pragma("GCC unroll 16")

static inline int64_t wx_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t wx_even(int64_t n) { return n + (n & 1); }
static inline int64_t wx_size(int kind) { return kind == WX_INT32 ? 4 : kind == WX_INT16 ? 2 : 1; }

/* sum + a * b, a and b in pairs. Sums are of one type throughout: gcc 12 keeps one for each type that they are seen as. */
WX_INLINE wx_sums wx_added(wx_sums sum, wx_pairs a, wx_pairs b) {
#if defined(WX_PORTABLE)
  const wx_signs x = (wx_signs)a, y = (wx_signs)b;
  const wx_sums low = (wx_sums)((wx_signs)((wx_sums)x << 16) >> 16) * (wx_sums)((wx_signs)((wx_sums)y << 16) >> 16);
  return sum + low + (wx_sums)(x >> 16) * (wx_sums)(y >> 16);
#elif defined(__AVX512BW__) && defined(__AVX512VNNI__)
  return (wx_sums)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
  return sum + (wx_sums)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && defined(__AVXVNNI__)
  return (wx_sums)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVX2__)
  return sum + (wx_sums)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return sum + (wx_sums)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
}

/* As many pairs of a panel as a vector has. gcc 12 widens whole vectors in pieces, as there is an instruction for it. */
WX_INLINE wx_pairs wx_read(const int kind, const char *at) {
#if defined(__AVX512BW__) && !defined(WX_PORTABLE)
  if (kind == WX_INT8) return (wx_pairs)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)at));
  if (kind == WX_UINT8) return (wx_pairs)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)at));
#elif defined(__AVX2__) && !defined(WX_PORTABLE)
  if (kind == WX_INT8) return (wx_pairs)_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)at));
  if (kind == WX_UINT8) return (wx_pairs)_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)at));
#else
  if (kind == WX_INT8) return __builtin_convertvector(*(const wx_signed_at *)at, wx_pairs);
  if (kind == WX_UINT8) return __builtin_convertvector(*(const wx_unsigned_at *)at, wx_pairs);
#endif
  return *(const wx_pairs_at *)at;
}

/* The first columns of a tile that reaches over the right edge of C. */
static __attribute__((noinline)) void wx_store(int64_t rows, int64_t valid, const uint32_t *tile, int32_t *C,
                                               int64_t ldc, int accumulate) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < valid; j++) {
      const uint32_t t = tile[i * WX_COLUMNS + j];
      C[i * ldc + j] = (int32_t)(accumulate ? (uint32_t)C[i * ldc + j] + t : t);
    }
}

#define WX_TILE_PARAMETERS                                                                                             \
  int64_t pairs, const int16_t *A, int64_t sa, const char *B, int32_t *C, int64_t ldc, int64_t valid, int accumulate

/* The product of a few rows with one panel; rows and kind are constants where this is inlined. */
WX_INLINE void wx_tile(const int rows, const int kind, WX_TILE_PARAMETERS) {
  const int64_t half = WX_VECTOR / 2 * wx_size(kind);
  wx_sums sum[WX_ROWS][2] = {{{0}}};
  for (int64_t k = 0; k < pairs; k++, B += 2 * half) {
    const wx_pairs left = wx_read(kind, B), right = wx_read(kind, B + half);
    WX_UNROLL for (int i = 0; i < rows; i++) {
      uint32_t pair;
      memcpy(&pair, A + i * sa + 2 * k, sizeof pair);
      const wx_pairs a = (wx_pairs)(pair - (wx_sums){0});
      sum[i][0] = wx_added(sum[i][0], a, left), sum[i][1] = wx_added(sum[i][1], a, right);
    }
  }
  if (accumulate & WX_SHIFTED) {
    WX_UNROLL for (int i = 0; i < rows; i++) sum[i][0] <<= 16, sum[i][1] <<= 16;
  }
  accumulate &= WX_ADD;
  if (valid == WX_COLUMNS) {
    WX_UNROLL for (int i = 0; i < rows; i++) {
      WX_UNROLL for (int v = 0; v < 2; v++) {
        wx_sums_at *to = (wx_sums_at *)(C + i * ldc + v * WX_LANES);
        if (accumulate) sum[i][v] += *to;
        *to = sum[i][v];
      }
    }
  } else {
    wx_sums whole[WX_ROWS][2];
    WX_UNROLL for (int i = 0; i < rows; i++) whole[i][0] = sum[i][0], whole[i][1] = sum[i][1];
    wx_store(rows, valid, (const uint32_t *)whole, C, ldc, accumulate);
  }
}

typedef void (*wx_tile_of)(WX_TILE_PARAMETERS);
#define WX_TILE(rows, kind)                                                                                            \
  static void wx_tile_##rows##_##kind(WX_TILE_PARAMETERS) {                                                            \
    wx_tile(rows, kind, pairs, A, sa, B, C, ldc, valid, accumulate);                                                   \
  }
#define WX_TILES(rows) WX_TILE(rows, WX_INT8) WX_TILE(rows, WX_UINT8) WX_TILE(rows, WX_INT16)
WX_EACH_ROWS(WX_TILES)
#define WX_ENTRY(rows) [rows] = {wx_tile_##rows##_WX_INT8, wx_tile_##rows##_WX_UINT8, wx_tile_##rows##_WX_INT16},
static const wx_tile_of wx_tiles[WX_ROWS + 1][3] = {WX_EACH_ROWS(WX_ENTRY)};

/* Element types by `kind`: DO(T) is the text for each. */
#define WX_EACH_KIND(kind, DO)                                                                                         \
  do {                                                                                                                 \
    if ((kind) == WX_INT8)                                                                                             \
      DO(int8_t)                                                                                                       \
    else if ((kind) == WX_UINT8)                                                                                       \
      DO(uint8_t)                                                                                                      \
    else                                                                                                               \
      DO(int16_t)                                                                                                      \
  } while (0)

/* Both parts of a number of 32 bits. */
static inline int16_t wx_low(int32_t x) { return (int16_t)x; }
static inline int16_t wx_high(int32_t x) { return (int16_t)(((uint32_t)x - (uint32_t)(int32_t)wx_low(x)) >> 16); }

/* `to` has TO(x) for every x of the columns of a panel, in pairs. */
#define WX_PANEL(T, TO, to)                                                                                            \
  for (int64_t k = 0; k < K; k += 2, to += 2 * WX_COLUMNS) {                                                           \
    const T *pair = from + k * rbs, *next = k + 1 < K ? pair + rbs : pair;                                             \
    const T kept = (T)(k + 1 < K ? -1 : 0);                                                                            \
    if (many == WX_COLUMNS && cbs == 1)                                                                                \
      for (int c = 0; c < WX_COLUMNS; c++) to[2 * c] = TO(pair[c]), to[2 * c + 1] = TO(next[c] & kept);                \
    else                                                                                                               \
      for (int64_t c = 0; c < WX_COLUMNS; c++)                                                                         \
        to[2 * c] = c < many ? TO(pair[c * cbs]) : 0, to[2 * c + 1] = c < many ? TO(next[c * cbs] & kept) : 0;         \
  }

static void wx_pack(int kind, int64_t K, int64_t n, const void *B, int64_t rbs, int64_t cbs, void *packed) {
#define WX_DO(T)                                                                                                       \
  {                                                                                                                    \
    T *to = packed;                                                                                                    \
    for (int64_t j = 0; j < n; j += WX_COLUMNS) {                                                                      \
      const T *from = (const T *)B + j * cbs;                                                                          \
      const int64_t many = wx_min(WX_COLUMNS, n - j);                                                                  \
      WX_PANEL(T, , to)                                                                                                \
    }                                                                                                                  \
  }
  if (kind != WX_INT32) {
    WX_EACH_KIND(kind, WX_DO);
    return;
  }
#undef WX_DO
  int16_t *to = packed;
  for (int64_t j = 0; j < n; j += WX_COLUMNS) {
    const int32_t *from = (const int32_t *)B + j * cbs;
    const int64_t many = wx_min(WX_COLUMNS, n - j);
    WX_PANEL(int32_t, wx_low, to)
    WX_PANEL(int32_t, wx_high, to)
  }
}

/* Rows of A in sixteen bits, `apart` elements from one to the next, an even number in each. Of 32 bits the high parts lie
 * behind those of all rows; answers whether any of them is not zero. */
static int wx_widen(int kind, int64_t M, int64_t K, const void *A, int64_t ras, int64_t cas, int16_t *to, int64_t apart) {
  if (K & 1)
    for (int64_t i = 0; i < (kind == WX_INT32 ? 2 * M : M); i++) to[i * apart + K] = 0;
#define WX_ROWS_OF(T, TO, to, ...)                                                                                    \
  for (int64_t i = 0; i < M; i++) {                                                                                    \
    const T *row = (const T *)A + i * ras;                                                                             \
    int16_t *wide = (to) + i * apart;                                                                                  \
    if (cas == 1)                                                                                                      \
      for (int64_t k = 0; k < K; k++) wide[k] = TO(row[k]) __VA_ARGS__;                                                       \
    else                                                                                                               \
      for (int64_t k = 0; k < K; k++) wide[k] = TO(row[k * cas]) __VA_ARGS__;                                                 \
  }
#define WX_DO(T) WX_ROWS_OF(T, , to, )
  if (kind != WX_INT32) {
    WX_EACH_KIND(kind, WX_DO);
    return 0;
  }
#undef WX_DO
  int any = 0;
  WX_ROWS_OF(int32_t, wx_low, to, )
  WX_ROWS_OF(int32_t, wx_high, to + M * apart, , any |= wide[k])
#undef WX_ROWS_OF
  return any != 0;
}

/* How much of the depth is taken at a time, an even number: more of it by few rows that meet panels that are there. */
static int64_t wx_depth(int kind, int64_t M, int64_t K, int packed) {
  const int64_t fits = WX_PANEL_BYTES / WX_COLUMNS / wx_size(kind);
  const int64_t most = packed && M <= WX_ROWS && fits < WX_SHALLOW / M ? WX_SHALLOW / M / 2 * 2 : fits;
  return wx_min(wx_even(K), most);
}

static int64_t wx_apart(int64_t depth) { return ((depth + WX_LINE - 1) / WX_LINE | 1) * WX_LINE; }

static int wx_zeros(const int16_t *x, int64_t many) {
  int any = 0;
  for (int64_t k = 0; k < many; k++) any |= x[k];
  return any == 0;
}

/* Rows in sixteen bits, the high parts of which are `high` behind (0: there are none); panels, `panel` bytes from one to
 * the next, the high parts of which are `part` behind (0: there are none), of a dtype that tiles know. */
typedef struct {
  const int16_t *rows;
  int64_t apart, high;
  const char *panels;
  int64_t panel, part;
  int kind;
} wx_sides;

/* C (+)= A * B, `pairs` deep. */
static void wx_multiply(int64_t M, int64_t n, int64_t pairs, const wx_sides *s, int32_t *C, int64_t ldc, int accumulate) {
  const int64_t tiles = (M + WX_ROWS - 1) / WX_ROWS, height = M / tiles, taller = M % tiles;
  const char *panels = s->panels;
  for (int64_t j = 0; j < n; j += WX_COLUMNS, panels += s->panel) {
    const int of_b = s->part && !wx_zeros((const int16_t *)(panels + s->part), pairs * 2 * WX_COLUMNS);
    const int64_t valid = wx_min(WX_COLUMNS, n - j);
    for (int64_t i = 0, t = 0, rows; t < tiles; t++, i += rows) {
      rows = height + (t < taller);
      const int16_t *a = s->rows + i * s->apart;
      int32_t *c = C + i * ldc + j;
      const wx_tile_of tile = wx_tiles[rows][s->kind];
      tile(pairs, a, s->apart, panels, c, ldc, valid, accumulate);
      if (of_b) tile(pairs, a, s->apart, panels + s->part, c, ldc, valid, WX_ADD | WX_SHIFTED);
      if (s->high) tile(pairs, a + s->high, s->apart, panels, c, ldc, valid, WX_ADD | WX_SHIFTED);
    }
  }
}

/* A as it is said to lie, some elements on. */
static const char *wx_at(const void *from, int kind, int64_t elements) {
  return (const char *)from + elements * wx_size(kind);
}

static char *wx_aligned(char *at) { return at + (-(uintptr_t)at & 63); }

static int wx_empty(int64_t M, int64_t n, int64_t K, int32_t *C, int64_t ldc, int accumulate) {
  for (int64_t i = 0; K <= 0 && !accumulate && i < M; i++)
    for (int64_t j = 0; j < n; j++) C[i * ldc + j] = 0;
  return M <= 0 || n <= 0 || K <= 0;
}

/* The product with panels that there are (packed), or that are made of some columns of B at a time. */
static void wx_blocks(int of_a, int of_b, int64_t M, int64_t n, int64_t K, const void *A, int64_t ras, int64_t cas,
                      const char *packed, const void *B, int64_t rbs, int64_t cbs, int32_t *C, int64_t ldc,
                      int accumulate, char *scratch) {
  if (wx_empty(M, n, K, C, ldc, accumulate)) return;
  const int64_t most = wx_depth(of_b, M, K, packed != 0), apart = wx_apart(most), width = packed ? n : WX_WIDTH;
  int16_t *wide = (int16_t *)wx_aligned(scratch);
  char *panels = wx_aligned((char *)(wide + (of_a == WX_INT32 ? 2 : 1) * M * apart));
  for (int64_t k = 0; k < K; k += most) {
    const int64_t depth = wx_min(most, K - k), tall = wx_even(packed ? K : depth);
    const int high = wx_widen(of_a, M, depth, wx_at(A, of_a, k * cas), ras, cas, wide, apart);
    wx_sides s = {wide, apart, high ? M * apart : 0, panels, tall * WX_COLUMNS * wx_size(of_b), 0, of_b};
    if (of_b == WX_INT32) s.part = s.panel / 2, s.kind = WX_INT16;
    if (packed) s.panels = wx_at(packed, s.kind, k * WX_COLUMNS);
    for (int64_t j = 0; j < n; j += width) {
      const int64_t many = wx_min(width, n - j);
      if (!packed) wx_pack(of_b, depth, many, wx_at(B, of_b, k * rbs + j * cbs), rbs, cbs, panels);
      wx_multiply(M, many, wx_even(depth) / 2, &s, C + j, ldc, accumulate || k ? WX_ADD : 0);
    }
  }
}

static void wx_gemm(int of_a, int of_b, int64_t M, int64_t n, int64_t K, const void *A, int64_t ras, int64_t cas,
                    const void *packed, int32_t *C, int64_t ldc, int accumulate, char *scratch) {
  wx_blocks(of_a, of_b, M, n, K, A, ras, cas, packed, 0, 0, 0, C, ldc, accumulate, scratch);
}

static void wx_gemm_any(int of_a, int of_b, int64_t M, int64_t n, int64_t K, const void *A, int64_t ras, int64_t cas,
                        const void *B, int64_t rbs, int64_t cbs, int32_t *C, int64_t ldc, int accumulate,
                        char *scratch) {
  wx_blocks(of_a, of_b, M, n, K, A, ras, cas, 0, B, rbs, cbs, C, ldc, accumulate, scratch);
}

static int64_t wx_scratch(int64_t M, int64_t n, int64_t K) {
  int64_t need = 0;
  for (int kind = WX_INT8; kind <= WX_INT32; kind++) {
    const int64_t depth = wx_depth(kind, M, K, 0), columns = wx_min(WX_WIDTH, n + WX_COLUMNS);
    const int64_t few = WX_SHALLOW + WX_ROWS * 3 * WX_LINE, all = M * wx_apart(depth), elements = few > all ? few : all;
    const int64_t bytes = elements * 4 + columns * depth * wx_size(kind) + 128;
    need = need > bytes ? need : bytes;
  }
  return need;
}

void wx_fill_integer(wx_integer *table) {
  *table = (wx_integer){WX_COLUMNS, wx_pack, wx_gemm, wx_gemm_any, wx_scratch};
}
