"""Concatenations that nobody has to make: each part is written where the whole has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.backend.call import Call, View, operand, operand_index, sharing
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU
from waxeq.plan.cover import long_strides
from waxeq.plan.plan import Plan, Step

_START = 1 << 14
"""Bytes that a step more must save: a copy of so many takes as long as starting one of NumPy's kernels."""
_LEAST = 0.2
"""Of what a concatenation copies, the part that must be saved."""
_DEEP = 200
"""Concatenations in one another that are looked through at most."""


def in_sections(plan: Plan, kernels: Mapping[str, Kernel]) -> Plan:
    """The plan without concatenations of parts that their own kernels can write where the whole has them; what cannot
    be so written is copied there. A plan that uses other memory than the CPU's stays as it is. Memory is not assigned
    yet."""
    if plan.devices:
        return plan
    banned = frozenset[str]()
    while True:
        made = _Made(plan, kernels, banned)
        refused = made.refused()
        if not refused:
            return made.plan()
        banned |= refused


@dataclass(frozen=True, slots=True)
class _Leaf:
    """What a section holds: an operand of the step at `step`, and the section as a view of the whole's buffer, with
    the axes that this step has."""

    step: int
    operand: int
    section: View


@dataclass(frozen=True)
class _Whole:
    """A concatenation: the steps of it that need not run, the parts that are written in place, by their buffers, and
    the parts that are copied."""

    steps: tuple[int, ...]
    written: Mapping[str, _Leaf]
    copied: tuple[_Leaf, ...]

    @property
    def pays(self) -> bool:
        """Whether there is less to do than before."""
        saved, left = (sum(x.section.bytes for x in rows) for rows in (self.written.values(), self.copied))
        more = len(self.copied) - len(self.steps)
        return bool(self.written) and saved >= _LEAST * (saved + left) and (more <= 0 or saved >= more * _START)


class _Made:
    """A plan and what becomes of it; parts that are `banned` are not written in place."""

    def __init__(self, plan: Plan, kernels: Mapping[str, Kernel], banned: Collection[str]) -> None:
        self.before, self.kernels = plan, kernels
        self.steps = plan.steps
        self.readers = Counter(r for s in self.steps for r in s.reads)
        self.writers = {s.writes: i for i, s in enumerate(self.steps)}
        kept = {*(o.buffer for o in plan.outputs), *(b for _, b in plan.states), *banned}
        self.fixed = frozenset(kept | {n for n, b in plan.buffers.items() if b.role != "temporary"})
        self.places: dict[str, tuple[str, int]] = {}
        self.lines: dict[str, tuple[str, ...]] = {}
        self.wholes: dict[int, _Whole] = {}
        self._copies: dict[int, tuple[Step, ...]] = {}
        gone = set[int]()
        for i in reversed(range(len(self.steps))):
            if i not in gone and self._concatenates(i):
                gone.update(self._placed(i))

    def _concatenates(self, i: int) -> bool:
        """Whether a step makes the whole of a buffer from parts."""
        s = self.steps[i]
        size = self.before.buffers[s.writes].elements
        return s.call.meaning.head == "Cat" and size > 0 and _is_all(s.call.out, size)

    def _placed(self, i: int) -> tuple[int, ...]:
        """The steps that go, since the parts of the whole that step i makes are written in its place."""
        base, first = self.places.get(self.steps[i].writes, (self.steps[i].writes, 0))
        out = replace(self.steps[i].call.out, offset=first)
        found = self._parted(i, out)
        if found is None or not found.pays:
            return ()
        copies = [self._copy(x, base, f"{self.steps[i].writes}[{n}]") for n, x in enumerate(found.copied)]
        if None in copies:
            return ()
        self.wholes[i] = found
        self._copies[i] = tuple(s for s in copies if s is not None)
        self.places |= {r: (base, x.section.offset) for r, x in found.written.items()}
        self.lines |= dict.fromkeys(found.written, tuple(p for j in found.steps for p in self.steps[j].sources))
        return found.steps

    def _parted(self, i: int, out: View, depth: int = 0) -> _Whole | None:
        """What becomes of the parts of a concatenation that lies so; None where it is of something else as well."""
        sections = _sections(self.steps[i].call, out)
        if sections is None or depth > _DEEP:
            return None
        steps, written, copied = [i], dict[str, _Leaf](), list[_Leaf]()
        for n, section in sections:
            leaf, r = _Leaf(i, n, section), self.steps[i].reads[n]
            if r not in written and self._is_run(leaf):
                written[r] = leaf
            elif (inner := self._through(leaf, depth)) is not None and written.keys().isdisjoint(inner.written):
                steps += inner.steps
                written |= inner.written
                copied += inner.copied
            else:
                copied.append(leaf)
        return _Whole(tuple(steps), written, tuple(copied))

    def _is_run(self, x: _Leaf) -> bool:
        """Whether a part can be written in its section: it is all that a step writes, in elements that follow each
        other there as they do where it is now."""
        s = self.steps[x.step]
        r, v = s.reads[x.operand], s.call.operands[x.operand]
        if r in self.fixed or r in self.places or r not in self.writers:
            return False
        size = self.before.buffers[r].elements
        alone = _is_all(self.steps[self.writers[r]].call.out, size) and _is_all(v, size)
        return alone and v.dtype == x.section.dtype and long_strides(v) == long_strides(x.section)

    def _through(self, x: _Leaf, depth: int) -> _Whole | None:
        """The parts of a part that is a concatenation itself, which nobody else reads."""
        s = self.steps[x.step]
        r, v = s.reads[x.operand], s.call.operands[x.operand]
        i = self.writers.get(r)
        if i is None or r in self.fixed or r in self.places or self.readers[r] > 1 or not self._concatenates(i):
            return None
        if not _is_all(v, self.before.buffers[r].elements):
            return None
        out = _moved(self.steps[i].call.out, v, x.section)
        found = None if out is None else self._parted(i, out, depth + 1)
        return found if found is not None and found.pays else None

    def _copy(self, x: _Leaf, base: str, name: str) -> Step | None:
        """The step that copies a part into its section; None where no kernel does."""
        s = self.steps[x.step]
        v, own = s.call.operands[x.operand], s.call.kernel.partition(".")[0]
        sizes = dict(zip(x.section.axes, x.section.shape, strict=True))
        fixed = (0,) if x.operand in s.call.fixed else ()
        call = Call("", operand(0, v.axes, v.dtype), sizes, (v,), x.section, fixed=fixed, threads=s.call.threads)
        for kernel, k in sorted(self.kernels.items(), key=lambda row: row[0].partition(".")[0] != own):
            c = replace(call, kernel=kernel)
            usual = k.form == "copy" and not k.variant_of and k.device == CPU and k.smallest <= x.section.bytes
            if usual and k.accepts(c) and not k.workspace(c):
                part = x.section.bytes / max(1, s.call.out.bytes)
                about = (s.predicted * part, s.low * part, s.high * part, "fitted", s.sources, None, k.retained(c))
                return Step(c, (s.reads[x.operand],), base, None, *about, part=name)
        return None

    @cached_property
    def _rows(self) -> tuple[tuple[Step, Step], ...]:
        """The steps as they are then, each with the one that it was, or would be if it is new and nothing moved."""
        gone = {j for w in self.wholes.values() for j in w.steps}
        rows: list[tuple[Step, Step]] = []
        for i, s in enumerate(self.steps):
            if i not in gone:
                rows.append((self._relocated(s), s))
            rows += [(self._relocated(c), c) for c in self._copies.get(i, ())]
        return tuple(rows)

    def _relocated(self, s: Step) -> Step:
        """The step, reading and writing parts where they lie then; itself where it has none."""
        if self.places.keys().isdisjoint((*s.reads, s.writes)):
            return s
        reads = tuple(self.places.get(r, (r, 0))[0] for r in s.reads)
        rows = zip(s.call.operands, s.reads, strict=True)
        views = tuple(replace(v, offset=v.offset + self.places.get(r, (r, 0))[1]) for v, r in rows)
        base, first = self.places.get(s.writes, (s.writes, 0))
        out = replace(s.call.out, offset=s.call.out.offset + first)
        call = replace(s.call, operands=views, out=out, shared=sharing(reads))
        if base == s.writes:
            return replace(s, call=call, reads=reads)
        sources = tuple(dict.fromkeys((*s.sources, *self.lines[s.writes])))
        return replace(s, call=call, reads=reads, writes=base, part=s.writes, sources=sources)

    def refused(self) -> frozenset[str]:
        """The parts that some kernel does not take where they lie then."""
        wrong = (old for new, old in self._rows if new is not old and not self._taken(new))
        return frozenset(n for s in wrong for n in (*s.reads, s.writes) if n in self.places)

    def _taken(self, s: Step) -> bool:
        return self.kernels[s.call.kernel].accepts(s.call)

    def plan(self) -> Plan:
        """The plan as it is then."""
        if not self.wholes:
            return self.before
        steps = tuple(new for new, _ in self._rows)
        kept = {n for s in steps for n in (*s.reads, s.writes)} | {o.buffer for o in self.before.outputs}
        lost = {n for w in self.wholes.values() for i in w.steps for n in _own(self.steps[i])} | self.places.keys()
        buffers = {n: b for n, b in self.before.buffers.items() if n in kept or n not in lost}
        return replace(self.before, steps=steps, buffers=buffers)


def _own(s: Step) -> Iterator[str]:
    """The buffers that are there for a step."""
    yield s.writes
    if s.workspace is not None:
        yield s.workspace


def _sections(c: Call, out: View) -> Sequence[tuple[int, View]] | None:
    """Which operand lies in which section of the result, in order, where that lies so; None where the call does
    something else as well. Sections without elements are left out."""
    todo, rows = [(c.meaning, out)], list[tuple[int, View]]()
    while todo:
        t, v = todo.pop()
        if not v.elements:
            continue
        if t.head == "In":
            rows.append((operand_index(t), v))
        elif t.head == "Cat" and t.args[2] in v.axes:
            p, q, n, x, y = t.args
            first = c.sizes[p] * v.stride(n)
            todo += [(y, _part(v, n, q, c.sizes[q], first)), (x, _part(v, n, p, c.sizes[p], 0))]
        else:
            return None
    return rows


def _part(v: View, axis: str, name: str, size: int, first: int) -> View:
    """What lies from an element on along an axis, under another name."""
    shape = tuple(size if k == axis else n for k, n in zip(v.axes, v.shape, strict=True))
    return replace(v, axes=tuple(name if k == axis else k for k in v.axes), shape=shape, offset=v.offset + first)


def _moved(made: View, read: View, section: View) -> View | None:
    """How a result is to lie, that is read so, for what is read to lie in a section; None where the axes of the one
    are not those of the other in its memory."""
    strides = {step: k for k, step in long_strides(read).items()}
    where = [(strides.get(step), n) for n, step in zip(made.shape, made.strides, strict=True)]
    sizes = dict(zip(read.axes, read.shape, strict=True))
    if any(n != 1 and (k is None or sizes[k] != n or k not in section.axes) for k, n in where):
        return None
    if read.dtype != section.dtype or made.elements != section.elements:
        return None
    steps = tuple(1 if n == 1 or k is None else section.stride(k) for k, n in where)
    return replace(made, strides=steps, offset=section.offset)


def _is_all(v: View, elements: int) -> bool:
    """Whether a view shows each element of a buffer once."""
    return v.offset == 0 and v.elements == elements and v.is_dense
