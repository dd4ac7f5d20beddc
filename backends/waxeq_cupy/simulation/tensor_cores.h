/* Products by all lanes of a warp: ldmatrix and mma.sync. */
template <bool TURNED, int N>
static inline void wx_fragments(uint32_t (&r)[4], wx::Shared<uint16_t, N> &shared, int64_t at, int site = __builtin_LINE()) {
  wx::Fiber *f = wx::machine.current;
  if (at % 8) wx::fail("a line of a matrix begins at no multiple of 16 bytes");
  f->given[0] = (uint64_t)at;
  const uint64_t(*lines)[wx::GIVEN] = wx::gathered(site);
  const int lane = f->place.x % 32, y = lane / 4, x = lane % 4 * 2;
  for (int n = 0; n < 4; n++) {
    uint32_t two[2];
    for (int u = 0; u < 2; u++) two[u] = shared[TURNED ? lines[n * 8 + x + u][0] + y : lines[n * 8 + y][0] + x + u];
    r[n] = two[0] | two[1] << 16;
  }
}

namespace wx {
/* 16 rows by 8 columns of a product over 8 * E of the depth, whose registers have E elements each: `one` is element
   number n of a register. */
template <int E, class C, class F>
static void multiplied(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2], int site, const F &one) {
  Fiber *f = machine.current;
  memcpy(f->given, a, sizeof a), memcpy(f->given + 2, b, sizeof b);
  const uint64_t(*lanes)[GIVEN] = gathered(site);
  const int lane = f->place.x % 32;
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = c[n + i];
    for (int k = 0; k < 8 * E; k++) {
      const int half = k / (4 * E), of = row / 8 + half * 2, beside = k % (4 * E) / E; /* of: which register of a */
      const uint64_t *x = lanes[row % 8 * 4 + beside], *y = lanes[column * 4 + beside];
      sum += one((uint32_t)(x[of / 2] >> of % 2 * 32), k % E) * one((uint32_t)(y[2] >> half * 32), k % E);
    }
    c[n + i] = sum;
  }
}
}  // namespace wx

template <class H, class C>
static inline void wx_mma(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2], int site = __builtin_LINE()) {
  wx::multiplied<2>(c, n, a, b, site, [](uint32_t r, int n) { return H::widened((uint16_t)(r >> n * 16)); });
}

static inline uint32_t wx_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fffe000u;
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}
template <class C>
static inline void wx_mma_tf32(C &c, int n, const uint32_t (&a)[4], const uint32_t (&b)[2], int site = __builtin_LINE()) {
  wx::multiplied<1>(c, n, a, b, site, [](uint32_t r, int) { return __int_as_float((int)r); });
}
