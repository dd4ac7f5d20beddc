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
"""Rounds taken in any case; after which those that are far slower end; and after which a contest ends of which one
rival is left."""
_SLOWER = 3
"""How many times slower than the best is far slower."""
_LOOKS = frozenset((2, *(3 << i for i in range(9))))


class _Turns:
    """What rivals took in their turns so far: seconds per call, seconds of all that belongs to a turn, and how many
    turns others disturbed."""

    def __init__(self, rivals: Mapping[str, Callable[[], object]], once: Mapping[str, float], long: float) -> None:
        self.rivals, self.once, self.long = rivals, once, long
        self.taken: dict[str, list[float]] = {n: [] for n in rivals}
        self.spent = dict.fromkeys(rivals, 0.0)
        self.disturbed = dict.fromkeys(rivals, 0)

    def take(self, name: str) -> None:
        taken, begun = self.taken[name], time.perf_counter()
        seconds, calm = _turn(self.rivals[name], taken[-1] if taken else self.once[name], self.long)
        taken.append(seconds)
        self.disturbed[name] += not calm
        self.spent[name] += time.perf_counter() - begun

    def slower(self, running: Collection[str], beside: Collection[str]) -> list[str]:
        """Those that are far slower than the best."""
        middle = {k: statistics.median(self.taken[k]) for k in running}
        best = min((m for k, m in middle.items() if k not in beside), default=0.0)
        return [k for k, m in middle.items() if k not in beside and m > _SLOWER * best]

    def used_up(self, running: Collection[str], beside: Collection[str], share: float, late: bool) -> list[str]:
        """Of those far slower the ones whose next turn would end after their share, while there are others to compare
        the best with; and all, where it is `late`."""
        slow = self.slower(running, beside)
        over = [k for k in slow if late or self.spent[k] * (1 + 1 / len(self.taken[k])) > share]
        return over if late or len(running) - len(over) > 1 else []

    @property
    def samples(self) -> dict[str, Samples]:
        """Seconds per call of each."""
        return {n: Samples(tuple(t), 2 * self.disturbed[n] > len(t)) for n, t in self.taken.items()}


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
    shared: bool = False,
) -> dict[str, Samples]:
    """Seconds per call of each rival. In each round every one has a turn, in random (seeded) order. Ends after
    `rounds`, before one that would end after `budget` seconds if it took as long as the last, but not before `fewest`
    rounds, or when of what was found nothing is `unsettled`: it is asked after 2, 3, 6, 12 ... rounds who should go on.
    `ran`: seconds of a call of those that made one just now, which need no first one. Calls of over `long` seconds are
    timed without an untimed one before. What is `beside` the rivals takes turns with them, however long it takes, and
    none of them ends as it is slower. Who is more than three times slower than the best ends after three rounds;
    `shared`: when its turns took its share of the budget, of which all have the same."""
    rng, known = random.Random(seed), ran or {}
    turns = _Turns(rivals, {n: known[n] if n in known else _once(fn, long) for n, fn in rivals.items()}, long)
    running, share = list(rivals), budget / max(1, len(rivals))
    with uncollected():
        now = time.perf_counter()
        end, lasted = now + budget, 0.0
        for n in range(rounds):
            lasted, now = time.perf_counter() - now, time.perf_counter()
            if (n >= fewest and now + lasted > end) or (n >= _ALONE and len(running) == 1):
                break
            for name in rng.sample(running, len(running)):
                turns.take(name)
            ended = list[str]()
            if n + 1 == _SIFTED and not shared:
                ended = turns.slower(running, beside)
            elif n + 1 >= _SIFTED and shared:
                ended = turns.used_up(running, beside, share, time.perf_counter() > end)
            asked = unsettled(turns.samples) if n + 1 in _LOOKS and unsettled is not None else running
            running = [k for k in running if k in asked and k not in ended]
            if not running:
                break
    return turns.samples


def _turn(fn: Callable[[], object], last: float, long: float) -> tuple[float, bool]:
    """Seconds per call in one turn, and whether nobody disturbed it; `last`: what it took before."""
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
    found = counted(taken)
    return max(found.median / repeats, 1e-9), not found.disturbed


def _once(fn: Callable[[], object], long: float) -> float:
    """Seconds of a first call; of a second where that is short."""
    for _ in range(2):
        start = time.perf_counter()
        fn()
        took = time.perf_counter() - start
        if took > long:
            break
    return max(took, 1e-9)
