/* Measures one function of functions.h against libm of wider numbers; see accuracy.py, which compiles and runs this.

   Defined on the command line: F32 or F64, ARITY 1 or 2, WX (the function), REFERENCE(x, y) (in double for F32, in long
   double for F64), and LIMIT (inputs beyond it in size are not judged; 0: all are).
   WX_INCLUDE_ONLY gives the loops without main, as a library.
   Arguments: kind of sampling ("all" every float, "stratum" every STEPth of them, "random"), begin, end, step or seed.
   Prints: judged inputs, largest error in ULP, its inputs, the function's value, how many NaN, -0 or infinity are wrong. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "functions.h"

#ifdef F32
typedef float real;
typedef double wide;
typedef uint32_t bits;
#define DIGITS 24
#define LOWEST -149
#define HIGHEST 128
#define FREXP frexp
#define LDEXP ldexp
#else
typedef double real;
typedef long double wide;
typedef uint64_t bits;
#define DIGITS 53
#define LOWEST -1074
#define HIGHEST 1024
#define FREXP frexpl
#define LDEXP ldexpl
#endif

#define CHUNK 4096

/* the loop that generated kernels have */
__attribute__((noinline)) void wx_apply(int64_t n, const real *restrict x, const real *restrict y, real *restrict out) {
#if ARITY == 1
  (void)y;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) out[i] = WX(x[i]);
#else
#pragma omp simd
  for (int64_t i = 0; i < n; i++) out[i] = WX(x[i], y[i]);
#endif
}

#ifndef WX_INCLUDE_ONLY
static uint64_t state;

static uint64_t next(void) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static real from_bits(bits b) {
  real x;
  memcpy(&x, &b, sizeof x);
  return x;
}

/* all exponents; exponents near 1; even over intervals; near 1; near 0 and multiples of pi / 2 */
static real sample(void) {
  static const double sides[] = {1, 2, 8, 32, 110, 800, 1e5, 1e9};
  uint64_t r = next();
  double u = (double)(next() >> 11) * 0x1p-52 - 1.0;
  switch (r % 8) {
    case 0: return from_bits((bits)next());
    case 1:
    case 2: return (real)ldexp(u < 0 ? u - 1 : u + 1, (int)(r >> 8) % 12);
    case 3: return (real)ldexp(u < 0 ? u - 1 : u + 1, -(int)(uint8_t)(r >> 8) % 40);
    case 4: return (real)(1.0 + u * ldexp(1.0, -(int)(uint8_t)(r >> 8) % 30));
    case 5: return (real)((double)(int64_t)((r >> 8) % 2000000 - 1000000) * 1.57079632679489661923);
    default: return (real)(u * sides[(r >> 8) % 8]);
  }
}

static const double special[] = {
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5, INFINITY, -INFINITY, NAN, 1e-310, -1e-310,
    5e-324, -5e-324, 1e-40, -1e-40, 1.4e-45, -1.4e-45, 2.2250738585072014e-308, 1.17549435e-38, 3.4028234e38,
    -3.4028234e38, 1.7976931348623157e308, -1.7976931348623157e308, 4.0, 7.0, 1e15, -1e15, 8388607.5, 16777216.0,
    9007199254740991.0, -9007199254740991.0, -8388607.0, 88.72283, 88.72284, -103.97208, -87.33655, 709.782712893384,
    -745.1332191019412, -708.3964185322641, 128.0, -149.0, -150.0, 1024.0, -1074.0, -1075.0};
#define SPECIALS ((int64_t)(sizeof special / sizeof *special))

static double error(real got, wide want) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0.0 : INFINITY;
  if (want == 0 && got == 0) return !signbit(got) == !signbit(want) ? 0.0 : INFINITY;
  wide top = LDEXP((wide)1, HIGHEST), g = isinf(got) ? copysign(1, got) * top : (wide)got;
  if (isinf(want) && !isinf(got)) return INFINITY;
  wide w = want > top ? top : want < -top ? -top : want;
  int e;
  FREXP(w, &e);
  e = e > HIGHEST ? HIGHEST : e;
  int u = e - DIGITS < LOWEST ? LOWEST : e - DIGITS;
  return (double)fabsl((long double)LDEXP(g - w, -u));
}

int main(int count, char **argument) {
  if (count < 5) return 2;
  int random = !strcmp(argument[1], "random");
  int64_t begin = atoll(argument[2]), end = atoll(argument[3]), step = atoll(argument[4]);
  static real x[CHUNK], y[CHUNK], out[CHUNK];
  double worst = -1;
  real at_x = 0, at_y = 0, value = 0;
  int64_t judged = 0, wrong = 0;
  state = (uint64_t)step;
  int64_t total = random ? end : (end - begin) / step;
  for (int64_t done = 0; done < total; done += CHUNK) {
    for (int64_t i = 0; i < CHUNK; i++) {
      int64_t k = done + i;
      if (!random) {
        x[i] = from_bits((bits)(begin + (k < total ? k : 0) * step));
      } else if (k < SPECIALS * SPECIALS) {
        x[i] = (real)special[k % SPECIALS];
        y[i] = (real)special[k / SPECIALS];
      } else {
        x[i] = sample();
        y[i] = sample();
      }
    }
    wx_apply(CHUNK, x, y, out);
    for (int64_t i = 0; i < CHUNK; i++) {
      if (LIMIT > 0 && fabs((double)x[i]) > LIMIT) continue;
      double e = error(out[i], REFERENCE((wide)x[i], (wide)y[i]));
      judged++;
      if (isinf(e)) wrong++;
      if (e > worst) worst = e, at_x = x[i], at_y = y[i], value = out[i];
    }
  }
  printf("%lld %.6f %.17g %.17g %.17g %lld\n", (long long)judged, worst, (double)at_x, (double)at_y, (double)value, (long long)wrong);
  return 0;
}
#endif
