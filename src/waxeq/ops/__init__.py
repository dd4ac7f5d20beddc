"""The operators. `OPS` is read off the modules: a class defined in one of them is an operator, nothing registers
itself.
"""

from __future__ import annotations

from types import MappingProxyType

from waxeq.ir.op import Op
from waxeq.ops import (
    composite,
    contraction,
    elementwise,
    indexing,
    linalg,
    movement,
    ordering,
    reduction,
    source,
    window,
)

MODULES = (source, elementwise, reduction, ordering, contraction, movement, indexing, linalg, window, composite)

OPS = MappingProxyType(
    {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Op)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
)
"""Every operator class by name."""
