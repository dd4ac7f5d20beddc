/* Products by the four warps of a group: wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
   Instructions": fragments, layouts in shared memory, matrix descriptors). They are made at once, and what they read
   and add to counts as in use until the thread has waited for their group. */
namespace wx {

/* What wgmma adds to, or multiplies out of registers: not to be touched before it is waited for, and nothing but a fence
   may stand between. */
template <class T, int N> struct InUse {
  T at[N];
  uint32_t group = 0, touched; /* the group that uses it; the first fence after it was touched */
  InUse() : touched(mine().fences + 1) { memset(at, 0xff, sizeof at); }
  T &operator[](int64_t n) {
    if (n < 0 || n >= N) fail("an array of a thread is used outside of it");
    if (group > mine().waited)
      fail(T(0.5f) != 0 ? "sums are touched while tensor cores may still add to them"
                        : "factors are touched while tensor cores may still read them");
    touched = mine().fences + 1;
    return at[n];
  }
};
template <int N> using Sums = InUse<float, N>;
template <int N> using Held = InUse<uint32_t, N>;

static void wgmma_fence(int site) { gathered(site), mine().fences++; }

static void wgmma_commit(int site) {
  gathered(site);
  mine().committed++, mine().open = 0;
}

static void wgmma_wait(uint32_t last, int site) {
  gathered(site);
  Later &me = mine();
  if (me.committed > last && me.committed - last > me.waited) me.waited = me.committed - last;
}

/* An element of a matrix of ITEM bytes each: row `row`, `deep` along the depth. */
template <int ITEM, int ACROSS> static uint32_t element(uint64_t matrix, uint32_t row, uint32_t deep) {
  const uint32_t start = (matrix & 0x3fff) << 4;
  const uint32_t leading = (matrix >> 16 & 0x3fff) << 4, stride = (matrix >> 32 & 0x3fff) << 4;
  if (matrix >> 62 != 1 || (matrix >> 49 & 7)) fail("a matrix is described that the simulated device does not know");
  const uint32_t block = 128 / ITEM; /* elements of a line */
  uint32_t at = ACROSS ? start + row / block * leading + row % block * ITEM + deep / 8 * stride + deep % 8 * 128
                       : start + row / 8 * stride + row % 8 * 128 + deep * ITEM;
  at ^= (at >> 7 & 7) << 4;
  Pattern &p = pattern(at);
  if (!p.any) fail("shared memory is read before it is written");
  if (mine().clock.phases[p.mbarrier] <= p.phase) fail("shared memory is multiplied before it is there");
  p.read[machine.current->place.x / WARP] = mine().committed + 1;
  uint32_t bits = 0;
  memcpy(&bits, shared_bytes + at, ITEM);
  return bits;
}

/* The factors of a warp's last product, which its lanes have in common. */
struct Factors {
  uint64_t generation;
  uint32_t number;
  float left[16][16], right[256][16];
};
static Factors factors[WARPS];

/* The next product of a thread: its factors, which the first lane to come is to fill in. */
static Factors &next(Later &me, int warp, bool *first) {
  Factors &x = factors[warp];
  me.open++, me.products++;
  *first = x.generation != machine.generation || x.number != me.products;
  x.generation = machine.generation, x.number = me.products;
  return x;
}

template <int N, int ADDED, class C> static void added(C &c, const Factors &x, int depth, int lane) {
  for (int n = 0; n < N / 2; n++) {
    const float *a = x.left[lane / 4 + n / 2 % 2 * 8], *b = x.right[n / 4 * 8 + lane % 4 * 2 + n % 2];
    float sum = ADDED ? c.at[n] : 0;
    for (int k = 0; k < depth; k++) sum += a[k] * b[k];
    c.at[n] = sum;
  }
  c.group = mine().committed + 1;
}

/* c += left * right (ADDED 0: c = left * right): 64 rows by N columns, 32 bytes deep; `one` is what the bits of an
   element mean. */
template <int ITEM, int N, int LEFT_ACROSS, int RIGHT_ACROSS, int ADDED, class C, class F>
static void group_multiplied(C &c, uint64_t left, uint64_t right, int site, const F &one) {
  const int depth = 32 / ITEM;
  Fiber *f = machine.current;
  const int warp = f->place.x / WARP, lane = f->place.x % WARP;
  f->given[0] = left, f->given[1] = right;
  const uint64_t(*lanes)[GIVEN] = gathered(site);
  for (int n = 0; n < WARP; n++)
    if (lanes[n][0] != left || lanes[n][1] != right) fail("lanes of a warp multiply different matrices");
  Later &me = mine();
  if (c.touched > me.fences) fail("sums are touched, and no wgmma.fence stands between that and wgmma");
  me.trace = (me.trace * 31 + left) * 31 + right;
  bool first;
  Factors &x = next(me, warp, &first);
  for (int k = 0; first && k < depth; k++) {
    for (int m = 0; m < 16; m++) x.left[m][k] = one(element<ITEM, LEFT_ACROSS>(left, warp % 4 * 16 + m, k));
    for (int n = 0; n < N; n++) x.right[n][k] = one(element<ITEM, RIGHT_ACROSS>(right, n, k));
  }
  added<N, ADDED>(c, x, depth, lane);
}

/* The same with the left side in registers of 16-bit elements, 16 deep, from number `from` on: a lane has of rows
   lane / 4 and that + 8 two elements at depth lane % 4 * 2 and two 8 further on. */
template <int N, int RIGHT_ACROSS, class C, class U, class F>
static void group_multiplied_held(C &c, U &u, int from, uint64_t right, int site, const F &one) {
  Fiber *f = machine.current;
  const int warp = f->place.x / WARP, lane = f->place.x % WARP;
  if (from < 0 || from + 4 > (int)(sizeof u.at / 4)) fail("an array of a thread is used outside of it");
  f->given[0] = right;
  memcpy(f->given + 1, u.at + from, 16);
  const uint64_t(*lanes)[GIVEN] = gathered(site);
  for (int n = 0; n < WARP; n++)
    if (lanes[n][0] != right) fail("lanes of a warp multiply different matrices");
  Later &me = mine();
  if (c.touched > me.fences) fail("sums are touched, and no wgmma.fence stands between that and wgmma");
  if (u.touched > me.fences) fail("factors are touched, and no wgmma.fence stands between that and wgmma");
  me.trace = me.trace * 31 + right;
  bool first;
  Factors &x = next(me, warp, &first);
  for (int k = 0; first && k < 16; k++) {
    for (int m = 0; m < 16; m++) {
      uint32_t held[4];
      memcpy(held, lanes[m % 8 * 4 + k % 8 / 2] + 1, sizeof held);
      x.left[m][k] = one(held[m / 8 + k / 8 * 2] >> k % 2 * 16 & 0xffff);
    }
    for (int n = 0; n < N; n++) x.right[n][k] = one(element<2, RIGHT_ACROSS>(right, n, k));
  }
  added<N, 1>(c, x, 16, lane);
  u.group = me.committed + 1;
}

/* What is to hold when all threads of a block have ended. */
static void ended() {
  for (unsigned n = 0; n < machine.threads; n++) {
    const Later &x = later[n], &first = later[n / 128 * 128];
    const bool there = x.generation == machine.generation, group = first.generation == machine.generation;
    if (there && (x.open || x.waited < x.committed))
      return fail_at(&machine.fibers[n], "a thread ends that has not waited for its products");
    if ((there ? x.trace : 0) != (group ? first.trace : 0))
      return fail_at(&machine.fibers[n], "the warps of a group multiply different matrices");
  }
  for (const Mbarrier &b : mbarriers)
    if (b.generation == machine.generation && b.bytes)
      return fail_at(&machine.fibers[b.maker], "an mbarrier expects other bytes than come");
}

}  // namespace wx
