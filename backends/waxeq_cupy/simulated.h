/* A GPU that is not there: stands before functions.h and prelude.cuh, and has the machine's C++ compiler take the text of
   a kernel as it is. Every thread of a block is a fiber, and blocks run one after another, in an order that is asked for.
   Each access to memory is looked at, so faults are found in any order, whether or not they would have been seen:

   - what lies outside an array, or is not aligned for as many elements as are moved at once
   - shared memory that is read before anything was written there
   - races: two threads at one place, one of them writing, with nothing between that orders them. Threads of a block are
     ordered by __syncthreads, lanes of a warp by __syncwarp too (and not by shuffles); what a launch writes to global
     memory, no other thread of the launch may touch
   - barriers and shuffles that some of the threads named never come to, or come to at another place in the text */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WX_SIMULATED 1
#define __CUDACC__ 1
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

static inline int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
static inline float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
static inline long long __double_as_longlong(double x) { long long i; memcpy(&i, &x, 8); return i; }
static inline double __longlong_as_double(long long i) { double x; memcpy(&x, &i, 8); return x; }

namespace wx {

/* ---- fibers ---- */

extern "C" void wx_switch(void **left, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.type wx_switch,@function
wx_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size wx_switch, .-wx_switch
)");
static void *fresh(char *top, void (*entry)()) {
  void **sp = (void **)top;
  *--sp = nullptr; /* at a function's entry the stack is 8 off a multiple of 16 */
  *--sp = (void *)entry;
  for (int n = 0; n < 6; n++) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.type wx_switch,%function
wx_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.size wx_switch, .-wx_switch
)");
static void *fresh(char *top, void (*entry)()) {
  void **sp = (void **)(top - 160);
  memset(sp, 0, 160);
  sp[1] = (void *)entry;
  return sp;
}
#else
#error "the simulated device has fibers for x86-64 and arm64 only"
#endif

enum { MOST = 1024, WARP = 32, STACK = 1 << 16, GIVEN = 3, SENT = 64 };
enum State { READY, AT_BLOCK, AT_WARP, DONE };

struct Place3 { unsigned x, y, z; };

/* 16 bytes on their way to shared memory: `land` writes them there. */
struct Sent {
  void (*land)(const Sent &);
  void *shared;
  int64_t at;
  alignas(16) char bytes[16];
};

struct Fiber {
  void *sp;
  char *stack;
  Place3 place;
  State state;
  int site, ordering; /* where it waits; whether what it waits for orders memory */
  unsigned mask;
  uint64_t given[GIVEN];
  int sent; /* groups of 16 bytes that it has sent and not waited for */
  uint32_t seen[WARP]; /* of every lane of its warp, up to which of its steps this one is after it */
};

struct Machine {
  Fiber fibers[MOST];
  Fiber *current;
  void *main;
  char *spare[MOST]; /* stacks that nobody uses */
  int spares, made;
  unsigned threads;
  Place3 block, blocks;
  uint32_t epoch;      /* barriers of the block so far */
  uint64_t generation; /* blocks so far, of all launches */
  uint64_t random;
  uint64_t given[MOST][GIVEN]; /* what the lanes of the last shuffles gave */
  Sent sent[MOST][SENT];
  void (*body)(const void *);
  const void *what;
  char failure[256];
};
static Machine machine;

/* Ends the launch with a sentence. Called in a fiber, does not return. */
__attribute__((noinline, noreturn)) static void fail(const char *why) {
  Machine &m = machine;
  if (!m.failure[0])
    snprintf(m.failure, sizeof m.failure, "%s (block %u, thread %u)", why, m.block.x, m.current->place.x);
  void *left;
  wx_switch(&left, m.main);
  abort();
}

static void entry() {
  machine.body(machine.what);
  if (machine.current->sent) fail("a thread ends that has not waited for what it sent to shared memory");
  machine.current->state = DONE;
  void *left;
  wx_switch(&left, machine.main);
  abort();
}

static void wait(State state, int site) {
  Fiber *f = machine.current;
  f->state = state;
  f->site = site;
  wx_switch(&f->sp, machine.main);
}

static void resume(Fiber *f) {
  Machine &m = machine;
  if (!f->stack) {
    f->stack = m.spares ? m.spare[--m.spares] : (char *)aligned_alloc(4096, STACK);
    f->sp = fresh(f->stack + STACK - (m.made++ % 61) * 64, entry); /* stacks a power of two apart share cache sets */
  }
  m.current = f;
  wx_switch(&m.main, f->sp);
  if (f->state == DONE) {
    m.spare[m.spares++] = f->stack;
    f->stack = nullptr;
  }
}

static uint32_t drawn(uint32_t n) {
  uint64_t &r = machine.random;
  r ^= r << 13, r ^= r >> 7, r ^= r << 17;
  return (uint32_t)((r >> 32) % n);
}

/* 0..n-1: upwards, downwards, or shuffled. */
static void arranged(uint32_t *to, uint32_t n, uint64_t order) {
  for (uint32_t i = 0; i < n; i++) to[i] = order == 1 ? n - 1 - i : i;
  for (uint32_t i = n; order > 1 && i > 1; i--) {
    uint32_t j = drawn(i), x = to[j];
    to[j] = to[i - 1], to[i - 1] = x;
  }
}

static void fail_at(Fiber *f, const char *why) {
  machine.current = f;
  if (!machine.failure[0])
    snprintf(machine.failure, sizeof machine.failure, "%s (block %u, thread %u)", why, machine.block.x, f->place.x);
}

/* Lets lanes go on that have all come to the same place. Whether any did. */
static bool released(Fiber *warp, unsigned lanes) {
  bool any = false;
  for (unsigned l = 0; l < lanes; l++) {
    Fiber &f = warp[l];
    if (f.state != AT_WARP) continue;
    if (!(f.mask >> l & 1)) return fail_at(&f, "a lane waits for others and is not among those that it names"), false;
    bool all = true;
    for (unsigned k = 0; k < WARP; k++) {
      if (!(f.mask >> k & 1)) continue;
      if (k >= lanes || warp[k].state == DONE) return fail_at(&f, "a lane waits for one that has ended"), false;
      if (warp[k].state != AT_WARP) { all = false; continue; }
      if (warp[k].mask != f.mask) return fail_at(&f, "lanes that wait for each other name different lanes"), false;
      if (warp[k].site != f.site) return fail_at(&f, "lanes that wait for each other are at different places"), false;
    }
    if (!all) continue;
    uint32_t after[WARP] = {0};
    for (unsigned k = 0; k < WARP; k++)
      for (unsigned n = 0; n < WARP && (f.mask >> k & 1); n++)
        if (warp[k].seen[n] > after[n]) after[n] = warp[k].seen[n];
    for (unsigned k = 0; k < WARP; k++) {
      if (!(f.mask >> k & 1)) continue;
      if (f.ordering) memcpy(warp[k].seen, after, sizeof after), warp[k].seen[k]++;
      memcpy(machine.given[warp - machine.fibers + k], warp[k].given, sizeof warp[k].given);
      warp[k].state = READY;
    }
    any = true;
  }
  return any;
}

/* All threads of a block, from barrier to barrier. */
static void run_block(uint64_t order) {
  Machine &m = machine;
  for (unsigned i = 0; i < m.threads; i++) {
    Fiber &f = m.fibers[i];
    f.state = READY, f.stack = nullptr, f.place = {i, 0, 0}, f.sent = 0;
    memset(f.seen, 0, sizeof f.seen);
    f.seen[i % WARP] = 1;
  }
  m.epoch = 0, m.generation++;
  uint32_t turn[MOST];
  while (!m.failure[0]) {
    arranged(turn, m.threads, order);
    unsigned ran = 0, done = 0, at = 0;
    for (unsigned i = 0; i < m.threads && !m.failure[0]; i++) {
      Fiber &f = m.fibers[turn[i]];
      if (f.state == READY) resume(&f), ran++;
    }
    bool freed = false;
    for (unsigned w = 0; w < m.threads && !m.failure[0]; w += WARP)
      freed |= released(m.fibers + w, m.threads - w < WARP ? m.threads - w : WARP);
    if (freed || m.failure[0]) continue;
    Fiber *first = nullptr, *stuck = nullptr, *apart = nullptr;
    for (unsigned i = 0; i < m.threads; i++) {
      Fiber &f = m.fibers[i];
      done += f.state == DONE, at += f.state == AT_BLOCK;
      if (f.state == AT_WARP) stuck = &f;
      if (f.state == AT_BLOCK && !first) first = &f;
      if (f.state == AT_BLOCK && f.site != first->site) apart = &f;
    }
    if (done == m.threads) return;
    if (stuck) fail_at(stuck, "a lane waits for others that do not come");
    else if (done) fail_at(first, "a thread waits at a barrier when others have ended");
    else if (apart) fail_at(apart, "threads wait for each other at different barriers");
    for (unsigned i = 0; i < m.threads; i++) m.fibers[i].state = READY;
    m.epoch++;
  }
}

/* ---- memory ---- */

/* Who was at a place of shared memory, and when. */
struct Seen {
  uint32_t thread, epoch, step;
  bool any;
  static Seen now() {
    Fiber *f = machine.current;
    return {f->place.x, machine.epoch, f->seen[f->place.x % WARP], true};
  }
  /* Whether what the current thread does now may come before what was done then, or at the same time. */
  bool races() const {
    Fiber *f = machine.current;
    if (!any || thread == f->place.x || epoch < machine.epoch) return false;
    return thread / WARP != f->place.x / WARP || f->seen[thread % WARP] < step;
  }
};

template <class T, int N> struct Shared {
  alignas(16) T at[N];
  Seen wrote[N], read[N], also[N]; /* the last two threads that read */
  uint64_t generation;
  void look(int64_t n) {
    if (generation != machine.generation) {
      memset(wrote, 0, sizeof wrote), memset(read, 0, sizeof read), memset(also, 0, sizeof also);
      generation = machine.generation;
    }
    if (n < 0 || n >= N) fail("shared memory is used outside of an array");
  }
  struct One {
    Shared &of;
    int64_t n;
    operator T() const {
      if (!of.wrote[n].any) fail("shared memory is read before it is written");
      if (of.wrote[n].races()) fail("race: shared memory is read while another thread writes it");
      if (of.read[n].thread != machine.current->place.x) of.also[n] = of.read[n];
      of.read[n] = Seen::now();
      return of.at[n];
    }
    T operator=(T x) const {
      if (of.wrote[n].races()) fail("race: shared memory is written by two threads");
      if (of.read[n].races() || of.also[n].races()) fail("race: shared memory is written while another thread reads it");
      of.wrote[n] = Seen::now();
      return of.at[n] = x;
    }
    T operator=(const One &other) const { return *this = (T)other; }
  };
  One operator[](int64_t n) {
    look(n);
    return {*this, n};
  }
};

template <class T, int N> struct Kept {
  T at[N];
  T &operator[](int64_t n) {
    if (n < 0 || n >= N) fail("an array of a thread is used outside of it");
    return at[n];
  }
};

/* What a launch writes: for each element the thread that wrote it, one that read it, and whether others did, plus 1. */
struct Touched { uint64_t writer, reader; bool readers; };
struct Written { char *base; int64_t low, high, item; Touched *touched; };
static Written written;

static uint64_t self() { return 1 + machine.block.x * (uint64_t)machine.threads + machine.current->place.x; }

struct Argument { char *base; int64_t low, high; }; /* elements low..high-1 may be touched */

template <class T> struct Reader {
  const T *base;
  int64_t low, high;
  Reader(const Argument &a) : base((const T *)a.base), low(a.low), high(a.high) {}
  T operator[](int64_t n) const {
    if (n < low || n >= high) fail("an operand is read outside of it");
    int64_t at = (char *)(base + n) - written.base, place = at / written.item;
    if (written.touched && at >= written.low * written.item && place < written.high) {
      Touched &t = written.touched[place - written.low];
      if (t.writer && t.writer != self()) fail("race: what one thread writes, another one reads");
      t.readers |= t.reader && t.reader != self();
      t.reader = self();
    }
    return base[n];
  }
};

template <class T> struct Writer {
  T *base;
  int64_t low, high;
  Writer(const Argument &a) : base((T *)a.base), low(a.low), high(a.high) {}
  struct One {
    const Writer &of;
    int64_t n;
    void operator=(T x) const {
      if (n < of.low || n >= of.high) fail("the result is written outside of it");
      Touched &t = written.touched[n - of.low];
      if (t.writer && t.writer != self()) fail("race: two threads write one element");
      if (t.readers || (t.reader && t.reader != self())) fail("race: what one thread writes, another one reads");
      t.writer = self();
      of.base[n] = x;
    }
  };
  One operator[](int64_t n) const { return {*this, n}; }
};

struct Flag {
  int *at;
  Flag(const Argument &a) : at((int *)a.base) {}
};

/* ---- what threads say to each other ---- */

static void met(int site, unsigned mask) {
  machine.current->mask = mask;
  machine.current->ordering = 1;
  wait(AT_WARP, site);
}

/* What lane `from` gave. `same`: what tells this exchange from others in the text. */
template <class T> static T exchanged(int site, int same, unsigned mask, T x, unsigned from) {
  static_assert(sizeof(T) <= 8, "");
  Fiber *f = machine.current;
  f->mask = mask, f->ordering = 0, f->given[0] = 0;
  memcpy(f->given, &x, sizeof x);
  wait(AT_WARP, site * WARP + same);
  if (from >= WARP || !(mask >> from & 1)) fail("a lane takes from one that it does not name");
  memcpy(&x, machine.given[f->place.x / WARP * WARP + from], sizeof x);
  return x;
}

template <class T> static T from_other(int site, unsigned mask, T x, int far) {
  return exchanged(site, far, mask, x, machine.current->place.x % WARP ^ (unsigned)far);
}
template <class T> static T from_before(int site, unsigned mask, T x, int far) {
  const int lane = machine.current->place.x % WARP;
  return exchanged(site, far, mask, x, lane < far ? lane : lane - far);
}
template <class T> static T from_lane(int site, unsigned mask, T x, int from) {
  return exchanged(site, 0, mask, x, (unsigned)from);
}

/* What every lane of the caller's warp gave, all of them being there. */
static const uint64_t (*gathered(int site))[GIVEN] {
  Fiber *f = machine.current;
  f->mask = 0xffffffffu, f->ordering = 0;
  wait(AT_WARP, site);
  return machine.given + f->place.x / WARP * WARP;
}

template <class T, int N, int W> static void landed(const Sent &x) {
  for (int n = 0; n < W; n++) {
    T one;
    memcpy(&one, x.bytes + n * sizeof(T), sizeof one);
    (*(Shared<T, N> *)x.shared)[x.at + n] = one;
  }
}

/* Waits for all that the thread has sent. */
static void here() {
  Fiber *f = machine.current;
  const int sent = f->sent;
  f->sent = 0;
  for (int n = 0; n < sent; n++) machine.sent[f->place.x][n].land(machine.sent[f->place.x][n]);
}

/* ---- launches ---- */

template <class... A> struct Launched {
  void (*kernel)(A...);
  const Argument *arguments;
  template <int... I> struct Numbers {};
  template <int N, int... I> struct Upto : Upto<N - 1, N - 1, I...> {};
  template <int... I> struct Upto<0, I...> { typedef Numbers<I...> Of; };
  template <int... I> void call(Numbers<I...>) const { kernel(A(arguments[I])...); }
  static void run(const void *what) { ((const Launched *)what)->call(typename Upto<sizeof...(A)>::Of()); }
};

/* The last argument but for a flag is what is written; `item`: bytes of one of its elements. Whether all went well. */
template <class... A>
static int run(void (*kernel)(A...), const Argument *arguments, int result, int item, uint32_t blocks, uint32_t threads,
               uint64_t order, char *message, int size) {
  Machine &m = machine;
  Launched<A...> launched = {kernel, arguments};
  m.failure[0] = 0, m.threads = threads, m.blocks = {blocks, 1, 1}, m.current = nullptr;
  m.random = order * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
  m.body = Launched<A...>::run, m.what = &launched;
  const Argument &out = arguments[result];
  written = {out.base, out.low, out.high, item, nullptr};
  written.touched = (Touched *)calloc(out.high - out.low + 1, sizeof(Touched));
  uint32_t *turn = (uint32_t *)malloc(blocks * sizeof(uint32_t));
  arranged(turn, blocks, order);
  for (uint32_t b = 0; b < blocks && !m.failure[0]; b++) {
    m.block = {turn[b], 0, 0};
    run_block(order);
  }
  if (m.failure[0]) /* fibers that never ended keep no stacks */
    for (unsigned i = 0; i < m.threads; i++)
      if (m.fibers[i].stack) m.spare[m.spares++] = m.fibers[i].stack, m.fibers[i].stack = nullptr;
  free(written.touched), free(turn);
  written.touched = nullptr;
  snprintf(message, size, "%s", m.failure);
  return m.failure[0] == 0;
}
}  // namespace wx

#define threadIdx (wx::machine.current->place)
#define blockIdx (wx::machine.block)
#define gridDim (wx::machine.blocks)
#define __syncthreads() wx::wait(wx::AT_BLOCK, __LINE__)
#define __syncwarp(...) wx::met(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) wx::from_other(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) wx::from_before(__LINE__, __VA_ARGS__)
#define __shfl_sync(...) wx::from_lane(__LINE__, __VA_ARGS__)

#define wx_copies_here() wx::here()
#define wx_opaque(x) (x)

#define WX_KERNEL(...) static void
#define WX_IN(T) wx::Reader<T>
#define WX_REPLACED(T) wx::Reader<T>
#define WX_OUT(T) wx::Writer<T>
#define WX_REPLACING(T) wx::Writer<T>
#define WX_FLAG wx::Flag
#define WX_RAISE(flag) (*(flag).at = 1)
#define WX_SHARED(T, name, n) static wx::Shared<T, n> name
#define WX_KEPT(T, name, n) wx::Kept<T, n> name
#define WX_RUNS(name)                                                                                                   extern "C" int run_##name(const wx::Argument *a, int result, int item, uint32_t blocks, uint32_t threads,                                        uint64_t order, char *message, int size) {                                                     return wx::run(&name, a, result, item, blocks, threads, order, message, size);                                       }

template <class T, int W> struct wx_group;
template <int W, class T> static inline wx_group<T, W> wx_taken(const wx::Reader<T> &from, int64_t at) {
  if ((uintptr_t)(from.base + at) % alignof(wx_group<T, W>)) wx::fail("several elements are read from where they do not begin");
  wx_group<T, W> group;
  for (int n = 0; n < W; n++) group.at[n] = from[at + n];
  return group;
}
template <int W, class T> static inline void wx_given(const wx::Writer<T> &to, int64_t at, const wx_group<T, W> &group) {
  if ((uintptr_t)(to.base + at) % alignof(wx_group<T, W>)) wx::fail("several elements are written to where they do not begin");
  for (int n = 0; n < W; n++) to[at + n] = group.at[n];
}
template <int W, class T, int N> static inline wx_group<T, W> wx_taken(wx::Shared<T, N> &from, int64_t at) {
  if (at * sizeof(T) % alignof(wx_group<T, W>)) wx::fail("several elements of shared memory are read from where they do not begin");
  wx_group<T, W> group;
  for (int n = 0; n < W; n++) group.at[n] = from[at + n];
  return group;
}
template <int W, class T, int N> static inline void wx_given(wx::Shared<T, N> &to, int64_t at, const wx_group<T, W> &group) {
  if (at * sizeof(T) % alignof(wx_group<T, W>)) wx::fail("several elements of shared memory are written to where they do not begin");
  for (int n = 0; n < W; n++) to[at + n] = group.at[n];
}

/* Until it is waited for, what is sent is garbage that counts as written now, and once more when it is there. */
template <int W, class T, int N>
static inline void wx_copied(wx::Shared<T, N> &shared, int64_t to, const wx::Reader<T> &from, int64_t at, bool inside) {
  wx::Fiber *f = wx::machine.current;
  if (f->sent == wx::SENT) wx::fail("more is sent to shared memory than the simulated device keeps");
  wx::Sent &x = wx::machine.sent[f->place.x][f->sent++];
  x.land = wx::landed<T, N, W>, x.shared = &shared, x.at = to;
  memset(x.bytes, 0xff, sizeof x.bytes);
  if (to * sizeof(T) % 16) wx::fail("several elements of shared memory are written to where they do not begin");
  x.land(x);
  memset(x.bytes, 0, sizeof x.bytes);
  if (inside) {
    const wx_group<T, W> group = wx_taken<W>(from, at);
    memcpy(x.bytes, group.at, sizeof x.bytes);
  }
}

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
