/* Scalar functions for generated kernels, in the common part of C11 and CUDA C++.

   Bodies have no branches, calls or tables, so a compiler turns a `#pragma omp simd` loop over them into vector code.
   NaN gives NaN, infinities and -0 are right, results underflow through the subnormals. Measured errors, and where a
   function differs from libm, stand in docs/functions.md. Nothing here may be compiled with -ffast-math: rounding by
   adding and subtracting WX_ROUND, two-part sums and the tests for NaN need IEEE arithmetic. Contraction of a * b + c is
   allowed everywhere and needed nowhere.

   Polynomials are minimax fits (Remez), leading terms rounded first, over the variable and range that the function says.
   Reductions and two-part arithmetic follow fdlibm's schemes (W. J. Cody and W. Waite; K. C. Ng), written anew without
   branches. Where a step needs a product that is not rounded it says so (fmaf), and is written in another way for what
   has no such instruction. */
#ifndef WX_FUNCTIONS_H
#define WX_FUNCTIONS_H

typedef unsigned int wx_u32;
typedef unsigned long long wx_u64;

#ifdef __CUDACC__
#define WX_FN static __device__ __forceinline__
WX_FN wx_u32 wx_bits_f32(float x) { return (wx_u32)__float_as_int(x); }
WX_FN float wx_from_f32(wx_u32 i) { return __int_as_float((int)i); }
WX_FN wx_u64 wx_bits_f64(double x) { return (wx_u64)__double_as_longlong(x); }
WX_FN double wx_from_f64(wx_u64 i) { return __longlong_as_double((long long)i); }
#define WX_LIBM(f) f
#else
#define WX_FN static inline __attribute__((always_inline, unused))
WX_FN wx_u32 wx_bits_f32(float x) { wx_u32 i; __builtin_memcpy(&i, &x, 4); return i; }
WX_FN float wx_from_f32(wx_u32 i) { float x; __builtin_memcpy(&x, &i, 4); return x; }
WX_FN wx_u64 wx_bits_f64(double x) { wx_u64 i; __builtin_memcpy(&i, &x, 8); return i; }
WX_FN double wx_from_f64(wx_u64 i) { double x; __builtin_memcpy(&x, &i, 8); return x; }
#define WX_LIBM(f) __builtin_##f
#endif

#define WX_INF_F32 wx_from_f32(0x7f800000u)
#define WX_NAN_F32 wx_from_f32(0x7fc00000u)
#define WX_INF_F64 wx_from_f64(0x7ff0000000000000ull)
#define WX_NAN_F64 wx_from_f64(0x7ff8000000000000ull)
#define WX_SIGN_F32 0x80000000u
#define WX_SIGN_F64 0x8000000000000000ull
#define WX_HIGH_F64 0xffffffff00000000ull
/* x + WX_ROUND rounds x to an integer and leaves it in the low bits; of |x| < 2^21 (f32), 2^50 (f64);
   where only the integer is wanted up to twice that. */
#define WX_ROUND_F32 0x1.8p23f
#define WX_ROUND_F64 0x1.8p52

WX_FN float wx_abs_f32(float x) { return wx_from_f32(wx_bits_f32(x) & ~WX_SIGN_F32); }
WX_FN double wx_abs_f64(double x) { return wx_from_f64(wx_bits_f64(x) & ~WX_SIGN_F64); }
/* gcc 12 fails on __builtin_signbit of what was just put together from bits */
WX_FN int wx_negative_f32(float x) { return (int)(wx_bits_f32(x) >> 31); }
WX_FN int wx_negative_f64(double x) { return (int)(wx_bits_f64(x) >> 63); }
/* y, a number of x's sign or +0 or NaN, with the sign bit of x set as well */
WX_FN float wx_signed_f32(float y, float x) { return wx_from_f32(wx_bits_f32(y) | (wx_bits_f32(x) & WX_SIGN_F32)); }
WX_FN double wx_signed_f64(double y, double x) { return wx_from_f64(wx_bits_f64(y) | (wx_bits_f64(x) & WX_SIGN_F64)); }
/* the first 21 bits of x: products of two such numbers are exact */
WX_FN double wx_high_f64(double x) { return wx_from_f64(wx_bits_f64(x) & WX_HIGH_F64); }

/* ---- how many bits of a number are 1, added up in ever larger groups ---- */

WX_FN unsigned char wx_ones_8(unsigned char x) {
  x = (unsigned char)(x - (x >> 1 & 0x55));
  x = (unsigned char)((x & 0x33) + (x >> 2 & 0x33));
  return (unsigned char)((x + (x >> 4)) & 0x0f);
}

WX_FN unsigned short wx_ones_16(unsigned short x) {
  x = (unsigned short)(x - (x >> 1 & 0x5555));
  x = (unsigned short)((x & 0x3333) + (x >> 2 & 0x3333));
  x = (unsigned short)((x + (x >> 4)) & 0x0f0f);
  return (unsigned short)((x + (x >> 8)) & 0x1f);
}

WX_FN wx_u32 wx_ones_32(wx_u32 x) {
  x -= x >> 1 & 0x55555555u;
  x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (x * 0x01010101u) >> 24;
}

WX_FN wx_u64 wx_ones_64(wx_u64 x) {
  x -= x >> 1 & 0x5555555555555555ull;
  x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
  return (x * 0x0101010101010101ull) >> 56;
}

/* ---- x over a number c, rounded down: more is 2^(63 + bits) / c rounded up, where 2^bits is the least that is not
   below c, and `shift` is bits - 1. Of x < 0 the quotient is that of what is left of it without its sign, turned ---- */

WX_FN wx_u64 wx_upper_u64(wx_u64 x, wx_u64 y) {
#ifdef __CUDACC__
  return __umul64hi(x, y);
#else
  wx_u64 a = x & 0xffffffffu, b = x >> 32, c = y & 0xffffffffu, d = y >> 32;
  wx_u64 low = a * d + (a * c >> 32), high = b * c + (low & 0xffffffffu);
  return b * d + (low >> 32) + (high >> 32);
#endif
}

WX_FN long long wx_over_i64(long long x, wx_u64 more, int shift) {
  long long sign = -(long long)(x < 0);
  return (long long)(wx_upper_u64((wx_u64)(x ^ sign), more) >> shift) ^ sign;
}

/* ---- float16 and bfloat16: their bits, and the float32 numbers that they are; rounding is to nearest, ties to even;
   what is NaN stays NaN, subnormals are not flushed ---- */

WX_FN float wx_widened_bf16(unsigned short h) { return wx_from_f32((wx_u32)h << 16); }

WX_FN float wx_rounded_bf16(float x) {
  wx_u32 i = wx_bits_f32(x);
  i = (i + 0x7fffu + (i >> 16 & 1u)) & 0xffff0000u;
  return x != x ? x : wx_from_f32(i);
}

WX_FN unsigned short wx_narrowed_bf16(float x) {
  wx_u32 i = wx_bits_f32(x);
  wx_u32 y = (i + 0x7fffu + (i >> 16 & 1u)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0u : y);
}

/* exponents move by 112; of subnormals the sum with 2^-14 has the right bits, infinities move twice */
WX_FN float wx_widened_f16(unsigned short h) {
  wx_u32 s = ((wx_u32)h & 0x8000u) << 16, m = ((wx_u32)h & 0x7fffu) << 13;
  float small = wx_from_f32(m + 0x38800000u) - 0x1p-14f;
  wx_u32 i = m < 0x00800000u ? wx_bits_f32(small) : m + (m < 0x0f800000u ? 0x38000000u : 0x70000000u);
  return wx_from_f32(i | s);
}

/* the sum with 1/2 rounds to multiples of 2^-24, the smallest subnormal */
WX_FN float wx_rounded_f16(float x) {
  float a = wx_abs_f32(x), small = (a + 0.5f) - 0.5f;
  wx_u32 i = wx_bits_f32(a);
  i = (i + 0xfffu + (i >> 13 & 1u)) & 0xffffe000u;
  float y = a < 0x1p-14f ? small : wx_from_f32(i);
  y = y >= 65536.0f ? WX_INF_F32 : y;
  return wx_signed_f32(x != x ? x : y, x);
}

WX_FN unsigned short wx_narrowed_f16(float x) {
  wx_u32 s = wx_bits_f32(x) >> 16 & 0x8000u;
  float a = wx_abs_f32(x);
  wx_u32 i = wx_bits_f32(a), small = wx_bits_f32(a + 0.5f) - 0x3f000000u;
  wx_u32 y = a < 0x1p-14f ? small : (i + 0xc8000fffu + (i >> 13 & 1u)) >> 13;
  y = a >= 65536.0f ? 0x7c00u : y;
  return (unsigned short)(s | (x != x ? 0x7e00u : y));
}

/* a float32 that rounds to fewer digits as x does: the last bit is set where bits are cut off */
WX_FN float wx_odd_f32(double x) {
  wx_u64 i = wx_bits_f64(x);
  wx_u64 odd = ((i & 0x1fffffffull) + 0x1fffffffull) & 0x20000000ull;
  return (float)wx_from_f64((i & ~0x1fffffffull) | odd);
}

/* Where an argument is held: beyond, results are those of the bound. They are variables for a compiler of C: gcc 12 makes
   a path of its own of what it computes for a known bound, and a minimum, which is one instruction, becomes five. */
#ifdef __CUDACC__
#define WX_BOUND(type, name) static constexpr type name
#else
#define WX_BOUND(type, name) __attribute__((visibility("hidden"))) type name
#endif
WX_BOUND(float, wx_exp_most_f32) = 89.0f;
WX_BOUND(double, wx_exp_most_f64) = 710.0;
WX_BOUND(float, wx_exp_least_f32) = -104.0f;
WX_BOUND(double, wx_exp_least_f64) = -746.0;
WX_BOUND(float, wx_exp2_most_f32) = 129.0f;
WX_BOUND(double, wx_exp2_most_f64) = 1025.0;
WX_BOUND(float, wx_exp2_least_f32) = -151.0f;
WX_BOUND(double, wx_exp2_least_f64) = -1076.0;
WX_BOUND(float, wx_expm1_least_f32) = -20.0f;
WX_BOUND(double, wx_expm1_least_f64) = -40.0;
WX_BOUND(float, wx_tanh_most_f32) = 9.5f;
WX_BOUND(double, wx_tanh_most_f64) = 20.0;
WX_BOUND(float, wx_sinh_most_f32) = 89.5f;
WX_BOUND(double, wx_sinh_most_f64) = 710.6;
WX_BOUND(float, wx_erf_most_f32) = 4.0f;
WX_BOUND(double, wx_erf_most_f64) = 6.0;

/* x, and NaN where it is that, not above or below a bound */
WX_FN float wx_at_most_f32(float x, float bound) { return bound < x ? bound : x; }
WX_FN double wx_at_most_f64(double x, double bound) { return bound < x ? bound : x; }
WX_FN float wx_at_least_f32(float x, float bound) { return bound > x ? bound : x; }
WX_FN double wx_at_least_f64(double x, double bound) { return bound > x ? bound : x; }

/* ---- exp: x = n ln 2 + r, |r| <= ln 2 / 2; 2^n as two factors, so that overflow and subnormals come out right ---- */

/* q with e^x = (1 + q) 2^n */
WX_FN float wx_exp_rest_f32(float x, float n) {
  float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float s = r * r; /* Estrin's scheme: steps that do not wait for each other */
  float u = 0x1.55548cp-3f * r + 0x1.fffffcp-2f, v = 0x1.123deap-7f * r + 0x1.555858p-5f;
  return ((0x1.6ac7e8p-10f * s + v) * s + u) * s + r;
}

/* q, a, b with e^x = (1 + q) a b, for -104 <= x <= 90, or NaN */
WX_FN float wx_exp_parts_f32(float x, float *a, float *b) {
  float t = x * 0x1.715476p0f + (WX_ROUND_F32 + 254.0f); /* n and twice the bias of an exponent */
  wx_u32 i = wx_bits_f32(t), h = i >> 1;
  *a = wx_from_f32(h << 23);
  *b = wx_from_f32((i - h) << 23);
  return wx_exp_rest_f32(x, t - (WX_ROUND_F32 + 254.0f));
}

WX_FN float wx_exp_f32(float x) {
  float a, b;
  x = wx_at_most_f32(x, wx_exp_most_f32);
  x = wx_at_least_f32(x, wx_exp_least_f32);
  float q = wx_exp_parts_f32(x, &a, &b);
  return (q * a + a) * b;
}

/* The same, to the last bit, where x <= 0 or NaN: 2^(n + 64) is one factor, and 2^-64 never changes. */
WX_FN float wx_exp_below_f32(float x) {
  x = wx_at_least_f32(x, wx_exp_least_f32);
  float t = x * 0x1.715476p0f + (WX_ROUND_F32 + 191.0f);
  float a = wx_from_f32(wx_bits_f32(t) << 23);
  float q = wx_exp_rest_f32(x, t - (WX_ROUND_F32 + 191.0f));
  return (q * a + a) * 0x1p-64f;
}

/* q, a, b with e^x = (1 + q) a b, for -746 <= x <= 711, or NaN */
WX_FN double wx_exp_parts_f64(double x, double *a, double *b) {
  double t = x * 0x1.71547652b82fep0 + (WX_ROUND_F64 + 2046.0);
  wx_u64 i = wx_bits_f64(t), h = i >> 1;
  double n = t - (WX_ROUND_F64 + 2046.0);
  double r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
  double p = 0x1.ade01ece04aa1p-26;
  p = p * r + 0x1.28aed7e26884dp-22;
  p = p * r + 0x1.71deef7f35bfp-19;
  p = p * r + 0x1.a019989034c25p-16;
  p = p * r + 0x1.a01a013f1e35dp-13;
  p = p * r + 0x1.6c16c184b4473p-10;
  p = p * r + 0x1.1111111124893p-7;
  p = p * r + 0x1.5555555550609p-5;
  p = p * r + 0x1.5555555555504p-3;
  p = p * r + 0x1.000000000000ap-1;
  *a = wx_from_f64(h << 52);
  *b = wx_from_f64((i - h) << 52);
  return p * (r * r) + r;
}

WX_FN double wx_exp_f64(double x) {
  double a, b;
  x = wx_at_most_f64(x, wx_exp_most_f64);
  x = wx_at_least_f64(x, wx_exp_least_f64);
  double q = wx_exp_parts_f64(x, &a, &b);
  return (q + 1.0) * a * b;
}

/* 2^x = 2^n (1 + r p(r)), |r| <= 1/2 */
WX_FN float wx_exp2_f32(float x) {
  x = wx_at_most_f32(x, wx_exp2_most_f32);
  x = wx_at_least_f32(x, wx_exp2_least_f32);
  float t = x + (WX_ROUND_F32 + 254.0f);
  wx_u32 i = wx_bits_f32(t), h = i >> 1;
  float r = x - (t - (WX_ROUND_F32 + 254.0f));
  float p = 0x1.4bc3f4p-13f;
  p = p * r + 0x1.5fbff4p-10f;
  p = p * r + 0x1.3b21cap-7f;
  p = p * r + 0x1.c6ada6p-5f;
  p = p * r + 0x1.ebfbe6p-3f;
  p = p * r + 0x1.62e432p-1f;
  return (p * r + 1.0f) * wx_from_f32(h << 23) * wx_from_f32((i - h) << 23);
}

/* 2^(high + low), |low| far below 1, for -1076 <= high <= 1025, or NaN */
WX_FN double wx_exp2_sum_f64(double high, double low) {
  double t = high + (WX_ROUND_F64 + 2046.0);
  wx_u64 i = wx_bits_f64(t), h = i >> 1;
  double r = (high - (t - (WX_ROUND_F64 + 2046.0))) + low;
  double p = 0x1.b9f6ab2d36f84p-32;
  p = p * r + 0x1.e60ad59148651p-28;
  p = p * r + 0x1.b5456e46e89d4p-24;
  p = p * r + 0x1.62bfd238ec634p-20;
  p = p * r + 0x1.ffcbec6a30fc8p-17;
  p = p * r + 0x1.4309130a26873p-13;
  p = p * r + 0x1.5d87fe7c16672p-10;
  p = p * r + 0x1.3b2ab6fba1b41p-7;
  p = p * r + 0x1.c6b08d7048d6dp-5;
  p = p * r + 0x1.ebfbdff82c599p-3;
  p = p * r + 0x1.62e42fefa39f3p-1;
  return (p * r + 1.0) * wx_from_f64(h << 52) * wx_from_f64((i - h) << 52);
}

WX_FN double wx_exp2_f64(double x) {
  x = wx_at_most_f64(x, wx_exp2_most_f64);
  x = wx_at_least_f64(x, wx_exp2_least_f64);
  return wx_exp2_sum_f64(x, 0.0);
}

/* ---- e^x - 1 = 2^n (e^r - 1) + (2^n - 1) ---- */

/* (e^x - 1) 2^-k, for -20 <= x and n - k <= 127, or NaN; k is a constant; -0 gives +0 */
WX_FN float wx_expm1_over_f32(float x, int k) {
  float bias = WX_ROUND_F32 + (float)(127 - k);
  float t = x * 0x1.715476p0f + bias;
  float s = wx_from_f32(wx_bits_f32(t) << 23);
  float n = t - bias;
  float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6ab24p-10f;
  p = p * r + 0x1.122c8ep-7f;
  p = p * r + 0x1.55579ep-5f;
  p = p * r + 0x1.5554aap-3f;
  p = p * r + 0x1.fffffep-2f;
  p = p * (r * r) + r;
  return p * s + (s - wx_from_f32((wx_u32)(127 - k) << 23));
}

WX_FN float wx_expm1_f32(float x) {
  float c = wx_at_most_f32(x, wx_exp_most_f32);
  c = wx_at_least_f32(c, wx_expm1_least_f32);
  float y = 2.0f * wx_expm1_over_f32(c, 1);
  return x == 0.0f ? x : y;
}

/* r and *p, *s with e^x - 1 = 2^k (s (p + r) + (s - 2^-k)), for -40 <= x and n - k <= 1023, or NaN; k is a constant */
WX_FN double wx_expm1_parts_f64(double x, int k, double *s, double *q) {
  double bias = WX_ROUND_F64 + (double)(1023 - k);
  double t = x * 0x1.71547652b82fep0 + bias;
  double n = t - bias;
  double r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
  *s = wx_from_f64(wx_bits_f64(t) << 52);
  double p = 0x1.1f319582b3853p-29;
  p = p * r + 0x1.af5cd6e339c8bp-26;
  p = p * r + 0x1.27e4fc8dfed5dp-22;
  p = p * r + 0x1.71ddf9500774bp-19;
  p = p * r + 0x1.a01a019d1372cp-16;
  p = p * r + 0x1.a01a01af963c5p-13;
  p = p * r + 0x1.6c16c16c16a5cp-10;
  p = p * r + 0x1.111111110f70dp-7;
  p = p * r + 0x1.5555555555559p-5;
  p = p * r + 0x1.5555555555559p-3;
  p = p * r + 0x1p-1;
  *q = p * (r * r);
  return r;
}

WX_FN double wx_expm1_f64(double x) {
  double c = wx_at_least_f64(x, wx_expm1_least_f64);
  c = wx_at_most_f64(c, wx_exp_most_f64);
  double s, p, r = wx_expm1_parts_f64(c, 1, &s, &p);
  double y = 2.0 * ((p + r) * s + (s - 0.5));
  return x == 0.0 ? x : y;
}

/* ---- hyperbolic functions, of a = |x| ---- */

/* |x| < 0.3: x + x p(x^2); else tanh a = E / (E + 2), E = e^2a - 1 */
WX_FN float wx_tanh_f32(float x) {
  float a = wx_abs_f32(x), z = x * x;
  float p = -0x1.9ab60ep-5f;
  p = p * z + 0x1.10a308p-3f;
  p = p * z - 0x1.555478p-2f;
  p = p * (z * a) + a;
  float c = wx_at_most_f32(a, wx_tanh_most_f32);
  float e = wx_expm1_over_f32(c + c, 0);
  return wx_signed_f32(a < 0.3f ? p : e / (e + 2.0f), x);
}

/* E / (E + 2), E = e^2a - 1; where E is small, what rounding of E + 2 loses goes into E before it is rounded */
WX_FN double wx_tanh_f64(double x) {
  double a = wx_abs_f64(x);
  a = wx_at_most_f64(a, wx_tanh_most_f64);
  double s, p, r = wx_expm1_parts_f64(a + a, 0, &s, &p);
  double e = (p + r) * s + (s - 1.0), d = e + 2.0;
  double u = wx_from_f64(0x7fe0000000000000ull - wx_bits_f64(s)); /* 1 / s */
  p = p + ((d - 2.0) - e) * (e * u) * 0.4375 + r; /* 1 / d, about */
  double g = p * s + (s - 1.0);
  return wx_signed_f64((d > 3.5 ? e : g) / d, x);
}

/* |x| < 1: x + x^3 p(x^2); else (e^a - 1 / e^a) / 2 */
WX_FN float wx_sinh_f32(float x) {
  float a, b, c = wx_abs_f32(x), z = x * x;
  float p = 0x1.756c12p-19f;
  p = p * z + 0x1.a022bcp-13f;
  p = p * z + 0x1.1110ep-7f;
  p = p * z + 0x1.555556p-3f;
  p = p * (z * c) + c;
  int small = c < 1.0f;
  c = wx_at_most_f32(c, wx_sinh_most_f32);
  float q = wx_exp_parts_f32(c, &a, &b);
  float e = (q + 1.0f) * (0.25f * a) * b;
  return wx_signed_f32(small ? p : 2.0f * (e - 0.0625f / e), x);
}

WX_FN double wx_sinh_f64(double x) {
  double a, b, c = wx_abs_f64(x), z = x * x;
  double p = 0x1.d2959c0332919p-48;
  p = p * z + 0x1.a6658226e7bcap-41;
  p = p * z + 0x1.61314d181e5d2p-33;
  p = p * z + 0x1.ae644122e1511p-26;
  p = p * z + 0x1.71de3a68d0054p-19;
  p = p * z + 0x1.a01a01a00735cp-13;
  p = p * z + 0x1.111111111119bp-7;
  p = p * z + 0x1.5555555555555p-3;
  p = p * (z * c) + c;
  int small = c < 1.0;
  c = wx_at_most_f64(c, wx_sinh_most_f64);
  double q = wx_exp_parts_f64(c, &a, &b);
  double e = (q + 1.0) * (0.25 * a) * b;
  return wx_signed_f64(small ? p : 2.0 * (e - 0.0625 / e), x);
}

/* (e^a + 1 / e^a) / 2 */
WX_FN float wx_cosh_f32(float x) {
  float a, b, c = wx_abs_f32(x);
  c = wx_at_most_f32(c, wx_sinh_most_f32);
  float q = wx_exp_parts_f32(c, &a, &b);
  float e = (q + 1.0f) * (0.25f * a) * b;
  return 2.0f * (e + 0.0625f / e);
}

WX_FN double wx_cosh_f64(double x) {
  double a, b, c = wx_abs_f64(x);
  c = wx_at_most_f64(c, wx_sinh_most_f64);
  double q = wx_exp_parts_f64(c, &a, &b);
  double e = (q + 1.0) * (0.25 * a) * b;
  return 2.0 * (e + 0.0625 / e);
}

/* ---- sigmoid = (1 or e) / (1 + e), e = e^-|x|: nothing overflows; what rounding of 1 + e loses goes into e ---- */

WX_FN float wx_sigmoid_f32(float x) {
  float a, b, z = -wx_abs_f32(x);
  z = wx_at_least_f32(z, wx_exp_least_f32);
  float q = wx_exp_parts_f32(z, &a, &b);
  float d = 1.0f + (q + 1.0f) * a * b;
  float e = (q + ((d - 1.0f) - (q + 1.0f) * a * b) + 1.0f) * a * b;
  return (x < 0.0f ? e : 1.0f) / d;
}

WX_FN double wx_sigmoid_f64(double x) {
  double a, b, z = -wx_abs_f64(x);
  z = wx_at_least_f64(z, wx_exp_least_f64);
  double q = wx_exp_parts_f64(z, &a, &b);
  double d = 1.0 + (q + 1.0) * a * b;
  double e = (q + ((d - 1.0) - (q + 1.0) * a * b) + 1.0) * a * b;
  return (x < 0.0 ? e : 1.0) / d;
}

/* ---- erf: |x| < 1: x + x p(x^2); else 1 - 2^u, u = log2(1 - erf|x|) as a polynomial of |x|, 2^r = 1 + ... ---- */

WX_FN float wx_erf_f32(float x) {
  float a = wx_abs_f32(x), z = x * x;
  float p = -0x1.269a48p-11f;
  p = p * z + 0x1.421808p-8f;
  p = p * z - 0x1.b59a38p-6f;
  p = p * z + 0x1.ce088cp-4f;
  p = p * z - 0x1.81267p-2f;
  p = p * z + 0x1.06eba2p-3f;
  p = p * x + x;
  float c = wx_at_most_f32(a, wx_erf_most_f32);
  float u = 0x1.18b68cp-12f;
  u = u * c - 0x1.15ed28p-8f;
  u = u * c + 0x1.01b434p-5f;
  u = u * c - 0x1.306fd6p-3f;
  u = u * c - 0x1.d76e98p-1f;
  u = u * c - 0x1.a03fe2p+0f;
  u = u * c - 0x1.0b94aep-11f;
  float t = u + (WX_ROUND_F32 + 127.0f);
  float r = u - (t - (WX_ROUND_F32 + 127.0f));
  float q = 0x1.4bc3f4p-13f;
  q = q * r + 0x1.5fbff4p-10f;
  q = q * r + 0x1.3b21cap-7f;
  q = q * r + 0x1.c6ada6p-5f;
  q = q * r + 0x1.ebfbe6p-3f;
  q = q * r + 0x1.62e432p-1f;
  q = 1.0f - (q * r + 1.0f) * wx_from_f32(wx_bits_f32(t) << 23);
  return a < 1.0f ? p : wx_signed_f32(q, x);
}

WX_FN double wx_erf_f64(double x) {
  double a = wx_abs_f64(x), z = x * x;
  double p = -0x1.a2448787baec7p-31;
  p = p * z + 0x1.d3df95e71fa84p-27;
  p = p * z - 0x1.5b8caa653d858p-23;
  p = p * z + 0x1.b96b5ffc81df1p-20;
  p = p * z - 0x1.f4c82fb8df04ap-17;
  p = p * z + 0x1.f9a296bdcfcebp-14;
  p = p * z - 0x1.c02daeb74d523p-11;
  p = p * z + 0x1.565bcceedb78cp-8;
  p = p * z - 0x1.b82ce311a9826p-6;
  p = p * z + 0x1.ce2f21a03f8b9p-4;
  p = p * z - 0x1.812746b03799dp-2;
  p = p * z + 0x1.06eba8214db68p-3;
  p = p * x + x;
  double c = wx_at_most_f64(a, wx_erf_most_f64);
  double u = -0x1.edb5aab1aa3cep-38;
  u = u * c + 0x1.405ce671fc5d8p-32;
  u = u * c - 0x1.818901c64c2c8p-28;
  u = u * c + 0x1.1c889a45218d4p-24;
  u = u * c - 0x1.1e2ab2fa53359p-21;
  u = u * c + 0x1.99658bbf81b22p-19;
  u = u * c - 0x1.9f2f0458da759p-17;
  u = u * c + 0x1.109d5ee97cc17p-15;
  u = u * c - 0x1.d821699771071p-16;
  u = u * c - 0x1.9d41b4b479024p-13;
  u = u * c + 0x1.246158bddac99p-10;
  u = u * c - 0x1.6ae0f88fb64a6p-9;
  u = u * c + 0x1.38d6bde55be26p-11;
  u = u * c + 0x1.c0d25196c61f1p-6;
  u = u * c - 0x1.2f72bb76852b9p-3;
  u = u * c - 0x1.d6436f278be36p-1;
  u = u * c - 0x1.a0be068a1efebp+0;
  u = u * c - 0x1.8da83877f20cbp-21;
  double t = u + (WX_ROUND_F64 + 1023.0);
  double r = u - (t - (WX_ROUND_F64 + 1023.0));
  double q = 0x1.b9f6ab2d36f84p-32;
  q = q * r + 0x1.e60ad59148651p-28;
  q = q * r + 0x1.b5456e46e89d4p-24;
  q = q * r + 0x1.62bfd238ec634p-20;
  q = q * r + 0x1.ffcbec6a30fc8p-17;
  q = q * r + 0x1.4309130a26873p-13;
  q = q * r + 0x1.5d87fe7c16672p-10;
  q = q * r + 0x1.3b2ab6fba1b41p-7;
  q = q * r + 0x1.c6b08d7048d6dp-5;
  q = q * r + 0x1.ebfbdff82c599p-3;
  q = q * r + 0x1.62e42fefa39f3p-1;
  q = 1.0 - (q * r + 1.0) * wx_from_f64(wx_bits_f64(t) << 52);
  return a < 1.0 ? p : wx_signed_f64(q, x);
}

/* ---- logarithms: x = 2^e m, 11/16 <= m < 11/8 (f32) or sqrt(1/2) <= m < sqrt 2 (f64), f = m - 1 ---- */

/* y where x is positive and finite; elsewhere what a logarithm gives */
WX_FN float wx_log_edges_f32(float x, float y) {
  float s = x == 0.0f ? -WX_INF_F32 : WX_NAN_F32;
  float b = x < WX_INF_F32 ? y : x;
  return x > 0.0f ? b : s;
}

WX_FN double wx_log_edges_f64(double x, double y) {
  double s = x == 0.0 ? -WX_INF_F64 : WX_NAN_F64;
  double b = x < WX_INF_F64 ? y : x;
  return x > 0.0 ? b : s;
}

/* f and *e, for finite x > 0 */
WX_FN float wx_log_parts_f32(float x, float *e) {
  int tiny = x < 0x1p-126f;
  wx_u32 i = wx_bits_f32(tiny ? x * 0x1p23f : x) + 0x00500000u;
  *e = (float)(int)(i >> 23) - (tiny ? 150.0f : 127.0f);
  return wx_from_f32((i & 0x007fffffu) + 0x3f300000u) - 1.0f;
}

WX_FN double wx_log_parts_f64(double x, double *e) {
  int tiny = x < 0x1p-1022;
  wx_u64 i = wx_bits_f64(tiny ? x * 0x1p54 : x) + 0x00095f619980c433ull;
  *e = wx_from_f64((i >> 52) | 0x4330000000000000ull) - (0x1p52 + (tiny ? 1077.0 : 1023.0));
  return wx_from_f64((i & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
}

/* e ln 2 + log(1 + f) */
WX_FN float wx_log_sum_f32(float e, float f) {
  float p = -0x1.17aff6p-3f;
  p = p * f + 0x1.342d52p-3f;
  p = p * f - 0x1.eed1f2p-4f;
  p = p * f + 0x1.1a973ap-3f;
  p = p * f - 0x1.55aebap-3f;
  p = p * f + 0x1.9a0fe6p-3f;
  p = p * f - 0x1.fffef2p-3f;
  p = p * f + 0x1.55548p-2f;
  float z = f * f;
  return e * 0x1.62e4p-1f + (f + (z * (p * f - 0.5f) + e * 0x1.7f7d1cp-20f));
}

/* r with log(1 + f) = f - h + r, h = f^2 / 2 */
WX_FN double wx_log1p_rest_f64(double f, double h) {
  double s = f / (2.0 + f), z = s * s;
  double p = 0x1.2f03846efbbf7p-3;
  p = p * z + 0x1.39a1f03690b18p-3;
  p = p * z + 0x1.74663c928dc7ap-3;
  p = p * z + 0x1.c71c5216411b2p-3;
  p = p * z + 0x1.24924941def63p-2;
  p = p * z + 0x1.999999997ff3ap-2;
  p = p * z + 0x1.5555555555592p-1;
  return s * (p * z + h);
}

WX_FN double wx_log_sum_f64(double e, double f) {
  double h = 0.5 * (f * f);
  return e * 0x1.62e42fefa38p-1 + (f - (h - (wx_log1p_rest_f64(f, h) + e * 0x1.ef35793c7673p-45)));
}

WX_FN float wx_log_f32(float x) {
  float e, f = wx_log_parts_f32(x, &e);
  return wx_log_edges_f32(x, wx_log_sum_f32(e, f));
}

WX_FN double wx_log_f64(double x) {
  double e, f = wx_log_parts_f64(x, &e);
  return wx_log_edges_f64(x, wx_log_sum_f64(e, f));
}

/* log2(1 + f) = f + f p(f) */
WX_FN float wx_log2_f32(float x) {
  float e, f = wx_log_parts_f32(x, &e);
  float p = 0x1.9fb4bcp-4f;
  p = p * f - 0x1.688a8p-3f;
  p = p * f + 0x1.62fc4p-3f;
  p = p * f - 0x1.6bf71p-3f;
  p = p * f + 0x1.a34f9p-3f;
  p = p * f - 0x1.ec9cccp-3f;
  p = p * f + 0x1.2785p-2f;
  p = p * f - 0x1.715436p-2f;
  p = p * f + 0x1.ec706cp-2f;
  p = p * f - 0x1.715476p-1f;
  p = p * f + 0x1.c551dap-2f;
  return wx_log_edges_f32(x, e + (p * f + f));
}

WX_FN double wx_log2_f64(double x) {
  double e, f = wx_log_parts_f64(x, &e);
  double h = 0.5 * (f * f), high = wx_high_f64(f - h);
  double low = ((f - high) - h) + wx_log1p_rest_f64(f, h);
  double v = high * 0x1.71547p0, w = e + v;
  double u = (low + high) * 0x1.94ae0bf85ddf4p-22 + low * 0x1.71547p0;
  return wx_log_edges_f64(x, w + (u + ((e - w) + v)));
}

/* log10(1 + f) = f p(f) */
WX_FN float wx_log10_f32(float x) {
  float e, f = wx_log_parts_f32(x, &e);
  float p = 0x1.f48f54p-6f;
  p = p * f - 0x1.b22278p-5f;
  p = p * f + 0x1.ab71e8p-5f;
  p = p * f - 0x1.b641f4p-5f;
  p = p * f + 0x1.f8e686p-5f;
  p = p * f - 0x1.28951p-4f;
  p = p * f + 0x1.63d74ap-4f;
  p = p * f - 0x1.bcb764p-4f;
  p = p * f + 0x1.287a58p-3f;
  p = p * f - 0x1.bcb7b2p-3f;
  p = p * f + 0x1.bcb7b2p-2f;
  return wx_log_edges_f32(x, e * 0x1.344p-2f + (p * f + e * 0x1.3509f8p-18f));
}

WX_FN double wx_log10_f64(double x) {
  double e, f = wx_log_parts_f64(x, &e);
  double h = 0.5 * (f * f), high = wx_high_f64(f - h);
  double low = ((f - high) - h) + wx_log1p_rest_f64(f, h);
  double v = high * 0x1.bcb7bp-2, g = e * 0x1.34413509f6p-2, w = g + v;
  double u = e * 0x1.9fef311f12b36p-42 + (low + high) * 0x1.526e50e32a6abp-26 + low * 0x1.bcb7bp-2;
  return wx_log_edges_f64(x, w + (u + ((g - w) + v)));
}

/* 1 + x = u + c exactly, u = 2^e (1 + f): log(1 + x) = e ln 2 + log(1 + f + c 2^-e) */
WX_FN float wx_log1p_f32(float x) {
  float u = 1.0f + x, v = u - 1.0f;
  float c = (1.0f - (u - v)) + (x - v);
  wx_u32 i = wx_bits_f32(u) + 0x00500000u;
  float e = (float)(int)(i >> 23) - 127.0f;
  float f = wx_from_f32((i & 0x007fffffu) + 0x3f300000u) - 1.0f;
  f = f + c * wx_from_f32(0x7f800000u - (i & 0x7f800000u)) * 0.5f;
  return wx_signed_f32(wx_log_edges_f32(u, wx_log_sum_f32(e, f)), x);
}

WX_FN double wx_log1p_f64(double x) {
  double u = 1.0 + x, v = u - 1.0;
  double c = (1.0 - (u - v)) + (x - v);
  wx_u64 i = wx_bits_f64(u) + 0x00095f619980c433ull;
  double e = wx_from_f64((i >> 52) | 0x4330000000000000ull) - (0x1p52 + 1023.0);
  double f = wx_from_f64((i & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
  f = f + c * wx_from_f64(0x7ff0000000000000ull - (i & 0x7ff0000000000000ull)) * 0.5;
  return wx_signed_f64(wx_log_edges_f64(u, wx_log_sum_f64(e, f)), x);
}

/* ---- inverse hyperbolic functions; float32 goes through float64 ---- */

WX_FN double wx_arcsinh_f64(double x) {
  double a = wx_abs_f64(x), z = a * a;
  double s = a > 0x1p28 ? a - 1.0 : a + z / (1.0 + WX_LIBM(sqrt)(z + 1.0));
  double y = wx_log1p_f64(s);
  return wx_signed_f64(a > 0x1p28 ? y + 0x1.62e42fefa39efp-1 : y, x);
}

WX_FN double wx_arccosh_f64(double x) {
  double t = x - 1.0;
  double s = x > 0x1p28 ? t : t + WX_LIBM(sqrt)(t * t + (t + t));
  double y = wx_log1p_f64(s);
  y = x > 0x1p28 ? y + 0x1.62e42fefa39efp-1 : y;
  return x < 1.0 ? WX_NAN_F64 : y;
}

WX_FN double wx_arctanh_f64(double x) {
  double a = wx_abs_f64(x);
  return wx_signed_f64(0.5 * wx_log1p_f64((a + a) / (1.0 - a)), x);
}

WX_FN float wx_arcsinh_f32(float x) { return (float)wx_arcsinh_f64((double)x); }
WX_FN float wx_arccosh_f32(float x) { return (float)wx_arccosh_f64((double)x); }
WX_FN float wx_arctanh_f32(float x) { return (float)wx_arctanh_f64((double)x); }

/* ---- sin, cos, tan: |x| = k pi/2 + r, |r| <= pi/4; pi/2 in parts whose products with k are exact.
   Beyond WX_TRIG_LIMIT in size they give NaN: a kernel that meets such an x runs the loop again with wx_far_...,
   which take any x ---- */

#define WX_TRIG_LIMIT_F32 0x1p17f
#define WX_TRIG_LIMIT_F64 0x1p30
#define WX_FOURS_F64 0x1.8p54 /* x + WX_FOURS rounds x to a multiple of 4, of |x| < 2^52 */

/* r; *k ends in the bits of k */
WX_FN double wx_quarter_turns_f32(float x, wx_u32 *k) {
  float a = wx_abs_f32(x);
  double d = (double)(a <= WX_TRIG_LIMIT_F32 ? a : WX_NAN_F32);
  double t = d * 0x1.45f306dc9c883p-1 + WX_ROUND_F64;
  double n = t - WX_ROUND_F64;
  *k = (wx_u32)wx_bits_f64(t);
  return (d - n * 0x1.921fb54p+0) - n * 0x1.10b4611a62633p-30;
}

/* The same for any x. Of 2/pi only those bits matter whose products with x are no multiples of 4 (M. Payne and
   R. Hanek): 29 bits, the next 29, and the rest, from one of four places on, so that the first two products are exact. */
WX_FN double wx_far_quarter_turns_f32(float x, wx_u32 *k) {
  double a = (double)wx_abs_f32(x);
  double c0 = a < 0x1p51 ? 0x1.45f306dp-1 : 0x1.727220ap-27;
  double c1 = a < 0x1p51 ? 0x1.9391054p-30 : 0x1.29fc275p-56;
  double c2 = a < 0x1p51 ? 0x1.4fe13abe8fa9ap-59 : 0x1.f47d4d377036ep-86;
  double d0 = a < 0x1p103 ? 0x1.4a7f09cp-54 : 0x1.abe8fa9p-79;
  double d1 = a < 0x1p103 ? 0x1.5f47d4dp-82 : 0x1.4ddc0dbp-108;
  double d2 = a < 0x1p103 ? 0x1.bb81b6c52b328p-113 : 0x1.8a5664f10e41p-138;
  c0 = a * (a < 0x1p77 ? c0 : d0);
  c1 = a * (a < 0x1p77 ? c1 : d1);
  c2 = a * (a < 0x1p77 ? c2 : d2);
  c0 = c0 - ((c0 + WX_FOURS_F64) - WX_FOURS_F64);
  c1 = c1 - ((c1 + WX_FOURS_F64) - WX_FOURS_F64);
  double t = ((c0 + c1) + c2) + WX_ROUND_F64;
  double n = t - WX_ROUND_F64;
  *k = (wx_u32)wx_bits_f64(t);
  return (((c0 - n) + c1) + c2) * 0x1.921fb54442d18p+0;
}

/* sine where turn is even, cosine where it is odd; negative where bit 1 of turn is set */
WX_FN float wx_sincos_f32(float r, wx_u32 turn) {
  float z = r * r;
  float s = -0x1.99540ap-13f;
  s = s * z + 0x1.110778p-7f;
  s = s * z - 0x1.555546p-3f;
  s = s * (z * r) + r;
  float c = 0x1.9b2f66p-16f;
  c = c * z - 0x1.6c114cp-10f;
  c = c * z + 0x1.555554p-5f;
  c = c * (z * z) + (1.0f - 0.5f * z);
  float y = (turn & 1u) != 0u ? c : s;
  return wx_from_f32(wx_bits_f32(y) ^ ((turn & 2u) << 30));
}

/* The same rounded to float32. x 2/pi rounded may be the turn beside the nearest, by so little that |r| < 0.791. x minus
   the first part is exact, and what is left is rounded once; the third part matters where that is small. */
WX_FN float wx_few_quarter_turns_f32(float x, wx_u32 *k) {
#if defined(__CUDACC__) || defined(__FMA__) || defined(__aarch64__)
  float a = wx_abs_f32(x);
  a = a <= WX_TRIG_LIMIT_F32 ? a : WX_NAN_F32;
  float t = WX_LIBM(fmaf)(a, 0x1.45f306p-1f, WX_ROUND_F32);
  float n = t - WX_ROUND_F32;
  *k = wx_bits_f32(t);
  float r = WX_LIBM(fmaf)(n, -0x1.921fb6p+0f, a);
  r = WX_LIBM(fmaf)(n, 0x1.777a5cp-25f, r);
  return WX_LIBM(fmaf)(n, 0x1.ee59dap-50f, r);
#else
  return (float)wx_quarter_turns_f32(x, k);
#endif
}

WX_FN float wx_sin_f32(float x) {
  wx_u32 k;
  float r = wx_few_quarter_turns_f32(x, &k);
  float y = wx_sincos_f32(r, k);
  return wx_from_f32(wx_bits_f32(y) ^ (wx_bits_f32(x) & WX_SIGN_F32));
}

WX_FN float wx_cos_f32(float x) {
  wx_u32 k;
  float r = wx_few_quarter_turns_f32(x, &k);
  return wx_sincos_f32(r, k + 1u);
}

WX_FN float wx_sine_over_cosine_f32(double r, wx_u32 turn) {
  double z = r * r;
  double s = 0x1.6cd2045ee7736p-19;
  s = s * z - 0x1.a00f7f7cbc086p-13;
  s = s * z + 0x1.1111086ad8e39p-7;
  s = s * z - 0x1.5555554c729f6p-3;
  s = s * (z * r) + r;
  double c = -0x1.2463d70345244p-22;
  c = c * z + 0x1.a0118a60ba912p-16;
  c = c * z - 0x1.6c16b82a66402p-10;
  c = c * z + 0x1.5555554ed9d46p-5;
  c = c * (z * z) + (1.0 - 0.5 * z);
  int odd = (turn & 1u) != 0u;
  return (float)((odd ? -c : s) / (odd ? s : c));
}

WX_FN float wx_tan_f32(float x) {
  wx_u32 k;
  double r = wx_quarter_turns_f32(x, &k);
  float y = wx_sine_over_cosine_f32(r, k);
  return wx_from_f32(wx_bits_f32(y) ^ (wx_bits_f32(x) & WX_SIGN_F32));
}

WX_FN float wx_far_sin_f32(float x) {
  wx_u32 k;
  float r = (float)wx_far_quarter_turns_f32(x, &k);
  float y = wx_sincos_f32(r, k);
  return wx_from_f32(wx_bits_f32(y) ^ (wx_bits_f32(x) & WX_SIGN_F32));
}

WX_FN float wx_far_cos_f32(float x) {
  wx_u32 k;
  float r = (float)wx_far_quarter_turns_f32(x, &k);
  return wx_sincos_f32(r, k + 1u);
}

WX_FN float wx_far_tan_f32(float x) {
  wx_u32 k;
  double r = wx_far_quarter_turns_f32(x, &k);
  float y = wx_sine_over_cosine_f32(r, k);
  return wx_from_f32(wx_bits_f32(y) ^ (wx_bits_f32(x) & WX_SIGN_F32));
}

/* r + *low */
WX_FN double wx_quarter_turns_f64(double x, wx_u64 *k, double *low) {
  double a = wx_abs_f64(x);
  a = a <= WX_TRIG_LIMIT_F64 ? a : WX_NAN_F64;
  double t = a * 0x1.45f306dc9c883p-1 + WX_ROUND_F64;
  double n = t - WX_ROUND_F64;
  *k = wx_bits_f64(t);
  double r = (a - n * 0x1.921fb4p+0) - n * 0x1.4442dp-24;
  double r3 = r - n * 0x1.846988p-48;
  double e3 = (r - r3) - n * 0x1.846988p-48;
  double r4 = r3 - n * 0x1.8cc514p-72;
  double e4 = (r3 - r4) - n * 0x1.8cc514p-72;
  *low = (e3 + e4) - n * 0x1.80dc1cd129025p-95;
  return r4;
}

WX_FN double wx_sin_between_f64(double r, double low) {
  double z = r * r;
  double s = 0x1.5d8b5a2b85db6p-33;
  s = s * z - 0x1.ae5e4b8d251cdp-26;
  s = s * z + 0x1.71de355530c35p-19;
  s = s * z - 0x1.a01a019be923p-13;
  s = s * z + 0x1.111111110f73p-7;
  s = s * z - 0x1.5555555555548p-3;
  return r + (s * (z * r) + low * (1.0 - 0.5 * z));
}

WX_FN double wx_cos_between_f64(double r, double low) {
  double z = r * r, h = 0.5 * z, w = 1.0 - h;
  double c = -0x1.827bca035c04ap-37;
  c = c * z + 0x1.1ed20ce05affcp-29;
  c = c * z - 0x1.27e4d8a4f54a7p-22;
  c = c * z + 0x1.a01a01795ae7bp-16;
  c = c * z - 0x1.6c16c16c06dafp-10;
  c = c * z + 0x1.555555555554bp-5;
  return w + (((1.0 - w) - h) + (c * (z * z) - r * low));
}

WX_FN double wx_sincos_f64(double r, double low, wx_u64 turn) {
  double s = wx_sin_between_f64(r, low), c = wx_cos_between_f64(r, low);
  wx_u64 odd = 0u - (turn & 1u); /* bits choose, as plain SSE2 has no 64-bit comparison */
  wx_u64 y = (wx_bits_f64(c) & odd) | (wx_bits_f64(s) & ~odd);
  return wx_from_f64(y ^ ((turn & 2u) << 62));
}

WX_FN double wx_sin_f64(double x) {
  wx_u64 k;
  double low, r = wx_quarter_turns_f64(x, &k, &low);
  double y = wx_sincos_f64(r, low, k);
  return wx_from_f64(wx_bits_f64(y) ^ (wx_bits_f64(x) & WX_SIGN_F64));
}

WX_FN double wx_cos_f64(double x) {
  wx_u64 k;
  double low, r = wx_quarter_turns_f64(x, &k, &low);
  return wx_sincos_f64(r, low, k + 1u);
}

WX_FN double wx_tan_f64(double x) {
  wx_u64 k;
  double low, r = wx_quarter_turns_f64(x, &k, &low);
  double s = wx_sin_between_f64(r, low), c = wx_cos_between_f64(r, low);
  wx_u64 odd = 0u - (k & 1u), i = wx_bits_f64(s), j = wx_bits_f64(c);
  double n = wx_from_f64((i & ~odd) | ((j ^ WX_SIGN_F64) & odd)), d = wx_from_f64((i & odd) | (j & ~odd));
  double y = n / d;
  return wx_from_f64(wx_bits_f64(y) ^ (wx_bits_f64(x) & WX_SIGN_F64));
}

/* ---- inverse trigonometric functions ---- */

/* arctan t for 0 <= t <= 1, or NaN */
WX_FN float wx_arctan_unit_f32(float t) {
  float z = t * t;
  float p = -0x1.d333ap-10f;
  p = p * z + 0x1.6411dcp-7f;
  p = p * z - 0x1.fd6fbcp-6f;
  p = p * z + 0x1.da24b6p-5f;
  p = p * z - 0x1.580812p-4f;
  p = p * z + 0x1.c08c1ap-4f;
  p = p * z - 0x1.242084p-3f;
  p = p * z + 0x1.9991e4p-3f;
  p = p * z - 0x1.55553ep-2f;
  return p * (z * t) + t;
}

WX_FN double wx_arctan_unit_f64(double t) {
  double z = t * t;
  double p = 0x1.bc23f2f3bc18ep-17;
  p = p * z - 0x1.3f58a461db05ap-13;
  p = p * z + 0x1.b422fffe1d833p-11;
  p = p * z - 0x1.7a5685ce0a4bfp-9;
  p = p * z + 0x1.d7d5c03be501cp-8;
  p = p * z - 0x1.c7a4683c2666dp-7;
  p = p * z + 0x1.6847fa3b44aa9p-6;
  p = p * z - 0x1.ea036635c6b72p-6;
  p = p * z + 0x1.2c3165a747daap-5;
  p = p * z - 0x1.59a589336c80fp-5;
  p = p * z + 0x1.82db7393dff7ep-5;
  p = p * z - 0x1.ae5ea2a0ab348p-5;
  p = p * z + 0x1.e1bbb1aed305p-5;
  p = p * z - 0x1.110e5225e2437p-4;
  p = p * z + 0x1.3b1366bb18a77p-4;
  p = p * z - 0x1.745d11b16e9d4p-4;
  p = p * z + 0x1.c71c717ffc5dcp-4;
  p = p * z - 0x1.24924923801a9p-3;
  p = p * z + 0x1.99999999955e1p-3;
  p = p * z - 0x1.5555555555526p-2;
  return p * (z * t) + t;
}

WX_FN float wx_arctan_f32(float x) {
  float a = wx_abs_f32(x);
  float y = wx_arctan_unit_f32((a > 1.0f ? 1.0f : a) / (a > 1.0f ? a : 1.0f));
  return wx_signed_f32(a > 1.0f ? 0x1.921fb6p0f - (y + 0x1.777a5cp-25f) : y, x);
}

WX_FN double wx_arctan_f64(double x) {
  double a = wx_abs_f64(x);
  double y = wx_arctan_unit_f64((a > 1.0 ? 1.0 : a) / (a > 1.0 ? a : 1.0));
  return wx_signed_f64(a > 1.0 ? 0x1.921fb54442d18p0 - (y - 0x1.1a62633145c07p-54) : y, x);
}

WX_FN float wx_arctan2_f32(float y, float x) {
  float a = wx_abs_f32(x), b = wx_abs_f32(y);
  float n = a < b ? a : b, d = a < b ? b : a;
  float t = n == d ? (n == 0.0f ? 0.0f : 1.0f) : n / d;
  float r = wx_arctan_unit_f32(t);
  r = a < b ? 0x1.921fb6p0f - (r + 0x1.777a5cp-25f) : r;
  r = (wx_bits_f32(x) & WX_SIGN_F32) != 0u ? 0x1.921fb6p1f - (r + 0x1.777a5cp-24f) : r;
  r = x != x || y != y ? x + y : r;
  return wx_signed_f32(r, y);
}

WX_FN double wx_arctan2_f64(double y, double x) {
  double a = wx_abs_f64(x), b = wx_abs_f64(y);
  double n = a < b ? a : b, d = a < b ? b : a;
  double t = n == d ? (n == 0.0 ? 0.0 : 1.0) : n / d;
  double r = wx_arctan_unit_f64(t);
  r = a < b ? 0x1.921fb54442d18p0 - (r - 0x1.1a62633145c07p-54) : r;
  r = wx_signed_f64(1.0, x) < 0.0 ? 0x1.921fb54442d18p1 - (r - 0x1.1a62633145c07p-53) : r;
  r = x != x || y != y ? x + y : r;
  return wx_signed_f64(r, y);
}

/* a = |x| <= 0.55: t = a; else t = sqrt((1 - a) / 2), arcsin a = pi/2 - 2 arcsin t. Gives arcsin t. */
WX_FN float wx_arcsin_half_f32(float a) {
  float h = 0.5f * (1.0f - a);
  float t = a > 0.55f ? WX_LIBM(sqrtf)(h) : a, z = a > 0.55f ? h : a * a;
  float p = 0x1.731208p-5f;
  p = p * z + 0x1.190a96p-7f;
  p = p * z + 0x1.11f7f6p-5f;
  p = p * z + 0x1.6afee8p-5f;
  p = p * z + 0x1.334442p-4f;
  p = p * z + 0x1.555532p-3f;
  return p * (z * t) + t;
}

WX_FN double wx_arcsin_half_f64(double a) {
  double h = 0.5 * (1.0 - a);
  double t = a > 0.55 ? WX_LIBM(sqrt)(h) : a, z = a > 0.55 ? h : a * a;
  double p = 0x1.b0ce08918a0dcp-5;
  p = p * z - 0x1.fd4391d7fbbd1p-5;
  p = p * z + 0x1.c2e6282ecbaa7p-5;
  p = p * z - 0x1.d32690df8d40ap-7;
  p = p * z + 0x1.e655c2f2d15aep-7;
  p = p * z + 0x1.1399aa6f41303p-7;
  p = p * z + 0x1.811e35496fe9fp-7;
  p = p * z + 0x1.c8e74932ce631p-7;
  p = p * z + 0x1.1c555e3ee48dap-6;
  p = p * z + 0x1.6e8b4df634ef5p-6;
  p = p * z + 0x1.f1c71f33746edp-6;
  p = p * z + 0x1.6db6db66f0b4dp-5;
  p = p * z + 0x1.333333333b99ep-4;
  p = p * z + 0x1.555555555551bp-3;
  return p * (z * t) + t;
}

WX_FN float wx_arcsin_f32(float x) {
  float a = wx_abs_f32(x), y = wx_arcsin_half_f32(a);
  return wx_signed_f32(a > 0.55f ? 0x1.921fb6p0f - (2.0f * y + 0x1.777a5cp-25f) : y, x);
}

WX_FN double wx_arcsin_f64(double x) {
  double a = wx_abs_f64(x), y = wx_arcsin_half_f64(a);
  return wx_signed_f64(a > 0.55 ? 0x1.921fb54442d18p0 - (2.0 * y - 0x1.1a62633145c07p-54) : y, x);
}

WX_FN float wx_arccos_f32(float x) {
  float a = wx_abs_f32(x), y = wx_arcsin_half_f32(a);
  float near = x < 0.0f ? 0x1.921fb6p1f - (2.0f * y + 0x1.777a5cp-24f) : 2.0f * y;
  float s = x < 0.0f ? y : -y;
  return a > 0.55f ? near : 0x1.921fb6p0f + (s - 0x1.777a5cp-25f);
}

WX_FN double wx_arccos_f64(double x) {
  double a = wx_abs_f64(x), y = wx_arcsin_half_f64(a);
  double near = x < 0.0 ? 0x1.921fb54442d18p1 - (2.0 * y - 0x1.1a62633145c07p-53) : 2.0 * y;
  double s = x < 0.0 ? y : -y;
  return a > 0.55 ? near : 0x1.921fb54442d18p0 + (s + 0x1.1a62633145c07p-54);
}

/* ---- roots and reciprocals: by the machine's own division and square root, as NumPy does ---- */

WX_FN float wx_sqrt_f32(float x) { return WX_LIBM(sqrtf)(x); }
WX_FN double wx_sqrt_f64(double x) { return WX_LIBM(sqrt)(x); }
WX_FN float wx_rsqrt_f32(float x) { return 1.0f / WX_LIBM(sqrtf)(x); }
WX_FN double wx_rsqrt_f64(double x) { return 1.0 / WX_LIBM(sqrt)(x); }
WX_FN float wx_recip_f32(float x) { return 1.0f / x; }
WX_FN double wx_recip_f64(double x) { return 1.0 / x; }

/* A third of the exponent and a quartic give t within 2^-23; t short, so t * t is exact; one Newton step. */
WX_FN double wx_cbrt_f64(double x) {
  double a = wx_abs_f64(x);
  int tiny = a < 0x1p-1022;
  double c = tiny ? a * 0x1p54 : a;
  double k = wx_from_f64((wx_bits_f64(c) >> 32) | 0x4330000000000000ull) - 0x1p52;
  k = k * 0x1.5555555555555p-2 + (0x1p52 + (tiny ? 715094163.0 - 18874368.0 : 715094163.0));
  double t = wx_from_f64(wx_bits_f64(k) << 32);
  double r = (t * t) * (t / a);
  double p = 0x1.2782a818248p-3;
  p = p * r - 0x1.80d86765bddd9p-1;
  p = p * r + 0x1.9c867937203a1p+0;
  p = p * r - 0x1.e0deb870f6844p+0;
  p = p * r + 0x1.dfd41dd106ee9p+0;
  t = wx_from_f64((wx_bits_f64(t * p) + 0x80000000ull) & 0xffffffffc0000000ull);
  r = a / (t * t);
  r = (r - t) / (t + t + r);
  t = t * r + t;
  return wx_signed_f64(a > 0.0 && a < WX_INF_F64 ? t : a, x);
}

WX_FN float wx_cbrt_f32(float x) { return (float)wx_cbrt_f64((double)x); }

WX_FN float wx_hypot_f32(float x, float y) {
  double a = (double)x, b = (double)y;
  float r = (float)WX_LIBM(sqrt)(a * a + b * b);
  return wx_abs_f32(x) == WX_INF_F32 || wx_abs_f32(y) == WX_INF_F32 ? WX_INF_F32 : r;
}

/* scaled by a power of two, so that squares neither overflow nor vanish */
WX_FN double wx_hypot_f64(double x, double y) {
  double a = wx_abs_f64(x), b = wx_abs_f64(y);
  double m = a < b ? b : a;
  m = m > 0x1p1021 ? 0x1p1021 : m;
  m = m < 0x1p-1021 ? 0x1p-1021 : m;
  double up = wx_from_f64(wx_bits_f64(m) & 0x7ff0000000000000ull);
  double down = wx_from_f64(0x7fe0000000000000ull - wx_bits_f64(up));
  a = a * down;
  b = b * down;
  double r = WX_LIBM(sqrt)(a * a + b * b) * up;
  return wx_abs_f64(x) == WX_INF_F64 || wx_abs_f64(y) == WX_INF_F64 ? WX_INF_F64 : r;
}

/* ---- pow ---- */

/* r = |x|^y or any NaN, with the sign and the exceptions of IEEE 754's pow */
WX_FN float wx_pow_edges_f32(float x, float y, float r) {
  float a = wx_abs_f32(y);
  a = a > 0x1p25f ? 0x1p25f : a; /* even, as all larger floats */
  float h = 0.5f * a;
  float w = a > 0x1p23f ? a : (a + 0x1p23f) - 0x1p23f; /* a rounded */
  float g = h > 0x1p23f ? h : (h + 0x1p23f) - 0x1p23f;
  wx_u32 odd = g == h ? 0u : wx_bits_f32(x) & WX_SIGN_F32;
  odd = w == a ? odd : 0u;
  r = wx_abs_f32(x) == 1.0f ? 1.0f : r;
  r = wx_from_f32(wx_bits_f32(r) | odd);
  float n = w == a ? r : WX_NAN_F32;
  n = x > -WX_INF_F32 ? n : r;
  r = x < 0.0f ? n : r;
  r = x != x ? x : r;
  r = y != y ? y : r;
  r = x == 1.0f ? 1.0f : r;
  return y == 0.0f ? 1.0f : r;
}

/* in float64: log2 m = s p(s^2), s = f / (2 + f) */
WX_FN float wx_pow_f32(float x, float y) {
  double a = (double)wx_abs_f32(x), e, f = wx_log_parts_f64(a, &e);
  double s = f / (2.0 + f), z = s * s;
  double p = 0x1.21b2a714b181bp-2;
  p = p * z + 0x1.47953c93dcdccp-2;
  p = p * z + 0x1.a61a2f3d4d5b9p-2;
  p = p * z + 0x1.2776c292efccfp-1;
  p = p * z + 0x1.ec709dc53c82cp-1;
  p = p * z + 0x1.71547652b8251p+1;
  double v = (double)y * wx_log_edges_f64(a, p * s + e);
  v = v > 200.0 ? 200.0 : v;
  v = v < -200.0 ? -200.0 : v;
  double t = v + (WX_ROUND_F64 + 1023.0);
  double r = v - (t - (WX_ROUND_F64 + 1023.0));
  double q = 0x1.470ab57d2f9d7p-13;
  q = q * r + 0x1.5f72686a7b4e5p-10;
  q = q * r + 0x1.3b270dc3b6322p-7;
  q = q * r + 0x1.c6ae72dcb818ap-5;
  q = q * r + 0x1.ebfbe2c62bcaep-3;
  q = q * r + 0x1.62e431173deep-1;
  q = (q * r + 1.0) * wx_from_f64(wx_bits_f64(t) << 52);
  return wx_pow_edges_f32(x, y, (float)q);
}

WX_FN double wx_pow_edges_f64(double x, double y, double r) {
  double a = wx_abs_f64(y);
  a = a > 0x1p54 ? 0x1p54 : a;
  double h = 0.5 * a;
  double w = a > 0x1p52 ? a : (a + 0x1p52) - 0x1p52;
  double g = h > 0x1p52 ? h : (h + 0x1p52) - 0x1p52;
  wx_u64 odd = g == h ? 0u : wx_bits_f64(x) & WX_SIGN_F64;
  odd = w == a ? odd : 0u;
  r = wx_abs_f64(x) == 1.0 ? 1.0 : r;
  r = wx_from_f64(wx_bits_f64(r) | odd);
  double n = w == a ? r : WX_NAN_F64;
  n = x > -WX_INF_F64 ? n : r;
  r = x < 0.0 ? n : r;
  r = x != x ? x : r;
  r = y != y ? y : r;
  r = x == 1.0 ? 1.0 : r;
  return y == 0.0 ? 1.0 : r;
}

/* log2|x| = high + low: s = high + low too, log2 m = s (3 + s^2 + r) 2 / (3 ln 2), r = s^4 p(s^2) */
WX_FN double wx_pow_f64(double x, double y) {
  double a = wx_abs_f64(x), e, f = wx_log_parts_f64(a, &e);
  double d = 2.0 + f, v = 1.0 / d, s = f * v;
  double sh = wx_high_f64(s), dh = wx_high_f64(d), dl = f - (dh - 2.0);
  double sl = v * ((f - sh * dh) - sh * dl);
  double z = s * s;
  double p = 0x1.3a5f4e3761d65p-3;
  p = p * z + 0x1.439cd1f4bbcacp-3;
  p = p * z + 0x1.6953e315c3689p-3;
  p = p * z + 0x1.999a9b739f85dp-3;
  p = p * z + 0x1.d89d83e4573ccp-3;
  p = p * z + 0x1.1745d17e44176p-2;
  p = p * z + 0x1.5555555542da4p-2;
  p = p * z + 0x1.b6db6db6db7f5p-2;
  p = p * z + 0x1.3333333333333p-1;
  double r = p * (z * z) + sl * (sh + s), zh = sh * sh;
  double th = wx_high_f64(3.0 + zh + r), tl = r - ((th - 3.0) - zh);
  double u = sh * th, w = sl * th + tl * s;
  double ph = wx_high_f64(u + w), pl = w - (ph - u);
  double lh = 0x1.ec709p-1 * ph, ll = 0x1.b87407fae93f8p-22 * ph + pl * 0x1.ec709dc3a03fdp-1;
  double high = wx_high_f64(lh + ll + e), low = ll - ((high - e) - lh);
  double yh = wx_high_f64(y);
  double about = y * wx_log_edges_f64(a, high + low);
  double ah = yh * high, al = (y - yh) * high + y * low;
  int far = wx_abs_f64(about) > 1080.0;
  double end = about > 0.0 ? 1025.0 : -1076.0;
  ah = far ? end : ah;
  al = far ? 0.0 : al;
  return wx_pow_edges_f64(x, y, wx_exp2_sum_f64(ah, al));
}

/* ---- log(e^x + e^y) by the larger and the difference, as NumPy does ---- */

WX_FN float wx_logaddexp_f32(float x, float y) {
  float a, b, m = x > y ? x : y, d = -wx_abs_f32(x - y);
  d = wx_at_least_f32(d, wx_exp_least_f32);
  float q = wx_exp_parts_f32(d, &a, &b);
  float r = m + wx_log1p_f32((q + 1.0f) * a * b);
  return x == y ? x + 0x1.62e43p-1f : r; /* inf - inf is NaN */
}

WX_FN double wx_logaddexp_f64(double x, double y) {
  double a, b, m = x > y ? x : y, d = -wx_abs_f64(x - y);
  d = wx_at_least_f64(d, wx_exp_least_f64);
  double q = wx_exp_parts_f64(d, &a, &b);
  double r = m + wx_log1p_f64((q + 1.0) * a * b);
  return x == y ? x + 0x1.62e42fefa39efp-1 : r; /* inf - inf is NaN */
}

/* ---- fmod, exact: x - q y, q the integer nearest to x / y, and once more y where that is not of x's sign. NaN where
   x / y is beyond 2^21 (f32, or q would not be near enough) or 2^35 (f64, or q times parts of y would not be exact) ---- */

/* all bits where r is a number of the other sign than y, none where it is zero */
WX_FN wx_u32 wx_unlike_f32(float r, float y) {
  float z = r == 0.0f ? y : r;
  return 0u - ((wx_bits_f32(z) ^ wx_bits_f32(y)) >> 31);
}
WX_FN wx_u64 wx_unlike_f64(double r, double y) {
  double z = r == 0.0 ? y : r;
  return 0ull - ((wx_bits_f64(z) ^ wx_bits_f64(y)) >> 63);
}
/* r, which is x less some y, |r| < |y|, with x's sign */
WX_FN float wx_fmod_signed_f32(float x, float y, float r) {
  float more = wx_signed_f32(wx_abs_f32(y), x);
  r += wx_from_f32(wx_bits_f32(more) & wx_unlike_f32(r, x));
  return r == 0.0f ? wx_signed_f32(0.0f, x) : r;
}
WX_FN double wx_fmod_signed_f64(double x, double y, double r) {
  double more = wx_signed_f64(wx_abs_f64(y), x);
  r += wx_from_f64(wx_bits_f64(more) & wx_unlike_f64(r, x));
  return r == 0.0 ? wx_signed_f64(0.0, x) : r;
}

WX_FN float wx_fmod_f32(float x, float y) {
  float q = x / y + WX_ROUND_F32 - WX_ROUND_F32;
  double less = (double)q * (double)y;
  float r = q == 0.0f ? x : (float)((double)x - less);
  r = wx_fmod_signed_f32(x, y, r);
  return wx_abs_f32(x) > 0x1p21f * wx_abs_f32(y) ? WX_NAN_F32 : r;
}

/* x less the multiple of y that is nearest, of |x / y| <= 2^18 */
WX_FN double wx_less_f64(double x, double y) {
  double q = x / y + WX_ROUND_F64 - WX_ROUND_F64, h = wx_high_f64(y);
  return q == 0.0 ? x : (x - q * h) - q * (y - h);
}

WX_FN double wx_fmod_f64(double x, double y) {
  double by = wx_abs_f64(x) > 0x1p1000 ? 0x1p-30 : 1.0, a = x * by, b = y * by; /* q y does not overflow */
  double r = wx_less_f64(wx_less_f64(a, b * 0x1p18), b);
  r = wx_fmod_signed_f64(a, b, r) * (by < 1.0 ? 0x1p30 : 1.0);
  return wx_abs_f64(x) > 0x1p35 * wx_abs_f64(y) ? WX_NAN_F64 : r;
}

/* ---- remainders and quotients of floors as NumPy has them, from m = fmod(x, y) ---- */

WX_FN float wx_mod_by_f32(float m, float y) {
  float r = m + wx_from_f32(wx_bits_f32(y) & wx_unlike_f32(m, y));
  return r == 0.0f ? wx_signed_f32(0.0f, y) : r;
}
WX_FN double wx_mod_by_f64(double m, double y) {
  double r = m + wx_from_f64(wx_bits_f64(y) & wx_unlike_f64(m, y));
  return r == 0.0 ? wx_signed_f64(0.0, y) : r;
}
/* nearly an integer; zero with its sign; whatever x / 0 is */
WX_FN float wx_floordiv_by_f32(float x, float y, float m) {
  float d = (x - m) / y - wx_from_f32(0x3f800000u & wx_unlike_f32(m, y)), q = x / y;
  d = d == 0.0f ? wx_signed_f32(0.0f, q) : d;
  return y == 0.0f ? q : d;
}
WX_FN double wx_floordiv_by_f64(double x, double y, double m) {
  double d = (x - m) / y - wx_from_f64(0x3ff0000000000000ull & wx_unlike_f64(m, y)), q = x / y;
  d = d == 0.0 ? wx_signed_f64(0.0, q) : d;
  return y == 0.0 ? q : d;
}

WX_FN float wx_mod_f32(float x, float y) { return wx_mod_by_f32(wx_fmod_f32(x, y), y); }
WX_FN double wx_mod_f64(double x, double y) { return wx_mod_by_f64(wx_fmod_f64(x, y), y); }
WX_FN float wx_floordiv_f32(float x, float y) {
  float d = wx_floordiv_by_f32(x, y, wx_fmod_f32(x, y)), r = d + WX_ROUND_F32 - WX_ROUND_F32;
  return r != 0.0f ? r : d;
}
WX_FN double wx_floordiv_f64(double x, double y) {
  double d = wx_floordiv_by_f64(x, y, wx_fmod_f64(x, y)), r = d + WX_ROUND_F64 - WX_ROUND_F64;
  return r != 0.0 ? r : d;
}

/* ---- libm, one element at a time: the far ends of float64's sin, cos and tan, and of remainders ---- */

WX_FN double wx_far_sin_f64(double x) { return WX_LIBM(sin)(x); }
WX_FN double wx_far_cos_f64(double x) { return WX_LIBM(cos)(x); }
WX_FN double wx_far_tan_f64(double x) { return WX_LIBM(tan)(x); }
WX_FN float wx_far_fmod_f32(float x, float y) { return WX_LIBM(fmodf)(x, y); }
WX_FN double wx_far_fmod_f64(double x, double y) { return WX_LIBM(fmod)(x, y); }
WX_FN float wx_far_mod_f32(float x, float y) { return wx_mod_by_f32(wx_far_fmod_f32(x, y), y); }
WX_FN double wx_far_mod_f64(double x, double y) { return wx_mod_by_f64(wx_far_fmod_f64(x, y), y); }
WX_FN float wx_far_floordiv_f32(float x, float y) {
  float d = wx_floordiv_by_f32(x, y, wx_far_fmod_f32(x, y)), f = WX_LIBM(floorf)(d);
  return d != 0.0f ? f + (d - f > 0.5f ? 1.0f : 0.0f) : d;
}
WX_FN double wx_far_floordiv_f64(double x, double y) {
  double d = wx_floordiv_by_f64(x, y, wx_far_fmod_f64(x, y)), f = WX_LIBM(floor)(d);
  return d != 0.0 ? f + (d - f > 0.5 ? 1.0 : 0.0) : d;
}

#endif
