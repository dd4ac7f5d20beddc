"""What is measured. Each experiment gives a table: a title, what the columns are, rows of text and numbers."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import overhead as tiny
from benchmarks.contest import Row, hold
from benchmarks.layers import decoder
from benchmarks.peers import ONNX_GRAPHS
from benchmarks.workloads import WORKLOADS
from waxeq.compile import assemble, optimize_traced
from waxeq.events import Deadline, Events
from waxeq.frontend.load import load_target
from waxeq.frontend.trace import Traced, trace
from waxeq.options import Options
from waxeq.runtime.measure import Samples, compare, in_fresh_process
from waxeq.runtime.save import save_plan
from waxeq.search.profile import profile
from waxeq.search.result import Result
from waxeq.search.session import Session

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@dataclass(frozen=True)
class Table:
    """Measured rows under a title; `notes` say how to read them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """What every experiment is given: threads for all contestants, the timing table, seconds for one contest."""

    threads: int
    table: Path
    budget: float

    def options(self, **more: Any) -> Options:
        return Options.of(threads=self.threads, **{"table": self.table, **more})

    def optimize(self, traced: Traced, **more: Any) -> Result:
        with Session.open(self.options(**more), Events()) as session:
            return optimize_traced(session, traced)

    def traced(self, example: str) -> Traced:
        found = load_target(str(EXAMPLES / f"{example}.py"))
        return trace(found.fn, found.example, weights=found.weights, name=found.name, origin=found.origin)

    def contest(
        self, example: str, results: Mapping[str, Result], traced: Traced, peers: Sequence[str]
    ) -> tuple[Row, ...]:
        with _saved(results, traced) as plans:
            path = str(EXAMPLES / f"{example}.py")
            return hold(path, plans, peers, threads=self.threads, budget=self.budget)


@contextmanager
def _saved(results: Mapping[str, Result], traced: Traced) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as d:
        paths = {}
        for n, r in results.items():
            paths[n] = str(Path(d) / f"{n.replace(' ', '_')}.plan.json")
            save_plan(Path(paths[n]), r.plan, r.tensors, traced.inputs)
        yield paths


def examples() -> tuple[str, ...]:
    """Every example but those of the linear-algebra set, which has a table of its own."""
    return tuple(p.stem for p in sorted(EXAMPLES.glob("*.py")) if p.stem not in ONNX_GRAPHS)


def linear(bench: Bench) -> Table:
    """The linear-algebra set against NumPy, jax.jit and ONNX Runtime."""
    rows = []
    for name in ONNX_GRAPHS:
        traced = bench.traced(name)
        result = bench.optimize(traced)
        rows += _versus(name, bench.contest(name, {"waxeq": result}, traced, ("numpy", "jax", "ort")))
    return Table("Linear algebra, n = 2000, float32", _COLUMNS, tuple(rows), _NOTES)


def gains(bench: Bench) -> Table:
    """Every other example against the NumPy it was traced from."""
    rows = []
    for name in examples():
        traced = bench.traced(name)
        result = bench.optimize(traced)
        kept = " (kept as written)" if result.plan.written else ""
        rows += _versus(name + kept, bench.contest(name, {"waxeq": result}, traced, ("numpy",)))
    return Table("Examples against the NumPy they were traced from", _COLUMNS, tuple(rows), _NOTES)


_COLUMNS = ("example", "contestant", "median ms", "waxeq is faster by", "95 % interval", "error")
_NOTES = (
    "Interleaved in one fresh process; ratios are medians of paired rounds; error is relative RMS against float64.",
)


def _versus(name: str, rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    for r in rows:
        v = r.versus
        ratio, interval = (f"{v.ratio:.2f}x", f"{v.low:.2f} to {v.high:.2f}") if v else ("", "")
        yield (name, r.name, round(r.seconds * 1e3, 3), ratio, interval, f"{r.error:.1e}")


def layers(bench: Bench) -> Table:
    """Optimize time of models of identical layers, cold and warm, without the time kernels take to be measured."""
    rows = [(f"encoder, {n}", *_stack(bench, _encoder(n))) for n in (1, 6, 12, 24)]
    rows += [(f"decoder, {n}", *_stack(bench, decoder(n))) for n in (2, 48)]
    columns = ("layers", "ops", "blocks", "distinct", "e-nodes", "cold s", "measuring s", "warm s")
    return Table("Optimize time by number of identical layers (distinct weights)", columns, tuple(rows), (
        "Encoders are MiniLM's, decoders causal with RMS norms and gated MLPs, 64 wide. Tracing is not included, the "
        "check against float64 is (it grows with the model). Cold: an empty timing table; its time without measuring "
        "kernels and the machine's ceilings. Warm: the same again.",
    ))  # fmt: skip


def _stack(bench: Bench, traced: Traced) -> tuple[Any, ...]:
    """What optimizing a stack of layers takes, first and again."""
    with tempfile.TemporaryDirectory() as d:
        table = Path(d) / "timings.duckdb"
        cold = bench.optimize(traced, table=table, trial=False)
        warm = bench.optimize(traced, table=table, trial=False)
    nodes = sum(int(str(b.facts["e_nodes"])) for b in cold.blocks)
    c, w = cold.report, warm.report
    return (
        len(traced.graph.nodes), c.blocks, len(cold.blocks), nodes,
        round(c.seconds - c.measuring_seconds, 2), round(c.measuring_seconds, 2), round(w.seconds, 2),
    )  # fmt: skip


def _encoder(n: int) -> Traced:
    """MiniLM with n layers; layer i has a copy of the weights of layer i mod 6."""
    found = load_target(str(EXAMPLES / "minilm.py"))
    weights = dict(found.example["weights"])
    for i in range(6, n):
        same = f"encoder.layer.{i % 6}."
        weights |= {
            k.replace(same, f"encoder.layer.{i}."): v.copy()
            for k, v in found.example["weights"].items()
            if k.startswith(same)
        }
    kept = {k: v for k, v in weights.items() if not k.startswith("encoder.layer.") or int(k.split(".")[2]) < n}
    found.fn.__globals__["LAYERS"] = n
    try:
        return trace(found.fn, {**found.example, "weights": kept}, weights=found.weights, name=f"minilm{n}")
    finally:
        found.fn.__globals__["LAYERS"] = 6


def prediction(bench: Bench) -> Table:
    """The predicted time of the plan that was found against its time in a trial."""
    rows, errors = [], []
    for name in (*ONNX_GRAPHS, *examples()):
        report = bench.optimize(bench.traced(name)).report
        if report.trial is not None:
            errors.append(abs(report.predicted / report.trial.plan - 1))
            rows.append(
                (name, round(report.predicted * 1e3, 3), round(report.trial.plan * 1e3, 3), f"{errors[-1]:.0%}")
            )
    rows.append(("median", "", "", f"{statistics.median(errors):.0%}"))
    return Table(
        "Predicted against measured plan time", ("example", "predicted ms", "measured ms", "error"), tuple(rows)
    )


@dataclass(frozen=True)
class Ranked:
    """The plans of one example in the order of their predicted times: their measured seconds, which of them no timing
    tells from the fastest, how far each prediction is off, and how many calls that matter were not timed."""

    example: str
    times: tuple[float, ...]
    fastest: frozenset[int]
    errors: tuple[float, ...]
    undecided: int

    @staticmethod
    def of(bench: Bench, example: str) -> Ranked:
        """After a profile of _PROFILED seconds, so that most kernels that could be part of these plans were measured.
        Plans that ran are not run again with the same `--table`."""
        with Session.open(bench.options(budget=None, trial=False), Events()) as session:
            traced, kernels = bench.traced(example), Deadline(_PROFILED)
            done = profile(
                session, traced, assemble, plans=_RANKED, clock=Deadline(None), together=_RANKED, kernels=kernels
            )
        errors = tuple(abs(path.seconds / ran.seconds - 1) for path, ran in done.plans)
        return Ranked(example, tuple(ran.seconds for _, ran in done.plans), done.fastest, errors, done.undecided)

    @property
    def least(self) -> int:
        """The place of the least median, from 1."""
        return self.times.index(min(self.times)) + 1

    @property
    def first(self) -> int:
        """The place of the first plan that is not told from the fastest, from 1."""
        return min(self.fastest) + 1

    @property
    def loss(self) -> float:
        """What the best of the first ones takes, over the best of all."""
        return min(self.times[:_AMONG]) / min(self.times)

    def row(self) -> tuple[Any, ...]:
        error = f"{statistics.median(self.errors):.0%}"
        counts = len(self.times), self.least, len(self.fastest), self.first
        return self.example, *counts, f"{self.loss:.2f}x", error, self.undecided


def ranking(bench: Bench) -> Table:
    """The plans that are predicted to be the fastest, run whole: where is the one that is, and how far are the
    predictions off?"""
    return ranks([Ranked.of(bench, name) for name in (*ONNX_GRAPHS, *examples())])


def ranks(found: Sequence[Ranked]) -> Table:
    """One row for each example, and one for all."""

    def of(count: int) -> str:
        return f"{count} of {len(found)}"

    least, first = (of(sum(getattr(r, n) <= _AMONG for r in found)) for n in ("least", "first"))
    near = of(sum(r.loss <= _NEAR for r in found))
    error = f"{statistics.median(e for r in found for e in r.errors):.0%}"
    among = f"among {_AMONG}"
    whole = "all", "", f"{least} {among}", "", f"{first} {among}", f"{near} within {_NEAR - 1:.0%}", error, ""
    columns = (
        "example", "plans run", "place of the least median", "not told from it", "place of the first of those",
        f"best of the first {_AMONG} takes", "median error", "could still change the winner",
    )  # fmt: skip
    return Table(f"The {_RANKED} plans predicted to be the fastest, run", columns, (*(r.row() for r in found), whole), (
        "Places are by predicted time; plans are timed by turns in one process. Many differ by less than can be seen: "
        "those whose ratio to the least median has a 95 % interval that reaches 1 are not told from it, and any of "
        "them may be the fastest. The error is of predicted against measured time of whole plans. Kernels are timed "
        "for a minute; the last column says how many calls were not timed by then that could be part of a better plan.",
    ))  # fmt: skip


_RANKED, _AMONG, _NEAR = 20, 5, 1.02
_PROFILED = 60.0
"""Seconds from the start of an example's search in which its kernels are timed: for MiniLM all of them would take an
hour, and those that may change the winner come first."""


def overhead(bench: Bench) -> Table:
    """What a call costs beyond the arithmetic: 64 operations on 64 x 64 against one loop in C, written by hand."""
    workload = WORKLOADS[tiny.ROW]
    traced = trace(workload.fn, workload.make(), name=tiny.ROW)
    with _saved({"waxeq": bench.optimize(traced)}, traced) as plans:
        job = (plans["waxeq"], bench.budget)
        times, errors = in_fresh_process(tiny.take, job, threads=bench.threads)
    samples = {n: Samples(tuple(s)) for n, s in times.items()}
    c = compare(samples[tiny.HAND], samples[tiny.PLAN])
    own = round(samples[tiny.PLAN].median * 1e6, 2), f"{c.ratio:.2f}x ({c.low:.2f} to {c.high:.2f})"
    rows = (
        (tiny.PLAN, *own, f"{errors[tiny.PLAN]:.1e}"),
        (tiny.HAND, round(samples[tiny.HAND].median * 1e6, 2), "", f"{errors[tiny.HAND]:.1e}"),
    )
    columns = ("contestant", "microseconds a call", "of the time by hand", "error")
    return Table("The cost of a call: 64 operations on 64 x 64, float32", columns, rows, (
        "The loop by hand is built with the compiler and flags of generated kernels. A plan's call checks its inputs, "
        "and its result is an array of its own.",
    ))  # fmt: skip


def ablations(bench: Bench) -> Table:
    """What each part brings: times over that of the whole, for plans that were not allowed it."""
    without = {"no polish": {"polish": False}, "roofline cost": {"cost": "roofline"}, "no algebra": {"algebra": False}}
    rows = []
    for name in (*ONNX_GRAPHS, *examples()):
        traced = bench.traced(name)
        for o in ({}, *without.values()):  # what one of them measures the others would else not know
            bench.optimize(traced, trial=False, fresh=True, **o)
        results = {"waxeq": bench.optimize(traced, trial=False, fresh=True)}
        results |= {n: bench.optimize(traced, trial=False, fresh=True, **o) for n, o in without.items()}
        times = {r.name: r for r in bench.contest(name, results, traced, ())}
        rows.append((name, round(times["waxeq"].seconds * 1e3, 3), *(_ratio(times[n]) for n in without)))
    notes = ("Over 1: the plan without it is slower. Plans are as chosen, not replaced by the model as written.",)
    return Table("Ablations", ("example", "whole, ms", *without), tuple(rows), notes)


def _ratio(row: Row) -> str:
    assert row.versus is not None
    return f"{row.versus.ratio:.2f} ({row.versus.low:.2f} to {row.versus.high:.2f})"


EXPERIMENTS = {
    "linear": linear,
    "examples": gains,
    "layers": layers,
    "prediction": prediction,
    "ranking": ranking,
    "overhead": overhead,
    "ablations": ablations,
}
