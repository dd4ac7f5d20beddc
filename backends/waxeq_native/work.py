"""What a call is made of in C: functions, and phases that run them; compiled, bound to memory, joined into one run."""

from __future__ import annotations

import ctypes
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.kernel import Instruction, Kernel
from waxeq_cfamily.functions import source
from waxeq_native import library
from waxeq_native.team import Phase, Team

HERE = Path(__file__).parent
CFAMILY = Path(__import__("waxeq_cfamily").__file__ or "").parent
NAME = "WX_FUNCTION"
"""Stands for a function's name in its text; the name is a hash of the text."""
OPERANDS = 3
"""Position of the first operand among a kernel's arguments: before it are the context, the workspace and the result."""


@dataclass(frozen=True)
class Part:
    """One phase: a C function and how many tasks it has, taken `grain` at a time."""

    text: str
    tasks: int
    grain: int

    @cached_property
    def name(self) -> str:
        return "wx_" + hashlib.sha256(self.text.encode()).hexdigest()[:20]

    @property
    def source(self) -> str:
        return self.text.replace(NAME, self.name)


@dataclass(frozen=True)
class Work:
    """The phases of a call, and the bytes of workspace that they share. `looked_up`: positions are read from memory,
    and one may lie outside its axis."""

    parts: tuple[Part, ...]
    workspace: int = 0
    looked_up: bool = False


class Context(ctypes.Structure):
    """`wx_context` of prelude.h."""

    _fields_: ClassVar = [("api", ctypes.c_void_p), ("outside", ctypes.c_int32)]


class NativeKernel(Kernel):
    """A kernel of generated C."""

    @abstractmethod
    def work(self, call: Call) -> Work | None:
        """The work of a call; None for a call that the kernel does not take."""

    def of(self, call: Call) -> Work | None:
        """The work of a call, made once."""
        return call.remember((self.name, "work"), lambda: self.work(call))

    def accepts(self, call: Call) -> bool:
        return self.of(call) is not None

    def workspace(self, call: Call) -> int:
        w = self.of(call)
        return 0 if w is None else w.workspace

    @staticmethod
    def prepare(rows: Sequence[tuple[Kernel, Call]]) -> None:
        works = (k.of(c) for k, c in rows if isinstance(k, NativeKernel))
        threads = max((c.threads for _, c in rows), default=1)
        compiled((p for w in works if w is not None for p in w.parts), threads)

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        w = self.of(call)
        assert w is not None
        if not w.parts:
            return ()
        step = Step(w, call.threads)
        step.point(operands, out, workspace)
        return (step,)

    def rebind(
        self, steps: Sequence[Instruction], operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> bool:
        for s in steps:
            if not isinstance(s, Step):
                return False
            s.point(operands, out, workspace)
        return True

    @staticmethod
    def join(steps: Sequence[Instruction]) -> Sequence[Instruction]:
        own = [s for s in steps if isinstance(s, Step)]
        return steps if len(own) < 2 or len(own) < len(steps) else (Run(own),)


@cache
def prelude() -> str:
    """The text before every kernel."""
    return source() + (CFAMILY / "prelude.h").read_text(encoding="utf-8")


def compiled(parts: Iterable[Part], jobs: int = 1) -> dict[str, int]:
    """Addresses of the functions of parts by name; what is not in the cache is compiled, all at once."""
    return dict(library.functions({p.name: p.source for p in parts}, prelude(), jobs=jobs))


@cache
def api() -> int:
    """The address of the functions that kernels call."""
    code = library.unit([HERE / "gemm.c", HERE / "gemm.h", HERE / "api.h"])
    code.wx_get_api.restype = ctypes.c_void_p
    return code.wx_get_api()


class Step:
    """A call bound to memory: its arguments stay in place, so that they can be pointed elsewhere."""

    __slots__ = ("_held", "args", "context", "phases", "run", "work")

    def __init__(self, work: Work, threads: int) -> None:
        addresses = compiled(work.parts)
        self.work, self.context = work, Context(api(), 0)
        self.args = (ctypes.c_void_p * 64)()
        self.args[0] = ctypes.addressof(self.context)
        at = ctypes.addressof(self.args)
        rows = [Phase(addresses[p.name], at, p.tasks, p.grain) for p in work.parts]
        self.phases = (Phase * len(rows))(*rows)
        self.run = Team.of(threads).run
        self._held: tuple[np.ndarray, ...] = ()

    def point(self, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray) -> None:
        """Read from and write to these from now on."""
        self._held = (workspace, out, *operands)
        for i, a in enumerate(self._held, start=1):
            self.args[i] = a.ctypes.data

    def __call__(self) -> None:
        self.run(self.phases, len(self.phases))
        self.check()

    def check(self) -> None:
        """Raises IndexError when a position lay outside its axis."""
        if self.context.outside:
            self.context.outside = 0
            raise IndexError("an index is out of bounds for the axis it points into")


class Run:
    """Steps one after another, as one call."""

    __slots__ = ("checked", "phases", "run", "steps")

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        rows = [p for s in steps for p in s.phases]
        self.phases = (Phase * len(rows))(*rows)
        self.run = steps[0].run
        self.checked = tuple(s for s in steps if s.work.looked_up)

    def __call__(self) -> None:
        self.run(self.phases, len(self.phases))
        for s in self.checked:
            s.check()
