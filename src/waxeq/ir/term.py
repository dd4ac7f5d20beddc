"""Terms: what a program means, with named axes. A term knows no head; `waxeq.basis` does."""

from __future__ import annotations

import json
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

from waxeq.forks import renewed_in_children


class Term:
    """A head applied to arguments: terms, names (axes, functions, dtypes), numbers or sets of axis names.

    Terms are interned: structurally equal terms are one object, so a shared subterm is shared in memory, equality is
    identity, and walking a term with a memo costs its number of distinct subterms.
    """

    __slots__ = ("__weakref__", "args", "head")
    head: str
    args: tuple
    _interned: ClassVar[weakref.WeakValueDictionary] = weakref.WeakValueDictionary()
    _new: ClassVar[threading.Lock] = threading.Lock()

    def __new__(cls, head: str, *args) -> Term:
        # a number by how it is written: 1 is not 1.0, and 0.0 is not -0.0
        key = (head, *[a if isinstance(a, _PLAIN) else (type(a), repr(a)) for a in args])
        found = cls._interned.get(key)
        return cls._made(key, head, args) if found is None else found

    @classmethod
    def _made(cls, key: tuple, head: str, args: tuple) -> Term:
        with cls._new:
            found = cls._interned.get(key)
            if found is None:
                found = object.__new__(cls)
                object.__setattr__(found, "head", head)
                object.__setattr__(found, "args", args)
                cls._interned[key] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("terms are immutable")

    def __reduce__(self):
        return (Term, (self.head, *self.args))

    @property
    def terms(self) -> tuple[Term, ...]:
        """The arguments that are terms."""
        return tuple([a for a in self.args if isinstance(a, Term)])

    def __str__(self) -> str:
        return write(self)

    __repr__ = __str__


def _forked(terms: type[Term]) -> None:
    terms._new = threading.Lock()


renewed_in_children(Term, _forked)

_PLAIN = (Term, str, frozenset)
"""Arguments that are equal only where they are the same."""


def write(term: Term) -> str:
    """The s-expression of a term; shared subterms are repeated, so for small terms only."""
    parts = [term.head]
    for a in term.args:
        if isinstance(a, Term):
            parts.append(write(a))
        elif isinstance(a, frozenset):
            parts.append("{" + " ".join(sorted(a)) + "}")
        elif isinstance(a, str):
            parts.append(f'"{a}"')
        else:
            parts.append(repr(a))
    return "(" + " ".join(parts) + ")"


def dump(term: Term) -> str:
    """The term as one line, each distinct subterm once: rows in postorder, `$n` refers to row n. `parse` reads it
    back.
    """
    number: dict[Term, int] = {}
    rows = []
    for t in postorder(term):
        number[t] = len(rows)
        parts = [t.head]
        for a in t.args:
            if isinstance(a, Term):
                parts.append(f"${number[a]}")
            elif isinstance(a, frozenset):
                parts.append("{" + ",".join(sorted(a)) + "}")
            else:
                parts.append(json.dumps(a, ensure_ascii=False) if isinstance(a, str) else repr(a))
        rows.append("(" + " ".join(parts) + ")")
    return " ".join(rows)


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ROW = re.compile(rf'\(((?:[^()"]|{_QUOTED})+)\)')
_PART = re.compile(rf'{_QUOTED}|[^ "]+')


def parse(text: str) -> Term:
    """Inverse of `dump`. Raises ValueError on damaged text."""
    rows: list[Term] = []
    for body in _ROW.findall(text):
        head, *parts = _PART.findall(body)
        rows.append(Term(head, *(_atom(p, rows) for p in parts)))
    if not rows:
        raise ValueError(f"{text!r} is not a term")
    return rows[-1]


def _atom(part: str, rows: list[Term]) -> Any:
    if part[0] == "$":
        return rows[int(part[1:])]
    if part[0] == "{":
        return frozenset(k for k in part[1:-1].split(",") if k)
    if part[0] == '"':
        return json.loads(part)
    return int(part) if part.lstrip("-").isdigit() else float(part)


def postorder(*roots: Term) -> Iterator[Term]:
    """Every distinct subterm once, children before parents."""
    done: set[Term] = set()
    stack: list[Term | None] = [*reversed(roots)]
    while stack:
        t = stack.pop()
        if t is None:  # all that the one below reads is done
            t = cast(Term, stack.pop())
        elif t in done:
            continue
        elif waiting := [a for a in t.args if isinstance(a, Term) and a not in done]:
            stack += (t, None, *reversed(waiting))
            continue
        done.add(t)
        yield t


def rebuild(root: Term, change: Callable[[Term, tuple], Term]) -> Term:
    """Map a term bottom-up: `change(old, new_args)` gives the new term; shared subterms are visited once."""
    done: dict[Term, Term] = {}
    for t in postorder(root):
        done[t] = change(t, tuple(done[a] if isinstance(a, Term) else a for a in t.args))
    return done[root]
