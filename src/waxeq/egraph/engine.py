"""The e-graph itself. The only module that runs egglog (`rules` parses with it)."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

from waxeq.basis.heads import HEADS
from waxeq.egraph.program import ModelText
from waxeq.egraph.snapshot import RawClass, Snapshot, node_places, settle
from waxeq.errors import RuleError, WaxeqError

if TYPE_CHECKING:
    from waxeq.ir.term import Term

_TOGETHER = 5
"""Forms in one program: egglog's time to read a program is quadratic in its text."""


def import_extension() -> None:
    """Import egglog's extension module without the package around it, whose own import takes fifteen times as long: it
    is another language for the same, and brings what prints it. For a process of waxeq's own: there the rest of the
    package is not to be had.
    """
    package = find_spec("egglog")
    if package is not None:
        sys.modules["egglog"] = module_from_spec(package)  # as any import does, but its __init__ is not run
    from egglog import bindings  # noqa: F401


class EngineError(WaxeqError):
    """egglog stopped inside an iteration; the graph cannot be used any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """One scheduled run: whether anything changed, matches by rule name, seconds."""

    updated: bool
    matches: Mapping[str, int]
    seconds: float


class EGraph:
    """One egglog graph."""

    def __init__(self, extra: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """`extra`: constructors beyond the basis (kernels), with the positions of their tensor arguments."""
        from egglog import bindings

        self._bindings = bindings
        self._egraph = bindings.EGraph()
        self.extra = dict(extra or {})
        self.known: dict[Term, str] = {}
        self.roots: dict[str, str] = {}
        self._marks = 0

    @staticmethod
    def of(prelude: Sequence[str] | None = None) -> EGraph:
        """A graph over the basis. `prelude`: in place of the schema's, to look into what the schema would refuse."""
        from waxeq.egraph import schema  # and all that it knows, which who has its text does without

        e = EGraph()
        e.run_all(schema.prelude() if prelude is None else prelude, schema.PRELUDE)
        return e

    def run(self, text: str, filename: str = "<text>") -> Sequence[Any]:
        """Run egglog text. Raises RuleError with egglog's own words, EngineError when egglog panics."""
        try:
            return self._egraph.run_program(*self._egraph.parse_program(text, filename))
        except self._bindings.EggSmolError as e:
            raise RuleError(f"{filename}: {e}") from e
        except SyntaxError as e:
            raise RuleError(f"{filename}: {e}") from e
        except BaseException as e:
            if type(e).__name__ == "PanicException":
                raise EngineError(f"egglog failed while running {filename}: {e}") from e
            raise

    def run_all(self, forms: Sequence[str], filename: str) -> None:
        """Run many forms. Raises as `run`."""
        for i in range(0, len(forms), _TOGETHER):
            self.run("\n".join(forms[i : i + _TOGETHER]), filename)

    def load(self, model: ModelText) -> None:
        """Add a model, in place of the one before."""
        self.run_all(model.commands, "model")
        self.roots = dict(model.roots)

    def add(self, term: Term) -> str:
        """Add a term; its let-name."""
        from waxeq.egraph.schema import term_commands

        self.run_all(list(term_commands([term], known=self.known)), "term")
        return self.known[term]

    def step(self, schedule: str) -> Step:
        """Run a schedule, e.g. `(run linear)`."""
        start = time.perf_counter()
        report = self.run(f"(run-schedule {schedule})", "schedule")[0].report
        matches = {k: n for k, n in report.num_matches_per_rule.items() if n}
        return Step(bool(report.updated), matches, time.perf_counter() - start)

    def mark(self) -> None:
        """Keep the graph as it is now, for `back`."""
        self.run("(push)", "mark")
        self._marks += 1

    def back(self) -> None:
        """Undo everything since the last `mark`, which is forgotten."""
        self.run("(pop)", "back")
        self._marks -= 1

    def restart(self) -> None:
        """Undo everything since the first `mark`, which stays."""
        while self._marks:
            self.back()
        self.mark()

    def nodes(self) -> int:
        """How many e-nodes the graph holds."""
        (sizes,) = self.run("(print-size)", "size")
        return sum(n for name, n in sizes.sizes if name in HEADS or name in self.extra)

    def check(self, fact: str) -> bool:
        """Whether a fact holds."""
        try:
            self._egraph.run_program(*self._egraph.parse_program(f"(check {fact})"))
        except self._bindings.EggSmolError as e:
            if "Check failed" in str(e):
                return False
            raise RuleError(f"{fact}: {e}") from e
        return True

    def equal(self, a: Term, b: Term) -> bool:
        """Whether two terms are known to be equal (both are added first)."""
        return self.check(f"(= {self.add(a)} {self.add(b)})")

    def snapshot(self) -> Snapshot:
        """The graph reachable from the roots, read back."""
        raw, ends, sizes = self.raw()
        return settle(raw, ends, sizes)

    def raw(self) -> tuple[dict[Any, RawClass], dict[str, Any], dict[str, int]]:
        """All classes by egglog's own ids, the class of each root, sizes: what `snapshot` is made of."""
        return _Reader(self._egraph, self.extra).read(self.roots)


class _Reader:
    def __init__(self, egraph: Any, extra: Mapping[str, tuple[int, ...]]) -> None:
        self.e, self.extra = egraph, extra
        self.functions = egraph.freeze().functions
        self._atoms: dict[tuple[str, Any], Any] = {}

    def rows(self, name: str) -> list[Any]:
        return [r for r in self.functions[name].rows if not r.subsumed] if name in self.functions else []

    def atom(self, value: Any, sort: str) -> Any:
        key = (sort, value)
        if key not in self._atoms:
            self._atoms[key] = self._atom(value, sort)
        return self._atoms[key]

    def _atom(self, value: Any, sort: str) -> Any:
        if sort == "String":
            return self.e.value_to_string(value)
        if sort == "i64":
            return self.e.value_to_i64(value)
        if sort == "f64":
            return self.e.value_to_f64(value)
        if sort == "Axes":
            return frozenset(self.e.value_to_string(x) for x in self.e.value_to_set(value))
        raise WaxeqError(f"the e-graph holds a value of sort {sort}, which has no reading")

    def read(self, roots: Mapping[str, str]) -> tuple[dict[Any, RawClass], dict[str, Any], dict[str, int]]:
        nodes: dict[Any, list] = {}
        replaced: dict[Any, list] = {}
        for head in (*HEADS, *self.extra):
            if head not in self.functions:
                continue
            sorts = self.functions[head].input_sorts
            places = node_places(head, self.extra)
            for r in self.functions[head].rows:
                args = tuple(v if s == "T" else self.atom(v, s) for v, s in zip(r.inputs, sorts, strict=True))
                (replaced if r.subsumed else nodes).setdefault(r.output, []).append((head, args, places))
        axes = {r.inputs[0]: self.atom(r.output, "Axes") for r in self.rows("ax")}
        dtypes = {r.inputs[0]: self.atom(r.output, "String") for r in self.rows("dt")}
        values = {r.inputs[0]: self.atom(r.output, "f64") for r in self.rows("cval")}
        weights = {r.inputs[0] for r in self.rows("isw")}
        raw = {
            c: RawClass(ns, axes.get(c), dtypes.get(c), c in weights, values.get(c), replaced.get(c, ()))
            for c, ns in nodes.items()
        }
        sizes = {self.atom(r.inputs[0], "String"): self.atom(r.output, "i64") for r in self.rows("size")}
        ends = {n: self.functions[let].rows[0].output for n, let in roots.items()}
        return raw, ends, sizes
