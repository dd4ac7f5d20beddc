"""Functions of operands and nothing else: patterns that calls of them are drawn from, and which kernels take any."""

from __future__ import annotations

from collections.abc import Iterator

from waxeq.backend.call import operand
from waxeq.backend.kernel import Kernel
from waxeq.basis.scalar import REDUCERS, SCALARS, SCANS
from waxeq.egraph.rules import Apply, Body, Expr, Lit, Var
from waxeq.ir.term import Term
from waxeq.ir.types import DTYPES, HALVES
from waxeq.testing.pattern import Pattern, pattern


def in_pattern(e: Expr) -> Pattern:
    """An expression as a pattern."""
    return pattern(Body(((e,),), True), {}, "conformance")


def functions() -> Iterator[Pattern]:
    """Each function on operands."""
    x, y = Var("x"), Var("y")
    for f in SCALARS.values():
        yield in_pattern(Apply("Map", (Lit(f.name), x)) if f.arity == 1 else Apply("Zip", (Lit(f.name), x, y)))
    for f in REDUCERS:
        yield in_pattern(Apply("Red", (Lit(f), Var("k"), x)))
    for f in SCANS:
        yield in_pattern(Apply("Scan", (Lit(f), Var("k"), x)))
    for d in DTYPES:
        yield in_pattern(Apply("Cast", (Lit(d), x)))


def takes_functions(kernel: Kernel) -> bool:
    """Whether a kernel of form "loops" takes some function alone: those of products do not."""
    heads = [("Map", f.name) for f in SCALARS.values() if f.arity == 1 and f.takes == "float"]
    heads += [(head, f, "j") for head, folds in (("Red", REDUCERS), ("Scan", SCANS)) for f in folds]
    leaves = [operand(0, "ij", d) for d in (*HALVES, "float32")]
    return kernel.form == "loops" and any(kernel.matches(Term(*h, x)) for h in heads for x in leaves)
