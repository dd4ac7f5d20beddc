"""Calls of every form that kernels of CUDA C++ have, and the simulated device to run them on."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq_cupy import backend
from waxeq_cupy import device as devices
from waxeq_cupy.kernels import Launch, Loops
from waxeq_cupy.simulated import Simulated

F32 = "float32"


def call(meaning: Term, sizes: Mapping[str, int], operands: Sequence[str | View], out: str, dtype: str = F32) -> Call:
    """A call on dense operands with these axes each (or on views), and a dense result."""
    views = tuple(v if isinstance(v, View) else View.dense(v, sizes, dtype) for v in operands)
    return Call("cupy.loops", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def softmax(x: Term, k: str) -> Term:
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", k, x)))
    return Term("Zip", "div", e, Term("Sum", k, e))


def mean(x: Term, *axes: str, count: int, dtype: str = F32) -> Term:
    for k in axes:
        x = Term("Sum", k, x)
    return Term("Mul", x, Term("Num", 1.0 / count, dtype))


def norm(x: Term, *axes: str, count: int, dtype: str = F32) -> Term:
    centred = Term("Zip", "sub", x, mean(x, *axes, count=count, dtype=dtype))
    variance = mean(Term("Map", "square", centred), *axes, count=count, dtype=dtype)
    return Term("Mul", centred, Term("Map", "rsqrt", Term("Add", variance, Term("Num", 1e-5, dtype))))


def _rows() -> Iterator[tuple[str, Call]]:
    for n, rows in ((1, 3), (3, 1000), (70, 5), (1000, 40), (1001, 7), (4096, 3), (16384, 2), (40001, 2), (100_000, 3)):
        yield f"softmax of rows of {n}", call(softmax(operand(0, "ij", F32), "j"), {"i": rows, "j": n}, ["ij"], "ij")
    for dtype in ("float16", "bfloat16", "float64"):
        yield (
            f"softmax of {dtype}",
            call(softmax(operand(0, "ij", dtype), "j"), {"i": 6, "j": 1024}, ["ij"], "ij", dtype),
        )
    x, g, b = operand(0, "ij", F32), operand(1, "j", F32), operand(2, "j", F32)
    scaled = Term("Add", Term("Mul", norm(x, "j", count=768), g), b)
    yield "layer norm", call(scaled, {"i": 33, "j": 768}, ["ij", "j", "j"], "ij")
    yield "layer norm of long rows", call(norm(x, "j", count=9000), {"i": 4, "j": 9000}, ["ij"], "ij")
    batch = norm(operand(0, "nchw", F32), "n", "h", "w", count=4 * 9 * 9)
    yield "batch norm", call(batch, {"n": 4, "c": 6, "h": 9, "w": 9}, ["nchw"], "nchw")
    yield "argmax of rows", call(Term("Red", "argmax", "j", x), {"i": 9, "j": 700}, ["ij"], "i")
    yield "argmin of columns", call(Term("Red", "argmin", "i", x), {"i": 300, "j": 70}, ["ij"], "j")


def _folds() -> Iterator[tuple[str, Call]]:
    x = operand(0, "ij", F32)
    for i, j in ((1000, 64), (50, 3), (5000, 3), (300, 9000), (40_000, 33), (7, 1), (70_000, 1)):
        yield f"sum of {i} rows of {j}", call(Term("Sum", "i", x), {"i": i, "j": j}, ["ij"], "j")
    yield "softmax of columns", call(softmax(x, "i"), {"i": 60, "j": 100}, ["ij"], "ij")
    yield "softmax between", call(softmax(operand(0, "ijk", F32), "j"), {"i": 3, "j": 50, "k": 37}, ["ijk"], "ijk")
    cube, sizes = operand(0, "ijk", F32), {"i": 64, "j": 65, "k": 66}
    yield "sum of all", call(Term("Sum", "i", Term("Sum", "j", Term("Sum", "k", cube))), sizes, ["ijk"], "")
    inner = Term("Sum", "j", Term("Mul", operand(1, "ij", F32), operand(2, "j", F32)))
    outer = Term("Sum", "i", Term("Mul", operand(0, "ki", F32), inner))
    for n, again in ((60, "again"), (700, "apart")):
        yield f"two matrices times a vector, {again}", call(outer, dict.fromkeys("ijk", n), ["ki", "ij", "j"], "k")
    softened = softmax(operand(0, "j", F32), "j")
    yield "softmax of one long row", call(softened, {"j": 200_000}, ["j"], "j")
    for kind, dtype in (("max", "float16"), ("any", "bool"), ("all", "bool"), ("prod", "int32"), ("min", "int8")):
        t = Term("Red", kind, "j", operand(0, "ij", dtype))
        yield f"{kind} of {dtype}", call(t, {"i": 5, "j": 2000}, ["ij"], "i", dtype)
    best = Term("Red", "max", "j", Term("Mul", Term("Sum", "k", cube), operand(1, "j", F32)))
    yield "a fold of folds", call(best, {"i": 9, "j": 40, "k": 50}, ["ijk", "j"], "i")
    yield "a fold of folds in columns", call(best, {"i": 40, "j": 6, "k": 50}, ["jki", "j"], "i")
    around = Term("Add", Term("Sum", "k", cube), Term("Red", "max", "j", Term("Sum", "k", cube)))
    yield "folds that are used twice", call(around, {"i": 9, "j": 40, "k": 50}, ["ijk"], "ij")


def _maps() -> Iterator[tuple[str, Call]]:
    x, b = operand(0, "ij", F32), operand(1, "j", F32)
    gelu = Term("Mul", x, Term("Map", "sigmoid", Term("Add", x, b)))
    yield "element-wise", call(gelu, {"i": 64, "j": 128}, ["ij", "j"], "ij")
    yield "element-wise on odd rows", call(gelu, {"i": 64, "j": 129}, ["ij", "j"], "ij")
    flat = Term("Map", "tanh", operand(0, "j", F32))
    yield "a vector with an end", call(flat, {"j": 1003}, ["j"], "j")
    half = Term("Add", operand(0, "j", "float16"), Term("Num", 1.0, "float16"))
    yield "halves", call(half, {"j": 5000}, ["j"], "j", "float16")
    wide = Term("Cast", F32, operand(0, "ij", "float16"))
    yield "halves to floats", call(wide, {"i": 8, "j": 256}, ["ij"], "ij", "float16")
    sizes = {"i": 100, "j": 70}
    yield "a transposed copy", call(operand(0, "ij", F32), sizes, ["ji"], "ij")
    added = Term("Add", Term("Map", "exp", operand(0, "ij", F32)), operand(1, "ij", F32))
    yield "transposed and added", call(added, {"i": 33, "j": 65}, ["ji", "ij"], "ij")
    yield "transposed in the middle", call(operand(0, "abc", F32), {"a": 5, "b": 40, "c": 50}, ["acb"], "abc")
    back = View("ij", (100, 70), (-70, -1), F32, 6999)  # pyright: ignore[reportArgumentType]
    yield "backwards", call(Term("Map", "neg", x), sizes, [back], "ij")
    rows = Term("Gather", "k", operand(0, "i", "int64"), operand(1, "kj", F32))
    sizes = {"i": 30, "k": 4, "j": 64}
    yield "gathered rows", call(rows, sizes, [View.dense("i", sizes, "int64"), "kj"], "ij")
    sizes = {"p": 5, "q": 7, "n": 12, "j": 64}
    both = Term("Cat", "p", "q", "n", operand(0, "pj", F32), operand(1, "qj", F32))
    yield "concatenated rows", call(both, sizes, ["pj", "qj"], "nj")
    sizes = {"k": 10, "n": 15, "j": 64}
    yield "padded", call(Term("Pad", "k", "n", 2, 0.5, operand(0, "jk", F32)), sizes, ["jk"], "jn")
    cut = Term("Slice", "k", "n", 3, 2, operand(0, "jk", F32))
    yield "cut out", call(cut, {"k": 100, "n": 40, "j": 6}, ["jk"], "jn")
    window = Term("Sum", "w", Term("Unfold", "k", "o", "w", 1, 1, operand(0, "jk", F32)))
    yield "a moving sum", call(window, {"k": 100, "o": 96, "w": 5, "j": 6}, ["jk"], "jo")


CASES = dict((*_rows(), *_folds(), *_maps()))


def launches(loops: Loops, calls: Iterable[Call]) -> dict[str, Launch]:
    """Every kernel of these calls, for memory that begins at 16 bytes and for any other."""
    works = (loops.work(c, aligned=a) for c in calls for a in (True, False))
    return {x.name: x for w in works if w is not None for x in w.launches}


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VARIABLE, devices.SIMULATED)


@pytest.fixture
def device(_simulated: None, loops: Loops) -> Iterator[Simulated]:
    """All cases are compiled at once: the text before them takes longer than they do."""
    found = devices.current()
    assert isinstance(found, Simulated)
    found.compiled(list(launches(loops, CASES.values()).values()))
    yield found
    found.order = 0


@pytest.fixture(scope="session")
def loops() -> Loops:
    found = backend().kernels["cupy.loops"]
    assert isinstance(found, Loops)
    return found


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Call:
    return CASES[request.param]


@pytest.fixture
def named() -> Callable[[str], Call]:
    return CASES.__getitem__


@pytest.fixture
def cases() -> Mapping[str, Call]:
    return CASES


@pytest.fixture
def kernels_of(loops: Loops) -> Callable[[Iterable[Call]], dict[str, Launch]]:
    return lambda calls: launches(loops, calls)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The entry point, as the package has it, whether this checkout was installed since it has one or not: a folder
    that is on the path of this process, and can be on that of others."""
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    value = declared["project"]["entry-points"]["waxeq.backends"]["cupy"]
    folder = tmp_path / "installed" / "waxeq_tested-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: waxeq-tested\nVersion: 0\n")
    (folder / "entry_points.txt").write_text(f"[waxeq.backends]\ncupy = {value}\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder.parent
