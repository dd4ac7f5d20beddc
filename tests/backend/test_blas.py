"""The threads of the BLAS that NumPy has loaded, as plans have them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import waxeq as wx
from waxeq.backend import blas
from waxeq.backend.blas import BORROWERS, Pool, pool
from waxeq.backend.discover import backends, kernels
from waxeq.options import Options
from waxeq.runtime.program import Program


class Counted:
    """A number of threads, and each that was asked for."""

    def __init__(self, now: int) -> None:
        self.now, self.asked = now, list[int]()

    def put(self, n: int) -> None:
        self.now = n
        self.asked.append(n)

    def pool(self) -> Pool:
        return Pool(lambda: self.now, self.put)


def number() -> int:
    """Of the BLAS that NumPy multiplies with."""
    rows = [i for i in threadpool_info() if i["internal_api"] == "openblas"]
    return min(rows, key=lambda i: "numpy" not in i["filepath"])["num_threads"]


@pytest.fixture
def openblas() -> None:
    if pool() is None:
        pytest.skip("NumPy's BLAS is not OpenBLAS")


@pytest.mark.usefixtures("openblas")
def test_a_model_as_written_multiplies_with_the_threads_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what a plan for one thread is held against, and what is left where that is slower."""
    monkeypatch.setattr(blas, "cores", lambda: 2)
    x = np.ones((8, 8), np.float32)
    found = wx.optimize(lambda x: x @ x, x, options=Options(threads=1, budget=0, table=tmp_path / "t.duckdb"))
    plan = replace(found.plan, written=True, steps=())
    seen = list[int]()
    monkeypatch.setattr(np, "matmul", lambda a, b, f=np.matmul: (seen.append(number()), f(a, b))[1])
    with threadpool_limits(2):
        before = number()
        Program(plan, kernels(backends()), {})(x)
        assert (seen, number()) == ([1], before)


@pytest.mark.usefixtures("openblas")
@pytest.mark.parametrize(("threads", "process"), [(1, 2), (2, 1), (2, 2)])
def test_a_plan_multiplies_with_its_own_threads(
    tmp_path: Path, threads: int, process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan for one thread that called BLAS had all threads of the process, and took other time than predicted; the
    same plan from a file too."""
    monkeypatch.setattr(blas, "cores", lambda: 2)
    x = np.ones((64, 64), np.float32)
    options = Options(
        threads=threads, budget=1.0, table=tmp_path / "t.duckdb", cost="roofline", trial=False, backends=("numpy",)
    )
    result = wx.optimize(lambda x: x @ x + 1, x, options=options)
    assert any(kernels(backends())[s.call.kernel].blas for s in result.plan.steps)
    result.save(tmp_path / "p.plan.json")
    seen = list[int]()
    multiply = np.matmul
    monkeypatch.setattr(np, "matmul", lambda *a: (seen.append(number()), multiply(*a))[1])
    with threadpool_limits(process, user_api="blas"):
        for program in (wx.load(tmp_path / "p.plan.json"), wx.load(tmp_path / "p.plan.json")):
            np.testing.assert_allclose(program(x), x @ x + 1)
            assert number() == process
    assert seen == [threads] * 2


@pytest.mark.usefixtures("openblas")
def test_kernels_that_call_blas_say_so() -> None:
    found = {n for n, k in kernels(backends()).items() if n.startswith("numpy.") and k.blas}
    assert found == {f"numpy.{k}" for k in ("gemm", "solve", "triangular", "cholesky", "determinant")}


def test_nothing_is_asked_where_the_number_is_right() -> None:
    counted = Counted(2)
    counted.pool().run(2, [lambda: None])
    assert counted.asked == []


def test_an_error_gives_the_threads_back() -> None:
    counted = Counted(2)
    with pytest.raises(ZeroDivisionError):
        counted.pool().run(1, [lambda: 1 // 0])
    assert counted.asked == [1, 2]


def test_an_interruption_while_threads_are_taken_gives_them_back() -> None:
    counted = Counted(4)

    def put(n: int) -> None:
        counted.put(n)
        if counted.asked == [1]:
            raise KeyboardInterrupt

    shared = Pool(lambda: counted.now, put)
    with pytest.raises(KeyboardInterrupt):
        shared.run(1, [lambda: None])
    assert counted.asked == [1, 4]
    shared.run(2, [lambda: None])
    assert counted.now == 4


@pytest.mark.usefixtures("openblas")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_meanwhile_has_what_there_was() -> None:
    """Nobody in it would have given the threads of the plan back."""
    x, seen = np.ones((64, 64)), list[int]()

    def fork() -> None:
        child = os.fork()
        if child == 0:
            there = number()
            pool().run(1, [lambda: x @ x])
            os._exit(0 if there == number() == 2 else 1)
        seen.append(os.waitpid(child, 0)[1])

    with threadpool_limits(2, user_api="blas"):
        pool().run(1, [fork])
        assert number() == 2
    assert seen == [0]


def _overlapping(counted: Counted, first: int, second: int) -> list[int]:
    """The number as the second plan begins, after the first has ended, and after both have."""
    shared, begun, ended, seen = counted.pool(), threading.Event(), threading.Event(), list[int]()
    one = threading.Thread(target=lambda: shared.run(first, [begun.set, lambda: ended.wait(10)]))

    def stop_first() -> None:
        ended.set()
        one.join()

    one.start()
    begun.wait(10)
    look: Callable[[], None] = lambda: seen.append(counted.now)  # noqa: E731
    shared.run(second, [look, stop_first, look])
    return [*seen, counted.now]


@pytest.mark.parametrize(("first", "second", "process"), [(1, 2, 2), (2, 1, 2), (2, 1, 4), (1, 2, 1)])
def test_plans_that_overlap_give_back_what_there_was(first: int, second: int, process: int) -> None:
    """The second must not take the number of the first for what there was."""
    assert _overlapping(Counted(process), first, second) == [second, second, process]


@pytest.mark.parametrize("borrowed_first", [True, False])
def test_code_that_borrows_the_threads_meanwhile(borrowed_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends later gives back what there was before both, not what the plan had."""
    counted, it = Counted(4), SimpleNamespace(users=0, before=0)
    monkeypatch.setattr(blas, "BORROWERS", [*BORROWERS, lambda: it])

    def take() -> None:
        it.users, it.before = 1, counted.now
        counted.put(1)

    def give() -> None:
        it.users = 0
        counted.put(it.before)

    if borrowed_first:
        take()
    counted.pool().run(2, [give] if borrowed_first else [take])
    if not borrowed_first:
        assert counted.now == 1
        give()
    assert counted.now == 4
