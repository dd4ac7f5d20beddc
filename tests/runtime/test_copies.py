"""Programs that are pickled, copied and forked: equal results, and memory of their own."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.compile import optimize
from waxeq.errors import UsageError
from waxeq.ir.term import Term
from waxeq.options import Options
from waxeq.plan.plan import Plan
from waxeq.runtime import program as programs
from waxeq.runtime.program import Program
from waxeq.search.result import Result
from waxeq.search.trial import as_written

Affine = Callable[..., Plan]
Kernels = Mapping[str, Kernel]
Way = Callable[[Any], Any]
ways = pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=["copy", "deepcopy", "pickle"]
)
Scores = namedtuple("Scores", "best all")


@pytest.fixture(autouse=True)
def installed(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's kernels are those of an installed backend."""
    found = programs.kernels_of
    monkeypatch.setattr(programs, "kernels_of", lambda of: {**found(of), **kernels})


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@ways
@pytest.mark.parametrize("shape", [(3, 4), (300, 400)])
def test_a_copy_gives_the_same(affine: Affine, kernels: Kernels, way: Way, shape: tuple[int, int]) -> None:
    first = Program(affine(*shape), kernels, {"w": ones(shape[1]) / 3})
    x = ones(*shape) / 7
    want = first(x)
    again = way(first)
    for got, w in zip(again(x), want, strict=True):
        np.testing.assert_array_equal(got, w)
    again(2 * x)
    np.testing.assert_array_equal(first(x)[0], want[0])
    assert not np.shares_memory(again(x)[0], first(x)[0])


@ways
def test_a_copy_has_weights_of_its_own_but_for_a_shallow_one(affine: Affine, kernels: Kernels, way: Way) -> None:
    w = ones(4)
    again = way(Program(affine(3, 4), kernels, {"w": w}))
    w[:] = 5
    assert again(ones(3, 4))[0][0, 0] == (7 if way is copy.copy else 3)


@ways
def test_states_travel_as_they_are_and_part_then(build: type, kernels: Kernels, way: Way) -> None:
    b = build(i=3)
    b.leaf("total", "i", kind="state")
    b.step("new", lambda t: Term("Add", t, t), "total")
    b.states.append(("total", "new"))
    first = Program(b.plan(), kernels, {"total": ones(3)})
    first()
    again = way(first)
    again()
    assert again.states["total"][0] == 4 and first.states["total"][0] == 2


def model(x: Any, w: Any, v: Any) -> Any:
    y = x @ (w @ v)
    return Scores(y.max(axis=1), [y, {3: (y * 2,)}])


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    options = Options.of(table=tmp_path_factory.mktemp("table") / "t.duckdb", trial=False, measure=False)
    weights = {"w": ones(6, 500) / 3, "v": ones(500, 4)}
    return optimize(model, ones(2, 6), weights=("w", "v"), options=options, **weights)


@ways
@pytest.mark.parametrize("kept", [False, True], ids=["plan", "as written"])
def test_what_optimize_gives_can_be_copied(result: Result, way: Way, kept: bool) -> None:
    plan = as_written(result.plan) if kept else result.plan
    assert kept or plan.folds, "a copy does not fold again"
    first = Program(plan, result.kernels, result.tensors)
    got, want = way(first)(ones(2, 6)), first(ones(2, 6))
    assert type(got) is Scores and type(got.all) is list and type(got.all[1][3]) is tuple
    np.testing.assert_array_equal(got.best, want.best)
    np.testing.assert_array_equal(got.all[1][3][0], want.all[1][3][0])


def test_a_named_tuple_without_an_address_can_be_pickled(result: Result) -> None:
    local = namedtuple("Local", "best all")
    plan = replace(result.plan, structure=local(*result.plan.structure))
    program = Program(plan, result.kernels, result.tensors)
    assert type(program(ones(2, 6))) is local
    got = pickle.loads(pickle.dumps(program))(ones(2, 6))
    assert type(got).__name__ == "Local" and got._fields == local._fields
    assert pickle.loads(pickle.dumps(got)).best.shape == (2,)


def test_a_result_says_what_to_pickle(result: Result) -> None:
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(UsageError, match=r"pickle result\.program"):
            way(result)


def test_the_structure_survives_saving(result: Result, tmp_path: Path) -> None:
    from waxeq.runtime.load import load

    result.save(tmp_path / "a.plan.json")
    got, want = load(tmp_path / "a.plan.json")(ones(2, 6)), result.program(ones(2, 6))
    assert type(got) is type(want) is Scores
    assert type(got.all) is list and list(got.all[1]) == [3] and type(got.all[1][3]) is tuple
    np.testing.assert_array_equal(got.all[0], want.all[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_has_an_arena_of_its_own(affine: Affine, kernels: Kernels) -> None:
    program = Program(affine(3, 4), kernels, {"w": ones(4)})
    memory = program.arena.view(0, (8,), np.dtype(np.uint8))
    child = os.fork()
    if child == 0:
        memory[:] = 7
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not memory.any()


class Waiting(Kernel):
    """Holds a call until it is let go."""

    name = "waiting"
    form = "loops"

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        return {}

    def in_place(self, call: Call) -> tuple[int, ...]:
        return ()

    def workspace(self, call: Call) -> int:
        return 64

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        return (self.begun.set, lambda: self.go.wait(60))


def test_a_second_thread_is_refused_while_the_first_is_in_a_call(affine: Affine) -> None:
    kernel = Waiting()
    program = Program(affine(3, 4), {"test.anything": kernel}, {"w": ones(4)})
    first = threading.Thread(target=program, args=(ones(3, 4),))
    first.start()
    try:
        assert kernel.begun.wait(60)
        with pytest.raises(UsageError, match=r"copy\.copy\(program\)"):
            program(ones(3, 4))
    finally:
        kernel.go.set()
        first.join()
    program(ones(3, 4))
