/* Judges vector loops over functions of functions.h against libm of wider numbers; accuracy.py compiles and calls this.

   F32 or F64 is defined; float32 is judged in double, float64 in long double. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef F32
typedef float real;
typedef double wide;
typedef uint32_t bits;
#define DIGITS 24
#define LOWEST (-149)
#define HIGHEST 128
#define FREXP frexp
#define LDEXP ldexp
#else
typedef double real;
typedef long double wide;
typedef uint64_t bits;
#define DIGITS 53
#define LOWEST (-1074)
#define HIGHEST 1024
#define FREXP frexpl
#define LDEXP ldexpl
#endif

#define CHUNK 4096

typedef void (*loop)(int64_t n, const real *x, const real *y, real *out);
typedef wide (*reference)(wide x, wide y);
typedef struct {
  double error, x, y, value; /* the largest error in ULP, infinite where a NaN, an infinity or a sign is wrong */
} worst;

static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static real from_bits(bits b) {
  real x;
  memcpy(&x, &b, sizeof x);
  return x;
}

/* all exponents; sizes 1 to 4096; small; near 1; multiples of pi / 2; even over intervals */
static real sample(uint64_t *state) {
  static const double sides[] = {1, 2, 8, 32, 110, 800, 1e5, 1e9};
  uint64_t r = next(state), s = r >> 8;
  double u = (double)(next(state) >> 11) * 0x1p-52 - 1.0, v = u < 0 ? u - 1.0 : u + 1.0;
  switch (r % 8) {
    case 0: return from_bits((bits)next(state));
    case 1: return (real)ldexp(v, (int)(s % 12));
    case 2: return (real)ldexp(v, -(int)(s % 60));
    case 3: return (real)(1.0 + u * ldexp(1.0, -(int)(s % 30)));
    case 4: return (real)((double)((int64_t)(s % 2000000) - 1000000) * 1.57079632679489661923);
    case 5: return (real)((double)((int64_t)(s % 1000) - 500) * 0.125);
    default: return (real)(u * sides[s % 8]);
  }
}

/* got - want in units of the last place of want; want and got finite, HIGHEST as the exponent of infinity */
static double units(wide got, wide want) {
#ifdef F32
  uint64_t i;
  memcpy(&i, &want, sizeof i);
  int e = (int)(i >> 52 & 2047) - 1022 - DIGITS;
#else
  int e;
  FREXP(want, &e);
  e -= DIGITS;
#endif
  e = e < LOWEST || want == 0 ? LOWEST : e > HIGHEST - DIGITS ? HIGHEST - DIGITS : e;
#ifdef F32
  i = (uint64_t)(1023 - e) << 52; /* 2^-e, e >= LOWEST > -1023 */
  double scale;
  memcpy(&scale, &i, sizeof scale);
  return fabs((got - want) * scale);
#else
  return fabs((double)LDEXP(got - want, -e));
#endif
}

/* infinite for a wrong NaN, infinity or sign of zero; a NaN stands for NaN of any payload and sign */
static double error(real got, wide want) {
  if (got == (real)want && got != 0 && !isinf(got)) return units((wide)got, want);
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0.0 : INFINITY;
  if (want == 0 && got == 0) return !signbit(got) == !signbit(want) ? 0.0 : INFINITY;
  if (isinf(want) && got != want) return INFINITY;
  wide top = LDEXP((wide)1, HIGHEST), g = isinf(got) ? (got > 0 ? top : -top) : (wide)got;
  return units(g, want > top ? top : want < -top ? -top : want);
}

static void look(worst *w, real x, real y, real got, wide want) {
  double e = error(got, want);
  if (e > w->error) *w = (worst){e, x, y, got};
}

/* Whether no error is larger than `most`; false too where a value needs a closer look. A vector loop, at which most
   chunks end. */
static int calm(const real *got, const wide *want, double most) {
#ifdef F32
  int loud = 0;
  for (int64_t i = 0; i < CHUNK; i++) {
    double w = want[i], g = (double)got[i], scale;
    float rounded = (float)w;
    uint32_t a, c;
    memcpy(&a, &rounded, sizeof a);
    memcpy(&c, &got[i], sizeof c);
    uint64_t b;
    memcpy(&b, &w, sizeof b);
    b = (uint64_t)(2046 + DIGITS - 1) * (1ull << 52) - (b & 0x7ff0000000000000ull); /* the exponent of 1 / unit */
    memcpy(&scale, &b, sizeof scale);
    scale = scale < 0x1p149 ? scale : 0x1p149;
    int fine = (fabs(w) < 0x1p127) & (fabs(w) > 0x1p-1000) & (fabs(g - w) * scale <= most);
    loud |= !(fine | ((a == c) & (most >= 0.5)));
  }
  return !loud;
#else
  (void)got, (void)want, (void)most;
  return 0;
#endif
}

static void judge(const loop *loops, int64_t count, const real *x, const real *y, const wide *want, worst *w) {
  static _Thread_local real got[CHUNK];
  for (int64_t k = 0; k < count; k++) {
    loops[k](CHUNK, x, y, got);
    if (calm(got, want, w[k].error)) continue;
    for (int64_t i = 0; i < CHUNK; i++) look(w + k, x[i], y[i], got[i], want[i]);
  }
}

#ifdef F32
typedef void (*wide_loop)(int64_t n, const wide *x, const wide *y, wide *out);

/* every step-th bit pattern from begin to end, against a loop in float64: how many were judged; the worst in w */
int64_t judge_patterns(wide_loop f, const loop *loops, int64_t count, double limit, uint64_t begin, uint64_t end,
                       uint64_t step, worst *w) {
  static _Thread_local real x[CHUNK];
  static _Thread_local wide exact[CHUNK], want[CHUNK];
  int64_t judged = 0;
  for (uint64_t at = begin; at < end;) {
    for (int64_t i = 0; i < CHUNK; i++, at += step) {
      real r = from_bits((bits)(at < end ? at : begin));
      int far = limit > 0 && fabsf(r) > limit;
      judged += at < end && !far;
      x[i] = far ? 1 : r;
      exact[i] = (wide)x[i];
    }
    f(CHUNK, exact, exact, want);
    judge(loops, count, x, x, want, w);
  }
  return judged;
}
#endif

/* as many samples and every pair of the special numbers, against a function: how many were judged; the worst in w. The
   limit is of |x|, and of |x / y| for functions of two. */
int64_t judge_samples(reference f, const loop *loops, int64_t count, double limit, int arity, int64_t samples,
                      uint64_t seed, const real *special, int64_t specials, worst *w) {
  static _Thread_local real x[CHUNK], y[CHUNK];
  static _Thread_local wide want[CHUNK];
  int64_t judged = 0, pairs = specials * specials;
  for (int64_t done = 0; done < samples + pairs; done += CHUNK) {
    for (int64_t i = 0; i < CHUNK; i++) {
      int64_t k = done + i;
      real r = k < pairs ? special[k % specials] : sample(&seed);
      real other = k < pairs ? special[k / specials] : sample(&seed);
      int far = limit > 0 && fabs((double)r) > limit * (arity == 2 ? fabs((double)other) : 1);
      judged += !far;
      x[i] = far ? 1 : r;
      y[i] = far ? 1 : other;
      want[i] = f((wide)x[i], (wide)y[i]);
    }
    judge(loops, count, x, y, want, w);
  }
  return judged;
}

/* nanoseconds of one element, on numbers of ordinary size in cache: the best of many tries */
double nanoseconds(loop f, int64_t tries) {
  static _Thread_local real x[CHUNK], y[CHUNK], out[CHUNK];
  double best = INFINITY;
  for (int64_t i = 0; i < CHUNK; i++) x[i] = (real)(0.001 + (double)(i % 997) * 0.003), y[i] = (real)(0.3 + (double)(i % 13) * 0.2);
  for (int64_t k = 0; k < tries; k++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int j = 0; j < 10; j++) f(CHUNK, x, y, out);
    clock_gettime(CLOCK_MONOTONIC, &b);
    double t = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (10.0 * CHUNK);
    best = t < best ? t : best;
  }
  return best;
}
