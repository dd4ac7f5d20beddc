"""One timing at a time, also when a process that takes one is killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from waxeq.errors import WaxeqError
from waxeq.runtime.alone import alone, left, taken

HOLD = """
import sys, time
from pathlib import Path
from waxeq.runtime.alone import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_another_process_waits_until_the_first_is_dead(tmp_path: Path, holder: subprocess.Popen) -> None:
    told = []
    with pytest.raises(WaxeqError, match="another process"), alone(tmp_path / "lock", wait=0.0):
        pytest.fail("two at once")
    with alone(tmp_path / "lock", waiting=lambda: (told.append(1), holder.kill())) as held:
        assert held and told == [1]


def test_who_wants_to_stop_does_not_wait(tmp_path: Path, holder: subprocess.Popen) -> None:
    with alone(tmp_path / "lock", stopped=lambda: True) as held:
        assert not held


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WaxeqError, match="WAXEQ_TIMING_LOCK"), alone(tmp_path / "file" / "lock"):
        pytest.fail("nothing is locked")


def test_a_lock_of_many_is_had_by_one_at_a_time_and_gone_afterwards(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "turn", list[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(40):
            held = taken(path, 60.0)
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)
            left(path, held)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(most) == 160 and max(most) == 1 and list(tmp_path.iterdir()) == []


def test_a_lock_that_another_has_is_not_waited_for_without_end(tmp_path: Path) -> None:
    held = taken(tmp_path / "turn", 0.0)
    with pytest.raises(TimeoutError):
        taken(tmp_path / "turn", 0.1)
    left(tmp_path / "turn", held)
    left(tmp_path / "turn", taken(tmp_path / "turn", 0.0))
