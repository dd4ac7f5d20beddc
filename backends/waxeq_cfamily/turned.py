"""C text of a stage that only brings into cache what lies side by side along another axis than the vector: squares of
it are turned in registers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import CTYPES, NARROW, var
from waxeq_cfamily.stages import TURNED

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop


def turns(loop: Loop) -> bool:
    """Whether all that a stage does in its last two loops is to keep elements as they lie in memory, across."""
    kept, space = loop.stage.kept, loop.space
    if loop.stage.folds or not kept or not {*kept} <= space.turned or loop.order[-2:] != (space.vector, space.across):
        return False
    rows = [loop.values.rows[n] for n in kept]
    if any(r.guards or numpy_dtype(r.dtype).itemsize not in TURNED for r in rows):
        return False
    if any(r.dtype in NARROW and not loop.e.converts for r in rows):
        return False
    if any(r.name[1].stride(space.vector) is None for r in rows):  # axes that are merged here and lie apart in memory
        return False
    inside = {n for n in loop.cone() if loop.depth(n) > len(loop.order) - 2}
    return inside == {*kept} and all(space.buffered[n][-2:] == (space.across, space.vector) for n in kept)


def squares(loop: Loop) -> list[str]:
    """The last two loops of such a stage."""
    down, across = loop.order[-2:]
    (low, high), (left, right) = loop.bounds(down), loop.bounds(across)
    lines = [f"const int64_t {var(down)} = {low}, {var(across)} = {left};"]
    for n in loop.stage.kept:
        dtype, (source, where) = loop.values.rows[n].dtype, loop.values.rows[n].name
        function, place = TURNED[numpy_dtype(dtype).itemsize], loop.e.buffer(n)
        to = f"h{n}{place.removeprefix(f'b{n}')}" if dtype in NARROW else place
        if dtype in NARROW:
            size = int(math.prod(loop.space.width(k) for k in loop.space.buffered[n]))
            lines.append(f"WX_ALIGNED {CTYPES[dtype]} h{n}[{size}];")
        lines.append(
            f"{function}(x{source} + {loop.e.index(where)}, {where.stride(down)}, {high} - {var(down)}, "
            f"{right} - {var(across)}, &{to}, {loop.space.width(down)});"
        )
        if dtype in NARROW:
            lines.append(f"for (int64_t {var(across)} = {left}; {var(across)} < {right}; {var(across)}++)")
            lines.append(f"  wx_widened_row_{NARROW[dtype]}(&{to}, &{place}, {high} - {var(down)});")
    return ["{", *("  " + x for x in lines), "}"]
