/* mbarriers, and boxes of arrays that tensor maps bring to shared memory (PTX ISA, "mbarrier", "cp.async.bulk.tensor").

   Boxes are there at once. What comes after what is known by clocks: a thread that waits for a phase is after all that
   those were who arrived in it, and after the boxes that it counts. So a box that is multiplied without being waited
   for, or brought over one that is still read, is a fault in whatever order threads run. */
namespace wx {

enum { WARPS = MOST / WARP, MBARRIERS = 32, DYNAMIC = 0x1230, RING = 227 << 10, PATTERN = 1024 };

/* Up to which of its groups of products each warp is known to be done, and how many phases of each mbarrier are over. */
struct Clock {
  uint32_t groups[WARPS], phases[MBARRIERS];
  void join(const Clock &other) {
    for (int n = 0; n < WARPS; n++) groups[n] = groups[n] > other.groups[n] ? groups[n] : other.groups[n];
    for (int n = 0; n < MBARRIERS; n++) phases[n] = phases[n] > other.phases[n] ? phases[n] : other.phases[n];
  }
};

/* What a thread knows, and what it has asked for: fences of sums, groups of products that it has closed, and waited for;
   products since; and all of them, as one number. */
struct Later {
  uint64_t generation;
  Clock clock;
  uint32_t fences, committed, waited, open, products;
  uint64_t trace;
};
static Later later[MOST];

static Later &mine() {
  Later &x = later[machine.current->place.x];
  if (x.generation != machine.generation) memset(&x, 0, sizeof x), x.generation = machine.generation;
  return x;
}

struct Mbarrier {
  uint64_t generation;
  uint32_t count, pending, phase, maker, epoch;
  bool known;
  int64_t bytes; /* that are still to come in this phase */
  Clock now, over;
};
static Mbarrier mbarriers[MBARRIERS];

/* 1,024 bytes of the ring: which phase of which mbarrier they came in, and in which of its groups each warp read them. */
struct Pattern {
  uint64_t generation;
  bool any;
  uint32_t mbarrier, phase, read[WARPS];
};
static Pattern patterns[(DYNAMIC + RING) / PATTERN + 1];
alignas(PATTERN) static char shared_bytes[DYNAMIC + RING];
static uint32_t ring_end;

static uint32_t ring(uint32_t size) {
  const uint32_t begin = (DYNAMIC + PATTERN - 1) / PATTERN * PATTERN;
  if (begin + size > DYNAMIC + RING) fail("more shared memory is used than a block has");
  ring_end = begin + size;
  return begin;
}

static Pattern &pattern(uint32_t at) {
  if (at < DYNAMIC || at >= ring_end) fail("shared memory is used outside of an array");
  Pattern &p = patterns[at / PATTERN];
  if (p.generation != machine.generation) memset(&p, 0, sizeof p), p.generation = machine.generation;
  return p;
}

static uint32_t mbarriers_of(uint32_t n) {
  if (n > MBARRIERS) fail("more mbarriers are used than the simulated device has");
  return 0;
}

static void mbarrier_init(uint32_t bar, int count) {
  if (bar % 8 || bar / 8 >= MBARRIERS) fail("an mbarrier is used outside of an array");
  Mbarrier &b = mbarriers[bar / 8];
  memset(&b, 0, sizeof b);
  b.generation = machine.generation, b.count = b.pending = count;
  b.maker = machine.current->place.x, b.epoch = machine.epoch;
}

static void mbarrier_fence() {
  for (Mbarrier &b : mbarriers)
    if (b.generation == machine.generation && b.maker == machine.current->place.x) b.known = true;
}

static Mbarrier &used(uint32_t bar) {
  if (bar % 8 || bar / 8 >= MBARRIERS) fail("an mbarrier is used outside of an array");
  Mbarrier &b = mbarriers[bar / 8];
  if (b.generation != machine.generation) fail("an mbarrier is used that was not made");
  if (!b.known || (b.maker != machine.current->place.x && b.epoch >= machine.epoch))
    fail("an mbarrier is used that is not known to all yet");
  return b;
}

/* Ends the phase if nothing of it is to come. */
static void counted(Mbarrier &b) {
  if (b.pending) return;
  if (b.bytes < 0) fail("more bytes come to an mbarrier than it expects");
  if (b.bytes) return;
  b.phase++, b.pending = b.count;
  b.now.phases[&b - mbarriers] = b.phase;
  b.over = b.now;
}

static void mbarrier_arrive(uint32_t bar, int bytes) {
  Mbarrier &b = used(bar);
  if (!b.pending) fail("more threads come to an mbarrier than it counts");
  Later &me = mine();
  me.clock.groups[machine.current->place.x / WARP] = me.waited;
  b.now.join(me.clock);
  b.bytes += bytes, b.pending--;
  counted(b);
}

static void mbarrier_wait(uint32_t bar, uint32_t parity) {
  Mbarrier &b = used(bar);
  machine.current->mask = parity;
  if ((b.phase & 1) == parity) wait(AT_MBARRIER, bar / 8);
  mine().clock.join(b.over);
}

/* Lets threads go on whose mbarrier is over. Whether any did. */
static bool passed() {
  bool any = false;
  for (unsigned n = 0; n < machine.threads; n++) {
    Fiber &f = machine.fibers[n];
    if (f.state == AT_MBARRIER && (mbarriers[f.site].phase & 1) != f.mask) f.state = READY, any = true;
  }
  return any;
}

/* Whether somebody waits for an mbarrier to which nobody comes. */
static bool unmet() {
  for (unsigned n = 0; n < machine.threads; n++) {
    Fiber &f = machine.fibers[n];
    if (f.state != AT_MBARRIER) continue;
    const Mbarrier &b = mbarriers[f.site];
    char why[128];
    snprintf(why, sizeof why, "a thread waits for an mbarrier to which %u threads and %lld bytes do not come", b.pending,
             (long long)b.bytes);
    fail_at(&f, why);
    return true;
  }
  return false;
}

/* Threads that met at a barrier know what each of them knew. */
static void joined() {
  Clock all = {};
  bool any = false;
  for (unsigned n = 0; n < machine.threads; n++) {
    if (later[n].generation != machine.generation) continue;
    later[n].clock.groups[n / WARP] = later[n].waited;
    all.join(later[n].clock), any = true;
  }
  for (unsigned n = 0; any && n < machine.threads; n++) machine.current = &machine.fibers[n], mine().clock = all;
}

/* What the driver makes a tensor map from; steps in bytes, of the fastest axis one element. */
struct Described {
  const char *base;
  int64_t low, high; /* bytes that may be read */
  int32_t item, rank, swizzled, rounded;
  int64_t sizes[5], steps[5];
  int32_t box[5];
};
struct Map {
  const Described *of;
  Map(const Argument &a) : of((const Described *)a.base) {}
};

static uint32_t taken(const Described &d, const int64_t *places) {
  int64_t at = 0;
  for (int k = 0; k < d.rank; k++) {
    if (places[k] < 0 || places[k] >= d.sizes[k]) return 0;
    at += places[k] * d.steps[k];
  }
  if (at < d.low || at + d.item > d.high) fail("an operand is read outside of it");
  looked_at(d.base + at);
  uint32_t bits = 0;
  memcpy(&bits, d.base + at, d.item);
  return d.rounded ? wx_tf32(__int_as_float((int)bits)) : bits;
}

/* A box may be brought to where everything that was there is done with. */
static void claimed(uint32_t to, uint32_t bar, const Mbarrier &b) {
  Pattern &p = pattern(to);
  const Clock &known = mine().clock;
  if (p.any && known.phases[p.mbarrier] <= p.phase) fail("two boxes are brought to one place of shared memory");
  for (int w = 0; w < WARPS; w++)
    if (p.read[w] > known.groups[w]) fail("race: a box is brought to where tensor cores may still read");
  memset(&p.read, 0, sizeof p.read);
  p.any = true, p.mbarrier = bar / 8, p.phase = b.phase;
}

template <class... X> static void brought(uint32_t to, const Map &map, uint32_t bar, X... places) {
  const Described &d = *map.of;
  const int64_t begin[5] = {places...};
  if (sizeof...(places) != d.rank) fail("a box has another number of axes than its array");
  Mbarrier &b = used(bar);
  int64_t bytes = d.item;
  for (int k = 0; k < d.rank; k++) bytes *= d.box[k];
  if (to % PATTERN || bytes % PATTERN || d.box[0] * d.item > 128) fail("a box does not begin and end with its swizzle");
  for (uint32_t at = to; at < to + bytes; at += PATTERN) claimed(at, bar, b);
  int64_t in[5] = {};
  for (uint32_t at = to; at < to + bytes; at += d.item) {
    int64_t place[5];
    for (int k = 0; k < 5; k++) place[k] = begin[k] + in[k];
    const uint32_t bits = taken(d, place);
    memcpy(shared_bytes + (d.swizzled ? at ^ (at >> 7 & 7) << 4 : at), &bits, d.item);
    for (int k = 0; k < d.rank && ++in[k] == d.box[k]; k++) in[k] = 0;
  }
  b.bytes -= bytes;
  counted(b);
}

}  // namespace wx
