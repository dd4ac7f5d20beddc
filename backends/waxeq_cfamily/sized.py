"""C text of walks whose sizes are arguments: wherever a number depends on them, the text has an expression over them.

A walk is chosen (tiles, the order of loops, what is kept) for the largest sizes there are, and its buffers have room
for these. All else in the text is true at all sizes: nothing is left out because it happens not to be needed at some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from waxeq.backend.extent import Extent, least, variable
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.scalars import variable as type_of
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Index, Unsupported, Values


@dataclass(frozen=True)
class SizedEmitter(Emitter):
    """`sizes`: for each size the operand that it is."""

    sections: ClassVar[bool] = False
    grouped: ClassVar[bool] = False
    sizes: Mapping[str, int] = field(default_factory=dict)

    def _pointers(self) -> Iterator[str]:
        for name, n in self.sizes.items():
            yield f"  const int64_t {variable(name)} = *(const int64_t *)({self.operands[n]});"
        yield from super()._pointers()

    def _buffers(self) -> Iterator[str]:
        for n, axes in self.space.buffered.items():
            size = int(math.prod(self.space.width(k) for k in axes))
            yield f"WX_ALIGNED {type_of(self.values.rows[n].dtype)} b{n}[{max(1, size)}];"

    def _inside(self, where: Index, low: int, high: int) -> str:
        return f"((uint64_t)({self.index(where)}{f' - {low}' if low else ''}) < (uint64_t)({high - low}))"


def at_most(s: Space) -> Space:
    """The same walk at the largest sizes: what it costs there."""
    sizes, tiles = ({k: int(n) for k, n in given.items()} for given in (s.values.sizes, s.tiles))
    return replace(s, values=replace(s.values, sizes=sizes), tiles=tiles)


def require_elements(values: Values) -> None:
    """Raises Unsupported where some axis has no elements at some sizes: what would be done of nothing is decided when
    the text is written."""
    empty = next((k for k, n in values.sizes.items() if isinstance(n, Extent) and least(n) < 1), None)
    if empty is not None:
        raise Unsupported("an axis that may be empty")
