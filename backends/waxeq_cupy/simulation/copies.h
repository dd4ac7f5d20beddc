/* Copies to shared memory that are not there before they are waited for: cp.async. */
namespace wx {
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

}  // namespace wx

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
