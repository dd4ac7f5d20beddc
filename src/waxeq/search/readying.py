"""What candidates need before they can be timed, and what becomes of those that fail: the search goes on without."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial

from waxeq.amounts import cores, number_of
from waxeq.backend.call import Call
from waxeq.backend.kernel import Backend, Kernel, Unready, prepare
from waxeq.cost.key import TimingKey
from waxeq.errors import FallbackError, WaxeqError
from waxeq.events import NOTICE, StageFinished, StageStarted
from waxeq.extract.price import Prices
from waxeq.runtime.timing import ROOMLESS, VALUELESS
from waxeq.search.beside import Beside

COMPILER = 0.12
"""Seconds that starting a compiler takes on a usual machine."""
_KNOWN = 0.03
"""Seconds in which no compiler starts: what took less was compiled before."""
_TOGETHER = 4
"""Calls for each core that are compiled before the clock is looked at again."""
_UNHURRIED = 64
"""Calls that are compiled where there is no clock, before it is asked whether anybody waits."""
_GRACE, _TIMES = 2.0, 4.0
"""Seconds beyond the end of the time for searching after which a compiler is ended, and how many times as long as it
should take it may take besides: what is nearly done is waited for."""
_ALONE = 30.0
"""Seconds that one call of several which could not be compiled may take to compile on its own."""


class Readying(Beside):
    """Of a session. `readied`: what backends make ready for elements of some types; `failed`: kernels that were given
    up, and why; `untimed`: calls there was no memory to time; `late`: calls that were not compiled when the time for
    searching was over, and `waited`, the most seconds that were spent on some. The other fields are the session's."""

    backends: Sequence[Backend]
    kernels: Mapping[str, Kernel]
    prices: Prices
    readied: dict[tuple[str, frozenset[str]], Future[None]]
    compiling_seconds: float
    failed: dict[str, str]
    untimed: set[TimingKey]
    late: set[TimingKey]
    waited: float

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentences on kernels that were given up, and on calls that there was no memory to time."""
        whys = {why: self._names({n for n, w in self.failed.items() if w == why}) for why in self.failed.values()}
        given_up = (f"{', '.join(names)} could not be used: {why}" for why, names in whys.items())
        n = len(self.untimed)
        memory = (f"{number_of(n, 'call')} could not be timed for want of memory",) if n else ()
        n, ended = len(self.late), f"after {self.waited:.0f} s, when the time for searching was over"
        late = (f"{number_of(n, 'call')} could not be timed: a compiler was ended {ended}",) if n else ()
        return (*given_up, *memory, *late)

    def _names(self, failed: set[str]) -> list[str]:
        """Kernels by name, all of a backend by that of the backend."""
        whole = {b.name for b in self.backends if set[str]() < self._of(b.name) <= failed}
        some = {n for n in failed if n.partition(".")[0] not in whole}
        return [*(f"backend {name}" for name in sorted(whole)), *sorted(some)]

    def _of(self, backend: str) -> set[str]:
        return {n for n in self.kernels if n.partition(".")[0] == backend}

    @property
    def usable(self) -> Mapping[str, Kernel]:
        """The kernels that were not given up."""
        return {n: k for n, k in self.kernels.items() if n not in self.prices.excluded}

    def begin_ready(self, dtypes: Iterable[str]) -> None:
        """Let backends make ready, beside what needs no kernel, what theirs need for elements of these types."""
        kinds = frozenset(dtypes)
        for b in self.backends:
            if (b.name, kinds) not in self.readied:
                self.readied[b.name, kinds] = self.beside(partial(b.ready, kinds))

    def await_ready(self) -> None:
        """Wait for what backends make ready: before the first kernel is asked what it takes. The kernels of one that
        cannot are given up. Raises FallbackError with `strict`."""
        begun = time.perf_counter()
        for (name, _), found in self.readied.items():
            try:
                self._awaited(name, found)
            except WaxeqError as e:
                if not self.prices.excluded >= self._of(name):
                    self._exclude(self._of(name), e)
        self.compiling_seconds += time.perf_counter() - begun

    def _awaited(self, backend: str, found: Future[None]) -> None:
        """Returns when it is done; raises what that raises, and Unready where nobody waits any more."""
        if not found.done():
            self.events.emit(StageStarted("compile", what := f"what backend {backend} needs"))
            while wait([found], NOTICE).not_done:
                if self.events.stop_requested and wait([found], _GRACE).not_done:
                    raise Unready("what its kernels need was not compiled when the search was stopped")
            self.events.emit(StageFinished("compile", self.deadline.elapsed, what))
        self.joined(found)

    @contextmanager
    def unfit(self, call: Call) -> Iterator[None]:
        """Inside, a call is timed. One that cannot be is left as it is: no operands were found that have a value, or
        several copies of them have no room. A kernel that fails is given up. Raises FallbackError with `strict`."""
        try:
            yield
        except VALUELESS:
            pass
        except ROOMLESS:
            self.untimed.add(self.prices.key(call))
        except WaxeqError as e:
            self._exclude({call.kernel}, e)

    def _ready(self, calls: Sequence[Call]) -> Sequence[Call]:
        """The calls that can be bound: what must be compiled for them is. Kernels that cannot be are given up, and the
        report says so. Raises FallbackError with `strict`."""
        calls = [c for c in calls if c.kernel not in self.prices.excluded]
        ready = list[Call]()
        together = _TOGETHER * cores() if self.deadline.seconds is not None else _UNHURRIED
        try:
            for start in range(0, len(calls), together):
                if self.pressed:
                    break
                group = calls[start : start + together]
                self._compile(group, self._patience(group))
                ready += group
        except Unready:
            self.late |= {self.prices.key(c) for c in group}
        except WaxeqError as e:
            self._give_up(calls, e)
            ready = calls
        return [c for c in ready if c.kernel not in self.prices.excluded]

    def require_ready(self, calls: Iterable[Call]) -> bool:
        """Make ready all calls of plans that are about to run. False where kernels of theirs had to be given up: then
        others are to be searched. Raises FallbackError with `strict`."""
        calls, known = list(calls), len(self.prices.excluded)
        try:
            self._compile(calls)
        except WaxeqError as e:
            self._give_up(calls, e)
        return len(self.prices.excluded) == known

    def _usual(self, calls: Sequence[Call]) -> float:
        """Seconds that making calls ready takes on a usual machine."""
        return COMPILER + sum(self.kernels[c.kernel].compiling for c in calls)

    def _patience(self, calls: Sequence[Call]) -> float:
        """Seconds that a search waits for calls to be made ready."""
        if self.deadline.seconds is None:
            return math.inf
        return max(0.0, self.searching) + _GRACE + _TIMES * self.slow * self._usual(calls)

    def _compile(self, calls: Sequence[Call], patience: float = math.inf) -> None:
        """Make calls ready with one start of a compiler, and note how long that took and should have taken; what was
        there already, or hung, tells nothing. Raises what their kernels raise, Unready after so many seconds."""
        begun, hung = time.perf_counter(), False
        try:
            prepare(((self.kernels[c.kernel], c) for c in calls), patience)
        except Unready:
            hung = True
            raise
        finally:
            took = time.perf_counter() - begun
            self.compiling_seconds += took
            if hung:
                self.waited = max(self.waited, took)
            elif took > _KNOWN:
                self.compiled_seconds += took
                self.usual_seconds += self._usual(calls)

    def _give_up(self, calls: Sequence[Call], why: WaxeqError) -> None:
        """Exclude the kernels that cannot be made ready: where nothing that is made in the same way can be, and it is
        not the first time, all that are. Raises FallbackError with `strict`."""
        self._refuse(why)
        failed, fine = set[str](), set[object]()
        for c in calls:
            try:
                self._compile([c], _ALONE)
                fine.add(self.kernels[c.kernel].prepare)
            except WaxeqError:
                failed.add(c.kernel)
        one = {self.kernels[n].prepare: n for n in self.failed}
        several = {w for n in failed if one.setdefault(w := self.kernels[n].prepare, n) != n} - fine
        self._exclude(failed | {n for n, k in self.kernels.items() if k.prepare in several}, why)

    def _exclude(self, failed: set[str], why: WaxeqError) -> None:
        self._refuse(why)
        self.prices.exclude(failed)
        self.failed |= dict.fromkeys(sorted(failed), str(why))

    def _refuse(self, why: WaxeqError) -> None:
        if self.options.strict:
            raise FallbackError(f"kernels could not be made ready: {why}") from why
