"""What happens while waxeq works: typed events for whoever listens, a clock, and a wish to stop."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of the work begins."""

    stage: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage ended `seconds` after the work began."""

    stage: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` units of a stage."""

    stage: str
    done: int
    total: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence the user should read."""

    text: str


Event = StageStarted | StageFinished | Progress | Note


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, a signal that would raise an exception does so at the end: C++ that is interrupted while it is loaded
    ends the process. Main thread only; elsewhere none would."""
    main = threading.current_thread() is threading.main_thread()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main}
    came: list[tuple[int, FrameType | None]] = []
    raising = {s: handler for s, handler in before.items() if callable(handler)}
    try:
        for s in raising:
            signal.signal(s, lambda number, frame: came.append((number, frame)))
        yield
    finally:
        for s, handler in raising.items():
            signal.signal(s, handler)
        for number, frame in came:
            raising[signal.Signals(number)](number, frame)


NOTICE = 0.1
"""Seconds after which a wish to stop is noticed."""
LONG = 10.0
"""Seconds after which a user may wonder what goes on."""
_STOPPING = "interrupted: ending with what there is so far; press Ctrl-C again to stop at once"


class Events:
    """Where events go. Nobody listens unless a callback is given; nothing is ever printed here."""

    def __init__(self, listener: Callable[[Event], None] | None = None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def emit(self, event: Event) -> None:
        if self._listener is not None:
            with self._lock:
                self._listener(event)

    @property
    def stop_requested(self) -> bool:
        """Whether the user wants what has been found so far."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        self._stop.set()

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Inside, the first Ctrl-C asks to stop, which is noted, and a second one raises KeyboardInterrupt. Main thread
        only; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: object) -> None:
            if self.stop_requested:
                raise KeyboardInterrupt
            self.request_stop()
            # in a thread of its own: the listener may be in the midst of an event, and this handler is on top of it
            _thread.start_new_thread(self.emit, (Note(_STOPPING),))

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def told_if_long(self, what: str, first: float = LONG) -> Iterator[None]:
        """Inside, a note after `first` seconds, and after each time twice as long as before, that this goes on: it is
        work that no budget ends, as it is in the user's own code."""
        over = threading.Event()

        def tell() -> None:
            begun, wait = time.monotonic(), first
            while not over.wait(wait):
                seconds = time.monotonic() - begun
                self.emit(Note(f"{what} has taken {seconds:.0f} s so far, which no budget ends; Ctrl-C does"))
                wait = seconds

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@dataclass(frozen=True)
class Deadline:
    """A budget of seconds that began when this was made; None has no end. It is over once something has `stopped` what
    it is for."""

    seconds: float | None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    stopped: Callable[[], bool] = field(default=lambda: False, repr=False)
    start: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.clock())

    @property
    def elapsed(self) -> float:
        return self.clock() - self.start

    @property
    def left(self) -> float:
        """Seconds left; zero or less once it is over, as a budget of nothing is from the start."""
        if self.stopped():
            return 0.0
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    @property
    def expired(self) -> bool:
        return self.left <= 0

    def share(self, part: float, longest: float = 60.0) -> float:
        """A part of what is left, at most `longest` seconds."""
        return min(longest, part * max(0.0, self.left))

    def within(self, seconds: float) -> Deadline:
        """A budget of so many seconds from now, a part of this one; with this clock, and over when this is stopped."""
        return Deadline(None if seconds == float("inf") else seconds, self.clock, self.stopped)

    def unless(self, stopped: Callable[[], bool]) -> Deadline:
        """What is left of this budget, over as well once something is stopped."""
        return replace(self.within(self.left), stopped=lambda: self.stopped() or stopped())


FOREVER = Deadline(None)
"""No end."""
