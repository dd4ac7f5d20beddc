"""Explanations are true: the rules that are named are enough to find the kernel again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from waxeq.backend.discover import backends, kernels
from waxeq.compile import optimize
from waxeq.cost.estimate import SOURCES
from waxeq.cost.table import TimingTable
from waxeq.egraph.installed import rule_files
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import Apply, Expr, Lit, Var, load_rules, read_file
from waxeq.egraph.saturate import Limits, Saturation, Stop, Worker, saturate
from waxeq.events import Events
from waxeq.frontend.trace import trace
from waxeq.inspect.derive import derivations, laws, whole
from waxeq.inspect.explain import explain, explain_plan
from waxeq.inspect.match import Index, Match
from waxeq.inspect.show import time_
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.ir.term import Term
from waxeq.options import Options
from waxeq.runtime.save import load_plan
from waxeq.search.admission import admit, uncertified
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


def normalized_product(x, g, b, w):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return ((x - mean) / np.sqrt(variance + 1e-5) * g + b) @ w


def scaled_softmax(x, g, b, w):
    e = np.exp(x / 3.0 - np.max(x / 3.0, axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True) - 0.0 + b * 1.0) @ w / g.sum()


@pytest.mark.parametrize("model", [normalized_product, scaled_softmax])
def test_every_e_node_is_traced_back(model: Callable[..., np.ndarray]) -> None:
    """Also where a rule put something simpler in place of what the derivation goes through: a mean is a division by a
    number, which is read back as a product with its reciprocal."""
    example = {"x": array(6, 8), "g": array(8), "b": array(8), "w": array(8, 3)}
    graph = trace(model, example, weights={"g", "b", "w"}).graph
    meanings = patterns(kernels(backends(["numpy"])))
    rules = [r for p in rule_files() for r in read_file(p).rules if r.cls in ("exact", "reassociating")]
    (block,) = cut(expand(graph))
    lowered, worker = lower(block.graph), Worker.start()
    try:
        snapshot = saturate(lowered, load_rules("reassociating", meanings), Limits(60_000), worker).snapshot
    finally:
        worker.close()
    assert any(c.replaced for c in snapshot.classes)
    wanted = [(i, n) for i, c in enumerate(snapshot.classes) for n in c.nodes]
    found = derivations(Index.of(whole(snapshot, lowered)), lowered, laws(rules, meanings), wanted)
    assert found.complete and not [str(n) for (i, n), names in found.rules.items() if names is None]


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
        other = k.facts["runner_up"]
        assert other is None or (other["seconds"] > 0 and other["basis"] in SOURCES)


def test_explanations_print(results: dict[str, Result]) -> None:
    text = str(results["chain"].explain())
    said = explain(results["chain"]).kernels
    assert any(k.facts["runner_up"] for k in said)
    for k in said:
        other = k.facts["runner_up"]
        assert k.facts["kernel"] in text
        assert other is None or f"{other['kernel']}, {time_(other['seconds'])} {other['basis']}" in text
        assert all(r in text.replace("\n", " ") for r in k.rules or ())


def test_rules_that_are_gone_are_said_to_be_gone(results: dict[str, Result], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("waxeq.egraph.rules.rule_files", lambda: tuple(programs_with(set(), tmp_path)))
    monkeypatch.setattr("waxeq.inspect.explain.rule_files", lambda: tuple(programs_with(set(), tmp_path)))
    result = results["chain"]
    said = explain_plan(result.plan, result.kernels)
    assert any(k.rules is None for k in said.kernels) and "cannot be traced back" in said.notes[0]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A plan that says what the model says: rules write `- 0.125` in another way."""

    def model(x):
        for _ in range(2):
            x = np.maximum(np.maximum(x[:-2], x[1:-1]), x[2:]) - 0.125
            x = np.minimum(x[:, :-2], x[:, 2:])
        return x

    table = tmp_path_factory.mktemp("table") / "t.duckdb"
    options = Options.of(table=table, trial=False, measure=False, threads=1, budget=0, backends=("numpy",))
    return optimize(model, array(60, 50), options=options, events=Events())


def test_a_kernel_that_no_rule_leads_to_leaves_the_others_explained(filtered: Result) -> None:
    """Those that read what it makes too, though nobody knows what that is."""
    plan = filtered.plan
    assert len(plan.steps) > 2 and all(s.writes in plan.steps[i + 1].reads for i, s in enumerate(plan.steps[:-1]))
    for i, s in enumerate(plan.steps):
        other = replace(s, call=replace(s.call, meaning=Term("Map", "tanh", s.call.meaning)))
        rows = tuple(other if n == i else step for n, step in enumerate(plan.steps))
        said = explain_plan(replace(plan, steps=rows), filtered.kernels)
        assert [n for n, k in enumerate(said.kernels) if k.rules is None] == [i]


def test_what_is_as_the_model_says_it_is_said_to_be_that(filtered: Result) -> None:
    said = explain_plan(filtered.plan, filtered.kernels)
    assert any("- 0.125" in k.facts["what"] for k in said.kernels)
    assert all(k.rules == () for k in said.kernels) and said.notes == ()
    assert "none are needed: nothing in it was rewritten" in str(said) and "not traced back" not in str(said)


def test_a_border_of_nan_is_the_models_own(tmp_path: Path) -> None:
    """No NaN is equal to another one, and the e-node that has one is its own all the same."""
    options = Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=1, budget=0)
    result = optimize(lambda x: np.pad(np.tanh(x), 1, constant_values=np.nan) * 3.0, array(60, 50), options=options)
    assert result.plan.steps and all(k.rules == () for k in explain_plan(result.plan, result.kernels).kernels)


def test_an_explanation_grows_nothing(filtered: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """That took minutes for values that can be fused in hundreds of ways; a call says itself what it computes."""

    def grown(*args: object) -> None:
        pytest.fail("calls were grown as in a search")

    monkeypatch.setattr("waxeq.extract.cuts.Cuts.__init__", grown)
    assert all(k.rules is not None for k in explain_plan(filtered.plan, filtered.kernels).kernels)


CUT_OFF = {
    "deriving": "looking for rules was stopped after 0 seconds",
    "saturating": f"applying the rules again was stopped: {Stop.TimeLimit.value}",
}


@pytest.mark.parametrize("limit", CUT_OFF)
def test_what_there_was_no_time_to_look_for_is_said(
    results: dict[str, Result], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(lowered: Lowered, program: RuleProgram, limits: Limits, worker: Worker) -> Saturation:
        return replace(saturate(lowered, program.bare(), limits, worker), stop=Stop.TimeLimit)

    result, before = results["chain"], explain(results["chain"])
    assert any(k.rules for k in before.kernels)
    if limit == "saturating":
        monkeypatch.setattr("waxeq.inspect.explain.saturate", cut_off)
        found = explain_plan(result.plan, result.kernels)
    else:
        monkeypatch.setattr("waxeq.inspect.explain._SECONDS", 0.0)
        monkeypatch.setattr("waxeq.inspect.explain._LEAST", 0.0)
        found = explain(result)
    assert [k.rules is None for k in found.kernels] == [bool(k.rules) for k in before.kernels]
    assert found.notes == (f"{CUT_OFF[limit]}; which rules led to kernels that are not traced back is not said",)


OWN = """(ruleset mine)

; max(a, b) + min(a, b) = a + b
;; reassociating
(rewrite (Add (Zip "max" a b) (Zip "min" a b)) (Add a b) :ruleset mine :name "mine/max-plus-min")

; a rule that leads nowhere here
;; reassociating
(rewrite (Zip "max" a (Zip "min" a b)) a :ruleset mine :name "mine/absorb")
"""


@pytest.fixture
def with_own_rules(tmp_path: Path) -> Result:
    """A result that a rule of the user's own led to; the rule file is gone."""
    path, table = tmp_path / "mine.egg", tmp_path / "t.duckdb"
    path.write_text(OWN)
    for file, rule in uncertified(TimingTable.open(table), [path]):
        admit(TimingTable.open(table), file, rule, "for this test")
    options = Options.of(table=table, rules=(path,), trial=False, measure=False, threads=1)
    result = optimize(lambda x, y: np.maximum(x, y) + np.minimum(x, y), array(6, 5), array(6, 5), options=options)
    path.unlink()
    return result


def test_rules_of_the_users_own_are_named_from_the_plan_alone(with_own_rules: Result, tmp_path: Path) -> None:
    with_own_rules.save(tmp_path / "own.plan.json")
    assert str(tmp_path) not in (tmp_path / "own.plan.json").read_text()
    saved = load_plan(tmp_path / "own.plan.json").plan
    for said in (explain_plan(saved, with_own_rules.kernels), explain(with_own_rules)):
        assert [k.rules for k in said.kernels] == [("mine/max-plus-min",)] and said.notes == ()
        (own,) = said.to_json()["own_rules"]
        assert own["name"] == "mine/max-plus-min" and own["law"] == "max(a, b) + min(a, b) = a + b"
        assert own["place"] == "mine.egg:5" and own["law"] in str(said) and "mine.egg:5" in str(said)


def test_own_rules_that_have_come_to_be_installed_are_named_once(with_own_rules: Result, monkeypatch, tmp_path) -> None:
    (tmp_path / "installed.egg").write_text(OWN)
    files = (*rule_files(), tmp_path / "installed.egg")
    monkeypatch.setattr("waxeq.inspect.explain.rule_files", lambda: files)
    said = explain_plan(with_own_rules.plan, with_own_rules.kernels)
    assert [k.rules for k in said.kernels] == [("mine/max-plus-min",)]


def test_a_plan_is_traced_back_whatever_kernels_are_installed(tmp_path: Path) -> None:
    """Also those that were too inexact for it, which would rule its candidates out, and variants, which are none."""
    options = Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=2)
    plan = optimize(lambda x: (x * x).mean(), array(256, 512), options=options).plan
    installed = kernels(backends())
    assert any(k.error > options.tolerance for k in installed.values())
    assert all(e.rules is not None for e in explain_plan(plan, installed).kernels)
    about = {k: v for k, v in plan.about["search"].items() if k not in ("tolerance", "backends", "threads")}
    older = replace(plan, about={**plan.about, "search": about})
    assert all(e.rules is not None for e in explain_plan(older, installed).kernels)
    name, variant = next((n, k) for n, k in installed.items() if k.variant_of and k.form == "loops")
    plain = f"{name.partition('.')[0]}.{variant.variant_of}"
    steps = [replace(s, call=replace(s.call, kernel=name)) if s.call.kernel == plain else s for s in plan.steps]
    varied = explain_plan(replace(plan, steps=tuple(steps)), installed)
    assert any(e.facts["kernel"] == name for e in varied.kernels) and all(e.rules is not None for e in varied.kernels)
