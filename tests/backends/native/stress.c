/* The promises of team.h, tried hard: run under sanitizers. Exits with 0 if all hold. */
#include "team.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) {                                             \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                      \
    }                                                               \
  } while (0)

enum { TASKS = 97, PHASES = 40, THREADS = 16 };

/* Every phase reads what the whole phase before wrote: cell i of phase p is p + the cell (i + 7) of phase p - 1. */
typedef struct {
  int64_t cells[PHASES + 1][TASKS];
  int64_t in_use[THREADS]; /* scratch: two tasks with one number at the same time are a race here */
  int64_t visits[TASKS];
} memory;

static void step(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  memory *m = (memory *)args[0];
  int64_t phase = *(const int64_t *)args[1];
  CHECK(0 <= begin && begin < end && 0 <= thread && thread < THREADS);
  int64_t mine = ++m->in_use[thread];
  for (int64_t i = begin; i < end; ++i) {
    m->cells[phase][i] = phase + m->cells[phase - 1][(i + 7) % TASKS];
    ++m->visits[i];
  }
  CHECK(m->in_use[thread] == mine);
}

static void all_at_once(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  CHECK(begin == 0 && end == 1 && thread == 0);
  for (int64_t i = 0; i < TASKS; ++i) step(args, i, i + 1, thread);
}

static void fill(memory *m) {
  memset(m, 0, sizeof *m);
  for (int64_t i = 0; i < TASKS; ++i) m->cells[0][i] = i * i;
}

static void compare(const memory *m) {
  int64_t want[2][TASKS];
  for (int64_t i = 0; i < TASKS; ++i) want[0][i] = i * i;
  for (int64_t p = 1; p <= PHASES; ++p)
    for (int64_t i = 0; i < TASKS; ++i) want[p % 2][i] = p + want[(p - 1) % 2][(i + 7) % TASKS];
  CHECK(!memcmp(m->cells[PHASES], want[PHASES % 2], sizeof want[0]));
  for (int64_t i = 0; i < TASKS; ++i) CHECK(m->visits[i] == PHASES);
}

/* serial: of every phase in turn, whether it is a single task */
static void run_chain(wx_team *team, unsigned serial, int64_t grain) {
  memory *m = malloc(sizeof *m);
  CHECK(m);
  fill(m);
  int64_t numbers[PHASES];
  char *args[PHASES][2];
  wx_phase phases[PHASES];
  for (int64_t p = 0; p < PHASES; ++p) {
    numbers[p] = p + 1;
    args[p][0] = (char *)m;
    args[p][1] = (char *)&numbers[p];
    int alone = serial >> (p % 16) & 1;
    phases[p] = (wx_phase){alone ? all_at_once : step, args[p], alone ? 1 : TASKS, grain};
  }
  wx_run(team, phases, PHASES);
  compare(m);
  free(m);
}

static void nap(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }

static void chains(int threads, int rounds) {
  wx_team *team = wx_team_new(threads);
  CHECK(team);
  const unsigned patterns[] = {0, 0xffff, 0x5555, 0x8001, 0x7fff, 0xfffe, 0x00ff};
  for (int round = 0; round < rounds; ++round) {
    run_chain(team, patterns[round % 7], (const int64_t[]){1, 0, 5, 1000, 48}[round % 5]);
    if (round % 16 == 0) nap(200000); /* long enough that the threads sleep */
    if (round % 16 == 8) nap(50000);  /* about when they fall asleep */
  }
  wx_team_free(team);
}

typedef struct {
  wx_team *team;
  int rounds;
} caller;

static void *call(void *own) {
  caller *me = own;
  for (int round = 0; round < me->rounds; ++round) run_chain(me->team, round % 3 ? 0 : 0x0f0f, 3);
  return NULL;
}

static void several_callers(int rounds) {
  caller me = {wx_team_new(3), rounds};
  pthread_t ids[3];
  for (int i = 0; i < 3; ++i) CHECK(!pthread_create(&ids[i], NULL, call, &me));
  for (int i = 0; i < 3; ++i) pthread_join(ids[i], NULL);
  wx_team_free(me.team);
}

static void run_inside(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  (void)thread;
  for (int64_t i = begin; i < end; ++i) run_chain((wx_team *)args[0], 0x00f0, 2);
}

static void nested(void) {
  wx_team *team = wx_team_new(4);
  char *args[] = {(char *)team};
  wx_phase phases[] = {{run_inside, args, 6, 1}, {run_inside, args, 1, 1}, {run_inside, args, 6, 1}};
  wx_run(team, phases, 3);
  wx_team_free(team);
}

static void edges(void) {
  wx_team_free(NULL);
  wx_team *team = wx_team_new(4);
  wx_run(team, NULL, 0);
  char *args[] = {NULL};
  wx_phase none[] = {{step, args, 0, 1}, {step, args, 0, 0}};
  wx_run(team, none, 2);
  wx_team_free(team);
  team = wx_team_new(0);
  run_chain(team, 0, 1);
  wx_team_free(team);
}

typedef struct {
  int64_t tasks, grain, visits[600];
} marks;

static void mark(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  (void)thread;
  marks *m = (marks *)args[0];
  CHECK(begin < end && end <= m->tasks);
  if (m->grain > 0) CHECK(begin % m->grain == 0 && (end == m->tasks || end % m->grain == 0));
  for (int64_t i = begin; i < end; ++i) ++m->visits[i];
}

static void every_task_once(int threads) {
  wx_team *team = wx_team_new(threads);
  marks m;
  char *args[] = {(char *)&m};
  for (int64_t tasks = 1; tasks < 600; tasks += 1 + tasks / 7)
    for (int64_t grain = -1; grain < 90; grain += 1 + grain / 5) {
      memset(&m, 0, sizeof m);
      m.tasks = tasks;
      m.grain = grain;
      wx_run(team, &(wx_phase){mark, args, tasks, grain}, 1);
      for (int64_t i = 0; i < 600; ++i) CHECK(m.visits[i] == (i < tasks));
    }
  wx_team_free(team);
}

/* Phases of few and many tasks as one: every task of each once, in order within a thread. */
static void several_as_one(int threads) {
  wx_team *team = wx_team_new(threads);
  const int64_t tasks[3] = {600, 1, 37};
  marks m[3];
  char *args[3][1];
  wx_phase inner[3];
  for (int64_t together = 1; together < 800; together += 1 + together / 3) {
    memset(m, 0, sizeof m);
    for (int i = 0; i < 3; ++i) {
      m[i].tasks = tasks[i];
      args[i][0] = (char *)&m[i];
      inner[i] = (wx_phase){mark, args[i], tasks[i], 0};
    }
    wx_phases all = {inner, 3, together};
    wx_run(team, &(wx_phase){wx_together, (char *const *)(void *)&all, together, 1}, 1);
    for (int i = 0; i < 3; ++i)
      for (int64_t k = 0; k < 600; ++k) CHECK(m[i].visits[k] == (k < tasks[i]));
  }
  wx_team_free(team);
}

static void count(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  (void)thread;
  int64_t *total = (int64_t *)args[0];
  __atomic_fetch_add(total, end - begin, __ATOMIC_RELAXED);
}

static void more_tasks_than_fit(void) {
  wx_team *team = wx_team_new(2);
  int64_t total = 0, tasks = INT64_MAX / 2;
  char *args[] = {(char *)&total};
  for (int64_t grain = 0; grain < 2; ++grain) {
    total = 0;
    wx_run(team, &(wx_phase){count, args, tasks, grain}, 1);
    CHECK(total == tasks);
  }
  wx_team_free(team);
}

static void see_signals(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  (void)begin, (void)end;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  ((int *)args[0])[thread] = sigismember(&blocked, SIGINT) ? 1 : -1;
  nap(1000000);
}

static void signals(void) {
  wx_team *team = wx_team_new(2);
  int blocked[2] = {0, 0};
  char *args[] = {(char *)blocked};
  for (int i = 0; i < 1000 && !blocked[1]; ++i) wx_run(team, &(wx_phase){see_signals, args, 8, 1}, 1);
  CHECK(blocked[0] == -1 && blocked[1] == 1);
  wx_team_free(team);
}

static void forks(int rounds) {
  wx_team *team = wx_team_new(4);
  for (int round = 0; round < rounds; ++round) {
    if (round) run_chain(team, 0, 1);
    if (round % 2) nap(200000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
      for (int i = 0; i < 5; ++i) run_chain(team, 0x1111, 1);
      wx_team_free(team);
      _exit(0);
    }
    run_chain(team, 0, 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  wx_team_free(team);
}

/* Usage: stress [rounds [without forks]]; not every sanitizer can follow a fork. */
int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100;
  const int threads[] = {1, 2, 3, 5, 8, 9, THREADS};
  for (int i = 0; i < 7; ++i) {
    chains(threads[i], rounds);
    every_task_once(threads[i]);
    several_as_one(threads[i]);
  }
  several_callers(rounds);
  nested();
  edges();
  more_tasks_than_fit();
  signals();
  if (argc <= 2) forks(10);
  return 0;
}
