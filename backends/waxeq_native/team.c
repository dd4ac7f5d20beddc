/* A team of threads: see team.h.

   There is no barrier. A phase is published as a set of chunks; threads take chunks until none is left, and whoever
   finishes the last one walks on through the list: it runs phases of a single chunk at once, alone, and publishes the
   next one that has more. So a thread that the system holds back, or that has not woken yet, delays nobody unless it
   holds chunks.

   Each thread has a share of the chunks, which is the same in every phase of as many tasks: what one phase wrote is
   still in the cache of the core that reads it in the next. Whose share is empty takes from the end of another's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  LINE = 64,            /* bytes of a cache line; where lines are longer, only speed is lost */
  SPINS = 2000,         /* pauses before the core is offered to others, some 50 us */
  ALERT = 50 * 1000,    /* ns after a run that a thread without work keeps its core */
  LINGER = 2000 * 1000, /* ns that it stays awake: waking takes as long as a short run; others may have the core */
  STACK = 8 << 20,      /* bytes; the default of some systems is too small for tiles on the stack */
  WAKES = 2,            /* threads that one thread wakes; they wake others in turn */
  GROUP = 8,            /* threads whose chunks are the bits of one word */
  PORTION = 4,          /* what is taken at once is this part of what a share still has */
};

typedef struct {
  wx_team *team;
  pthread_t id;
  int64_t number;
  int banned;      /* the core it was sent away from last, -1 for none; the caller's to know */
  atomic_int core; /* that it was last seen on */
} worker;

/* The chunks of the threads of one group that nobody has taken yet, a bit each, and the phase that they are of. Bits
   only ever go from 1 to 0 between two phases, and whoever cleared one holds a chunk of the current phase: the rest is
   written only while all bits are 0 and no chunk is unfinished. */
typedef struct {
  _Alignas(LINE) _Atomic uint64_t left;
  wx_body body;
  char *const *args;
  int64_t tasks, chunk; /* tasks of the phase, and of a chunk */
  int64_t each, extra;  /* a thread's share is `each` chunks, and one more for the first `extra` threads */
} group;

struct wx_team {
  _Alignas(LINE) _Atomic int64_t pending; /* chunks not yet finished */
  const wx_phase *next, *last, *end;      /* the list; `last`: its last phase of several chunks */

  _Alignas(LINE) atomic_int running; /* the run is not over */
  atomic_int active;                 /* phases of several chunks are still to come: threads stay awake */
  atomic_int stop;
  atomic_int sleepers;
  atomic_uint wakes; /* changes when sleepers must look again */

  _Alignas(LINE) atomic_int busy; /* someone is in wx_run */
  int threads, workers, started;
  int groups, shift; /* a thread has 1 << shift bits in the word of its group */
  group *chunks;     /* of each group */
  worker *crew;
  wx_team *older; /* the list of all teams */
  pthread_mutex_t mutex; /* both only for sleeping */
  pthread_cond_t condition;
};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb"); /* yield takes no time on most */
#else
  atomic_signal_fence(memory_order_seq_cst);
#endif
}

static inline void spin(int *spins) {
  if (*spins < SPINS) {
    ++*spins;
    pause_briefly();
  } else {
    sched_yield();
  }
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- cores ---- */

/* Linux may wake a thread on the core of who wakes it, and leave both there for tens of milliseconds, while others are
   free: threads that sleep, or are found on the caller's core, are told to keep off it. */
#ifdef __linux__
static int core(void) { return sched_getcpu(); }

static void send_away(wx_team *team, worker *one, int from) {
  cpu_set_t cores;
  one->banned = from;
  if (sched_getaffinity(0, sizeof cores, &cores) || CPU_COUNT(&cores) < team->threads) return;
  CPU_CLR(from, &cores);
  pthread_setaffinity_np(one->id, sizeof cores, &cores);
}
#else
static int core(void) { return -1; }

static void send_away(wx_team *team, worker *one, int from) { (void)team, (void)one, (void)from; }
#endif

static void note_core(worker *me) { atomic_store_explicit(&me->core, core(), memory_order_relaxed); }

static void keep_apart(wx_team *team) {
  int here = core(), asleep = atomic_load(&team->sleepers) > 0;
  for (int i = 0; here >= 0 && i < team->workers; ++i) {
    worker *one = &team->crew[i];
    if (one->banned != here && (asleep || atomic_load_explicit(&one->core, memory_order_relaxed) == here))
      send_away(team, one, here);
  }
}

/* ---- sleeping ---- */

static void wait_while(wx_team *team, unsigned seen) {
  pthread_mutex_lock(&team->mutex);
  while (atomic_load(&team->wakes) == seen) pthread_cond_wait(&team->condition, &team->mutex);
  pthread_mutex_unlock(&team->mutex);
}

/* Wakes a few, who wake others: the caller has other things to do. */
static void wake_some(wx_team *team) {
  pthread_mutex_lock(&team->mutex);
  for (int i = 0; i < WAKES; ++i) pthread_cond_signal(&team->condition);
  pthread_mutex_unlock(&team->mutex);
}

/* A sleeper counts itself, then looks at `active`; a caller sets `active`, then looks at the count: one sees the
   other, because all four are sequentially consistent. */
static void sleep_until_needed(wx_team *team) {
  unsigned seen = atomic_load(&team->wakes);
  atomic_fetch_add(&team->sleepers, 1);
  if (!atomic_load(&team->active) && !atomic_load(&team->stop)) wait_while(team, seen);
  if (atomic_fetch_sub(&team->sleepers, 1) > 1 && (atomic_load(&team->active) || atomic_load(&team->stop)))
    wake_some(team);
}

static void rouse(wx_team *team, atomic_int *why) {
  atomic_store(why, 1);
  if (atomic_load(&team->sleepers) > 0) {
    atomic_fetch_add(&team->wakes, 1);
    wake_some(team);
  }
}

/* ---- phases ---- */

static inline int is_single(const wx_phase *phase) {
  return phase->tasks <= 1 || (phase->grain > 0 && phase->tasks <= phase->grain);
}

static inline void run_alone(const wx_phase *phase) {
  if (phase->tasks > 0) phase->body(phase->args, 0, phase->tasks, 0);
}

static inline uint64_t ones(int64_t count) { return (UINT64_C(1) << count) - 1; } /* count < 64 */

static void publish(wx_team *team, const wx_phase *phase) {
  int64_t grain = phase->grain > 0 ? phase->grain : (phase->tasks - 1) / team->threads + 1;
  int64_t bits = (int64_t)team->threads << team->shift;
  int64_t chunk = grain * (((phase->tasks - 1) / grain) / bits + 1);
  int64_t chunks = (phase->tasks - 1) / chunk + 1;
  int64_t each = chunks / team->threads, extra = chunks % team->threads;
  int threads = team->threads, groups = team->groups, shift = team->shift;
  group *all = team->chunks;
  const wx_phase copy = *phase;
  atomic_store_explicit(&team->pending, chunks, memory_order_relaxed);
  for (int g = 0, thread = 0; g < groups; ++g) {
    uint64_t left = 0;
    for (int field = 0; field < GROUP && thread < threads; ++field, ++thread)
      left |= ones(each + (thread < extra)) << (field << shift);
    if (!left) continue; /* nothing holds the run up for this group: another phase may be written to it by now */
    all[g].body = copy.body;
    all[g].args = copy.args;
    all[g].tasks = copy.tasks;
    all[g].chunk = chunk;
    all[g].each = each;
    all[g].extra = extra;
    atomic_store_explicit(&all[g].left, left, memory_order_release); /* after the last the run may end at any moment */
  }
}

/* Walks on through the list; only one thread at a time is here. */
static void walk(wx_team *team) {
  if (team->next > team->last) atomic_store_explicit(&team->active, 0, memory_order_release);
  while (team->next < team->end) {
    const wx_phase *phase = team->next++;
    if (!is_single(phase)) {
      publish(team, phase);
      return;
    }
    run_alone(phase);
  }
  atomic_store_explicit(&team->running, 0, memory_order_release);
}

static inline int64_t portion(uint64_t share) { return (__builtin_popcountll(share) + PORTION - 1) / PORTION; }

/* Each share's chunks are neighbours, because its owner takes from the front and all others from the end. */
static inline uint64_t from_front(uint64_t share) { return ones(portion(share)) << __builtin_ctzll(share); }

/* From the last share that has any, in a word that is not 0. */
static inline uint64_t from_end(uint64_t left, int shift) {
  int64_t high = 63 - __builtin_clzll(left), count = portion(left >> (high >> shift << shift));
  return ones(count) << (high + 1 - count);
}

static void finish(wx_team *team, const group *chunks, int64_t number, uint64_t taken, int64_t thread) {
  int64_t bit = __builtin_ctzll(taken), count = __builtin_popcountll(taken);
  int64_t owner = number * GROUP + (bit >> team->shift);
  int64_t first = owner * chunks->each + (owner < chunks->extra ? owner : chunks->extra);
  int64_t begin = (first + (bit & ((1 << team->shift) - 1))) * chunks->chunk;
  int64_t end = chunks->tasks - begin < count * chunks->chunk ? chunks->tasks : begin + count * chunks->chunk;
  chunks->body(chunks->args, begin, end, thread);
  if (atomic_fetch_sub_explicit(&team->pending, count, memory_order_acq_rel) == count) walk(team);
}

/* Takes some chunks and does them; 0 if there were none. */
static int work(wx_team *team, int64_t thread) {
  int64_t own = thread / GROUP;
  for (int64_t i = 0; i < team->groups; ++i) {
    int64_t number = own + i < team->groups ? own + i : own + i - team->groups;
    uint64_t share = i ? 0 : ones(1 << team->shift) << (thread % GROUP << team->shift);
    group *chunks = &team->chunks[number];
    uint64_t left = atomic_load_explicit(&chunks->left, memory_order_relaxed);
    while (left) {
      uint64_t taken = left & share ? from_front(left & share) : from_end(left, team->shift);
      if (atomic_compare_exchange_weak_explicit(&chunks->left, &left, left & ~taken, memory_order_acquire,
                                                memory_order_relaxed)) {
        finish(team, chunks, number, taken, thread);
        return 1;
      }
    }
  }
  return 0;
}

static void *work_until_stopped(void *own) {
  worker *me = own;
  wx_team *team = me->team;
  int spins = 0;
  int64_t idle_since = 0;
  while (!atomic_load_explicit(&team->stop, memory_order_relaxed)) {
    if (work(team, me->number)) {
      note_core(me);
      spins = 0;
      idle_since = 0;
    } else if (atomic_load_explicit(&team->active, memory_order_relaxed)) {
      spin(&spins);
      idle_since = 0;
    } else if (spins++ % 32) {
      pause_briefly();
    } else if (!idle_since) {
      note_core(me);
      idle_since = now();
    } else if (now() - idle_since > LINGER) {
      sleep_until_needed(team);
      note_core(me);
      spins = 0;
      idle_since = 0;
    } else if (now() - idle_since > ALERT) {
      sched_yield();
    }
  }
  return NULL;
}

/* ---- the life of a team ---- */

static pthread_mutex_t teams_mutex = PTHREAD_MUTEX_INITIALIZER;
static wx_team *teams; /* all of them, for a fork */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* The state of a team none of whose threads runs. */
static void begin(wx_team *team) {
  for (int g = 0; g < team->groups; ++g) atomic_store(&team->chunks[g].left, 0);
  atomic_store(&team->pending, 0);
  atomic_store(&team->running, 0);
  atomic_store(&team->active, 0);
  atomic_store(&team->stop, 0);
  atomic_store(&team->sleepers, 0);
  atomic_store(&team->wakes, 0);
  atomic_store(&team->busy, 0);
  team->workers = team->started = 0;
  pthread_mutex_init(&team->mutex, NULL); /* never destroyed: a child may find it locked by a thread it lacks */
  pthread_cond_init(&team->condition, NULL);
}

static void before_fork(void) { pthread_mutex_lock(&teams_mutex); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&teams_mutex); }

/* Of all threads a child has only the one that forked. */
static void after_fork_in_child(void) {
  for (wx_team *team = teams; team; team = team->older) begin(team);
  pthread_mutex_unlock(&teams_mutex);
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

/* As many threads as the system gives: fewer are slower, not wrong. They take no signals, which are for the others. */
static void start(wx_team *team) {
  pthread_attr_t attributes;
  sigset_t all, before;
  team->started = 1;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setstacksize(&attributes, STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (team->workers < team->threads - 1) {
    worker *one = &team->crew[team->workers];
    *one = (worker){.team = team, .number = team->workers + 1, .banned = -1, .core = -1};
    if (pthread_create(&one->id, &attributes, work_until_stopped, one)) break;
    ++team->workers;
#ifdef __linux__
    char name[16];
    snprintf(name, sizeof name, "waxeq-%d", (unsigned short)team->workers);
    pthread_setname_np(one->id, name);
#endif
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

wx_team *wx_team_new(int threads) {
  if (threads < 1) threads = 1;
  size_t groups = ((size_t)threads + GROUP - 1) / GROUP;
  wx_team *team = aligned_alloc(LINE, sizeof(wx_team));
  group *chunks = aligned_alloc(LINE, groups * sizeof(group));
  worker *crew = calloc((size_t)threads, sizeof(worker));
  if (!team || !chunks || !crew) {
    free(team);
    free(chunks);
    free(crew);
    return NULL;
  }
  memset(team, 0, sizeof *team);
  memset(chunks, 0, groups * sizeof(group));
  team->threads = threads;
  team->groups = (int)groups;
  team->shift = threads <= 2 ? 5 : threads <= 4 ? 4 : 3;
  team->chunks = chunks;
  team->crew = crew;
  begin(team);
  pthread_once(&fork_once, watch_forks);
  pthread_mutex_lock(&teams_mutex);
  team->older = teams;
  teams = team;
  pthread_mutex_unlock(&teams_mutex);
  return team;
}

void wx_team_free(wx_team *team) {
  if (!team) return;
  pthread_mutex_lock(&teams_mutex);
  for (wx_team **at = &teams; *at; at = &(*at)->older)
    if (*at == team) {
      *at = team->older;
      break;
    }
  pthread_mutex_unlock(&teams_mutex);
  rouse(team, &team->stop);
  for (int i = 0; i < team->workers; ++i) pthread_join(team->crew[i].id, NULL);
  free(team->crew);
  free(team->chunks);
  free(team);
}

void wx_together(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  const wx_phases *all = (const wx_phases *)(const void *)args;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t i = 0; i < all->count; ++i) {
      const wx_phase *one = &all->phases[i];
      int64_t from = one->tasks * t / all->tasks, to = one->tasks * (t + 1) / all->tasks;
      if (from < to) one->body(one->args, from, to, thread);
    }
}

void wx_run(wx_team *team, const wx_phase *phases, int64_t n) {
  const wx_phase *last = NULL;
  if (team->threads > 1)
    for (int64_t i = 0; i < n; ++i)
      if (!is_single(&phases[i])) last = &phases[i];
  if (!last || atomic_exchange_explicit(&team->busy, 1, memory_order_acquire)) {
    for (int64_t i = 0; i < n; ++i) run_alone(&phases[i]);
    return;
  }
  if (!team->started) start(team);
  team->next = phases;
  team->last = last;
  team->end = phases + n;
  atomic_store_explicit(&team->running, 1, memory_order_relaxed);
  keep_apart(team);
  rouse(team, &team->active);
  walk(team);
  int spins = 0;
  while (atomic_load_explicit(&team->running, memory_order_acquire)) {
    if (work(team, 0))
      spins = 0;
    else
      spin(&spins);
  }
  atomic_store_explicit(&team->busy, 0, memory_order_release);
}
