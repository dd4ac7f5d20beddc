"""Random numbers that a model draws from what it finds around it: they would be constants, the same at each call. NumPy
and Python say nothing of a draw, but the state of a generator is another after it."""

from __future__ import annotations

import pickle
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from waxeq.frontend.containers import is_array, parts_of
from waxeq.frontend.origins import installed, theirs
from waxeq.frontend.standin import tables_of

_MOST = 1000
"""Parts of containers and objects among which generators are looked for, the nearest ones first."""
_NONE = (str, bytes, int, float, type(None), np.ndarray, FunctionType)
"""Classes of what is no generator and leads to none."""
_MOSTLY = frozenset(_NONE)
"""The same, to be told from most of what a module has at once."""
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_SHARED: dict[str, Any] = {"random": random.random.__self__, "np.random": np.random.normal.__self__}
"""The generators that functions of the modules draw from, by what a model calls them."""


class Draws:
    """The generators that a function reaches, and their states from when this was made."""

    def __init__(self, fn: Callable[..., Any], given: Mapping[str, Any]) -> None:
        self._before = {id(x): (name, x, _state(x)) for name, x in [*_reached(fn, given), *_SHARED.items()]}

    def names(self) -> list[str]:
        """What those are called that were drawn from since."""
        return [name for name, x, state in self._before.values() if _state(x) != state]


def _state(x: Any) -> Any:
    try:
        if isinstance(x, random.Random):
            return x.getstate()
        if isinstance(x, np.random.RandomState):  # beside its bits it may keep the second of two normal numbers
            return pickle.dumps(x.get_state(legacy=False))
        return pickle.dumps((x.bit_generator if isinstance(x, np.random.Generator) else x).state)
    except Exception:  # the system's randomness has no state
        return None


def _reached(fn: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Generators by name: among what the function and its helpers find by name, among its arguments, and in containers
    and in objects, classes and modules of the user's there."""
    waiting = deque(
        (str(k), v) for table in (*tables_of(fn), given) for k, v in table.items() if type(v) not in _MOSTLY
    )
    seen, left = set[int](), _MOST
    while waiting:
        name, x = waiting.popleft()
        if isinstance(x, _NONE):
            continue
        if isinstance(x, (MethodType, BuiltinMethodType)):
            x = x.__self__  # `normal = rng.normal`
        if isinstance(x, _GENERATORS):
            yield name, x
        elif id(x) not in seen and not (isinstance(x, (list, tuple, dict)) and len(x) > left):
            seen.add(id(x))
            try:
                more = [*islice(_inside(x), left)]
            except Exception:  # an object that answers in a way of its own
                continue
            left -= len(more)
            waiting += ((f"{name}.{k}", v) for k, v in more if type(v) not in _MOSTLY)


def _inside(x: Any) -> Iterable[tuple[Any, Any]]:
    """What may be a generator, or lead to one, in an object; of a class its generators alone."""
    if isinstance(x, (list, tuple, dict, SimpleNamespace)):
        return parts_of(x)
    if isinstance(x, ModuleType):
        return vars(x).items() if _is_users(x.__name__) else ()
    owner = x if isinstance(x, type) else type(x)
    if not _is_users(owner.__module__):
        return ()
    shared = [(k, v) for k, v in vars(owner).items() if isinstance(v, _GENERATORS)]
    return shared if is_array(x) else [*shared, *parts_of(x)]


@cache
def _is_users(module: str) -> bool:
    """Whether a module is the user's: neither of Python, nor of waxeq, nor of an installed package."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or (theirs(file) and not installed(file))
