"""Which buffers share memory because a result is written in place of an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waxeq.errors import PlanError
from waxeq.memory.liveness import Buffer, InPlace, by_name, meets


@dataclass(frozen=True, slots=True)
class AliasClass:
    """Buffers that lie at one offset, in order of their lives. Its life is the union of theirs, its size the
    largest.
    """

    members: tuple[Buffer, ...]

    @property
    def name(self) -> str:
        return self.members[0].name

    @property
    def bytes(self) -> int:
        return max(b.bytes for b in self.members)

    @property
    def align(self) -> int:
        return max(b.align for b in self.members)

    @property
    def first(self) -> int:
        return self.members[0].first

    @property
    def last(self) -> int:
        return max(b.last for b in self.members)


@dataclass(frozen=True)
class Aliases:
    """A partition of the buffers; the wishes that made it, and for each wish not granted the reason."""

    classes: tuple[AliasClass, ...]
    granted: tuple[InPlace, ...]
    refused: Mapping[InPlace, str]


def alias(buffers: Sequence[Buffer], wishes: Sequence[InPlace]) -> Aliases:
    """Grant wishes in their order where that can change no value; one that cannot be granted is refused with a reason.

    Classes are in the order of `buffers`. Raises PlanError when a wish names a buffer that does not exist.
    """
    named = by_name(buffers)
    leads = {n: n for n in named}
    members: dict[str, tuple[Buffer, ...]] = {n: (b,) for n, b in named.items()}

    def lead(n: str) -> str:
        while leads[n] != n:
            leads[n] = leads[leads[n]]
            n = leads[n]
        return n

    granted: list[InPlace] = []
    refused: dict[InPlace, str] = {}
    for wish in wishes:
        for n in (wish.buffer, wish.reuses):
            if n not in named:
                raise PlanError(f"an in-place wish names buffer {n}, which the plan does not have")
        new, old = lead(wish.buffer), lead(wish.reuses)
        reason = _refusal(named[wish.buffer], named[wish.reuses], members[new], members[old])
        if reason is not None:
            refused[wish] = reason
            continue
        leads[new] = old
        members[old] = (*members[old], *members.pop(new))
        granted.append(wish)
    rows = (tuple(sorted(members[n], key=lambda b: (b.first, b.last))) for n in named if lead(n) == n)
    return Aliases(tuple(AliasClass(r) for r in rows), tuple(granted), refused)


def _refusal(new: Buffer, old: Buffer, with_new: tuple[Buffer, ...], with_old: tuple[Buffer, ...]) -> str | None:
    """Why `new` cannot take the memory of `old`, given what shares memory with either already."""
    if not old.first < new.first:
        return f"{old.name} is not written before the call that writes {new.name}"
    if old.last < new.first:
        return f"{old.name} is not read by the call that writes {new.name}"
    if old.last > new.first:
        return f"{old.name} is needed after the call that writes {new.name}"
    if new.bytes == 0 or new.bytes > old.bytes:
        return f"{new.name} has {new.bytes} bytes, {old.name} {old.bytes}"
    for a in with_old:
        for b in with_new:
            if meets(a, b) and not (a is old and b is new):
                return f"{a.name} and {b.name} would share memory and are needed at one call"
    return None


def handed_over(old: Buffer, new: Buffer) -> bool:
    """Whether `old` may give its memory to `new` at the one call at which both are needed."""
    return old.first < new.first == old.last and 0 < new.bytes <= old.bytes
