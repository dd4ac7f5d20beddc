/* Threads that stay alive between calls, and the list of phases that they run together. */
#ifndef WX_TEAM_H
#define WX_TEAM_H

#include <stdint.h>

/* Does tasks begin..end-1 of one phase. `thread` (0..threads-1) names scratch memory that no other task of the run is
   using at the moment. A body must not fork and must not free its team. */
typedef void (*wx_body)(char *const *args, int64_t begin, int64_t end, int64_t thread);

/* `grain`: how many tasks a thread takes at once; less than 1 means an even split over the threads. */
typedef struct {
  wx_body body;
  char *const *args;
  int64_t tasks;
  int64_t grain;
} wx_phase;

/* Phases of which none needs what another writes, as one of `tasks` tasks: each task is the same part of all of them. */
typedef struct {
  const wx_phase *phases;
  int64_t count;
  int64_t tasks;
} wx_phases;

/* The body of such a phase; its arguments are a wx_phases. */
void wx_together(char *const *args, int64_t begin, int64_t end, int64_t thread);

typedef struct wx_team wx_team;

/* A team of `threads`, the caller of wx_run being one of them; NULL without memory. Threads start when first needed. */
wx_team *wx_team_new(int threads);

/* Ends the threads. No wx_run may be under way. */
void wx_team_free(wx_team *team);

/* Runs n phases one after the other: all tasks of one end before the next begins. Returns when all are done.
   A call while the team is at work (from another thread, or from a body) does everything on its own thread. */
void wx_run(wx_team *team, const wx_phase *phases, int64_t n);

#endif
