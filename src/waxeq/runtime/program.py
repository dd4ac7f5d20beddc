"""A program: a plan bound to weights and memory, as something to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from waxeq.backend.discover import backends
from waxeq.backend.discover import kernels as kernels_of
from waxeq.backend.kernel import Kernel
from waxeq.errors import PlanError, TypeMismatch, UsageError
from waxeq.ir.array import FIXED
from waxeq.ir.structure import builder, decode_structure, encode_structure
from waxeq.plan.encode import decode, encode
from waxeq.plan.plan import Plan
from waxeq.runtime.arena import Arena
from waxeq.runtime.bound import Bound
from waxeq.runtime.inputs import Inputs, fitted, with_arrays
from waxeq.runtime.placed import Placed
from waxeq.runtime.written import Written


class Program:
    """`program(*inputs)` runs the plan; inputs by position or by leaf name.

    Results are arrays of their own: they alias neither the inputs nor each other nor memory that a later call writes. A
    result's memory is used again only when nobody holds it any more. State lives in the program and is replaced by a
    call. One program, one caller at a time: `copy.copy(program)` shares the weights and has memory and states of its
    own; `copy.deepcopy` and pickle copy the weights too. Folded weights are not folded again.
    """

    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[str, Kernel],
        tensors: Mapping[str, np.ndarray],
        arena: Arena | None = None,
    ) -> None:
        """`tensors`: arrays of weight and state leaves by name, and of folded buffers that are known already. `arena`:
        memory to use that is large enough, where there is some. Raises TypeMismatch when an array is missing or does
        not fit, PlanError when no installed backend has a kernel.
        """
        self.plan = plan
        self.inputs = tuple(x for x in plan.graph.leaves if x.kind == "input")
        self._take = Inputs(self.inputs, plan.about.get(FIXED)).take
        bound = {**tensors, **_checked(plan, {**plan.graph.constants, **tensors})}
        if plan.devices:
            self._runner = Placed(plan, kernels, bound, arena)
            self._take = self._runner.take
        else:
            self._runner = _as_written(plan, bound) if plan.written else Bound(plan, kernels, bound, arena)
        self._names = self._runner.names
        usual = self._names if len(self._names) != 1 else self._names[0]
        shape = plan.structure if plan.structure is not None else usual
        self._plain = shape == usual and type(shape) is type(usual)
        try:
            self._build = builder(shape, self._names)
        except KeyError as e:
            raise PlanError(f"the plan gives its results as {plan.structure!r}, and has no result {e}") from e

    def __repr__(self) -> str:
        takes = ", ".join(f"{x.name}: {x.type}" for x in self.inputs)
        gives = ", ".join(f"{o.name}: {o.type}" for o in self.plan.outputs)
        return f"<Program {self.plan.name}({takes}) -> {gives}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run once. Returns results in the structure the model gives them in.

        Raises TypeMismatch when inputs are missing, unknown or of another dtype or shape, UsageError when another
        thread is in a call (of the model as written, where it has states).
        """
        direct = self._runner.direct
        if direct is not None and self._plain and not named:
            results = direct(args)
            if results is None:
                results = direct(with_arrays(args))
            if results is not None:
                return results
        return self._build(self._runner.run(self._take(args, named)))

    def flat_results(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once and return the results by output name, whatever structure the model gives them in."""
        return dict(zip(self._names, self._runner.run(self._take((), inputs)), strict=True))

    def again(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """What a call on these inputs does on their devices, to be timed: nothing is taken in or handed out. It means
        something until the next call, and as long as the inputs live. Raises UsageError for a plan of the CPU alone."""
        if not isinstance(self._runner, Placed):
            raise UsageError("the plan is of the CPU alone: time calls of it")
        return self._runner.again(self._take((), inputs))

    @property
    def arena(self) -> Arena:
        """The memory of temporaries; the model as written has none."""
        return Arena(0) if isinstance(self._runner, Written) else self._runner.arena

    @property
    def folded(self) -> dict[str, np.ndarray]:
        """What was computed of weights when they were bound, by buffer."""
        return {f.writes: self._runner.tensors[f.writes] for f in self.plan.folds}

    @property
    def states(self) -> dict[str, np.ndarray]:
        """Copies of the states as they are now."""
        rows = self._runner.tensors
        return {n: rows[n].copy() for n, _ in self.plan.states}

    def __reduce__(self) -> tuple[Any, ...]:
        constants = self.plan.graph.constants
        rows = {n: a for n, a in self._runner.tensors.items() if n not in constants}
        plan = {**encode(self.plan), "structure": None}
        # the class of a named tuple travels by name, as pickle has it, where it has one
        structure = decode_structure(encode_structure(self.plan.structure))
        return _again, (plan, structure, dict(constants), rows | self.states)


def _again(
    plan: Mapping[str, Any],
    structure: Any,
    constants: Mapping[str, np.ndarray],
    tensors: Mapping[str, np.ndarray],
) -> Program:
    """A program from what pickle holds of one. Raises PlanError when a kernel is not installed here."""
    return Program(replace(decode(plan, constants), structure=structure), kernels_of(backends()), tensors)


def _as_written(plan: Plan, tensors: Mapping[str, np.ndarray]) -> Written:
    """The model as written, on as many threads of BLAS as plans were sought for."""
    return Written(plan.graph, tensors, plan.about.get("search", {}).get("threads"))


def _checked(plan: Plan, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays a plan is bound to. Raises TypeMismatch."""
    leaves, rows = {x.name: x for x in plan.graph.leaves}, {}
    for name, b in plan.buffers.items():
        if b.role in ("weight", "constant", "state"):
            if name not in tensors:
                raise TypeMismatch(f"no array was given for {b.role} {name!r}")
            rows[name] = fitted(leaves[name], tensors[name])
    return rows
