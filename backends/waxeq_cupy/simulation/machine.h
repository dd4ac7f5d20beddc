/* A GPU that is not there: stands before functions.h and prelude.cuh, and has the machine's C++ compiler take the text of
   a kernel as it is. Every thread of a block is a fiber, and blocks run one after another, in an order that is asked for.
   Each access to memory is looked at, so faults are found in any order, whether or not they would have been seen:

   - what lies outside an array, or is not aligned for as many elements as are moved at once
   - shared memory that is read before anything was written there
   - races: two threads at one place, one of them writing, with nothing between that orders them. Threads of a block are
     ordered by __syncthreads, lanes of a warp by __syncwarp too (and not by shuffles); what a launch writes to global
     memory, no other thread of the launch may touch
   - barriers and shuffles that some of the threads named never come to, or come to at another place in the text
   - mbarriers that are never over, or count other bytes than come; boxes that are brought over what is still read; sums
     and factors of wgmma that are used before they are waited for

   The files of this folder are one text, in the order that simulated.py names. */
// The headers of C as C has them: libstdc++'s own of these names take compilers longer than all of this file.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1
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

static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
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
enum State { READY, AT_BLOCK, AT_WARP, AT_MBARRIER, DONE };

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

}  // namespace wx
