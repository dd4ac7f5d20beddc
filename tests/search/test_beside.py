"""What is worked out beside a search, and the threads of BLAS meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from waxeq.events import Deadline, Events
from waxeq.options import Options
from waxeq.search.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    options = Options(threads=2, table=tmp_path / "timings.duckdb", cost="roofline")
    with Session.open(options, Events()) as s:
        yield s


def blas() -> set[int]:
    return {i["num_threads"] for i in threadpool_info() if i["internal_api"] == "openblas"}


def test_blas_has_one_thread_as_long_as_something_is_worked_out_beside(session: Session) -> None:
    """Said in the thread that is at work beside it had no effect: threadpoolctl lets one thread decide. Small matrices
    of a fit took 0.4 s for 3 ms, waiting for each other on busy cores."""
    go, seen = threading.Event(), list[set[int]]()

    def work() -> int:
        seen.append(blas())
        go.wait(10)
        return 7

    assert blas() == {2}
    found = session.beside(work)
    assert blas() == {1} and not session.settled() and blas() == {1}
    go.set()
    assert session.joined(found) == 7 and blas() == {2} and seen == [{1}]


def test_nobody_waits_longer_than_half_of_the_time_there_is(session: Session) -> None:
    go = threading.Event()
    session.deadline, session.kept = Deadline(0.2), 0.0
    session.beside(lambda: go.wait(10))
    assert not session.is_alone() and 0.05 < session.deadline.elapsed < 5.0
    go.set()


@pytest.mark.parametrize("cores", [1, 2])
def test_on_one_core_what_can_wait_begins_after_saturation(
    session: Session, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waxeq.search.beside.cores", lambda: cores)
    begun = threading.Event()
    found = session.beside(lambda: begun.set(), later=True)
    assert begun.wait(5.0 if cores == 2 else 0.1) == (cores == 2)
    session.release()
    found.result(10)
    assert begun.is_set()
