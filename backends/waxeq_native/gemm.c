/* Matrix products on one thread, for float and double: the register tile of this machine and the table of functions.
 *
 * The text is gemm.h with tile.h and dots.h, once for each element type: both, or the one for which WX_ONLY_f32 or
 * WX_ONLY_f64 is defined, as two compilers take half the time of one. GNU C vectors only: no intrinsics, no assembly. */
#include "api.h"

/* Bytes of a vector register, and rows of a tile that is two vectors wide: 2 * rows sums, two vectors of B and one
 * element of A fill the registers, of which AVX-512 and NEON have 32, AVX and SSE 16. Bytes of a panel of B, and of a
 * block of A: a panel stays in the first-level cache (32 KiB or more) while rows of A pass, a block in the second
 * (256 KiB or more). Machines with AVX-512 have a second level of 1 MiB or more, fast enough for the panel too, and
 * deep panels are added to C less often. Heights of tiles where three or more share the rows evenly. Sums of a tile of
 * dot products, beside which stand two or four vectors of B and one of A; its rows are these by the columns. Most rows
 * of A for dot products, and the depth that each of them asks for: with 24 sums what is made once for a tile is little.
 */
#if defined(__AVX512F__)
enum { WX_VECTOR = 64, WX_ROWS = 14, WX_PANEL_BYTES = 64 << 10, WX_BLOCK_BYTES = 512 << 10 };
enum { WX_DOT_SUMS = 24, WX_DOT_ROWS = 64, WX_DOT_DEPTH = 6 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define WX_EACH_TALL(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define WX_EACH_DOT_F32(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WX_EACH_DOT_F64(X) WX_EACH_DOT_F32(X) X(7) X(8) X(9) X(10) X(11) X(12)
#elif defined(__AVX__)
enum { WX_VECTOR = 32, WX_ROWS = 6, WX_PANEL_BYTES = 16 << 10, WX_BLOCK_BYTES = 192 << 10 };
enum { WX_DOT_SUMS = 8, WX_DOT_ROWS = 32, WX_DOT_DEPTH = 16 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WX_EACH_TALL(X) X(4) X(5) X(6)
#define WX_EACH_DOT_F32(X) X(1) X(2)
#define WX_EACH_DOT_F64(X) WX_EACH_DOT_F32(X) X(3) X(4)
#elif defined(__ARM_NEON)
enum { WX_VECTOR = 16, WX_ROWS = 8, WX_PANEL_BYTES = 16 << 10, WX_BLOCK_BYTES = 192 << 10 };
enum { WX_DOT_SUMS = 24, WX_DOT_ROWS = 32, WX_DOT_DEPTH = 16 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define WX_EACH_TALL(X) X(5) X(6) X(7) X(8)
#define WX_EACH_DOT_F32(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WX_EACH_DOT_F64(X) WX_EACH_DOT_F32(X) X(7) X(8) X(9) X(10) X(11) X(12)
#else
enum { WX_VECTOR = 16, WX_ROWS = 4, WX_PANEL_BYTES = 16 << 10, WX_BLOCK_BYTES = 192 << 10 };
enum { WX_DOT_SUMS = 8, WX_DOT_ROWS = 32, WX_DOT_DEPTH = 16 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4)
#define WX_EACH_TALL(X) X(3) X(4)
#define WX_EACH_DOT_F32(X) X(1) X(2)
#define WX_EACH_DOT_F64(X) WX_EACH_DOT_F32(X) X(3) X(4)
#endif

/* Rows of a tile up to which what follows is not fetched: they read B faster than memory gives it, and a core sees by
 * itself that it is read from one end to the other. Two rows read 27 GB/s in place of 17, four 26 in place of 19, and
 * six would read 18 in place of 23 (Zen 4, which gcc 12 takes for Zen 3). */
#if defined(__AVX512F__) && (defined(__znver3__) || defined(__znver4__) || defined(__znver5__))
enum { WX_UNASKED = 4 };
#else
enum { WX_UNASKED = 1 };
#endif

enum {
  /* Rows of a tile where they lie: of more, a core with 16 registers for addresses computes some anew for each product
   * (256 columns over tiles of 14 rows: 99 GFLOP/s, of 12: 110, Zen 4). */
  WX_LYING_ROWS = WX_ROWS < 12 ? WX_ROWS : 12,
  WX_RUN = 192, /* products that are summed in one go: errors grow with the root of it, not of the whole depth */
  WX_SINGLE_RUN = 32, /* deeper sums are made of several: two runs of 32 have two thirds of the error of one of 64 */
  WX_SHORT_RUN = 128, /* the same in one of several sums: a longer sum of all, but no larger error */
  WX_CAREFUL_RUN = 12, /* where C is asked for with care */
  WX_DOT_BYTES = 16 << 10, /* of columns that stay in the first-level cache while all rows are multiplied by them */
  WX_PIECE_BYTES = 8 << 10, /* of a vector in the first-level cache */
  WX_PAGE_BYTES = 4 << 10,
  WX_LINE_BYTES = 64,
  WX_ALIGN = 64,
};

/* How a block of A lies; the last two by rows, one beside panels of B and one beside B in place. */
enum { WX_BY_COLUMNS, WX_BY_ROWS, WX_PACKED, WX_WITH_CARE, WX_IN_PLACE };

static inline int64_t wx_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t wx_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t wx_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* The next run of what is left of a depth. With care a run takes what would be left for a last short one: the end of one
 * costs as much as four products. */
static inline int64_t wx_part(int64_t left, int64_t run, int accumulate) {
  return left <= run + (accumulate & WX_CAREFUL ? 4 : 0) ? left : run;
}

/* Rows are cut into tiles evenly, because a tile of few rows cannot keep the multipliers busy. */
typedef struct {
  int64_t tiles, height, taller; /* the first `taller` tiles have one row more than `height` */
} wx_tiling;

static inline wx_tiling wx_tiling_of(int64_t rows, int64_t most) {
  const int64_t tiles = wx_parts(rows, most), height = tiles ? rows / tiles : 0;
  return (wx_tiling){tiles, height, rows - tiles * height};
}

static inline int64_t wx_height(wx_tiling t, int64_t tile) { return t.height + (tile < t.taller); }

static inline char *wx_align(char *at) { return at + (-(uintptr_t)at & (WX_ALIGN - 1)); }

/* Unrolling is asked for where a loop runs over registers: an array that is indexed by a variable lies in memory. */
#define WX_UNROLL _Pragma("GCC unroll 16")
#define WX_INLINE static inline __attribute__((always_inline))

#if defined(__clang__) || __GNUC__ >= 12
#define WX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define WX_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (N(mask)){__VA_ARGS__})
#endif

/* The same of whole vectors: the indices are those for the first 16 bytes, all others as far behind. */
#define WX_QUADS(a, b, c, d, at) a + at, b + at, c + at, d + at
#define WX_PAIRS(a, b, at) a + at, b + at
#if defined(__AVX512F__)
#define WX_EACH_QUAD(...)                                                                                              \
  WX_QUADS(__VA_ARGS__, 0), WX_QUADS(__VA_ARGS__, 4), WX_QUADS(__VA_ARGS__, 8), WX_QUADS(__VA_ARGS__, 12)
#define WX_EACH_PAIR(...)                                                                                              \
  WX_PAIRS(__VA_ARGS__, 0), WX_PAIRS(__VA_ARGS__, 2), WX_PAIRS(__VA_ARGS__, 4), WX_PAIRS(__VA_ARGS__, 6)
#elif defined(__AVX__)
#define WX_EACH_QUAD(...) WX_QUADS(__VA_ARGS__, 0), WX_QUADS(__VA_ARGS__, 4)
#define WX_EACH_PAIR(...) WX_PAIRS(__VA_ARGS__, 0), WX_PAIRS(__VA_ARGS__, 2)
#else
#define WX_EACH_QUAD(...) __VA_ARGS__
#define WX_EACH_PAIR(...) __VA_ARGS__
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define WX_SHUFFLE_EACH WX_SHUFFLE
#else
#define WX_SHUFFLE_EACH(a, b, ...) __builtin_shuffle(a, b, (N(bits)){__VA_ARGS__})
#endif

#define WX_JOIN_(a, b) a##_##b
#define WX_JOIN(a, b) WX_JOIN_(a, b)
#define N(name) WX_JOIN(wx_##name, S)

#define WX_FILL(S)                                                                                                     \
  void wx_fill_##S(wx_api *api) {                                                                                      \
    api->nr_##S = wx_columns_##S, api->packed_size_##S = wx_packed_size_##S, api->pack_b_##S = wx_pack_b_##S;          \
    api->gemm_##S = wx_gemm_##S, api->gemm_scratch_##S = wx_gemm_scratch_##S, api->gemm_any_##S = wx_gemm_any_##S;     \
    api->gemm_any_scratch_##S = wx_gemm_any_scratch_##S, api->dots_pay_##S = wx_dots_pay_##S;                          \
    api->lies_well_##S = wx_lies_well_##S, api->blas_##S = wx_blas_##S;                                                \
  }

/* wx_flip transposes a square of 16-byte vectors, 4 x 4 or 2 x 2. wx_gather adds as many whole vectors up so that each
 * 16 bytes of one vector have a part of the sum of every one of them. */
#ifndef WX_ONLY_f64
#define T float
#define S f32
#define WX_EACH_DOT WX_EACH_DOT_F32
typedef int32_t wx_mask_f32 __attribute__((vector_size(16)));
#define wx_flip_f32(a)                                                                                                 \
  do {                                                                                                                 \
    const N(quad) p = WX_SHUFFLE(a[0], a[2], 0, 4, 1, 5), q = WX_SHUFFLE(a[1], a[3], 0, 4, 1, 5);                      \
    const N(quad) r = WX_SHUFFLE(a[0], a[2], 2, 6, 3, 7), s = WX_SHUFFLE(a[1], a[3], 2, 6, 3, 7);                      \
    a[0] = WX_SHUFFLE(p, q, 0, 4, 1, 5), a[1] = WX_SHUFFLE(p, q, 2, 6, 3, 7);                                          \
    a[2] = WX_SHUFFLE(r, s, 0, 4, 1, 5), a[3] = WX_SHUFFLE(r, s, 2, 6, 3, 7);                                          \
  } while (0)
#define wx_gather_f32(a, l)                                                                                            \
  ({                                                                                                                   \
    const N(vec) p = WX_SHUFFLE_EACH(a[0], a[1], WX_EACH_QUAD(0, l, 1, l + 1)) +                                       \
                     WX_SHUFFLE_EACH(a[0], a[1], WX_EACH_QUAD(2, l + 2, 3, l + 3));                                    \
    const N(vec) q = WX_SHUFFLE_EACH(a[2], a[3], WX_EACH_QUAD(0, l, 1, l + 1)) +                                       \
                     WX_SHUFFLE_EACH(a[2], a[3], WX_EACH_QUAD(2, l + 2, 3, l + 3));                                    \
    WX_SHUFFLE_EACH(p, q, WX_EACH_QUAD(0, 1, l, l + 1)) + WX_SHUFFLE_EACH(p, q, WX_EACH_QUAD(2, 3, l + 2, l + 3));     \
  })
#include "gemm.h"
#undef T
#undef S
WX_FILL(f32)
#endif

#ifndef WX_ONLY_f32
#define T double
#define S f64
#define WX_EACH_DOT WX_EACH_DOT_F64
typedef int64_t wx_mask_f64 __attribute__((vector_size(16)));
#define wx_flip_f64(a)                                                                                                 \
  do {                                                                                                                 \
    const N(quad) p = WX_SHUFFLE(a[0], a[1], 0, 2), q = WX_SHUFFLE(a[0], a[1], 1, 3);                                  \
    a[0] = p, a[1] = q;                                                                                                \
  } while (0)
#define wx_gather_f64(a, l)                                                                                            \
  (WX_SHUFFLE_EACH(a[0], a[1], WX_EACH_PAIR(0, l)) + WX_SHUFFLE_EACH(a[0], a[1], WX_EACH_PAIR(1, l + 1)))
#include "gemm.h"
#undef T
#undef S
WX_FILL(f64)
#endif
