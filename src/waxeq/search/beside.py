"""What is worked out beside a search, on cores that it leaves idle, and who may have how many of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from waxeq.amounts import cores
from waxeq.events import NOTICE
from waxeq.options import Options
from waxeq.search.pace import Pace

Value = TypeVar("Value")
_WAITED = 0.5
"""Part of the time for timing calls that may go by before the first is timed."""


class Beside(Pace):
    """Of a session. `others`: all that was ever worked out beside it; `released`: set when what was to wait for the
    first saturation may begin; `pools`: threadpoolctl's, of the libraries that were there when it began."""

    options: Options
    others: list[Future]
    released: threading.Event
    pools: Any

    def blas(self, most: int) -> Any:
        """Let a call of BLAS have so many threads from now on; what restores what was before. It is for the thread that
        an optimization runs in to say, for all: threadpoolctl lets one decide."""
        return self.pools.limit(limits=most)

    def beside(self, make: Callable[[], Value], *, later: bool = False) -> Future[Value]:
        """What `make` will answer or raise, worked out on another core meanwhile. No kernel is timed before it has.
        What may come `later` waits on one core until it is `release`d: saturation has a limit of time."""
        found: Future[Value] = Future()
        waits = later and cores() == 1

        def run() -> None:
            try:
                if waits:
                    self.released.wait()
                found.set_result(make())
            except BaseException as e:
                found.set_exception(e)

        self.blas(1)  # those of one call that wait for each other on a busy core wait long
        threading.Thread(target=run, daemon=True).start()
        self.others.append(found)
        return found

    def joined(self, found: Future[Value]) -> Value:
        """What was worked out `beside`, when it is waited for."""
        value = found.result()
        self.settled()
        return value

    def release(self) -> None:
        """Let begin what was to wait."""
        self.released.set()

    def is_alone(self) -> bool:
        """Whether nothing is worked out `beside` any more, for which half of the time to time calls in is waited."""
        until = self.deadline.within(_WAITED * self.searching)
        while not (self.pressed or until.expired or self.settled()):
            wait(self.others, NOTICE)
        return self.settled()

    def settled(self) -> bool:
        """Whether nothing is worked out `beside` any more: then calls of BLAS have every core."""
        alone = not wait(self.others, 0.0).not_done
        if alone:
            self.blas(self.options.threads)
        return alone
