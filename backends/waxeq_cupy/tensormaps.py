"""Tensor maps: what tells a GPU which boxes of an array to bring to shared memory, and where they lie there.

Source: CUDA Driver API, "Tensor Map Object Management": cuTensorMapEncodeTiled, whose conditions `TensorMap.check` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.values import Unsupported

RANK = 5
"""Axes that a map has at most."""
LINE = 128
"""Bytes of a line of a box, whose groups of 16 are swizzled among eight lines."""
ALIGNED = 16
"""Bytes at multiples of which an array begins, and every step but that of the nearest axis ends."""
GENERIC, ARCHITECTURE = "sm_90", "sm_90a"
"""The GPUs that have them with all that they are used for here, and what is compiled for those alone."""
_BOX, _SIZE, _STEP = 256, 1 << 31, 1 << 40


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Boxes of what a launch reads as number `operand`, from element `offset` on. Its axes, the nearest first: their
    sizes, their steps in elements, and how far a box reaches. `rounded`: float32 to tf32 on the way."""

    operand: int
    dtype: str
    offset: int
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    box: tuple[int, ...]
    rounded: bool = False

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return numpy_dtype(self.dtype).itemsize

    def check(self) -> None:
        """Raises Unsupported for what the driver would refuse, and for lines that are not whole."""
        for said, wrong in self._conditions():
            if wrong:
                raise Unsupported(said)

    def _conditions(self) -> Iterator[tuple[str, bool]]:
        steps = [s * self.item for s in self.steps[1:]]
        yield "too many axes", len(self.axes) > RANK
        yield "elements that lie apart", self.steps[0] != 1
        yield "steps that are no multiples of 16 bytes", any(s % ALIGNED or not 0 < s < _STEP for s in steps)
        yield "a beginning that is no multiple of 16 bytes", self.offset * self.item % ALIGNED != 0
        yield "sizes that no map has", not all(0 < n < _SIZE for n in self.sizes)
        yield "a box that is too large", not all(0 < n <= _BOX for n in self.box)
        yield "lines that are not whole", self.box[0] * self.item != LINE


def boxes(
    operand: int, dtype: str, offset: int, steps: Mapping[str, int], sizes: Mapping[str, int], box: Mapping[str, int],
    *, rounded: bool,
) -> TensorMap:  # fmt: skip
    """The map of an array with these steps. `box`: how far one reaches along two axes, of the nearest first; along
    others it is one place. Raises Unsupported."""
    near, _ = box
    axes = (near, *sorted((k for k in {*steps, *box} if k != near), key=lambda k: (abs(steps.get(k, 0)), k)))
    found = TensorMap(
        operand, dtype, offset, axes, tuple(sizes[k] for k in axes), tuple(steps.get(k, 0) for k in axes),
        tuple(box.get(k, 1) for k in axes), rounded,
    )  # fmt: skip
    found.check()
    return found
