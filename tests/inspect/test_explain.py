"""Explanations are true: the rules that are named are enough to find the kernel again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from waxeq.backend.discover import backends, kernels
from waxeq.compile import optimize
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import lower
from waxeq.egraph.rules import Apply, Expr, Lit, Var, load_rules, read_file, rule_files
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.events import Events
from waxeq.inspect.explain import explain, explain_plan
from waxeq.inspect.match import Index, Match
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.ir.term import Term
from waxeq.options import Options
from waxeq.search.result import Result


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


MODELS = {
    "chain": (lambda a, b, v: a @ b @ v, (array(300, 200), array(200, 250), array(250))),
    "division after the product": (
        lambda p, v: (p / p.sum(axis=1, keepdims=True)) @ v,
        (np.abs(array(60, 50)), array(50, 8)),
    ),
    "as written": (lambda a, b: a @ b, (array(30, 40), array(40, 20))),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    table = tmp_path_factory.mktemp("table") / "t.duckdb"
    options = Options.of(table=table, trial=False, measure=False, threads=1)
    return {n: optimize(f, *arrays, options=options, events=Events()) for n, (f, arrays) in MODELS.items()}


def programs_with(names: set[str], folder: Path) -> list[Path]:
    """The installed rule files, with no rules but those named."""
    paths = []
    for source in rule_files():
        f = read_file(source)
        rows = [f.declarations]
        rows += [f"; {r.law}\n;; {r.cls} {r.bound or ''}\n{r.text}" for r in f.rules if r.name in names]
        paths.append(folder / source.name)
        paths[-1].write_text("\n\n".join(rows) + "\n")
    return paths


def pattern(t: Term) -> Expr:
    """A meaning as a pattern: its operands may be anything."""
    if t.head == "In":
        return Var(t.args[0])
    return Apply(t.head, tuple(pattern(a) if isinstance(a, Term) else Lit(a) for a in t.args))


@pytest.mark.parametrize("name", MODELS)
def test_the_rules_named_lead_to_the_kernels(results: dict[str, Result], name: str, tmp_path: Path) -> None:
    result = results[name]
    said = explain(result)
    assert len(said.kernels) == len(result.plan.steps) > 0
    names = {r for k in said.kernels for r in k.rules or ()}
    assert all(k.rules is not None for k in said.kernels)
    known = kernels(backends())
    (block,) = cut(expand(result.plan.graph))
    lowered = lower(block.graph)
    worker = Worker.start()
    try:
        program = load_rules("reassociating", patterns(known), files=programs_with(names, tmp_path))
        snapshot = saturate(lowered, program, Limits(), worker).snapshot
    finally:
        worker.close()
    index = Index.of(snapshot)
    for s in result.plan.steps:
        meaning = pattern(s.call.meaning)
        assert any(any(index.match(meaning, n, Match())) for n in range(len(snapshot.classes))), s.call.meaning


def test_what_was_written_needs_no_rule(results: dict[str, Result]) -> None:
    assert [k.rules for k in explain(results["as written"]).kernels if "gemm" in k.facts["kernel"]] in ([()], [])
    assert any(k.rules for k in explain(results["chain"]).kernels)


def test_a_plan_alone_is_explained_alike(results: dict[str, Result]) -> None:
    result = results["chain"]
    assert explain_plan(result.plan, result.kernels).to_json() == explain(result).to_json()


def test_every_kernel_names_its_line_and_its_cost(results: dict[str, Result]) -> None:
    for k in explain(results["chain"]).kernels:
        assert all(re.search(r"test_explain\.py:\d+$", s) for s in k.facts["sources"]) and k.facts["sources"]
        assert k.facts["low"] <= k.facts["seconds"] <= k.facts["high"]
        assert k.facts["runner_up"] is None or k.facts["runner_up"]["seconds"] > 0


def test_explanations_print(results: dict[str, Result]) -> None:
    text = str(results["chain"].explain())
    for k in explain(results["chain"]).kernels:
        assert k.facts["kernel"] in text
        assert all(r in text.replace("\n", " ") for r in k.rules or ())


def test_rules_that_are_gone_are_said_to_be_gone(results: dict[str, Result], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("waxeq.egraph.rules.rule_files", lambda: tuple(programs_with(set(), tmp_path)))
    monkeypatch.setattr("waxeq.inspect.explain.rule_files", lambda: tuple(programs_with(set(), tmp_path)))
    result = results["chain"]
    said = explain_plan(result.plan, result.kernels)
    assert any(k.rules is None for k in said.kernels) and "cannot be traced back" in said.notes[0]
