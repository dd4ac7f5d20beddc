"""Ctrl-C: the first is a wish and is answered, the second is an end."""

from __future__ import annotations

import os
import queue
import signal
import time

import pytest

from waxeq.events import Deadline, Event, Events, Note

pytestmark = pytest.mark.quick


def test_the_first_is_noted_and_the_second_raises() -> None:
    heard: queue.Queue[Event] = queue.Queue()
    events = Events(heard.put)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), events.on_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        note = heard.get(timeout=60)
        assert isinstance(note, Note) and "press Ctrl-C again to stop at once" in note.text
        assert events.stop_requested
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_one_that_comes_while_a_listener_listens_does_not_lock() -> None:
    heard: list[Event] = []

    def listen(event: Event) -> None:
        if not heard:
            heard.append(event)
            os.kill(os.getpid(), signal.SIGINT)
        else:
            done.put(event)

    done: queue.Queue[Event] = queue.Queue()
    events = Events(listen)
    with events.on_interrupt():
        events.emit(Note("first"))
        assert done.get(timeout=60) is not None


def test_a_budget_of_nothing_is_over_at_once_and_none_never() -> None:
    now = [5.0]
    clocks = {s: Deadline(s, lambda: now[0]) for s in (0.0, 10.0, None)}
    now[0] = 6.0
    assert [c.left for c in clocks.values()] == [-1.0, 9.0, float("inf")]
    assert [c.expired for c in clocks.values()] == [True, False, False]
    assert [c.share(0.5) for c in clocks.values()] == [0.0, 4.5, 60.0]


def test_a_budget_is_over_once_it_is_stopped() -> None:
    stopped, first = [False], [False]
    whole = Deadline(None).unless(lambda: first[0])
    part = whole.within(100.0).unless(lambda: stopped[0])
    assert not part.expired and 99.0 < part.left <= 100.0 and whole.left == float("inf")
    stopped[0] = True
    assert part.expired and part.left == 0.0 and part.within(5.0).expired and not whole.expired
    stopped[0], first[0] = False, True
    assert part.expired and whole.expired


def test_long_work_that_no_budget_ends_is_told_of_again_and_again() -> None:
    heard: list[Event] = []
    with Events(heard.append).told_if_long("tracing the model", first=0.02):
        time.sleep(0.3)
    assert 2 <= len(heard) <= 5
    assert all(isinstance(e, Note) and "tracing the model has taken" in e.text for e in heard)
    with Events(heard.clear).told_if_long("work that is soon done"):
        pass
