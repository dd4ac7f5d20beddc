"""Programs: right results, memory of their own, and one sentence for what does not fit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel, scratch
from waxeq.errors import BudgetError, PlanError, TypeMismatch
from waxeq.frontend.trace import trace
from waxeq.ir.term import Term
from waxeq.plan.plan import Plan
from waxeq.runtime.arena import Arena, aligned
from waxeq.runtime.program import Program
from waxeq.runtime.results import Results
from waxeq.runtime.written import Written

pytestmark = pytest.mark.quick

Affine = Callable[..., Plan]
Kernels = Mapping[str, Kernel]
SMALL, LARGE = (3, 4), (300, 400)
"""Shapes whose inputs are copied in and results copied out, and whose inputs and results are used where they lie."""
both = pytest.mark.parametrize("shape", [SMALL, LARGE])


def filled(*shape: int, start: float = 1.0) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 97 + start).reshape(shape).astype(np.float32)


def wanted(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = x * np.float32(2) + w
    return y, y.sum(axis=1)


def check(got: tuple[np.ndarray, np.ndarray], x: np.ndarray, w: np.ndarray) -> None:
    y, s = wanted(x, w)
    np.testing.assert_array_equal(got[0], y)
    np.testing.assert_allclose(got[1], s, rtol=1e-5)


@both
def test_results(affine: Affine, kernels: Kernels, shape: tuple[int, int]) -> None:
    x, w = filled(*shape), filled(shape[1])
    program = Program(affine(*shape), kernels, {"w": w})
    check(program(x), x, w)
    check(program(x=x), x, w)
    np.testing.assert_array_equal(program.flat_results({"x": x})["y"], wanted(x, w)[0])


@both
def test_results_that_are_held_are_not_written_again(affine: Affine, kernels: Kernels, shape: tuple[int, int]) -> None:
    w = filled(shape[1])
    program = Program(affine(*shape), kernels, {"w": w})
    xs = [filled(*shape, start=float(n)) for n in range(9)]
    held = [program(x) for x in xs]
    for got, x in zip(held, xs, strict=True):
        check(got, x, w)


@both
@pytest.mark.parametrize(
    "part", [lambda y: y[1:], lambda y: y.T, lambda y: y.reshape(-1)[::2], lambda y: memoryview(y)]
)
def test_a_view_of_a_result_keeps_its_memory(
    affine: Affine, kernels: Kernels, shape: tuple[int, int], part: Callable
) -> None:
    w = filled(shape[1])
    program = Program(affine(*shape), kernels, {"w": w})
    kept = part(program(filled(*shape))[0])
    before = np.array(kept)
    for n in range(6):
        program(filled(*shape, start=float(n + 5)))
    np.testing.assert_array_equal(np.asarray(kept), before)


def test_memory_of_a_result_that_nobody_holds_is_used_again(affine: Affine, kernels: Kernels) -> None:
    program = Program(affine(*LARGE), kernels, {"w": filled(LARGE[1])})
    x = filled(*LARGE)
    places = {program(x)[0].ctypes.data for _ in range(5)}
    assert len(places) == 1
    held = [program(x)[0] for _ in range(3)]
    assert len({y.ctypes.data for y in held}) == 3
    again = {y.ctypes.data for y in held}
    del held
    assert {program(x)[0].ctypes.data for _ in range(5)} <= again


@both
def test_a_result_can_be_written_and_fed_back(affine: Affine, kernels: Kernels, shape: tuple[int, int]) -> None:
    w = filled(shape[1])
    program = Program(affine(*shape), kernels, {"w": w})
    x = filled(*shape)
    want = x.copy()
    for _ in range(7):
        x = program(x)[0]
        want = wanted(want, w)[0]
        np.testing.assert_array_equal(x, want)
    x[...] = 0
    check(program(x), np.zeros(shape, np.float32), w)


@both
def test_outputs_share_no_memory_with_inputs_weights_or_each_other(
    build: type, kernels: Kernels, shape: tuple[int, int]
) -> None:
    b = build(i=shape[0], j=shape[1])
    b.leaf("x", "ij")
    b.leaf("w", "ij", kind="weight")
    b.step("y", lambda x, w: Term("Add", x, w), "x", "w")
    for name, buffer in (("same", "x"), ("weight", "w"), ("once", "y"), ("twice", "y")):
        b.output(name, buffer)
    x, w = filled(*shape), filled(*shape, start=3)
    program = Program(b.plan(), kernels, {"w": w})
    results = program(x)
    arrays = [x, w, *results]
    for i, a in enumerate(arrays):
        for c in arrays[i + 1 :]:
            assert not np.shares_memory(a, c)
    for a in results:
        a[...] = -1
    np.testing.assert_array_equal(program(x)[2], x + w)
    np.testing.assert_array_equal(w, filled(*shape, start=3))


@both
def test_inputs_of_any_layout(affine: Affine, kernels: Kernels, shape: tuple[int, int]) -> None:
    rows, columns = shape
    program = Program(affine(*shape), kernels, {"w": filled(2 * columns)[::2]})
    w = filled(2 * columns)[::2]
    wide = filled(rows, 2 * columns)
    read_only = filled(*shape)
    read_only.flags.writeable = False
    for x in (
        filled(columns, rows).T,
        wide[:, ::2],
        filled(*shape)[::-1, ::-1],
        np.broadcast_to(filled(columns), shape),
        np.asfortranarray(filled(*shape)),
        read_only,
    ):
        check(program(x), np.ascontiguousarray(x), w)


@both
def test_an_input_that_moves_or_changes_in_place(affine: Affine, kernels: Kernels, shape: tuple[int, int]) -> None:
    w = filled(shape[1])
    program = Program(affine(*shape), kernels, {"w": w})
    x = filled(*shape)
    for n in range(4):
        x[0, 0] = n
        check(program(x), x, w)
        check(program(x.copy()), x, w)


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((np.zeros(SMALL, np.float64),), {}, r"input 'x' is float64\[3, 4\], the program takes float32\[3, 4\]"),
        ((np.zeros((4, 3), np.float32),), {}, r"input 'x' is float32\[4, 3\]"),
        ((np.zeros(SMALL, complex),), {}, r"input \'x\' is complex128\[3, 4\], the program takes float32\[3, 4\]"),
        (("text",), {}, r"input 'x' is of class str; the program takes float32\[3, 4\]"),
        ((None,), {}, r"input 'x' is None; the program takes float32\[3, 4\]"),
        (([[1, 2], [3]],), {}, r"input 'x' has rows of different lengths; the program takes float32\[3, 4\]"),
        ((np.full(SMALL, None),), {}, r"input 'x' is an array of dtype object; the program takes float32\[3, 4\]"),
        ((np.ma.masked_array(np.zeros(SMALL)),), {}, r"input 'x' is a masked array.*filled\(.*float32\[3, 4\]"),
        ((), {"x": "text"}, r"input 'x' is of class str; the program takes float32\[3, 4\]"),
        ((), {}, r"no array was given for input 'x' \(float32\[3, 4\]\)"),
        ((1, 2), {}, r"takes 1 input \(x: float32\[3, 4\]\), 2 were given"),
        ((), {"z": np.zeros(SMALL, np.float32)}, "has no input 'z'; it takes x: "),
        ((), {"w": np.zeros(4, np.float32)}, "has no input 'w'"),
    ],
)
def test_inputs_that_do_not_fit(affine: Affine, kernels: Kernels, args: tuple, named: dict, message: str) -> None:
    program = Program(affine(*SMALL), kernels, {"w": filled(4)})
    with pytest.raises(TypeMismatch, match=message) as e:
        program(*args, **named)
    assert "\n" not in str(e.value)
    check(program(filled(*SMALL)), filled(*SMALL), filled(4))


def test_an_input_given_twice_is_refused(affine: Affine, kernels: Kernels) -> None:
    program = Program(affine(*SMALL), kernels, {"w": filled(4)})
    with pytest.raises(TypeMismatch, match="'x'"):
        program(filled(*SMALL), x=filled(*SMALL))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [({}, "no array was given for weight 'w'"), ({"w": np.zeros(5, np.float32)}, r"weight 'w' is float32\[5\]")],
)
def test_weights_that_are_missing_or_do_not_fit(affine: Affine, kernels: Kernels, tensors: dict, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        Program(affine(*SMALL), kernels, tensors)


def test_a_kernel_that_no_backend_has(affine: Affine) -> None:
    with pytest.raises(PlanError, match=r"test\.anything, .* no backend 'test' is installed"):
        Program(affine(*SMALL), {}, {"w": filled(4)})


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (1, 1)])
def test_no_elements_and_one_element(affine: Affine, kernels: Kernels, shape: tuple[int, int]) -> None:
    program = Program(affine(*shape), kernels, {"w": filled(shape[1])})
    for _ in range(2):
        y, s = program(filled(*shape))
        assert y.shape == shape and s.shape == shape[:1]
        check((y, s), filled(*shape), filled(shape[1]))


def test_a_plan_with_no_steps(build: type, kernels: Kernels) -> None:
    b = build(i=3)
    b.leaf("x", "i")
    b.output("same", "x")
    np.testing.assert_array_equal(Program(b.plan(), kernels, {})(filled(3)), filled(3))


def test_results_in_the_structure_of_the_model(affine: Affine, kernels: Kernels) -> None:
    plan = replace(affine(*SMALL), structure={"sums": "s", "rest": ["y", ("s",)]})
    got = Program(plan, kernels, {"w": filled(4)})(filled(*SMALL))
    assert type(got["rest"]) is list and type(got["rest"][1]) is tuple
    y, s = wanted(filled(*SMALL), filled(4))
    np.testing.assert_array_equal(got["rest"][0], y)
    assert got["rest"][1][0].shape == got["sums"].shape == s.shape


def test_a_structure_that_names_no_result(affine: Affine, kernels: Kernels) -> None:
    with pytest.raises(PlanError, match="has no result 'z'"):
        Program(replace(affine(*SMALL), structure=("y", "z")), kernels, {"w": filled(4)})


def test_an_interruption_while_memory_moves_leaves_nothing_stale(
    affine: Affine, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    w, x = filled(LARGE[1]), filled(*LARGE, start=7)
    program = Program(affine(*LARGE), kernels, {"w": w})
    program(filled(*LARGE))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(kernels["test.anything"]), "bind", interrupted)
        program(x)
    check(program(x), x, w)


def test_an_interruption_while_results_move_leaves_nothing_stale(
    affine: Affine, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, xs = filled(LARGE[1]), [filled(*LARGE, start=float(n)) for n in range(4)]
    program = Program(affine(*LARGE), kernels, {"w": w})
    fresh = Results.fresh

    def interrupted(results: Results) -> Any:
        fresh(results)
        raise KeyboardInterrupt

    first, second = program(xs[0]), program(xs[1])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Results, "fresh", interrupted)
        program(xs[2])
    third = program(xs[3])
    for got, x in zip((first, second, third), (xs[0], xs[1], xs[3]), strict=True):
        check(got, x, w)


def test_an_input_whose_layout_changes_in_place(affine: Affine, kernels: Kernels) -> None:
    w, x = filled(300), filled(300, 300)
    program = Program(affine(300, 300), kernels, {"w": w})
    for view in (x, x.T, x, x.T):
        for _ in range(2):
            check(program(view), np.ascontiguousarray(view), w)
    for _ in range(2):
        x += 1
        check(program(x.T), np.ascontiguousarray(x.T), w)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "int64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("size", [3, 300_000])
def test_every_dtype_passes_through(build: type, kernels: Kernels, dtype: str, size: int) -> None:
    from waxeq.ir.types import numpy_dtype

    b = build(i=size)
    b.leaf("x", "i", dtype=dtype)
    b.leaf("c", "i", dtype="bool")
    b.step("y", lambda c, x: Term("Select", c, x, x), "c", "x")
    b.output("y", "y")
    x = (np.arange(size) % 2).astype(numpy_dtype(dtype))
    y = Program(b.plan(), kernels, {})(x, np.ones(size, bool))
    assert y.dtype == x.dtype and np.array_equal(y, x)


# -- state


def test_state_is_replaced_by_a_call(build: type, kernels: Kernels) -> None:
    b = build(i=3)
    b.leaf("x", "i")
    b.leaf("total", "i", kind="state")
    b.step("new", lambda x, t: Term("Add", x, t), "x", "total")
    b.output("new", "new")
    b.states.append(("total", "new"))
    start = np.zeros(3, np.float32)
    program = Program(b.plan(), kernels, {"total": start})
    for n in range(1, 4):
        np.testing.assert_array_equal(program(filled(3)), n * filled(3))
        np.testing.assert_array_equal(program.states["total"], n * filled(3))
    assert not start.any(), "the array it was bound to stays as it was"


def test_states_that_change_places(build: type, kernels: Kernels) -> None:
    b = build(i=3)
    for name in "ab":
        b.leaf(name, "i", kind="state")
    b.states += [("a", "b"), ("b", "a")]
    a, c = filled(3), filled(3, start=50)
    program = Program(b.plan(), kernels, {"a": a, "b": c})
    program()
    np.testing.assert_array_equal(program.states["a"], c)
    np.testing.assert_array_equal(program.states["b"], a)


# -- threads, memory


def test_programs_of_one_plan_run_side_by_side(affine: Affine, kernels: Kernels) -> None:
    plan = affine(*LARGE)
    wrong: list[int] = []

    def work(n: int) -> None:
        w = filled(LARGE[1], start=float(n))
        program = Program(plan, kernels, {"w": w})
        for k in range(10):
            x = filled(*LARGE, start=float(k))
            if not np.array_equal(program(x)[0], wanted(x, w)[0]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_arena_that_is_too_large_is_refused() -> None:
    with pytest.raises(BudgetError, match="working memory") as e:
        Arena(1 << 20, limit=1 << 19)
    assert e.value.exit_code == 7
    with pytest.raises(BudgetError):
        Arena(1 << 60)


@pytest.mark.parametrize(
    ("bytes", "place", "of"), [(4, 0, 64), (100, 0, 64), (1 << 16, 2048, 4096), (9 << 20, 2048, 4096)]
)
def test_large_results_begin_in_the_middle_of_a_page(bytes: int, place: int, of: int) -> None:
    """Beside large arguments, which allocators have begin 16 bytes into one, kernels took a third longer."""
    arrays = [aligned(bytes // 4, np.dtype(np.float32)) for _ in range(3)]
    assert all(a.nbytes == bytes and a.ctypes.data % of == place for a in arrays)


def test_an_arena_is_zero_and_aligned() -> None:
    arena = Arena(3 << 20)
    a = arena.view(64, (7, 3), np.dtype(np.float32))
    assert not a.any() and a.flags.c_contiguous and a.ctypes.data % 64 == 0
    assert arena.view(0, (0, 3), np.dtype(np.float32)).shape == (0, 3)


def test_the_model_as_written_reuses_what_nobody_else_sees() -> None:
    """Results over dead operands, as NumPy's own temporaries; never over inputs, weights, results or what is viewed."""

    def model(x, w):
        h = x @ w
        seen = h.T
        y = np.maximum(h + 1, 0) * 2
        kept = np.exp(y)
        return kept + y, seen - 1, np.negative(x)

    x, w = (np.random.default_rng(i).standard_normal((5, 5)).astype(np.float32) for i in range(2))
    traced = trace(model, {"x": x, "w": w}, weights=("w",))
    run = Written(traced.graph, traced.tensors)
    before = x.copy(), w.copy()
    for _ in range(3):
        got = list(run({"x": x}).values())
        for g, e in zip(got, model(x, w), strict=True):
            np.testing.assert_array_equal(g, e)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(w, before[1])
    assert any(s.over for s in run._steps)


def test_a_plan_of_a_version_that_needed_less_scratch_memory(affine: Affine, kernels: Kernels) -> None:
    """A kernel that wrote past what the plan had set aside for it wrote over whatever lay there."""
    base: Any = type(kernels["test.anything"])

    class Larger(base):
        given: ClassVar[list[int]] = []

        def workspace(self, call: Call) -> int:
            return 4096

        def bind(self, call: Call, operands: Any, out: np.ndarray, workspace: np.ndarray) -> Any:
            self.given.append(workspace.nbytes)
            return super().bind(call, operands, out, workspace)

    x, w = filled(*SMALL), filled(SMALL[1])
    check(Program(affine(*SMALL), {"test.anything": Larger()}, {"w": w})(x), x, w)
    assert Larger.given and min(Larger.given) >= 4096


def test_scratch_memory_of_a_device_is_the_plans_alone(kernels: Kernels, affine: Affine) -> None:
    base: Any = type(kernels["test.anything"])

    class Elsewhere(base):
        device = "moon"

    call = affine(*SMALL).steps[0].call
    with pytest.raises(PlanError, match=r"needs 64 bytes of scratch memory here, the plan has 0: optimize again"):
        scratch(Elsewhere(), call, None)
