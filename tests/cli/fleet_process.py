"""A scheduler or a worker of a cluster, as a process of its own.

`scheduler FILE` writes its address to FILE. `worker ADDRESS NAME CPU WHAT LOG` is a worker of a machine called NAME
with a processor called CPU; every timing goes into LOG with its beginning and end. WHAT it does besides: nothing; "die"
when it has begun its fourth timing; be "late" with its first batch; be "spare": come when the machine has timed
something.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path

LATE = 3.0


async def scheduler(file: str) -> None:
    from distributed import Scheduler

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as s:
        Path(file + ".new").write_text(s.address)
        os.replace(file + ".new", file)
        await s.finished()


async def worker(address: str, name: str, cpu: str, what: str, log: str) -> None:
    from distributed import Worker

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    disguise(name, cpu, what, log)
    while what == "spare" and not (os.path.exists(log) and f"{name} " in Path(log).read_text()):
        time.sleep(0.05)
    async with Worker(address, nthreads=2, dashboard_address=":0", local_directory=os.path.dirname(log)) as w:
        await w.finished()


def disguise(name: str, cpu: str, what: str, log: str) -> None:
    from waxeq.cost import device
    from waxeq.runtime.timing import Bench
    from waxeq.search import worker as ours

    os.environ["WAXEQ_TIMING_LOCK"] = f"{log}.{name}.lock"
    time_one, time_all, begun = Bench.time, ours.time_calls, []
    device._model = lambda: cpu
    ours.machine = lambda: name
    ours.measure_peaks = lambda threads: device.Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6)

    def timed(self, *args):
        begun.append(time.time())
        if what == "die" and len(begun) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        found = time_one(self, *args)
        with open(log, "a", encoding="utf-8") as f:
            f.write(f"{name} {begun[-1]} {time.time()}\n")
        return found

    def batch(*args):
        if what == "late" and not begun:
            time.sleep(LATE)
        return time_all(*args)

    Bench.time, ours.time_calls = timed, batch


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    asyncio.run(scheduler(*given) if role == "scheduler" else worker(*given))
