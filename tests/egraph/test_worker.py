"""The process that saturates: it starts with little, reads rules once, and begins each task from them alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.discover import backends, kernels
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Saturation, Stop, Worker, saturate
from waxeq.errors import RuleError
from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand

PROGRAM = load_rules("reassociating", patterns(kernels(backends())))
HEAVY = ("numpy", "black", "graphviz", "waxeq.ops", "waxeq.ir.graph", "waxeq.egraph.schema")
STARTED = (
    "import sys; from waxeq.egraph.worker import main; from waxeq.egraph.engine import EGraph, import_extension; "
    f"import_extension(); EGraph(); sys.exit(' '.join(m for m in {HEAVY!r} if m in sys.modules) or None)"
)


@pytest.fixture
def worker() -> Iterator[Worker]:
    w = Worker.start()
    yield w
    w.close()


def model(size: int) -> Lowered:
    """A product of two sums, some of which rules write in other ways."""
    x, w = np.ones((size, 4), np.float32), np.ones((4, 3), np.float32)
    return lower(expand(trace(lambda x, y, w: (x + y) @ w + x @ w, {"x": x, "y": x, "w": w}).graph))


def saturated(worker: Worker, size: int, program: RuleProgram = PROGRAM, nodes: int = 10_000) -> Saturation:
    return saturate(model(size), program, Limits(nodes), worker)


def test_it_imports_little() -> None:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_task_finds_nothing_of_the_one_before(worker: Worker) -> None:
    first = saturated(worker, 5)
    cut = saturated(worker, 7, nodes=30)  # ends at a limit, on the way to which graphs are kept to go back to
    assert cut.stop is Stop.NodeLimit
    again, other = saturated(worker, 5), saturated(worker, 6)
    assert again.snapshot == first.snapshot and again.snapshot.sizes == first.snapshot.sizes
    assert other.snapshot.sizes != first.snapshot.sizes


def test_other_rules_take_the_place_of_those_before(worker: Worker) -> None:
    with_all = saturated(worker, 5)
    bare = replace(PROGRAM, texts=PROGRAM.texts[-1:], phases=PROGRAM.phases[-1:])
    assert saturated(worker, 5, bare).snapshot.nodes < with_all.snapshot.nodes
    assert saturated(worker, 5).snapshot == with_all.snapshot


def test_rules_may_come_before_the_model(worker: Worker) -> None:
    worker.prepare(PROGRAM)
    found = saturated(worker, 5)
    worker.close()
    assert saturated(worker, 5).snapshot == found.snapshot


def test_rules_that_cannot_be_read_are_told_of_each_time(worker: Worker) -> None:
    wrong = replace(PROGRAM, texts=(*PROGRAM.texts, ("wrong.egg", ("(rewrite (Nothing a) a :ruleset linear)",))))
    worker.prepare(wrong)
    for _ in range(2):
        with pytest.raises(RuleError, match=r"wrong\.egg"):
            saturated(worker, 5, wrong)
    assert saturated(worker, 5).stop is Stop.Saturated
