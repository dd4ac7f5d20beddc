/* The product C[M x n] (+)= A[M x K] * B[K x n] for one element type T, with names ending in S. Included by gemm.c.
 *
 * The loops are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34:3,
 * 2008), in the form of Van Zee and van de Geijn, "BLIS" (ACM TOMS 41:3, 2015): a block of A stays in the second-level
 * cache, a panel of B in the first, a tile of C in registers. */

/* A vector in registers, and one anywhere in memory. */
typedef T N(vec) __attribute__((vector_size(WX_VECTOR), may_alias));
typedef T N(mem) __attribute__((vector_size(WX_VECTOR), aligned(__alignof__(T)), may_alias));
/* As many as can be transposed with shuffles of pairs everywhere. */
typedef T N(quad) __attribute__((vector_size(16), aligned(__alignof__(T)), may_alias));

enum {
  N(lanes) = WX_VECTOR / sizeof(T),
  N(columns) = 2 * N(lanes),
  N(depth) = WX_PANEL_BYTES / sizeof(T) / N(columns),                                       /* of a panel of B */
  N(height) = WX_BLOCK_BYTES / sizeof(T) / N(depth) / WX_ROWS * WX_ROWS,                    /* of a block of A */
  N(width) = 1024,                                                                          /* of B packed for one use */
};

/* ---- the tile: `rows` x columns sums in registers over `depth` products ------------------------------------------- */

/* The first columns of a tile that reaches over the right edge of C. */
static void N(store)(int64_t rows, int64_t valid, const T *tile, T *C, int64_t ldc, int accumulate) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < valid; j++) {
      const T t = tile[i * N(columns) + j];
      C[i * ldc + j] = accumulate ? C[i * ldc + j] + t : t;
    }
}

#define WX_TILE_PARAMETERS                                                                                             \
  int64_t depth, const T *A, int64_t sa, const T *B, int64_t sb, T *C, int64_t ldc, int64_t valid, int accumulate

/* A is either by rows (element (i, k) at i * sa + k) or by columns (at i + k * sa); B has its columns side by side, rows
 * sb apart. Only the first `valid` columns of C are written. `rows` and `by_rows` are constants where this is inlined. */
static inline __attribute__((always_inline)) void N(tile)(const int rows, const int by_rows, WX_TILE_PARAMETERS) {
  N(vec) sum[WX_ROWS][2] = {{{0}}};
#ifndef NOPC
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) __builtin_prefetch(C + i * ldc, 1), __builtin_prefetch(C + i * ldc + N(columns) - 1, 1);
#endif
  for (int64_t k = 0; k < depth; k++) {
    const N(vec) b0 = *(const N(mem) *)(B + k * sb), b1 = *(const N(mem) *)(B + k * sb + N(lanes));
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      const T a = by_rows ? A[i * sa + k] : A[i + k * sa];
      sum[i][0] += a * b0;
      sum[i][1] += a * b1;
    }
  }
  if (valid == N(columns)) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      N(mem) *c0 = (N(mem) *)(C + i * ldc), *c1 = (N(mem) *)(C + i * ldc + N(lanes));
      if (accumulate) sum[i][0] += *c0, sum[i][1] += *c1;
      *c0 = sum[i][0], *c1 = sum[i][1];
    }
  } else {
    N(vec) whole[WX_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) whole[i][0] = sum[i][0], whole[i][1] = sum[i][1];
    N(store)(rows, valid, (const T *)whole, C, ldc, accumulate);
  }
}

typedef void (*N(tile_of))(WX_TILE_PARAMETERS);

#define WX_TILE(rows)                                                                                                  \
  static void N(tile_by_rows_##rows)(WX_TILE_PARAMETERS) {                                                             \
    N(tile)(rows, 1, depth, A, sa, B, sb, C, ldc, valid, accumulate);                                                  \
  }                                                                                                                    \
  static void N(tile_by_columns_##rows)(WX_TILE_PARAMETERS) {                                                          \
    N(tile)(rows, 0, depth, A, sa, B, sb, C, ldc, valid, accumulate);                                                  \
  }
WX_EACH_ROWS(WX_TILE)
#undef WX_TILE

#define WX_ENTRY(rows) [rows] = {N(tile_by_columns_##rows), N(tile_by_rows_##rows)},
static const N(tile_of) N(tiles)[WX_ROWS + 1][2] = {WX_EACH_ROWS(WX_ENTRY)};
#undef WX_ENTRY
#undef WX_TILE_PARAMETERS

/* ---- packing ------------------------------------------------------------------------------------------------------ */

static int64_t N(packed_size)(int64_t K, int64_t n) { return wx_parts(n, N(columns)) * N(columns) * K; }

/* to[k * st + c] = from[c * sf + k] for k < K and c < columns, squares of four or two elements at a time. */
static void N(transpose)(int64_t K, int64_t columns, const T *from, int64_t sf, T *to, int64_t st) {
  enum { SIDE = sizeof(N(quad)) / sizeof(T) };
  int64_t k = 0;
  for (; k + SIDE <= K && columns >= SIDE; k += SIDE)
    for (int64_t c = 0; c < columns; c += SIDE) {
      const int64_t first = wx_min(c, columns - SIDE); /* the last square may overlap the one before */
      const T *f = from + first * sf + k;
      T *t = to + k * st + first;
      N(quad) a[SIDE];
      for (int i = 0; i < SIDE; i++) a[i] = *(const N(quad) *)(f + i * sf);
      WX_JOIN(wx_flip, S)(a);
      for (int i = 0; i < SIDE; i++) *(N(quad) *)(t + i * st) = a[i];
    }
  for (; k < K; k++)
    for (int64_t c = 0; c < columns; c++) to[k * st + c] = from[c * sf + k];
}

static void N(pack_b)(int64_t K, int64_t n, const T *B, int64_t rbs, int64_t cbs, T *packed) {
  for (int64_t j = 0; j < n; j += N(columns), packed += K * N(columns)) {
    const T *from = B + j * cbs;
    const int64_t valid = wx_min(N(columns), n - j);
    if (valid < N(columns))
      for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < N(columns); c++) packed[k * N(columns) + c] = c < valid ? from[k * rbs + c * cbs] : 0;
    else if (cbs == 1)
      for (int64_t k = 0; k < K; k++) {
        const N(mem) *row = (const N(mem) *)(from + k * rbs);
        N(mem) *to = (N(mem) *)(packed + k * N(columns));
        const N(vec) left = row[0], right = row[1];
        to[0] = left, to[1] = right;
      }
    else if (rbs == 1)
      N(transpose)(K, N(columns), from, cbs, packed, N(columns));
    else
      for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < N(columns); c++) packed[k * N(columns) + c] = from[k * rbs + c * cbs];
  }
}

/* Rows of A in even panels of at most WX_ROWS, each [k][rows]: the panel that begins at row i lies at packed + i * depth. */
static void N(pack_a)(int64_t rows, int64_t depth, const T *A, int64_t ras, int64_t cas, T *packed) {
  int64_t parts = wx_parts(rows, WX_ROWS);
  for (int64_t i = 0; i < rows; parts--) {
    const int64_t height = wx_even(rows - i, parts);
    if (cas == 1)
      N(transpose)(depth, height, A + i * ras, ras, packed, height);
    else
      for (int64_t k = 0; k < depth; k++)
        for (int64_t r = 0; r < height; r++) packed[k * height + r] = A[(i + r) * ras + k * cas];
    packed += height * depth;
    i += height;
  }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

/* C (+)= A * B with B packed in panels `panel` elements apart; the block of A fits the cache, or is packed into scratch. */
static void N(block)(int64_t rows, int64_t n, int64_t depth, const T *A, int64_t ras, int64_t cas, const T *B,
                     int64_t panel, T *C, int64_t ldc, int accumulate, T *scratch) {
  const int by_rows = cas == 1;
  
#ifdef PACKA
  const int direct = 0;
#else
  const int direct = by_rows || ras == 1;
#endif

  const int64_t sa = by_rows ? ras : cas;
  if (!direct) N(pack_a)(rows, depth, A, ras, cas, scratch);
  for (int64_t j = 0; j < n; j += N(columns), B += panel) {
    const int64_t valid = wx_min(N(columns), n - j);
    int64_t parts = wx_parts(rows, WX_ROWS);
    const char *next = (const char *)(j + N(columns) < n ? B + panel : B);
    const int64_t slice = wx_parts(depth * N(columns) * sizeof(T), 64 * parts)*64;
    for (int64_t i = 0; i < rows; parts--) {
      const int64_t height = wx_even(rows - i, parts);
#ifndef NOPB
      for (int64_t l = 0; l < slice; l += 64) __builtin_prefetch(next + l, 0, 2);
      next += slice;
#endif
      if (direct)
        N(tiles)[height][by_rows](depth, A + i * ras, sa, B, N(columns), C + i * ldc + j, ldc, valid, accumulate);
      else
        N(tiles)[height][0](depth, scratch + i * depth, height, B, N(columns), C + i * ldc + j, ldc, valid, accumulate);
      i += height;
    }
  }
}

static void N(zero)(int64_t M, int64_t n, T *C, int64_t ldc) {
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < n; j++) C[i * ldc + j] = 0;
}

static int64_t N(gemm_scratch)(int64_t M, int64_t n, int64_t K) {
  (void)n;
  return wx_min(M, N(height)) * wx_min(K, N(depth)) * (int64_t)sizeof(T) + WX_ALIGN;
}

static void N(gemm)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *packed, T *C,
                    int64_t ldc, int accumulate, char *scratch) {
  if (K <= 0 && !accumulate) N(zero)(M, n, C, ldc);
  int64_t layers = wx_parts(K, N(depth));
  for (int64_t k = 0, depth; k < K; k += depth, layers--, accumulate = 1) {
    depth = wx_even(K - k, layers);
    int64_t blocks = wx_parts(M, N(height));
    for (int64_t i = 0, rows; i < M; i += rows, blocks--) {
      rows = wx_even(M - i, blocks);
      N(block)(rows, n, depth, A + i * ras + k * cas, ras, cas, packed + k * N(columns), K * N(columns), C + i * ldc,
               ldc, accumulate, (T *)wx_align(scratch));
    }
  }
}

/* ---- B as it lies ------------------------------------------------------------------------------------------------- */

static int64_t N(gemm_any_scratch)(int64_t M, int64_t n, int64_t K) {
  const int64_t width = wx_min(wx_parts(n, N(columns)) * N(columns), N(width));
  return width * wx_min(K, N(depth)) * (int64_t)sizeof(T) + WX_ALIGN + N(gemm_scratch)(M, n, K);
}

static void N(gemm_any)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *B, int64_t rbs,
                        int64_t cbs, T *C, int64_t ldc, int accumulate, char *scratch) {
  if (K <= 0 && !accumulate) N(zero)(M, n, C, ldc);
  T *packed = (T *)wx_align(scratch);
  for (int64_t j = 0; j < n; j += N(width)) {
    const int64_t width = wx_min(N(width), n - j);
    int64_t layers = wx_parts(K, N(depth));
    int more = accumulate;
    for (int64_t k = 0, depth; k < K; k += depth, layers--, more = 1) {
      depth = wx_even(K - k, layers);
      N(pack_b)(depth, width, B + k * rbs + j * cbs, rbs, cbs, packed);
      N(gemm)(M, width, depth, A + k * cas, ras, cas, packed, C + j, ldc, more,
              (char *)(packed + N(packed_size)(depth, width)));
    }
  }
}

static void N(gemv)(int64_t M, int64_t K, const T *A, int64_t ras, int64_t cas, const T *x, int64_t incx, T *y,
                    int64_t incy) {
  for (int64_t i = 0; i < M; i++) {
    T sum = 0;
    for (int64_t k = 0; k < K; k++) sum += A[i * ras + k * cas] * x[k * incx];
    y[i * incy] = sum;
  }
}

/* ---- BLAS --------------------------------------------------------------------------------------------------------- */

/* Row-major storage of an operand as BLAS says it: 0 as it is, 1 transposed, -1 not at all; its leading dimension. */
static int N(storage)(int64_t rows, int64_t columns, int64_t rs, int64_t cs, int64_t *leading) {
  if ((cs == 1 || columns == 1) && (rs >= columns || rows == 1)) return *leading = rows == 1 ? columns : rs, 0;
  if ((rs == 1 || rows == 1) && (cs >= rows || columns == 1)) return *leading = columns == 1 ? rows : cs, 1;
  return -1;
}

static int N(blas)(void *function, int64_t bits, int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas,
                   const T *B, int64_t rbs, int64_t cbs, T *C, int64_t ldc, int accumulate) {
  enum { ROW_MAJOR = 101, PLAIN = 111 }; /* of cblas.h; a transposed operand is PLAIN + 1 */
  int64_t lda = 0, ldb = 0;
  if (M <= 0 || n <= 0 || K <= 0) return 1;
  const int ta = N(storage)(M, K, ras, cas, &lda), tb = N(storage)(K, n, rbs, cbs, &ldb);
  if (M == 1) ldc = n;
  if (ta < 0 || tb < 0 || ldc < n) return 1;
  if (bits == 64) {
    typedef void gemm64(int, int, int, int64_t, int64_t, int64_t, T, const T *, int64_t, const T *, int64_t, T, T *, int64_t);
    ((gemm64 *)function)(ROW_MAJOR, PLAIN + ta, PLAIN + tb, M, n, K, 1, A, lda, B, ldb, accumulate ? 1 : 0, C, ldc);
    return 0;
  }
  if (((M | n | K | lda | ldb | ldc) >> 31) != 0) return 1;
  typedef void gemm32(int, int, int, int, int, int, T, const T *, int, const T *, int, T, T *, int);
  ((gemm32 *)function)(ROW_MAJOR, PLAIN + ta, PLAIN + tb, M, n, K, 1, A, lda, B, ldb, accumulate ? 1 : 0, C, ldc);
  return 0;
}
