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

static inline float wx_libm_sigmoidf(float x) { return 1 / (1 + expf(-x)); }
static inline double wx_libm_sigmoid(double x) { return 1 / (1 + exp(-x)); }
