"""Conformance catches kernels that are wrong, each in its way, and passes one that is right."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from waxeq.backend.call import Call, View, aligned, operand
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.basis.evaluate import NamedArray, Native
from waxeq.basis.scalar import SCALARS
from waxeq.egraph.rules import Apply, Expr, Lit, Var
from waxeq.errors import AccuracyError
from waxeq.ir.term import Term
from waxeq.ir.types import FLOATS, INTEGERS, numpy_dtype
from waxeq.testing import calls
from waxeq.testing.alone import in_pattern
from waxeq.testing.conformance import check_call, check_kernel
from waxeq.testing.rounding import _spread, deviations
from waxeq.testing.sized import check_sized
from waxeq.testing.values import draw_leaves, evaluate


class Right(Kernel):
    """x + y on float32, by the letter."""

    name = "right"
    pattern = "(Add x y)"
    dtypes = ("float32",)

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        return {"launches": 1.0}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        x, y = (aligned(a, v, call.out.axes) for a, v in zip(operands, call.operands, strict=True))
        return (partial(self.run, x, y, out, workspace),)

    def run(self, x: np.ndarray, y: np.ndarray, out: np.ndarray, workspace: np.ndarray) -> None:
        np.add(x, y, out=out)


class WrongValue(Right):
    def run(self, x, y, out, workspace) -> None:
        np.add(x, np.abs(y), out=out)


class ALittleWrong(Right):
    def run(self, x, y, out, workspace) -> None:
        np.multiply(x + y, np.float32(1.00002), out=out)


class Admits(ALittleWrong):
    error = 3e-5


class LosesNaN(Right):
    def run(self, x, y, out, workspace) -> None:
        np.copyto(out, np.nan_to_num(x + y, posinf=np.inf, neginf=-np.inf))


class LosesInfinity(Right):
    def run(self, x, y, out, workspace) -> None:
        np.copyto(out, np.clip(x + y, -1e30, 1e30))


class AddsToWhatWasThere(Right):
    def run(self, x, y, out, workspace) -> None:
        out += x + y


class WorksOnce(Right):
    def bind(self, call, operands, out, workspace):
        (step,) = super().bind(call, operands, out, workspace)
        left = [step]
        return (lambda: left.pop()() if left else out.fill(0),)


class IgnoresStrides(Right):
    def bind(self, call, operands, out, workspace):
        flat = [a if a.size == 0 else np.frombuffer(a.base if a.base is not None else a, a.dtype) for a in operands]
        if any(f.size < out.size for f in flat) or not out.size:
            return super().bind(call, operands, out, workspace)
        x, y = (f[: out.size].reshape(out.shape) for f in flat)
        return (partial(self.run, x, y, out, workspace),)


class ChangesItsOperand(Right):
    def run(self, x, y, out, workspace) -> None:
        np.add(x, y, out=out)
        y[...] = 0


class WritesOutside(Right):
    def run(self, x, y, out, workspace) -> None:
        np.add(x, y, out=out)
        np.lib.stride_tricks.as_strided(out, (out.size + 1,), (4,))[-1] = 7


class WritesBefore(Right):
    def run(self, x, y, out, workspace) -> None:
        np.add(x, y, out=out)
        if out.size:
            ctypes.c_float.from_address(out.ctypes.data - 4).value = 7


class WritesBehindItsWorkspace(Right):
    def workspace(self, call: Call) -> int:
        return 64

    def run(self, x, y, out, workspace) -> None:
        np.add(x, y, out=out)
        np.lib.stride_tricks.as_strided(workspace, (65,), (1,))[-1] = 7


class WritesBeforeItsWorkspace(WritesBehindItsWorkspace):
    def run(self, x, y, out, workspace) -> None:
        np.add(x, y, out=out)
        ctypes.c_uint8.from_address(workspace.ctypes.data - 1).value = 7


class TrustsItsWorkspace(Right):
    def workspace(self, call: Call) -> int:
        return 4

    def run(self, x, y, out, workspace) -> None:
        np.add(x, y, out=out)
        out += workspace.view(np.float32)[0] != 0


class FalselyInPlace(Right):
    def in_place(self, call: Call) -> tuple[int, ...]:
        return tuple(
            i for i, v in enumerate(call.operands) if v.axes == call.out.axes and v.strides == call.out.strides
        )

    def run(self, x, y, out, workspace) -> None:
        np.negative(y, out=out)
        np.subtract(x, out, out=out)


class InfiniteFeature(Right):
    def features(self, call: Call) -> Mapping[str, float]:
        return {"flops": float("inf")}


class Raises(Right):
    def run(self, x, y, out, workspace) -> None:
        np.add(x, y.reshape(-1)[:7], out=out)


class AcceptsNothing(Right):
    def accepts(self, call: Call) -> bool:
        return False


@pytest.mark.parametrize("kind", [Right, Admits])
def test_a_kernel_that_is_right(kind: type[Kernel]) -> None:
    found = check_kernel("test.right", kind(), calls=60).require()
    assert found.calls == 60 and found.dtypes == {"float32"}
    assert {0, 1, 2} <= found.sizes


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (WrongValue, "elements differ"),
        (ALittleWrong, "elements differ"),
        (LosesNaN, "where nan is meant"),
        (LosesInfinity, "inf is meant"),
        (AddsToWhatWasThere, "elements differ"),
        (WorksOnce, "elements differ"),
        (IgnoresStrides, "elements differ"),
        (ChangesItsOperand, "was written"),
        (WritesOutside, "outside its result"),
        (WritesBefore, "outside its result"),
        (WritesBehindItsWorkspace, "outside its workspace"),
        (WritesBeforeItsWorkspace, "outside its workspace"),
        (TrustsItsWorkspace, "elements differ"),
        (FalselyInPlace, "in place of operand 0"),
        (InfiniteFeature, "feature flops must be a non-negative number"),
        (Raises, "raises ValueError"),
        (AcceptsNothing, "accepted no call"),
    ],
)
def test_a_kernel_that_is_wrong(kind: type[Kernel], said: str) -> None:
    with pytest.raises(AccuracyError, match=said) as e:
        check_kernel("test.wrong", kind(), calls=60).require()
    assert "test.wrong" in str(e.value) and e.value.exit_code == 6


def test_the_same_seed_finds_the_same() -> None:
    a, b = (check_kernel("test.wrong", WrongValue(), calls=60, seed=3) for _ in range(2))
    assert a == b and a.failure is not None


# -- floats that no integer can hold: what NumPy, C and vector instructions make of them differs


class Loops(Right):
    """Any loop, all of them wrong."""

    form = "loops"
    pattern = ""
    dtypes = None

    def matches(self, meaning: Term) -> bool:
        return True

    def orders(self, meaning: Term, axes: frozenset[str]) -> Sequence[tuple[str, ...]]:
        return ()

    def bind(self, call, operands, out, workspace):
        return (partial(out.fill, 77),)


def test_calls_of_sized_kernels_that_never_ran_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Loops()
    kernel.sized = Loops()
    ran = check_sized("test.loops", kernel, calls=3)
    assert ran.calls > 0 and "where" in str(ran.failure)
    monkeypatch.setattr("waxeq.testing.sized.check_call", lambda *given: None)
    with pytest.raises(AccuracyError, match="accepted no call"):
        check_sized("test.loops", kernel, calls=3).require()


@pytest.mark.parametrize("negated", [False, True])
def test_no_constant_is_drawn_that_its_integer_cannot_hold(negated: bool) -> None:
    rng, drawn = np.random.default_rng(0), set()
    for d in INTEGERS:
        for f in FLOATS:
            number: Expr = Apply("Num", (Var("v"), Lit(f)))
            cast = in_pattern(Apply("Cast", (Lit(d), Apply("Map", (Lit("neg"), number)) if negated else number)))
            found = (calls._draw("test.loops", Loops(), cast, rng) for _ in range(30))
            terms = (c.meaning.terms[0] for c in found if c is not None)
            drawn |= {(d, -t.terms[0].args[0] if negated else t.args[0]) for t in terms}
    of = {sign: {v for d, v in drawn if d[0] == sign} for sign in "iu"}
    assert min(of["i"]) < -1 < min(of["u"]) and max(of["i"]) > 1 and max(of["u"]) > 1


@pytest.mark.parametrize(("dtype", "defined"), [("int8", True), ("uint8", False)])
def test_a_conversion_without_a_value_is_not_held_against_a_kernel(dtype: str, defined: bool) -> None:
    meaning = Term("Cast", dtype, Term("Map", "neg", Term("Zip", "max", operand(0, "i", "float32"), _one())))
    views = View.dense("i", {"i": 5}, "float32"), View.dense("i", {"i": 5}, dtype)
    call = Call("test.loops", meaning, {"i": 5}, views[:1], views[1])
    said = check_call(Loops(), call, np.random.default_rng(0))
    assert (said is not None and "77 where -1 is meant" in said) == defined == (said is not None)


def _one() -> Term:
    return Term("Num", 1.0, "float32")


# -- what rounding explains is little where a meaning is well-conditioned, whatever large numbers it goes through


class HalfNorm(Right):
    """sum_j w x / sqrt(sum_j x x), the norm of some of x only."""

    part = 2

    def bind(self, call, operands, out, workspace):
        return (partial(self.run, *operands, out, workspace),)

    def run(self, x, w, out, workspace) -> None:
        n = len(x) - len(x) // self.part
        np.matmul(w, x / np.sqrt(np.sum(x[:n] * x[:n])), out=out)


class WholeNorm(HalfNorm):
    part = 1 << 30


@pytest.mark.parametrize("kind", [WholeNorm, HalfNorm])
def test_a_part_of_a_norm_is_not_rounding(kind: type[Kernel]) -> None:
    x, w = operand(0, "j", "float32"), operand(1, "ij", "float32")
    norm = Term("Map", "rsqrt", Term("Sum", "j", Term("Map", "square", x)))
    meaning, sizes = Term("Sum", "j", Term("Mul", w, Term("Mul", norm, x))), {"i": 70, "j": 2100}
    views = View.dense("j", sizes, "float32"), View.dense("ij", sizes, "float32")
    call = Call("test.norm", meaning, sizes, views, View.dense("i", sizes, "float32"))
    said = [check_call(kind(), call, np.random.default_rng(seed)) for seed in range(8)]
    assert sum(s is not None for s in said) == (0 if kind is WholeNorm else 7)  # the norm of one is NaN


def test_a_bound_where_all_deviations_level_off_is_not_nothing() -> None:
    """Of 5,000 sums that are lost in rounding every 128th had all of eight deviations on one side, where tanh is 1: the
    right result was then said to be wrong."""
    x, y = operand(0, "ik", "bfloat16"), operand(1, "kj", "bfloat16")
    root, sizes = Term("Map", "tanh", Term("Sum", "k", Term("Mul", x, y))), {"i": 50, "j": 100, "k": 1032}
    rng, domain = np.random.default_rng(0), Native()
    leaves = draw_leaves((root,), sizes, "normal", domain, rng)
    own = evaluate(root, leaves, sizes, domain)[root]
    near = deviations(root, leaves, sizes, 0.0, rng, own).aligned(("i", "j"))
    a, b = (leaves[n].aligned(k).astype(np.float64) for n, k in (("%0", "ik"), ("%1", "kj")))
    usual = np.abs(np.tanh(a @ b)) < 0.9
    assert usual.sum() > 100 and near[usual].min() > 0.5


def test_a_kernel_may_round_less_often_than_its_meaning() -> None:
    """A softmax of long sums of bfloat16 was 6.6e-23 with each step rounded and 3.1e-24 without, where all draws had a
    larger maximum and less than either."""
    rounded, exact = 6.6e-23, 3.1e-24
    draws = np.array([exact, *np.full(8, 1e-60)])
    spread = _spread(NamedArray(("%draw",), draws), NamedArray((), np.float64(rounded)))
    assert spread.data >= rounded - exact


@pytest.mark.parametrize("f", ["tan", "recip"])
def test_a_bound_where_a_pole_is_near_is_no_number(f: str) -> None:
    """The least of 130 tangents of sums was -120.5 where -2064 was meant, one unit of the sum further, and no draw had
    come as near to the pole: a few draws say nothing of how far the others may be."""
    x = operand(0, "ik", "bfloat16")
    root, sizes = Term("Map", f, Term("Sum", "k", x)), {"i": 20_000, "k": 4}
    rng, domain = np.random.default_rng(0), Native()
    leaves = draw_leaves((root,), sizes, "normal", domain, rng)
    own = evaluate(root, leaves, sizes, domain)[root]
    near = deviations(root, leaves, sizes, 0.0, rng, own).aligned(("i",))
    exact = leaves["%0"].aligned("ik").astype(np.float64).sum(axis=1)
    unit = np.spacing(exact.astype(numpy_dtype("bfloat16"))).astype(np.float64)
    with np.errstate(all="ignore"):
        value, *others = (SCALARS[f](exact + by * unit) for by in (0, -1, 1))
    assert all(np.all(np.abs(other - value) <= near) for other in others)
    assert np.isinf(near).mean() < 0.05
