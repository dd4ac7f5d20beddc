"""Neighbouring calls that compute the same things at the same points are one loop, wherever that is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.backend.discover import backends
from waxeq.ir.term import Term, postorder, rebuild
from waxeq.ir.types import numpy_dtype
from waxeq_native import library, loops
from waxeq_native.steps import OPERANDS, OUT_PLACE, Run, Step

(BACKEND,) = backends(["native"])
N = 40_001


def f(name: str, *xs: Term) -> Term:
    """A function of one or two values."""
    return Term(name, *xs) if name in ("Add", "Mul") else Term("Map" if len(xs) == 1 else "Zip", name, *xs)


def step(
    meaning: Term,
    reads: Sequence[np.ndarray],
    out: np.ndarray,
    *,
    axes: Sequence[str] | None = None,
    to: str = "ij",
    kernel: str = "loops_fast",
    threads: int = 1,
) -> Step:
    """A bound call; operand n has the axes `axes[n]`, the first ones of "ij" where none are given."""
    k = BACKEND.kernels[f"native.{kernel}"]
    own = axes or ["ij"[: a.ndim] for a in reads]
    sizes = {a: n for names, x in zip(own, reads, strict=True) for a, n in zip(names, x.shape, strict=True)}
    views = tuple(View.dense(names, sizes, x.dtype.name) for names, x in zip(own, reads, strict=True))
    order = to[: out.ndim]
    call = Call(f"native.{kernel}", meaning, sizes, views, View.dense(order, sizes, out.dtype.name), threads=threads)
    assert k.accepts(call)
    (made,) = k.bind(call, list(reads), out, np.empty(0, np.uint8))
    assert isinstance(made, Step)
    return made


@pytest.fixture
def together(ahead: Callable[..., None]) -> Callable[..., Run]:
    """`together(meanings, reads, outs)` runs a step for each result; what they and their loop need is compiled at
    once."""

    def made(meanings: Sequence[Term], reads: Sequence[np.ndarray], outs: Sequence[np.ndarray], **how: Any) -> Run:
        def bound() -> Run:
            return Run([step(m, reads, out, **how) for m, out in zip(meanings, outs, strict=True)])

        ahead(bound, [()])
        return bound()

    return made


def draw(dtype: str, shape: int | tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.uniform(-2, 2, shape).astype(numpy_dtype(dtype))


def x(n: int, dtype: str, axes: str = "i") -> Term:
    return operand(n, axes, dtype)


TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-6, "float64": 1e-12}


def close(got: np.ndarray, want: np.ndarray) -> None:
    within = TOLERANCE.get(got.dtype.name, 0.0)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=within, atol=within)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", ["loops", "loops_fast", "loops_fast_narrow", "loops_fast_stream"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_that_share_a_function_are_one_loop(
    dtype: str, kernel: str, threads: int, together: Callable[..., Run]
) -> None:
    a, b = draw(dtype, 3 * N), draw(dtype, 3 * N, 1)
    a[:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    t = f("tanh", x(0, dtype))
    meanings = [f("Mul", t, x(1, dtype)), f("sub", x(1, dtype), t), f("max", t, f("abs", x(1, dtype)))]
    outs = [np.full(3 * N, 7, a.dtype) for _ in meanings]
    run = together(meanings, [a, b], outs, kernel=kernel, threads=threads)
    assert [len(u.steps) for u in run.loops] == [3] and len(run.phases) == 1
    run()
    with np.errstate(all="ignore"):
        t = np.tanh(a)
        for got, want in zip(outs, (t * b, b - t, np.maximum(t, abs(b))), strict=True):
            close(got, want)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers(dtype: str, together: Callable[..., Run]) -> None:
    a, b = draw(dtype, 3 << 20), draw(dtype, 3 << 20, 1)
    outs = np.empty_like(a), np.empty_like(a)
    meanings = f("Mul", x(0, dtype), x(1, dtype)), f("sub", x(1, dtype), x(0, dtype))
    run = together(meanings, [a, b], outs, kernel="loops")
    assert run.loops
    run()
    np.testing.assert_array_equal(outs[0], a * b)
    np.testing.assert_array_equal(outs[1], b - a)


@pytest.mark.parametrize("n", [1, 2, 7, 8191, 8193])
def test_any_number_of_points(n: int, together: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_JOINED", 0)
    a, outs = draw("float32", n), [np.empty(n, np.float32) for _ in range(4)]
    e = f("exp", x(0, "float32"))
    meanings = [f("neg", e), f("Mul", e, e), f("square", f("Add", e, x(0, "float32"))), f("recip", e)]
    run = together(meanings, [a], outs)
    assert [len(u.steps) for u in run.loops] == [4]
    run()
    e = np.exp(a)
    for got, want in zip(outs, (-e, e * e, (e + a) ** 2, 1 / e), strict=True):
        close(got, want)


def test_small_results_are_not_worth_a_compilation() -> None:
    a = draw("float32", 100)
    e = f("exp", x(0, "float32"))
    assert not Run([step(m, [a], np.empty_like(a)) for m in (f("neg", e), f("Mul", e, e))]).loops


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_result_that_others_are_computed_from(dtype: str, together: Callable[..., Run]) -> None:
    """It is rounded to its dtype where they read it, and where it is written; whichever comes first."""
    a = draw(dtype, N)
    t = f("Mul", f("exp", x(0, dtype)), x(0, dtype))
    for meanings in ((t, f("Add", t, t)), (f("square", t), t), (f("neg", t), t, f("Mul", t, x(0, dtype)))):
        outs = [np.empty_like(a) for _ in meanings]
        run = together(meanings, [a], outs)
        assert len(run.phases) == 1
        run()
        t_ = (np.exp(a) * a).astype(a.dtype)
        wants = {str(t): t_, str(f("Add", t, t)): t_ + t_, str(f("square", t)): t_ * t_, str(f("neg", t)): -t_,
                 str(f("Mul", t, x(0, dtype))): t_ * a}  # fmt: skip
        for m, got in zip(meanings, outs, strict=True):
            close(got, wants[str(m)])
        copies = [out.copy() for out in outs]
        for s, out, got in zip(run.steps, outs, copies, strict=True):
            s()
            if dtype == "float16":  # rounded after each function: nothing is contracted
                np.testing.assert_array_equal(got, out)


def test_one_result_twice() -> None:
    a, outs = draw("float32", N), [np.empty(N, np.float32) for _ in range(2)]
    run = Run([step(f("exp", x(0, "float32")), [a], out) for out in outs])
    assert run.loops
    run()
    np.testing.assert_array_equal(outs[0], outs[1])
    close(outs[0], np.exp(a))


def test_factors_in_another_order_are_the_same_product() -> None:
    a, b, outs = draw("float32", N), draw("float32", N, 1), [np.empty(N, np.float32) for _ in range(2)]
    e, other = (f("exp", f("Mul", x(n, "float32"), x(1 - n, "float32"))) for n in (0, 1))
    run = Run([step(f("neg", e), [a, b], outs[0]), step(f("Mul", other, other), [a, b], outs[1])])
    assert run.loops and run.loops[0].source.count("wx_exp") == 1
    run()
    close(outs[0], -np.exp(a * b))
    close(outs[1], np.exp(a * b) ** 2)


def test_what_reads_another_result_waits_for_it() -> None:
    a, y, z = draw("float32", N), np.empty(N, np.float32), np.empty(N, np.float32)
    e = f("exp", x(0, "float32"))
    run = Run([step(e, [a], y), step(f("Mul", e, x(1, "float32")), [a, y], z)])
    assert not run.loops and len(run.phases) == 2
    run()
    close(z, np.exp(a) ** 2)


def test_operands_that_are_the_same_along_an_axis() -> None:
    a, row = draw("float32", (300, 111)), draw("float32", 111, 1)
    e = f("exp", x(0, "float32", "ij"))
    outs = np.empty_like(a), np.empty_like(a)
    run = Run([step(e, [a], outs[0]), step(f("Mul", e, x(1, "float32", "j")), [a, row], outs[1], axes=["ij", "j"])])
    assert run.loops
    run()
    close(outs[0], np.exp(a))
    close(outs[1], np.exp(a) * row)


def test_results_that_lie_in_another_order_are_apart() -> None:
    a = draw("float32", (300, 111))
    e = f("exp", x(0, "float32", "ij"))
    y, z = np.empty((300, 111), np.float32), np.empty((111, 300), np.float32)
    run = Run([step(e, [a], y), step(f("neg", e), [a], z, to="ji")])
    assert not run.loops
    run()
    close(y, np.exp(a))
    close(z, -np.exp(a).T)


def test_what_is_read_across_is_apart() -> None:
    a = draw("float32", (300, 300))
    e, turned = f("exp", x(0, "float32", "ij")), f("exp", x(1, "float32", "ji"))
    y, z = np.empty_like(a), np.empty_like(a)
    run = Run([step(e, [a], y), step(f("Mul", e, turned), [a, a], z, axes=["ij", "ji"])])
    run()
    close(y, np.exp(a))
    close(z, np.exp(a) * np.exp(a.T))


def test_loops_of_other_functions_shapes_and_threads_are_apart() -> None:
    a, b = draw("float32", N), draw("float32", N + 1)
    e = f("exp", x(0, "float32"))

    def made(of: np.ndarray = a, meaning: Term = e, kernel: str = "loops_fast", threads: int = 1) -> Step:
        return step(meaning, [of], np.empty_like(of), kernel=kernel, threads=threads)

    s = f("square", x(0, "float32"))
    assert Run([made(), made(meaning=f("neg", e))]).loops
    assert Run([made(), made(meaning=f("neg", e), kernel="loops_fast_narrow")]).loops
    others = [
        made(kernel="loops"),
        made(b),
        made(threads=2),
        made(meaning=s, kernel="loops"),
        made(b[:-1]),
        made(a[:-1]),
    ]
    for other in others:
        assert not Run([made(), other]).loops


def test_a_large_operand_alone_is_a_reason() -> None:
    a = draw("float32", 1 << 20)
    outs = np.empty_like(a), np.empty_like(a)
    one = x(0, "float32")
    run = Run([step(f("neg", one), [a], outs[0], kernel="loops"), step(f("square", one), [a], outs[1], kernel="loops")])
    assert run.loops
    run()
    np.testing.assert_array_equal(outs[0], -a)
    np.testing.assert_array_equal(outs[1], a * a)


@pytest.mark.parametrize(("cheap", "loops"), [(7, 0), (8, 1)])
def test_many_cheap_functions_are_a_reason_too(cheap: int, loops: int) -> None:
    """Three coordinates after some steps of a simulation: each loop made all the steps again."""
    a, t = draw("float32", N), x(0, "float32")
    for i in range(cheap):
        t = f("Add", t, Term("Num", 0.5, "float32")) if i % 2 else f("Mul", t, t)
    outs = np.empty_like(a), np.empty_like(a)
    run = Run([step(f("neg", t), [a], outs[0], kernel="loops"), step(f("abs", t), [a], outs[1], kernel="loops")])
    assert len(run.loops) == loops
    run()
    np.testing.assert_array_equal(np.abs(outs[0]), outs[1])


def test_no_more_arrays_than_a_core_looks_ahead_for() -> None:
    a = draw("float32", N)
    many = [f("Add", f("exp", x(0, "float32")), Term("Num", float(i), "float32")) for i in range(20)]
    outs = [np.empty_like(a) for _ in many]
    run = Run([step(m, [a], out) for m, out in zip(many, outs, strict=True)])
    assert [len(u.steps) for u in run.loops] == [11, 9]
    run()
    for i, out in enumerate(outs):
        close(out, (np.exp(a) + np.float32(i)))


def test_beyond_the_end_of_a_function_everything_is_computed_again() -> None:
    a = draw("float32", N)
    a[::1000] = 1e6 * np.arange(1, 42, dtype=np.float32)
    s = f("sin", x(0, "float32"))
    outs = np.empty_like(a), np.empty_like(a)
    run = Run([step(s, [a], outs[0]), step(f("square", s), [a], outs[1])])
    assert run.loops and "far" in run.loops[0].source
    run()
    want = np.sin(a.astype(np.float64))
    close(outs[0], want)
    close(outs[1], want**2)


def test_a_result_in_place_of_what_only_it_reads() -> None:
    a, b = draw("float32", N), draw("float32", N, 1)
    was, e, y = b.copy(), f("exp", x(0, "float32")), np.empty_like(a)
    over = step(f("Mul", e, x(1, "float32")), [a, b], b, kernel="loops")
    run = Run([step(f("neg", e), [a], y, kernel="loops"), over])
    assert run.loops
    run()
    close(y, -np.exp(a))
    close(b, np.exp(a) * was)


@pytest.mark.parametrize("first", [True, False])
def test_a_result_in_place_of_what_another_reads(first: bool) -> None:
    a = draw("float32", N)
    was, e, y = a.copy(), f("exp", x(0, "float32")), np.empty_like(a)
    steps = [step(f("neg", e), [a], y, kernel="loops"), step(f("square", e), [a], a, kernel="loops")]
    run = Run(steps if first else steps[::-1])
    assert not run.loops
    run()
    close(a, np.exp(was) ** 2)
    close(y, -np.exp(was if first else a))


def test_in_place_where_all_is_computed_again_is_apart() -> None:
    """A loop that goes over its points again would read what it has written."""
    a, b = draw("float32", N), draw("float32", N, 1)
    a[5] = 1e6
    was, s, y = b.copy(), f("sin", x(0, "float32")), np.empty_like(a)
    other = step(f("Mul", x(0, "float32"), f("recip", x(1, "float32"))), [b, a], b, kernel="loops")
    run = Run([step(f("Mul", s, f("recip", x(0, "float32"))), [a], y), other])
    assert not run.loops
    run()
    close(b, was / a)


def _pair(a: np.ndarray, b: np.ndarray, outs: Sequence[np.ndarray]) -> list[Step]:
    e = f("exp", x(0, "float32"))
    return [step(f("Mul", e, e), [a], outs[0]), step(f("neg", e), [b], outs[1])]


def test_operands_that_were_one_and_are_not_any_more() -> None:
    """Two inputs of one model may be one array in the first call, and two in the next."""
    a, b = draw("float32", N), draw("float32", N, 1)
    outs = np.empty_like(a), np.empty_like(a)
    steps = _pair(a, a, outs)
    run = Run(steps)
    assert run.loops
    run()
    steps[1].point(OPERANDS, b.ctypes.data)
    run()
    close(outs[0], np.exp(a) ** 2)
    close(outs[1], -np.exp(b))
    assert not run.loops
    steps[1].point(OPERANDS, a.ctypes.data)
    run()
    close(outs[1], -np.exp(a))


def test_what_stays_one_is_still_one_loop_when_something_else_moves() -> None:
    a, b, c = (draw("float32", N, i) for i in range(3))
    e = f("exp", x(0, "float32"))
    outs = np.empty_like(a), np.empty_like(a)
    steps = [step(f("Mul", e, x(1, "float32")), [a, b], outs[0]), step(f("Add", e, x(1, "float32")), [a, b], outs[1])]
    run = Run(steps)
    assert run.loops
    run()
    steps[1].point(OPERANDS + 1, c.ctypes.data)
    run()
    assert run.loops
    close(outs[0], np.exp(a) * b)
    close(outs[1], (np.exp(a) + c))
    moved = b.copy()
    for s in steps:
        s.point(OPERANDS, moved.ctypes.data)
    held = run.loops
    run()
    assert run.loops is held
    close(outs[1], (np.exp(b) + c))


def test_a_result_that_moves_to_where_another_step_reads() -> None:
    a = draw("float32", N)
    was, outs = a.copy(), (np.empty_like(a), np.empty_like(a))
    steps = _pair(a, a, outs)
    run = Run(steps)
    run()
    steps[0].point(OUT_PLACE, a.ctypes.data)
    run()
    assert not run.loops
    close(a, np.exp(was) ** 2)
    close(outs[1], -np.exp(a))


def _drawn(rng: np.random.Generator, dtype: str, depth: int) -> Term:
    """A random element-wise meaning over three operands; some subterms come again and again."""
    if depth == 0 or rng.random() < 0.1:
        return x(int(rng.integers(3)), dtype) if rng.random() < 0.9 else Term("Num", float(rng.normal()), dtype)
    if rng.random() < 0.4:
        return f(str(rng.choice(["exp", "tanh", "abs", "neg", "sin", "erf"])), _drawn(rng, dtype, depth - 1))
    name = str(rng.choice(["Add", "Mul", "sub", "max", "min"]))
    return f(name, *(_drawn(rng, dtype, depth - 1) for _ in range(2)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_random_meanings_together(
    dtype: str, ahead: Callable[..., None], little: library.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, cases, as_one = np.random.default_rng(3), list[tuple[list[Term], list[np.ndarray]]](), 0
    for _ in range(10):
        common = [f("tanh", _drawn(rng, dtype, 2)), f("exp", _drawn(rng, dtype, 1))]
        meanings = [f(str(rng.choice(["Add", "Mul", "max"])), common[int(rng.integers(2))], _drawn(rng, dtype, 3))
                    for _ in range(int(rng.integers(2, 5)))]  # fmt: skip
        cases.append((meanings, [draw(dtype, N, int(rng.integers(99))) for _ in range(3)]))

    def bound(meanings: list[Term], reads: list[np.ndarray]) -> tuple[list[Step], Run, list[np.ndarray]]:
        outs = [np.full(N, 7, reads[0].dtype) for _ in meanings]
        rows = [step(_numbered(m), [reads[n] for n in _read(m)], out, axes="i" * len(_read(m)))
                for m, out in zip(meanings, outs, strict=True) if _read(m)]  # fmt: skip
        return rows, Run(rows), outs

    monkeypatch.setattr(library, "shared", lambda: little)  # else one of the longest texts of all tests
    ahead(bound, cases)
    for case in cases:
        rows, run, outs = bound(*case)
        as_one += bool(run.loops)
        run()
        alone = [out.copy() for out in outs]
        for s in rows:
            s()
        for got, want in zip(alone, outs, strict=True):
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
            close(got[np.isfinite(got)], want[np.isfinite(got)])
    assert as_one > 4


def _read(m: Term) -> list[int]:
    return sorted({operand_index(t) for t in postorder(m) if t.head == "In"})


def _numbered(m: Term) -> Term:
    """The same with its operands numbered without gaps."""
    new = {n: i for i, n in enumerate(_read(m))}

    def change(old: Term, args: tuple) -> Term:
        return x(new[operand_index(old)], old.args[2]) if old.head == "In" else Term(old.head, *args)

    return rebuild(m, change)
