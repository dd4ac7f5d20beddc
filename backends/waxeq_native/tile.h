/* The tile of a product of matrices: rows x columns sums in registers. Included by gemm.h, once for each element type. */

/* The first columns of a tile that reaches over the right edge of C. */
static __attribute__((noinline)) void N(store)(int64_t rows, int64_t valid, const T *tile, T *C, int64_t ldc,
                                               int accumulate) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < valid; j++) {
      const T t = tile[i * N(columns) + j];
      C[i * ldc + j] = accumulate ? C[i * ldc + j] + t : t;
    }
}

/* One k of a tile. rows, vectors (in each row of the tile) and by_rows are constants where this is inlined. */
WX_INLINE void N(step)(const int rows, const int vectors, const int by_rows, const T *A, int64_t sa, const T *B,
                       N(vec) (*sum)[2]) {
  N(vec) b[2]; /* read once: a compiler that folds the loads into the products asks the cache for more than it gives */
  WX_UNROLL for (int v = 0; v < vectors; v++) b[v] = *(const volatile N(mem) *)(B + v * N(lanes));
  WX_UNROLL for (int i = 0; i < rows; i++) {
    WX_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += A[by_rows ? i * sa : i] * b[v];
  }
}

/* Writes a tile, or adds it to what is there; only its first `valid` columns. */
WX_INLINE void N(finish)(const int rows, const int vectors, N(vec) (*sum)[2], T *C, int64_t ldc, int64_t valid,
                         int accumulate) {
  if (valid == vectors * N(lanes)) {
    WX_UNROLL for (int i = 0; i < rows; i++) {
      WX_UNROLL for (int v = 0; v < vectors; v++) {
        N(mem) *c = (N(mem) *)(C + i * ldc + v * N(lanes));
        if (accumulate) sum[i][v] += *c;
        *c = sum[i][v];
      }
    }
  } else {
    N(vec) whole[WX_ROWS][2];
    WX_UNROLL for (int i = 0; i < rows; i++) whole[i][0] = sum[i][0], whole[i][1] = sum[i][1];
    N(store)(rows, valid, (const T *)whole, C, ldc, accumulate);
  }
}

#define WX_TILE_PARAMETERS                                                                                             \
  int64_t depth, const T *A, int64_t sa, const T *B, int64_t sb, T *C, int64_t ldc, int64_t valid, int accumulate,     \
      const char *ahead, int64_t pace, int64_t run

/* A is either by rows (element (i, k) at i * sa + k) or by columns (at i + k * sa); B has its columns side by side,
 * rows sb apart. Only the first `valid` columns of C are written. `ahead` is fetched into the second-level cache on the
 * way, `pace` bytes for each k; not for few rows, which ask for memory faster than it comes. */
WX_INLINE void N(tile)(const int rows, const int vectors, const int by_rows, WX_TILE_PARAMETERS) {
  (void)run;
  /* Two multipliers of four cycles each ask for eight sums under way: with few, every other k has sums of its own. */
  const int ways = rows * vectors <= 2 ? 4 : rows * vectors <= 6 ? 2 : 1;
  const int64_t next = by_rows ? 1 : sa;
  const int asks = rows > WX_UNASKED || (rows > 1 && sb != N(columns)); /* panels lie one behind the other */
  N(vec) sum[4][WX_ROWS][2] = {{{{0}}}};
  WX_UNROLL for (int i = 0; i < rows; i++) __builtin_prefetch(C + i * ldc + valid - 1, 1);
  int64_t k = 0;
  for (; k + ways <= depth; k += ways) {
    WX_UNROLL for (int w = 0; w < ways; w++) {
      if (asks) __builtin_prefetch(ahead + (k + w) * pace, 0, 2);
      if (asks && pace > WX_LINE_BYTES) __builtin_prefetch(ahead + (k + w) * pace + WX_LINE_BYTES, 0, 2);
      N(step)(rows, vectors, by_rows, A + (k + w) * next, sa, B + (k + w) * sb, sum[w]);
    }
  }
  for (; ways > 1 && k < depth; k++) N(step)(rows, vectors, by_rows, A + k * next, sa, B + k * sb, sum[0]);
  WX_UNROLL for (int w = 1; w < ways; w++) {
    WX_UNROLL for (int i = 0; i < rows; i++) sum[0][i][0] += sum[w][i][0], sum[0][i][1] += sum[w][i][1];
  }
  N(finish)(rows, vectors, sum[0], C, ldc, valid, accumulate & WX_ADD);
}

WX_INLINE void N(clear)(const int rows, N(vec) (*sum)[2]) {
  WX_UNROLL for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = (N(vec)){0};
}

/* Adds a whole tile to what is there; what was lost to rounding is left in its place. */
WX_INLINE void N(merge)(const int rows, N(vec) (*sum)[2], T *C, int64_t ldc) {
  WX_UNROLL for (int i = 0; i < rows; i++) {
    WX_UNROLL for (int v = 0; v < 2; v++) {
      N(mem) *c = (N(mem) *)(C + i * ldc + v * N(lanes));
      const N(vec) before = *c, both = before + sum[i][v];
      *c = both, sum[i][v] -= both - before;
    }
  }
}

/* A tile of a whole panel of B, several k at a time: with steps that are known and lines asked for once, less is left to
 * do beside the products. A core whose other thread has half of its instructions has 52 GFLOP/s in place of 42 by that
 * (Zen 3, sums of 64; on its own 72 either way). Three tiles or more, so that the pace is a third of a row of B at most.
 * `form` is how A lies: packed, its columns are as far apart as the tile has rows; with care, it lies by rows, and what
 * is lost when runs are added goes into the next; in place, it lies by rows and so does B, of which `ahead` is fetched
 * row by row (32 rows, 512 deep: 112 GFLOP/s in place of 107 with one k at a time, Zen 4). */
WX_INLINE void N(tall)(const int rows, const int form, WX_TILE_PARAMETERS) {
  /* Of five rows in 16 registers gcc 12 keeps a sum in memory where it sees four k at once: that takes as long as six. */
  const int steps = WX_VECTOR == 32 && rows == 5 ? 3 : 4;
  const int careful = form == WX_WITH_CARE, in_place = form == WX_IN_PLACE;
  const int lines = ((in_place ? 2 * WX_VECTOR : steps * (2 * WX_VECTOR / 3)) + WX_LINE_BYTES - 1) / WX_LINE_BYTES;
  const int by_rows = form == WX_BY_ROWS || careful || in_place;
  const int64_t below = in_place ? sb : N(columns);
  const int64_t next = by_rows ? 1 : form == WX_PACKED ? rows : sa;
  int64_t k = 0;
  N(vec) sum[WX_ROWS][2] = {{{0}}};
  WX_UNROLL for (int i = 0; i < rows; i++) __builtin_prefetch(C + i * ldc + valid - 1, 1);
  do {
    const int64_t end = k + wx_part(depth - k, run, accumulate);
    if (!careful) N(clear)(rows, sum);
    for (; k + steps <= end; k += steps) {
      const char *asked = ahead + (in_place ? k / steps * sb * (int64_t)sizeof(T) : k * pace);
      WX_UNROLL for (int l = 0; l < lines; l++) __builtin_prefetch(asked + l * WX_LINE_BYTES, 0, 2);
      /* A core that foresees next elements does not foresee columns of A some three or four lines apart (Zen 3: 76 of 97
       * GFLOP/s in place of 90 to 92). */
      if (WX_VECTOR == 32 && form == WX_BY_COLUMNS)
        WX_UNROLL for (int w = 0; w < steps; w++) __builtin_prefetch(A + (k + w + 4) * next);
      WX_UNROLL for (int w = 0; w < steps; w++)
        N(step)(rows, 2, by_rows, A + (k + w) * next, sa, B + (k + w) * below, sum);
    }
    for (; k < end; k++) N(step)(rows, 2, by_rows, A + k * next, sa, B + k * below, sum);
    if (careful && end < depth && (accumulate & WX_ADD) && valid == N(columns)) {
      N(merge)(rows, sum, C, ldc);
    } else {
      N(finish)(rows, 2, sum, C, ldc, valid, accumulate & WX_ADD);
      if (careful) N(clear)(rows, sum);
    }
    accumulate |= WX_ADD;
  } while (k < depth);
}

typedef void (*N(tile_of))(WX_TILE_PARAMETERS);

#define WX_TILE(rows, vectors, by_rows)                                                                                \
  static void N(tile_##rows##_##vectors##_##by_rows)(WX_TILE_PARAMETERS) {                                             \
    N(tile)(rows, vectors, by_rows, depth, A, sa, B, sb, C, ldc, valid, accumulate, ahead, pace, run);                 \
  }
#define WX_TILES(rows) WX_TILE(rows, 1, 0) WX_TILE(rows, 1, 1) WX_TILE(rows, 2, 0) WX_TILE(rows, 2, 1)
WX_EACH_ROWS(WX_TILES)

#define WX_TALL(rows, form)                                                                                            \
  static void N(tall_##rows##_##form)(WX_TILE_PARAMETERS) {                                                            \
    N(tall)(rows, form, depth, A, sa, B, sb, C, ldc, valid, accumulate, ahead, pace, run);                             \
  }
#define WX_TALLS(rows) WX_TALL(rows, WX_BY_COLUMNS) WX_TALL(rows, WX_BY_ROWS) WX_TALL(rows, WX_PACKED)            \
  WX_TALL(rows, WX_WITH_CARE) WX_TALL(rows, WX_IN_PLACE)
WX_EACH_TALL(WX_TALLS)

#define WX_ENTRY(rows)                                                                                                 \
  [rows] = {{N(tile_##rows##_1_0), N(tile_##rows##_1_1)}, {N(tile_##rows##_2_0), N(tile_##rows##_2_1)}},
static const N(tile_of) N(tiles)[WX_ROWS + 1][2][2] = {WX_EACH_ROWS(WX_ENTRY)};

#define WX_TALL_ENTRY(rows)                                                                                            \
  [rows] = {N(tall_##rows##_WX_BY_COLUMNS), N(tall_##rows##_WX_BY_ROWS), N(tall_##rows##_WX_PACKED),                   \
            N(tall_##rows##_WX_WITH_CARE), N(tall_##rows##_WX_IN_PLACE)},
static const N(tile_of) N(talls)[WX_ROWS + 1][5] = {WX_EACH_TALL(WX_TALL_ENTRY)};

#undef WX_TILE_PARAMETERS
#undef WX_TILE
#undef WX_TILES
#undef WX_ENTRY
#undef WX_TALL
#undef WX_TALLS
#undef WX_TALL_ENTRY
