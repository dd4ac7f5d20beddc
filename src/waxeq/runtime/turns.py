"""Timing rivals that each have threads and caches of their own, in one process: by turns, in random order, each given
time to come to rest and then to get going.

A turn times what a user's loop would see: threads, caches and clocks are the rival's own by then, not those of the one
before it, whose threads spin for a while when it is done.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping

from waxeq.runtime.measure import Samples, counted, uncollected
from waxeq.runtime.neighbours import sample
from waxeq.runtime.rest import rest

_GOING = 15e-3
"""Seconds of untimed calls at the beginning of a turn."""
_TURN = 2e-3
"""Shorter calls are repeated until about so many seconds have gone by, and count together."""
_LONG = 0.2
"""Longer calls need no untimed call that fills caches and wakes threads."""
_AGAIN = 3
"""Times that a turn is taken, at most, when other processes had the cores meanwhile."""
_FEWEST, _SIFTED, _ALONE = 5, 3, 20
"""Rounds taken in any case; after which those more than three times slower than the best end; and after which a contest
ends of which one rival is left."""
_LOOKS = frozenset((2, *(3 << i for i in range(9))))


def take_turns(
    rivals: Mapping[str, Callable[[], object]],
    *,
    budget: float,
    rounds: int = 400,
    fewest: int = _FEWEST,
    seed: int = 0,
    unsettled: Callable[[Mapping[str, Samples]], Collection[str]] | None = None,
    ran: Mapping[str, float] | None = None,
    long: float = _LONG,
    beside: Collection[str] = (),
) -> dict[str, Samples]:
    """Seconds per call of each rival. In each round every one has a turn, in random (seeded) order. Ends after
    `rounds`, before one that would end after `budget` seconds if it took as long as the last, but not before `fewest`
    rounds, or when of what was found nothing is `unsettled`: it is asked after 2, 3, 6, 12 ... rounds who should go on.
    `ran`: seconds of a call of those that made one just now, which need no first one. Calls of over `long` seconds are
    timed without an untimed one before. What is `beside` the rivals takes turns with them, however long it takes, and
    none of them ends as it is slower."""
    rng = random.Random(seed)
    known = ran or {}
    once = {n: known[n] if n in known else _once(fn, long) for n, fn in rivals.items()}
    taken: dict[str, list[float]] = {n: [] for n in rivals}
    running = list(rivals)
    with uncollected():
        now = time.perf_counter()
        end, lasted = now + budget, 0.0
        for n in range(rounds):
            lasted, now = time.perf_counter() - now, time.perf_counter()
            if (n >= fewest and now + lasted > end) or (n >= _ALONE and len(running) == 1):
                break
            for name in rng.sample(running, len(running)):
                taken[name].append(_turn(rivals[name], taken[name][-1] if taken[name] else once[name], long))
            if n + 1 == _SIFTED:
                middle = {k: statistics.median(taken[k]) for k in running}
                best = min(m for k, m in middle.items() if k not in beside)
                running = [k for k, m in middle.items() if k in beside or m <= 3 * best]
            if n + 1 in _LOOKS and unsettled is not None:
                asked = unsettled({k: Samples(tuple(t)) for k, t in taken.items()})
                running = [k for k in running if k in asked]
            if not running:
                break
    return {n: Samples(tuple(t)) for n, t in taken.items()}


def _turn(fn: Callable[[], object], last: float, long: float) -> float:
    """Seconds per call in one turn; `last`: what it took before."""
    rest()
    going = time.perf_counter() + _GOING
    while last <= long and time.perf_counter() < going:
        fn()
    repeats = max(1, round(_TURN / last))

    def repeated() -> None:
        for _ in range(repeats):
            fn()

    taken = list[tuple[float, bool]]()
    while not any(calm for _, calm in taken) and len(taken) < (_AGAIN if last <= _LONG else 1):
        taken.append(sample(repeated))
    return max(counted(taken).median / repeats, 1e-9)


def _once(fn: Callable[[], object], long: float) -> float:
    """Seconds of a first call; of a second where that is short."""
    for _ in range(2):
        start = time.perf_counter()
        fn()
        took = time.perf_counter() - start
        if took > long:
            break
    return max(took, 1e-9)
