"""Calls that are made in C: the same results as from Python, memory that nobody sees twice, and nothing left over."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.discover import backends
from waxeq.errors import TypeMismatch, UsageError
from waxeq.runtime.program import Program
from waxeq.search.result import Result
from waxeq_native import calling

Model = Callable[..., Any]
SHAPES = [(64, 48), (300, 200)]  # results of 12 KiB, which the plan has in its arena, and of 234 KiB
each = pytest.mark.parametrize("shape", SHAPES, ids=str)


def drawn(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(-8, 8, shape).astype(dtype) if dtype[0] == "i" else rng.standard_normal(shape).astype(dtype)


def scaled(x, y):
    return np.maximum(x * 2 + y, -1) * x


def wanted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(x * np.float32(2) + y, np.float32(-1)) * x


def strange(a: np.ndarray) -> np.ndarray:
    """The same, of a dtype that is equal to the usual one and not that."""
    return a.astype(np.dtype(a.dtype, metadata={"of": "somebody"}))


def memory(a: Any) -> memoryview:
    return memoryview(a)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    table = tmp_path_factory.mktemp("table") / "t.duckdb"

    def make(model: Model, *args: np.ndarray, threads: int = 1, **more: Any) -> Result:
        own = {"backends": ("native",), "trial": False, "measure": False, "threads": threads}
        return wx.optimize(model, *args, options=wx.Options.of(table=table, **own), **more)

    return make


@pytest.fixture(scope="module")
def results(planned: Callable[..., Result]) -> dict[tuple[int, ...], Result]:
    return {shape: planned(scaled, drawn(shape), drawn(shape, 1)) for shape in SHAPES}


@pytest.fixture
def program(results: dict[tuple[int, ...], Result], shape: tuple[int, ...]) -> Program:
    """A program whose calls are made in C from here on."""
    made = copy.copy(results[shape].program)
    made(drawn(shape), drawn(shape, 1))
    assert in_c(made, drawn(shape), drawn(shape, 1))
    return made


def in_c(program: Program, *args: np.ndarray) -> bool:
    direct = program._runner.direct
    return direct is not None and direct(args) is not None


def in_python(result: Result) -> Program:
    """The same plan, without calls in C."""
    kernels = {n: copy.copy(k) for n, k in result.kernels.items()}
    for k in kernels.values():
        k.direct = None
    return Program(result.plan, kernels, result.tensors)


def test_it_can_be_done_here() -> None:
    assert calling.unusable() is None


def several(x, y):
    return x * y + x, (x - y).sum(-1), np.exp(np.minimum(x, 1)).mean()


@pytest.mark.parametrize(
    ("model", "shape", "dtype", "threads"),
    [
        (scaled, (1,), "float32", 1),
        (scaled, (), "float64", 1),
        (scaled, (0, 4), "float32", 1),
        (scaled, (7, 1, 9), "int32", 1),
        (scaled, (33, 129), "float16", 2),
        (several, (13, 5), "float64", 1),
        (several, (130, 257), "float32", 2),
    ],
)
def test_results_are_those_of_calls_from_python(
    planned: Callable[..., Result], model: Model, shape: tuple[int, ...], dtype: str, threads: int
) -> None:
    rows = [(drawn(shape, n, dtype), drawn(shape, n + 50, dtype)) for n in range(8)]
    result = planned(model, *rows[0], threads=threads)
    program, slow = result.program, in_python(result)
    held = [program(*row) for row in rows]
    for got, row in zip(held, rows, strict=True):
        for one in (got, program(*row), program(x=row[0], y=row[1])):
            want = slow(*row)
            assert type(one) is type(want)
            for a, b in zip(*((one, want) if isinstance(one, tuple) else ((one,), (want,))), strict=True):
                assert type(a) is np.ndarray and a.dtype == b.dtype and a.flags.writeable and a.flags.c_contiguous
                np.testing.assert_array_equal(a, b)
    assert slow._runner.direct is None


@each
def test_what_c_does_not_take_is_taken_in_python(program: Program, shape: tuple[int, ...]) -> None:
    x, y = drawn(shape, 3), drawn(shape, 4)
    apart = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(shape)
    apart[...] = x
    locked = x.copy()
    locked.flags.writeable = False
    kinds = (np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x.view(np.memmap), apart, locked, x[::-1])
    kinds += strange(x), strange(np.asfortranarray(x))
    for a in kinds:
        want = wanted(np.asarray(a, np.float32), y)
        np.testing.assert_array_equal(program(a, y), want)
        np.testing.assert_array_equal(program(y=y, x=a), want)
        np.testing.assert_array_equal(program(x, y), wanted(x, y))
    assert in_c(program, x, y) and not in_c(program, np.asfortranarray(x), y) and not in_c(program, strange(x), y)
    np.testing.assert_array_equal(program(x, x), wanted(x, x))
    np.testing.assert_array_equal(program.flat_results({"y": y, "x": x})[program._names[0]], wanted(x, y))


@each
def test_what_does_not_fit_is_refused_as_ever(program: Program, shape: tuple[int, ...]) -> None:
    x, y = drawn(shape, 3), drawn(shape, 4)
    wrong = [(x,), (x, y, y), (x, y.T), (x, y[:-1]), (x, y.astype(np.float64)), (None, y), (x.tolist(), y)]
    for args in wrong:
        with pytest.raises(TypeMismatch):
            program(*args)
    with pytest.raises(TypeMismatch):
        program(x, y, x=x)
    np.testing.assert_array_equal(program(x, y), wanted(x, y))


@each
def test_what_somebody_holds_is_never_written(program: Program, shape: tuple[int, ...]) -> None:
    ways: list[Callable[[np.ndarray], Any]] = [
        *(lambda r: r, lambda r: r[3:, 1:], lambda r: r.T, lambda r: r.reshape(-1)[::7], memory),
        *(lambda r: r.view(np.int32), lambda r: np.asarray(memory(r)), lambda r: iter(r), lambda r: r.flat),
        *(lambda r: np.broadcast_to(r, (2, *shape)), lambda r: r.__array_interface__ and np.from_dlpack(r)),
    ]
    held = []
    for n in range(60):
        x, y = drawn(shape, n), drawn(shape, n + 1)
        way = ways[n % len(ways)]
        held.append((way(program(x, y)), way(wanted(x, y))))
        if n % 3 == 0:
            held.pop(n % 5 % len(held))
    for got, want in held:
        a, b = ([*it] if hasattr(it, "__next__") else it for it in (got, want))
        np.testing.assert_array_equal(a, b)
    for r in (program(x, y), program(x, y)):
        r[...] = 7
    np.testing.assert_array_equal(program(x, y), wanted(x, y))


@each
def test_a_result_is_fed_back_changed_in_form_and_written(program: Program, shape: tuple[int, ...]) -> None:
    y = drawn(shape, 1) / 16
    got = want = drawn(shape) / 16
    for n in range(12):
        args = ((got, y), (got, got), (y, got))[n % 3]
        want = wanted(*(want if a is got else y for a in args))
        got = program(*args)
        np.testing.assert_array_equal(got, want)
        if n % 4 == 3:
            got *= -1
            want = -want
    r = program(got, y)
    r.shape = (r.size,)
    r.flags.writeable = False
    del r
    r = program(got, y)
    assert r.shape == shape and r.flags.writeable


@each
def test_memory_of_results_that_are_gone_is_used_again(program: Program, shape: tuple[int, ...]) -> None:
    x, y = drawn(shape), drawn(shape, 1)
    assert len({program(x, y).ctypes.data for _ in range(9)}) == 1
    gone = weakref.ref(program(x, y))
    assert gone() is None
    r = program(x, y)
    assert len({(r := program(x, r)).ctypes.data for _ in range(9)}) == 2, "two, by turns"


def _references(x: np.ndarray) -> list[int]:
    return [sys.getrefcount(o) for o in (x, x.dtype, np.ndarray)]


@each
def test_nothing_is_left_of_calls(program: Program, shape: tuple[int, ...]) -> None:
    x, y = drawn(shape), drawn(shape, 1)
    turned, other, held = np.asfortranarray(x), strange(x), [program(x, y) for _ in range(6)]

    def many(times: int) -> None:
        for n in range(times):
            program(x, y)
            if n % 40 == 0:
                program(x, turned)
                program(x, other)
                held.append(program(x, y))
                del held[0]

    def grown() -> int:
        before, taken = _references(x), sys.getallocatedblocks()
        many(2_500)
        gc.collect()
        assert max(abs(a - b) for a, b in zip(before, _references(x), strict=True)) <= 2
        return sys.getallocatedblocks() - taken

    many(500)
    gc.collect()
    assert any(grown() < 50 for _ in range(8)), "what calls leave, they leave each time: other threads do not"


@each
def test_inputs_and_programs_end_when_nobody_has_them(program: Program, shape: tuple[int, ...]) -> None:
    x, y = drawn(shape), drawn(shape, 1)
    program(x, y)
    program(np.asfortranarray(x), y)
    program(strange(x), y)
    once, given = copy.copy(program), x.copy()
    first = weakref.ref(given)
    once(given, y)
    del given
    assert first() is None, "an input of the first call"
    again = copy.copy(program)
    kept = again(x, y)
    again(x, y)
    again(x, strange(y))
    ends = weakref.ref(x), weakref.ref(y), weakref.ref(again), weakref.ref(again._runner)
    gc.disable()
    try:
        del x, y, again
        assert [e() for e in ends] == [None] * 4, "without a collection"
    finally:
        gc.enable()
    np.testing.assert_array_equal(kept, wanted(drawn(shape), drawn(shape, 1)))


@each
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_have_memory_of_their_own(program: Program, shape: tuple[int, ...], again: Callable) -> None:
    x, y = drawn(shape), drawn(shape, 1)
    first, other = program(x, y), again(program)
    for _ in range(3):
        second = other(y, x)
    assert in_c(other, x, y) and other._runner.direct is not program._runner.direct
    program(y, y)
    np.testing.assert_array_equal(first, wanted(x, y))
    np.testing.assert_array_equal(second, wanted(y, x))


def test_one_caller_at_a_time(planned: Callable[..., Result]) -> None:
    def long(x):
        return np.sin(np.exp(np.sin(x))).sum(0)

    x = drawn((500, 1000))
    program = planned(long, x).program
    want = program(x)
    assert in_c(program, x)
    turned, refused, stop = strange(x), [0, 0], threading.Event()
    end = time.monotonic() + 60

    def call(which: int, a: np.ndarray) -> None:
        while not stop.is_set() and time.monotonic() < end:
            try:
                np.testing.assert_array_equal(program(a), want)
            except UsageError as e:
                assert "is running in another thread" in str(e)
                refused[which] += 1
                if min(refused) >= 3:
                    stop.set()

    threads = [threading.Thread(target=call, args=row) for row in ((0, x), (1, x), (1, turned))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert min(refused) >= 3
    np.testing.assert_array_equal(program(x), want)


def test_an_index_that_is_out_of_bounds(planned: Callable[..., Result]) -> None:
    x, i = drawn((500, 40)), np.arange(700, dtype=np.int64) % 500
    program = planned(lambda x, i: x[i] * 2, x, i).program
    program(x, i)
    assert in_c(program, x, i)
    held = []
    for bad in (500, -501, 1 << 40):
        j = i.copy()
        j[699] = bad
        for _ in range(2):
            with pytest.raises(IndexError, match="out of bounds"):
                program(x, j)
        held.append(program(x, i))
    for got in held:
        np.testing.assert_array_equal(got, x[i] * 2)


def test_a_matrix_without_a_solution(planned: Callable[..., Result]) -> None:
    """A system of equations in the midst of a plan was a call of its own, with Python before and after: a step of a
    Kalman filter took 8 us, 7 of which were that. What comes after one that has no solution is computed in vain."""

    def stepped(a, b, i):
        return (np.linalg.solve(a * 2, b) + 1)[i] * 3, np.linalg.cholesky(a)

    a, b, i = np.eye(3, dtype=np.float32) * 4, drawn((3, 2)), np.array([2, 0])
    program = planned(stepped, a, b, i).program
    for n in range(3):
        assert in_c(program, a, b, i)
        for got, want in zip(program(a, b, i), stepped(a, b, i), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
        for bad, at, kind, text in (
            (a * 0, i, np.linalg.LinAlgError, "Singular matrix"),
            (-a, i, np.linalg.LinAlgError, "not positive definite"),
            (a, i + n + 2, IndexError, "out of bounds"),
            (a * 0, i + n + 2, np.linalg.LinAlgError, "Singular matrix"),
        ):
            with pytest.raises(kind, match=text):
                program(bad, b, at)


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Has the main thread be interrupted once, in 0.7 ms."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 7e-4) and None
    signal.signal(signal.SIGALRM, before)


@each
def test_interruptions_leave_nothing_stale(program: Program, shape: tuple[int, ...], alarm: Callable[[], None]) -> None:
    x, y = drawn(shape), drawn(shape, 1)
    turned, wants = strange(y), (wanted(x, y), wanted(y, x))
    held: list[tuple[np.ndarray, int]] = []
    for _ in range(200):
        try:
            alarm()
            for n in range(10**4):  # an interruption that Python cannot raise where it comes is lost
                r = program(x, turned) if n % 4 == 0 else program(x, y) if n % 2 else program(y, x)
                held.append((r, n))
                del held[:-7]
        except KeyboardInterrupt:
            pass
        for r, n in held:
            np.testing.assert_array_equal(r, wants[n % 4 == 2])
    np.testing.assert_array_equal(program(x, y), wanted(x, y))


def test_where_it_cannot_be_done_calls_are_made_in_python(
    results: dict[tuple[int, ...], Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(calling, "_lies", lambda a: False)
        found = calling._ready.__wrapped__()
        assert isinstance(found, calling.Unusable) and "calls are made in Python" in str(found)
        patch.setattr(calling, "_ready", lambda: found)
        (backend,) = backends(["native"])
        assert str(found) in backend.about()
        for shape, result in results.items():
            program = copy.copy(result.program)
            for _ in range(3):
                np.testing.assert_array_equal(
                    program(drawn(shape), drawn(shape, 1)), wanted(drawn(shape), drawn(shape, 1))
                )
            assert program._runner.direct is None


def test_the_reason_that_is_kept_holds_nothing_of_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept for the process's life; a traceback would keep every array of the first caller as long."""
    monkeypatch.setattr(calling, "_lies", lambda a: False)

    def asked() -> tuple[calling.Unusable, weakref.ref]:
        large = np.empty(1 << 20)
        reason = calling._ready.__wrapped__()
        assert isinstance(reason, calling.Unusable)
        return reason, weakref.ref(large)

    reason, large = asked()
    gc.collect()
    assert large() is None
    assert reason.__traceback__ is None and reason.__context__ is None and reason.__cause__ is None
