"""Fused loops on a GPU: element-wise chains, folds of any number of stages, index maps, as kernels of CUDA C++."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.code import code_hash
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.functions import libm, own, source
from waxeq_cfamily.resolved import INDEX_MAPS, resolve
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import Named, astray, bare_hash, empty, matrices, replaceable
from waxeq_cfamily.values import Unsupported, Values
from waxeq_cupy import device
from waxeq_cupy.flat import flat, turned, width_of
from waxeq_cupy.pieces import walks
from waxeq_cupy.rows import Rows
from waxeq_cupy.stages import Schedule
from waxeq_cupy.tensormaps import TensorMap
from waxeq_cupy.text import Text
from waxeq_cupy.threads import laid

Found = TypeVar("Found")
MOST_BLOCKS = (1 << 31) - 1
_COSTLY = 8
"""Operations of a function that is more than one instruction."""
_LINE = 256
"""Bytes at multiples of which partial results begin in the workspace."""
_FILES = ("prelude.cuh", "products.cuh", "hopper.cuh", "attention.cuh", "attention_hopper.cuh")


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of the workspace: its first byte, its elements and their dtype."""

    at: int
    elements: int
    dtype: str

    @property
    def room(self) -> int:
        """Bytes up to where the next part may begin."""
        return -(-self.elements * numpy_dtype(self.dtype).itemsize // _LINE) * _LINE


@dataclass(frozen=True)
class Launch(Named):
    """One kernel of CUDA C++ and how it is started. `reads`: numbers of operands, or parts of the workspace; `writes`:
    a part of the workspace, or None for the result. `looked_up`: it has a flag for positions outside their axis.
    `maps`: tensor maps of operands, its last parameters. `shared`: bytes of shared memory besides what its text
    declares. `architecture`: the only one that has its instructions; "" where any has."""

    blocks: int
    threads: int
    reads: tuple[int | Slot, ...]
    writes: Slot | None
    looked_up: bool
    maps: tuple[TensorMap, ...] = ()
    shared: int = 0
    architecture: str = ""


@dataclass(frozen=True)
class Work:
    """The launches of a call one after another, the bytes of workspace that they share, and how many operations they
    make, a costly function counted as several."""

    launches: tuple[Launch, ...]
    workspace: int = 0
    operations: float = 0.0


@cache
def prelude() -> str:
    """The text before every kernel."""
    here = Path(__file__).parent
    return "\n".join((source(), *((here / f).read_text(encoding="utf-8") for f in _FILES)))


@cache
def _written() -> str:
    """A hash of the text that is not generated, without its comments."""
    return bare_hash(prelude())


@cache
def library() -> Mapping[tuple[str, str], str]:
    """C names of scalar functions: CUDA's own, which are exact to a few units in the last place, and ours where CUDA
    has none."""
    return {**own(), **libm()}


class Loops(device.OnDevice):
    """Any nest without scans."""

    name = "loops"
    form = "loops"
    heads = INDEX_MAPS | {"argmax", "argmin"}
    pace = 0.15

    @property
    def code(self) -> str:
        """The class and what it uses, the text before every kernel, and the device."""
        return hashlib.sha256("|".join((code_hash(type(self)), _written(), device.identity())).encode()).hexdigest()[
            :16
        ]

    def work(self, call: Call, *, aligned: bool = True) -> Work | None:
        """The launches of a call; None for a call that the kernel does not take. `aligned`: everything begins at
        multiples of 16 bytes."""
        return call.remember((self.name, "cuda", aligned), lambda: self._work(call, aligned))

    def _work(self, call: Call, aligned: bool) -> Work | None:
        try:
            values = self._values(call)
            if call.out.elements == 0:
                return Work(())
            parts: list[Launch] = []
            reads: list[int | Slot] = [*range(len(call.operands))]
            dtypes = [v.dtype for v in call.operands]
            nests, at = tuple(walks(values, len(call.operands))), 0
            replaced = frozenset(self.in_place(call)) if len(nests) == 1 else frozenset[int]()
            for nest in nests:
                slot = None
                if nest.partial is not None:
                    slot = Slot(at, nest.elements, nest.space.values.rows[-1].dtype)
                    at += slot.room
                parts.append(launched(nest.space, tuple(dtypes), replaced, tuple(reads), slot, aligned))
                if slot is not None:
                    reads, dtypes = [*reads, slot], [*dtypes, slot.dtype]
            return Work(tuple(parts), at, sum(_operations(n.space) for n in nests))
        except Unsupported:
            return None

    def _values(self, call: Call) -> Values:
        """The scalar values of a call. Raises Unsupported for what no loops are made of."""
        values = resolved(call)
        if matrices(values):
            raise Unsupported("a product of matrices")
        return values

    def accepts(self, call: Call) -> bool:
        return self.work(call) is not None

    def workspace(self, call: Call) -> int:
        w = self.work(call)
        return 0 if w is None else w.workspace

    def in_place(self, call: Call) -> tuple[int, ...]:
        """Operands that are read only where the result is written, by the thread that writes there: in nests without
        folds where nothing is turned, and in rows whose loops, the result's among them, all run along one axis."""
        try:
            (nest,) = walks(self._values(call), len(call.operands))
        except (Unsupported, ValueError):
            return ()
        s = nest.space
        rows = s.inner == (s.vector,) and s.vector not in s.outer and s.vector in s.written
        if s.turned or (s.values.folded and not rows):
            return ()
        return replaceable(s.values, call.canonical)

    def features(self, call: Call) -> Mapping[str, float]:
        w = self.work(call)
        assert w is not None
        slots = [s for x in w.launches for s in (*x.reads, x.writes) if isinstance(s, Slot)]
        moved = call.bytes_read + call.out.bytes + sum(s.elements * numpy_dtype(s.dtype).itemsize for s in slots)
        return {"launches": float(len(w.launches)), "bytes": float(moved), "operations": w.operations}

    @staticmethod
    def prepare(rows: Sequence[tuple[Kernel, Call]]) -> None:
        works = (k.work(c) for k, c in rows if isinstance(k, Loops))
        device.current().compiled([x for w in works if w is not None for x in w.launches])

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        on = device.current()
        w = self.work(call, aligned=on.aligned((*operands, out, workspace)))
        assert w is not None
        return on.bound(w, operands, out, workspace) if w.launches else ()


class Copy(Loops):
    """A copy: into another order of axes, out of a view, along axes that the operand lacks."""

    name = "copy"
    form = "copy"

    def accepts(self, call: Call) -> bool:
        return call.meaning.head == "In" and super().accepts(call)


def decided(call: Call, what: Hashable, find: Callable[[], Found]) -> Found:
    """What `find` makes of a call: looked for once, and refused once. Raises Unsupported."""

    def tried() -> Found | Unsupported:
        try:
            return find()
        except Unsupported as e:
            return e

    known = call.remember(what, tried)
    if isinstance(known, Unsupported):
        raise known
    return known


def values_of(call: Call) -> Values:
    """The scalar values of a call's canonical form, all of dtypes that C has. Raises Unsupported."""
    c = call.canonical
    if any(v.dtype not in CTYPES for v in (c.out, *c.operands)):
        raise Unsupported("dtype")
    values = resolve(c.meaning, c.operands, c.out, c.sizes)
    if any(r.dtype not in CTYPES for r in values.rows):
        raise Unsupported("dtype")
    if empty(values) or astray(values):
        raise Unsupported("nothing to look at")
    return values


def resolved(call: Call) -> Values:
    """The scalar values of a call without scans. Raises Unsupported for what no kernel is made of."""

    def find() -> Values:
        values = values_of(call)
        if values.scans:
            raise Unsupported("a scan")
        return values

    return decided(call, "cuda values", find)


def launched(
    s: Space,
    dtypes: tuple[str, ...],
    replaced: frozenset[int],
    reads: tuple[int | Slot, ...],
    to: Slot | None,
    aligned: bool,
) -> Launch:
    """The kernel of one walk, which reads and writes `reads` and `to`. Raises Unsupported."""
    make = {"operands": (), "result": "", "dtypes": dtypes, "aliased": replaced}
    Text(s, library(), **make).check()
    if s.values.folded:
        on = laid(s, aligned=aligned)
        text = Text(s, library(), **make, threads=on.threads.block, width=on.threads.width)
        written, blocks, threads = Rows(text, on).written(), on.blocks, on.threads.block
    elif s.across is not None and s.turned:
        written, blocks, threads = turned(Text(s, library(), **make), s.across)
    else:
        text = Text(s, library(), **make, width=width_of(s) if aligned else 1)
        written, blocks, threads = flat(text)
    if blocks > MOST_BLOCKS:
        raise Unsupported("more blocks than a launch has")
    return Launch(written, blocks, threads, reads, to, bool(s.values.positions))


def operations(values: Values, n: int) -> float:
    """How many operations it takes to make a row once for every place that it has."""
    r = values.rows[n]
    made = (r.op in ("apply", "within")) * (_COSTLY if r.costly else 1.0)
    return made * math.prod(values.sizes[k] for k in r.axes)


def _operations(s: Space) -> float:
    """How many operations a walk makes: what does not depend on every point is made by each of them all the same."""
    points = s.points()
    if not s.values.folded:
        return float(points * sum(_COSTLY if r.costly else 1 for r in s.values.rows))
    schedule, total = Schedule(s), 0.0
    for stage in schedule.stages:
        over = math.prod(s.width(k) for k in stage.order)
        rows = (s.values.rows[n] for n in schedule.cone(stage) if s.under(n))
        total += points * over * (1 + sum(_COSTLY if r.costly else 1 for r in rows))
    return total


KERNELS = (Loops, Copy)
