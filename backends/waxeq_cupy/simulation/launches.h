/* Launches, and what the text of kernels has other names for on a GPU. */
namespace wx {
template <class... A> struct Launched {
  void (*kernel)(A...);
  const Argument *arguments;
  template <int... I> struct Numbers {};
  template <int N, int... I> struct Upto : Upto<N - 1, N - 1, I...> {};
  template <int... I> struct Upto<0, I...> { typedef Numbers<I...> Of; };
  template <int... I> void call(Numbers<I...>) const { kernel(A(arguments[I])...); }
  static void run(const void *what) { ((const Launched *)what)->call(typename Upto<sizeof...(A)>::Of()); }
};

/* The last argument but for a flag is what is written; `item`: bytes of one of its elements. Whether all went well. */
template <class... A>
static int run(void (*kernel)(A...), const Argument *arguments, int result, int item, uint32_t blocks, uint32_t threads,
               uint64_t order, char *message, int size) {
  Machine &m = machine;
  Launched<A...> launched = {kernel, arguments};
  m.failure[0] = 0, m.threads = threads, m.blocks = {blocks, 1, 1}, m.current = nullptr;
  m.random = order * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
  m.body = Launched<A...>::run, m.what = &launched;
  const Argument &out = arguments[result];
  written = {out.base, out.low, out.high, item, nullptr};
  written.touched = (Touched *)calloc(out.high - out.low + 1, sizeof(Touched));
  uint32_t *turn = (uint32_t *)malloc(blocks * sizeof(uint32_t));
  arranged(turn, blocks, order);
  for (uint32_t b = 0; b < blocks && !m.failure[0]; b++) {
    m.block = {turn[b], 0, 0};
    run_block(order);
  }
  if (m.failure[0]) /* fibers that never ended keep no stacks */
    for (unsigned i = 0; i < m.threads; i++)
      if (m.fibers[i].stack) m.spare[m.spares++] = m.fibers[i].stack, m.fibers[i].stack = nullptr;
  free(written.touched), free(turn);
  written.touched = nullptr;
  snprintf(message, size, "%s", m.failure);
  return m.failure[0] == 0;
}

}  // namespace wx

#define threadIdx (wx::machine.current->place)
#define blockIdx (wx::machine.block)
#define gridDim (wx::machine.blocks)
#define __syncthreads() wx::wait(wx::AT_BLOCK, __LINE__)
#define __syncwarp(...) wx::met(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) wx::from_other(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) wx::from_before(__LINE__, __VA_ARGS__)
#define __shfl_sync(...) wx::from_lane(__LINE__, __VA_ARGS__)

#define wx_copies_here() wx::here()
#define wx_opaque(x) (x)

#define WX_KERNEL(...) static void
#define WX_BEHIND() /* launches do not overlap */
#define WX_IN(T) wx::Reader<T>
#define WX_REPLACED(T) wx::Reader<T>
#define WX_OUT(T) wx::Writer<T>
#define WX_REPLACING(T) wx::Writer<T>
#define WX_FLAG wx::Flag
#define WX_RAISE(flag) (*(flag).at = 1)
#define WX_SHARED(T, name, n) static wx::Shared<T, n> name
#define WX_KEPT(T, name, n) wx::Kept<T, n> name
#define WX_MAP const wx::Map
#define WX_RING(name, n) const uint32_t name = wx::ring(n)
#define WX_MBARRIERS(name, n) const uint32_t name = wx::mbarriers_of(n)
#define WX_SUMS(name, n) wx::Sums<n> name
#define WX_SUMS_OF(name, parts, n) wx::Sums<n> name[parts]
#define WX_FACTORS(name, n) wx::Held<n> name
#define wx_exp2 exp2f
#define wx_mbarrier_init wx::mbarrier_init
#define wx_mbarrier_fence wx::mbarrier_fence
#define wx_mbarrier_expect wx::mbarrier_arrive
#define wx_mbarrier_arrive(bar) wx::mbarrier_arrive(bar, 0)
#define wx_mbarrier_wait wx::mbarrier_wait
#define wx_map_prefetch(map) ((void)0)
#define wx_tma_load wx::brought
template <int N> static inline void wx_registers_less() {}
template <int N> static inline void wx_registers_more() {}
#define wx_wgmma_fence() wx::wgmma_fence(__LINE__)
#define wx_wgmma_commit() wx::wgmma_commit(__LINE__)
template <int N> static inline void wx_sums_stay(wx::Sums<N> &) {}
template <int N> static inline void wx_factors_stay(wx::Held<N> &) {}
template <int N> static inline void wx_wgmma_wait(int site = __builtin_LINE()) { wx::wgmma_wait(N, site); }

#define WX_RUNS(name)                                                                                                  \
  extern "C" int run_##name(const wx::Argument *a, int result, int item, uint32_t blocks, uint32_t threads,            \
                            uint64_t order, char *message, int size) {                                                 \
    return wx::run(&name, a, result, item, blocks, threads, order, message, size);                                     \
  }
