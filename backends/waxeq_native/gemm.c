/* Matrix products on one thread, for float and double: the register tile of this machine and the table of functions.
 *
 * The text is gemm.h, once for each element type. GNU C vectors only: no intrinsics, no assembly. */
#include "api.h"

/* Bytes of a vector register and rows of a tile that is two vectors wide. 2 * rows sums, two vectors of B and one
 * element of A must fit in the registers: 32 with AVX-512 and NEON, 16 with AVX and SSE. */
#if defined(__AVX512F__)
enum { WX_VECTOR = 64, WX_ROWS = 14 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif defined(__AVX__)
enum { WX_VECTOR = 32, WX_ROWS = 6 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#elif defined(__ARM_NEON)
enum { WX_VECTOR = 16, WX_ROWS = 8 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
enum { WX_VECTOR = 16, WX_ROWS = 4 };
#define WX_EACH_ROWS(X) X(1) X(2) X(3) X(4)
#endif

/* Bytes of a panel of B that stay in the first-level cache while rows of A pass, and of a block of A in the second. */
#ifndef WX_PANEL_BYTES
#define WX_PANEL_BYTES (16 * 1024)
#endif
#ifndef WX_BLOCK_BYTES
#define WX_BLOCK_BYTES (192 * 1024)
#endif

#ifndef WX_PACK_A
#define WX_PACK_A 512
#endif
#ifndef WX_NARROW
#define WX_NARROW 256
#endif
enum { WX_ALIGN = 64 };

static inline int64_t wx_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t wx_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* The first of `parts` even parts of what is left: parts differ by at most one, so that none is a sliver. */
static inline int64_t wx_even(int64_t left, int64_t parts) { return (left + parts - 1) / parts; }

/* How rows are cut into tiles: evenly, so that none is a sliver, unless that leaves tiles of four rows or less, whose
 * sums are too few to keep the multipliers busy; then full tiles and what remains. */
typedef struct {
  int64_t tiles, height, taller; /* the first `taller` tiles have a row more than `height` */
} wx_tiling;

static inline wx_tiling wx_tiling_of(int64_t rows) {
  const int64_t tiles = wx_parts(rows, WX_ROWS), height = rows / (tiles ? tiles : 1);
  return height > 4 ? (wx_tiling){tiles, height, rows - tiles * height} : (wx_tiling){tiles, WX_ROWS, 0};
}

static inline int64_t wx_height(wx_tiling t, int64_t left, int64_t tile) {
  return wx_min(left, t.height + (tile < t.taller));
}

static inline char *wx_align(char *at) { return (char *)(((uintptr_t)at + WX_ALIGN - 1) & ~(uintptr_t)(WX_ALIGN - 1)); }

#define WX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

#define WX_JOIN_(a, b) a##_##b
#define WX_JOIN(a, b) WX_JOIN_(a, b)
#define N(name) WX_JOIN(wx_##name, S)

#define T float
#define S f32
#define wx_flip_f32(a)                                                                                                 \
  do {                                                                                                                 \
    const N(quad) p = WX_SHUFFLE(a[0], a[2], 0, 4, 1, 5), q = WX_SHUFFLE(a[1], a[3], 0, 4, 1, 5);                      \
    const N(quad) r = WX_SHUFFLE(a[0], a[2], 2, 6, 3, 7), s = WX_SHUFFLE(a[1], a[3], 2, 6, 3, 7);                      \
    a[0] = WX_SHUFFLE(p, q, 0, 4, 1, 5), a[1] = WX_SHUFFLE(p, q, 2, 6, 3, 7);                                          \
    a[2] = WX_SHUFFLE(r, s, 0, 4, 1, 5), a[3] = WX_SHUFFLE(r, s, 2, 6, 3, 7);                                          \
  } while (0)
#include "gemm.h"
#undef T
#undef S

#define T double
#define S f64
#define wx_flip_f64(a)                                                                                                 \
  do {                                                                                                                 \
    const N(quad) p = WX_SHUFFLE(a[0], a[1], 0, 2), q = WX_SHUFFLE(a[0], a[1], 1, 3);                                  \
    a[0] = p, a[1] = q;                                                                                                \
  } while (0)
#include "gemm.h"
#undef T
#undef S

#define WX_MEMBERS(S)                                                                                                  \
  .mr_##S = WX_ROWS, .nr_##S = wx_columns_##S, .packed_size_##S = wx_packed_size_##S, .pack_b_##S = wx_pack_b_##S,     \
  .gemm_##S = wx_gemm_##S, .gemm_scratch_##S = wx_gemm_scratch_##S, .gemm_any_##S = wx_gemm_any_##S,                   \
  .gemm_any_scratch_##S = wx_gemm_any_scratch_##S, .gemv_##S = wx_gemv_##S, .blas_##S = wx_blas_##S

const wx_api *wx_get_api(void) {
  static const wx_api api = {.version = WX_API_VERSION, WX_MEMBERS(f32), WX_MEMBERS(f64)};
  return &api;
}
