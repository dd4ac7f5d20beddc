"""What a saturation runs: a model, rule texts and the phases they run in. Plain data, so that it can cross to the
worker process, which imports no more of waxeq than it needs to run it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Phase:
    """Rulesets run together. `iterations` is the most the phase may take; it ends earlier when nothing changes.

    A `required` phase runs even when a limit has been met: without kernels there is no plan.
    """

    name: str
    rulesets: tuple[str, ...]
    iterations: int
    required: bool = False


@dataclass(frozen=True, slots=True)
class RuleProgram:
    """`texts`: file names and their forms as egglog text, in load order, after the generated prelude; `phases` in
    order; `constructors`: those beyond the basis (kernels) with the positions of their tensor arguments."""

    texts: tuple[tuple[str, tuple[str, ...]], ...]
    phases: tuple[Phase, ...]
    constructors: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def repeated(self, names: Collection[str]) -> RuleProgram:
        """With no more than these phases and what a plan cannot do without."""
        return replace(self, phases=tuple(p for p in self.phases if p.required or p.name in names))

    def bare(self) -> RuleProgram:
        """Without what may be left out: no algebra, only what a plan cannot do without."""
        return self.repeated(())

    @property
    def hash(self) -> str:
        """Of all that can change a result: texts, phases, kernels; comments included."""
        import hashlib  # takes as long to import as all else that the worker needs of this module

        texts = tuple((name, "\n".join(forms)) for name, forms in self.texts)
        return hashlib.sha256(repr((texts, self.phases, self.constructors)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ModelText:
    """A lowered program as egglog text: commands in order, and the name that each root is given by them."""

    commands: tuple[str, ...]
    roots: Mapping[str, str]
