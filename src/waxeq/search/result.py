"""What `optimize` returns: a plan that explains itself and a program that runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from waxeq.amounts import number_of
from waxeq.backend.kernel import Kernel
from waxeq.errors import UsageError
from waxeq.extract.choice import Choice
from waxeq.plan.encode import encode, running
from waxeq.plan.plan import Plan
from waxeq.runtime.program import Program
from waxeq.runtime.save import save_plan
from waxeq.runtime.verify import Accuracy
from waxeq.search.block import Optimized


@dataclass(frozen=True)
class Trial:
    """Plan against model as written, interleaved in a fresh process: seconds (medians), ratio with a 95 % interval.

    `brief`: they had a turn or a few, which are too few for an interval.
    """

    plan: float
    written: float
    ratio: float
    low: float
    high: float
    verdict: str
    remembered: bool = False
    brief: bool = False

    @property
    def span(self) -> str:
        """The ratio and how sure it is."""
        return f"{self.ratio:.2f}x " + ("in few runs" if self.brief else f"[{self.low:.2f}, {self.high:.2f}]")


@dataclass(frozen=True)
class Report:
    """What happened on the way to the plan. `notes` are sentences a user should read (limits hit, estimates,
    fallbacks). `blocks` counts repeats; `predicted` is of the plan that was found, kept or not; `interrupted` says that
    the user stopped the search; `kept` why the model as written is kept, where whole plans were timed or it is locked:
    what the verdict says, in a sentence. Times in seconds: all of them from the opening of the session on;
    `measuring_seconds` are of kernels and, on a machine that is new to the table, of its ceilings; `opening_seconds`
    until the search could begin: backends (whose library is compiled once), the timing table, the rules.
    """

    blocks: int = 0
    predicted: float = 0.0
    interrupted: bool = False
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    compiling_seconds: float = 0.0
    opening_seconds: float = 0.0
    accuracy: tuple[Accuracy, ...] = ()
    trial: Trial | None = None
    notes: tuple[str, ...] = ()
    kept: str | None = None


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of an optimization.

    `plan` is what runs; `tensors` the weights it is bound to; `blocks` one entry per distinct block.
    """

    plan: Plan
    tensors: Mapping[str, np.ndarray]
    kernels: Mapping[str, Kernel]
    blocks: tuple[Optimized, ...]
    report: Report = field(default_factory=Report)

    @cached_property
    def program(self) -> Program:
        """The plan bound to its weights: `result.program(*inputs)`. They are as they were when it was optimized: what
        is written to them later is seen by some steps and not by others."""
        return Program(self.plan, self.kernels, self.tensors)

    def reported(self, report: Report) -> Result:
        """The same with another report. What was bound when the plan was proved is what runs: folding weights anew
        takes as long as a call of many a model. A plan with states is bound anew, as they are as they were given then,
        and one that has memory of other devices: that is for whoever runs it."""
        found = replace(self, report=report)
        if "program" in self.__dict__ and not self.plan.states and not self.plan.devices:
            found.__dict__["program"] = self.program
        return found

    @cached_property
    def text(self) -> str:
        """The plan as canonical JSON: equal plans have equal texts."""
        return json.dumps(encode(self.plan), sort_keys=True)

    @cached_property
    def runs(self) -> str:
        """A name for what runs, however it was found: the plan, and the texts that its kernels have now."""
        codes = {s.call.kernel: self.kernels[s.call.kernel].code for s in self.plan.steps}
        return hashlib.sha256(json.dumps([running(self.plan), codes], sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        kept = "kept as written" if self.plan.written else number_of(len(self.plan.steps), "kernel")
        trial, errors = self.report.trial, [a.plan[1] for a in self.report.accuracy]
        speed = "" if trial is None else f", {trial.verdict} {trial.span}"
        error = f", error {max(errors):.1e}" if errors else ""
        return f"<Result {self.plan.name}: {kept}{speed}{error}; .program runs it, .explain() says why>"

    def __reduce__(self) -> Any:
        raise UsageError(
            "a Result holds the whole search and is not pickled or copied; pickle result.program, or save the "
            "result and waxeq.load it"
        )

    def save(self, path: str | Path) -> None:
        """Write the plan, and its weights beside it; `waxeq run PATH` and `waxeq.load(PATH)` take it."""
        save_plan(path, self.plan, self.tensors)

    @property
    def choice(self) -> Choice | None:
        """The choice made for the largest block searched; None when every block was remembered."""
        searched = [b for b in self.blocks if b.choice is not None]
        return max(searched, key=lambda b: len(b.block.values)).choice if searched else None

    def explain(self) -> Any:
        """For every kernel of the plan: where it comes from, the rules that led to it, its cost, the runner-up's."""
        return import_module("waxeq.inspect.explain").explain(self)

    def paths(self) -> Iterator[Choice]:
        """All choices for the largest searched block, in rising predicted cost."""
        from waxeq.extract.paths import paths

        searched = [b for b in self.blocks if b.problem is not None]
        if not searched:
            return iter(())
        block = max(searched, key=lambda b: len(b.block.values))
        assert block.problem is not None and block.choice is not None
        return paths(block.problem, block.choice)
