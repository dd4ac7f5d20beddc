"""The matrix products in C against float64 products, over sizes, strides and special values."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq_native import gemm
from waxeq_native.blas import Blas, find
from waxeq_native.compiler import find as find_compiler
from waxeq_native.gemm import HERE, Api

PRODUCTS = Path(__file__).with_name("products.c")
KINDS = {"f32": np.float32, "f64": np.float64}
GUARD = 64  # bytes on each side of scratch that must stay as they are


@pytest.fixture(scope="module")
def api() -> Api:
    return gemm.made(gemm.KINDS)


class Scratch:
    """Memory of as many bytes as were asked for, between guards, aligned to `alignment` bytes and no more."""

    def __init__(self, size: int, alignment: int = 1):
        around = np.full(size + 2 * GUARD + 192, 0xA5, np.uint8)
        begin = GUARD + alignment - around.ctypes.data % 64 + 64
        self.address = around.ctypes.data + begin
        self.guards = around[:begin], around[begin + size :]

    def check(self) -> None:
        assert all((guard == 0xA5).all() for guard in self.guards)


def strided(values: np.ndarray, steps: tuple[int, int], flip: bool) -> np.ndarray:
    """The same matrix elsewhere: its elements `steps` apart, in rows or (flip) in columns; NaN between them."""
    rows, columns = values.shape
    if flip:
        return strided(values.T, steps, False).T
    around = np.full((rows * steps[0], columns * steps[1] + 3), np.nan, values.dtype)
    view = around[:: steps[0], : columns * steps[1] : steps[1]]
    view[...] = values
    return view


def strides(a: np.ndarray) -> list[int]:
    return [s // a.itemsize for s in a.strides]


def product(api: Api, kind: str, form: str, a: np.ndarray, b: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    """a @ b (+ start) by `form`, in a poisoned matrix whose surroundings must stay as they are."""
    (m, k), n = a.shape, b.shape[1]
    around = np.full((m + 2, n + 5), -7.5, a.dtype)
    c = around[1 : m + 1, 2 : n + 2]
    c[...] = np.nan if start is None else start
    rest = around.copy()
    of = lambda name: getattr(api, f"{name}_{kind}")  # noqa: E731
    scratch = Scratch(of("gemm_any_scratch" if "any" in form else "gemm_scratch")(m, n, k))
    flags = int(start is not None) | next((f for name, f in FLAGS.items() if name in form), 0)
    result = (c.ctypes.data, n + 5, flags, scratch.address)
    if "any" not in form:
        packed = Scratch(of("packed_size")(k, n) * a.itemsize, a.itemsize)
        of("pack_b")(k, n, b.ctypes.data, *strides(b), packed.address)
        packed.check()
        of("gemm")(m, n, k, a.ctypes.data, *strides(a), packed.address, *result)
    else:
        of("gemm_any")(m, n, k, a.ctypes.data, *strides(a), b.ctypes.data, *strides(b), *result)
    scratch.check()
    rest[1 : m + 1, 2 : n + 2] = c
    np.testing.assert_array_equal(around, rest)
    return c.copy()


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, start: np.ndarray | None) -> None:
    """Within the bound of any order of summation: K ulps of the sum of magnitudes."""
    wide = [x.astype(np.float64) for x in (a, b, np.zeros(got.shape) if start is None else start)]
    want = wide[0] @ wide[1] + wide[2]
    bound = (a.shape[1] + 2) * np.finfo(got.dtype).eps * (np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2]))
    assert (np.abs(got - want) <= bound).all()


FLAGS = {"several": 2, "careful": 4}
"""WX_OF_SEVERAL and WX_CAREFUL of api.h."""
LAYOUTS = st.tuples(st.tuples(st.integers(1, 2), st.sampled_from([1, 1, 1, 3])), st.booleans())
SMALL = st.integers(0, 40)
LARGE = st.sampled_from([1, 2, 5, 31, 64, 100, 257, 515, 600])


def case(api: Api, kind: str, form: str, sides: tuple[int, int, int], layouts: tuple, accumulate: bool) -> None:
    m, n, k = sides
    random = np.random.default_rng([m, n, k])
    a = strided(random.standard_normal((m, k)).astype(KINDS[kind]), *layouts[0])
    b = strided(random.standard_normal((k, n)).astype(KINDS[kind]), *layouts[1])
    start = random.standard_normal((m, n)).astype(KINDS[kind]) if accumulate else None
    check(product(api, kind, form, a, b, start), a, b, start)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "several", "careful", "any", "any, careful"])
@given(sides=st.tuples(SMALL, SMALL, SMALL), layouts=st.tuples(LAYOUTS, LAYOUTS), accumulate=st.booleans())
@settings(max_examples=150)
def test_small(api: Api, kind: str, form: str, sides: tuple, layouts: tuple, accumulate: bool) -> None:
    case(api, kind, form, sides, layouts, accumulate)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "several", "careful", "any", "any, careful"])
@given(sides=st.tuples(LARGE, LARGE, LARGE), layouts=st.tuples(LAYOUTS, LAYOUTS), accumulate=st.booleans())
@settings(max_examples=40)
def test_large(api: Api, kind: str, form: str, sides: tuple, layouts: tuple, accumulate: bool) -> None:
    case(api, kind, form, sides, layouts, accumulate)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deep", [1021, 1024])  # rows of `strided` have three elements more
@pytest.mark.parametrize("rows", [*range(1, 12), 14, 15, 17, 20, *range(25, 30), 40, 56])
def test_few_rows_whole_pages_apart(api: Api, kind: str, deep: int, rows: int) -> None:
    """They are multiplied in lower tiles or copied, as they take each other's place in a first cache."""
    case(api, kind, "packed", (rows, 70, deep), (((1, 1), False),) * 2, rows % 2 == 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "careful", "any"])
@pytest.mark.parametrize("sides", [(9, 1019, 40), (12, 1019, 40), (28, 1019, 300), (70, 1019, 300), (70, 507, 600)])
def test_rows_of_the_result_whole_pages_apart(api: Api, kind: str, form: str, sides: tuple[int, int, int]) -> None:
    """These too: tiles and the panels that they read are lower. Rows of `product` have five elements more."""
    case(api, kind, form, sides, (((1, 1), False),) * 2, sides[2] > 40)


@pytest.mark.parametrize("kind", KINDS)
@given(
    sides=st.tuples(st.integers(2, 66), st.integers(0, 20), st.integers(0, 40)),
    depths=st.integers(1, 4),
    gap=st.integers(1, 2),
    accumulate=st.booleans(),
)
@settings(max_examples=150)
def test_few_rows_along_the_depth(
    api: Api, kind: str, sides: tuple[int, int, int], depths: int, gap: int, accumulate: bool
) -> None:
    """Rows meet columns where both lie: of layers of the depth, the last vector, the last columns no more than there
    is, which NaN surrounds."""
    m, n, more = sides
    deep = {1: 16 * m, 2: 1000, 3: 1056, 4: 2048}[depths] + more
    assert m > 32 or getattr(api, f"dots_pay_{kind}")(m, deep, 1, 1)
    case(api, kind, "any", (m, n, deep), (((gap, 1), False), ((gap, 1), True)), accumulate)


@pytest.mark.parametrize("kind", KINDS)
@given(
    sides=st.tuples(st.integers(2, 110), st.integers(1, 100), st.integers(0, 80)),
    gaps=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    flip=st.booleans(),
    form=st.sampled_from(["any", "any careful"]),
    accumulate=st.booleans(),
)
@settings(max_examples=150)
def test_rows_of_the_right_side_in_place(
    api: Api, kind: str, sides: tuple[int, int, int], gaps: tuple[int, int], flip: bool, form: str, accumulate: bool
) -> None:
    """Up to here they are read where they lie: nothing beyond the last of them, which NaN surrounds, is added."""
    m, n, deep = sides
    layouts = ((gaps[0], 1), flip), ((gaps[1], 1), False)
    always = 28 if api.nr_f32 == 32 else 8  # two tiles, which are of 4 rows with the shortest vectors
    assert m > always or getattr(api, f"lies_well_{kind}")(m, n, deep, gaps[1] * n, 1) or n == 1
    case(api, kind, form, sides, layouts, accumulate)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "several", "any"])
@pytest.mark.parametrize(
    "sides",
    [
        *((1, 1, 1), (7, 17, 9), (30, 50, 40), (70, 1100, 300), (1, 40, 20), (40, 1, 20), (5, 24, 9), (20, 40, 300)),
        *((9, 23, 301), (4, 7, 1500)),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values(api: Api, kind: str, form: str, sides: tuple, order: str, special: float) -> None:
    """One special element in each operand reaches its row and its column and nothing else."""
    m, n, k = sides
    a, b = np.ones((m, k), KINDS[kind]), np.asarray(np.ones((k, n), KINDS[kind]), order=order)
    a[m // 2, k // 3] = special
    b[k // 2, n - 1] = special
    with np.errstate(invalid="ignore"):
        want = (a.astype(np.float64) @ b.astype(np.float64)).astype(KINDS[kind])
    np.testing.assert_array_equal(product(api, kind, form, a, b, None), want)


@pytest.mark.parametrize(
    ("form", "depth", "kept"),
    [
        *(("packed", 32, 0), ("packed", 64, 32), ("packed", 192, 96), ("packed", 384, 192)),
        *(("several", 384, 256), ("careful", 64, 52)),
    ],
)
@pytest.mark.parametrize("rows", [28, 56, 200])
@pytest.mark.parametrize("columns", [64, 64 + 3, 3])
@pytest.mark.parametrize("by_rows", [False, True])
def test_sums_are_made_in_runs(
    api: Api, form: str, depth: int, kept: int, rows: int, columns: int, by_rows: bool
) -> None:
    """Ones that are added to 2^24 one by one are lost, those of another run are not: a product of 192 that stood for
    three of 64 was summed in one go, and its error was half as large again as theirs. Where panels are not as deep
    there are more runs, and fewer are lost."""
    a = np.ones((rows, depth), np.float32) if by_rows else np.ones((depth, rows), np.float32).T
    a[:, 0] = 2**24
    got = product(api, "f32", form, a, np.ones((depth, columns), np.float32), None)
    lost = depth + 2**24 - got.astype(np.float64)
    assert (lost > 0).all() and (lost <= depth - kept).all()
    assert columns % 16 or (lost == lost[0, 0]).all()


@pytest.mark.parametrize("kind", KINDS)
@given(
    sides=st.tuples(LARGE | SMALL, LARGE | SMALL), layout=LAYOUTS, steps=st.tuples(st.integers(1, 2), st.integers(1, 3))
)
@settings(max_examples=200)
def test_one_column(api: Api, kind: str, sides: tuple, layout: tuple, steps: tuple) -> None:
    m, k = sides
    random = np.random.default_rng([m, k])
    a = strided(random.standard_normal((m, k)).astype(KINDS[kind]), *layout)
    x = strided(random.standard_normal((k, 1)).astype(KINDS[kind]), (steps[0], 1), False)
    y = np.full((m * steps[1] + 2, 1), np.nan, KINDS[kind])
    rest = y.copy()
    out = y[1 : m * steps[1] + 1 : steps[1]]
    call, scratch = getattr(api, f"gemm_any_{kind}"), Scratch(getattr(api, f"gemm_any_scratch_{kind}")(m, 1, k))
    operands = (a.ctypes.data, *strides(a), x.ctypes.data, strides(x)[0], 7)
    call(m, 1, k, *operands, out.ctypes.data, strides(out)[0], 0, scratch.address)
    check(out, a, x, None)
    rest[1 : m * steps[1] + 1 : steps[1]] = out
    np.testing.assert_array_equal(y, rest)


@pytest.fixture(scope="module")
def blas() -> Blas:
    found = find()
    if not isinstance(found, Blas):
        pytest.skip(found.reason)
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(sides=st.tuples(*[st.integers(1, 40)] * 3), layouts=st.tuples(LAYOUTS, LAYOUTS), accumulate=st.booleans())
@settings(max_examples=200)
def test_blas(api: Api, blas: Blas, kind: str, sides: tuple, layouts: tuple, accumulate: bool) -> None:
    """BLAS gives the product, or says that it cannot and leaves the result alone."""
    (m, n, k), random = sides, np.random.default_rng(sides)
    a = strided(random.standard_normal((m, k)).astype(KINDS[kind]), *layouts[0])
    b = strided(random.standard_normal((k, n)).astype(KINDS[kind]), *layouts[1])
    start = random.standard_normal((m, n)).astype(KINDS[kind])
    c = start.copy()
    function = blas.sgemm if kind == "f32" else blas.dgemm
    matrices = (a.ctypes.data, *strides(a), b.ctypes.data, *strides(b))
    refused = getattr(api, f"blas_{kind}")(function, blas.bits, m, n, k, *matrices, c.ctypes.data, n, int(accumulate))
    plain = all(1 in strides(x) or 1 in x.shape for x in (a, b))
    assert plain or refused
    if refused:
        np.testing.assert_array_equal(c, start)
        assert not all(x.flags.c_contiguous or x.flags.f_contiguous for x in (a, b))
    else:
        check(c, a, b, start if accumulate else None)


def test_calls_that_overlap_leave_blas_its_threads(blas: Blas) -> None:
    """The second begins before the first has given them back: it must not take one for what there was."""
    from threadpoolctl import threadpool_info, threadpool_limits

    from waxeq_native.products_blas import AGAIN, ALONE, table, usable
    from waxeq_native.steps import Context, compiled

    if usable() is None:
        pytest.skip("this BLAS has no function to say how many threads it may use")

    def threads() -> int:
        return next(info["num_threads"] for info in threadpool_info() if Path(info["filepath"]) == blas.path)

    context = Context(0, ctypes.addressof(table()))
    args = (ctypes.c_void_p * 1)(ctypes.addressof(context))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    found = compiled([ALONE, AGAIN])
    alone, again = (run(found[p.name]) for p in (ALONE, AGAIN))
    with threadpool_limits(2, user_api="blas"):
        seen = [threads()]
        for part in (alone, alone, again, again, alone, again):
            part(ctypes.addressof(args), 0, 1, 0)
            seen.append(threads())
        assert seen == [2, 1, 1, 1, 2, 1, 2]


SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MACHINES = {
    "this": SANITIZED,
    "portable": (),
    "AVX-512": ("-D__AVX512F__",),  # the tile and its blocks only: the compiler makes its vectors of smaller ones
    "NEON": ("-D__ARM_NEON",),
}


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_of_each_machine(tmp_path: Path, machine: str) -> None:
    """tests/backends/native/products.c says what is tried."""
    if machine == "NEON" and platform.machine() in ("aarch64", "arm64"):
        pytest.skip("that is this machine")
    output = tmp_path / "products"
    compiler = find_compiler()
    tuned = [flag for flag in compiler.flags if flag.startswith("-m") and machine == "this"]
    level = "-O0" if machine in ("this", "AVX-512") else "-O1"  # compiled in an eighth of the time
    level = (level, "-Dalways_inline=unused")  # and that in a fifth: tiles are called, not written out at each place
    flags = (*level, "-w", "-std=gnu11", "-ffp-contract=fast", *tuned, *MACHINES[machine], f"-I{HERE}")
    made = subprocess.run(
        [*compiler.command, *flags, HERE / "gemm.c", PRODUCTS, "-lm", "-o", output],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0 and "san" in made.stderr:
        pytest.skip(f"no such sanitizer here: {made.stderr.splitlines()[-1]}")
    assert made.returncode == 0, made.stderr
    tries = "100" if machine == "this" else "200"  # each takes ten times as long where accesses are checked
    done = subprocess.run([output, tries], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
