"""What is timed on a GPU by name: meanings at sizes that a GPU is for, what each is to reach, and who does the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from waxeq.backend.call import Call, View, multiplies, operand
from waxeq.backend.kernel import Kernel
from waxeq.egraph.kernels import patterns
from waxeq.ir.term import Term
from waxeq.search.sample import Sample
from waxeq.search.samples import exponentials, softmax

F16, BF16, F32 = "float16", "bfloat16", "float32"
Measure = Literal["copy", "cublas", "compiled", "torch", "tflops"]


@dataclass(frozen=True)
class Goal:
    """`of`: what `least` is a multiple of: the bandwidth of a copy, the speed of cuBLAS, that of torch.compile, that of
    torch compiled or not, or 10^12 operations a second; all in the same run."""

    of: Measure
    least: float


@dataclass(frozen=True)
class Target:
    """A meaning on operands with these axes (letters in the order of memory) and a result with `order`.

    `sizes` are those that are timed on a GPU, `small` those that a simulated one is held to. `operations`: axes whose
    sizes multiply to half the operations of its products; "" where memory is what takes the time. `peer`: what in
    peers.py computes the same. `rounded`: float32 is rounded to tf32 before it is multiplied, by the peer too;
    elsewhere nobody rounds more than a dtype does.
    """

    name: str
    meaning: Term
    operands: Sequence[tuple[str, str]]
    order: str
    sizes: Mapping[str, int]
    small: Mapping[str, int]
    goal: Goal
    peer: str = ""
    operations: Sequence[str] = ()
    rounded: bool = False

    def sample(self, *, small: bool) -> Sample:
        """As the search's own grid has it."""
        sizes = self.small if small else self.sizes
        views = tuple(View.dense(axes, sizes, dtype) for axes, dtype in self.operands)
        return Sample(self.meaning, sizes, views, tuple(self.order))


def _wide(n: int, axes: str, dtype: str) -> Term:
    """An operand as float32."""
    x = operand(n, axes, dtype)
    return x if dtype == F32 else Term("Cast", F32, x)


def _narrow(x: Term, dtype: str) -> Term:
    return x if dtype == F32 else Term("Cast", dtype, x)


def product(a: Term, b: Term, k: str = "k") -> Term:
    """Summed over one axis."""
    return Term("Sum", k, Term("Mul", a, b))


def _gelu(x: Term) -> Term:
    """By the logistic function. Source: D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016, section 2."""
    return Term("Mul", x, Term("Map", "sigmoid", Term("Mul", Term("Num", 1.702, F32), x)))


_ROWS = {"i": 32768, "j": 4096}
_FEW = {"i": 6, "j": 264}
_COPY = Goal("copy", 0.90)
_ROW = Goal("copy", 0.85)
_DECODE = Goal("copy", 0.80)
COPIED = "negated float32"
"""What moves memory and hardly does anything else."""


def _element_wise() -> Iterator[Target]:
    for dtype in (F16, F32):
        x = Term("Add", _wide(0, "ij", dtype), _wide(1, "j", dtype))
        t = _narrow(Term("Add", _gelu(x), _wide(2, "ij", dtype)), dtype)
        leaves = [("ij", dtype), ("j", dtype), ("ij", dtype)]
        yield Target(f"bias gelu residual {dtype}", t, leaves, "ij", _ROWS, _FEW, _COPY, "bias_gelu_residual")
    x = Term("Map", "neg", operand(0, "ij", F32))
    yield Target(COPIED, x, [("ij", F32)], "ij", _ROWS, _FEW, _COPY, "negated")
    yield Target("transposed float32", x, [("ji", F32)], "ij", {"i": 16384, "j": 8192}, _FEW, _COPY, "transposed")


def _rows() -> Iterator[Target]:
    for dtype in (F16, F32):
        e = exponentials(_wide(0, "ij", dtype), "j")
        # one division for each row, as the rules have it; one for each element is what takes most of the time
        t = _narrow(Term("Mul", e, Term("Map", "recip", Term("Sum", "j", e))), dtype)
        yield Target(f"softmax {dtype}", t, [("ij", dtype)], "ij", _ROWS, _FEW, _ROW, "softmax")
    for name, centred in (("layer norm", True), ("RMS norm", False)):
        leaves = [("ij", F16), ("j", F16), *([("j", F16)] if centred else [])]
        peer, small = name.replace(" ", "_").lower(), {**_FEW, "j": _ROWS["j"]}
        yield Target(f"{name} float16", _norm(_ROWS["j"], centred), leaves, "ij", _ROWS, small, _ROW, peer)
    total = Term("Sum", "i", operand(0, "ij", F32))
    yield Target("sum of columns float32", total, [("ij", F32)], "j", _ROWS, _FEW, _ROW, "column_sum")


def _norm(n: int, centred: bool) -> Term:
    x, gain = _wide(0, "ij", F16), _wide(1, "j", F16)
    part = Term("Num", 1.0 / n, F32)
    if centred:
        x = Term("Zip", "sub", x, Term("Mul", Term("Sum", "j", x), part))
    square = Term("Mul", Term("Sum", "j", Term("Map", "square", x)), part)
    t = Term("Mul", Term("Mul", x, Term("Map", "rsqrt", Term("Add", square, Term("Num", 1e-5, F32)))), gain)
    return Term("Cast", F16, Term("Add", t, _wide(2, "j", F16)) if centred else t)


def _products() -> Iterator[Target]:
    small = {"m": 40, "n": 72, "k": 64}
    for dtype, n in ((F16, 8192), (BF16, 8192), (F16, 4096), (F32, 4096)):
        t = product(operand(0, "mk", dtype), operand(1, "nk", dtype))
        leaves, sizes = [("mk", dtype), ("nk", dtype)], dict.fromkeys("mnk", n)
        row = Target(f"product {n} {dtype}", t, leaves, "mn", sizes, small, Goal("cublas", 0.98), "product", ("mnk",))
        yield row
        if dtype == F32:
            yield replace(row, name=f"product {n} tf32", rounded=True)
    for k in (1024, 2048):
        t = product(_wide(0, "mk", F16), _wide(1, "nk", F16))
        t = Term("Cast", F16, _gelu(Term("Add", t, _wide(2, "n", F16))))
        leaves, sizes = [("mk", F16), ("nk", F16), ("n", F16)], {"m": 8192, "n": 8192, "k": k}
        goal = Goal("compiled", 1.05)
        yield Target(
            f"product {k} bias gelu float16", t, leaves, "mn", sizes, small, goal, "product_bias_gelu", ("mnk",)
        )


def _decoding() -> Iterator[Target]:
    for m in (1, 4):
        t = product(operand(0, "mk", F16), operand(1, "nk", F16))
        sizes, small = {"m": m, "n": 16384, "k": 8192}, {"m": m, "n": 40, "k": 264}
        yield Target(
            f"{m} rows float16", t, [("mk", F16), ("nk", F16)], "mn", sizes, small, _DECODE, "product", ("mnk",)
        )
    sizes, small = _heads(32, 1, 16384), _heads(2, 1, 130)
    yield Target("attention of one query float16", _attention(), _SIDES, "hme", sizes, small, _DECODE, "attention",
                 ("hmnd", "hmne"))  # fmt: skip
    sizes, small = _heads(32, 4096, 4096), _heads(2, 70, 130)
    yield Target("attention 4096 float16", _attention(), _SIDES, "hme", sizes, small, Goal("tflops", 300.0),
                 "attention", ("hmnd", "hmne"))  # fmt: skip


_SIDES = (("hmd", F16), ("hnd", F16), ("hne", F16))


def _heads(h: int, m: int, n: int) -> dict[str, int]:
    return {"h": h, "m": m, "n": n, "d": 128, "e": 128}


def _attention() -> Term:
    q, k, v = (operand(i, axes, dtype) for i, (axes, dtype) in enumerate(_SIDES))
    s = Term("Mul", product(q, k, "d"), Term("Num", 128**-0.5, F16))
    return product(softmax(s, "n"), v, "n")


def targets() -> tuple[Target, ...]:
    """All of them, one of each group first: a check that is cut off has seen something of everything."""
    groups = [tuple(made()) for made in (_products, _decoding, _rows, _element_wise)]
    return tuple(t for n in range(max(map(len, groups))) for g in groups for t in g[n : n + 1])


def calls(t: Target, kernels: Mapping[str, Kernel], *, small: bool) -> list[Call]:
    """The call of each kernel that computes it, without those that do it as another one does; at sizes for a GPU
    without loops over products, which take seconds."""
    found = t.sample(small=small).calls(kernels, patterns(kernels))
    slow = multiplies(t.meaning) and not small
    rows = ((kernels[c.kernel], c) for c in found if (kernels[c.kernel].error > 0) == t.rounded)
    return [c for k, c in rows if not (k.variant_of and not k.differs(c)) and not (slow and naive(k))]


def naive(k: Kernel) -> bool:
    """Whether a kernel takes a product apart into folds, as it takes anything."""
    return k.form == "loops" and k.matches(operand(0, "i", F32))
