/* Scalar functions for generated kernels, in the common part of C11 and CUDA C++.

   Bodies have no branches, calls or tables, so a compiler turns a `#pragma omp simd` loop over them into vector code.
   NaN gives NaN, infinities and -0 are right, results underflow through the subnormals. Measured errors, and where each
   function differs from libm, stand in docs/functions.md. Nothing here may be compiled with -ffast-math: the rounding by
   adding and subtracting WX_ROUND and the NaN tests need IEEE arithmetic. Contraction of a * b + c is allowed
   everywhere, and needed nowhere.

   Polynomials are minimax fits (Remez) in the variable and range said in the function, with rounded leading terms. */
#ifndef WX_FUNCTIONS_H
#define WX_FUNCTIONS_H

typedef unsigned int wx_u32;
typedef unsigned long long wx_u64;

#ifdef __CUDACC__
#define WX_FN __device__ __forceinline__
WX_FN wx_u32 wx_bits_f32(float x) { return (wx_u32)__float_as_int(x); }
WX_FN float wx_from_f32(wx_u32 i) { return __int_as_float((int)i); }
WX_FN wx_u64 wx_bits_f64(double x) { return (wx_u64)__double_as_longlong(x); }
WX_FN double wx_from_f64(wx_u64 i) { return __longlong_as_double((long long)i); }
#define WX_SQRT_F32(x) sqrtf(x)
#define WX_SQRT_F64(x) sqrt(x)
#else
#define WX_FN static inline __attribute__((always_inline, unused))
WX_FN wx_u32 wx_bits_f32(float x) { wx_u32 i; __builtin_memcpy(&i, &x, 4); return i; }
WX_FN float wx_from_f32(wx_u32 i) { float x; __builtin_memcpy(&x, &i, 4); return x; }
WX_FN wx_u64 wx_bits_f64(double x) { wx_u64 i; __builtin_memcpy(&i, &x, 8); return i; }
WX_FN double wx_from_f64(wx_u64 i) { double x; __builtin_memcpy(&x, &i, 8); return x; }
#define WX_SQRT_F32(x) __builtin_sqrtf(x)
#define WX_SQRT_F64(x) __builtin_sqrt(x)
#endif
#define WX_AS_INT_F32 wx_bits_f32
#define WX_AS_FLOAT_F32 wx_from_f32
#define WX_AS_INT_F64 wx_bits_f64
#define WX_AS_FLOAT_F64 wx_from_f64

#define WX_INF_F32 wx_from_f32(0x7f800000u)
#define WX_NAN_F32 wx_from_f32(0x7fc00000u)
#define WX_INF_F64 wx_from_f64(0x7ff0000000000000ull)
#define WX_NAN_F64 wx_from_f64(0x7ff8000000000000ull)
#define WX_SIGN_F32 0x80000000u
#define WX_SIGN_F64 0x8000000000000000ull
/* x + WX_ROUND rounds x to an integer and leaves it in the low bits; of |x| < 2^21 (f32), 2^50 (f64). */
#define WX_ROUND_F32 0x1.8p23f
#define WX_ROUND_F64 0x1.8p52

WX_FN float wx_abs_f32(float x) { return wx_from_f32(wx_bits_f32(x) & ~WX_SIGN_F32); }
WX_FN double wx_abs_f64(double x) { return wx_from_f64(wx_bits_f64(x) & ~WX_SIGN_F64); }
/* y >= 0 (or NaN) with the sign of x */
WX_FN float wx_signed_f32(float y, float x) { return wx_from_f32(wx_bits_f32(y) | (wx_bits_f32(x) & WX_SIGN_F32)); }
WX_FN double wx_signed_f64(double y, double x) { return wx_from_f64(wx_bits_f64(y) | (wx_bits_f64(x) & WX_SIGN_F64)); }

/* ---- exp: x = n ln 2 + r, e^x = p(r) 2^(n/2) 2^(n - n/2); the two factors keep overflow and subnormals right ---- */

/* e^x for -104 <= x <= 89, or NaN */
WX_FN float wx_exp_between_f32(float x) {
  float t = x * 0x1.715476p0f + (WX_ROUND_F32 + 254.0f); /* n + twice the exponent bias */
  wx_u32 i = wx_bits_f32(t), h = i >> 1;
  float n = t - (WX_ROUND_F32 + 254.0f);
  float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6ac7e8p-10f;
  p = p * r + 0x1.123deap-7f;
  p = p * r + 0x1.555858p-5f;
  p = p * r + 0x1.55548cp-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * (r * r) + r + 1.0f;
  return p * wx_from_f32(h << 23) * wx_from_f32((i - h) << 23);
}

WX_FN float wx_exp_f32(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  return wx_exp_between_f32(x);
}

/* e^x for -746 <= x <= 710, or NaN */
WX_FN double wx_exp_between_f64(double x) {
  double t = x * 0x1.71547652b82fep0 + (WX_ROUND_F64 + 2046.0);
  wx_u64 i = wx_bits_f64(t), h = i >> 1;
  double n = t - (WX_ROUND_F64 + 2046.0);
  double r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
  double p = 0x1.ade01ece04aa1p-26;
  p = p * r + 0x1.28aed7e26884dp-22;
  p = p * r + 0x1.71deef7f35bf0p-19;
  p = p * r + 0x1.a019989034c25p-16;
  p = p * r + 0x1.a01a013f1e35dp-13;
  p = p * r + 0x1.6c16c184b4473p-10;
  p = p * r + 0x1.1111111124893p-7;
  p = p * r + 0x1.5555555550609p-5;
  p = p * r + 0x1.5555555555504p-3;
  p = p * r + 0x1.000000000000ap-1;
  p = p * (r * r) + r + 1.0;
  return p * wx_from_f64(h << 52) * wx_from_f64((i - h) << 52);
}

WX_FN double wx_exp_f64(double x) {
  x = x > 710.0 ? 710.0 : x;
  x = x < -746.0 ? -746.0 : x;
  return wx_exp_between_f64(x);
}

/* ---- tanh |x| = E / (E + 2), E = e^2|x| - 1 = 2^n (e^r - 1) + (2^n - 1) ---- */

/* e^x - 1 for 0 <= x <= 80, or NaN */
WX_FN float wx_expm1_positive_f32(float x) {
  float t = x * 0x1.715476p0f + (WX_ROUND_F32 + 127.0f);
  float s = wx_from_f32(wx_bits_f32(t) << 23);
  float n = t - (WX_ROUND_F32 + 127.0f);
  float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6ab24p-10f;
  p = p * r + 0x1.122c8ep-7f;
  p = p * r + 0x1.55579ep-5f;
  p = p * r + 0x1.5554aap-3f;
  p = p * r + 0x1.fffffep-2f;
  p = p * (r * r) + r;
  return p * s + (s - 1.0f);
}

WX_FN float wx_tanh_f32(float x) {
  float a = wx_abs_f32(x);
  a = a > 9.5f ? 9.5f : a;
  float e = wx_expm1_positive_f32(a + a);
  return wx_signed_f32(e / (e + 2.0f), x);
}

/* e^x - 1 for 0 <= x <= 600, or NaN */
WX_FN double wx_expm1_positive_f64(double x) {
  double t = x * 0x1.71547652b82fep0 + (WX_ROUND_F64 + 1023.0);
  double s = wx_from_f64(wx_bits_f64(t) << 52);
  double n = t - (WX_ROUND_F64 + 1023.0);
  double r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
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
  p = p * r + 0.5;
  p = p * (r * r) + r;
  return p * s + (s - 1.0);
}

WX_FN double wx_tanh_f64(double x) {
  double a = wx_abs_f64(x);
  a = a > 20.0 ? 20.0 : a;
  double e = wx_expm1_positive_f64(a + a);
  return wx_signed_f64(e / (e + 2.0), x);
}

/* ---- sigmoid = (1 or e) / (1 + e), e = e^-|x|: nothing overflows ---- */

WX_FN float wx_sigmoid_f32(float x) {
  float z = -wx_abs_f32(x);
  z = z < -104.0f ? -104.0f : z;
  float e = wx_exp_between_f32(z);
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

WX_FN double wx_sigmoid_f64(double x) {
  double z = -wx_abs_f64(x);
  z = z < -746.0 ? -746.0 : z;
  double e = wx_exp_between_f64(z);
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

/* ---- erf: |x| < 1: x + x p(x^2); else 1 - 2^u, u = log2(1 - erf|x|) as a polynomial of |x| ---- */

WX_FN float wx_erf_f32(float x) {
  float a = wx_abs_f32(x), z = x * x;
  float p = -0x1.269a48p-11f;
  p = p * z + 0x1.421808p-8f;
  p = p * z + -0x1.b59a38p-6f;
  p = p * z + 0x1.ce088cp-4f;
  p = p * z + -0x1.812670p-2f;
  p = p * z + 0x1.06eba2p-3f;
  p = p * x + x;
  float c = a > 4.0f ? 4.0f : a;
  float u = 0x1.18b68cp-12f;
  u = u * c + -0x1.15ed28p-8f;
  u = u * c + 0x1.01b434p-5f;
  u = u * c + -0x1.306fd6p-3f;
  u = u * c + -0x1.d76e98p-1f;
  u = u * c + -0x1.a03fe2p+0f;
  u = u * c + -0x1.0b94aep-11f;
  float t = u + (WX_ROUND_F32 + 127.0f);
  float r = u - (t - (WX_ROUND_F32 + 127.0f));
  float q = 0x1.4bc3f4p-13f;
  q = q * r + 0x1.5fbff4p-10f;
  q = q * r + 0x1.3b21cap-7f;
  q = q * r + 0x1.c6ada6p-5f;
  q = q * r + 0x1.ebfbe6p-3f;
  q = q * r + 0x1.62e432p-1f;
  q = q * r + 1.0f;
  q = 1.0f - q * wx_from_f32(wx_bits_f32(t) << 23);
  return a < 1.0f ? p : wx_signed_f32(q, x);
}

WX_FN double wx_erf_f64(double x) {
  double a = wx_abs_f64(x), z = x * x;
  double p = -0x1.a2448787baec7p-31;
  p = p * z + 0x1.d3df95e71fa84p-27;
  p = p * z + -0x1.5b8caa653d858p-23;
  p = p * z + 0x1.b96b5ffc81df1p-20;
  p = p * z + -0x1.f4c82fb8df04ap-17;
  p = p * z + 0x1.f9a296bdcfcebp-14;
  p = p * z + -0x1.c02daeb74d523p-11;
  p = p * z + 0x1.565bcceedb78cp-8;
  p = p * z + -0x1.b82ce311a9826p-6;
  p = p * z + 0x1.ce2f21a03f8b9p-4;
  p = p * z + -0x1.812746b03799dp-2;
  p = p * z + 0x1.06eba8214db68p-3;
  p = p * x + x;
  double c = a > 6.0 ? 6.0 : a;
  double u = -0x1.edb5aab1aa3cep-38;
  u = u * c + 0x1.405ce671fc5d8p-32;
  u = u * c + -0x1.818901c64c2c8p-28;
  u = u * c + 0x1.1c889a45218d4p-24;
  u = u * c + -0x1.1e2ab2fa53359p-21;
  u = u * c + 0x1.99658bbf81b22p-19;
  u = u * c + -0x1.9f2f0458da759p-17;
  u = u * c + 0x1.109d5ee97cc17p-15;
  u = u * c + -0x1.d821699771071p-16;
  u = u * c + -0x1.9d41b4b479024p-13;
  u = u * c + 0x1.246158bddac99p-10;
  u = u * c + -0x1.6ae0f88fb64a6p-9;
  u = u * c + 0x1.38d6bde55be26p-11;
  u = u * c + 0x1.c0d25196c61f1p-6;
  u = u * c + -0x1.2f72bb76852b9p-3;
  u = u * c + -0x1.d6436f278be36p-1;
  u = u * c + -0x1.a0be068a1efebp+0;
  u = u * c + -0x1.8da83877f20cbp-21;
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
  q = q * r + 1.0;
  q = 1.0 - q * wx_from_f64(wx_bits_f64(t) << 52);
  return a < 1.0 ? p : wx_signed_f64(q, x);
}

/* ---- log: x = 2^e m, 2/3 <= m < 4/3 (f32) or sqrt(1/2) <= m < sqrt 2 (f64), f = m - 1 ---- */

/* y where x is positive and finite; what log gives for other x elsewhere */
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

WX_FN float wx_log_f32(float x) {
  int tiny = x < 0x1p-126f;
  wx_u32 i = wx_bits_f32(tiny ? x * 0x1p23f : x) + 0x00555555u;
  float e = (float)(int)(i >> 23) - (tiny ? 150.0f : 127.0f);
  float f = wx_from_f32((i & 0x007fffffu) + 0x3f2aaaabu) - 1.0f;
  float p = -0x1.ff839cp-4f;
  p = p * f + 0x1.1ff108p-3f;
  p = p * f + -0x1.f6b9fap-4f;
  p = p * f + 0x1.1e8226p-3f;
  p = p * f + -0x1.557e18p-3f;
  p = p * f + 0x1.99d58ep-3f;
  p = p * f + -0x1.ffff94p-3f;
  p = p * f + 0x1.5554fap-2f;
  float z = f * f;
  float y = e * 0x1.62e4p-1f + (f + (z * (p * f - 0.5f) + e * 0x1.7f7d1cp-20f));
  return wx_log_edges_f32(x, y);
}

WX_FN double wx_log_f64(double x) {
  int tiny = x < 0x1p-1022;
  wx_u64 i = wx_bits_f64(tiny ? x * 0x1p54 : x) + 0x00095f619980c433ull;
  double e = wx_from_f64((i >> 52) | 0x4330000000000000ull) - (0x1p52 + (tiny ? 1077.0 : 1023.0));
  double f = wx_from_f64((i & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
  double s = f / (2.0 + f), z = s * s, h = 0.5 * (f * f);
  double p = 0x1.2f03846efbbf7p-3;
  p = p * z + 0x1.39a1f03690b18p-3;
  p = p * z + 0x1.74663c928dc7ap-3;
  p = p * z + 0x1.c71c5216411b2p-3;
  p = p * z + 0x1.24924941def63p-2;
  p = p * z + 0x1.999999997ff3ap-2;
  p = p * z + 0x1.5555555555592p-1;
  p = p * z;
  double y = e * 0x1.62e42fefa38p-1 + (f - (h - (s * (h + p) + e * 0x1.ef35793c7673p-45)));
  return wx_log_edges_f64(x, y);
}

/* ---- roots and reciprocals: by the machine's own division and square root ---- */

WX_FN float wx_sqrt_f32(float x) { return WX_SQRT_F32(x); }
WX_FN double wx_sqrt_f64(double x) { return WX_SQRT_F64(x); }
WX_FN float wx_rsqrt_f32(float x) { return 1.0f / WX_SQRT_F32(x); }
WX_FN double wx_rsqrt_f64(double x) { return 1.0 / WX_SQRT_F64(x); }
WX_FN float wx_recip_f32(float x) { return 1.0f / x; }
WX_FN double wx_recip_f64(double x) { return 1.0 / x; }

#endif
