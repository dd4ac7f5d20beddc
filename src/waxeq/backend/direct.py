"""Whole calls of a program as one function of a backend: what it must know of them, and what it gives.

Python around a call takes as long as a small kernel. Where all that a call does is one instruction of a backend, that
backend may take the arguments as they come, and give the results as the caller has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from waxeq.ir.types import TensorType

LENT = 4
"""Slots that one result lies in by turns, as those who hold one keep it from being written."""
FEW = 2
"""Slots of a small result. Where both are lent, to make an array for one is quicker than another slot."""


@dataclass(frozen=True)
class Place:
    """Where a call reads or writes a buffer: the instructions that its kernel bound it to, the operand (or OUT), and
    where that begins in the buffer, in bytes."""

    instructions: Sequence[Any]
    position: int
    offset: int


@dataclass(frozen=True)
class Passed:
    """An input, or a result, and where it is read and written. `own`: memory of the program's, an array of that shape.
    An input is copied into it. A result is copied out of it where it has no places; where it has, it may be written
    elsewhere instead. Without `own`, it is used where it lies."""

    type: TensorType
    own: np.ndarray | None
    places: Sequence[Place] = ()


class Slot(Protocol):
    """Memory that is lent to results: all of them are views of `shown`, which nothing but the slot refers to, so that
    nobody sees the memory when that is referred to once. `address`: where it begins."""

    @property
    def shown(self) -> np.ndarray: ...

    @property
    def address(self) -> int: ...


@dataclass(frozen=True)
class Direct:
    """A program's calls as functions. One call at a time.

    call: the results on a tuple of arguments, as a tuple or, of one result, the array; None, and nothing is done, where
    they are not arrays of the right types that lie in order, or a call is under way. Raises IndexError where the
    kernels do.
    alone: what a function (the first argument) gives on the second while no call can begin; None while one is under
    way.
    lend: has the result of a number lie in a slot by turns, the i-th of at most LENT: `lend(number, i, slot)`. The slot
    is kept alive. Whoever has this function alone keeps nothing else alive.
    """

    call: Callable[[tuple[Any, ...]], Any]
    alone: Callable[..., Any]
    lend: Callable[[int, int, Slot], None]


Directly = Callable[[Any, Sequence[Passed], Sequence[Passed], Callable[[], None]], Direct | None]
"""Makes the calls of a program of its one instruction, inputs, results, and of what is called where slots are missing:
a result without memory of its own has none that is free, or a small one less than FEW. None where that cannot be done.
"""
