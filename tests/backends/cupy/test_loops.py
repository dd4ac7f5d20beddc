"""Kernels of CUDA C++, run on the simulated device: what they compute, in any order of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.calls import generated
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cupy.kernels import Launch, Loops
from waxeq_cupy.simulated import Simulated

Named = Callable[[str], Call]
KernelsOf = Callable[[Iterable[Call]], dict[str, Launch]]


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 2])
def test_a_kernel_computes_what_it_means(order: int, device: Simulated, loops: Loops, kernels_of: KernelsOf) -> None:
    drawn = generated("cupy.loops", loops, np.random.default_rng(1), 40)
    device.compiled(list(kernels_of(drawn).values()))  # the same calls for every order
    device.order = order
    found = check_kernel("cupy.loops", loops, calls=40, seed=1).require()
    assert len(found.sizes) > 2 and found.in_place, "calls of one size, or none in place, prove little"


def test_every_form_computes_what_it_means(case: Call, device: Simulated, loops: Loops) -> None:
    assert loops.accepts(case)
    for device.order in (1, 7):
        assert check_call(loops, case, np.random.default_rng(device.order)) is None


@pytest.mark.parametrize("name", ["softmax of rows of 4096", "softmax of one long row", "sum of 40000 rows of 33"])
def test_the_order_of_threads_changes_no_bit(name: str, named: Named, device: Simulated, loops: Loops) -> None:
    call = named(name)
    x = np.random.default_rng(0).standard_normal(call.operands[0].shape).astype(np.float32)
    results = []
    for device.order in (0, 1, 2, 3):
        out = np.empty(call.out.shape, np.float32)
        for step in loops.bind(call, [x], out, np.empty(loops.workspace(call), np.uint8)):
            step()
        results.append(out)
    assert all(np.array_equal(results[0], r) for r in results[1:])


def test_launches_are_as_few_as_can_be(cases: Mapping[str, Call], loops: Loops) -> None:
    several = {name: len(w.launches) for name, c in cases.items() if (w := loops.work(c)) and len(w.launches) != 1}
    assert several == {
        "softmax of rows of 40001": 5, "softmax of rows of 100000": 5, "softmax of one long row": 5,
        "sum of all": 2, "sum of 5000 rows of 3": 2, "sum of 1000 rows of 64": 2, "sum of 40000 rows of 33": 2,
        "sum of 70000 rows of 1": 2, "two matrices times a vector, apart": 2, "argmin of columns": 4,
    }  # fmt: skip


def test_what_every_point_makes_again_is_counted(named: Named, loops: Loops) -> None:
    again, apart = (loops.work(named(f"two matrices times a vector, {how}")) for how in ("again", "apart"))
    assert again is not None and apart is not None
    assert again.operations > 60**3 and apart.operations < 10 * 700**2


def test_what_all_ranks_read_no_rank_replaces(loops: Loops) -> None:
    """The result of a fold may lie where a scalar lay, were it not that others may still have to read it."""
    x, y, sizes = operand(0, "j", "float32"), operand(1, "", "float32"), {"j": 5}
    meaning = Term("Mul", Term("Sum", "j", Term("Mul", x, y)), y)
    views = View.dense("j", sizes, "float32"), View.dense("", sizes, "float32")
    assert not loops.in_place(Call("cupy.loops", meaning, sizes, views, views[1]))


def test_what_memory_does_not_begin_at_16_bytes_is_read_one_by_one(
    named: Named, device: Simulated, loops: Loops
) -> None:
    call = named("element-wise")
    together, alone = (loops.work(call, aligned=a) for a in (True, False))
    assert together is not None and alone is not None
    assert "wx_taken" in together.launches[0].text and "wx_taken" not in alone.launches[0].text
    room = [np.random.default_rng(0).standard_normal(v.elements + 1).astype(np.float32) for v in call.operands]
    for skipped in (0, 1):  # bytes 0 and 4 of memory that begins at 16
        x, b = (r[skipped:][: v.elements].reshape(v.shape) for r, v in zip(room, call.operands, strict=True))
        assert device.aligned([x, b]) == (skipped == 0)
        out = np.empty(call.out.shape, np.float32)
        for step in loops.bind(call, [x, b], out, np.empty(0, np.uint8)):
            step()
        assert np.allclose(out, x / (1 + np.exp(-(x + b))), rtol=1e-5)


def test_positions_outside_their_axis_are_refused(named: Named, device: Simulated, loops: Loops) -> None:
    call = named("gathered rows")
    table, out = np.arange(256, dtype=np.float32).reshape(4, 64), np.empty((30, 64), np.float32)
    at = np.zeros(30, np.int64)
    (step,) = loops.bind(call, [at, table], out, np.empty(0, np.uint8))
    for n, fine in ((3, True), (-4, True), (4, False), (-5, False), (0, True)):
        at[17] = n
        if fine:
            step()
            assert np.array_equal(out, table[at])
        else:
            with pytest.raises(IndexError, match="out of bounds"):
                step()


def test_what_loops_do_not_take(loops: Loops) -> None:
    x, sizes = operand(0, "ij", "float32"), {"i": 8, "j": 8, "k": 8}
    running = Term("Scan", "sum", "j", x)
    product = Term("Sum", "j", Term("Mul", x, operand(1, "jk", "float32")))
    dense = [View.dense(a, sizes, "float32") for a in ("ij", "jk", "ik")]
    assert not loops.accepts(Call("cupy.loops", running, sizes, (dense[0],), dense[0]))
    assert not loops.accepts(Call("cupy.loops", product, sizes, (dense[0], dense[1]), dense[2]))


def test_ranks_have_short_folds_of_their_own(named: Callable[[str], Call], loops: Loops) -> None:
    """Regression: 513 folds of 64 elements, each with barriers of its own, took 213 us on an H200, not 24."""

    def shared_out(name: str) -> int:
        w = loops.work(named(name))
        assert w is not None
        return w.launches[0].text.count("wx_folded<")

    assert shared_out("folds that are used twice") < shared_out("long folds that are used twice")
