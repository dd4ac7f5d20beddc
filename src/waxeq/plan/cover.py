"""Which elements of buffers are written: several steps may write one, each its own part."""

from __future__ import annotations

from bisect import bisect, insort

from waxeq.backend.call import View
from waxeq.errors import PlanError


class Cover:
    """What has been written of one buffer: runs of elements that do not meet. Raises PlanError, naming `buffer`."""

    def __init__(self, buffer: str, elements: int) -> None:
        self.buffer, self.elements = buffer, elements
        self._runs: list[tuple[int, int]] = []

    def write(self, v: View, step: int) -> None:
        """A step writes these elements."""
        if not v.elements:
            return
        low, high = span(v)
        if high - low != v.elements or not v.is_dense:
            raise PlanError(f"step {step} writes part of buffer {self.buffer}, and not as one run of elements")
        at = bisect(self._runs, (low, high))
        before, after = self._runs[:at][-1:], self._runs[at:][:1]
        if any(stop > low for _, stop in before) or any(start < high for start, _ in after):
            raise PlanError(f"step {step} writes elements of buffer {self.buffer} that another one wrote")
        insort(self._runs, (low, high))

    def has(self, low: int, high: int) -> bool:
        """Whether all elements from one to before another are written."""
        for start, stop in self._runs:
            if start > low:
                break
            low = max(low, stop)
        return low >= high

    @property
    def whole(self) -> bool:
        return self.has(0, self.elements)


def span(v: View) -> tuple[int, int]:
    """The first element of a view, and the one after its last."""
    ends = [(n - 1) * s for n, s in zip(v.shape, v.strides, strict=True)]
    return v.offset + sum(e for e in ends if e < 0), v.offset + sum(e for e in ends if e > 0) + 1


def long_strides(v: View) -> dict[str, int]:
    """Strides of the axes along which there is more than one element."""
    return {k: step for k, n, step in zip(v.axes, v.shape, v.strides, strict=True) if n != 1}
