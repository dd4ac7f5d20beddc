/* The product C[M x n] (+)= A[M x K] * B[K x n] for one element type T, with names ending in S. Included by gemm.c.
 *
 * The loops are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34:3,
 * 2008), in the form of Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality"
 * (ACM TOMS 41:3, 2015): a block of A stays in the second-level cache, a panel of B in the first, a tile of C in
 * registers. */

/* A vector in registers, one anywhere in memory, and one that every machine transposes with shuffles of pairs. */
typedef T N(vec) __attribute__((vector_size(WX_VECTOR), may_alias));
typedef T N(mem) __attribute__((vector_size(WX_VECTOR), aligned(__alignof__(T)), may_alias));
typedef T N(quad) __attribute__((vector_size(16), aligned(__alignof__(T)), may_alias));

enum {
  N(lanes) = WX_VECTOR / sizeof(T),
  N(columns) = 2 * N(lanes),
  N(side) = sizeof(N(quad)) / sizeof(T),
  N(depth) = WX_PANEL_BYTES / sizeof(T) / N(columns),                    /* K of a panel of B and of a block of A */
  N(height) = WX_BLOCK_BYTES / sizeof(T) / N(depth) / WX_ROWS * WX_ROWS, /* rows of a block of A */
  N(piece) = WX_PIECE_BYTES / sizeof(T),
};

#include "tile.h"

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* A square of what N(transpose) reads. */
WX_INLINE void N(square)(const T *from, int64_t sf, T *to, int64_t st) {
  N(quad) a[N(side)];
  WX_UNROLL for (int i = 0; i < N(side); i++) a[i] = *(const N(quad) *)(from + i * sf);
  N(flip)(a);
  WX_UNROLL for (int i = 0; i < N(side); i++) *(N(quad) *)(to + i * st) = a[i];
}

/* to[k * st + c] = from[c * sf + k] for k < K and c < columns, by squares that are transposed in registers: those of a
 * line one after the other, as lines that are pages apart push each other out of the first-level cache. What follows
 * these columns is asked for, as no core foresees so many rows (from memory 0.25 ns an element in place of 0.6, Zen 4).
 */
static void N(transpose)(int64_t K, int64_t columns, const T *from, int64_t sf, T *to, int64_t st) {
  enum { LINE = WX_LINE_BYTES / sizeof(T) };
  const int64_t whole = columns < N(side) ? 0 : K / N(side) * N(side);
  for (int64_t k = 0; k < whole; k += LINE)
    for (int64_t c = 0; c < columns; c += N(side)) {
      const int64_t first = wx_min(c, columns - N(side)); /* the last square may overlap the one before */
      const T *rows = from + first * sf + k;
      for (int i = 0; i < N(side); i++) __builtin_prefetch(rows + (columns + i) * sf);
      for (int64_t j = 0; j < wx_min(LINE, whole - k); j += N(side))
        N(square)(rows + j, sf, to + (k + j) * st + first, st);
    }
  for (int64_t k = whole; k < K; k++)
    for (int64_t c = 0; c < columns; c++) to[k * st + c] = from[c * sf + k];
}

static int64_t N(packed_size)(int64_t K, int64_t n) { return wx_parts(n, N(columns)) * N(columns) * K; }

static void N(pack_b)(int64_t K, int64_t n, const T *B, int64_t rbs, int64_t cbs, T *packed) {
  const int64_t whole = n - n % N(columns);
  if (cbs == 1) /* a few rows over all columns at a time: both sides of the copy are read and written in runs */
    for (int64_t first = 0; first < K; first += 8)
      for (int64_t j = 0; j < whole; j += N(columns))
        for (int64_t k = first; k < wx_min(K, first + 8); k++) {
          const N(mem) *from = (const N(mem) *)(B + k * rbs + j);
          N(mem) *to = (N(mem) *)(packed + j * K + k * N(columns));
          const N(vec) left = from[0], right = from[1];
          to[0] = left, to[1] = right;
        }
  else
    for (int64_t j = 0; j < whole; j += N(columns))
      if (rbs == 1)
        N(transpose)(K, N(columns), B + j * cbs, cbs, packed + j * K, N(columns));
      else
        for (int64_t k = 0; k < K; k++)
          for (int64_t c = 0; c < N(columns); c++) packed[j * K + k * N(columns) + c] = B[k * rbs + (j + c) * cbs];
  if (whole < n)
    for (int64_t k = 0; k < K; k++)
      for (int64_t c = 0; c < N(columns); c++)
        packed[whole * K + k * N(columns) + c] = whole + c < n ? B[k * rbs + (whole + c) * cbs] : 0;
}

/* Rows of A in panels as high as the tiles are, each [k][row]: the panel that begins at row i lies at i * depth. */
static void N(pack_a)(int64_t rows, int64_t depth, const T *A, int64_t ras, int64_t cas, int most, T *packed) {
  const wx_tiling tiling = wx_tiling_of(rows, most);
  for (int64_t i = 0, tile = 0, height; i < rows; i += height, packed += height * depth, tile++) {
    height = wx_height(tiling, tile);
    if (cas == 1)
      N(transpose)(depth, height, A + i * ras, ras, packed, height);
    else
      for (int64_t k = 0; k < depth; k++)
        for (int64_t r = 0; r < height; r++) packed[k * height + r] = A[(i + r) * ras + k * cas];
  }
}

/* How far apart rows are that were copied: an odd number of lines, so that no two lie whole pages apart. */
static int64_t N(apart)(int64_t depth) {
  const int64_t line = WX_LINE_BYTES / sizeof(T);
  return (wx_parts(depth, line) | 1) * line;
}

/* Elements of a block of A that was copied: in panels, or row by row. */
static int64_t N(left_size)(int64_t M, int64_t K) { return wx_min(M, N(height)) * N(apart)(wx_min(K, N(depth))); }

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A block of A as tiles read it: the tile that begins at row i lies at at + i * row, its rows (by rows) or columns are
 * `step` apart; packed columns as far apart as the tile has rows. */
typedef struct {
  const T *at;
  int64_t row, step;
  int form;
} N(left);

/* Columns of B in panels, `panel` elements from one to the next; rows of a panel are `row` apart. */
typedef struct {
  const T *at;
  int64_t panel, row;
} N(right);

/* A block that is read where it lies: one of its strides is 1. */
static N(left) N(as_it_lies)(const T *A, int64_t ras, int64_t cas) {
  return cas == 1 ? (N(left)){A, ras, ras, WX_BY_ROWS} : (N(left)){A, ras, cas, WX_BY_COLUMNS};
}

/* Packing A pays where many columns pass over it: where it lies, its rows compete for the same lines of the cache.
 * Those that are pages apart do so for eight lines, and are copied at least. */
static N(left) N(prepare)(int64_t rows, int64_t n, int64_t depth, const T *A, int64_t ras, int64_t cas, int most,
                          T *scratch) {
  const int64_t step = N(apart)(depth);
  if ((cas == 1 || ras == 1) && n < 512) {
    if (cas != 1 || ras * (int64_t)sizeof(T) % WX_PAGE_BYTES || rows <= 2 * WX_ROWS || n < 2 * N(columns))
      return N(as_it_lies)(A, ras, cas);
    for (int64_t i = 0; i < rows; i++) __builtin_memcpy(scratch + i * step, A + i * ras, depth * sizeof(T));
    return N(as_it_lies)(scratch, step, 1);
  }
  N(pack_a)(rows, depth, A, ras, cas, most, scratch);
  return (N(left)){scratch, depth, 0, WX_PACKED};
}

/* Most rows of a tile. Those that are pages apart compete for eight lines of the first-level cache: with such rows of
 * C, tiles of 8 have 82 GFLOP/s and of 13 76 where they are 64 deep, 110 and 106 where they are 512 deep (Zen 4). */
static int N(most)(int64_t step) {
  return WX_ROWS > 8 && step * (int64_t)sizeof(T) % WX_PAGE_BYTES == 0 ? 8 : WX_ROWS;
}

/* Where packing B costs more than it saves: few rows meet each element; or, with vectors of whole lines, one block of A
 * does, whose tiles ask for lines of B ahead. Where rows lie in more than a page each only fewer rows of A do not, and
 * rows that are pages apart compete for eight lines of the first-level cache. Products of shorter vectors are bound by
 * instructions, of which panels need fewer. */
static int N(lies_well)(int64_t M, int64_t n, int64_t K, int64_t rbs, int64_t cbs) {
  const int64_t step = rbs * sizeof(T), near = step <= WX_PAGE_BYTES, small = K * n * sizeof(T) <= 2 * WX_PANEL_BYTES;
  int64_t most = 2 * WX_ROWS;
  if (WX_VECTOR == WX_LINE_BYTES) {
    if (near) most = 4 * WX_ROWS;
    if (small) most = 64;
    if (step % WX_PAGE_BYTES) most = near ? 384 : 96;
  }
  return cbs == 1 && M <= most;
}

/* How deep the runs are that sums of `depth` products are made of: even, and whole steps of four. What is deeper than
 * WX_SINGLE_RUN has two at least. */
static int64_t N(run)(int64_t depth, int accumulate) {
  if (accumulate & WX_CAREFUL) return WX_CAREFUL_RUN;
  const int64_t runs = wx_parts(depth, accumulate & WX_OF_SEVERAL ? WX_SHORT_RUN : WX_RUN);
  return wx_parts(wx_parts(depth, runs > 1 || depth <= WX_SINGLE_RUN ? runs : 2), 4) * 4;
}

/* C (+)= A * B for one block of A. `next` is the panel that is read after the last, null where that is not known. Tiles
 * have at most so many rows. */
static void N(block)(int64_t rows, int64_t n, int64_t depth, N(left) A, N(right) B, const T *next, T *C, int64_t ldc,
                     int accumulate, int most) {
  const int in_panels = B.row == N(columns), lying = A.form == WX_BY_ROWS && (in_panels || rows > WX_ROWS);
  const wx_tiling tiling = wx_tiling_of(rows, lying ? wx_min(most, WX_LYING_ROWS) : most);
  const int in_place = lying && !in_panels && !(accumulate & WX_CAREFUL);
  const int panels = (in_panels || in_place) && tiling.tiles >= 3 && most == WX_ROWS;
  const int64_t run = depth ? N(run)(depth, accumulate) : 1;
  for (int64_t j = 0; j < n; j += N(columns), B.at += B.panel) {
    const int64_t valid = wx_min(N(columns), n - j);
    const int wide = valid > N(lanes), tall = panels && wide;
    /* Each tile fetches its part of the next panel, bit by bit between its products. */
    const int last = valid == n - j;
    const int64_t pace = last && !next ? 0 : B.row * (int64_t)sizeof(T) / tiling.tiles;
    const char *ahead = (const char *)(!last ? B.at + B.panel : next ? next : B.at);
    for (int64_t i = 0, tile = 0, height; i < rows; i += height, tile++, ahead += pace * depth) {
      height = wx_height(tiling, tile);
      const int with_care = A.form == WX_BY_ROWS && accumulate & WX_CAREFUL;
      const int form = in_place ? WX_IN_PLACE : with_care ? WX_WITH_CARE : A.form;
      const N(tile_of) tile_of = tall ? N(talls)[height][form] : N(tiles)[height][wide][A.form == WX_BY_ROWS];
      const int64_t sa = A.form == WX_PACKED ? height : A.step, next_k = A.form == WX_BY_ROWS ? 1 : sa;
      const int64_t at_once = tall ? depth : run;
      for (int64_t k = 0, part; k < depth; k += part) {
        part = wx_part(depth - k, at_once, accumulate);
        tile_of(part, A.at + i * A.row + k * next_k, sa, B.at + k * B.row, B.row, C + i * ldc + j,
                ldc, valid, k ? accumulate | WX_ADD : accumulate, ahead + k * pace, pace, run);
      }
    }
  }
}

/* The panel that follows the last of a layer: the first of the next layer, or of the columns after these. It is only
 * fetched, so that it may lie past the end. */
static const T *N(after)(const T *first, int64_t n, int64_t K, int64_t k, int64_t depth) {
  return k + depth < K ? first + depth * N(columns) : first + (N(packed_size)(K, n) - k * N(columns));
}

/* The loops around a block. All of B is `packed`, or packed is null and B is packed `width` columns at a time. */
static void N(multiply)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *packed,
                        const T *B, int64_t rbs, int64_t cbs, int64_t width, T *C, int64_t ldc, int accumulate,
                        char *scratch) {
  T *const packed_a = (T *)wx_align(scratch), *const packed_b = packed_a + N(left_size)(M, K);
  const int direct = !packed && N(lies_well)(M, n, K, rbs, cbs) && (M <= 2 * WX_ROWS || !(accumulate & WX_CAREFUL));
  const int64_t layers = wx_parts(K, N(depth)), blocks = wx_parts(M, N(height));
  const int most = N(most)(ldc);
  if (K <= 0 && !(accumulate & WX_ADD))
    for (int64_t i = 0; i < M; i++)
      for (int64_t j = 0; j < n; j++) C[i * ldc + j] = 0;
  for (int64_t k = 0, layer = 0, depth; k < K; k += depth, layer++, accumulate |= WX_ADD) {
    depth = wx_parts(K - k, layers - layer); /* even parts of K and M: none is a sliver */
    N(left) left = {0};
    for (int64_t j = 0, here; j < n; j += here) {
      N(right) right = {packed_b, depth * N(columns), N(columns)};
      here = wx_min(width, n - j);
      if (packed)
        right.at = packed + k * N(columns), right.panel = K * N(columns);
      else if (direct && n - j >= N(lanes))
        here = (n - j) / N(lanes) * N(lanes), right = (N(right)){B + k * rbs + j, N(columns), rbs};
      else
        N(pack_b)(depth, here, B + k * rbs + j * cbs, rbs, cbs, packed_b);
      for (int64_t i = 0, block = 0, rows; i < M; i += rows, block++) {
        rows = wx_parts(M - i, blocks - block);
        if (j == 0 || blocks > 1) left = N(prepare)(rows, n, depth, A + i * ras + k * cas, ras, cas, most, packed_a);
        N(block)(rows, here, depth, left, right, packed && block == blocks - 1 ? N(after)(right.at, n, K, k, depth) : 0,
                 C + i * ldc + j, ldc, accumulate, most);
      }
    }
  }
}

/* Few rows over packed columns: what takes the time is to read B, which is read from one end to the other. Rows of A
 * that are pages apart are all kept in the same eight lines of a first-level cache: tiles of twelve rows of 4096 floats
 * take 1.6 times as long as two of six each, and those of ten as long (Zen 4). */
static void N(few)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *packed, T *C,
                   int64_t ldc, int accumulate) {
  const int64_t layers = wx_parts(K, N(depth));
  const int most = M <= 10 ? WX_ROWS : wx_min(N(most)(ldc), cas == 1 ? N(most)(ras) : WX_ROWS);
  for (int64_t j = 0; j < n; j += N(columns))
    for (int64_t k = 0, layer = 0, depth; k < K; k += depth, layer++) {
      depth = wx_parts(K - k, layers - layer);
      const N(left) left = N(as_it_lies)(A + k * cas, ras, cas);
      const N(right) right = {packed + j * K + k * N(columns), 0, N(columns)};
      N(block)(M, wx_min(N(columns), n - j), depth, left, right, right.at + depth * N(columns), C + j, ldc,
               k ? accumulate | WX_ADD : accumulate, most);
    }
}

/* ---- a matrix and a vector --------------------------------------------------------------------------------------- */

/* y[i] (+)= A[i] . x for `rows` rows that each lie in one run. */
WX_INLINE void N(dots)(const int rows, int64_t K, const T *A, int64_t ras, const T *x, T *y, int64_t incy,
                       int accumulate) {
  N(vec) sum[4][2] = {{{0}}};
  int64_t k = 0;
  for (; k + N(columns) <= K; k += N(columns)) {
    const N(vec) x0 = *(const N(mem) *)(x + k), x1 = *(const N(mem) *)(x + k + N(lanes));
    WX_UNROLL for (int i = 0; i < rows; i++) {
      sum[i][0] += *(const N(mem) *)(A + i * ras + k) * x0;
      sum[i][1] += *(const N(mem) *)(A + i * ras + k + N(lanes)) * x1;
    }
  }
  WX_UNROLL for (int i = 0; i < rows; i++) {
    const N(vec) both = sum[i][0] + sum[i][1];
    T total = 0;
    for (int l = 0; l < N(lanes); l++) total += both[l];
    for (int64_t j = k; j < K; j++) total += A[i * ras + j] * x[j];
    y[i * incy] = accumulate ? y[i * incy] + total : total;
  }
}

/* y += eight columns of A, each in one run, times eight elements of x: y is read and written once for all. Inlined, it
 * would lose its `restrict`, and half its speed. */
static __attribute__((noinline)) void N(sums)(int64_t M, const T *A, int64_t cas, const T *x, int64_t incx, T *restrict y) {
  const T x0 = x[0], x1 = x[incx], x2 = x[2 * incx], x3 = x[3 * incx];
  const T x4 = x[4 * incx], x5 = x[5 * incx], x6 = x[6 * incx], x7 = x[7 * incx];
#pragma omp simd
  for (int64_t i = 0; i < M; i++) {
    const T *a = A + i;
    y[i] += (a[0] * x0 + a[cas] * x1 + a[2 * cas] * x2 + a[3 * cas] * x3) +
            (a[4 * cas] * x4 + a[5 * cas] * x5 + a[6 * cas] * x6 + a[7 * cas] * x7);
  }
}

/* y (+)= A x; A is read once, in runs where a stride is 1. */
static void N(apply)(int64_t M, int64_t K, const T *A, int64_t ras, int64_t cas, const T *x, int64_t incx, T *y,
                     int64_t incy, int accumulate) {
  T piece[N(piece)]; /* of y, summed here, or of x, gathered here */
  if (cas != 1 && ras == 1) {
    const int64_t parts = K > 0 ? wx_parts(K, WX_RUN) : 1;
    for (int64_t i = 0, rows; i < M; i += rows) {
      rows = wx_min(M - i, N(piece));
      for (int64_t part = 0, k = 0; part < parts; part++) {
        const int64_t end = wx_min(K, k + WX_RUN), added = accumulate || part;
        for (int64_t r = 0; r < rows; r++) piece[r] = 0;
        for (; k + 8 <= end; k += 8) N(sums)(rows, A + i + k * cas, cas, x + k * incx, incx, piece);
        for (; k < end; k++)
          for (int64_t r = 0; r < rows; r++) piece[r] += A[i + r + k * cas] * x[k * incx];
        for (int64_t r = 0; r < rows; r++) y[(i + r) * incy] = added ? y[(i + r) * incy] + piece[r] : piece[r];
      }
    }
    return;
  }
  const int runs = cas == 1 && K > 0;
  for (int64_t k = 0, depth = K; runs && k < K; k += depth, accumulate = 1) {
    if (incx != 1) depth = wx_min(K - k, N(piece));
    if (incx != 1)
      for (int64_t j = 0; j < depth; j++) piece[j] = x[(k + j) * incx];
    const T *part = incx == 1 ? x : piece;
    int64_t i = 0;
    for (; i + 4 <= M; i += 4) N(dots)(4, depth, A + i * ras + k, ras, part, y + i * incy, incy, accumulate);
    for (; i < M; i++) N(dots)(1, depth, A + i * ras + k, ras, part, y + i * incy, incy, accumulate);
  }
  for (int64_t i = 0; !runs && i < M; i++) {
    T total = accumulate ? y[i * incy] : 0;
    for (int64_t k = 0; k < K; k++) total += A[i * ras + k * cas] * x[k * incx];
    y[i * incy] = total;
  }
}

#include "dots.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int64_t N(gemm_scratch)(int64_t M, int64_t n, int64_t K) {
  (void)n;
  return N(left_size)(M, K) * (int64_t)sizeof(T) + WX_ALIGN;
}

static void N(gemm)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *packed, T *C,
                    int64_t ldc, int accumulate, char *scratch) {
  if (M > 0 && M <= 2 * WX_ROWS && K > 0 && (cas == 1 || ras == 1))
    N(few)(M, n, K, A, ras, cas, packed, C, ldc, accumulate);
  else
    N(multiply)(M, n, K, A, ras, cas, packed, 0, 0, 0, n, C, ldc, accumulate, scratch);
}

/* Columns of B that are packed at a time: with one block of A they stay beside it in the second-level cache; with more,
 * which are packed anew for every part of B, a part has many. */
static int64_t N(width)(int64_t M, int64_t n) { return wx_min(n, M <= N(height) ? 256 : 1024); }

static int64_t N(gemm_any_scratch)(int64_t M, int64_t n, int64_t K) {
  const int64_t panels = N(packed_size)(wx_min(K, N(depth)), N(width)(M, n)), item = sizeof(T);
  const int64_t copied = wx_min(M, WX_DOT_ROWS) * N(apart)(wx_min(K, N(dot_depth))) * item + WX_ALIGN;
  return wx_max(N(gemm_scratch)(M, n, K) + panels * item, copied);
}

static void N(gemm_any)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *B, int64_t rbs,
                        int64_t cbs, T *C, int64_t ldc, int accumulate, char *scratch) {
  if (n == 1)
    N(apply)(M, K, A, ras, cas, B, rbs, C, ldc, accumulate & WX_ADD);
  else if (M == 1)
    N(apply)(n, K, B, cbs, rbs, A, cas, C, 1, accumulate & WX_ADD);
  else if (!(accumulate & WX_CAREFUL) && N(dots_pay)(M, K, cas, rbs))
    N(dot_rows)(M, n, K, A, ras, B, cbs, C, ldc, accumulate & WX_ADD, scratch);
  else
    N(multiply)(M, n, K, A, ras, cas, 0, B, rbs, cbs, N(width)(M, n), C, ldc, accumulate, scratch);
}

/* A matrix in rows as BLAS says it: 0 as it is, 1 transposed, -1 not at all; and its leading dimension. */
static int N(storage)(int64_t rows, int64_t columns, int64_t rs, int64_t cs, int64_t *leading) {
  if ((cs == 1 || columns == 1) && (rs >= columns || rows == 1)) return *leading = rows == 1 ? columns : rs, 0;
  if ((rs == 1 || rows == 1) && (cs >= rows || columns == 1)) return *leading = columns == 1 ? rows : cs, 1;
  return -1;
}

static int N(blas)(void *function, int64_t bits, int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas,
                   const T *B, int64_t rbs, int64_t cbs, T *C, int64_t ldc, int accumulate) {
  enum { ROW_MAJOR = 101, PLAIN = 111 }; /* of cblas.h; a transposed operand is PLAIN + 1 */
#define WX_CBLAS(I) void (*)(int, int, int, I, I, I, T, const T *, I, const T *, I, T, T *, I)
  int64_t lda = 0, ldb = 0;
  if (M <= 0 || n <= 0 || K <= 0) return 1;
  const int ta = N(storage)(M, K, ras, cas, &lda), tb = N(storage)(K, n, rbs, cbs, &ldb);
  if (M == 1) ldc = n;
  if (ta < 0 || tb < 0 || ldc < n || (bits == 32 && (M | n | K | lda | ldb | ldc) > INT32_MAX)) return 1;
  const T beta = accumulate ? 1 : 0;
  if (bits == 64)
    ((WX_CBLAS(int64_t))function)(ROW_MAJOR, PLAIN + ta, PLAIN + tb, M, n, K, 1, A, lda, B, ldb, beta, C, ldc);
  else
    ((WX_CBLAS(int32_t))function)(ROW_MAJOR, PLAIN + ta, PLAIN + tb, M, n, K, 1, A, lda, B, ldb, beta, C, ldc);
#undef WX_CBLAS
  return 0;
}
