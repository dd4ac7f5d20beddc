"""Random programs, from their graphs to plans that run, against float64. Each failure tells the seed and the graph."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from threadpoolctl import threadpool_limits

from waxeq.backend.kernel import prepare
from waxeq.errors import WaxeqError
from waxeq.ir.text import print_graph
from waxeq.plan.plan import Plan
from waxeq.testing.planned import Planner, errors
from waxeq.testing.programs import random_program
from waxeq_native import library

PROGRAMS, TOGETHER = 240, 20
USUALLY = 12
"""Every twelfth part of the programs is compiled as plans are, the others in a third of the time."""
WRONGS = (WaxeqError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


@pytest.fixture(scope="session")
def planner() -> Iterator[Planner]:
    with Planner.open() as p, threadpool_limits(1):
        yield p


@pytest.fixture(autouse=True)
def few_collections() -> Iterator[None]:
    """As searches have it: large e-graphs are looked through for what is left of them a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    yield
    gc.set_threshold(*before)


def failures(planner: Planner, first: int) -> list[str]:
    """What is wrong with the plans of the programs of seeds `first` and on."""
    programs = [random_program(random.Random(first + i)) for i in range(TOGETHER)]
    plans: list[Plan | str] = []
    for i, part in enumerate(planner.saturated(programs)):
        try:
            plans.append(planner.plan(part, random.Random(i)))
        except WRONGS as e:
            plans.append(f"{type(e).__name__}: {e}")
    steps = (s for p in plans if isinstance(p, Plan) for s in p.steps)
    with suppress(WaxeqError):  # whose fault that is shows when each is run
        prepare((planner.kernels[s.call.kernel], s.call) for s in steps)  # what is compiled, is compiled at once
    found = []
    for i, (program, plan) in enumerate(zip(programs, plans, strict=True)):
        try:
            wrong = [plan] if isinstance(plan, str) else errors(program, plan, planner.kernels)
        except WRONGS as e:
            wrong = [f"{type(e).__name__}: {e}"]
        if wrong:
            found.append(f"seed {first + i} among {first}..{first + TOGETHER - 1}: {'; '.join(wrong)}\n"
                         f"{print_graph(program.graph)}")  # fmt: skip
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, TOGETHER))
def test_plans_of_random_programs_are_right(
    planner: Planner, little: library.Library, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first // TOGETHER % USUALLY:
        monkeypatch.setattr(library, "shared", lambda: little)
    found = failures(planner, first)
    assert not found, "\n".join(found)


WRONG = {
    "value": '(rewrite (Zip "sub" a b) (Zip "sub" b a) :ruleset planted :name "planted/value")',
    "fold": '(rewrite (Red "max" k a) (Red "min" k a) :ruleset planted :name "planted/fold")',
    "choice": '(rewrite (Select c a b) (Select c b a) :ruleset planted :name "planted/choice")',
    "order": '(rewrite (Cat p q n a b) (Cat q p n b a) :ruleset planted :name "planted/order")',
}


MET = {"order": 40}
"""The seeds among which a program comes out wrong, where that is not so of the first ones: they are tried first."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_rule_does_not_go_unnoticed(
    planner: Planner, little: library.Library, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is what is computed, whatever a compiler makes of it."""
    monkeypatch.setattr(library, "shared", lambda: little)
    rules = planner.rules
    planted = ("planted.egg", ("(ruleset planted)", WRONG[kind]))
    first = replace(rules.phases[0], name="planted", rulesets=("planted",), iterations=1, required=True)
    wrong = replace(rules, texts=(*rules.texts, planted), phases=(first, *rules.phases))
    planned = replace(planner, rules=wrong)
    seeds = sorted(range(0, 10 * TOGETHER, TOGETHER), key=lambda i: i != MET.get(kind))
    assert any(failures(planned, i) for i in seeds), "no program of 200 came out wrong"
