/* Attention by blocks of keys, after products.cuh: no matrix of scores ever lies in memory.

   A block has M rows (queries). For N keys at a time it makes their scores, of which a kernel says what becomes (`score`:
   scaled, masked), takes their exponentials against the largest score so far, and adds those up, and their products with
   the values. When a larger score comes, what was added up before is scaled down to it. A row without any key that counts
   has no largest score, and becomes NaN as 0 / 0 does. Blocks take the keys from `first` up to `keys`; where those are
   not all, wx_joined makes one of what comes of the pieces. */

WX_FN float wx_exponential(float x) { return expf(x); }
WX_FN double wx_exponential(double x) { return exp(x); }
template <class T> WX_FN T wx_lowest() { return -(T)WX_INF_F32; }

/* The largest score of a row so far, and the sum of exponentials. */
template <class T> struct wx_online {
  T top, sum;
  __device__ __forceinline__ void begin() { top = wx_lowest<T>(), sum = 0; }
  /* Takes notice of the largest of some more scores. What to multiply with what was added up before. */
  __device__ __forceinline__ T raised(T most) {
    const T before = top;
    top = wx_max::of<T>(top, most);
    const T scale = wx_exponential(before - base());
    sum *= scale;
    return scale;
  }
  __device__ __forceinline__ T base() const { return top == wx_lowest<T>() ? (T)0 : top; }
  __device__ __forceinline__ T of(T score) const { return wx_exponential(score - base()); }
  __device__ __forceinline__ T whole() const { return top == wx_lowest<T>() ? (T)WX_NAN_F32 : sum; }
};

/* By threads of their own, in T. Those that share a row lie side by side in a warp. D: columns of the values. */
template <class T, int M, int N, int D, int K> struct wx_attention {
  static constexpr int TM = 4, TN = 4, side = N / TN, TD = D / side, G = 16 / sizeof(T);
  typedef wx_tile<T, M, N, K, TM, TN> scores;
  typedef wx_tile<T, M, D, K, TM, TD> result;
  typedef wx_lines<T, M, N> weights;
  typedef wx_lines<T, D, K> values;
  static constexpr int threads = scores::threads, left = 2 * scores::left::size, right = 2 * scores::right::size;
  static constexpr int third = 2 * values::size + weights::size, kept = result::kept, scored = scores::kept;
  static_assert(threads == result::threads && side <= 32, "");

  template <class Q, class Y, class V, class F, class A, class B, class C, class S, class O>
  static __device__ __forceinline__ void made(const Q &query, const Y &key, const V &value, const F &score, A &a, B &b,
                                              C &c, S &s, O &o, wx_online<T> (&rows)[TM], int row, int depth, int first,
                                              int keys) {
    wx_brought<T, values, V, D, K, threads> brought;
    const wx_there there;
    constexpr int p = 2 * values::size; /* where weights lie */
#pragma unroll
    for (int n = 0; n < kept; n++) o[n] = 0;
#pragma unroll
    for (int i = 0; i < TM; i++) rows[i].begin();
    for (; first < keys; first += N) {
      scores::multiplied(query, key, a, b, s, row, first, 0, depth);
#pragma unroll
      for (int i = 0; i < TM; i++) {
        T most = wx_lowest<T>(), sum = 0;
#pragma unroll
        for (int j = 0; j < TN; j++) {
          s[i * TN + j] = score(row + scores::row(i), first + scores::column(j), s[i * TN + j]);
          most = wx_max::of<T>(most, s[i * TN + j]);
        }
#pragma unroll
        for (int far = 1; far < side; far *= 2) most = wx_max::of<T>(most, __shfl_xor_sync(0xffffffffu, most, far));
        const T scale = rows[i].raised(most);
#pragma unroll
        for (int j = 0; j < TN; j++) {
          const T one = rows[i].of(s[i * TN + j]);
          c[p + weights::at(scores::row(i), scores::column(j))] = one;
          sum += one;
        }
#pragma unroll
        for (int far = 1; far < side; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        rows[i].sum += sum;
#pragma unroll
        for (int j = 0; j < TD; j++) o[i * TD + j] *= scale;
      }
      /* the barrier before the first tile of values orders the weights too */
      wx_in_turn(there, brought, query, value, c, c, 0, values::size, 0, 0, K, first, first + N, [&](int, int q, int deep) {
#pragma unroll
        for (int k = 0; k < K; k++) {
          wx_group<T, G> u[TM / G], v[TD / G];
#pragma unroll
          for (int i = 0; i < TM / G; i++) u[i] = wx_taken<G>(c, p + weights::at(result::row(i * G), deep - first + k));
#pragma unroll
          for (int j = 0; j < TD / G; j++) v[j] = wx_taken<G>(c, q + values::at(result::column(j * G), k));
#pragma unroll
          for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TD; j++) o[i * TD + j] += u[i / G].at[i % G] * v[j / G].at[j % G];
        }
      });
    }
  }

  /* Calls `give` for groups of W columns, with what is known of their row. */
  template <int W, class O, class F>
  static __device__ __forceinline__ void given(O &o, const wx_online<T> (&rows)[TM], int row, const F &give) {
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TD; j += W) {
        wx_group<T, W> sums;
#pragma unroll
        for (int u = 0; u < W; u++) sums.at[u] = o[i * TD + j + u];
        give(row + result::row(i), result::column(j), sums, rows[i]);
      }
  }
};

/* By tensor cores: a warp has 16 rows, and of every 64 keys the weights in registers, as its next product takes them.
   DEPTH: places of the depth in whole tiles, where all queries of the block are in shared memory from first to last; 0
   where they have no room there, and are brought with every 64 keys. */
template <class H, int D, int DEPTH, bool QUERY_ALONG, bool KEY_ALONG, bool VALUE_ALONG> struct wx_attention_16 {
  static constexpr int M = 64, N = 64, K = 32, blocks = N / 8, columns = D / 8;
  typedef wx_tile_16<H, M, N, K, 16, N, QUERY_ALONG, KEY_ALONG> scores;
  typedef wx_matrix<D, N, VALUE_ALONG> values;
  static constexpr int threads = scores::threads, right = 2 * scores::right::size;
  static constexpr int left = (DEPTH ? DEPTH / K : 2) * scores::left::size;
  static constexpr int third = values::size, kept = columns * 4, scored = scores::kept;
  static_assert(DEPTH % K == 0, "");

  static __device__ __forceinline__ int row(int h) { return scores::row() + (int)(threadIdx.x & 31) / 4 + h * 8; }
  static __device__ __forceinline__ int beside() { return (int)(threadIdx.x & 3) * 2; }
  static __device__ __forceinline__ uint32_t two(float low, float high) {
    return H::narrowed(low) | (uint32_t)H::narrowed(high) << 16;
  }

  template <class Q, class Y, class V, class F, class A, class B, class C, class S, class O>
  static __device__ __forceinline__ void made(const Q &query, const Y &key, const V &value, const F &score, A &a, B &b,
                                              C &c, S &s, O &o, wx_online<float> (&rows)[2], int at_row, int depth,
                                              int first, int keys) {
    wx_brought<uint16_t, values, V, D, N, threads> brought;
#pragma unroll
    for (int n = 0; n < kept; n++) o[n] = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) rows[h].begin();
    if constexpr (DEPTH > 0) { /* the barrier before the first tile of keys is theirs too */
      wx_brought<uint16_t, typename scores::left, Q, M, K, threads> asked;
#pragma unroll 1
      for (int k = 0; k < DEPTH; k += K) {
        asked.ask(query, a, k / K * scores::left::size, at_row, k);
        asked.put(a, k / K * scores::left::size);
      }
    }
    for (; first < keys; first += N) {
      if constexpr (V::copied) brought.ask(value, c, 0, 0, first); /* they come while scores are made */
      if constexpr (DEPTH > 0) {
        scores::multiplied(key, a, b, s, first, depth);
      } else {
        scores::multiplied(query, key, a, b, s, at_row, first, 0, depth);
      }
      if constexpr (!V::copied) {
        brought.ask(value, c, 0, 0, first), brought.put(c, 0);
        __syncthreads();
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float most = wx_lowest<float>();
#pragma unroll
        for (int n = 0; n < blocks * 2; n++) {
          const int at = n / 2 * 4 + h * 2 + n % 2;
          s[at] = score(at_row + row(h), first + n / 2 * 8 + beside() + n % 2, s[at]);
          most = wx_max::of<float>(most, s[at]);
        }
#pragma unroll
        for (int far = 1; far < 4; far *= 2)
          most = wx_max::of<float>(most, __shfl_xor_sync(0xffffffffu, most, far));
        const float scale = rows[h].raised(most);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < blocks * 2; n++) {
          const int at = n / 2 * 4 + h * 2 + n % 2;
          s[at] = rows[h].of(s[at]);
          sum += s[at];
        }
#pragma unroll
        for (int far = 1; far < 4; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        rows[h].sum += sum;
#pragma unroll
        for (int j = 0; j < columns; j++) o[j * 4 + h * 2] *= scale, o[j * 4 + h * 2 + 1] *= scale;
      }
      added(c, s, o);
      __syncthreads();
    }
  }

  /* o += weights * values */
  template <class C, class S, class O> static __device__ __forceinline__ void added(C &c, S &s, O &o) {
    const int lane = threadIdx.x & 31, low = lane & 7, half = lane >> 3 & 1, other = lane >> 4;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
      uint32_t u[4], w[4];
#pragma unroll
      for (int n = 0; n < 4; n++) u[n] = two(s[k * 8 + n * 2], s[k * 8 + n * 2 + 1]);
#pragma unroll
      for (int j = 0; j < columns; j += 2) {
        const int n = j * 8 + other * 8, d = k * 16 + half * 8;
        wx_fragments<!VALUE_ALONG>(w, c, values::at(n + (VALUE_ALONG ? low : 0), d + (VALUE_ALONG ? 0 : low)));
        const uint32_t v[2][2] = {{w[0], w[1]}, {w[2], w[3]}};
        wx_mma<H>(o, j * 4, u, v[0]), wx_mma<H>(o, j * 4 + 4, u, v[1]);
      }
    }
  }

  template <int W, class O, class F>
  static __device__ __forceinline__ void given(O &o, const wx_online<float> (&rows)[2], int at_row, const F &give) {
    static_assert(W <= 2, "");
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int j = 0; j < columns; j++)
#pragma unroll
        for (int n = 0; n < 2; n += W) {
          wx_group<float, W> sums;
#pragma unroll
          for (int u = 0; u < W; u++) sums.at[u] = o[j * 4 + h * 2 + n + u];
          give(at_row + row(h), j * 8 + beside() + n, sums, rows[h]);
        }
  }
};

/* A few rows (F, at most one for each warp), without tensor cores: every key and every value is read once, in groups of
   W and V, 16 bytes where they lie so. Of N keys at a time, teams of RANKS threads make the products with all rows, a
   warp for each row takes their exponentials, and threads side by side along D columns add up the values. */
template <class T, int F, int N, int W, int V, int RANKS, int D> struct wx_attention_few {
  static constexpr int threads = 256, teams = threads / RANKS, each = N / teams;
  static constexpr int most = sizeof(T) > 4 || F * W > 32 ? 2 : 4;
  static constexpr int C = each < most ? each : most; /* keys of a team at once, as many as registers hold */
  static constexpr int across = D / V, parts = threads / across, kept = F * V;
  static constexpr int weights = F * N, scales = 2 * F * N, ends = threads * V; /* places of shared memory */
  static constexpr int shared = scales + F > ends + 2 ? scales + F : ends + 2;
  static_assert(F <= threads / 32 && each % C == 0 && across <= threads && N % 32 == 0, "");

  static __device__ __forceinline__ int column() { return (int)threadIdx.x % across * V; }
  static __device__ __forceinline__ int part() { return (int)threadIdx.x / across; }

  template <class Q, class Y, class X, class G, class S, class O>
  static __device__ __forceinline__ void made(const Q &query, const Y &key, const X &value, const G &score, S &s, O &o,
                                              wx_online<T> &row, int depth, int first, int keys) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < kept; n++) o[n] = 0;
    row.begin();
    for (; first < keys; first += N) {
      multiplied(query, key, s, depth, first);
      __syncthreads();
      if (warp < F) {
        T own[N / 32], most = wx_lowest<T>(), sum = 0;
#pragma unroll
        for (int n = 0; n < N / 32; n++) {
          own[n] = score(warp, first + n * 32 + lane, s[warp * N + n * 32 + lane]);
          most = wx_max::of<T>(most, own[n]);
        }
#pragma unroll
        for (int far = 1; far < 32; far *= 2) most = wx_max::of<T>(most, __shfl_xor_sync(0xffffffffu, most, far));
        const T scale = row.raised(most);
#pragma unroll
        for (int n = 0; n < N / 32; n++) {
          own[n] = row.of(own[n]);
          s[weights + warp * N + n * 32 + lane] = own[n];
          sum += own[n];
        }
#pragma unroll
        for (int far = 1; far < 32; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        row.sum += sum;
        if (lane == 0) s[scales + warp] = scale;
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < F; i++) {
        const T scale = s[scales + i];
#pragma unroll
        for (int u = 0; u < V; u++) o[i * V + u] *= scale;
      }
#pragma unroll 4
      for (int n = part(); n < N; n += parts) {
        const wx_group<T, V> y = value.take(column(), first + n);
#pragma unroll
        for (int i = 0; i < F; i++) {
          const T weight = s[weights + i * N + n];
#pragma unroll
          for (int u = 0; u < V; u++) o[i * V + u] += weight * y.at[u];
        }
      }
    }
  }

  /* The products of all rows with N keys. */
  template <class Q, class Y, class S>
  static __device__ __forceinline__ void multiplied(const Q &query, const Y &key, S &s, int depth, int first) {
    const int rank = threadIdx.x % RANKS, team = threadIdx.x / RANKS;
#pragma unroll 1
    for (int j = team; j < N; j += C * teams) {
      T c[F * C];
#pragma unroll
      for (int n = 0; n < F * C; n++) c[n] = 0;
      for (int k = rank * W; k < depth; k += RANKS * W) {
        wx_group<T, W> y[C];
#pragma unroll
        for (int n = 0; n < C; n++) y[n] = key.take(first + j + n * teams, k);
#pragma unroll
        for (int i = 0; i < F; i++) {
          const wx_group<T, W> x = query.take(i, k);
#pragma unroll
          for (int n = 0; n < C; n++)
#pragma unroll
            for (int u = 0; u < W; u++) c[i * C + n] += x.at[u] * y[n].at[u];
        }
      }
#pragma unroll
      for (int n = 0; n < F * C; n++) {
#pragma unroll
        for (int far = 1; far < RANKS; far *= 2) c[n] += __shfl_xor_sync(0xffffffffu, c[n], far);
        if (rank == 0) s[n / C * N + j + n % C * teams] = c[n];
      }
    }
  }

  template <int W_, class S, class O, class G>
  static __device__ __forceinline__ void given(S &s, O &o, const wx_online<T> &own, const G &give) {
    static_assert(W_ == 1, "");
#pragma unroll
    for (int i = 0; i < F; i++) {
      __syncthreads();
#pragma unroll
      for (int u = 0; u < V; u++) s[part() * D + column() + u] = o[i * V + u];
      if (threadIdx.x == i * 32) s[ends] = own.top, s[ends + 1] = own.sum;
      __syncthreads();
      for (int n = threadIdx.x; n < D; n += threads) {
        wx_group<T, 1> sums;
        sums.at[0] = s[n];
#pragma unroll
        for (int r = 1; r < parts; r++) sums.at[0] += s[r * D + n];
        wx_online<T> row;
        row.top = s[ends], row.sum = s[ends + 1];
        give(i, n, sums, row);
      }
    }
  }
};

/* Pieces of the keys of one row made one: of each piece there is a LINE with the sums of its columns, and from ENDS on
   its largest score and its sum of exponentials. ACROSS threads have groups of W columns, and as many parts of the block
   as there are share out the pieces. */
template <class T, int W, int ACROSS, int LINE, int ENDS> struct wx_joined {
  static constexpr int threads = 256, parts = threads / ACROSS, line = ACROSS * W + 2, shared = parts * line;

  template <class X, class S, class G>
  static __device__ __forceinline__ void made(const X &x, S &s, int number, int pieces, int columns, const G &give) {
    const int own = (int)threadIdx.x % ACROSS * W, part = threadIdx.x / ACROSS;
    for (int from = 0; from < columns; from += ACROSS * W) {
      const int column = from + own;
      wx_online<T> row;
      wx_group<T, W> sums = {};
      row.begin();
#pragma unroll 4
      for (int n = part; n < pieces; n += parts) {
        const int at = (number * pieces + n) * LINE;
        wx_group<T, W> more = {};
        if (column < columns) more = wx_taken<W>(x, at + column);
        added(row, sums, x[at + ENDS], x[at + ENDS + 1], more);
      }
#pragma unroll
      for (int u = 0; u < W; u++) s[part * line + own + u] = sums.at[u];
      if (own == 0) s[part * line + line - 2] = row.top, s[part * line + line - 1] = row.sum;
      __syncthreads();
      if (part == 0) {
        for (int r = 1; r < parts; r++) {
          wx_group<T, W> more;
#pragma unroll
          for (int u = 0; u < W; u++) more.at[u] = s[r * line + own + u];
          added(row, sums, s[r * line + line - 2], s[r * line + line - 1], more);
        }
        if (column < columns) give(column, sums, row);
      }
      __syncthreads();
    }
  }

  static __device__ __forceinline__ void added(wx_online<T> &row, wx_group<T, W> &sums, T top, T sum,
                                               const wx_group<T, W> &more) {
    const T scale = row.raised(top), weight = row.of(top);
    row.sum += weight * sum;
#pragma unroll
    for (int u = 0; u < W; u++) sums.at[u] = sums.at[u] * scale + more.at[u] * weight;
  }
};
