/* Few rows of A by columns of B where both lie along the depth: dot products of vectors along it, no panels. Included
 * by gemm.h, once for each element type. */

enum {
  N(dot_height) = WX_DOT_SUMS / N(side), /* rows of A that are multiplied by N(side) columns of B at a time */
  N(dot_depth) = WX_DOT_BYTES / N(side) / sizeof(T),
};

typedef __typeof__((N(vec)){0} == (N(vec)){0}) N(bits);

/* One vector of the depth; of the last one only the elements that are `kept`. */
WX_INLINE void N(dot_vector)(const int rows, const T *A, int64_t ras, const T *B, int64_t cbs, const N(bits) *kept,
                             N(vec) (*sum)[N(side)]) {
  N(vec) b[N(side)]; /* these and rows of A are read once, as in N(step): 100 GFLOP/s in place of 85 (16 rows, Zen 4) */
  WX_UNROLL for (int c = 0; c < N(side); c++) b[c] = *(const volatile N(mem) *)(B + c * cbs);
  if (kept) WX_UNROLL for (int c = 0; c < N(side); c++) b[c] = (N(vec))((N(bits))b[c] & *kept);
  WX_UNROLL for (int i = 0; i < rows; i++) {
    N(vec) a = *(const volatile N(mem) *)(A + i * ras);
    if (kept) a = (N(vec))((N(bits))a & *kept);
    WX_UNROLL for (int c = 0; c < N(side); c++) sum[i][c] += a * b[c];
  }
}

/* The sum of the elements of each of N(side) vectors: first where they lie, in all quarters of a register at once, as
 * the vectors of a tile are many and short depths few (16 rows, 256 deep: 95 GFLOP/s in place of 74, Zen 4). */
WX_INLINE N(quad) N(dot_totals)(const N(vec) *sum) {
  const union {
    N(vec) whole;
    N(quad) part[WX_VECTOR / 16];
  } v = {N(gather)(sum, N(lanes))};
  N(quad) total = v.part[0];
  WX_UNROLL for (int p = 1; p < WX_VECTOR / 16; p++) total += v.part[p];
  return total;
}

#define WX_DOT_PARAMETERS                                                                                              \
  int64_t K, const T *A, int64_t ras, const T *B, int64_t cbs, int64_t ahead, T *C, int64_t ldc, int accumulate

/* C[i][c] (+)= A[i] . B[c] for `rows` rows and N(side) columns, K >= N(lanes). What lies `ahead` of B is asked for: no
 * core foresees columns of a page each. */
WX_INLINE void N(dot_tile)(const int rows, WX_DOT_PARAMETERS) {
  N(vec) sum[N(dot_height)][N(side)];
  int64_t k = 0;
  WX_UNROLL for (int i = 0; i < rows; i++) {
    WX_UNROLL for (int c = 0; c < N(side); c++) sum[i][c] = (N(vec)){0};
  }
  for (; k + N(lanes) <= K; k += N(lanes)) {
    if (WX_VECTOR == WX_LINE_BYTES || k * sizeof(T) % WX_LINE_BYTES == 0)
      WX_UNROLL for (int c = 0; c < N(side); c++) __builtin_prefetch(B + c * cbs + k + ahead);
    N(dot_vector)(rows, A + k, ras, B + k, cbs, 0, sum);
  }
  if (k < K) { /* the last vector, without what the one before had */
    N(vec) place;
    WX_UNROLL for (int l = 0; l < N(lanes); l++) place[l] = l;
    const N(bits) kept = place >= (T)(k - (K - N(lanes)));
    N(dot_vector)(rows, A + K - N(lanes), ras, B + K - N(lanes), cbs, &kept, sum);
  }
  WX_UNROLL for (int i = 0; i < rows; i++) {
    N(quad) *c = (N(quad) *)(C + i * ldc), total = N(dot_totals)(sum[i]);
    if (accumulate) total += *c;
    *c = total;
  }
}

#define WX_DOT(rows)                                                                                                   \
  static void N(dot_##rows)(WX_DOT_PARAMETERS) {                                                                       \
    N(dot_tile)(rows, K, A, ras, B, cbs, ahead, C, ldc, accumulate);                                                   \
  }
WX_EACH_DOT(WX_DOT)
#define WX_DOT_ENTRY(rows) [rows] = N(dot_##rows),
static void (*const N(dot_tiles)[])(WX_DOT_PARAMETERS) = {WX_EACH_DOT(WX_DOT_ENTRY)};

/* Whether that takes less than panels of B: few rows are multiplied by each element of it, and the sums of the elements
 * of vectors, which are made once, are little beside the depth. */
static int N(dots_pay)(int64_t M, int64_t K, int64_t cas, int64_t rbs) {
  return cas == 1 && rbs == 1 && M <= WX_DOT_ROWS && M * WX_DOT_DEPTH <= K;
}

/* All rows by N(side) columns before the next are read. Rows are copied to where vectors are whole lines: one that lies
 * across two takes the time of two. */
static void N(dot_rows)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, const T *B, int64_t cbs, T *C,
                        int64_t ldc, int accumulate, char *scratch) {
  const int64_t layers = wx_parts(K, N(dot_depth)), step = N(apart)(wx_min(K, N(dot_depth))), next = N(side) * cbs;
  const wx_tiling tiling = wx_tiling_of(M, N(dot_height));
  T *const rows = (T *)wx_align(scratch);
  for (int64_t k = 0, layer = 0, depth; k < K; k += depth, layer++, accumulate = 1) {
    depth = wx_min(K - k, wx_parts(wx_parts(K - k, layers - layer), N(lanes)) * N(lanes));
    const T *b = B + k;
    int64_t j = 0;
    for (int64_t i = 0; i < M; i++) __builtin_memcpy(rows + i * step, A + i * ras + k, depth * sizeof(T));
    for (; j + N(side) <= n; j += N(side), b += next)
      for (int64_t i = 0, tile = 0, height; i < M; i += height, tile++) {
        T *const a = rows + i * step;
        height = wx_height(tiling, tile);
        N(dot_tiles)[height](depth, a, step, b, cbs, i ? 0 : next, C + i * ldc + j, ldc, accumulate);
      }
    for (; j < n; j++, b += cbs) N(apply)(M, depth, rows, step, 1, b, 1, C + j, ldc, accumulate);
  }
}

#undef WX_DOT_PARAMETERS
#undef WX_DOT
#undef WX_DOT_ENTRY
#undef WX_EACH_DOT
