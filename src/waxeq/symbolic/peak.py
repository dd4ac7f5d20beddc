"""Peak memory as a function of the dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from waxeq.backend.kernel import Kernel
from waxeq.memory.estimate import plan_estimate, resident
from waxeq.plan.compose import DIRECT, direct
from waxeq.plan.encode import decode
from waxeq.plan.plan import Plan
from waxeq.symbolic.dims import Dim, Sizes
from waxeq.symbolic.fit import fit
from waxeq.symbolic.offsets import tallest
from waxeq.symbolic.plan import Interval, SizedPlan, room
from waxeq.symbolic.size import Size, fill

_SAMPLED = 6
"""Sizes of each dim at which bytes are looked at to learn what function of it they are."""
_ALWAYS = "resident: "
_STEPPED = {"copies of inputs", "packed weights"}
"""Kinds of memory that are no polynomials of sizes."""


def peaks(interval: Interval, dims: Sequence[Dim], kernels: Mapping[str, Kernel]) -> tuple[Size | int, ...]:
    """Bytes that a program holds in an interval: the largest of these polynomials in the dims. Each is the sum of what
    is resident and of buffers that lie on each other up to the end of the arena, before they are rounded up to 64
    bytes. What is no polynomial, as the scratch memory of a kernel, counts with what it is at the greatest sizes; a
    result that lies in the arena only where it is small, with the most that it is there."""
    ends = interval.box.corners()
    inside = [p.sizes for p in interval.curve if p.sizes in interval.box]
    looked = [interval.plan.at(s, kernels) for s in (*inside, *ends)]
    top = looked[-1]
    rows = [dict(zip((d.name for d in dims), s, strict=True)) for s in product(*map(_sizes, dims))]
    seen = [_bytes(decode(fill(interval.plan.data, s), interval.plan.constants)) for s in rows]
    stepped = {_ALWAYS + k for k in _STEPPED} | {n for n, b in top.buffers.items() if b.role == "workspace"}
    amounts: dict[str, Size | int] = {}
    for name, size in _bytes(top).items():
        found = None if name in stepped else fit(rows, [s.get(name, 0) for s in seen])
        amounts[name] = size if found is None else found
    amounts |= dict.fromkeys(() if top.written else direct(top), DIRECT)
    always = [n for n in amounts if n.startswith(_ALWAYS)]
    stacks = dict.fromkeys(_stack(interval.plan, p) for p in looked)
    found = dict.fromkeys(_sum([amounts[n] for n in (*always, *stack)]) for stack in stacks)
    return tuple(a for a in found if not any(a != b and _covers(b, a) for b in found))


def _sizes(d: Dim) -> list[int]:
    """Sizes over the whole range, more than a polynomial has coefficients where there are as many."""
    return sorted({int(n) for n in np.linspace(d.low, d.high, _SAMPLED).round()})


def _bytes(plan: Plan) -> dict[str, int]:
    """Bytes of what is resident, by kind, and of every buffer, or every value of the model as written."""
    values = {f"%{v}": n.type.bytes for v, n in plan.graph.values()} if plan.written else {}
    kinds = {_ALWAYS + kind: size for kind, size in resident(plan).items()}
    return {**{n: b.bytes for n, b in plan.buffers.items()}, **values, **kinds}


def _stack(sized: SizedPlan, plan: Plan) -> tuple[str, ...]:
    """The buffers that lie on each other up to the end of the arena; of the model as written, the values that are there
    when most is."""
    if plan.written:
        return tuple(sorted(n for n, _ in plan_estimate(plan).live))
    return tallest(sized.order, room(plan, sized.order))


def _sum(amounts: Sequence[Size | int]) -> Size | int:
    found: Size | int = 0
    for a in amounts:
        found = a + found
    return found


def _covers(a: Size | int, b: Size | int) -> bool:
    """Whether a polynomial is at least another one at all sizes from 1 on, as far as its coefficients show it."""
    over = a - b
    if not isinstance(over, Size):
        return over >= 0
    return all(c >= 0 for c in over.expr.as_poly().coeffs())


def peak_at(formulas: Sequence[Size | int], sizes: Sizes) -> int:
    """What the formulas say of some sizes."""
    return max(f.at(sizes) if isinstance(f, Size) else f for f in formulas)
