"""Counterexamples in words and numbers."""

from __future__ import annotations

import numpy as np

from waxeq.basis.evaluate import NamedArray
from waxeq.ir.term import Term, postorder
from waxeq.testing.agree import Failure

_MOST = 24


def formula(t: Term) -> str:
    """A term with its leaves by name."""
    if t.head in ("In", "Par"):
        return t.args[0]
    if t.head == "Num":
        return f"{t.args[0]:g}"
    parts = [formula(a) if isinstance(a, Term) else str(a) for a in t.args]
    return f"({' '.join((t.head, *parts))})"


def show_failure(f: Failure) -> str:
    """The instance, its inputs and both results."""
    e = f.equation
    rows = [f"  left   {formula(e.left)}", f"  right  {formula(e.right)}"]
    for t in postorder(e.left, e.right):
        if t.head in ("In", "Par"):
            name, axes, dtype = t.args
            shape = " ".join(f"{k}={e.sizes[k]}" for k in sorted(axes))
            weight = ", a weight" if t.head == "Par" else ""
            rows.append(f"  {name}: {dtype}[{shape}]{weight}{_values(f.inputs.get(name))}")
    bound = {a for t in postorder(e.left, e.right) for a in t.args if isinstance(a, str) and a in e.sizes}
    if bound:
        rows.append("  sizes  " + " ".join(f"{k}={e.sizes[k]}" for k in sorted(bound)))
    for side, x in (("left", f.left), ("right", f.right)):
        if x is not None:
            rows.append(f"  {side} ={_values(x)} over [{' '.join(x.axes)}]")
    return "\n".join(rows)


def _values(x: NamedArray | None) -> str:
    if x is None:
        return ""
    if x.data.size > _MOST:
        return f" = {x.data.size} elements"
    return " " + np.array2string(x.data, separator=", ", max_line_width=10_000).replace("\n", "")
