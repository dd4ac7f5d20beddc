"""What a forked process finds held, and nobody is left to give back: of all threads it has the one that forked."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
_RENEWED: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def renewed_in_children(owner: Owner, renew: Callable[[Owner], object]) -> Owner:
    """`owner`, on which `renew`, which must not hold it, is called in every process that this one forks from now on: to
    have locks that are free, and to forget what only the other threads would have ended."""
    _RENEWED[owner] = renew
    return owner


def _renew() -> None:
    for owner, renew in list(_RENEWED.items()):
        renew(owner)
    if sys.version_info < (3, 12):  # since then they have no locks
        _unlock_properties()


def _unlock_properties() -> None:
    """Give cached properties of our classes new locks, which are held while a value is worked out, of any object."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("waxeq")]
    classes = {id(c): c for m in modules for c in list(vars(m).values()) if isinstance(c, type)}
    for c in classes.values():
        for x in list(vars(c).values()):
            if isinstance(x, cached_property) and hasattr(x, "lock"):
                x.lock = threading.RLock()  # pyright: ignore[reportAttributeAccessIssue] of Python 3.11


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
