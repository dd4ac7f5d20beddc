"""The kernel contract: what a kernel means, which calls it takes, what it costs to predict, and how it runs."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from itertools import groupby
from typing import Any, ClassVar, Literal

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.code import code_hash
from waxeq.backend.direct import Directly
from waxeq.backend.storage import CPU, Storage
from waxeq.errors import PlanError, WaxeqError
from waxeq.ir.term import Term

Features = Mapping[str, float]
"""What the cost model may know of a call, by name (`waxeq.cost.features`)."""
Instruction = Callable[[], object]
"""One bound step: no arguments, no allocation, no look-up."""

BESIDE = 8 << 20
"""Bytes of what two calls read from which a backend may run them side by side, so that it comes from memory once. Plans
keep apart what such calls write; less stays in cache from the one to the other."""
OUT = -1
"""Where the address of a result stands among those of operands."""
Form = Literal["pattern", "loops", "sweeps", "copy", "transfer"]
"""How meanings for a kernel are found: by its pattern in the e-graph; grown over element-wise and reducing e-nodes;
made of such loops where they read each other through views (stencils swept several times); or the identity: on a view
(a transposing copy), or from the memory of one device to that of another."""


class Kernel(ABC):
    """One way to compute one family of meanings. A subclass is the declaration; instances hold no state.

    pattern: for form "pattern", a term over variables, e.g. "(Gather k i x)"; "(Sum* k t)" stands for any number (one
    or more) of sums. From it come the e-graph rule, the conformance test and the cost key.
    heads: for form "loops", what a meaning may have beyond element-wise heads and folds: index maps, scans, and by name
    the folds that give places ("argmax", "argmin").
    pace: for form "loops", roughly what an operation on an element takes, where a pass over the cache takes 1; it only
    ranks what to fuse. For form "pattern" the part of a product's usual rough price that it takes.
    pool: whose threads compute it, where there are several: those of one pool get in the way of another's for a while.
    smallest: bytes of a result from which the kernel is a choice; what it computes must be right for any.
    variant_of: the kernel of the same backend that this one does the same as in another way (other tiles, another order
    of loops). Plans are searched without variants; those of the calls that were chosen are timed afterwards.
    error: relative error that the kernel adds on top of rounding, where it approximates a function; it is a choice only
    under a tolerance of at least that.
    sized: of a kernel that compiles, the one that takes its calls in plans for ranges of sizes (`Call.over`) and
    compiles once for all of these; None where there is none. Its backend sets it.
    blas: whether it calls the BLAS that NumPy has loaded, on threads of that: a plan sees to it that these are as many
    as its calls may use. Its backend sets it.
    direct: what makes whole calls of a program whose one instruction is of kernels that have this in common; None where
    nothing does. Its backend sets it.
    launch: seconds that starting one of its instructions takes after another of them, where that is not what starting
    one of NumPy's takes; None where it is. Its backend sets it.
    """

    name: ClassVar[str]
    form: ClassVar[Form] = "pattern"
    pattern: ClassVar[str] = ""
    dtypes: ClassVar[tuple[str, ...] | None] = None
    heads: ClassVar[frozenset[str]] = frozenset()
    pace: ClassVar[float] = 1.0
    pool: ClassVar[str] = ""
    smallest: ClassVar[int] = 0
    variant_of: ClassVar[str] = ""
    error: ClassVar[float] = 0.0
    sized: Kernel | None = None
    blas: bool = False
    direct: Directly | None = None
    launch: float | None = None

    @property
    def device(self) -> str:
        """Whose memory it works on: a name that every backend of that device uses."""
        return CPU

    @property
    def origin(self) -> str:
        """Where its operands lie: elsewhere than its result for form "transfer" only."""
        return self.device

    def storage(self) -> Storage | None:
        """The memory of its device, where that is not the CPU's."""
        return None

    def ceilings(self) -> Mapping[str, Any] | None:
        """What its device can do at most, as the fields of `waxeq.cost.device.Peaks`; None for the CPU."""
        return None

    @property
    def compiling(self) -> float:
        """Seconds that making a call ready takes on a usual machine, besides starting a compiler."""
        return 0.05

    @property
    def code(self) -> str:
        """What names the kernel's own text: timings taken with another text are not used. A kernel whose text is not
        (only) its class overrides this."""
        return code_hash(type(self))

    def matches(self, meaning: Term) -> bool:
        """For forms "loops" and "sweeps": whether the kernel computes such a meaning. Patterns are matched by the
        e-graph."""
        return True

    def swift(self, meaning: Term) -> bool:
        """For forms "loops" and "sweeps": whether kernels of a slower pace, and those of its pool that are not swift,
        have no chance against this one where it takes a call: it makes instructions of every function in the meaning.
        They are not looked at then."""
        return False

    def orders(self, meaning: Term, axes: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        """Orders of the result's axes that suit this kernel, best first; proposals, not limits."""
        return ()

    @abstractmethod
    def accepts(self, call: Call) -> bool:
        """Whether the kernel runs on exactly these strides, sizes and dtypes."""

    def differs(self, call: Call) -> bool:
        """For a variant: whether it does a call that it accepts in another way than the kernel it is a variant of."""
        return True

    @staticmethod
    def prepare(rows: Sequence[tuple[Kernel, Call]]) -> None:
        """Make ready to bind these calls, all at once: what a backend compiles, it compiles here. Kernels that have
        this method in common are given their calls together."""
        return None

    @staticmethod
    def join(steps: Sequence[Instruction]) -> Sequence[Instruction]:
        """Instructions that do what these do one after another, perhaps fewer. Kernels that have this method in common
        are given the instructions of consecutive calls together."""
        return steps

    @staticmethod
    def together(rows: Sequence[tuple[Kernel, Call]], reads: Sequence[Sequence[Hashable]]) -> Features | None:
        """The features of these calls as the one instruction that `join` makes of them; None where it makes more.
        `reads`: what is the same for operands that lie in the same place, by call. Kernels that have this method in
        common are asked together."""
        return None

    def repoint(self, steps: Sequence[Instruction], places: Mapping[int, int]) -> bool:
        """Point instructions that `bind` made at other memory, in place (whether joined or not); False where that
        cannot be done and they must be bound anew. `places`: addresses of the first elements of operands that have
        moved, by position, and at OUT that of the result. What the call holds as fixed never moves."""
        return False

    def workspace(self, call: Call) -> int:
        """Bytes of scratch memory the call needs."""
        return 0

    def retained(self, call: Call) -> int:
        """Bytes that a bound call keeps for itself: fixed operands in another form."""
        return 0

    def in_place(self, call: Call) -> tuple[int, ...]:
        """Operands whose memory the result may take: each element is read before its place is written."""
        return ()

    @abstractmethod
    def features(self, call: Call) -> Features:
        """What the cost model may know: flops, bytes, elements by function, launches. Finite, non-negative."""

    @abstractmethod
    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        """Instructions that compute the call. Arrays have the axes of their views, in that order; `workspace` is
        uint8.
        """


class Unready(WaxeqError):
    """Calls could not be made ready in the seconds that there were; nothing is known to be wrong with them."""


_until: ContextVar[float] = ContextVar("until", default=math.inf)


def patience() -> float:
    """Seconds that whoever has calls made ready in this thread waits for it: a backend that can end what it does then
    raises Unready."""
    return max(0.0, _until.get() - time.monotonic())


def prepare(rows: Iterable[tuple[Kernel, Call]], seconds: float = math.inf) -> None:
    """Make ready to bind calls of any kernels. Raises Unready where a backend sees that it takes more `seconds`."""
    groups: dict[Callable, list[tuple[Kernel, Call]]] = {}
    for k, c in rows:
        groups.setdefault(k.prepare, []).append((k, c))
    before = _until.set(time.monotonic() + seconds)
    try:
        for together, group in groups.items():
            together(group)
    finally:
        _until.reset(before)


def scratch(kernel: Kernel, call: Call, given: np.ndarray | None) -> np.ndarray:
    """The scratch memory that a call is bound to: what its plan set aside, or memory of its own where that is less than
    the kernel needs here. A plan may come from another machine, or have been made by another version of a kernel.
    Raises PlanError on a device, whose memory is the plan's alone."""
    have, need = 0 if given is None else given.nbytes, kernel.workspace(call)
    if have >= need:
        return np.empty(0, np.uint8) if given is None else given
    if kernel.device != CPU:
        raise PlanError(f"{call.kernel} needs {need} bytes of scratch memory here, the plan has {have}: optimize again")
    return np.empty(need, np.uint8)


def join(rows: Iterable[tuple[Kernel, Sequence[Instruction]]]) -> tuple[Instruction, ...]:
    """The instructions of calls in order, as few as their kernels can make of them."""
    joined: list[Instruction] = []
    for together, group in groupby(rows, key=lambda row: row[0].join):
        joined += together([f for _, steps in group for f in steps])
    return tuple(joined)


class Backend(ABC):
    """Kernels for one kind of device."""

    name: ClassVar[str]
    device: ClassVar[str]

    @property
    @abstractmethod
    def kernels(self) -> Mapping[str, Kernel]:
        """Kernels by full name, "backend.kernel"."""

    def unusable(self) -> str | None:
        """Why the backend cannot run on this machine, in one sentence; None when it can."""
        return None

    def ready(self, dtypes: Collection[str]) -> None:
        """Make what kernels need before the first of them is asked what it takes, where elements are of these types: a
        library that takes seconds to compile, say. It may run in another thread. Raises WaxeqError where the backend
        cannot be used for want of it."""
        return

    def chosen(self) -> bool:
        """Whether the user named what it works with, as a compiler: where it cannot be used, that is a fault then."""
        return False

    def about(self) -> str:
        """What else there is to say of a backend that can run: what it found on this machine, what it keeps there."""
        return ""

    def packed(self, calls: Sequence[Call], architectures: Sequence[str] = ()) -> Mapping[str, bytes]:
        """What its kernels are compiled to for these calls, as files for another machine. `architectures`: of the
        machines that are wanted, in the backend's words [default: those that a plan is likely to meet]. A backend that
        cannot be used here is asked too. Raises UsageError for an architecture that it cannot compile these calls for.
        """
        return {}

    def built_for(self, files: Iterable[str]) -> tuple[str, ...]:
        """The architectures that files of `packed`, by name, are for."""
        return ()

    def unpacked(self) -> str:
        """Why `packed` gives nothing on this machine, in one sentence; "" where there is nothing to say."""
        return ""

    def unpack(self, files: Mapping[str, bytes]) -> None:
        """Take in what `packed` gave elsewhere, so that it is not compiled again."""
        return None
