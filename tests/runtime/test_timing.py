"""The errors that timings carry."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.cost.key import Timing
from waxeq.extract.price import timing_key
from waxeq.ir.term import Term
from waxeq.runtime.rest import rest
from waxeq.runtime.timing import Bench, relative_error, results_error

pytestmark = pytest.mark.quick
FOUND = kernels(backends())


class Sloppy(Kernel):
    """A kernel with an error of a thousandth in every result."""

    name = "sloppy"

    def __init__(self, inner: Kernel) -> None:
        self.inner = inner

    def accepts(self, call: Call) -> bool:
        return self.inner.accepts(call)

    def features(self, call: Call):
        return self.inner.features(call)

    def bind(self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray):
        def spoil() -> None:
            np.multiply(out, 1.001, out=out)

        steps: tuple[Instruction, ...] = (*self.inner.bind(call, operands, out, workspace), spoil)
        return steps


def product(m: int, n: int, k: int) -> Call:
    sizes = {"m": m, "n": n, "k": k}
    meaning = Term("Sum", "k", Term("Mul", operand(0, "mk", "float32"), operand(1, "kn", "float32")))
    views = tuple(View.dense(axes, sizes, "float32") for axes in ("mk", "kn", "mn"))
    return Call("numpy.gemm", meaning, sizes, views[:2], views[2])


def softmax(rows: int, columns: int) -> Call:
    sizes, x = {"i": rows, "j": columns}, operand(0, "ij", "float32")
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "j", x)))
    view = View.dense("ij", sizes, "float32")
    meaning = Term("Mul", e, Term("Map", "recip", Term("Sum", "j", e)))
    return Call("native.loops_fast", meaning, sizes, (view,), view)


def timed(kernel: Kernel, call: Call) -> Timing:
    return Bench(1 << 20).time(kernel, call, timing_key(call, FOUND[call.kernel], "d", 1), 1e-3)


@pytest.mark.parametrize("call", [product(8, 8, 8), product(300, 200, 100), product(2, 3, 400_000)], ids=str)
def test_a_timing_carries_errors_however_large_the_call(call: Call) -> None:
    exact, sloppy = timed(FOUND["numpy.gemm"], call), timed(Sloppy(FOUND["numpy.gemm"]), call)
    assert exact.rms_relative_error <= exact.max_relative_error < 1e-4
    assert sloppy.rms_relative_error == pytest.approx(1e-3, rel=0.2)


def test_what_is_folded_is_checked_as_a_whole() -> None:
    """Of a large softmax a part of each row was checked, as if the rest were not in its sum: an error of 0.9."""
    assert timed(FOUND["native.loops_fast"], softmax(512, 4096)).rms_relative_error < 1e-6


@pytest.mark.parametrize("place", [(0, 0), (-1, 0), (0, -1), (-1, -1)])
def test_an_error_at_an_end_of_a_large_result_is_found(place: tuple[int, int]) -> None:
    """Places were taken along one axis, and of the other the first alone."""

    class Torn(Sloppy):
        def bind(self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray):
            def tear() -> None:
                out[place] += 100

            return (*self.inner.bind(call, operands, out, workspace), tear)

    assert timed(Torn(FOUND["numpy.gemm"]), product(700, 700, 500)).max_relative_error > 1e-2


@pytest.mark.parametrize(("takes", "runs"), [(1.1, 1), (0.05, 2), (0.03, 3), (0.01, 4), (0.003, 14)])
def test_the_longer_a_call_the_fewer_runs(monkeypatch: pytest.MonkeyPatch, takes: float, runs: int) -> None:
    """On a clock of its own: of a call of half the time meant for it the first run on each memory counts."""
    now, ran = [0.0], list[int]()

    class Slow(Sloppy):
        def bind(self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray):
            def step() -> None:
                ran.append(id(out))
                now[0] += takes

            return (step,)

    call = product(64, 64, 64)
    monkeypatch.setattr("waxeq.runtime.neighbours.delayed", lambda: 0.0)  # a run that waited for a core is made again
    monkeypatch.setattr("waxeq.runtime.timing.rest", lambda: None)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    found = Bench(1 << 20).time(
        Slow(FOUND["numpy.gemm"]), call, timing_key(call, FOUND[call.kernel], "d", 1), 0.02
    )  # fmt: skip
    assert found.seconds == pytest.approx(takes)
    assert len(ran) == runs


@pytest.mark.parametrize(("takes", "joins", "calls"), [(1e-6, True, 50), (1e-6, False, 1), (1e-3, True, 1)])
def test_short_calls_are_started_together_as_in_a_plan(
    monkeypatch: pytest.MonkeyPatch, takes: float, joins: bool, calls: int
) -> None:
    """On a clock of its own: a call of 60 ns that takes 700 to start alone was timed as one of 760, and a function of
    NumPy that takes 400 was chosen in its place, between others that are started together."""
    now, runs = [0.0], list[int]()

    class Short(Sloppy):
        def bind(self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray):
            def step() -> None:
                now[0] += takes

            return (step,)

        @staticmethod
        def join(steps: Sequence[Instruction]) -> Sequence[Instruction]:
            def together() -> None:
                runs.append(len(steps))
                for s in steps:
                    s()

            return (together,) if joins else steps

    call = product(16, 16, 16)
    monkeypatch.setattr("waxeq.runtime.neighbours.delayed", lambda: 0.0)
    monkeypatch.setattr("waxeq.runtime.timing.rest", lambda: None)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    kernel = Short(FOUND["numpy.gemm"])
    found = Bench(1 << 20).time(kernel, call, timing_key(call, FOUND[call.kernel], "d", 1), 0.01)
    assert found.seconds == pytest.approx(takes)
    assert set(runs) == ({calls} if calls > 1 else set())


_LABELS = operand(1, "i", "int64")
COMPUTED = {
    "a place in each row": Term("Add", Term("Mul", Term("Iota", "i", "int64"), Term("Num", 10.0, "int64")), _LABELS),
    "numbers that begin later": Term("Add", _LABELS, Term("Num", -1000.0, "int64")),
    "every other": Term("Mul", _LABELS, Term("Num", 2.0, "int64")),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.skipif("native.loops" not in FOUND, reason="there is no C compiler")
def test_positions_that_are_computed_lie_on_their_axis(name: str) -> None:
    """`p[np.arange(n), labels]` is one: what labels may be follows from what is made of them."""
    sizes = {"i": 50, "k": 500}
    meaning = Term("Map", "neg", Term("Gather", "k", COMPUTED[name], operand(0, "k", "float32")))
    views = View.dense("k", sizes, "float32"), View.dense("i", sizes, "int64")
    call = Call("native.loops", meaning, sizes, views, View.dense("i", sizes, "float32"))
    assert timed(FOUND["native.loops"], call).max_relative_error == 0.0


@pytest.mark.skipif("native.loops" not in FOUND, reason="there is no C compiler")
def test_positions_that_comparisons_are_summed_to_lie_on_their_axis() -> None:
    """The leaf of a tree: as many steps to the left as right make the largest place of none, which was taken for room
    for all; and features that are compared are looked up on an axis of their own, which the leaves' was taken for."""
    sizes = {"i": 40, "j": 6, "f": 5, "k": 64}
    feature = Term("Gather", "f", operand(1, "j", "int64"), operand(0, "if", "float32"))
    right = Term("Cast", "int64", Term("Zip", "lt", operand(2, "j", "float32"), feature))
    leaf = Term("Sum", "j", Term("Mul", right, operand(3, "j", "int64")))
    meaning = Term("Gather", "k", leaf, operand(4, "k", "float32"))
    dtypes = (("if", "float32"), ("j", "int64"), ("j", "float32"), ("j", "int64"), ("k", "float32"))
    views = tuple(View.dense(axes, sizes, dtype) for axes, dtype in dtypes)
    call = Call("native.loops", meaning, sizes, views, View.dense("i", sizes, "float32"))
    assert timed(FOUND["native.loops"], call).max_relative_error == 0.0
    _, features, _, bits, _ = Bench(1 << 20).operands(call)
    assert features.max() < sizes["f"] and bits.max() > 0, "more places than one"


@pytest.mark.parametrize("first", ["as it is", "computed"])
@pytest.mark.skipif("native.loops" not in FOUND, reason="there is no C compiler")
def test_an_operand_that_is_a_position_and_makes_another_suits_both(first: str) -> None:
    """`x[i] + x[i + 1]` was not timed: only one of both, the last, had a say in what i may be."""
    sizes = {"i": 5000, "k": 60}
    table, at = operand(0, "k", "float32"), operand(1, "i", "int64")
    beside = Term("Add", at, Term("Num", 1.0, "int64"))
    two = [Term("Gather", "k", p, table) for p in ((at, beside) if first == "as it is" else (beside, at))]
    views = View.dense("k", sizes, "float32"), View.dense("i", sizes, "int64")
    call = Call("native.loops", Term("Add", *two), sizes, views, View.dense("i", sizes, "float32"))
    assert timed(FOUND["native.loops"], call).max_relative_error < 1e-6


def test_what_cannot_be_checked_in_passing_is_not() -> None:
    assert math.isnan(timed(FOUND["numpy.gemm"], product(1, 1, 3_000_000)).rms_relative_error)


@pytest.mark.parametrize("size", [1, 7, (1 << 16) + 3])
@pytest.mark.parametrize("scale", [1e-300, 1e-60, 1e-59, 1.0, 1e60, 1e61, 1e300])
def test_errors_are_over_the_rms_of_the_reference_in_any_size(size: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal(size)
    off = 1e-6 * rng.standard_normal(size)
    rms = np.sqrt(np.mean(want**2))
    largest, mean = relative_error((want + off) * scale, want * scale)
    assert largest == pytest.approx(np.abs(off).max() / rms, rel=1e-6)
    assert mean == pytest.approx(np.sqrt(np.mean(off**2)) / rms, rel=1e-6)


def test_what_is_not_finite_must_be_the_same() -> None:
    want = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    assert relative_error(want.copy(), want) == (0.0, 0.0)
    for at, other in ((0, np.nan), (1, 1.0), (2, -np.inf), (3, np.nan), (4, np.inf)):
        got = want.copy()
        got[at] = other
        assert relative_error(got, want) == (math.inf, math.inf)
    assert relative_error(np.ones(0), np.ones(0)) == (0.0, 0.0)
    assert relative_error(np.array([np.nan]), np.array([np.nan])) == (0.0, 0.0)
    assert relative_error(np.array([3.0]), np.array([0.0])) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("got", "error"),
    [
        ([[3.0, 4.0]], 0.0),
        ([[3.0, 5.0]], 1 / 5),
        ([[3.0, math.nan]], math.inf),
        ([[3.0, math.inf]], math.inf),
        ([[3.0]], math.inf),
        ([[3.0, 4.0], [1.0]], math.inf),
    ],
)
def test_the_error_of_results(got: list[list[float]], error: float) -> None:
    found = results_error([np.array(g) for g in got], [np.array([3.0, 4.0])])
    assert found == pytest.approx(error)


def test_infinities_and_nan_that_agree_are_no_error() -> None:
    odd = np.array([math.inf, math.nan, 1.0, -math.inf])
    assert results_error([odd.astype(np.float32)], [odd]) == 0
    assert results_error([-odd], [odd]) > 0
    assert results_error([np.zeros((0, 3))], [np.zeros((0, 3))]) == 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="which threads run is not to be seen here")
def test_no_thread_is_left_spinning_by_errors() -> None:
    """Products of vectors had BLAS's threads spin for a tenth of a second on the core of what was timed next, which
    took twice as long on two threads: a whole table of timings was wrong."""
    want = np.ones(1 << 21)
    with threadpool_limits(4):
        rest()
        relative_error(want.astype(np.float32), want)
        own = str(threading.get_native_id())
        others = [t for t in Path("/proc/self/task").iterdir() if t.name != own]
        assert not [t.name for t in others if (t / "stat").read_text().rpartition(")")[2].split()[0] == "R"]
