/* Who runs when: threads of a block by turns, until each of them waits or has ended; then whoever need not wait on. */
namespace wx {
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
    bool freed = passed();
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
    if (done == m.threads) return ended();
    if (unmet()) return;
    if (stuck) fail_at(stuck, "a lane waits for others that do not come");
    else if (done) fail_at(first, "a thread waits at a barrier when others have ended");
    else if (apart) fail_at(apart, "threads wait for each other at different barriers");
    for (unsigned i = 0; i < m.threads; i++) m.fibers[i].state = READY;
    m.epoch++;
    joined();
  }
}

}  // namespace wx
