"""Parts of a concatenation are written where the whole has them: nothing else about the results is changed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand, sharing
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.errors import PlanError
from waxeq.ir.graph import Graph, Leaf
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType
from waxeq.memory.plan import assign_plan
from waxeq.plan.compose import in_place, lifetimes, walks
from waxeq.plan.encode import decode, encode
from waxeq.plan.plan import Buffer, Output, Plan, Step
from waxeq.plan.sections import in_sections
from waxeq.runtime.program import Program
from waxeq_native import library

KERNELS: Mapping[str, Kernel] = kernels(backends(["native", "numpy"]))


class Draft:
    """Inputs, steps and results, one after another. A value is named, and has rows, or none, of `columns`."""

    def __init__(self, columns: int, *, backend: str = "native", threads: int = 1) -> None:
        self.columns, self.backend, self.threads = columns, backend, threads
        self.leaves: list[Leaf] = []
        self.views: dict[str, View] = {}
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[Step] = []
        self.results: list[str] = []

    def input(self, name: str, rows: int | None) -> str:
        v = self._make(name, View.dense(*self._axes("i", rows), "float32"), "input")
        self.leaves.append(Leaf(name, TensorType("float32", v.shape), "input"))
        return name

    def scaled(self, name: str, of: str, by: float, *, columns_first: bool = False) -> str:
        """Elements times a number; in memory column by column where that is said."""
        v = self.views[of]
        order = tuple(reversed(v.axes)) if columns_first else v.axes
        out = self._make(name, View.dense(order, dict(zip(v.axes, v.shape, strict=True)), "float32"))
        meaning = Term("Mul", operand(0, v.axes, v.dtype), Term("Num", by, "float32"))
        return self._step(name, meaning, (of,), (v,), out)

    def joined(self, name: str, *parts: str, columns_first: bool = False) -> str:
        """All rows of the parts; a part without rows is one."""
        views = tuple(self.views[r].renamed({k: k if k == "j" else f"{k}{n}" for k in self.views[r].axes})
                      for n, r in enumerate(parts))  # fmt: skip
        rows = [dict(zip(v.axes, v.shape, strict=True)) for v in views]
        leaves = [(f"i{n}", sizes.get(f"i{n}", 1), operand(n, v.axes, v.dtype))
                  for n, (v, sizes) in enumerate(zip(views, rows, strict=True))]  # fmt: skip
        sizes = {"j": self.columns} | {k: n for k, n, _ in leaves}

        def both(x: tuple[str, int, Term], y: tuple[str, int, Term]) -> tuple[str, int, Term]:
            n = f"{x[0]}{y[0]}"
            sizes[n] = x[1] + y[1]
            return n, sizes[n], Term("Cat", x[0], y[0], n, x[2], y[2])

        axis, _, meaning = reduce(both, leaves)
        order = ("j", axis) if columns_first else (axis, "j")
        out = View.dense(order, sizes, "float32")
        self._make(name, out.renamed({axis: "i", "j": "j"}))
        return self._step(name, meaning, parts, views, out, sizes)

    def plan(self) -> Plan:
        outputs = tuple(Output(n, TensorType("float32", self.views[n].shape), n) for n in self.results)
        return Plan("made", Graph(tuple(self.leaves), (), ()), self.buffers, (), tuple(self.steps), outputs, ())

    def _axes(self, rows_axis: str, rows: int | None) -> tuple[tuple[str, ...], dict[str, int]]:
        return (("j",) if rows is None else (rows_axis, "j")), {rows_axis: rows or 0, "j": self.columns}

    def _make(self, name: str, v: View, role: str = "temporary") -> View:
        self.views[name] = v
        self.buffers[name] = Buffer(name, v.dtype, v.elements, role)  # type: ignore[arg-type]
        return v

    def _step(self, name: str, meaning: Term, reads: Sequence[str], views: tuple[View, ...], out: View,
              sizes: Mapping[str, int] | None = None) -> str:  # fmt: skip
        sizes = sizes or dict(zip(out.axes, out.shape, strict=True))
        kernel = "native.loops"
        if self.backend == "numpy" and len(reads) < 3:
            kernel = "numpy.cat" if meaning.head == "Cat" else "numpy.loops_whole"
        call = Call(kernel, meaning, sizes, views, out, sharing(reads), threads=self.threads)
        assert KERNELS[kernel].accepts(call)
        self.steps.append(Step(call, tuple(reads), name, predicted=1.0))
        return name


def results(plan: Plan, seed: int = 0) -> dict[str, np.ndarray]:
    """What a plan gives after it was written and read, of random inputs, when it is called a second time."""
    made = assign_plan(plan, KERNELS).check()
    again = decode(json.loads(json.dumps(encode(made))), {}).check()
    assert again == made
    program, rng = Program(again, KERNELS, {}), np.random.default_rng(seed)
    arrays = {x.name: rng.standard_normal(x.type.shape, dtype=np.float32) for x in plan.graph.leaves}
    program.flat_results({n: a + 1 for n, a in arrays.items()})
    return program.flat_results(arrays)


def placed(d: Draft) -> Plan:
    """The plan with parts in their places, which gives the same results."""
    before = d.plan()
    after = in_sections(before, KERNELS)
    want, got = results(before), results(after)
    assert [*want] == [*got]
    for n in want:
        np.testing.assert_array_equal(got[n], want[n])
    return after


def heads(plan: Plan) -> list[str]:
    return [s.call.meaning.head for s in plan.steps]


def halves(d: Draft, rows: int | None = 4) -> tuple[str, str]:
    x = d.input("x", rows)
    return d.scaled("a", x, 2.0), d.scaled("b", x, 3.0)


@pytest.fixture(autouse=True)
def quickly_compiled(little: library.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "shared", lambda: little)


@pytest.mark.parametrize("seed", range(40))
def test_random_concatenations(seed: int) -> None:
    rng = random.Random(seed)
    columns = rng.choice((0, 1, 5, 16, 40))
    d = Draft(columns, backend=rng.choice(("native", "native", "numpy")), threads=rng.choice((1, 2)))
    values = [d.input(f"x{n}", rng.choice((None, 0, 1, 2, 7))) for n in range(2)]
    for n in range(rng.randint(3, 10)):
        first = rng.random() < 0.2
        if rng.random() < 0.55:
            values.append(d.scaled(f"t{n}", rng.choice(values), n + 2.0, columns_first=first))
        else:
            parts = [rng.choice(values[-6:]) for _ in range(rng.randint(2, 5))]
            values.append(d.joined(f"t{n}", *parts, columns_first=first))
    d.results += [values[-1], *rng.sample(values[2:-1], min(1, len(values) - 3))]
    after = placed(d)
    assert sum(s.predicted for s in after.steps) <= sum(s.predicted for s in d.steps)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [None, 1, 4])
def test_no_part_is_copied(backend: str, threads: int, rows: int | None) -> None:
    d = Draft(300, backend=backend, threads=threads)
    d.results.append(d.joined("y", *halves(d, rows)))
    after = placed(d)
    assert heads(after) == ["Mul", "Mul"] and {s.writes for s in after.steps} == {"y"}
    assert [s.part for s in after.steps] == ["a", "b"] and set(after.buffers) == {"x", "y"}
    assert assign_plan(after, KERNELS).arena_bytes < assign_plan(d.plan(), KERNELS).arena_bytes


def test_a_part_that_others_read_is_read_in_its_place() -> None:
    d = Draft(16)
    a, b = halves(d)
    d.scaled("before", a, 5.0)
    d.joined("y", a, b)
    d.scaled("after", b, 7.0)
    d.results += ["before", "y", "after"]
    after = placed(d)
    assert "Cat" not in heads(after)
    assert [(s.reads, s.call.operands[0].offset) for s in after.steps if s.writes != "y"] == [(("y",), 0), (("y",), 64)]


def test_a_part_that_is_there_twice_is_copied_once() -> None:
    d = Draft(16)
    a, b = halves(d)
    d.results.append(d.joined("y", a, b, a))
    assert heads(placed(d)) == ["Mul", "Mul", "In"]


def test_an_input_and_a_result_are_copied() -> None:
    d = Draft(16)
    a, b = halves(d)
    d.joined("y", a, "x", b)
    d.results += ["y", "b"]
    after = placed(d)
    assert heads(after) == ["Mul", "Mul", "Cat"], "two copies are no less than one"
    d = Draft(2000)
    a, b = halves(d)
    d.joined("y", a, "x", b, d.scaled("c", "x", 5.0))
    d.results += ["y", "b"]
    after = placed(d)
    assert heads(after) == ["Mul", "Mul", "Mul", "In", "In"], "where much is saved, they are"
    assert sum(s.predicted for s in after.steps) == pytest.approx(3.5)


def test_a_part_of_two_wholes_lies_in_the_last_one() -> None:
    d = Draft(16)
    a, b = halves(d)
    c = d.scaled("c", "x", 5.0)
    d.results += [d.joined("y", a, b), d.joined("z", b, c)]
    after = placed(d)
    assert heads(after) == ["Mul", "Mul", "Mul", "In"]
    assert [s.writes for s in after.steps] == ["y", "z", "z", "y"]


def test_wholes_in_one_another() -> None:
    d = Draft(16)
    a, b = halves(d)
    inner = d.joined("inner", a, b)
    d.results.append(d.joined("y", inner, d.scaled("c", "x", 5.0), d.scaled("e", inner, 2.0)))
    after = placed(d)
    assert heads(after) == ["Mul", "Mul", "Mul", "Mul"]
    assert {s.writes for s in after.steps} == {"y"}


def test_a_whole_whose_parts_lie_apart_in_another_order() -> None:
    """As a stack of planes is made two at a time, with the planes between rows: the copies of copies go."""
    d = Draft(16)
    a, b = halves(d)
    inner = d.joined("inner", a, b, columns_first=True)
    d.results.append(d.joined("y", inner, d.scaled("c", "x", 5.0)))
    assert heads(placed(d)) == ["Mul", "Mul", "Mul"]


def test_rows_between_others_are_no_section() -> None:
    d = Draft(16)
    d.results.append(d.joined("y", *halves(d), columns_first=True))
    assert heads(placed(d)) == ["Mul", "Mul", "Cat"]


def test_a_part_without_elements_needs_nothing() -> None:
    d = Draft(16)
    a, b = halves(d)
    d.results.append(d.joined("y", a, d.scaled("none", d.input("z", 0), 2.0), b))
    assert "Cat" not in heads(placed(d))


def test_a_kernel_that_does_not_take_it_keeps_its_buffer() -> None:
    class Refusing(type(KERNELS["native.loops"])):  # type: ignore[misc]
        def accepts(self, call: Call) -> bool:
            third = call.meaning.args[1] == Term("Num", 3.0, "float32")
            return not (call.out.offset and third) and super().accepts(call)

    d = Draft(3000)
    a, b = halves(d)
    d.results.append(d.joined("y", a, b, d.scaled("c", "x", 5.0)))
    after = in_sections(d.plan(), {**KERNELS, "native.loops": Refusing()})
    assert heads(after) == ["Mul", "Mul", "Mul", "In"] and after.steps[1].writes == "b"


def test_parts_are_written_once_and_read_after_that() -> None:
    d = Draft(16)
    d.joined("y", *halves(d))
    d.scaled("z", "y", 2.0)
    d.results.append("z")
    plan = placed(d)
    first, second, last = plan.steps
    with pytest.raises(PlanError, match="reads parts of y that nothing wrote"):
        replace(plan, steps=(first, last, second)).check()
    again = replace(second, call=replace(second.call, out=replace(second.call.out, offset=32)))
    with pytest.raises(PlanError, match="elements of buffer y that another one wrote"):
        replace(plan, steps=(first, again, last)).check()
    for steps in ((first, second, second, last), (first, second, last, last)):
        with pytest.raises(PlanError, match=r"writes ., which was written before"):
            replace(plan, steps=steps).check()
    apart = replace(second.call.out, strides=(32, 1), offset=16)
    with pytest.raises(PlanError, match=r"not as one run|outside buffer"):
        replace(plan, steps=(first, replace(second, call=replace(second.call, out=apart)), last)).check()
    missing = replace(plan, steps=(first, second), outputs=(replace(plan.outputs[0], buffer="y"),))
    assert missing.check()
    with pytest.raises(PlanError, match="nothing writes output"):
        replace(missing, steps=(first,)).check()


def test_a_part_does_not_take_the_memory_of_an_operand() -> None:
    """A whole lives from its first part on, and an operand that ends there is no larger than that part."""
    d = Draft(16)
    d.scaled("t", d.input("x", 4), 2.0)
    d.joined("y", d.scaled("a", "t", 3.0), d.scaled("b", "x", 5.0))
    d.scaled("z", "y", 2.0)
    d.results.append("z")
    after = placed(d)
    assert lifetimes(after)["y"] == (1, 3) and ("y", "t") not in in_place(after, KERNELS)


def test_steps_that_write_parts_run_side_by_side() -> None:
    """They read one large input: apart, each of them would read it anew."""
    d = Draft(1 << 20)
    d.results.append(d.joined("y", *halves(d, 4)))
    walk, last = walks(d.plan())
    assert (walk.first, walk.last, last.first) == (0, 1, 2)
    (walk,) = walks(in_sections(d.plan(), KERNELS))
    assert (walk.first, walk.last, walk.over) == (0, 1, {"x"})


def test_a_model_gives_the_same_and_explains_itself(tmp_path: Path) -> None:
    def model(x: np.ndarray) -> np.ndarray:
        rows = [np.sort(np.sort(np.roll(x, i, 0), axis=1), axis=0) for i in range(4)]
        return np.stack(rows)

    options = wx.Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=1, budget="10s")
    x = np.random.default_rng(0).standard_normal((40, 64))
    result = wx.optimize(model, x, options=options)
    assert [s.call.meaning.head for s in result.plan.steps].count("Cat") <= 3, "of rolls alone"
    assert len([s for s in result.plan.steps if s.part]) >= 4
    assert not result.explain().notes
    np.testing.assert_allclose(result.program(x), model(x), rtol=1e-12)


def test_a_concatenation_that_goes_leaves_its_line_to_its_parts() -> None:
    d = Draft(16)
    d.results.append(d.joined("y", *halves(d)))
    plan = d.plan()
    first, second, last = (replace(s, sources=(f"model.py:{i}",)) for i, s in enumerate(plan.steps))
    found = in_sections(replace(plan, steps=(first, second, last)), KERNELS).steps
    assert [s.sources for s in found] == [("model.py:0", "model.py:2"), ("model.py:1", "model.py:2")]


def test_steps_that_read_runs_of_one_whole_are_all_explained(tmp_path: Path) -> None:
    """Regression: what may lie in a whole was guessed once, for whoever read a part of it first."""

    def model(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        i = np.concatenate([np.sort(a, 1), np.sort(b, 0)])
        j = np.concatenate([np.sort(b, 1), np.sort(a, 0)])
        y = np.concatenate([i, j])
        return y, np.sort(i, 0), np.sort(j, 0), np.tanh(y.sum(0) * 2 + y.sum(0) * 3)

    a, b = np.random.default_rng(0).standard_normal((2, 17, 33)).astype(np.float32)
    options = wx.Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=1, budget="10s")
    result = wx.optimize(model, a, b, options=options)
    assert len([s for s in result.plan.steps if s.part]) >= 4 and not result.explain().notes
    shown = result.explain().to_json()["kernels"]
    runs = [k["writes"] for k in shown if "@" in k["writes"]]
    assert len({*runs}) == len(runs) >= 4, "each run by where it begins"


def test_a_little_part_that_is_made_early_is_copied_rather_than_the_whole_kept(tmp_path: Path) -> None:
    """Regression: an arena grew by half."""

    def model(a: np.ndarray) -> np.ndarray:
        little = np.sort(a[:1], 1) * 1
        x = np.sort(np.cumsum(np.cumsum(np.sort(a + little, 1), 0), 1), 0)
        return np.sort(np.concatenate([little, np.cumsum(np.sort(x, 1), 0)]), 0)[:2]

    a = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    options = wx.Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=1, budget="10s")
    result = wx.optimize(model, a, options=options)
    assert result.plan.arena_bytes < 2.2 * a.nbytes
    np.testing.assert_allclose(result.program(a), model(a), rtol=1e-3)
