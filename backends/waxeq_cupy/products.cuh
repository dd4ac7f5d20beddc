/* Products of matrices on tiles in shared memory, after prelude.cuh.

   A block makes a tile of M x N of the result: for every K of the depth it has M x K of the left side and K x N of the
   right side in shared memory, while the next ones are on their way. A kernel says what its sides are (wx_side): what
   `take` gives for a place is W elements from there on, zeros outside of the matrix.

   wx_tile: each thread multiplies TM x TN numbers that it keeps in registers.
   wx_tile_16: each warp multiplies WM x WN of float16 or bfloat16 by mma.sync, and adds up in float32.
   wx_tile_tf32: the same for float32 that is rounded to the ten digits of tf32. */

/* ALONG: elements lie side by side along the depth, and not from row to row (of the right side: column to column).
   COPIED: they come without passing through registers, and `take` sends them to a place of shared memory. */
template <int W, bool ALONG, bool COPIED, class F> struct wx_side {
  static constexpr int width = W;
  static constexpr bool along = ALONG, copied = COPIED;
  const F take;
};
template <int W, bool ALONG, bool COPIED, class F> WX_FN wx_side<W, ALONG, COPIED, F> wx_side_of(const F &take) {
  return {take};
}

/* How the tiles of a side lie in shared memory: lines of rows side by side, one for each place of the depth. The
   padding keeps those who turn a tile from waiting for each other. */
template <class T, int ROWS, int DEPTH, int PADDING = 16 / sizeof(T)> struct wx_lines {
  static constexpr int line = ROWS + PADDING, size = DEPTH * line;
  static constexpr bool along = false;
  static __device__ __forceinline__ int at(int row, int depth) { return depth * line + row; }
};

/* Lines of either, of 16-bit elements in groups of 8, such that ldmatrix finds 8 groups below each other in 8 different
   groups of banks. */
template <int ROWS, int DEPTH, bool ALONG> struct wx_matrix {
  static constexpr int line = ALONG ? DEPTH : ROWS, size = ROWS * DEPTH;
  static constexpr bool along = ALONG;
  static __device__ __forceinline__ int at(int row, int depth) {
    const int y = ALONG ? row : depth, x = ALONG ? depth : row;
    const int turn = line >= 64 ? y & 7 : line == 32 ? y >> 1 & 3 : y >> 2 & 1;
    return y * line + ((x >> 3 ^ turn) << 3) + (x & 7);
  }
};

/* What a thread brings of a tile: groups of the side's width, dealt out along the direction in which they lie. */
template <class T, class LAID, class SIDE, int ROWS, int DEPTH, int THREADS> struct wx_brought {
  static constexpr int W = SIDE::width, across = (SIDE::along ? DEPTH : ROWS) / W;
  static constexpr int groups = ROWS * DEPTH / W, each = (groups + THREADS - 1) / THREADS;
  static constexpr bool held_back = W > 1 && !SIDE::copied; /* single elements would need too many registers */
  wx_group<T, W> held[held_back ? each : 1];

  static __device__ __forceinline__ int row(int e) { return SIDE::along ? e / across : e % across * W; }
  static __device__ __forceinline__ int depth(int e) { return SIDE::along ? e % across * W : e / across; }

  /* Begins to bring the tile at a row and a depth, whose place in shared memory is from `to` on. */
  template <class S> __device__ __forceinline__ void ask(const SIDE &side, S &shared, int to, int first, int deep) {
    if constexpr (W == 1) {
#pragma unroll 4
      for (int e = threadIdx.x; e < groups; e += THREADS)
        shared[to + LAID::at(row(e), depth(e))] = side.take(first + row(e), deep + depth(e)).at[0];
    } else {
#pragma unroll
      for (int n = 0; n < each; n++) {
        const int e = n * THREADS + threadIdx.x;
        if (groups % THREADS && e >= groups) break;
        if constexpr (SIDE::copied) {
          side.take(shared, to + LAID::at(row(e), depth(e)), first + row(e), deep + depth(e));
        } else {
          held[n] = side.take(first + row(e), deep + depth(e));
        }
      }
    }
  }

  /* Puts there what came through registers. */
  template <class S> __device__ __forceinline__ void put(S &shared, int to) const {
    if constexpr (held_back) {
#pragma unroll
      for (int n = 0; n < each; n++) {
        const int e = n * THREADS + threadIdx.x;
        if (groups % THREADS && e >= groups) break;
        if constexpr (SIDE::along == LAID::along) {
          wx_given<W>(shared, to + LAID::at(row(e), depth(e)), held[n]);
        } else {
#pragma unroll
          for (int u = 0; u < W; u++)
            shared[to + LAID::at(row(e) + (SIDE::along ? 0 : u), depth(e) + (SIDE::along ? u : 0))] = held[n].at[u];
        }
      }
    }
  }
};

/* Stands for a side that is in shared memory already. */
struct wx_there {
  template <class... X> __device__ __forceinline__ void ask(const X &...) const {}
  template <class... X> __device__ __forceinline__ void put(const X &...) const {}
};

/* The loop over the depth, two tiles of each side in turn: `multiply` is called with the places of those that are
   there, and their depth, while the next two are on their way. */
template <class LEFT, class RIGHT, class L, class R, class A, class B, class F>
WX_FN void wx_in_turn(LEFT &x, RIGHT &y, const L &left, const R &right, A &a, B &b, int as, int bs, int row, int column,
                      int depth, int deep, int end, const F &multiply) {
  x.ask(left, a, 0, row, deep), y.ask(right, b, 0, column, deep);
  x.put(a, 0), y.put(b, 0);
  wx_copies_here();
  __syncthreads();
#pragma unroll 1 /* one after another, as copies would need the registers of both */
  for (int turn = 0; deep < end; deep += depth, turn ^= 1) {
    const bool more = deep + depth < end;
    if (more) x.ask(left, a, (turn ^ 1) * as, row, deep + depth), y.ask(right, b, (turn ^ 1) * bs, column, deep + depth);
    multiply(turn * as, turn * bs, deep);
    if (more) x.put(a, (turn ^ 1) * as), y.put(b, (turn ^ 1) * bs);
    wx_copies_here();
    __syncthreads();
  }
}

/* A tile by threads of their own: each has TM x TN of it, groups of 16 bytes at equal distances. */
template <class T, int M, int N, int K, int TM, int TN> struct wx_tile {
  static constexpr int threads = M / TM * (N / TN), G = 16 / sizeof(T), kept = TM * TN;
  typedef wx_lines<T, M, K> left;
  typedef wx_lines<T, N, K> right;
  static __device__ __forceinline__ int row(int i) {
    return (int)threadIdx.x / (N / TN) * G + i / G * (M / (TM / G)) + i % G;
  }
  static __device__ __forceinline__ int column(int j) {
    return (int)threadIdx.x % (N / TN) * G + j / G * (N / (TN / G)) + j % G;
  }

  /* c: the sums of the tile at a row and a column over the depth from `deep` up to `end`. */
  template <class L, class R, class A, class B, class C>
  static __device__ __forceinline__ void multiplied(const L &l, const R &r, A &a, B &b, C &c, int at_row, int at_column,
                                                    int deep, int end) {
    wx_brought<T, left, L, M, K, threads> x;
    wx_brought<T, right, R, N, K, threads> y;
#pragma unroll
    for (int n = 0; n < kept; n++) c[n] = 0;
    wx_in_turn(x, y, l, r, a, b, left::size, right::size, at_row, at_column, K, deep, end, [&](int p, int q, int) {
#pragma unroll
      for (int k = 0; k < K; k++) {
        wx_group<T, G> u[TM / G], v[TN / G];
#pragma unroll
        for (int i = 0; i < TM / G; i++) u[i] = wx_taken<G>(a, p + left::at(row(i * G), k));
#pragma unroll
        for (int j = 0; j < TN / G; j++) v[j] = wx_taken<G>(b, q + right::at(column(j * G), k));
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) c[i * TN + j] += u[i / G].at[i % G] * v[j / G].at[j % G];
      }
    });
  }

  /* Calls `give` for groups of W columns of the tile with their sums. */
  template <int W, class C, class S, class F>
  static __device__ __forceinline__ void given(C &c, S &, int at_row, int at_column, const F &give) {
    static_assert(G % W == 0, "");
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j += W) {
        wx_group<T, W> sums;
#pragma unroll
        for (int u = 0; u < W; u++) sums.at[u] = c[i * TN + j + u];
        give(at_row + row(i), at_column + column(j), sums);
      }
  }
};

/* A tile by warps: each has WM x WN of it, in fragments of 16 x 8. */
template <int M, int N, int WM, int WN> struct wx_warps {
  static constexpr int threads = M / WM * (N / WN) * 32, rows = WM / 16, columns = WN / 8, kept = rows * columns * 4;
  static constexpr int line = WN + 4, turned = threads / 32 * 8 * line; /* what warps turn their sums in */
  static __device__ __forceinline__ int row() { return (int)threadIdx.x / 32 / (N / WN) * WM; }
  static __device__ __forceinline__ int column() { return (int)threadIdx.x / 32 % (N / WN) * WN; }

  /* Calls `give` for groups of W columns with their sums, which are c from number `from` on. Lanes have two columns of a
     row each, too few to move at once: 8 rows at a time go through shared memory. */
  template <int W, class C, class S, class F>
  static __device__ __forceinline__ void given(C &c, S &shared, int at_row, int at_column, const F &give, int from = 0) {
    constexpr int each = WN / 4, lanes = WN / each; /* columns of a lane, lanes of a row */
    static_assert(each % W == 0, "");
    const int lane = threadIdx.x & 31, own = (int)threadIdx.x / 32 * 8 * line;
#pragma unroll
    for (int i = 0; i < 2 * rows; i++) {
#pragma unroll
      for (int j = 0; j < columns; j++)
#pragma unroll
        for (int u = 0; u < 2; u++)
          shared[own + lane / 4 * line + j * 8 + lane % 4 * 2 + u] = c[from + (i / 2 * columns + j) * 4 + i % 2 * 2 + u];
      __syncwarp(0xffffffffu);
#pragma unroll
      for (int j = 0; j < each; j += W) {
        const int y = lane / lanes, x = lane % lanes * W + j * lanes;
        wx_group<float, W> sums;
#pragma unroll
        for (int u = 0; u < W; u++) sums.at[u] = shared[own + y * line + x + u];
        give(at_row + row() + i * 8 + y, at_column + column() + x, sums);
      }
      __syncwarp(0xffffffffu);
    }
  }
};

/* H: wx_f16 or wx_bf16. */
template <class H, int M, int N, int K, int WM, int WN, bool LEFT_ALONG, bool RIGHT_ALONG>
struct wx_tile_16 : wx_warps<M, N, WM, WN> {
  typedef wx_warps<M, N, WM, WN> on;
  using on::threads, on::rows, on::columns, on::kept, on::row, on::column;
  typedef wx_matrix<M, K, LEFT_ALONG> left;
  typedef wx_matrix<N, K, RIGHT_ALONG> right;

  template <class L, class R, class A, class B, class C>
  static __device__ __forceinline__ void multiplied(const L &l, const R &r, A &a, B &b, C &c, int at_row, int at_column,
                                                    int deep, int end) {
    wx_brought<uint16_t, left, L, M, K, threads> x;
    wx_brought<uint16_t, right, R, N, K, threads> y;
#pragma unroll
    for (int n = 0; n < kept; n++) c[n] = 0;
    wx_in_turn(x, y, l, r, a, b, left::size, right::size, at_row, at_column, K, deep, end,
               [&](int p, int q, int) { added(a, b, c, p, q); });
  }

  /* The same where all tiles of the left side are in shared memory already, one after another along the depth. */
  template <class R, class A, class B, class C>
  static __device__ __forceinline__ void multiplied(const R &r, A &a, B &b, C &c, int at_column, int end) {
    const wx_there there;
    wx_brought<uint16_t, right, R, N, K, threads> y;
#pragma unroll
    for (int n = 0; n < kept; n++) c[n] = 0;
    wx_in_turn(there, y, there, r, a, b, 0, right::size, 0, at_column, K, 0, end,
               [&](int, int q, int deep) { added(a, b, c, deep / K * left::size, q); });
  }

  /* c += the tile of a at p * the tile of b at q */
  template <class A, class B, class C> static __device__ __forceinline__ void added(A &a, B &b, C &c, int p, int q) {
    /* of the four matrices that ldmatrix brings, lane / 8 is the one that this lane says the place of a line of */
    const int lane = threadIdx.x & 31, low = lane & 7, first = lane >> 3 & 1, second = lane >> 4;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
      uint32_t u[rows][4], v[columns][2];
#pragma unroll
      for (int i = 0; i < rows; i++) {
        const int m = row() + i * 16 + first * 8, d = k + second * 8;
        wx_fragments<!LEFT_ALONG>(u[i], a, p + left::at(m + (LEFT_ALONG ? low : 0), d + (LEFT_ALONG ? 0 : low)));
      }
#pragma unroll
      for (int j = 0; j < columns; j += 2) {
        const int n = column() + j * 8 + second * 8, d = k + first * 8;
        uint32_t w[4];
        wx_fragments<!RIGHT_ALONG>(w, b, q + right::at(n + (RIGHT_ALONG ? low : 0), d + (RIGHT_ALONG ? 0 : low)));
        v[j][0] = w[0], v[j][1] = w[1], v[j + 1][0] = w[2], v[j + 1][1] = w[3];
      }
#pragma unroll
      for (int i = 0; i < rows; i++)
#pragma unroll
        for (int j = 0; j < columns; j++) wx_mma<H>(c, (i * columns + j) * 4, u[i], v[j]);
    }
  }
};

template <int M, int N, int K, int WM, int WN> struct wx_tile_tf32 : wx_warps<M, N, WM, WN> {
  typedef wx_warps<M, N, WM, WN> on;
  using on::threads, on::rows, on::columns, on::kept, on::row, on::column;
  typedef wx_lines<float, M, K, 8> left; /* with this padding the lanes of a fragment read 32 banks */
  typedef wx_lines<float, N, K, 8> right;

  template <class L, class R, class A, class B, class C>
  static __device__ __forceinline__ void multiplied(const L &l, const R &r, A &a, B &b, C &c, int at_row, int at_column,
                                                    int deep, int end) {
    wx_brought<float, left, L, M, K, threads> x;
    wx_brought<float, right, R, N, K, threads> y;
#pragma unroll
    for (int n = 0; n < kept; n++) c[n] = 0;
    const int of = (threadIdx.x & 31) / 4, among = threadIdx.x & 3;
    wx_in_turn(x, y, l, r, a, b, left::size, right::size, at_row, at_column, K, deep, end, [&](int p, int q, int) {
#pragma unroll
      for (int k = 0; k < K; k += 8) {
        uint32_t u[rows][4], v[columns][2];
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
          for (int n = 0; n < 4; n++)
            u[i][n] = wx_tf32(a[p + left::at(row() + i * 16 + n % 2 * 8 + of, k + n / 2 * 4 + among)]);
#pragma unroll
        for (int j = 0; j < columns; j++)
#pragma unroll
          for (int n = 0; n < 2; n++) v[j][n] = wx_tf32(b[q + right::at(column() + j * 8 + of, k + n * 4 + among)]);
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
          for (int j = 0; j < columns; j++) wx_mma_tf32(c, (i * columns + j) * 4, u[i], v[j]);
      }
    });
  }
};

/* Which tile of `down` x `across` the block number t of a product makes: blocks that run at one time have tiles that
   lie together, and read the same lines of either side. */
WX_FN void wx_placed(int t, int down, int across, int *row, int *column) {
  const int band = t / (8 * across), rest = t % (8 * across), high = down - band * 8 < 8 ? down - band * 8 : 8;
  *row = band * 8 + rest % high, *column = rest / high;
}

/* A few rows (F) by a matrix that lies along the depth: a team of RANKS threads has C columns, and shares out the depth
   in groups of W. Every element of the matrix is read once. */
template <class T, int F, int W, int C, int RANKS> struct wx_few_along {
  static constexpr int threads = 256, columns = threads / RANKS * C, kept = F * C;
  static constexpr int shared = RANKS > 32 ? threads / 32 : 1;

  template <class L, class R, class S, class X>
  static __device__ __forceinline__ void multiplied(const L &left, const R &right, S &, X &c, int at_column, int deep,
                                                    int end) {
    const int rank = threadIdx.x % RANKS, column = at_column + (int)threadIdx.x / RANKS * C;
#pragma unroll
    for (int n = 0; n < kept; n++) c[n] = 0;
#pragma unroll 2
    for (int k = deep + rank * W; k < end; k += RANKS * W) {
      wx_group<T, W> y[C];
#pragma unroll
      for (int j = 0; j < C; j++) y[j] = right.take(column + j, k);
#pragma unroll
      for (int i = 0; i < F; i++) {
        const wx_group<T, W> x = left.take(i, k);
#pragma unroll
        for (int j = 0; j < C; j++)
#pragma unroll
          for (int u = 0; u < W; u++) c[i * C + j] += x.at[u] * y[j].at[u];
      }
    }
  }

  template <int W_, class X, class S, class G>
  static __device__ __forceinline__ void given(X &c, S &shared_, int at_column, const G &give) {
    static_assert(W_ == 1, "");
    const int rank = threadIdx.x % RANKS, team = threadIdx.x / RANKS;
    wx_group<T, 1> own = {};
#pragma unroll
    for (int n = 0; n < kept; n++) {
      T sum = c[n];
#pragma unroll
      for (int far = 1; far < 32; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
      if constexpr (RANKS > 32) {
        if (rank % 32 == 0) shared_[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = shared_[team * (RANKS / 32)];
#pragma unroll
        for (int w = 1; w < RANKS / 32; w++) sum += shared_[team * (RANKS / 32) + w];
        __syncthreads();
      }
      if (rank == n) own.at[0] = sum;
    }
    if (rank < kept) give(rank / C, at_column + team * C + rank % C, own);
  }
};

/* The same where the matrix lies along its columns: a thread has W of them side by side, a warp 32 * W, and the 8 warps
   of a block share out the depth. */
template <class T, int F, int W> struct wx_few_across {
  static constexpr int threads = 256, ranks = 8, columns = 32 * W, kept = F * W, shared = ranks * columns;
  static_assert(F <= ranks, "");

  template <class L, class R, class S, class X>
  static __device__ __forceinline__ void multiplied(const L &left, const R &right, S &, X &c, int at_column, int deep,
                                                    int end) {
    const int column = at_column + (int)(threadIdx.x & 31) * W;
#pragma unroll
    for (int n = 0; n < kept; n++) c[n] = 0;
#pragma unroll 4
    for (int k = deep + (int)threadIdx.x / 32; k < end; k += ranks) {
      const wx_group<T, W> y = right.take(column, k);
#pragma unroll
      for (int i = 0; i < F; i++) {
        const T x = left.take(i, k).at[0];
#pragma unroll
        for (int u = 0; u < W; u++) c[i * W + u] += x * y.at[u];
      }
    }
  }

  /* Row n is added up by warp n. */
  template <int W_, class X, class S, class G>
  static __device__ __forceinline__ void given(X &c, S &shared_, int at_column, const G &give) {
    static_assert(W % W_ == 0, "");
    const int rank = threadIdx.x / 32, column = (int)(threadIdx.x & 31) * W;
    T own[W];
#pragma unroll
    for (int n = 0; n < F; n++) {
#pragma unroll
      for (int u = 0; u < W; u++) shared_[rank * columns + u * 32 + (threadIdx.x & 31)] = c[n * W + u];
      __syncthreads();
      if (rank == n) {
#pragma unroll
        for (int u = 0; u < W; u++) {
          own[u] = shared_[u * 32 + (threadIdx.x & 31)];
#pragma unroll
          for (int r = 1; r < ranks; r++) own[u] += shared_[r * columns + u * 32 + (threadIdx.x & 31)];
        }
      }
      __syncthreads();
    }
    if (rank >= F) return;
#pragma unroll
    for (int j = 0; j < W; j += W_) {
      wx_group<T, W_> sums;
#pragma unroll
      for (int u = 0; u < W_; u++) sums.at[u] = own[j + u];
      give(rank, at_column + column + j, sums);
    }
  }
};
