"""The egglog text that is generated: sorts, constructors, analyses, programs. Nothing else writes egglog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from waxeq.basis.heads import HEADS, Head
from waxeq.basis.scalar import REDUCERS, SCALARS
from waxeq.basis.typing import read
from waxeq.egraph.lower import Lowered
from waxeq.egraph.program import ModelText
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import DTYPES, FLOATS

SORTS: Mapping[str, str] = {
    "T": "T", "Axis": "String", "NewAxis": "String", "Fn": "String", "Name": "String", "Dtype": "String",
    "Axes": "Axes", "Int": "i64", "Float": "f64",
}  # fmt: skip
"""The egglog sort of each sort of argument."""

_BASE = """
(sort Axes (Set String))
(sort T)
(function ax (T) Axes :no-merge)
(function dt (T) String :no-merge)
(function size (String) i64 :no-merge)
(function cval (T) f64 :merge old)
(relation isw (T))
(relation keeps-dtype (String))
(relation float-dtype (String))
(relation wide-range (String))
(relation widens (String String))
(relation lattice (String))
(function fixed-dtype (String) String :no-merge)
(ruleset analysis)
"""


PRELUDE = "prelude.egg"
"""What stands for a file name where egglog refuses a form of the prelude."""


def prelude() -> tuple[str, ...]:
    """Sorts, one constructor per head, the analyses (axes, dtype, size, weights-only, constant value), and what rules
    ask about dtypes and functions: `float-dtype`, `wide-range` (of which usual numbers can be multiplied and summed in
    any order, and none overflows), `widens` (a conversion that loses nothing), `lattice` (max and min).
    """
    rows = [_BASE]
    rows += [f"(constructor {h.name} ({' '.join(SORTS[s] for s in h.sorts)}) T)" for h in HEADS.values()]
    rows += [f'(keeps-dtype "{f}")' for f, s in SCALARS.items() if s.gives == "same"]
    rows += [f'(set (fixed-dtype "{f}") "bool")' for f, s in SCALARS.items() if s.gives == "bool"]
    rows += [f'(float-dtype "{d}")' for d in FLOATS]
    rows += [f'(wide-range "{d}")' for d in DTYPES if d != "float16"]
    rows += [f'(widens "{a}" "{b}")' for a, b in _widenings()]
    rows += [f'(lattice "{f}")' for f in ("max", "min")]
    reducers = {f: d for f, (_, d) in REDUCERS.items() if f not in SCALARS}
    rows += [f'(keeps-dtype "{f}")' for f, d in reducers.items() if d == "same"]
    rows += [f'(set (fixed-dtype "{f}") "{d}")' for f, d in reducers.items() if d != "same"]
    for h in HEADS.values():
        rows += _analyses(h)
    rows.append('(rule ((= e (Num v d))) ((set (cval e) v)) :ruleset analysis :name "analysis/Num-value")')
    return tuple(rows)


def _widenings() -> Iterator[tuple[str, str]]:
    """Pairs of float dtypes where the second holds every value of the first."""
    digits = {"float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8), "float64": (53, 11)}
    for a, (p, e) in digits.items():
        yield from ((a, b) for b, (q, f) in digits.items() if a != b and p <= q and e <= f)


def analyses(name: str, args: tuple[tuple[str, str], ...]) -> str:
    """A node `(name args...)` as a pattern."""
    return f"({name} {' '.join(n for n, _ in args)})"


def _analyses(h: Head) -> Iterator[str]:
    node = f"(= e {analyses(h.name, h.args)})"
    tensors = [n for n, s in h.args if s == "T"]

    def rule(what: str, body: Iterable[str], head: str) -> str:
        return f'(rule ({" ".join((node, *body))}) ({head}) :ruleset analysis :name "analysis/{h.name}-{what}")'

    names = {t: f"s_{t}" for t in tensors}
    facts = [f"(= {s} (ax {t}))" for t, s in names.items() if f"(ax {t})" in h.axes]
    yield rule("axes", facts, f"(set (ax e) {_write(read(h.axes), names)})")
    yield from _dtype(h, rule)
    if h.name != "In":
        yield rule("weights", [f"(isw {t})" for t in tensors], "(isw e)")
    for n, text in h.sizes:
        used = list(_size_uses(read(text)))
        facts = [f"(= n_{k} (size {k}))" for k in dict.fromkeys(used)]
        yield rule(f"size-{n}", facts, f"(set (size {n}) {_write_size(read(text))})")


def _dtype(h: Head, rule) -> Iterator[str]:
    e = read(h.dtype)
    if isinstance(e, str):
        is_argument = any(n == e for n, _ in h.args)
        yield rule("dtype", [], f"(set (dt e) {e if is_argument else chr(34) + e + chr(34)})")
    elif e[0] == "dt":
        yield rule("dtype", [f"(= d (dt {e[1]}))"], "(set (dt e) d)")
    else:
        yield rule("dtype", [f"(keeps-dtype {e[1]})", f"(= d (dt {e[2]}))"], "(set (dt e) d)")
        yield rule("fixed-dtype", [f"(= d (fixed-dtype {e[1]}))"], "(set (dt e) d)")


def _write(e: tuple | str, names: Mapping[str, str]) -> str:
    if isinstance(e, str):
        return e
    if e[0] == "ax":
        return names[e[1]]
    return "(" + " ".join((e[0], *(_write(x, names) for x in e[1:]))) + ")"


def _size_uses(e: tuple | str) -> Iterator[str]:
    if not isinstance(e, str):
        if e[0] == "size":
            yield e[1]
        else:
            for x in e[1:]:
                yield from _size_uses(x)


def _write_size(e: tuple | str) -> str:
    if isinstance(e, str):
        return e
    return f"n_{e[1]}" if e[0] == "size" else "(" + " ".join((e[0], *map(_write_size, e[1:]))) + ")"


# -- programs


def atom(a: object, sort: str) -> str:
    """An argument that is no tensor, as egglog text."""
    if sort == "Axes":
        names = " ".join(f'"{k}"' for k in sorted(a))  # pyright: ignore
        return f"(set-of {names})" if names else "(set-empty)"
    if sort == "Float":
        return _float(float(a))  # pyright: ignore[reportArgumentType]
    return f'"{a}"' if SORTS[sort] == "String" else str(a)


def _float(v: float) -> str:
    if v != v:
        return "NaN"
    if v in (float("inf"), float("-inf")):
        return "inf" if v > 0 else "-inf"
    text = repr(v)
    return text if any(c in text for c in ".en") else text + ".0"


def term_commands(terms: Iterable[Term], name: str = "$t", known: dict[Term, str] | None = None) -> Iterator[str]:
    """`let` commands for every subterm not yet in `known`, which is filled with their names. None ends with a digit:
    egglog calls the use number 30 of `$t3` as it calls the first one of `$t33`, and of two such uses in one command one
    becomes the other."""
    known = {} if known is None else known
    for t in postorder(*terms):
        if t not in known:
            known[t] = f"{name}{len(known)}_"
            args = (known[a] if isinstance(a, Term) else atom(a, s)
                    for a, s in zip(t.args, HEADS[t.head].sorts, strict=True))  # fmt: skip
            yield f"(let {known[t]} ({t.head} {' '.join(args)}))"


def model_text(lowered: Lowered) -> ModelText:
    """A lowered graph: the sizes of its axes, its terms, and what the analyses say of them."""
    known: dict[Term, str] = {}
    rows = [f'(set (size "{k}") {n})' for k, n in lowered.sizes.items()]
    rows += list(term_commands((x.term for x in lowered.roots.values()), known=known))
    rows.append("(run-schedule (saturate (run analysis)))")
    return ModelText(tuple(rows), {n: known[x.term] for n, x in lowered.roots.items()})
