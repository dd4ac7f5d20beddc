"""What `optimize` returns: a plan that explains itself and a program that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from waxeq.backend.kernel import Kernel
from waxeq.extract.choice import Choice
from waxeq.plan.plan import Plan
from waxeq.runtime.program import Program
from waxeq.runtime.verify import Accuracy
from waxeq.search.block import Optimized


@dataclass(frozen=True)
class Trial:
    """Plan against model as written, interleaved in a fresh process: seconds (medians), ratio with a 95 % interval."""

    plan: float
    written: float
    ratio: float
    low: float
    high: float
    verdict: str
    remembered: bool = False


@dataclass(frozen=True)
class Report:
    """What happened on the way to the plan. `notes` are sentences a user should read (limits hit, estimates,
    fallbacks). `blocks` counts repeats; `predicted` is of the plan that was found, kept or not; `interrupted` says that
    the user stopped the search. Times in seconds.
    """

    blocks: int = 0
    predicted: float = 0.0
    interrupted: bool = False
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    accuracy: tuple[Accuracy, ...] = ()
    trial: Trial | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
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
        """The plan bound to its weights: `result.program(*inputs)`."""
        return Program(self.plan, self.kernels, self.tensors)

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
