/* Attention by groups of warps, after hopper.cuh and attention.cuh: what GPUs of compute capability 9.0 alone have.

   A block has 128 queries, 64 for each of two groups of four warps. One thread of a third group has the queries brought
   to shared memory, and keys and values to a ring each, N of them at a time, by tensor maps. While tensor cores add the
   products of the weights of some keys with their values, and make the scores of the next keys before that, the group
   takes the exponentials of these; weights stay in registers.

   Source: J. Shah and others, "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision", 2024,
   sections 3.1 and 3.2. */

/* D: columns of the values. DEPTH: places of the depth of queries and keys. Both in whole lines of 64; N in 16s. */
template <wx_kind KIND, class H, int D, int DEPTH, int N, int STAGES> struct wx_attention_groups {
  static constexpr int M = 128, line = 128, multiplying = M / 64 * 128, threads = multiplying + 128;
  static constexpr int queries = M * DEPTH * 2, keys = N * DEPTH * 2, values = N * D * 2; /* bytes */
  static constexpr int ring = queries + STAGES * (keys + values), mbarriers = 1 + 4 * STAGES;
  static constexpr int scored = N / 2, kept = D / 2, weights = N / 4, columns = D / 8;
  typedef wx_turn<STAGES> turn;
  static_assert(D % 64 == 0 && DEPTH % 64 == 0 && N % 16 == 0, "");

  /* mbarriers: of the queries; then of keys and of values, of which a stage is full or empty */
  static __device__ __forceinline__ uint32_t full(uint32_t bars, const turn &at, int what) {
    return bars + (1 + (what * 2) * STAGES + at.stage) * 8;
  }
  static __device__ __forceinline__ uint32_t empty(uint32_t bars, const turn &at, int what) {
    return bars + (1 + (what * 2 + 1) * STAGES + at.stage) * 8;
  }
  static __device__ __forceinline__ uint32_t keys_at(uint32_t ring, const turn &at) { return ring + queries + at.stage * keys; }
  static __device__ __forceinline__ uint32_t values_at(uint32_t ring, const turn &at) {
    return ring + queries + STAGES * keys + at.stage * values;
  }
  static __device__ __forceinline__ int row(int h) {
    return (int)threadIdx.x / 32 * 16 + (int)(threadIdx.x & 31) / 4 + h * 8;
  }
  static __device__ __forceinline__ int beside() { return (int)(threadIdx.x & 3) * 2; }
  static __device__ __forceinline__ uint32_t two(float low, float high) {
    return H::narrowed(low) | (uint32_t)H::narrowed(high) << 16;
  }

  /* By all threads, first of all. */
  static __device__ __forceinline__ void begun(uint32_t bars) {
    if (threadIdx.x == 0) {
      wx_mbarrier_init(bars, 1);
      for (int n = 0; n < 4 * STAGES; n++)
        wx_mbarrier_init(bars + (1 + n) * 8, n / STAGES % 2 ? multiplying / 32 : 1);
      wx_mbarrier_fence();
    }
    __syncthreads();
  }

  /* By one thread: brings the queries from `row` on, and keys and values from `first` up to `last`. The sides are called
     with a place in shared memory, an mbarrier, and the places along their two axes, the nearest first. */
  template <class Q, class Y, class V>
  static __device__ __forceinline__ void brought(uint32_t ring, uint32_t bars, const Q &query, const Y &key,
                                                 const V &value, int row, int first, int last) {
    wx_mbarrier_expect(bars, queries);
#pragma unroll
    for (int n = 0; n < DEPTH; n += 64) query(ring + n / 64 * M * line, bars, n, row);
    turn at;
#pragma unroll 1
    for (; first < last; first += N, at.next()) {
      wx_mbarrier_wait(empty(bars, at, 0), at.parity ^ 1);
      wx_mbarrier_expect(full(bars, at, 0), keys);
#pragma unroll
      for (int n = 0; n < DEPTH; n += 64) key(keys_at(ring, at) + n / 64 * N * line, full(bars, at, 0), n, first);
      wx_mbarrier_wait(empty(bars, at, 1), at.parity ^ 1);
      wx_mbarrier_expect(full(bars, at, 1), values);
#pragma unroll
      for (int n = 0; n < D; n += 64) value(values_at(ring, at) + n / 64 * N * line, full(bars, at, 1), n, first);
    }
  }

  /* By the groups that multiply. o: the sums of all keys from `first` up to `last`, whose scores are `score`. */
  template <class F, class S, class O, class U>
  static __device__ __forceinline__ void made(uint32_t ring, uint32_t bars, const F &score, S &s, O &o, U &u,
                                              wx_online<float> (&rows)[2], int at_row, int first, int last) {
    turn at, before; /* of keys; of values */
    float scale[2];
#pragma unroll
    for (int n = 0; n < kept; n++) o[n] = 0;
    rows[0].begin(), rows[1].begin();
    wx_mbarrier_wait(bars, 0);
    wx_mbarrier_wait(full(bars, at, 0), at.parity);
    wx_wgmma_fence();
    asked(ring, at, s);
    wx_wgmma_commit();
    wx_wgmma_wait<0>();
    wx_sums_stay(s);
    freed(empty(bars, at, 0));
    weighed(score, s, rows, scale, at_row, first);
    put(u, s);
#pragma unroll 1
    for (first += N; first < last; first += N, before.next()) {
      at.next();
      wx_mbarrier_wait(full(bars, before, 1), before.parity);
      wx_mbarrier_wait(full(bars, at, 0), at.parity); /* no loop between the products, or they would not overlap */
      wx_sums_stay(o), wx_factors_stay(u);
      wx_wgmma_fence();
      asked(ring, at, s);
      wx_wgmma_commit();
      added(ring, before, o, u);
      wx_wgmma_commit();
      wx_wgmma_wait<1>();
      wx_sums_stay(s);
      freed(empty(bars, at, 0));
      weighed(score, s, rows, scale, at_row, first); /* while the values are multiplied */
      wx_wgmma_wait<0>();
      wx_sums_stay(o), wx_factors_stay(u);
      freed(empty(bars, before, 1));
#pragma unroll
      for (int j = 0; j < columns; j++)
#pragma unroll
        for (int n = 0; n < 4; n++) o[j * 4 + n] *= scale[n / 2];
      put(u, s);
    }
    wx_mbarrier_wait(full(bars, before, 1), before.parity);
    wx_sums_stay(o), wx_factors_stay(u);
    wx_wgmma_fence();
    added(ring, before, o, u);
    wx_wgmma_commit();
    wx_wgmma_wait<0>();
    wx_sums_stay(o), wx_factors_stay(u);
  }
  static __device__ __forceinline__ void freed(uint32_t bar) {
    if ((threadIdx.x & 31) == 0) wx_mbarrier_arrive(bar);
  }

  /* s = queries * keys */
  template <class S> static __device__ __forceinline__ void asked(uint32_t ring, const turn &at, S &s) {
    const uint32_t a = ring + threadIdx.x / 128 * 64 * line, b = keys_at(ring, at);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
      const uint64_t x = wx_wgmma_matrix<true>(a + k / 4 * M * line + k % 4 * 32, 0);
      const uint64_t y = wx_wgmma_matrix<true>(b + k / 4 * N * line + k % 4 * 32, 0);
      if (k == 0) wx_wgmma<KIND, N, 0, 0, 0>(s, x, y);
      if (k > 0) wx_wgmma<KIND, N, 0, 0, 1>(s, x, y);
    }
  }
  /* o += weights * values */
  template <class O, class U> static __device__ __forceinline__ void added(uint32_t ring, const turn &at, O &o, U &u) {
#pragma unroll
    for (int k = 0; k < N / 16; k++)
      wx_wgmma_held<KIND, D, 1>(o, u, k * 4, wx_wgmma_matrix<false>(values_at(ring, at) + k * 16 * line, N * line));
  }

  /* Scores become weights; what the sums before are to be multiplied with. */
  template <class F, class S>
  static __device__ __forceinline__ void weighed(const F &score, S &s, wx_online<float> (&rows)[2], float (&scale)[2],
                                                 int at_row, int first) {
    constexpr float twos = 1.44269504f; /* log2(e) */
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float before = rows[h].top;
      float most = before, sum = 0;
#pragma unroll
      for (int n = 0; n < N / 4; n++) {
        const int k = n / 2 * 4 + h * 2 + n % 2;
        s[k] = score(at_row + row(h), first + n / 2 * 8 + beside() + n % 2, s[k]);
        most = wx_max::of<float>(most, s[k]);
      }
#pragma unroll
      for (int far = 1; far < 4; far *= 2) most = wx_max::of<float>(most, __shfl_xor_sync(0xffffffffu, most, far));
      rows[h].top = most;
      const float base = rows[h].base();
      scale[h] = wx_exp2((before - base) * twos);
#pragma unroll
      for (int n = 0; n < N / 4; n++) {
        const int k = n / 2 * 4 + h * 2 + n % 2;
        s[k] = wx_exp2((s[k] - base) * twos);
        sum += s[k];
      }
#pragma unroll
      for (int far = 1; far < 4; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
      rows[h].sum = rows[h].sum * scale[h] + sum;
    }
  }
  template <class U, class S> static __device__ __forceinline__ void put(U &u, S &s) {
#pragma unroll
    for (int n = 0; n < weights; n++) u[n] = two(s[n * 2], s[n * 2 + 1]);
  }

  /* Calls `give` for groups of W columns, with what is known of their row. */
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
