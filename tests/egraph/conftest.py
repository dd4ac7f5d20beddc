"""Small NumPy functions as saturated e-graphs, and a way to ask which forms a value was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from waxeq.basis.typing import read
from waxeq.egraph.lower import lower
from waxeq.egraph.rules import CLASSES, Class, load_rules
from waxeq.egraph.saturate import Limits, Saturation, Worker, saturate
from waxeq.egraph.snapshot import ENode, Snapshot
from waxeq.egraph.verify import verify
from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand

Env = Mapping[str, Any]


@dataclass(frozen=True)
class Forms:
    """A saturated program and the forms its results have in it.

    A form is an s-expression: `@name` is a leaf, `"sub"` or a number is itself, any other atom is a variable that
    stands for one class or one argument throughout.
    """

    snapshot: Snapshot
    saturation: Saturation

    def of(self, form: str, root: str = "out") -> list[Env]:
        """Every way the class of a result contains a form: class numbers and arguments by variable."""
        return list(self._match(read(form), self.snapshot.roots[root], {}))

    def weights_only(self, number: int) -> bool:
        return self.snapshot.classes[number].weights_only

    def axes(self, number: int) -> frozenset[str]:
        return self.snapshot.classes[number].axes

    def heads(self) -> set[str]:
        return {n.head for c in self.snapshot.classes for n in c.nodes}

    def _match(self, form: Any, number: int, env: Env) -> Iterator[Env]:
        nodes = self.snapshot.classes[number].nodes
        if isinstance(form, str) and form.startswith("@"):
            if any(n.head in ("In", "Par") and n.args[0] == form[1:] for n in nodes):
                yield env
        elif isinstance(form, str):
            if env.get(form, number) == number:
                yield {**env, form: number}
        else:
            for n in nodes:
                if n.head == form[0] and len(n.args) == len(form) - 1:
                    yield from self._arguments(form[1:], n, 0, env)

    def _arguments(self, forms: tuple, n: ENode, i: int, env: Env) -> Iterator[Env]:
        if i == len(forms):
            yield env
            return
        for more in self._argument(forms[i], n.args[i], i in n.places, env):
            yield from self._arguments(forms, n, i + 1, more)

    def _argument(self, form: Any, value: Any, tensor: bool, env: Env) -> Iterator[Env]:
        if tensor:
            yield from self._match(form, value, env)
        elif form.startswith('"') or form.lstrip("-").replace(".", "").isdigit():
            if form.strip('"') == str(value):
                yield env
        elif env.get(form, value) == value:
            yield {**env, form: value}


@pytest.fixture(scope="session")
def forms(worker: Worker) -> Callable[..., Forms]:
    """`forms(fn, "w b", x=(4, 5), w=(5, 3))`: the function traced on float32 arrays of these shapes (or on the arrays
    given), w and b being weights, and saturated under every exact and reassociating rule. A third string is a phase to
    leave out, a fourth the loosest class of rules. Every class has been checked to be one value."""
    programs = {c: load_rules(c, {}) for c in CLASSES}

    def run(
        fn: Callable[..., Any], weights: str = "", without: str = "", loosest: Class = "reassociating", /, **given: Any
    ) -> Forms:
        rng = np.random.default_rng(0)
        example = {
            n: s if isinstance(s, np.ndarray) else rng.standard_normal(s).astype(np.float32) for n, s in given.items()
        }
        lowered = lower(expand(trace(fn, example, weights=weights.split()).graph))
        program = programs[loosest]
        phases = tuple(p for p in program.phases if p.name != without)
        found = saturate(lowered, replace(program, phases=phases), Limits(60_000, 60.0), worker)
        verify(found.snapshot).check()
        return Forms(found.snapshot, found)

    return run
