/* What every generated kernel of C begins with. */
#include <math.h>
#include <stdint.h>

#define WX_ALIGNED _Alignas(64)
#define WX_MAX_F32 3.40282347e+38f
#define WX_MAX_F64 1.7976931348623157e+308

/* The first argument of every kernel. `outside`: not 0 where a position led outside its axis, or a matrix has no
   solution or factor. `library`: what the machine's own library of such kernels offers, for kernels that call it;
   `kept` is theirs. */
typedef struct {
  const void *api;
  const void *library;
  int32_t outside, kept;
} wx_context;

/* A position, counted from either end, and whether it lies outside an axis of n > 0 elements. Macros: the type of i may
   be unsigned. Numbers and no conditions: of a condition on what does not change in a loop gcc 12 makes no vectors. */
#define wx_wrapped(i, n) ((int64_t)(i) + (-(int64_t)((i) < 0) & (int64_t)(n)))
#define wx_outside(i, n) ((uint64_t)wx_wrapped(i, n) >= (uint64_t)(n))
#define wx_within(i, n) (wx_wrapped(i, n) & -(int64_t)!wx_outside(i, n))

/* A pointer of which the compiler does not know what it has to do with others. */
#define wx_alone(p) ({ __typeof__(p) own = (p); __asm__("" : "+r"(own)); own; })

/* A constant that the compiler takes for a variable. */
static inline float wx_hidden_f32(float x) { volatile float y = x; return y; }
static inline double wx_hidden_f64(double x) { volatile double y = x; return y; }
static inline int32_t wx_hidden_i32(int32_t x) { volatile int32_t y = x; return y; }

/* The larger and the smaller of two: NaN where either is (max, min), or the other one then (fmax, fmin). In two steps: of
   one expression gcc 12 makes two comparisons and a blend, of these an instruction for each. */
#define WX_EXTREMES(T, k) \
  static inline T wx_max_##k(T x, T y) { T z = y > x ? y : x; return y == y ? z : y; } \
  static inline T wx_min_##k(T x, T y) { T z = y < x ? y : x; return y == y ? z : y; } \
  static inline T wx_fmax_##k(T x, T y) { T z = y > x ? y : x; return x == x ? z : y; } \
  static inline T wx_fmin_##k(T x, T y) { T z = y < x ? y : x; return x == x ? z : y; }
/* The same of numbers that are looked at elsewhere, anything where one is NaN; and z, NaN where x or y is. */
#define WX_BARE_EXTREMES(T, k) \
  static inline T wx_larger_##k(T x, T y) { return y > x ? y : x; } \
  static inline T wx_smaller_##k(T x, T y) { return y < x ? y : x; } \
  static inline T wx_unless_##k(T x, T y, T z) { return __builtin_isunordered(x, y) ? (T)__builtin_nan("") : z; }
WX_EXTREMES(float, f32)
WX_EXTREMES(double, f64)
WX_BARE_EXTREMES(float, f32)
WX_BARE_EXTREMES(double, f64)

static inline float wx_libm_sigmoidf(float x) { return 1 / (1 + expf(-x)); }
static inline double wx_libm_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* `rows` rows, `step` apart, of `columns` numbers of four bytes each become columns (wx_turned), and of eight, two and one
   bytes each: squares in registers, where the compiler has vectors of that kind. */
typedef uint8_t __attribute__((may_alias)) wx_byte;
typedef uint16_t __attribute__((may_alias)) wx_short;
typedef uint32_t __attribute__((may_alias)) wx_number;
typedef uint64_t __attribute__((may_alias)) wx_long;
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define WX_TURNS 1
#endif
#endif
#ifdef WX_TURNS
typedef uint32_t wx_eight __attribute__((vector_size(32)));
typedef uint64_t wx_four __attribute__((vector_size(32)));
static inline void wx_turned_8(const wx_number *from, int64_t step, wx_number *to, int64_t width) {
  wx_eight r[8], s[8];
  for (int i = 0; i < 8; i++) __builtin_memcpy(&r[i], from + i * step, 32);
  for (int i = 0; i < 8; i += 2) {
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = __builtin_shufflevector(s[i + j], s[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[i + 2 * j + 1] = __builtin_shufflevector(s[i + j], s[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int j = 0; j < 4; j++) {
    s[j] = __builtin_shufflevector(r[j], r[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    s[j + 4] = __builtin_shufflevector(r[j], r[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; i++) __builtin_memcpy(to + i * width, &s[i], 32);
}
static inline void wx_turned_4(const wx_long *from, int64_t step, wx_long *to, int64_t width) {
  wx_four r[4], s[4];
  for (int i = 0; i < 4; i++) __builtin_memcpy(&r[i], from + i * step, 32);
  for (int i = 0; i < 4; i += 2) {
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 2, 6);
    s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 5, 3, 7);
  }
  for (int i = 0; i < 2; i++) {
    r[i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 4, 5);
    r[i + 2] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 6, 7);
  }
  for (int i = 0; i < 4; i++) __builtin_memcpy(to + i * width, &r[i], 32);
}
/* rows of each half by turns, as often as halves of halves can be taken: what was a row is a column then */
typedef uint16_t wx_eight_shorts __attribute__((vector_size(16)));
typedef uint8_t wx_sixteen_bytes __attribute__((vector_size(16)));
static inline void wx_turned_8_shorts(const wx_short *from, int64_t step, wx_short *to, int64_t width) {
  wx_eight_shorts r[8], s[8];
  for (int i = 0; i < 8; i++) __builtin_memcpy(&r[i], from + i * step, 16);
  for (int n = 0; n < 3; n++) {
    for (int i = 0; i < 4; i++) {
      s[2 * i] = __builtin_shufflevector(r[i], r[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      s[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    __builtin_memcpy(r, s, sizeof r);
  }
  for (int i = 0; i < 8; i++) __builtin_memcpy(to + i * width, &r[i], 16);
}
static inline void wx_turned_16_bytes(const wx_byte *from, int64_t step, wx_byte *to, int64_t width) {
  wx_sixteen_bytes r[16], s[16];
  for (int i = 0; i < 16; i++) __builtin_memcpy(&r[i], from + i * step, 16);
  for (int n = 0; n < 4; n++) {
    for (int i = 0; i < 8; i++) {
      s[2 * i] = __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      s[2 * i + 1] =
          __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    __builtin_memcpy(r, s, sizeof r);
  }
  for (int i = 0; i < 16; i++) __builtin_memcpy(to + i * width, &r[i], 16);
}
#define WX_SQUARES(square, n) \
  for (; i + (n) <= rows; i += (n)) { \
    int64_t j = 0; \
    for (; j + (n) <= columns; j += (n)) square(f + i * step + j, step, t + j * width + i, width); \
    for (; j < columns; j++) \
      for (int64_t k = i; k < i + (n); k++) t[j * width + k] = f[k * step + j]; \
  }
#else
#define WX_SQUARES(square, n)
#endif
#define WX_TURNED(name, number, square, n) \
  static inline void name(const void *from, int64_t step, int64_t rows, int64_t columns, void *to, int64_t width) { \
    const number *f = (const number *)from; \
    number *t = (number *)to; \
    int64_t i = 0; \
    WX_SQUARES(square, n) \
    for (; i < rows; i++) \
      for (int64_t j = 0; j < columns; j++) t[j * width + i] = f[i * step + j]; \
  }
WX_TURNED(wx_turned, wx_number, wx_turned_8, 8)
WX_TURNED(wx_turned_long, wx_long, wx_turned_4, 4)
WX_TURNED(wx_turned_shorts, wx_short, wx_turned_8_shorts, 8)
WX_TURNED(wx_turned_bytes, wx_byte, wx_turned_16_bytes, 16)

/* Bytes that are written past the cache, where the machine can: nobody reads them soon, and a line that is overwritten
   whole need not be fetched first. `wx_streamed` ends a kernel that does so: others see what was written. */
#ifdef __SSE2__
#if defined(__AVX512F__)
#define WX_WIDE 64
#elif defined(__AVX__)
#define WX_WIDE 32
#else
#define WX_WIDE 16
#endif
typedef float wx_wide __attribute__((vector_size(WX_WIDE)));
typedef float wx_quarter __attribute__((vector_size(16)));
static inline void wx_stream_quarter(char *to, const char *from) {
  wx_quarter v;
  __builtin_memcpy(&v, from, sizeof v);
#ifdef __clang__
  __builtin_nontemporal_store(v, (wx_quarter *)to);
#else
  __builtin_ia32_movntps((float *)to, v);
#endif
}
static inline void wx_stream_wide(char *to, const char *from) {
  wx_wide v;
  __builtin_memcpy(&v, from, sizeof v);
#ifdef __clang__
  __builtin_nontemporal_store(v, (wx_wide *)to);
#elif WX_WIDE == 64
  __builtin_ia32_movntps512((float *)to, v);
#elif WX_WIDE == 32
  __builtin_ia32_movntps256((float *)to, v);
#else
  __builtin_ia32_movntps((float *)to, v);
#endif
}
static inline void wx_stream(void *to, const void *from, int64_t bytes) {
  char *t = (char *)to;
  const char *f = (const char *)from;
  int64_t i = 0;
  for (; i < bytes && ((uintptr_t)(t + i) & 15); i++) t[i] = f[i];
  for (; i + 16 <= bytes && ((uintptr_t)(t + i) & (WX_WIDE - 1)); i += 16) wx_stream_quarter(t + i, f + i);
  for (; i + WX_WIDE <= bytes; i += WX_WIDE) wx_stream_wide(t + i, f + i);
  for (; i + 16 <= bytes; i += 16) wx_stream_quarter(t + i, f + i);
  for (; i < bytes; i++) t[i] = f[i];
}
static inline void wx_streamed(void) { __builtin_ia32_sfence(); }
#else
#define WX_WIDE 16
static inline void wx_stream_wide(char *to, const char *from) { __builtin_memcpy(to, from, WX_WIDE); }
static inline void wx_stream(void *to, const void *from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
}
static inline void wx_streamed(void) {}
#endif
/* Whole lines; through the cache where they are none in memory. What was just made need not leave its registers. */
static inline void wx_stream_lines(void *to, const void *from, int64_t bytes) {
  if ((uintptr_t)to & 63) {
    __builtin_memcpy(to, from, bytes);
    return;
  }
  for (int64_t i = 0; i < bytes; i += WX_WIDE) wx_stream_wide((char *)to + i, (const char *)from + i);
}

/* A row of float16 as float32, and back, as wx_widened_f16 and wx_narrowed_f16 of each element; payloads of NaN apart.
   Eight at a time where the machine converts vectors, and sixteen where those are as long: a core that reads as a whole
   what was written in two halves waits for both to be in its cache. clang has the instructions by another name, and up
   to version 14 _Float16 only where the machine computes with it. */
#ifdef __F16C__
typedef float wx_eight_floats __attribute__((vector_size(32)));
#ifdef __clang__
typedef __fp16 wx_eight_halves __attribute__((vector_size(16)));
#define WX_WIDENED_8(h) __builtin_convertvector(h, wx_eight_floats)
#define WX_NARROWED_8(v) __builtin_convertvector(v, wx_eight_halves)
#else
typedef short wx_eight_halves __attribute__((vector_size(16)));
#define WX_WIDENED_8(h) ((wx_eight_floats)__builtin_ia32_vcvtph2ps256(h))
#define WX_NARROWED_8(v) ((wx_eight_halves)__builtin_ia32_vcvtps2ph256(v, 0))
#endif
#endif
#ifdef __AVX512F__
typedef float wx_sixteen_floats __attribute__((vector_size(64)));
#ifdef __clang__
typedef __fp16 wx_sixteen_halves __attribute__((vector_size(32)));
#define WX_WIDENED_16(h) __builtin_convertvector(h, wx_sixteen_floats)
#define WX_NARROWED_16(v) __builtin_convertvector(v, wx_sixteen_halves)
#else
typedef short wx_sixteen_halves __attribute__((vector_size(32)));
#define WX_WIDENED_16(h) ((wx_sixteen_floats)__builtin_ia32_vcvtph2ps512_mask(h, (wx_sixteen_floats){0}, -1, 4))
#define WX_NARROWED_16(v) ((wx_sixteen_halves)__builtin_ia32_vcvtps2ph512_mask(v, 0, (wx_sixteen_halves){0}, -1))
#endif
#endif
static __attribute__((noinline, unused)) void wx_widened_rest_f16(const uint16_t *from, float *to, int64_t many) {
#pragma omp simd
  for (int64_t i = 0; i < many; i++) to[i] = wx_widened_f16(from[i]);
}
static __attribute__((noinline, unused)) void wx_narrowed_rest_f16(const float *from, uint16_t *to, int64_t many) {
#pragma omp simd
  for (int64_t i = 0; i < many; i++) to[i] = wx_narrowed_f16(from[i]);
}
static inline void wx_widened_row_f16(const uint16_t *from, float *to, int64_t many) {
  int64_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= many; i += 16) {
    wx_sixteen_halves h;
    __builtin_memcpy(&h, from + i, sizeof h);
    const wx_sixteen_floats v = WX_WIDENED_16(h);
    __builtin_memcpy(to + i, &v, sizeof v);
  }
#endif
#ifdef __F16C__
  for (; i + 8 <= many; i += 8) {
    wx_eight_halves h;
    __builtin_memcpy(&h, from + i, sizeof h);
    const wx_eight_floats v = WX_WIDENED_8(h);
    __builtin_memcpy(to + i, &v, sizeof v);
  }
#endif
  if (i < many) wx_widened_rest_f16(from + i, to + i, many - i);
}
static inline void wx_narrowed_row_f16(const float *from, uint16_t *to, int64_t many) {
  int64_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= many; i += 16) {
    wx_sixteen_floats v;
    __builtin_memcpy(&v, from + i, sizeof v);
    const wx_sixteen_halves h = WX_NARROWED_16(v);
    __builtin_memcpy(to + i, &h, sizeof h);
  }
#endif
#ifdef __F16C__
  for (; i + 8 <= many; i += 8) {
    wx_eight_floats v;
    __builtin_memcpy(&v, from + i, sizeof v);
    const wx_eight_halves h = WX_NARROWED_8(v);
    __builtin_memcpy(to + i, &h, sizeof h);
  }
#endif
  if (i < many) wx_narrowed_rest_f16(from + i, to + i, many - i);
}
static inline void wx_widened_row_bf16(const uint16_t *from, float *to, int64_t many) {
#pragma omp simd
  for (int64_t i = 0; i < many; i++) to[i] = wx_widened_bf16(from[i]);
}
