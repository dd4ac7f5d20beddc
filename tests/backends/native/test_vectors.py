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
    wide = {"i": SIZES["i"] + 1, "j": SIZES["j"] + 2}  # rows with a gap between them
    read = View("ij", tuple(SIZES.values()), View.dense("ij", wide, "float32").strides, "float32")
    call = Call(LOOPS.name, found, SIZES, (read,) * many, View.dense("ij", SIZES, "float32"))
    assert LOOPS.accepts(call)
    (part,) = LOOPS.of(call).parts
    return part.source


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["min", "max", "fmin", "fmax"])
def test_the_smallest_of_several_is_made_of_vectors(name: str, first: bool, tmp_path: Path) -> None:
    """A NaN goes on to the end: gcc made branches of that."""
    c = find()
    macros = subprocess.run([*c.command, "-dM", "-E", "-xc", "/dev/null"], check=True, capture_output=True, text=True)
    if "__GNUC__" not in macros.stdout or "__clang__" in macros.stdout:
        pytest.skip("it is gcc that says what it made vectors of")
    (tmp_path / "chain.c").write_text(prelude() + chain(name, 6, first=first))
    line = [*c.command, *c.flags, "-fopt-info-vec-optimized=vec.txt", "chain.c", "-o", "chain.so"]
    subprocess.run(line, check=True, cwd=tmp_path)
    said = (tmp_path / "vec.txt").read_text()
    assert re.search(r"chain\.c:\d+:\d+: optimized: loop vectorized", said)
