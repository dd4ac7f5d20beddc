"""Proof by running: a plan against the float64 reference, and against the model as written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from waxeq.errors import AccuracyError
from waxeq.ir.graph import Graph
from waxeq.ir.interpret import interpret
from waxeq.ir.types import is_float
from waxeq.runtime.backward import Steps, stepped
from waxeq.runtime.timing import relative_error


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of one output against float64: of the plan and of the model as written, each (max, RMS) over the RMS of
    the reference. `exact`: of whole numbers and bools, which are to be those of the model as written. `empty`: the
    reference has elements and none is finite, so there was nothing to compare. `stepped`: these are whole numbers that
    rise in steps with a float and are not all those of the model; errors are by how much that must have been off."""

    output: str
    plan: tuple[float, float]
    written: tuple[float, float]
    exact: bool
    empty: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class Truth:
    """What a model should compute on given inputs and weights (the reference in float64), and what it computes as
    written, in so many `seconds` of the core of the thread that ran it, with the `errors` of that, of outputs that are
    floats."""

    graph: Graph
    oracle: Mapping[str, np.ndarray]
    written: Mapping[str, np.ndarray]
    seconds: float
    errors: Mapping[str, tuple[float, float]]
    steps: Mapping[str, Steps] = field(default_factory=dict)

    @staticmethod
    def of(
        graph: Graph, inputs: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray], *, apart: bool = False
    ) -> Truth:
        """Run the model as written and in float64, both at the same time when `apart`. States are as `tensors` has
        them."""
        given = {**graph.constants, **tensors, **inputs}
        steps = stepped(graph)
        more = tuple((f"%{s.value}", s.value) for s in steps.values())
        with ThreadPoolExecutor(1) as other:
            found = other.submit(_timed, graph, given) if apart else None
            oracle = interpret(replace(graph, outputs=(*graph.outputs, *more)), given, oracle=True)
            written, took = _timed(graph, given) if found is None else found.result()
        floats = [n for n, v in graph.outputs if is_float(graph.type(v).dtype)]
        return Truth(graph, oracle, written, took, {n: relative_error(written[n], oracle[n]) for n in floats}, steps)

    def accuracy(self, got: Mapping[str, np.ndarray]) -> tuple[Accuracy, ...]:
        """Errors of results, output by output."""
        rows = []
        for name, v in self.graph.outputs:
            if not is_float(self.graph.type(v).dtype):
                rows.append(self._whole(name, got[name]))
            else:
                empty = self.oracle[name].size > 0 and not np.isfinite(self.oracle[name]).any()
                rows.append(Accuracy(name, *self._errors(name, got[name]), False, empty))
        return tuple(rows)

    def _whole(self, name: str, got: np.ndarray) -> Accuracy:
        """Of a result that is no float."""
        written, steps = self.written[name], self.steps.get(name)
        if np.array_equal(got, written):
            return Accuracy(name, (0.0, 0.0), (0.0, 0.0), True)
        if steps is None or got.shape != written.shape:
            return Accuracy(name, (np.inf, np.inf), (0.0, 0.0), True)
        exact = self.oracle[f"%{steps.value}"]
        found, own = (steps.error(exact, x, written) for x in (got, written))
        return Accuracy(name, found, own if np.isfinite(own[1]) else (0.0, 0.0), False, stepped=True)

    def _errors(self, name: str, got: np.ndarray) -> tuple[tuple[float, float], tuple[float, float]]:
        """Of a plan's result, and of the model's as written: where that overflows and float64 does not, or the other
        way round, of all other elements."""
        oracle, written, own = self.oracle[name], self.written[name], self.errors[name]
        if got.shape != oracle.shape:  # which may fit each other, and is wrong
            return (np.inf, np.inf), own
        if np.isfinite(own[1]):
            return relative_error(got, oracle), own
        wide = written.astype(np.float64)
        alike = (np.isfinite(wide) & np.isfinite(oracle)) | (wide == oracle) | (np.isnan(wide) & np.isnan(oracle))
        return relative_error(got[alike], oracle[alike]), relative_error(written[alike], oracle[alike])


def _timed(graph: Graph, given: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], float]:
    begun = time.thread_time()  # of a core that others have as well no more counts than what it did
    return interpret(graph, given), time.thread_time() - begun


def require(rows: tuple[Accuracy, ...], tolerance: float) -> None:
    """Raise AccuracyError when an output is further from the reference than `tolerance` (relative RMS) and than three
    times what the model as written is."""
    for r in rows:
        if r.plan[1] > max(tolerance, 3 * r.written[1]):
            raise AccuracyError(
                f"output {r.output!r} of the plan has relative RMS error {r.plan[1]:.2e} against float64, over the "
                f"tolerance {tolerance:.0e}; the model as written has {r.written[1]:.2e}"
            )
