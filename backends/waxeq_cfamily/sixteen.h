/* What takes sixteen float32 at a time, where a machine's vectors have as many and the compiler is gcc: the loops that
   call it are written for that (sixteens.py), and have WX_SIXTEENS to ask whether it is there. */
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define WX_SIXTEENS 1
#define WX_EACH_16(x) ((wx_sixteen_floats){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x})
typedef int wx_sixteen_ints __attribute__((vector_size(64)));

/* the smaller or larger of both, x where one is NaN */
#define WX_AT_LEAST_16(x, bound) ((wx_sixteen_floats)__builtin_ia32_maxps512_mask(bound, x, x, (unsigned short)-1, 4))
#define WX_AT_MOST_16(x, bound) ((wx_sixteen_floats)__builtin_ia32_minps512_mask(bound, x, x, (unsigned short)-1, 4))
/* x 2^k, k rounded down, rounded once: subnormals and what overflows too */
#define WX_SCALED_16(x, k) ((wx_sixteen_floats)__builtin_ia32_scalefps512_mask(x, k, x, (unsigned short)-1, 4))
/* e and m of |x| = 2^e m, 1 <= m < 2: of 0 e is -infinity and m 1, below it m is NaN */
#define WX_EXPONENT_16(x) ((wx_sixteen_floats)__builtin_ia32_getexpps512_mask(x, x, (unsigned short)-1, 4))
#define WX_MANTISSA_16(x) ((wx_sixteen_floats)__builtin_ia32_getmantps512_mask(x, 12, x, (unsigned short)-1, 4))
/* a bit for each x that is not 0, NaN too */
#define WX_NOT_0_16(x) __builtin_ia32_cmpps512_mask(x, WX_EACH_16(0.0f), 4, (unsigned short)-1, 4)
/* numbers of a table by the last four bits of i, and those of `other` where m has no bit */
#define WX_FOUND_16(table, i, other, m) ((wx_sixteen_floats)__builtin_ia32_permvarsf512_mask(table, i, other, m))

/* e^x for -104 <= x <= 89 or NaN: x = n ln 2 + r, n in sixteenths, |r| <= ln 2 / 32. The fraction of n finds its power of
   two in a register (P. T. P. Tang, Table-driven implementation of the exponential function, 1989), where a loop that is
   written for one element has a polynomial of twice the degree: this is 13 instructions in place of 17. t ends with the
   sixteenths of n, and of the polynomial's numbers one is moved, by which r^4 / 24 is made up for. */
WX_FN wx_sixteen_floats wx_exp_of_sixteen(wx_sixteen_floats x) {
  const wx_sixteen_floats powers = {0x1p0f,        0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f,
                                    0x1.306fep0f,  0x1.3dea64p0f, 0x1.4bfdaep0f, 0x1.5ab07ep0f,
                                    0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f,
                                    0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f};
  const wx_sixteen_floats round = WX_EACH_16(0x1.8p19f); /* of a sum with this the last bits are sixteenths */
  wx_sixteen_floats t = x * WX_EACH_16(0x1.715476p0f) + round, n = t - round;
  wx_sixteen_floats r = (x - n * WX_EACH_16(0x1.62e4p-1f)) - n * WX_EACH_16(0x1.7f7d1cp-20f);
  wx_sixteen_floats p = __builtin_shuffle(powers, (wx_sixteen_ints)t); /* by the last four bits */
  wx_sixteen_floats q = (WX_EACH_16(0x1.5556p-3f) * r + WX_EACH_16(0x1.00022p-1f)) * (r * r) + r;
  return WX_SCALED_16(q * p + p, n);
}

/* log x = e ln 2 - log R + log(1 + r), x = 2^e m, r = m R - 1, -1/32 <= r < 1/16: R, near 1 / m, and its logarithm in two
   parts are found in registers by the first four bits of m. Of the two parts the first ends with 2^-16, as the first of
   ln 2 does, so that nothing of their sum is lost. It is 0 next to x = 1, and around that R has so few bits that r is
   exact: m R is not rounded before 1 is taken from it, as kernels are compiled with contraction. What is no positive
   number comes out right by itself: e is infinite of 0 and infinity, and m NaN below 0. */
WX_FN wx_sixteen_floats wx_log_of_sixteen(wx_sixteen_floats x) {
  const wx_sixteen_floats near = {0x1p0f,     0x1.ep-1f,  0x1.cp-1f,  0x1.a4p-1f,
                                  0x1.9p-1f,  0x1.8p-1f,  0x1.6cp-1f, 0x1.6p-1f,
                                  0x1.5p-1f,  0x1.4p-1f,  0x1.38p-1f, 0x1.28p-1f,
                                  0x1.2p-1f,  0x1.18p-1f, 0x1.1p-1f,  0x1p-1f};
  const wx_sixteen_floats high = {0.0f,         0x1.086p-4f,  0x1.1178p-3f, 0x1.95a8p-3f,
                                  0x1.f99p-3f,  0x1.2698p-2f, 0x1.5d5cp-2f, 0x1.7fbp-2f,
                                  0x1.af54p-2f, 0x1.e148p-2f, 0x1.fb34p-2f, 0x1.188ep-1f,
                                  0x1.2696p-1f, 0x1.3502p-1f, 0x1.43dap-1f, 0x1.62e4p-1f};
  const wx_sixteen_floats low = {0.0f,             -0x1.9d2988p-18f, 0x1.d044fcp-20f,  -0x1.291848p-18f,
                                 0x1.c6cb3cp-19f,  -0x1.deecb2p-18f, -0x1.10535p-21f,  -0x1.7109fap-20f,
                                 -0x1.6adb74p-18f, 0x1.4344e4p-19f,  0x1.8af7a4p-18f,  0x1.c81e48p-18f,
                                 0x1.089a6ep-20f,  0x1.15b3b2p-18f,  -0x1.a0db88p-26f, 0x1.7f7d1cp-20f};
  wx_sixteen_floats e = WX_EXPONENT_16(x), m = WX_MANTISSA_16(x);
  wx_sixteen_ints i = (wx_sixteen_ints)m >> 19;
  wx_sixteen_floats r = m * __builtin_shuffle(near, i) - WX_EACH_16(1.0f);
  wx_sixteen_floats q = WX_EACH_16(0x1.8270ap-3f);
  q = q * r + WX_EACH_16(-0x1.0013cap-2f);
  q = q * r + WX_EACH_16(0x1.555838p-2f);
  q = q * r + WX_EACH_16(-0x1p-1f);
  wx_sixteen_floats l = e * WX_EACH_16(0x1.7f7d1cp-20f) + __builtin_shuffle(low, i);
  wx_sixteen_floats h = e * WX_EACH_16(0x1.62e4p-1f) + __builtin_shuffle(high, i);
  return h + (r + ((r * r) * q + l));
}

/* erf x: the multiple n of 1 / c that is nearest to |x| finds a polynomial of t = c |x| - n, |t| <= 1/2, whose numbers
   are in registers; what is beyond the last gives 1. c is chosen for the values at n = 1, 2, ...: they are within a
   quarter of a last place of float32. At n = 0 the polynomial is of erf|x| - |x|, as what is small is needed to all
   its digits. */
WX_FN wx_sixteen_floats wx_erf_of_sixteen(wx_sixteen_floats x) {
  const wx_sixteen_floats c0 = {0.0f,           0x1.21027p-2f,  0x1.0f7dd6p-1f, 0x1.718e42p-1f,
                                0x1.b41a8ep-1f, 0x1.dbca02p-1f, 0x1.f095eep-1f, 0x1.fa298ep-1f,
                                0x1.fe099ap-1f, 0x1.ff6a58p-1f, 0x1.ffd88ep-1f, 0x1.fff6dp-1f,
                                0x1.fffe1cp-1f, 0x1.ffffa8p-1f, 0x1.fffff2p-1f, 0x1.fffffep-1f};
  const wx_sixteen_floats c1 = {0x1.0ccab4p-5f,  0x1.14a43ap-2f,  0x1.c6d1f8p-3f,  0x1.481728p-3f,
                                0x1.9f5faep-4f,  0x1.cd7908p-5f,  0x1.c1e60cp-6f,  0x1.80e5b4p-7f,
                                0x1.20f59p-8f,   0x1.7cbb7ep-10f, 0x1.b83704p-12f, 0x1.bea764p-14f,
                                0x1.8daf54p-16f, 0x1.36b836p-18f, 0x1.aa141ep-21f, 0x1.005af8p-23f};
  const wx_sixteen_floats c2 = {-0x1.31e952p-27f, -0x1.212114p-6f,  -0x1.db5a1ep-6f,  -0x1.012d8cp-5f,
                                -0x1.b2213ap-6f,  -0x1.2d71p-6f,    -0x1.60a756p-7f,  -0x1.5ff8bap-8f,
                                -0x1.2e0064p-9f,  -0x1.bfa274p-11f, -0x1.1f8c58p-12f, -0x1.4200fap-14f,
                                -0x1.34c87p-16f,  -0x1.f5be12p-19f, -0x1.9d5826p-21f, -0x1.a73052p-24f};
  const wx_sixteen_floats c3 = {-0x1.9b89b8p-8f, -0x1.4f29a4p-8f, -0x1.2ea992p-9f, 0x1.4168bp-11f,
                                0x1.3b8ea2p-9f,  0x1.6c5322p-9f,  0x1.2238d8p-9f,  0x1.6a2992p-10f,
                                0x1.7287f2p-11f, 0x1.3dc0f4p-12f, 0x1.ce8ed6p-14f, 0x1.200532p-15f,
                                0x1.3477e6p-17f, 0x1.1d301p-19f,  0x1.c87942p-22f, 0x1.3ce5e2p-24f};
  const wx_sixteen_floats c4 = {0x1.2417d4p-21f,  0x1.1ee804p-11f,  0x1.9790cep-11f,  0x1.4564fep-11f,
                                0x1.130a1p-12f,   -0x1.bb2ee6p-15f, -0x1.a20deep-13f, -0x1.a2fb02p-13f,
                                -0x1.1a9402p-13f, -0x1.29916ap-14f, -0x1.fbd2c4p-16f, -0x1.479372p-17f,
                                -0x1.082994p-18f, -0x1.ace6d8p-20f, -0x1.ec07c6p-28f, -0x1.ce06c6p-24f};
  const wx_sixteen_floats c5 = {0x1.fe4386p-14f,  0x1.6a074ep-14f,  0x1.943378p-18f,  -0x1.f518dp-15f,
                                -0x1.373bd8p-14f, -0x1.8d9d3ep-15f, -0x1.9bb13p-17f,  0x1.33360ep-17f,
                                0x1.dc4338p-17f,  0x1.649d82p-17f,  0x1.7f3cacp-18f,  0x1.436f0ep-19f,
                                0x1.be4de4p-21f,  0x1.00ca8ap-22f,  0x1.f2de9ep-25f,  0x1.9c4e86p-27f};
  wx_sixteen_ints bits = (wx_sixteen_ints)x;
  wx_sixteen_floats a = (wx_sixteen_floats)(bits & 0x7fffffff);
  wx_sixteen_floats b = WX_AT_MOST_16(a, WX_EACH_16(0x1.fabfcp1f));
  wx_sixteen_floats u = b * WX_EACH_16(0x1.f4d0f8p1f) + WX_EACH_16(0x1.8p23f), n = u - WX_EACH_16(0x1.8p23f);
  wx_sixteen_floats t = b * WX_EACH_16(0x1.f4d0f8p1f) - n;
  wx_sixteen_ints i = (wx_sixteen_ints)u;
  wx_sixteen_floats q = __builtin_shuffle(c5, i);
  q = q * t + __builtin_shuffle(c4, i);
  q = q * t + __builtin_shuffle(c3, i);
  q = q * t + __builtin_shuffle(c2, i);
  q = q * t + __builtin_shuffle(c1, i);
  q = q * t + WX_FOUND_16(c0, i, b, WX_NOT_0_16(n));
  return (wx_sixteen_floats)((wx_sixteen_ints)q | (bits & (int)0x80000000));
}

/* functions of one element for sixteen, in place */
#define WX_IN_PLACE_16(name, text) \
  WX_FN void name(float *x) { \
    wx_sixteen_floats v; \
    __builtin_memcpy(&v, x, sizeof v); \
    v = text; \
    __builtin_memcpy(x, &v, sizeof v); \
  }
WX_IN_PLACE_16(wx_exp_below_sixteen, wx_exp_of_sixteen(WX_AT_LEAST_16(v, WX_EACH_16(-104.0f))))
WX_IN_PLACE_16(wx_exp_sixteen,
               wx_exp_of_sixteen(WX_AT_LEAST_16(WX_AT_MOST_16(v, WX_EACH_16(89.0f)), WX_EACH_16(-104.0f))))
WX_IN_PLACE_16(wx_log_sixteen, wx_log_of_sixteen(v))
WX_IN_PLACE_16(wx_erf_sixteen, wx_erf_of_sixteen(v))
#endif
