"""Whether the e-graph holds the model that it was given. What every plan is made of is read back from there, so this is
asked once for each model, before a rule is applied."""

from __future__ import annotations

from waxeq.egraph.lower import Lowered
from waxeq.egraph.snapshot import Snapshot, looks
from waxeq.errors import WaxeqError
from waxeq.ir.term import Term, postorder


class LoadedWrong(WaxeqError):
    """The e-graph holds another program than the one that it was given."""


def require_loaded(snapshot: Snapshot, lowered: Lowered) -> None:
    """Raise LoadedWrong unless every root is in the class that goes by its name, as it was written."""
    rows = ((looks(n.head, n.args), i) for i, c in enumerate(snapshot.classes) for n in c.nodes)
    found, held = dict(rows), dict[Term, int | None]()
    for t in postorder(*(x.term for x in lowered.roots.values())):
        args = tuple(held[a] if isinstance(a, Term) else a for a in t.args)
        held[t] = found.get(looks(t.head, args))
        if held[t] is None:
            raise LoadedWrong(f"the e-graph lacks the model's {t.head} of {_named(t)}: this is a bug, please report it")
    for name, x in lowered.roots.items():
        if held[x.term] != snapshot.roots[name]:
            raise LoadedWrong(f"the e-graph takes another value for {name!r}: this is a bug, please report it")


def _named(t: Term) -> str:
    return ", ".join(a.head if isinstance(a, Term) else str(a) for a in t.args)
