/* What every generated kernel of C begins with. */
#include <math.h>
#include <stdint.h>

#define WX_ALIGNED _Alignas(64)
#define WX_MAX_F32 3.40282347e+38f
#define WX_MAX_F64 1.7976931348623157e+308

/* The first argument of every kernel. `outside`: a position led outside its axis. `library`: what the machine's own
   library of such kernels offers, for kernels that call it; `kept` is theirs. */
typedef struct {
  const void *api;
  const void *library;
  int32_t outside, kept;
} wx_context;

/* A position, counted from either end, and whether it lies outside an axis of n > 0 elements. Macros: the type of i may
   be unsigned. */
#define wx_wrapped(i, n) ((i) < 0 ? (int64_t)(i) + (n) : (int64_t)(i))
#define wx_outside(i, n) ((uint64_t)wx_wrapped(i, n) >= (uint64_t)(n))
#define wx_within(i, n) (wx_outside(i, n) ? 0 : wx_wrapped(i, n))

/* A constant that the compiler takes for a variable. */
static inline float wx_hidden_f32(float x) { volatile float y = x; return y; }
static inline double wx_hidden_f64(double x) { volatile double y = x; return y; }

static inline float wx_libm_sigmoidf(float x) { return 1 / (1 + expf(-x)); }
static inline double wx_libm_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Bytes that are written past the cache, where the machine can: nobody reads them soon, and a line that is overwritten
   whole need not be fetched first. `wx_streamed` ends a kernel that does so: others see what was written. */
#ifdef __SSE2__
#include <emmintrin.h>
static inline void wx_stream(void *to, const void *from, int64_t bytes) {
  char *t = (char *)to;
  const char *f = (const char *)from;
  int64_t i = 0;
  for (; i < bytes && ((uintptr_t)(t + i) & 15); i++) t[i] = f[i];
  for (; i + 16 <= bytes; i += 16) _mm_stream_si128((__m128i *)(t + i), _mm_loadu_si128((const __m128i *)(f + i)));
  for (; i < bytes; i++) t[i] = f[i];
}
static inline void wx_streamed(void) { _mm_sfence(); }
#else
static inline void wx_stream(void *to, const void *from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
}
static inline void wx_streamed(void) {}
#endif
