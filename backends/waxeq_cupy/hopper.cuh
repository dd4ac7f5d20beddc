/* Products of matrices by warp groups, after products.cuh: what GPUs of compute capability 9.0 alone have.

   A block makes tiles of M x N of the result, one after another. One of its threads has boxes of both sides brought to
   a ring of stages in shared memory by tensor maps (TMA), and groups of four warps multiply them there, 64 rows each,
   by wgmma, with sums of float32 in registers. Two mbarriers a stage say that it is full, and that it is empty again.

   Source: PTX ISA, sections "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (fragments, layouts
   in shared memory, matrix descriptors), "cp.async.bulk.tensor", "mbarrier", "setmaxnreg"; CUDA C++ Programming Guide,
   "Using the Tensor Memory Accelerator". */

enum wx_kind { WX_F16, WX_BF16, WX_TF32 }; /* what is multiplied */

#ifndef WX_SIMULATED
struct alignas(64) wx_map { uint64_t opaque[16]; }; /* CUtensorMap */
#define WX_MAP const __grid_constant__ wx_map
/* Bytes of shared memory from a multiple of 1,024 on, where the pattern of a swizzle of 128 bytes begins; its address.
   The launch gives 1,024 bytes more. */
#define WX_RING(name, n)                                                                                               \
  extern __shared__ uint8_t wx_dynamic[];                                                                              \
  const uint32_t name = ((uint32_t)__cvta_generic_to_shared(wx_dynamic) + 1023) & ~1023u
/* mbarriers: number i lies 8 * i bytes behind the address. */
#define WX_MBARRIERS(name, n)                                                                                          \
  __shared__ __align__(8) uint64_t wx_mbarriers[n];                                                                    \
  const uint32_t name = (uint32_t)__cvta_generic_to_shared(wx_mbarriers)
#define WX_SUMS(name, n) float name[n]       /* what wgmma adds to */
#define WX_SUMS_OF(name, parts, n) float name[parts][n]
#define WX_FACTORS(name, n) uint32_t name[n] /* what it multiplies, where that is in registers */

WX_FN void wx_mbarrier_init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
/* Makes mbarriers known to those who count bytes. */
WX_FN void wx_mbarrier_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
WX_FN void wx_mbarrier_expect(uint32_t bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
WX_FN void wx_mbarrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* Until the phase of this parity is over; that before the first counts as one of parity 1. */
WX_FN void wx_mbarrier_wait(uint32_t bar, uint32_t parity) {
  asm volatile("{\n.reg .pred over;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra again;\n}" ::"r"(bar), "r"(parity)
               : "memory");
}
WX_FN void wx_map_prefetch(const wx_map &map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

/* Has the box at these places brought to shared memory, zeros where it reaches outside; the mbarrier counts its bytes. */
#define WX_TMA(rank, places, ...)                                                                                      \
  asm volatile("cp.async.bulk.tensor." rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "              \
               "[%0], [%1, {" places "}], [%2];" ::"r"(to), "l"(&map), "r"(bar), __VA_ARGS__ : "memory")
WX_FN void wx_tma_load(uint32_t to, const wx_map &map, uint32_t bar, int x, int y) {
  WX_TMA("2", "%3, %4", "r"(x), "r"(y));
}
WX_FN void wx_tma_load(uint32_t to, const wx_map &map, uint32_t bar, int x, int y, int z) {
  WX_TMA("3", "%3, %4, %5", "r"(x), "r"(y), "r"(z));
}
WX_FN void wx_tma_load(uint32_t to, const wx_map &map, uint32_t bar, int x, int y, int z, int u) {
  WX_TMA("4", "%3, %4, %5, %6", "r"(x), "r"(y), "r"(z), "r"(u));
}
WX_FN void wx_tma_load(uint32_t to, const wx_map &map, uint32_t bar, int x, int y, int z, int u, int v) {
  WX_TMA("5", "%3, %4, %5, %6, %7", "r"(x), "r"(y), "r"(z), "r"(u), "r"(v));
}

/* Registers of each thread of a warp group from now on: what some give up, others may have. */
template <int N> WX_FN void wx_registers_less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> WX_FN void wx_registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

WX_FN void wx_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WX_FN void wx_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until all groups but the last N are done. */
template <int N> WX_FN void wx_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/* Keep the compiler from moving sums and factors past a fence or a wait, which do not name them. */
template <int N> WX_FN void wx_sums_stay(float (&c)[N]) {
#pragma unroll
  for (int n = 0; n < N; n++) asm volatile("" : "+f"(c[n])::"memory");
}
template <int N> WX_FN void wx_factors_stay(uint32_t (&u)[N]) {
#pragma unroll
  for (int n = 0; n < N; n++) asm volatile("" : "+r"(u[n])::"memory");
}
/* 2^x, to two units in the last place. */
WX_FN float wx_exp2(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

#define WX_4(c, n) "+f"(c[n]), "+f"(c[n + 1]), "+f"(c[n + 2]), "+f"(c[n + 3])
#define WX_16(c, n) WX_4(c, n), WX_4(c, n + 4), WX_4(c, n + 8), WX_4(c, n + 12)
#define WX_32(c, n) WX_16(c, n), WX_16(c, n + 16)
#define WX_64(c, n) WX_32(c, n), WX_32(c, n + 32)
#define WX_128(c, n) WX_64(c, n), WX_64(c, n + 64)
#define WX_PLACES_32                                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,"  \
  "%31"
#define WX_PLACES_64                                                                                                   \
  WX_PLACES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"  \
               "%57,%58,%59,%60,%61,%62,%63"
#define WX_PLACES_128                                                                                                  \
  WX_PLACES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,"  \
               "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"   \
               "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
/* c += a * b, or (ADDED 0) c = a * b, where descriptors say how a and b lie: of 16 bits, each along the depth or (1) across
   it; or of tf32. HELD: a is in registers, as `wx_mma` takes it. */
#define WX_WGMMA(n, kind, sums, places, a, b, added, x, y)                                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." kind "." kind " {" places "}, " a ", " b ", " added    \
               ", 1, 1, " x ", " y ";" : sums : "l"(left), "l"(right), "n"(ADDED), "n"(LEFT_ACROSS), "n"(RIGHT_ACROSS))
#define WX_WGMMA_TF32(n, sums, places, a, b, added)                                                                    \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k8.f32.tf32.tf32 {" places "}, " a ", " b ", " added ", 1, 1;"    \
               : sums : "l"(left), "l"(right), "n"(ADDED))
#define WX_WGMMA_HELD(n, kind, sums, places, a, b, y)                                                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." kind "." kind " {" places "}, {" a "}, " b             \
               ", 1, 1, 1, " y ";" : sums                                                                              \
               : "r"(u[k]), "r"(u[k + 1]), "r"(u[k + 2]), "r"(u[k + 3]), "l"(right), "n"(RIGHT_ACROSS))
#define WX_WGMMA_KINDS(n, sums, a, b, added, x, y)                                                             \
  if constexpr (KIND == WX_F16) WX_WGMMA(n, "f16", WX_##sums(c, 0), WX_PLACES_##sums, a, b, added, x, y);                \
  if constexpr (KIND == WX_BF16) WX_WGMMA(n, "bf16", WX_##sums(c, 0), WX_PLACES_##sums, a, b, added, x, y);               \
  if constexpr (KIND == WX_TF32) WX_WGMMA_TF32(n, WX_##sums(c, 0), WX_PLACES_##sums, a, b, added)
#define WX_WGMMA_HELD_KINDS(n, sums, a, b, y)                                                                          \
  if constexpr (KIND == WX_F16) WX_WGMMA_HELD(n, "f16", WX_##sums(c, 0), WX_PLACES_##sums, a, b, y);                     \
  if constexpr (KIND == WX_BF16) WX_WGMMA_HELD(n, "bf16", WX_##sums(c, 0), WX_PLACES_##sums, a, b, y)

/* c += left * right by the four warps of a group, 64 x N. A thread has of the sums what `wx_mma` gives it: c[4 * j + i]
   is number i of the 16 x 8 of its warp and columns 8 * j. */
template <wx_kind KIND, int N, int LEFT_ACROSS, int RIGHT_ACROSS, int ADDED = 1, class C>
WX_FN void wx_wgmma(C &c, uint64_t left, uint64_t right) {
  static_assert(N == 64 || N == 128 || N == 256, "");
  if constexpr (N == 64) { WX_WGMMA_KINDS("64", 32, "%32", "%33", "%34", "%35", "%36"); }
  if constexpr (N == 128) { WX_WGMMA_KINDS("128", 64, "%64", "%65", "%66", "%67", "%68"); }
  if constexpr (N == 256) { WX_WGMMA_KINDS("256", 128, "%128", "%129", "%130", "%131", "%132"); }
}
/* The same with 64 x 16 of the left side in registers, from number k on. */
template <wx_kind KIND, int N, int RIGHT_ACROSS, class C, class U>
WX_FN void wx_wgmma_held(C &c, U &u, int k, uint64_t right) {
  static_assert((N == 64 || N == 128) && KIND != WX_TF32, "");
  if constexpr (N == 64) { WX_WGMMA_HELD_KINDS("64", 32, "%32, %33, %34, %35", "%36", "%37"); }
  if constexpr (N == 128) { WX_WGMMA_HELD_KINDS("128", 64, "%64, %65, %66, %67", "%68", "%69"); }
}
#else
template <wx_kind KIND> static float wx_element(uint32_t bits) {
  if (KIND == WX_TF32) return __int_as_float((int)(bits & ~0x1fffu));
  return KIND == WX_F16 ? wx_widened_f16((uint16_t)bits) : wx_widened_bf16((uint16_t)bits);
}
template <wx_kind KIND, int N, int LEFT_ACROSS, int RIGHT_ACROSS, int ADDED = 1, class C>
static inline void wx_wgmma(C &c, uint64_t left, uint64_t right, int site = __builtin_LINE()) {
  wx::group_multiplied<KIND == WX_TF32 ? 4 : 2, N, LEFT_ACROSS, RIGHT_ACROSS, ADDED>(c, left, right, site, wx_element<KIND>);
}
template <wx_kind KIND, int N, int RIGHT_ACROSS, class C, class U>
static inline void wx_wgmma_held(C &c, U &u, int k, uint64_t right, int site = __builtin_LINE()) {
  wx::group_multiplied_held<N, RIGHT_ACROSS>(c, u, k, right, site, wx_element<KIND>);
}
#endif

/* How a matrix lies in shared memory, for wgmma: lines of 128 bytes from a multiple of 1,024 on, groups of 16 bytes
   swizzled among eight lines. Lines are along the depth, eight rows in 1,024 bytes; or across it, 64 rows for each place of
   the depth, the next 64 rows `block` bytes further on. */
template <bool ALONG> WX_FN uint64_t wx_wgmma_matrix(uint32_t at, int block) {
  const uint64_t leading = ALONG ? 1 : block >> 4, stride = 1024 >> 4, swizzle = 1;
  return (uint64_t)((at & 0x3ffff) >> 4) | leading << 16 | stride << 32 | swizzle << 62;
}

/* Where a ring is: its stage, and the parity of the phase in which that is filled. */
template <int STAGES> struct wx_turn {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(uint32_t stages) {
    const uint32_t to = stage + stages;
    stage = to % STAGES, parity ^= to / STAGES & 1;
  }
};

/* ALONG: elements lie side by side along the depth. PING_PONG: each of two groups has every other tile for itself, so
   that one multiplies while the other one gives away what it has; elsewhere all groups share each tile. */
template <wx_kind KIND, int M, int N, int STAGES, bool LEFT_ALONG, bool RIGHT_ALONG, bool PING_PONG = false>
struct wx_warpgroups {
  static constexpr int line = 128, depth = line / (KIND == WX_TF32 ? 4 : 2), step = 32; /* bytes of 8 or 16 deep */
  static constexpr int box = 64 * line; /* 64 rows of either side */
  static constexpr int left = M * line, right = N * line, stage = left + right, ring = STAGES * stage;
  static constexpr int multiplying = M / 64 * 128, threads = multiplying + 128, stages = STAGES;
  static constexpr int sharing = PING_PONG ? 2 : 1, parts = PING_PONG ? M / 64 : 1, kept = N / 2; /* sums of 64 rows */
  static constexpr int mbarriers = 2 * STAGES + (PING_PONG ? 2 : 0); /* full, empty, whose turn it is */
  typedef wx_warps<M, 64, 16, 64> part; /* how the sums of 64 columns lie */
  static constexpr int turned = part::turned;
  typedef wx_turn<STAGES> turn;
  static_assert(!PING_PONG || multiplying == 256, "two groups");
  static_assert(KIND != WX_TF32 || (LEFT_ALONG && RIGHT_ALONG), "tf32 is multiplied along the depth only");

  static __device__ __forceinline__ uint32_t full(uint32_t bars, const turn &at) { return bars + at.stage * 8; }
  static __device__ __forceinline__ uint32_t empty(uint32_t bars, const turn &at) { return bars + (STAGES + at.stage) * 8; }

  static __device__ __forceinline__ int group() { return (int)threadIdx.x / 128; }
  /* The group whose tiles come after those of the one before, where tiles are not shared. */
  static __device__ __forceinline__ int later() { return PING_PONG ? group() : 0; }
  static __device__ __forceinline__ uint32_t turn_of(uint32_t bars, int who) { return bars + (2 * STAGES + who) * 8; }

  /* By all threads, first of all. A stage is full when its bytes are there, empty when each warp is done with it. */
  static __device__ __forceinline__ void begun(uint32_t bars) {
    if (threadIdx.x == 0) {
      for (int n = 0; n < STAGES; n++)
        wx_mbarrier_init(bars + n * 8, 1), wx_mbarrier_init(bars + (STAGES + n) * 8, multiplying / sharing / 32);
      for (int n = 2 * STAGES; n < mbarriers; n++) wx_mbarrier_init(bars + n * 8, 4);
      wx_mbarrier_fence();
    }
    __syncthreads();
  }

  /* By one thread: brings the sides of a tile at a row and a column, so many stages of the depth from `deep` on. `l` and
     `r` are called with a place in shared memory, an mbarrier, and the places along the two axes of a side, the nearest
     first. */
  template <class L, class R>
  static __device__ __forceinline__ void brought(uint32_t ring, uint32_t bars, turn &at, const L &l, const R &r, int row,
                                                 int column, int deep, int steps) {
#pragma unroll 1
    for (int n = 0; n < steps; n++, at.next()) {
      wx_mbarrier_wait(empty(bars, at), at.parity ^ 1);
      wx_mbarrier_expect(full(bars, at), stage);
      sided<LEFT_ALONG, M>(l, ring + at.stage * stage, full(bars, at), row, deep + n * depth);
      sided<RIGHT_ALONG, N>(r, ring + at.stage * stage + left, full(bars, at), column, deep + n * depth);
    }
  }
  template <bool ALONG, int ROWS, class S>
  static __device__ __forceinline__ void sided(const S &side, uint32_t to, uint32_t bar, int row, int deep) {
    if constexpr (ALONG) {
      side(to, bar, deep, row);
    } else {
#pragma unroll
      for (int n = 0; n < ROWS; n += 64) side(to + n * line, bar, row + n, deep);
    }
  }

  /* By the groups that multiply, before a tile, the one with this number of those that a group has: where tiles are not
     shared, until the other one has all stages of the tile before, so that both take them in the order in which they
     are brought. */
  static __device__ __forceinline__ void in_order(uint32_t bars, turn &at, int number, int steps) {
    if constexpr (PING_PONG) {
      if (number || group()) wx_mbarrier_wait(turn_of(bars, group()), (number - !group()) & 1), at.skip(steps);
    }
  }

  /* By the groups that multiply: c becomes the sums of a tile over so many stages of the depth. A stage is given back
     when the one after it is on its way. */
  template <class C>
  static __device__ __forceinline__ void multiplied(uint32_t ring, uint32_t bars, turn &at, C &c, int steps) {
#pragma unroll
    for (int i = 0; i < parts; i++) {
#pragma unroll
      for (int n = 0; n < kept; n++) c[i][n] = 0;
      wx_sums_stay(c[i]);
    }
    turn last = at;
#pragma unroll 1
    for (int n = 0; n < steps; n++) {
      wx_mbarrier_wait(full(bars, at), at.parity);
      const uint32_t a = ring + at.stage * stage + (PING_PONG ? 0 : group() * box), b = ring + at.stage * stage + left;
      wx_wgmma_fence();
#pragma unroll
      for (int k = 0; k < line / step; k++) {
        const uint64_t y = wx_wgmma_matrix<RIGHT_ALONG>(b + k * (RIGHT_ALONG ? step : 16 * line), box);
#pragma unroll
        for (int i = 0; i < parts; i++) {
          const uint64_t x = wx_wgmma_matrix<LEFT_ALONG>(a + i * box + k * (LEFT_ALONG ? step : 16 * line), box);
          wx_wgmma<KIND, N, !LEFT_ALONG, !RIGHT_ALONG>(c[i], x, y);
        }
      }
      wx_wgmma_commit();
      if (n) {
        wx_wgmma_wait<1>();
        freed(empty(bars, last));
      }
      last = at;
      at.next();
    }
    if constexpr (PING_PONG) freed(turn_of(bars, 1 - group()));
    wx_wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < parts; i++) wx_sums_stay(c[i]);
    freed(empty(bars, last));
  }
  static __device__ __forceinline__ void freed(uint32_t bar) {
    if ((threadIdx.x & 31) == 0) wx_mbarrier_arrive(bar);
  }

  /* Calls `give` for groups of W columns with their sums. */
  template <int W, class C, class S, class F>
  static __device__ __forceinline__ void given(C &c, S &shared, int at_row, int at_column, const F &give) {
#pragma unroll
    for (int i = 0; i < parts; i++)
#pragma unroll
      for (int n = 0; n < N; n += 64)
        part::template given<W>(c[i], shared, at_row + (PING_PONG ? i - group() : 0) * 64, at_column + n, give, n / 2);
  }
};
