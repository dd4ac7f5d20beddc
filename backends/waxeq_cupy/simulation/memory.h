/* Memory, every access of which is looked at. */
namespace wx {
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

/* What the current thread reads of what the launch writes, perhaps in its own name, perhaps for others. */
static void looked_at(const void *at) {
  const int64_t bytes = (const char *)at - written.base, place = bytes / written.item;
  if (!written.touched || bytes < written.low * written.item || place >= written.high) return;
  Touched &t = written.touched[place - written.low];
  if (t.writer && t.writer != self()) fail("race: what one thread writes, another one reads");
  t.readers |= t.reader && t.reader != self();
  t.reader = self();
}

template <class T> struct Reader {
  const T *base;
  int64_t low, high;
  Reader(const Argument &a) : base((const T *)a.base), low(a.low), high(a.high) {}
  T operator[](int64_t n) const {
    if (n < low || n >= high) fail("an operand is read outside of it");
    looked_at(base + n);
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

}  // namespace wx

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
