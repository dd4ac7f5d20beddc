"""Proof by running: a plan against the float64 reference, and against the model as written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from waxeq.errors import AccuracyError
from waxeq.ir.graph import Graph
from waxeq.ir.interpret import interpret
from waxeq.ir.types import is_float
from waxeq.runtime.backward import Steps, stepped
from waxeq.runtime.rows import STEP, sampled, some_rows
from waxeq.runtime.timing import relative_error

_ROUNDING, _ALIKE = 1e-3, 1.5
"""The most that a model is off by rounding (that of float16), and how far the sizes of some rows and of all may be
apart, for some rows to say how exact all are."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of one output against float64: of the plan and of the model as written, each (max, RMS) over the RMS of
    the reference. `exact`: of whole numbers and bools, which are to be those of the model as written. `empty`: the
    reference has elements and none is finite, so there was nothing to compare. `stepped`: these are whole numbers that
    rise in steps with a float and are not all those of the model; errors are by how much that must have been off.
    `rows`: the reference is of one row in so many; all rows are no further from the model as written than two right
    ones are from each other."""

    output: str
    plan: tuple[float, float]
    written: tuple[float, float]
    exact: bool
    empty: bool = False
    stepped: bool = False
    rows: int = 1


@dataclass(frozen=True)
class Truth:
    """What a model should compute on given inputs and weights (the reference in float64), and what it computes as
    written, in so many `seconds` of the core of the thread that ran it, with the `errors` of that, of outputs that are
    floats. `given`: what the model is run on, where the reference is of `rows.sampled` of each output."""

    graph: Graph
    oracle: Mapping[str, np.ndarray]
    written: Mapping[str, np.ndarray]
    seconds: float
    errors: Mapping[str, tuple[float, float]]
    steps: Mapping[str, Steps] = field(default_factory=dict)
    given: Mapping[str, np.ndarray] | None = None

    @staticmethod
    def of(
        graph: Graph, inputs: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray], *, apart: bool = False
    ) -> Truth:
        """Run the model as written and in float64, both at the same time when `apart`. States are as `tensors` has
        them."""
        given = {**graph.constants, **tensors, **inputs}
        steps = stepped(graph)
        more = tuple((f"%{s.value}", s.value) for s in steps.values())
        floats = [n for n, v in graph.outputs if is_float(graph.type(v).dtype)]
        with ThreadPoolExecutor(1) as other:
            found = other.submit(_timed, graph, given) if apart else None
            some = some_rows(graph) if len(floats) == len(graph.outputs) else None
            if some is None:
                oracle = interpret(replace(graph, outputs=(*graph.outputs, *more)), given, oracle=True)
            else:
                oracle = interpret(some.graph, some.given(given), oracle=True)
            written, took = _timed(graph, given) if found is None else found.result()
        errors = {n: relative_error(_of(written[n], some is not None), oracle[n]) for n in floats}
        truth = Truth(graph, oracle, written, took, errors, steps, None if some is None else given)
        return truth if some is None or all(truth.speaks_for_all(n) for n in floats) else truth.of_all_rows

    @cached_property
    def of_all_rows(self) -> Truth:
        """The same with a reference of all rows."""
        assert self.given is not None
        oracle = interpret(self.graph, self.given, oracle=True)
        errors = {n: relative_error(self.written[n], oracle[n]) for n in self.errors}
        return replace(self, oracle=oracle, errors=errors, given=None)

    def speaks_for_all(self, name: str) -> bool:
        """Whether a reference of some rows says how exact the model is in all: all its numbers are finite, those of the
        other rows are of about the same size, and what it is off is what rounding leaves."""
        a = self.written[name]
        if not a.size:
            return True
        if not np.isfinite(a).all() or self.errors[name][1] > _ROUNDING:
            return False
        whole, part = (np.sqrt(np.mean(np.square(x, dtype=np.float64))) for x in (a, _of(a, True)))
        return bool(whole <= _ALIKE * part and part <= _ALIKE * whole)

    def _doubted(self, name: str, got: np.ndarray) -> bool:
        """Whether a result is further from the model's, in all rows, than two that are both right would be."""
        alike = got.shape == self.written[name].shape
        return alike and relative_error(got, self.written[name])[1] > 2 * self.errors[name][1]

    def accuracy(self, got: Mapping[str, np.ndarray]) -> tuple[Accuracy, ...]:
        """Errors of results, output by output."""
        if self.given is not None and any(self._doubted(name, got[name]) for name, _ in self.graph.outputs):
            return self.of_all_rows.accuracy(got)
        rows = []
        for name, v in self.graph.outputs:
            if not is_float(self.graph.type(v).dtype):
                rows.append(self._whole(name, got[name]))
            else:
                empty = self.oracle[name].size > 0 and not np.isfinite(self.oracle[name]).any()
                errors = self._errors(name, got[name])
                rows.append(Accuracy(name, *errors, False, empty, rows=1 if self.given is None else STEP))
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
        if got.shape != written.shape:  # which may fit each other, and is wrong
            return (np.inf, np.inf), own
        if self.given is not None:
            return relative_error(_of(got, True), oracle), own
        if np.isfinite(own[1]):
            return relative_error(got, oracle), own
        wide = written.astype(np.float64)
        alike = (np.isfinite(wide) & np.isfinite(oracle)) | (wide == oracle) | (np.isnan(wide) & np.isnan(oracle))
        return relative_error(got[alike], oracle[alike]), relative_error(written[alike], oracle[alike])


def _of(results: np.ndarray, some: bool) -> np.ndarray:
    return results[sampled(len(results))] if some else results


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
