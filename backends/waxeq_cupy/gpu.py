"""A GPU: plans whose memory lies on it, on a stream of our own.

Steps that follow each other are started one by one the first time they run, and captured into one CUDA graph the second
time, so that what runs once is not captured; WAXEQ_CUDA_GRAPH=0 starts them one by one each time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np

from waxeq.backend.kernel import Instruction
from waxeq.backend.storage import DeviceArray, Memory, Storage
from waxeq.errors import TypeMismatch
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.cublaslt import Multiplication
from waxeq_cupy.device import CUDA
from waxeq_cupy.driven import Driven
from waxeq_cupy.driver import Driver, Graph
from waxeq_cupy.exchange import LEGACY, UNKNOWN, Borrowed, CudaArray, Wire, taken
from waxeq_cupy.flags import Flag, Flags
from waxeq_cupy.kernels import Launch, Slot, Work
from waxeq_cupy.prepared import Prepared

GRAPHS = "WAXEQ_CUDA_GRAPH"


_HALF = 8 << 20
"""Bytes of pinned memory that are filled while as many are sent."""
_BEGINS = 64
"""Bytes at multiples of which arrays begin there."""


class Staging:
    """Pinned memory that arrays go to a GPU through, on a stream: one half is filled while the other is sent. The
    driver would take small arrays where they lie; but where their owner pinned them it reads them when the stream comes
    to it, and their owner may have written other numbers there by then."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver, self._stream = driver, stream
        self._halves = [driver.pinned(_HALF) for _ in range(2)]
        self._sent = [driver.event() for _ in range(2)]
        for event in self._sent:
            driver.record(event, stream)
        self._half, self._filled = 0, 0

    def send(self, to: int, host: int, size: int) -> None:
        """Copy to the GPU; the memory of the CPU may be written again when this returns."""
        at = 0
        while at < size:
            if self._filled >= _HALF:
                self._turn()
            place, some = self._halves[self._half] + self._filled, min(_HALF - self._filled, size - at)
            ctypes.memmove(place, host + at, some)
            self._driver.upload_on(self._stream, to + at, place, some)
            self._filled += -(-some // _BEGINS) * _BEGINS
            at += some

    def _turn(self) -> None:
        """Go on in the other half, when all that lies there was sent."""
        self._driver.record(self._sent[self._half], self._stream)
        self._half, self._filled = 1 - self._half, 0
        self._driver.wait_for(self._sent[self._half])


class GpuStorage(Storage):
    """The memory of a GPU; all that is asked of it happens on one stream. Threads may share it, and take turns: while
    one captures, what another started on the stream would be part of its graph, and to wait for it would end that.
    """

    device = CUDA

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        driver.enter()
        self.stream = driver.stream()
        self._lock = RLock()
        self._begin, self._end, self._edge = driver.event(), driver.event(), driver.event()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """In which the calling thread alone starts something on the stream, or waits for it; turns in turns are one."""
        with self._lock:
            self.driver.enter()
            yield

    @property
    def room(self) -> int:
        return self.driver.room

    def allocated(self, size: int) -> Memory:
        self.require(size, "an allocation")
        self.driver.enter()
        return Memory(self.driver.allocated(size), size, self._freed)

    def _freed(self, address: int) -> None:
        with self.turn():
            self.driver.free(address)

    def upload(self, to: DeviceArray, host: np.ndarray) -> None:
        with self.turn():
            self._staging.send(to.address, host.ctypes.data, host.nbytes)

    @cached_property
    def _staging(self) -> Staging:
        return Staging(self.driver, self.stream)

    def download(self, host: np.ndarray, a: DeviceArray) -> None:
        with self.turn():
            self.driver.download_on(self.stream, host.ctypes.data, a.address, host.nbytes)
            self.wait()

    def copy(self, to: DeviceArray, a: DeviceArray) -> None:
        with self.turn():
            self.driver.copy_on(self.stream, to.address, a.address, a.nbytes)

    def wait(self) -> None:
        """Until all that was asked for has happened. Raises IndexError where a kernel that this thread started met a
        position outside its axis."""
        with self.turn():
            self.driver.wait_on(self.stream)
            self.flags.check()

    @cached_property
    def flags(self) -> Flags:
        """What kernels note positions outside their axes in."""
        return Flags(self.driver, self.stream)

    def flag(self) -> Flag:
        """One that is down."""
        with self.turn():
            return self.flags.new()

    def joined(self, steps: Sequence[Instruction]) -> Sequence[Instruction]:
        return (Segment(self, steps),) if steps else ()

    def seconds(self, run: Callable[[], object], repeats: int) -> float:
        """By the clock of the GPU."""
        with self.turn():
            self.driver.wait_on(self.stream)
            self.driver.record(self._begin, self.stream)
            for _ in range(repeats):
                run()
            self.driver.record(self._end, self.stream)
            return max(self.driver.between(self._begin, self._end) / repeats, 1e-9)

    # -- arrays of others

    def seen(self, value: Any) -> DeviceArray | None:
        """Raises TypeMismatch for one of another GPU."""
        a = taken(self, value, self._wire)
        if isinstance(a, Borrowed) and a.size and not self.driver.holds(a.address):
            name = f"class {type(value).__name__}"
            raise TypeMismatch(f"an array of {name} does not lie on GPU {self.driver.number}, which the plan runs on")
        return a

    def read(self, arrays: Iterable[DeviceArray]) -> None:
        """Their owners' streams wait for ours; ours is waited for where one is not known."""
        streams = {a.stream for a in arrays if isinstance(a, Borrowed)}
        if UNKNOWN in streams:
            with self.turn():
                self.driver.wait_on(self.stream)
        else:
            for stream in streams:
                self.before(stream)

    def handed(self, a: DeviceArray) -> Any:
        """Raises IndexError as `wait` does, for which it waits where a kernel that has a flag was started."""
        if self.flags.started:
            self.wait()
        return CudaArray.of(a, self._wire).as_cupy()

    def regained(self, streams: Iterable[int]) -> None:
        """A stream of others may be gone by now, but for the one that is always there: all of the GPU is waited for."""
        if {*streams} == {LEGACY}:
            self.after(LEGACY)
        else:
            with self.turn():
                self.driver.wait()

    @property
    def _wire(self) -> Wire:
        return Wire(self.stream, self.after, self.before)

    def after(self, stream: int) -> None:
        """What is asked for from now on waits for what was started on another stream."""
        with self.turn():
            self.driver.record(self._edge, stream)
            self.driver.follow(self.stream, self._edge)

    def before(self, stream: int) -> None:
        """What is started on another stream from now on waits for what was asked for here."""
        with self.turn():
            self.driver.record(self._edge, self.stream)
            self.driver.follow(stream, self._edge)


class Started:
    """Work on a stream with its arguments; `flag`: what it notes a position outside its axis in."""

    def __init__(self, start: Callable[[], None], flag: Flag | None) -> None:
        self.start, self.flag = start, flag

    def __call__(self) -> None:
        self.start()


def in_turn(steps: Sequence[Instruction], most: int) -> Iterator[Callable[[], object]]:
    """What starts each step. A launch is started early behind other launches, as long as those since the last that was
    not are of so many threads at `most`, which may all wait at one time."""
    waiting = most
    for s in steps:
        launch = s.start if isinstance(s, Started) and isinstance(s.start, Prepared) else None
        early = launch is not None and launch.waits and waiting + launch.threads <= most
        waiting = (waiting if early else 0) + (most if launch is None else launch.threads)
        yield launch.early if launch is not None and early else s


class Segment:
    """Instructions one after another on the stream of a storage, which is told of their flags."""

    def __init__(self, storage: GpuStorage, steps: Sequence[Instruction]) -> None:
        self._storage, self._starts = storage, tuple(in_turn(steps, storage.driver.early_threads))
        self._flags = {s.flag for s in steps if isinstance(s, Started) and s.flag is not None}
        self._graph: Graph | None = None
        self._ran = os.environ.get(GRAPHS) == "0"
        self._plain = self._ran

    def __call__(self) -> None:
        with self._storage.turn():
            self._run(self._storage)

    def _run(self, s: GpuStorage) -> None:
        if self._graph is None and self._ran and not self._plain:
            self._graph = s.driver.captured(s.stream, self._start)
        if self._graph is not None:
            self._graph.start(s.stream)
        else:
            self._start()
            self._ran = True
        s.flags.started.update(self._flags)

    def _start(self) -> None:
        for f in self._starts:
            f()


class Gpu(Driven):
    """A GPU that plans keep their memory on."""

    way = "gpu"
    storage: GpuStorage

    def __init__(self, driver: Driver, cubins: Cubins) -> None:
        super().__init__(driver, cubins)
        self.storage = GpuStorage(driver)

    @staticmethod
    def found() -> Gpu:
        """The first GPU of this machine. Raises MissingDevice."""
        driver = Driver.found()
        return Gpu(driver, Cubins.here(driver.architecture))

    @property
    def about(self) -> str:
        free = f"{self.storage.room / 2**30:.1f} GiB free"
        return f"{self.driver.name} ({self.driver.architecture}), {free}, {self._products}"

    @property
    def ceilings(self) -> Mapping[str, Any]:
        return self.driver.ceilings

    def aligned(self, arrays: Sequence[Any]) -> bool:
        return all(a.address % 16 == 0 for a in arrays if a.size)

    def bound(self, work: Work, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        self.compiled(work.launches)
        self.driver.enter()  # on a thread that has done nothing with it yet
        return tuple(self._started(x, operands, out, workspace) for x in work.launches)

    def multiplied(self, m: Multiplication, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        assert self.blas is not None
        self.driver.enter()
        room, places = (workspace.address, workspace.nbytes), [x.address for x in operands]
        return (Started(self.blas.prepared(m, places, out.address, room, self.storage.stream), None),)

    def _started(self, x: Launch, operands: Sequence[DeviceArray], out: DeviceArray, workspace: DeviceArray) -> Started:
        def place(what: int | Slot | None) -> int:
            if isinstance(what, Slot):
                return workspace.address + what.at
            return (out if what is None else operands[what]).address

        flag = self.storage.flag() if x.looked_up else None
        pointers = [*map(place, x.reads), place(x.writes), *([] if flag is None else [flag.address])]
        start = self.driver.prepared(self.storage.stream, self._kernels[x.name], x, pointers)
        return Started(start, flag)
