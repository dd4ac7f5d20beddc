"""The near copy of the tables that ship: blocks, and ceilings as memos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waxeq.cost.blocks import Block, places
from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.near import Near, Of, slot
from waxeq.cost.rows import FAMILY

_ONE = " AND ".join(f"{n} = ?" for n in FAMILY)


@dataclass(frozen=True)
class Shipped:
    """What a run reads of the tables that ship, in the near copy of them. Errors of SQLite are raised."""

    near: Near

    def lookup(self, keys: Mapping[str, TimingKey]) -> dict[str, Timing]:
        """The timing of each of the keys, by digest, that is known."""
        families: dict[Of, list[str]] = {}
        for d, k in keys.items():
            families.setdefault((k.device, k.method, k.backend, k.kernel, k.code, k.dtype), []).append(d)
        found: dict[str, Timing] = {}
        for of, digests in families.items():
            row = self.near.db.execute(f"SELECT digests FROM blocks WHERE {_ONE}", of).fetchone()
            known = {} if row is None else places(row[0])
            wanted = {known[d]: d for d in digests if d in known}
            if wanted:
                (block,) = self._blocks(_ONE, of)
                timings = block.of_calls({i: keys[d] for i, d in wanted.items()})
                found |= zip(wanted.values(), timings, strict=True)
        return {d: found[d] for d in sorted(found, key=slot)}

    def blocks(self, device: str, method: int) -> dict[Family, Block]:
        """The blocks of families of a device that were timed in a way."""
        return {b.family: b for b in self._blocks("device = ? AND method = ?", (device, method))}

    def _blocks(self, which: str, given: tuple) -> list[Block]:
        return [Block.read(row) for row in self.near.db.execute(f"SELECT * FROM blocks WHERE {which}", given)]
