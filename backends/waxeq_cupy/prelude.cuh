/* What every generated kernel of CUDA C++ begins with, after functions.h.

   The text of a kernel is one for the GPU and for the simulated device, which runs it on the CPU with every access
   checked: memory is only touched through the names below. */
#ifdef __CUDACC_RTC__ /* NVRTC has no headers */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT64_MAX 9223372036854775807ll
#define INT64_MIN (-INT64_MAX - 1)
#define UINT64_MAX 18446744073709551615ull
#endif

#define WX_MAX_F32 3.40282347e+38f
#define WX_MAX_F64 1.7976931348623157e+308
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_ceilf ceilf
#define __builtin_ceil ceil
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_rintf rintf
#define __builtin_rint rint
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_copysignf copysignf
#define __builtin_copysign copysign

/* A position, counted from either end, and whether it lies outside an axis of n > 0 elements. Macros: the type of i may
   be unsigned. Threads have conditions at no cost, unlike the vectors of C, whose prelude has none here. */
#define wx_wrapped(i, n) ((i) < 0 ? (int64_t)(i) + (n) : (int64_t)(i))
#define wx_outside(i, n) ((uint64_t)wx_wrapped(i, n) >= (uint64_t)(n))
#define wx_within(i, n) (wx_outside(i, n) ? 0 : wx_wrapped(i, n))

/* W elements that lie side by side, moved 16 bytes at a time. */
template <class T, int W> struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) wx_group { T at[W]; };

#ifndef WX_SIMULATED
#define WX_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) /* threads, blocks at one time */
/* By all threads, first of all: a launch may begin before the one in front of it has ended (prepared.py), and the one behind
   it may from now on. Waits until that in front, which has waited too, is done and all it wrote is seen. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WX_BEHIND() asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory")
#else
#define WX_BEHIND()
#endif
#define WX_IN(T) const T *__restrict__      /* what is read */
#define WX_REPLACED(T) const T *            /* what is read, and the result may lie in its place */
#define WX_OUT(T) T *__restrict__           /* what is written */
#define WX_REPLACING(T) T *
#define WX_FLAG int *
#define WX_RAISE(flag) (*(flag) = 1)
#define WX_SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define WX_KEPT(T, name, n) T name[n]       /* registers, if every index is known when it is compiled */

template <int W, class T> WX_FN wx_group<T, W> wx_taken(const T *from, int64_t at) {
  return *reinterpret_cast<const wx_group<T, W> *>(from + at);
}
template <int W, class T> WX_FN void wx_given(T *to, int64_t at, const wx_group<T, W> &group) {
  *reinterpret_cast<wx_group<T, W> *>(to + at) = group;
}

/* 1 / x to a unit in the last place, where neither x nor that is subnormal. */
WX_FN float wx_reciprocal(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

/* A number that the compiler does not know: of a loop with one turn it would make none, and read what comes after it
   before it, into registers that the loop needs. */
WX_FN int wx_opaque(int x) { int y; asm volatile("mov.s32 %0, %1;" : "=r"(y) : "r"(x)); return y; }

/* The machine's own conversions: one instruction where functions.h has eight. */
WX_FN float wx_machine_widened_f16(uint16_t h) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
WX_FN uint16_t wx_machine_narrowed_f16(float x) { uint16_t h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
WX_FN uint16_t wx_machine_narrowed_bf16(float x) { uint16_t h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
#define wx_widened_f16 wx_machine_widened_f16
#define wx_narrowed_f16 wx_machine_narrowed_f16
#define wx_narrowed_bf16 wx_machine_narrowed_bf16
WX_FN float wx_machine_rounded_f16(float x) { return wx_widened_f16(wx_narrowed_f16(x)); }
WX_FN float wx_machine_rounded_bf16(float x) { return wx_widened_bf16(wx_narrowed_bf16(x)); }
#define wx_rounded_f16 wx_machine_rounded_f16
#define wx_rounded_bf16 wx_machine_rounded_bf16

/* 16 bytes of memory that go to shared memory by themselves; zeros where they are not `inside` of an array. */
template <int W, class T> WX_FN void wx_copied(T *shared, int to, const T *from, int64_t at, bool inside) {
  static_assert(W * sizeof(T) == 16, "");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(shared + to)),
               "l"(from + at), "r"(inside ? 16 : 0) : "memory");
}
/* Waits for all that a thread has sent, and not for what others have. */
WX_FN void wx_copies_here() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/* Four matrices of 8 x 8 elements of 16 bits: lane n says the place of line n % 8 of matrix n / 8, and has two elements
   of line n / 4 (TURNED: of column n / 4) of each. */
template <bool TURNED> WX_FN void wx_fragments(uint32_t (&r)[4], const uint16_t *shared, int at) {
  const uint32_t from = (uint32_t)__cvta_generic_to_shared(shared + at);
  if constexpr (TURNED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
  }
}

#define WX_MMA(c, n, a, b, kind)                                                                                       \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." kind "." kind ".f32 "                                          \
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                                 \
               : "+f"(c[n]), "+f"(c[n + 1]), "+f"(c[n + 2]), "+f"(c[n + 3])                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
WX_FN float wx_reciprocal(float x) { return 1 / x; }
#endif

/* 1 / (1 + e^-x), a quarter of which is no subnormal to invert. A division has a branch for the ends of the range, and
   nothing is moved past a branch: of sixteen that do not hang on each other one would wait for the other. */
WX_FN float wx_libm_sigmoidf(float x) { return 0.25f * wx_reciprocal(fmaf(expf(-x), 0.25f, 0.25f)); }
WX_FN double wx_libm_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Floats of 16 bits that tensor cores multiply. */
struct wx_f16 {
  static __device__ __forceinline__ float widened(uint16_t h) { return wx_widened_f16(h); }
  static __device__ __forceinline__ uint16_t narrowed(float x) { return wx_narrowed_f16(x); }
#ifndef WX_SIMULATED
  template <class C> static __device__ __forceinline__ void mma(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    WX_MMA(c, n, a, b, "f16");
  }
#endif
};
struct wx_bf16 {
  static __device__ __forceinline__ float widened(uint16_t h) { return wx_widened_bf16(h); }
  static __device__ __forceinline__ uint16_t narrowed(float x) { return wx_narrowed_bf16(x); }
#ifndef WX_SIMULATED
  template <class C> static __device__ __forceinline__ void mma(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    WX_MMA(c, n, a, b, "bf16");
  }
#endif
};

#ifndef WX_SIMULATED
/* c[n..n+3] += a * b by all lanes of a warp, 16 x 16 by 16 x 8. With g = lane / 4 and t = lane % 4, a lane has of a
   rows g and g + 8 at depths 2t, 2t + 1 and those 8 further on, of b column g at the same depths, of c rows g and
   g + 8, columns 2t and 2t + 1. */
template <class H, class C> WX_FN void wx_mma(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  H::mma(c, n, a, b);
}

/* A float32 rounded to the digits of tf32. */
WX_FN uint32_t wx_tf32(float x) { uint32_t y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); return y; }
/* The same for tf32, 16 x 8 by 8 x 8: a lane has of a rows g and g + 8 at depth t, then at t + 4, of b column g at both. */
template <class C> WX_FN void wx_mma_tf32(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[n]), "+f"(c[n + 1]), "+f"(c[n + 2]), "+f"(c[n + 3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

/* Steps of folds. NaN stays: a maximum that meets one is one. */
struct wx_add { template <class V> static __device__ __forceinline__ V of(V a, V b) { return (V)(a + b); } };
struct wx_mul { template <class V> static __device__ __forceinline__ V of(V a, V b) { return (V)(a * b); } };
struct wx_or { template <class V> static __device__ __forceinline__ V of(V a, V b) { return (V)(a | b); } };
struct wx_and { template <class V> static __device__ __forceinline__ V of(V a, V b) { return (V)(a & b); } };
struct wx_max { template <class V> static __device__ __forceinline__ V of(V a, V b) { return b > a || b != b ? b : a; } };
struct wx_min { template <class V> static __device__ __forceinline__ V of(V a, V b) { return b < a || b != b ? b : a; } };

/* The threads of a block: threadIdx.x = column + C * (rank + T * point), all powers of two; the T ranks of a team share
   the folds of one column. A warp has teams of whole columns; where C * T > 32 there is one point a block. */

/* Lanes of the warp that work on the caller's point. */
template <int C, int T> WX_FN unsigned wx_lanes() {
  return C * T >= 32 ? 0xffffffffu : ((1u << (C * T & 31)) - 1) << (threadIdx.x & 31 & ~(C * T - 1));
}

/* What the ranks of a team hold, folded: the same in every rank, and in the same order whenever it runs. `shared` has
   C * T / 32 * C elements if C < 32, else C * T, and is free again on return. */
template <class F, int C, int T, class V, class S> WX_FN V wx_folded(V x, S &shared) {
#pragma unroll
  for (int far = C; far < 32 && far < C * T; far *= 2)
    x = F::template of<V>(x, (V)__shfl_xor_sync(wx_lanes<C, T>(), x, far));
  if constexpr (C * T > 32 && T > 1) {
    constexpr int warps = C < 32 ? C * T / 32 : T; /* how many hold one column */
    const int column = threadIdx.x % C, warp = threadIdx.x / (C < 32 ? 32 : C);
    if (C >= 32 || (threadIdx.x & 31) < C) shared[warp * C + column] = x;
    __syncthreads();
    x = shared[column];
#pragma unroll
    for (int n = 1; n < warps; n++) x = F::template of<V>(x, shared[n * C + column]);
    __syncthreads();
  }
  return x;
}

/* The elements of a team's ranks, N of each side by side, run through: h[n] becomes the fold of what was `carried` with
   all up to there, which is carried on. Teams are side by side in a warp, or a block of whole warps; `shared` has an
   element for each warp then, and is free again on return. */
template <class F, int T, int N, class V, class H, class S> WX_FN void wx_ran(H &h, V &carried, S &shared) {
  const int rank = threadIdx.x % T, lane = rank % 32;
#pragma unroll
  for (int n = 1; n < N; n++) h[n] = F::template of<V>(h[n - 1], h[n]);
  V own = h[N - 1];
#pragma unroll
  for (int far = 1; far < 32 && far < T; far *= 2) {
    const V other = (V)__shfl_up_sync(0xffffffffu, own, far);
    if (lane >= far) own = F::template of<V>(other, own);
  }
  V before = (V)__shfl_up_sync(0xffffffffu, own, 1), start = carried;
  V whole = (V)__shfl_sync(0xffffffffu, own, (int)(threadIdx.x & 31) / T * T + (T < 32 ? T : 32) - 1);
  if constexpr (T > 32) {
    if (lane == 31) shared[rank / 32] = own;
    __syncthreads();
    whole = shared[0];
#pragma unroll
    for (int w = 1; w < T / 32; w++) {
      if (rank / 32 == w) start = F::template of<V>(carried, whole);
      whole = F::template of<V>(whole, shared[w]);
    }
    __syncthreads();
  }
  if (lane > 0) start = F::template of<V>(start, before);
#pragma unroll
  for (int n = 0; n < N; n++) h[n] = F::template of<V>(start, h[n]);
  carried = F::template of<V>(carried, whole);
}

/* Waits for the ranks of a team, and for what they wrote to shared memory. */
template <int C, int T> WX_FN void wx_met() {
  if constexpr (C * T > 32) {
    __syncthreads();
  } else {
    __syncwarp(wx_lanes<C, T>());
  }
}
