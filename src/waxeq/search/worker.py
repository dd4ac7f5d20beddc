"""What a worker of a cluster does: says what machine it is, and times calls that it is sent, alone on its machine.

Everything that goes to a worker and comes back is plain data, so that one with another waxeq is told apart by what it
says and not by how it fails.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from waxeq.__about__ import __version__
from waxeq.backend.call import Call
from waxeq.backend.code import code_hash
from waxeq.backend.discover import backends, found, kernels
from waxeq.backend.kernel import Kernel, prepare
from waxeq.cost.device import current_device, measure_peaks
from waxeq.cost.shards import timing_rows
from waxeq.errors import WaxeqError
from waxeq.extract.price import timing_key
from waxeq.options import cores
from waxeq.plan.encode import decode_block, encode_block
from waxeq.plan.plan import Step
from waxeq.plan.schedule import BlockPlan
from waxeq.runtime.alone import alone
from waxeq.runtime.device_timing import timed
from waxeq.runtime.timing import ROOMLESS, VALUELESS, Bench

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def greet(threads: int, patience: float) -> dict[str, Any]:
    """What a worker is: its machine, the fingerprint of its device on `threads` threads, its waxeq, backends (why one
    cannot be used, else ""), and of each kernel the code its timings are filed under and the hash of its own text."""
    with alone(wait=patience):  # finding out what a compiler can do takes a core
        rows = found()
        usable = kernels([f.backend for f in rows if f.backend is not None and f.why is None])
        return {
            "version": __version__,
            "machine": machine(),
            "cores": cores(),
            "device": current_device(threads).json(),
            "backends": {f.name: f.why or "" for f in rows},
            "kernels": {n: (k.code, code_hash(type(k))) for n, k in usable.items()},
        }


def machine() -> str:
    """A name that is the same for all processes of a machine, in containers too, and for no other machine."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def ceilings(threads: int, patience: float) -> str:
    """The ceilings of the worker's machine, measured now, as JSON."""
    with alone(wait=patience):
        return measure_peaks(threads).json()


def encode_calls(calls: Sequence[Call]) -> str:
    """Calls as text, in the form of the steps of a plan."""
    steps = []
    for c in calls:
        numbers = c.shared or tuple(range(len(c.operands)))
        steps.append(Step(c, tuple(f"b{n}" for n in numbers), "out"))
    return json.dumps(encode_block(BlockPlan({}, (), tuple(steps), {})))


def decode_calls(text: str) -> list[Call]:
    """The inverse of `encode_calls`."""
    return [s.call for s in decode_block(json.loads(text)).steps]


def time_calls(calls: str, threads: int, each: float, patience: float) -> dict[str, Any]:
    """Time calls for `each` seconds: rows as a shard of the timing table has them, and why kernels did not run, by
    name. Raises WaxeqError after `patience` seconds in which others on this machine timed something."""
    from threadpoolctl import threadpool_limits

    device, own = current_device(threads), installed()
    wanted = decode_calls(calls)
    with alone(wait=patience), threadpool_limits(threads):
        failed = _failing(own, wanted)
        ready = [c for c in wanted if c.kernel not in failed]
        bench = Bench(device.l3_bytes)
        rows = []
        for c in ready:
            k = own[c.kernel]
            with suppress(*VALUELESS, *ROOMLESS):  # operands that have a value, or room for them, were not found
                rows.append(timed(bench, k, c, timing_key(c, k, device.id, threads), each))
    return {"rows": timing_rows(rows), "failed": failed}


@lru_cache(maxsize=1)
def installed() -> Mapping[str, Kernel]:
    """The kernels of this worker."""
    return kernels(backends())


def _failing(own: Mapping[str, Kernel], calls: Sequence[Call]) -> dict[str, str]:
    """Kernels that cannot be made ready for some of these calls, and why."""
    try:
        prepare((own[c.kernel], c) for c in calls)
        return {}
    except WaxeqError:
        failed: dict[str, str] = {}
        for c in calls:
            try:
                prepare([(own[c.kernel], c)])
            except WaxeqError as e:
                failed[c.kernel] = str(e)
        return failed
