"""Loops that gcc once made no vectors of."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq_cfamily.taken import NAME
from waxeq_native.compiler import find
from waxeq_native.select_rounds import bounds
from waxeq_native.steps import prelude

LOOPS = backends(["native"])[0].kernels["native.loops"]
SORT = backends(["native"])[0].kernels["native.partial_sort"]
SIZES = {"i": 300, "j": 401}


def chain(name: str, many: int, *, first: bool) -> str:
    """The text of a smallest or largest of several arrays; what was found so far comes `first` or last."""
    found, *rest = [operand(n, "ij", "float32") for n in range(many)]
    for x in rest:
        found = Term("Zip", name, *((found, x) if first else (x, found)))
    return text(found, many)


def escapes(dtype: str) -> str:
    """The text of how often the points of some steps lie within a bound, as a float."""
    start = found = operand(0, "ij", dtype)
    total = Term("Num", 0.0, dtype)
    for n in range(20):
        found = Term("Add", start, Term("Mul", found, found))
        near = Term("Zip", "lt", found, Term("Num", float(n), dtype))
        total = Term("Add", total, Term("Cast", dtype, near))
    return text(total, 1, dtype)


def text(meaning: Term, many: int, dtype: str = "float32") -> str:
    """That of loops over so many arrays with gaps between their rows."""
    wide = {"i": SIZES["i"] + 1, "j": SIZES["j"] + 2}
    read = View("ij", tuple(SIZES.values()), View.dense("ij", wide, dtype).strides, dtype)
    call = Call(LOOPS.name, meaning, SIZES, (read,) * many, View.dense("ij", SIZES, dtype))
    assert LOOPS.accepts(call)
    (part,) = LOOPS.of(call).parts
    return part.source


def is_made_of_vectors(source: str, folder: Path) -> bool:
    """Whether gcc says so of some loop."""
    return bool(vectors(source, folder))


def vectors(source: str, folder: Path) -> set[int]:
    """The lines of loops that gcc says it made vectors of."""
    c = find()
    macros = subprocess.run([*c.command, "-dM", "-E", "-xc", "/dev/null"], check=True, capture_output=True, text=True)
    if "__GNUC__" not in macros.stdout or "__clang__" in macros.stdout:
        pytest.skip("it is gcc that says what it made vectors of")
    (folder / "chain.c").write_text(prelude() + source)
    line = [*c.command, *c.flags, "-fopt-info-vec-optimized=vec.txt", "chain.c", "-o", "chain.so"]
    subprocess.run(line, check=True, cwd=folder)
    found = re.findall(r"chain\.c:(\d+):\d+: optimized: loop vectorized", (folder / "vec.txt").read_text())
    return set(map(int, found))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["min", "max", "fmin", "fmax"])
def test_the_smallest_of_several_is_made_of_vectors(name: str, first: bool, tmp_path: Path) -> None:
    """A NaN goes on to the end: gcc made branches of that."""
    assert is_made_of_vectors(chain(name, 6, first=first), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_comparisons_that_become_numbers_are_made_of_vectors(dtype: str, tmp_path: Path) -> None:
    """A comparison was a byte that became a float: 20 steps of a Mandelbrot set took nine times as long."""
    assert is_made_of_vectors(escapes(dtype), tmp_path)


@pytest.mark.parametrize("many", [3, 4, 20])
def test_sums_of_rows_that_are_looked_up_are_made_of_vectors(many: int, tmp_path: Path) -> None:
    """Whether a position lies outside its axis was a condition in a loop that does not change it, of which gcc 12 makes
    no vectors: sums of 20 rows of a table of embeddings took eleven times as long."""
    sizes = {"i": 200, "k": many, "v": 1000, "j": 64}
    table, found = operand(0, "vj", "float32"), operand(1, "ik", "int64")
    meaning = Term("Sum", "k", Term("Gather", "v", found, table))
    views = View.dense("vj", sizes, "float32"), View.dense("ik", sizes, "int64")
    call = Call(LOOPS.name, meaning, sizes, views, View.dense("ij", sizes, "float32"))
    assert LOOPS.accepts(call)
    (part,) = LOOPS.of(call).parts
    source = part.source
    pragma = (prelude() + source[: source.index("#pragma omp simd")]).count("\n") + 1
    assert vectors(source, tmp_path) & {pragma + 1, pragma + 2}, "rows are added one by one"


def compared_alone(source: str, folder: Path) -> int:
    """How many comparisons of single elements there are in a text for a machine of vectors of 32 bytes."""
    c = find()
    macros = subprocess.run([*c.command, "-dM", "-E", "-xc", "/dev/null"], check=True, capture_output=True, text=True)
    if "__x86_64__" not in macros.stdout:
        pytest.skip("instructions of x86-64 are looked for")
    (folder / "keys.c").write_text(prelude() + source)
    machine = [f for f in c.flags if not f.startswith(("-march", "-mprefer"))]
    line = [*c.command, *machine, "-mavx2", "-mno-avx512f", "-S", "keys.c", "-o", "keys.s"]
    subprocess.run(line, check=True, cwd=folder)
    return len(re.findall(r"^\t(?:set|sbb)\w*\t", (folder / "keys.s").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("key", "bits"), [("uint16_t", 16), ("uint32_t", 32), ("uint64_t", 64)])
def test_keys_are_compared_in_vectors_of_the_machine(key: str, bits: int, tmp_path: Path) -> None:
    """Of vectors of 64 bytes gcc compared one key after the other where the machine has 32: a hundred of them."""
    use = f"void all(const {key} *a, int64_t i, int64_t j, {key} *b, {key} *c) {{ {NAME}_bounds(a, i, j, b, c); }}"
    assert compared_alone("\n".join(["", *bounds(key, bits), use, ""]), tmp_path) < 16


def test_the_best_are_kept_in_vectors_of_the_machine(tmp_path: Path) -> None:
    """As above, of the eight smallest of each row: 130."""
    sizes = {**SIZES, "n": 8}
    meaning = Term("Slice", "j", "n", 0, 1, Term("Sort", "j", operand(0, "ij", "float32")))
    read, out = (View.dense(axes, sizes, "float32") for axes in ("ij", "in"))
    call = Call(SORT.name, meaning, sizes, (read,), out)
    (part,) = SORT.of(call).parts
    assert compared_alone("\n" + part.source, tmp_path) < 16
