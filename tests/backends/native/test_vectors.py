"""Loops that gcc once made no vectors of."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq_native.compiler import find
from waxeq_native.steps import prelude

LOOPS = backends(["native"])[0].kernels["native.loops"]
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
    """Whether gcc says so."""
    c = find()
    macros = subprocess.run([*c.command, "-dM", "-E", "-xc", "/dev/null"], check=True, capture_output=True, text=True)
    if "__GNUC__" not in macros.stdout or "__clang__" in macros.stdout:
        pytest.skip("it is gcc that says what it made vectors of")
    (folder / "chain.c").write_text(prelude() + source)
    line = [*c.command, *c.flags, "-fopt-info-vec-optimized=vec.txt", "chain.c", "-o", "chain.so"]
    subprocess.run(line, check=True, cwd=folder)
    return re.search(r"chain\.c:\d+:\d+: optimized: loop vectorized", (folder / "vec.txt").read_text()) is not None


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["min", "max", "fmin", "fmax"])
def test_the_smallest_of_several_is_made_of_vectors(name: str, first: bool, tmp_path: Path) -> None:
    """A NaN goes on to the end: gcc made branches of that."""
    assert is_made_of_vectors(chain(name, 6, first=first), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_comparisons_that_become_numbers_are_made_of_vectors(dtype: str, tmp_path: Path) -> None:
    """A comparison was a byte that became a float: 20 steps of a Mandelbrot set took nine times as long."""
    assert is_made_of_vectors(escapes(dtype), tmp_path)
