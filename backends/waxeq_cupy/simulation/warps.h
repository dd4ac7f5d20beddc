/* What threads say to each other. */
namespace wx {
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

}  // namespace wx
