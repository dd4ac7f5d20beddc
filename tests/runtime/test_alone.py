"""One timing at a time, also when a process that takes one is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from waxeq.errors import WaxeqError
from waxeq.runtime.alone import alone

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
