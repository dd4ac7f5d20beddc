"""Calls of a plan for ranges of sizes, as kernels take them that compile once for all of these sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from waxeq.backend.call import Call, Over, View, operand, size_axis
from waxeq.backend.extent import Extent
from waxeq.ir.term import Term, parse, rebuild
from waxeq.ir.types import numpy_dtype
from waxeq.plan.encode import read_call
from waxeq.symbolic.dims import Sizes
from waxeq.symbolic.size import fill, holes, numbered, value

_FIRST = 1 << 62
"""Numbers from here on stand for holes in a meaning while it is read: no size is as large."""


@dataclass(frozen=True)
class Everywhere:
    """A step of a plan file with holes for sizes, and the ranges that these lie in."""

    step: Mapping[str, Any]
    ranges: Mapping[str, tuple[int, int]]

    def at(self, sizes: Sizes) -> Over | None:
        """Its call at some sizes; None where nothing of it depends on any. Raises PlanError."""
        if not self._depends:
            return None
        call, constants = self._call
        made = [np.asarray(float(value(text, sizes))).astype(numpy_dtype(dtype)) for text, dtype in constants]
        given = [np.array([sizes[n]], np.int64) for n in self.ranges]
        return Over(call, sizes, (*made, *given))

    @cached_property
    def _depends(self) -> bool:
        return holes({k: self.step[k] for k in ("meaning", "sizes", "reads", "writes")})

    @cached_property
    def _call(self) -> tuple[Call, tuple[tuple[str, str], ...]]:
        """The call, and the formulas and dtypes of its constants."""
        known = {n: Extent.of(n, *r) for n, r in self.ranges.items()}
        numbers = {k: fill(self.step[k], known) for k in ("sizes", "reads", "writes")}
        text, formulas = numbered(self.step["meaning"], _FIRST)
        constants: dict[tuple[str, str], int] = {}
        first = len(numbers["reads"])

        def change(old: Term, args: tuple[Any, ...]) -> Term:
            of = {i: formulas[a - _FIRST] for i, a in enumerate(args) if isinstance(a, int) and a >= _FIRST}
            if old.head == "Num" and 0 in of:
                n = constants.setdefault((of[0], args[1]), first + len(constants))
                return operand(n, (), args[1])
            return Term(old.head, *(value(of[i], known) if i in of else a for i, a in enumerate(args)))

        meaning = rebuild(parse(text), change)
        call = read_call({**self.step, **numbers}, meaning)
        more = [View((), (), (), dtype) for _, dtype in constants]
        more += [View((size_axis(n),), (1,), (1,), "int64") for n in self.ranges]
        shared = (*call.shared, *range(first, first + len(more))) if call.shared else ()
        sizes = {**call.sizes, **{size_axis(n): 1 for n in self.ranges}}
        whole = replace(call, meaning=meaning, operands=(*call.operands, *more), sizes=sizes, shared=shared)
        return whole, tuple(constants)
