"""Loops that read each other at places around their own, in one walk over rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.cost.features import whole
from waxeq.ir.term import Term
from waxeq.testing.calls import generated
from waxeq.testing.conformance import check_call
from waxeq_cfamily import walks as walking
from waxeq_cfamily.walks import PAGE
from waxeq_native.sliding import FastSliding, FastStreamingSliding, Sliding, StreamingSliding

X, F = operand(0, "ij", "float32"), operand(1, "ij", "float32")


def seen(x: Term, rows: int, columns: int) -> Term:
    return Term("Slice", "j", "b", columns, 1, Term("Slice", "i", "a", rows, 1, x))


def sweep(x: Term) -> Term:
    """One of Jacobi's, with a border of zeros."""
    sides = Term("Add", Term("Add", seen(x, 0, 1), seen(x, 2, 1)), Term("Add", seen(x, 1, 0), seen(x, 1, 2)))
    value = Term("Mul", Term("Num", 0.25, "float32"), Term("Zip", "sub", sides, seen(F, 1, 1)))
    return Term("Pad", "b", "j", 1, 0.0, Term("Pad", "a", "i", 1, 0.0, value))


def swept(u: np.ndarray, f: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        sides = (u[:-2, 1:-1] + u[2:, 1:-1]) + (u[1:-1, :-2] + u[1:-1, 2:])
        u = np.pad(np.float32(0.25) * (sides - f[1:-1, 1:-1]), 1)
    return u


def call(rows: int, columns: int, times: int, threads: int = 1) -> Call:
    meaning = X
    for _ in range(times):
        meaning = sweep(meaning)
    sizes = {"i": rows, "j": columns, "a": rows - 2, "b": columns - 2}
    view = View.dense("ij", sizes, "float32")
    return Call("native.sliding", meaning, sizes, (view, view), view, threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows, columns, times", [(2, 2, 2), (3, 300, 2), (300, 3, 4), (130, 517, 8), (777, 1031, 4)])
def test_sweeps_in_one_walk_are_those_one_after_another(rows: int, columns: int, times: int, threads: int) -> None:
    """NaN and infinities go where they go sweep by sweep, and nowhere else."""
    c, rng = call(rows, columns, times, threads), np.random.default_rng(rows)
    u, f = rng.standard_normal((2, rows, columns), np.float32)
    u[rows // 2, columns // 2], f[rows // 3, columns // 3], u[0, -1] = np.nan, np.inf, -np.inf
    out = np.full((rows, columns), 7, np.float32)
    (step,) = Sliding().bind(c, [u, f], out, np.empty(0, np.uint8))
    step()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, swept(u, f, times))


def test_every_sweep_is_written_once() -> None:
    """As loops of one element each, the first of four would be computed at 25 places."""
    work = Sliding().of(call(300, 300, 4))
    assert work is not None
    assert len(re.findall(r"const int64_t p0 = now \+ \d;", work.parts[0].text)) == 4
    many, few = (Sliding().features(call(300, 300, n))["operations"] for n in (4, 2))
    assert 2.0 < many / few < 2.2  # and a little more of what two tiles make


def test_rows_in_cache_and_vectors_of_them_begin_with_lines() -> None:
    """What lies across two lines is read and written twice."""
    (part,) = Sliding().work(call(300, 600, 3)).parts  # type: ignore[union-attr]
    begins = re.findall(r"origin\d = left \+ (-?\d+);", part.source)
    assert len(begins) == 2 and all(int(b) % 16 == 0 for b in begins)
    assert part.source.count("_at % 16 && ") == part.source.count("_at + 128 <= ") > 0


@pytest.mark.parametrize("columns", [512, 1024, 2048])
@pytest.mark.parametrize("begin", [0, 512, 1000, 1008])
def test_rows_in_cache_lie_elsewhere_in_a_page_than_the_result(columns: int, begin: int) -> None:
    """A core took what the last sweep reads for what it had written past the cache just before, where it lies up to 320
    bytes before that in a page: rows lay wherever the stack was, and sweeps took two to five times as long."""
    c, rng = call(70, columns, 4), np.random.default_rng(columns)
    walk, u, f = StreamingSliding().walk(c), *rng.standard_normal((2, 70, columns), np.float32)
    rows = [p + i * 4 * walk.row(n) for n, p in enumerate(walk.places()) for i in range(walk.kept(n))]
    assert len(rows) == len({r % PAGE for r in rows}) == 12
    assert all(128 <= (r - i * 4 * columns) % PAGE < PAGE - 320 for r in rows for i in range(8))
    memory = np.full(70 * columns + 2 * PAGE, 7, np.float32)
    first = -memory.ctypes.data % PAGE // 4 + begin
    out = memory[first : first + u.size].reshape(u.shape)
    (step,) = StreamingSliding().bind(c, [u, f], out, np.empty(0, np.uint8))
    step()
    np.testing.assert_array_equal(out, swept(u, f, 4))
    assert (memory[:first] == 7).all() and (memory[first + u.size :] == 7).all()


def test_rows_in_cache_are_room_for_all_that_is_kept() -> None:
    """Wherever the result begins, the last row ends within its array."""
    walk = Sliding().walk(call(300, 600, 3))
    for n in range(walk.first):
        assert walk.kept(n) * walk.row(n) * 4 + PAGE <= walk.room(n) * 4
    text = Sliding().work(call(300, 600, 3)).parts[0].text  # type: ignore[union-attr]
    assert [int(m) for m in re.findall(r"room\d\[(\d+)\]", text)] == [walk.room(n) for n in range(walk.first)]


def seven_points(rows: int, columns: int, places: int) -> Call:
    """Two sweeps over seven points: the rows of a plane lie behind each other."""
    axes, x = "ijk", operand(0, "ijk", "float32")
    sizes = {"i": rows, "j": columns, "k": places} | {"a": rows - 2, "b": columns - 2, "c": places - 2}

    def at(t: Term, *places: int) -> Term:
        for old, new, place in zip(axes, "abc", places, strict=True):
            t = Term("Slice", old, new, place, 1, t)
        return t

    def swept_once(t: Term) -> Term:
        sides = [(0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2)]
        total = at(t, 1, 1, 1)
        for places in sides:
            total = Term("Add", total, at(t, *places))
        for old, new in zip("abc", axes, strict=True):
            total = Term("Pad", old, new, 1, 0.0, total)
        return total

    view = View.dense(axes, sizes, "float32")
    return Call("native.sliding", swept_once(swept_once(x)), sizes, (view,), view)


def test_rows_of_planes_in_cache_begin_with_lines_too() -> None:
    c = seven_points(12, 20, 300)
    walk = Sliding().walk(c)
    assert len(walk.inner(0)) == 2 and [*walk.spans(0).values()] == [20, 304] and walk.row(0) == 20 * 304
    assert check_call(Sliding(), c, np.random.default_rng(1)) is None


@pytest.mark.parametrize("rows, columns, places", [(70, 96, 96), (9, 40, 33), (5, 30, 34), (6, 4, 47), (8, 12, 1000)])
def test_planes_of_short_rows(rows: int, columns: int, places: int) -> None:
    """They went one sweep after another: more than 128 KiB of them are kept. Rows go in vectors that begin with lines,
    where a compiler began with the first element inside and ended with single ones."""
    c = seven_points(rows, columns, places)
    (part,) = Sliding().work(c).parts  # type: ignore[union-attr]
    assert not 34 <= places < 130 or "_at & -16) + 16;" in part.source
    assert check_call(Sliding(), c, np.random.default_rng(1)) is None


def test_planes_that_fit_no_cache_are_refused() -> None:
    assert Sliding().work(seven_points(20, 130, 130)) is None


def test_next_rows_are_asked_for_a_part_in_each_sweep() -> None:
    """Of arrays that lie in no cache: u and f that are read at nine places, and the result."""
    work = Sliding().of(call(1500, 1500, 4))
    assert work is not None
    asked = re.findall(r"__builtin_prefetch\((.*?) \+ next \+ (\d+)(, 1)?\)", work.parts[0].text)
    assert len({(row, write) for row, _, write in asked}) == 3 * Sliding().walk(call(1500, 1500, 4)).step
    assert 3 * sum(bool(write) for *_, write in asked) == len(asked)
    assert {int(at) for _, at, _ in asked} == {0, 16}, "128 elements are two lines for each of four sweeps"
    begins = re.findall(r"next = (\d+) \+", work.parts[0].text)
    assert [*dict.fromkeys(map(int, begins))] == [0, 375, 750, 1125]
    small = Sliding().of(call(300, 300, 4))
    assert small is not None and "prefetch" not in small.parts[0].text


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("kernel", [Sliding, FastSliding])
def test_tiles_that_overlap(kernel: type[Sliding], asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiles of a few rows, and rows that are cut in pieces, most elements are near the edge of one; and where what
    is read next is asked for too. Rows are made two at once wherever they can be."""
    if asks:
        monkeypatch.setattr("waxeq_native.abreast.CACHED", 0)
        monkeypatch.setattr("waxeq_cfamily.nest._ASKED", 8)
    monkeypatch.setattr(walking, "_ROWS", 3)
    monkeypatch.setattr(walking, "_RINGS", 1 << 12)
    monkeypatch.setattr(walking, "_COLUMNS", 32)
    monkeypatch.setattr(walking, "_SAVED", 9.0)
    k, rng = kernel(), np.random.default_rng(5)
    calls = [*generated(f"native.{k.name}", k, rng, 26)]
    walks, works = [k.walk(c) for c in calls], [k.of(c) for c in calls]
    assert sum(w.tiles()[0] > 1 for w in walks) > 3 and any(w.step > 1 for w in walks)
    assert any(w.tiles()[1] > 1 for w in walks)
    assert any(w is not None and "prefetch" in w.parts[0].text for w in works) == asks
    k.prepare([(k, c) for c in calls])
    for c in calls:
        assert check_call(k, c, rng) is None, c


def test_rows_of_a_step_are_made_at_once() -> None:
    """A row that is read from above, from its own place and from below comes out of the second cache for each of them
    otherwise. Rows at the border are made one by one."""
    c = call(301, 300, 3)
    walk, (part,) = Sliding().walk(c), Sliding().work(c).parts  # type: ignore[union-attr]
    assert walk.step == 2 and walk.height % 2 == 0
    assert [walk.kept(n) for n in range(2)] == [4, 4], "as many rows as of one at a time"
    assert part.source.count("now += 2") == 1
    assert len(re.findall(r"out1 = ring\d \+ \(\(p0 \+ 0\) & 3\)", part.source)) == 2
    assert "(uint64_t)(p0 + -1) < 299u) & ((uint64_t)(p0) < 299u)" in part.source


def test_rows_that_share_no_reads_are_made_one_by_one() -> None:
    """Differences along rows, of several functions: nothing is read above or below."""
    x = Term("Map", "abs", X)
    slope = Term("Zip", "sub", Term("Slice", "j", "b", 1, 1, x), Term("Slice", "j", "b", 0, 1, x))
    sizes, dense = {"i": 40, "j": 300, "b": 299}, View.dense("ij", {"i": 40, "j": 300}, "float32")
    c = Call("native.sliding", slope, sizes, (dense,), View.dense("ib", sizes, "float32"))
    assert Sliding().walk(c).step == 1


def test_what_it_does_not_take() -> None:
    """Results that do not lie side by side along their last axis, and what is one loop."""
    c = call(300, 300, 2)
    gaps = View(("i", "j"), (300, 300), (600, 2), "float32")
    assert not Sliding().accepts(Call(c.kernel, c.meaning, c.sizes, c.operands, gaps))
    assert not Sliding().accepts(call(300, 300, 1))
    assert Sliding().accepts(c)


def test_many_short_rows_are_taken_together() -> None:
    """Regression: each of 100,000 rows of 40 elements was a task that a thread took by itself."""
    sizes, x = {"i": 100_000, "j": 40, "b": 39}, Term("Map", "tanh", X)
    slope = Term("Zip", "sub", Term("Slice", "j", "b", 1, 1, x), Term("Slice", "j", "b", 0, 1, x))
    dense = View.dense("ij", sizes, "float32")
    work = Sliding().of(Call("native.sliding", slope, sizes, (dense,), View.dense("ib", sizes, "float32")))
    assert work is not None
    (part,) = work.parts
    assert part.tasks == 100_000 and 20 < part.grain < 1000


def test_what_is_known_of_a_call_grows_with_its_sweeps() -> None:
    """Regression: the cost model took all axes of all sweeps for one space, 4e16 rows for two and 6e29 for four."""
    calls = call(300, 300, 2), call(300, 300, 8)
    few, many = (whole(Sliding().features(c), c.text, c.dims, c.layout, "float32") for c in calls)
    assert many["rows"] == 4 * few["rows"] == 8 * 300
    assert few["folds"] == many["folds"] == 0.0


@pytest.mark.parametrize("threads, begin", [(1, 0), (2, 0), (2, 1)], ids=["one", "two", "parts of lines"])
@pytest.mark.parametrize("rows, columns, times", [(2, 128, 2), (33, 160, 2), (130, 2048, 4), (301, 1040, 5)])
def test_results_past_the_cache(rows: int, columns: int, times: int, threads: int, begin: int) -> None:
    """Lines at the ends of rows have places of the border, too; nothing outside the result is written."""
    c, rng = call(rows, columns, times, threads), np.random.default_rng(rows)
    u, f = rng.standard_normal((2, rows, columns), np.float32)
    u[rows // 2, columns // 2], u[0, -1] = np.nan, -np.inf
    memory = np.full(rows * columns + 64, 7, np.float32)
    first = -memory.ctypes.data % 64 // 4 + 16 + begin
    out = memory[first : first + rows * columns].reshape(rows, columns)
    (step,) = StreamingSliding().bind(c, [u, f], out, np.empty(0, np.uint8))
    step()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, swept(u, f, times))
    assert (memory[:first] == 7).all() and (memory[first + rows * columns :] == 7).all()


def test_results_past_the_cache_are_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows at once, from registers; only lines at the ends of rows are asked for. Rows that begin within lines, and
    results that a cache may hold, are the other kernel's."""
    kernel = StreamingSliding()
    (part,) = kernel.work(call(1504, 1504, 4)).parts  # type: ignore[union-attr]
    assert "wx_stream_lines(&out[p0 * 1504 + p1 + 1504], line, sizeof line);" in part.source
    assert part.source.rstrip().endswith("  }\n  wx_streamed();\n}")
    asked = {x for x in re.findall(r"__builtin_prefetch\((.*), 1\);", part.source) if "next" not in x}
    assert len(asked) == 2 * kernel.walk(call(1504, 1504, 4)).step
    assert "next + 0, 1)" not in part.source
    assert kernel.work(call(1504, 1500, 4)) is None
    assert "wx_stream" not in Sliding().work(call(1504, 1504, 4)).parts[0].source  # type: ignore[union-attr]


@pytest.mark.parametrize("kernel", [StreamingSliding, FastStreamingSliding])
def test_tiles_past_the_cache(kernel: type[Sliding], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are cut in pieces, and the ends of tiles."""
    monkeypatch.setattr(walking, "_ROWS", 8)
    monkeypatch.setattr(walking, "_RINGS", 1 << 14)
    meaning = sweep(Term("Map", "exp", sweep(X))) if kernel is FastStreamingSliding else sweep(sweep(X))
    sizes = {"i": 70, "j": 1600, "a": 68, "b": 1598}
    view = View.dense("ij", sizes, "float32")
    c = Call(f"native.{kernel.name}", meaning, sizes, (view, view), view, threads=2)
    k = kernel()
    assert min(k.walk(c).tiles()) > 1 and "wx_stream_lines" in k.work(c).parts[0].source  # type: ignore[union-attr]
    assert check_call(k, c, np.random.default_rng(2)) is None
