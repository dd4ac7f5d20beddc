/* A call of a program, from the arrays that it is given to those that it gives, as one function of Python.

   It takes arrays that are as the program wants them; for anything else it answers None, and has done nothing. Headers
   of Python may not be there where kernels are compiled, so the few functions that are used are declared here: those of
   the stable ABI. How an array of NumPy lies in memory is part of NumPy's ABI too; calling.py looks at both before this
   is used, and fills in the structures. */
#include <stdint.h>
#include <string.h>

#include "team.h"

typedef struct object {
  intptr_t references;
  void *type;
} object;

extern object _Py_NoneStruct, PyTuple_Type;
void Py_IncRef(object *);
void Py_DecRef(object *);
intptr_t PyTuple_Size(object *);
object *PyTuple_New(intptr_t);
object *PyTuple_GetItem(object *, intptr_t);
int PyTuple_SetItem(object *, intptr_t, object *);
object *PyObject_CallFunctionObjArgs(object *, ...);
object *PyCapsule_New(void *, const char *, void (*)(object *));
void *PyCapsule_GetPointer(object *, const char *);
void *PyCapsule_GetContext(object *);
int PyCapsule_SetContext(object *, void *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);

typedef struct {
  const char *name;
  object *(*function)(object *, object *);
  int flags;
  const char *about;
} method;
object *PyCFunction_NewEx(method *, object *, object *);

enum { VARARGS = 1, ONE = 8 };                                 /* how a function takes its arguments */
enum { CONTIGUOUS = 0x1, ALIGNED = 0x100, WRITEABLE = 0x400 }; /* flags of an array */
enum { SLOTS = 4, FEW = 2 };                                   /* LENT and FEW of waxeq.backend.direct */

typedef struct {
  object head;
  char *data;
  int axes;
  intptr_t *shape, *strides;
  object *base, *dtype;
  int flags;
} array;

/* What an array is: one of this dtype and shape, of so many bytes. */
typedef struct {
  object *dtype;
  const intptr_t *shape;
  int64_t axes, bytes;
} type;

/* An argument of a kernel: `offset` bytes into the memory that it is pointed at. */
typedef struct {
  char **cell;
  int64_t offset;
} place;

/* An input, or a result. `own`: memory of the program that an input is copied into, and a result out of where it has no
   places; NULL where it is used where it lies. */
typedef struct {
  type is;
  char *own;
  const place *places;
  int64_t count;
} row;

/* Memory that is lent to results: all of them are views of `shown`, to which `keeper` refers once, and nothing else. */
typedef struct {
  object *keeper, *shown;
  char *address;
} slot;

/* Where a result lies: in a slot, or, of one that has memory of its own too (a small one), in an array made for it. */
typedef struct {
  slot slots[SLOTS];
  const slot *taken; /* both by the call that runs, NULL where it does not */
  object *made;
} lent;

typedef struct {
  wx_team *team;
  const wx_phase *phases;
  int64_t phase_count;
  const row *inputs, *outputs;
  lent *memory; /* by output */
  int64_t input_count, output_count;
  int32_t *const *outside; /* of each call that may fail: whether it did */
  int64_t outside_count;
  object *check; /* called where one was, and raises */
  object *more;  /* called for free slots, where all are lent */
  void (*run)(wx_team *, const wx_phase *, int64_t);
  object *array_type;
  object *(*new_array)(object *, object *, int, const intptr_t *, const intptr_t *, void *, int, object *);
  int (*set_base)(object *, object *);
  int64_t busy; /* someone is in a call */
} calling;

static const char NAME[] = "waxeq_native.calling";

static object *again(object *x) {
  Py_IncRef(x);
  return x;
}

/* ---- what goes in ---- */

static int fits(const calling *c, object *args) {
  if (args->type != &PyTuple_Type || PyTuple_Size(args) != c->input_count) return 0;
  for (int64_t i = 0; i < c->input_count; ++i) {
    const array *a = (const array *)(const void *)PyTuple_GetItem(args, i);
    const type *wanted = &c->inputs[i].is;
    if (a->head.type != c->array_type || a->dtype != wanted->dtype || a->axes != wanted->axes ||
        (a->flags & (CONTIGUOUS | ALIGNED)) != (CONTIGUOUS | ALIGNED))
      return 0;
    for (int64_t k = 0; k < wanted->axes; ++k)
      if (a->shape[k] != wanted->shape[k]) return 0;
  }
  return 1;
}

static void point(const row *r, char *at) {
  for (int64_t i = 0; i < r->count; ++i) *r->places[i].cell = at + r->places[i].offset;
}

static void take_in(const calling *c, object *args) {
  for (int64_t i = 0; i < c->input_count; ++i) {
    char *data = ((const array *)(const void *)PyTuple_GetItem(args, i))->data;
    if (c->inputs[i].own)
      memcpy(c->inputs[i].own, data, (size_t)c->inputs[i].is.bytes);
    else
      point(&c->inputs[i], data);
  }
}

/* ---- where results lie ---- */

static int is_copied(const row *output) { return output->own && !output->count; }

/* A slot that nobody can see, if there is one; `count`: how many there are. */
static const slot *free_slot(const lent *l, int *count) {
  *count = 0;
  for (int k = 0; k < SLOTS && l->slots[k].shown; ++k, ++*count)
    if (l->slots[k].shown->references == 1) return &l->slots[k];
  return NULL;
}

/* Takes a free slot for every result that may lie in one; whether there are as many as there should be. */
static int take_slots(calling *c) {
  int enough = 1, count;
  for (int64_t i = 0; i < c->output_count; ++i) {
    const row *r = &c->outputs[i];
    if (is_copied(r)) continue;
    const slot *s = c->memory[i].taken = free_slot(&c->memory[i], &count);
    if (s)
      point(r, s->address);
    else if (!r->own || count < FEW)
      enough = 0;
  }
  return enough;
}

static object *array_of(const calling *c, const type *t, char *data) {
  again(t->dtype); /* the new array has it */
  return c->new_array(c->array_type, t->dtype, (int)t->axes, t->shape, NULL, data,
                      data ? CONTIGUOUS | ALIGNED | WRITEABLE : 0, NULL);
}

static void drop_made(calling *c) {
  for (int64_t i = 0; i < c->output_count; ++i)
    if (c->memory[i].made) {
      Py_DecRef(c->memory[i].made);
      c->memory[i].made = NULL;
    }
}

/* Makes an array for every result that has no slot; 0 where there is no memory for one. */
static int make_arrays(calling *c) {
  for (int64_t i = 0; i < c->output_count; ++i) {
    const row *r = &c->outputs[i];
    lent *l = &c->memory[i];
    if (is_copied(r) || l->taken) continue;
    l->made = array_of(c, &r->is, NULL);
    if (!l->made) return 0;
    point(r, ((array *)(void *)l->made)->data);
  }
  return 1;
}

static object *result(calling *c, int64_t i) {
  const row *r = &c->outputs[i];
  lent *l = &c->memory[i];
  object *found = l->made;
  if (found) {
    l->made = NULL;
  } else if (is_copied(r)) {
    found = array_of(c, &r->is, NULL);
    if (found) memcpy(((array *)(void *)found)->data, r->own, (size_t)r->is.bytes);
  } else {
    found = array_of(c, &r->is, l->taken->address);
    if (found && c->set_base(found, again(l->taken->shown)) < 0) {
      Py_DecRef(found);
      return NULL;
    }
  }
  return found;
}

/* The result, or a tuple of several. */
static object *results(calling *c) {
  if (c->output_count == 1) return result(c, 0);
  object *all = PyTuple_New(c->output_count);
  for (int64_t i = 0; all && i < c->output_count; ++i) {
    object *one = result(c, i);
    if (!one || PyTuple_SetItem(all, i, one) < 0) {
      Py_DecRef(all);
      return NULL;
    }
  }
  return all;
}

/* ---- running ---- */

static int looked_outside(const calling *c) {
  int found = 0;
  for (int64_t i = 0; i < c->outside_count; ++i) found |= *c->outside[i] != 0;
  return found;
}

/* Whether a function of no arguments could be called. */
static int done(object *function) {
  object *found = PyObject_CallFunctionObjArgs(function, NULL);
  if (found) Py_DecRef(found);
  return found != NULL;
}

static object *called(calling *c, object *args) {
  if (!take_slots(c)) {
    if (!done(c->more)) return NULL;
    take_slots(c);
  }
  if (!make_arrays(c)) return NULL;
  take_in(c, args);
  void *thread = PyEval_SaveThread(); /* others run meanwhile, and find it busy */
  c->run(c->team, c->phases, c->phase_count);
  PyEval_RestoreThread(thread);
  return looked_outside(c) && !done(c->check) ? NULL : results(c);
}

static object *call(object *self, object *args) {
  calling *c = PyCapsule_GetPointer(self, NAME);
  if (!c) return NULL;
  if (c->busy || !fits(c, args)) return again(&_Py_NoneStruct);
  c->busy = 1;
  object *found = called(c, args);
  if (!found) drop_made(c);
  c->busy = 0;
  return found;
}

/* Calls a function with an argument while no call can begin; None where one is under way. */
static object *alone(object *self, object *args) {
  calling *c = PyCapsule_GetPointer(self, NAME);
  if (!c) return NULL;
  object *function = PyTuple_GetItem(args, 0), *argument = function ? PyTuple_GetItem(args, 1) : NULL;
  if (!argument) return NULL;
  if (c->busy) return again(&_Py_NoneStruct);
  c->busy = 1;
  object *found = PyObject_CallFunctionObjArgs(function, argument, NULL);
  c->busy = 0;
  return found;
}

static method methods[] = {
    {"call", call, ONE, "Results of a call on a tuple of arrays, or None where they do not fit."},
    {"alone", alone, VARARGS, "What a function gives of an argument; None while a call is under way."},
};

static void drop(object *capsule) { Py_DecRef(PyCapsule_GetContext(capsule)); }

/* Both functions, as a tuple. `keep`: what owns the memory of `c` and all that it points to. */
object *wx_calling(calling *c, object *keep) {
  object *self = PyCapsule_New(c, NAME, drop);
  if (!self) return NULL;
  PyCapsule_SetContext(self, again(keep));
  object *both = PyTuple_New(2);
  for (int i = 0; both && i < 2; ++i) {
    object *function = PyCFunction_NewEx(&methods[i], self, NULL);
    if (!function || PyTuple_SetItem(both, i, function) < 0) {
      Py_DecRef(both);
      both = NULL;
    }
  }
  Py_DecRef(self);
  return both;
}
