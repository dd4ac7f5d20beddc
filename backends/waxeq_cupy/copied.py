"""A GPU that works on copies: every call's operands are copied to it, and its result back.

This is how kernels and whole plans are checked on a real GPU by all that checks them on a CPU. It is not fast, and not
meant to be: a plan whose memory lies on the GPU is another thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.array_utils import byte_bounds

from waxeq.backend.kernel import Instruction
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.cublaslt import Multiplication
from waxeq_cupy.driven import Driven
from waxeq_cupy.driver import Driver
from waxeq_cupy.kernels import Slot, Work

_LINE = 256
"""What memory begins at on either side is the same modulo this many bytes."""


_Start = Callable[[Callable[[int | Slot | None], int], int], None]
"""Starts something, given where an operand, a part of the workspace or (None) the result lies, and where a flag."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Host memory from byte `low` up to `high`, which lies on the device at `address`."""

    low: int
    high: int
    address: int

    def of(self, host: int) -> int:
        return self.address + host - self.low


class Copied(Driven):
    """A GPU that is given the operands of each call."""

    way = "copied"

    @staticmethod
    def found() -> Copied:
        """The first GPU of this machine. Raises MissingDevice, and nvrtc.MissingCompiler."""
        from waxeq_cupy.nvrtc import Nvrtc
        from waxeq_native.library import directory

        driver = Driver.found()
        return Copied(driver, Cubins(directory() / "cubins", Nvrtc.found(), driver.architecture))

    @property
    def about(self) -> str:
        return f"{self.driver.name} ({self.driver.architecture}), every call on copies, {self._products}"

    def aligned(self, arrays: Sequence[np.ndarray]) -> bool:
        return all(a.ctypes.data % 16 == 0 for a in arrays if a.size)

    def bound(
        self, work: Work, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        self.compiled(work.launches)

        def launched(place: Callable[[int | Slot | None], int], flag: int) -> None:
            for x in work.launches:
                pointers = [*map(place, x.reads), place(x.writes), *([flag] if x.looked_up else [])]
                self.driver.prepared(None, self._kernels[x.name], x, pointers)()

        return (self._on_copies([*operands, out], workspace.nbytes, launched),)

    def multiplied(
        self, m: Multiplication, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        room = Slot(0, workspace.nbytes, "uint8")

        def started(place: Callable[[int | Slot | None], int], flag: int) -> None:
            assert self.blas is not None
            places = [place(n) for n in range(len(operands))]
            self.blas.prepared(m, places, place(None), (place(room), workspace.nbytes), 0)()

        return (self._on_copies([*operands, out], workspace.nbytes, started),)

    def _on_copies(self, arrays: Sequence[np.ndarray], workspace: int, start: _Start) -> Instruction:
        """Copies arrays, of which the last is the result, to the GPU, has something started there, and copies the
        result back."""

        def run() -> None:
            self.driver.enter()
            spans = self._placed(arrays)
            room = self.driver.allocated(workspace)
            flag = self.driver.allocated(4)
            try:
                self._run(start, arrays, spans, room, flag)
            finally:
                for address in (*(s.address - s.low % _LINE for s in spans), room, flag):
                    self.driver.free(address)

        return run

    def _placed(self, arrays: Sequence[np.ndarray]) -> list[_Span]:
        """Memory for all that the arrays lie in; what overlaps on the host does so on the device."""
        spans: list[list[int]] = []
        for low, high in sorted(byte_bounds(a) for a in arrays if a.size):
            if spans and low < spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], high)
            else:
                spans.append([low, high])
        return [_Span(lo, hi, self.driver.allocated(hi - lo + _LINE) + lo % _LINE) for lo, hi in spans]

    def _run(self, start: _Start, arrays: Sequence[np.ndarray], spans: Sequence[_Span], room: int, flag: int) -> None:
        driver, out = self.driver, arrays[-1]

        def place(what: int | Slot | None) -> int:
            if isinstance(what, Slot):
                return room + what.at
            a = out if what is None else arrays[what]
            if not a.size:
                return room
            host = a.ctypes.data
            return next(s for s in spans if s.low <= host < s.high).of(host)

        for s in spans:
            driver.upload(s.address, s.low, s.high - s.low)
        driver.fill(flag, 0, 4)
        start(place, flag)
        driver.wait()
        low, high = byte_bounds(out)
        span = next(s for s in spans if s.low <= low < s.high)
        driver.download(low, span.of(low), high - low)
        raised = np.zeros(1, np.int32)
        driver.download(raised.ctypes.data, flag, 4)
        if raised[0]:
            raise IndexError("an index is out of bounds for the axis it points into")
