"""A program for ranges of sizes: a call says what the sizes are, and runs the plan of the interval they lie in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from waxeq.backend.discover import backends
from waxeq.backend.discover import kernels as installed
from waxeq.backend.kernel import Kernel
from waxeq.forks import renewed_in_children
from waxeq.ir.array import FIXED, as_array
from waxeq.runtime.arena import Arena
from waxeq.runtime.arguments import ordered
from waxeq.runtime.layout import Reader, reader
from waxeq.runtime.program import Program
from waxeq.runtime.quiet import used_elsewhere
from waxeq.runtime.save import Saved, by_kind, save_data
from waxeq.symbolic.dims import Sizes
from waxeq.symbolic.file import decode_sized, encode_sized
from waxeq.symbolic.plan import SizedPlan, SizedPlans, of_ranges
from waxeq.symbolic.size import Size, holes

Value = TypeVar("Value")
_KEPT = 16
"""Sizes whose programs are kept; another one is bound anew, which compiles nothing."""


@dataclass(frozen=True)
class SizedSaved:
    """A plan for ranges of sizes with the tensors it is bound to and the inputs it was saved with."""

    plans: SizedPlans
    tensors: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]

    def at(self, sizes: Sizes, kernels: Mapping[str, Kernel]) -> Saved:
        """The plan at some sizes, and inputs of these: those that were saved, cut or repeated along axes that have
        others. Raises PlanError, also for sizes that are out of range."""
        plan = self.plans.interval(sizes).plan.at(sizes, of_ranges(kernels))
        inputs = {n: _resized(a, self.plans.takes[n], sizes) for n, a in self.inputs.items()}
        return Saved(plan, self.tensors, inputs)


def _resized(a: np.ndarray, wants: Sequence[int | str | Size], sizes: Sizes) -> np.ndarray:
    for axis, want in enumerate(wants):
        size = want if isinstance(want, int) else sizes[want] if isinstance(want, str) else want.at(sizes)
        if size != a.shape[axis]:
            a = np.take(a, range(size), axis, mode="wrap")
    return a


class SizedProgram:
    """`program(*inputs)` on inputs of any size in the ranges of `plans.dims`; by position or by name.

    A size that was not met lately is bound first: sizes, strides and offsets are worked out, which takes from a few to
    a hundred milliseconds. Nothing is compiled and nothing searched. All sizes share one arena, of the largest that was
    met. One caller at a time: `copy.copy(program)` shares the weights and has memory of its own; `copy.deepcopy` and
    pickle copy the weights too.
    """

    def __init__(self, plans: SizedPlans, kernels: Mapping[str, Kernel], tensors: Mapping[str, np.ndarray]) -> None:
        """`tensors`: arrays of weights by name."""
        self.plans, self.kernels, self.tensors = plans, of_ranges(kernels), tensors
        self._names = tuple(plans.takes)
        self._nested = any("." in n for n in self._names)
        self._reader: Reader | None = None
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], Program] = OrderedDict()
        self._folded: dict[int, dict[str, np.ndarray]] = {}
        self._arena = Arena(0)
        self._last: Program | None = None
        self._turn = Lock()  # programs of several sizes share the arena
        renewed_in_children(self, SizedProgram._forked)

    def __copy__(self) -> SizedProgram:
        return SizedProgram(self.plans, self.kernels, self.tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (encode_sized(self.plans), dict(self.plans.constants), dict(self.tensors))

    def __repr__(self) -> str:
        takes = ", ".join(
            f"{n}: [{', '.join(str(getattr(x, 'expr', x)) for x in t)}]" for n, t in self.plans.takes.items()
        )
        ranges = ", ".join(map(str, self.plans.dims))
        return f"<SizedProgram {self.plans.name}({takes}) for {ranges}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run once. Returns results in the structure the model gives them in. Raises TypeMismatch, in one sentence,
        for sizes that contradict each other or are out of range, and for inputs that are missing or of another
        dtype; UsageError when another thread is in a call."""
        return self._alone(self._called, args, named)

    def flat_results(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once on inputs by name; results by name. Raises as a call does."""
        return self._alone(self._flat, inputs)

    def _alone(self, run: Callable[..., Value], *given: Any) -> Value:
        """A run while no other thread is in one. Raises UsageError where one is."""
        if not self._turn.acquire(blocking=False):
            raise used_elsewhere()
        try:
            return run(*given)
        finally:
            self._turn.release()

    def _forked(self) -> None:
        self._turn = Lock()

    def _called(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        flat = None if self._reader is None else self._reader(args, named)
        if flat is None and not named and len(args) == len(self._names):
            flat = args
        if flat is not None:
            found = self._met(flat)
            if found is not None:
                return found(*flat)
        rows = self._ordered(args, named)
        if named or self._nested:
            self._reader = reader(args, named, rows)
        return self.program(self._shapes(rows))(*rows)

    def _flat(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if len(inputs) == len(self._names):
            found = self._met([inputs.get(n) for n in self._names])
            if found is not None:
                return found.flat_results(inputs)
        rows = self._ordered((), inputs)
        return self.program(self._shapes(rows)).flat_results(dict(zip(self._names, rows, strict=True)))

    def sizes(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """The size of every dim in these inputs. Raises TypeMismatch."""
        rows = self._ordered((), inputs)
        return self.plans.sizes(dict(zip(self._names, self._shapes(rows), strict=True)))

    def program(self, shapes: Sequence[tuple[int, ...]]) -> Program:
        """The program for inputs of these shapes, in order."""
        key = tuple(shapes)
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = self._bound(self.plans.sizes(dict(zip(self._names, key, strict=True))))
            while len(self._programs) > _KEPT:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        self._last = found
        return found

    def _met(self, args: Sequence[Any]) -> Program | None:
        """The program for arguments whose shapes were met lately; None for others. What a call of it costs besides is
        a look at the shapes: all else that could be wrong with the arguments, the program looks at."""
        try:
            key = tuple([a.shape for a in args])
            found = self._programs.get(key)
        except (AttributeError, TypeError):
            return None
        if found is not None and found is not self._last:
            self._programs.move_to_end(key)
            self._last = found
        return found

    def _bound(self, sizes: Sizes) -> Program:
        sized = self.plans.interval(sizes).plan
        plan = sized.at(sizes, self.kernels)
        if plan.arena_bytes > self._arena.bytes:
            self._programs.clear()  # they lie in the smaller one, which goes: there may be no room for both
            self._last, self._arena = None, Arena(0)
            self._arena = Arena(plan.arena_bytes)
        known = self._folded.setdefault(id(sized), {})
        made = Program(plan, self.kernels, {**self.tensors, **known}, self._arena)
        if not plan.written:
            known |= {n: a for n, a in made.folded.items() if n in _fixed(sized)}
        return made

    def _ordered(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[np.ndarray]:
        rows = ordered(args, named, dict.fromkeys(self._names, ""), self.plans.about.get(FIXED))
        return [
            as_array(a, f"input {n!r}", "the program takes an array") for n, a in zip(self._names, rows, strict=True)
        ]

    @staticmethod
    def _shapes(rows: Sequence[np.ndarray]) -> tuple[tuple[int, ...], ...]:
        return tuple(a.shape for a in rows)

    def save(self, path: str | Path, inputs: Mapping[str, np.ndarray] | None = None) -> None:
        """Write the plan, and its weights beside it. Raises PlanError."""
        save_sized(path, self.plans, self.tensors, inputs)


def save_sized(
    path: str | Path,
    plans: SizedPlans,
    tensors: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray] | None = None,
    option: str = "",
) -> None:
    """Write a plan for ranges of sizes, and its weights beside it. Raises PlanError; `option` names another place."""
    save_data(path, encode_sized(plans), by_kind(tensors, plans.constants, inputs), option)


def _again(
    data: Mapping[str, Any], constants: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]
) -> SizedProgram:
    """A program that was copied or pickled."""
    return SizedProgram(decode_sized(data, constants), installed(backends()), tensors)


def _fixed(plan: SizedPlan) -> set[str]:
    """What is folded of weights alone, whatever the sizes."""
    return {f["writes"] for f in plan.data["folds"] if not holes(f)}
