"""Tracing: a Python function over NumPy arrays is run once on stand-ins that write down what is done to them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from waxeq.errors import TargetError, TypeMismatch, UnknownDtype, UnsupportedError, WaxeqError
from waxeq.frontend import foreign, origins, raising
from waxeq.frontend.annotations import annotated, place
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.calling import called
from waxeq.frontend.containers import fields_of, hidden, in_short, is_array, remade, said
from waxeq.frontend.draws import Draws
from waxeq.frontend.selection import Selection
from waxeq.frontend.standin import swapped
from waxeq.ir.array import FIXED, as_array
from waxeq.ir.graph import Graph, GraphBuilder, Kind
from waxeq.ir.structure import is_named_tuple
from waxeq.ir.types import TensorType, is_floating

_SORTS = re.compile(r"\b(?!np\b|numpy\b)(\w+)\.sort\(")
_FEW = 3
"""Arrays that a note names where there are more."""
_WORK = 10_000
"""Steps in which it is found whether arrays share memory."""


@dataclass(frozen=True)
class Traced:
    """A traced model: its graph, the structure its results come in (see `ir.structure`), the arrays of its weights and
    states, and the inputs it was traced with. `origin` is (file, name) where it can be loaded again. `notes` are
    sentences that its user should read. `fixed`: Python values among the arguments, which it was traced for, as they
    are written."""

    name: str
    graph: Graph
    structure: Any
    tensors: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]
    origin: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def about(self) -> dict[str, Any]:
        """What the record of a plan says of it."""
        return {FIXED: dict(self.fixed)} if self.fixed else {}


def trace(
    fn: Callable[..., Any],
    example: Mapping[str, Any],
    *,
    weights: Collection[str] = (),
    states: Collection[str] = (),
    name: str | None = None,
    origin: tuple[str, str] | None = None,
    sized: bool = False,
) -> Traced:
    """Run `fn(**example)` on stand-ins. `example` values are arrays, scalars or nested dicts, lists, tuples and
    dataclasses of them; parameters named in `weights` or annotated `wx.Weight` are bound once, those in `states` or
    annotated `wx.State` are kept between calls (what the model writes to them in place is their next content), the rest
    are inputs. Results are arrays, or dicts, lists, tuples and named tuples of them, beside which None stays None; a
    class of mappings comes back as dict. `sized`: what the model makes by position (np.arange, np.eye) is no constant,
    as it is traced at other sizes too.

    Raises UnsupportedError (file:line and the way out) for what cannot be traced, TargetError when the function raises.
    """
    tracer = Tracer(GraphBuilder(), sized)
    arguments = _Arguments(tracer)
    notes: dict[str, Kind] = {k: a.role for k, a in annotated(fn).items()}
    roles: dict[str, Kind] = {**notes, **dict.fromkeys(weights, "weight"), **dict.fromkeys(states, "state")}
    given = {k: arguments.argument(k, v, roles.get(k, "input")) for k, v in example.items()}
    outputs: list[tuple[str, int]] = []
    draws = Draws(fn, example)
    with swapped(fn, tracer, given) as ufunc:
        result = _run(fn, {k: ufunc(v) if type(v) is np.ufunc else v for k, v in given.items()}, tracer)
        _refuse_draws(fn, draws)
        arguments.refuse_shared(place(fn))
        structure, updates = _structure(fn, result, arguments, outputs), arguments.updates
    graph = tracer.builder.finish(outputs, updates, keep=arguments.numbers)
    kept = {x.name for x in graph.leaves}
    tensors = {k: v for k, v in {**arguments.weights, **arguments.states}.items() if k in kept}
    title = name or getattr(fn, "__name__", "model")
    plain = None if isinstance(structure, str) else structure
    around = (raising.AROUND,) if raising.numpys() else ()
    rest = (*arguments.notes, *_said_of_left(tracer.left), *around), arguments.fixed
    return Traced(title, graph.check(), plain, tensors, arguments.inputs, origin, *rest)


class _Arguments:
    """The leaves that stand for arguments, and their arrays by role."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.inputs: dict[str, np.ndarray] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self.stand: dict[str, TracedArray] = {}
        self.numbers: list[int] = []
        self.notes: list[str] = []
        self.fixed: dict[str, str] = {}
        self._around: list[int] = []  # the dataclasses around what is walked

    @property
    def updates(self) -> list[tuple[str, int]]:
        """The states that the model wrote to, and their next contents."""
        return [(n, x.value) for n, x in self.stand.items() if n in self.states and x.written]

    def refuse_shared(self, where: str) -> None:
        """Raise UnsupportedError where the model writes to an argument whose memory is that of another, too: it would
        find there what it has written, and a plan does not."""
        arrays = {**self.inputs, **self.weights, **self.states}
        for name in (n for n, x in self.stand.items() if x.written):
            other = next((k for k, a in arrays.items() if k != name and _shared(a, arrays[name])), None)
            if other is not None:
                raise UnsupportedError(
                    f"{where}: the model writes to {name}, which shares memory with {other}; write to a copy "
                    f"({name} = {name}.copy()), or give an example of memory of its own, if calls do"
                )

    def argument(self, name: str, value: Any, kind: Kind) -> Any:
        """The stand-in for an argument. One in which there is nothing to give anew is a fixed value as a whole."""
        before = len(self.numbers)
        made = self.leaf(name, value, kind)
        if kind == "input" and len(self.numbers) == before:
            self.fixed.setdefault(name, in_short(value))
        return made

    def leaf(self, path: str, value: Any, kind: Kind) -> Any:
        """The stand-in for an argument; containers are walked, Python scalars stay what they are."""
        if isinstance(value, Mapping):
            return {k: self.leaf(f"{path}.{k}", v, kind) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.leaf(f"{path}.{k}", v, kind) for k, v in zip(value._fields, value, strict=True)))  # pyright: ignore
        if kind == "input" and isinstance(value, list) and value and all(type(v) in (int, float) for v in value):
            if self._around:
                self.fixed[path] = said([*value])
                return [*value]
            raise TargetError(f"argument {path} is a list of numbers; make it an array: np.array([...])")
        if isinstance(value, (list, tuple)):
            return type(value)(self.leaf(f"{path}.{i}", v, kind) for i, v in enumerate(value))
        if (parts := fields_of(value)) is not None:
            return self._dataclass(path, value, parts, kind)
        return self._single(path, value, kind)

    def _dataclass(self, path: str, value: Any, parts: Mapping[str, Any], kind: Kind) -> Any:
        if id(value) in self._around:
            raise TargetError(
                f"argument {path} is an object that it lies in itself; give the model dataclasses without the way back"
            )
        self._tell_of_hidden(path, value, kind)
        self._around.append(id(value))
        made = remade(value, {k: self.leaf(f"{path}.{k}", v, kind) for k, v in parts.items()})
        self._around.pop()
        return made

    def _tell_of_hidden(self, path: str, value: Any, kind: Kind) -> bool:
        """A note where arrays are in an object that is not walked; whether there are some."""
        names = [] if kind == "weight" else list(islice(hidden(value, path), _FEW + 1))
        if names:
            shown = ", ".join(names[:_FEW] + ["..."] * (len(names) > _FEW))
            self.notes.append(
                f"argument {path} is of class {type(value).__name__}: arrays that are attributes of it ({shown}) are "
                "constants of the plan; pass them in a dict, list, tuple or dataclass to keep them inputs"
            )
        return bool(names)

    def _single(self, path: str, value: Any, kind: Kind) -> Any:
        """The stand-in for what is no container."""
        if kind == "input" and type(value) in (int, float):
            like = "np.float32" if isinstance(value, float) else "np.int64"
            self.notes.append(
                f"argument {path} = {value!r} is a Python number: the plan is for this value; pass {like}({value!r}) "
                "to keep it an input"
            )
        if value is None or (isinstance(value, (str, bool, int, float)) and not isinstance(value, np.generic)):
            self.fixed |= {path: repr(value)} if kind == "input" else {}
            return value
        other = bool(self._around) and isinstance(value, np.ndarray) and value.dtype.kind in "OSUVMm"
        other = other and not is_floating(value.dtype)
        if other or not is_array(value):
            if not other and self._tell_of_hidden(path, value, kind):
                self.fixed[path] = in_short(value)
            elif kind == "input" and "." in path:
                self.fixed[path] = said(value)
            return value
        a = _example(value, f"{kind} {path!r}")
        try:
            t = TensorType.of(a)
        except TypeMismatch as e:
            raise TypeMismatch(f"{kind} {path!r}: {e}") from e
        {"input": self.inputs, "weight": self.weights, "state": self.states}[kind][path] = a
        self.numbers.append(self.tracer.builder.leaf(path, t, kind))
        self.stand[path] = self.tracer.wrap(self.numbers[-1], isinstance(value, np.generic) and kind != "state")
        return self.stand[path]


def _shared(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays share memory, as far as is known: where that is hard to say they may."""
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # pyright: ignore[reportArgumentType]  # which says 0 or 1
    except np.exceptions.TooHardError:
        return True


def _example(value: Any, what: str) -> np.ndarray:
    names = value.dtype.names if isinstance(value, np.ndarray) else None
    if names:
        fields = ", ".join(f"{n!r}: x[{n!r}]" for n in names[:_FEW])
        raise TypeMismatch(f"{what} is a structured array; pass its fields as arrays, as in a dict {{{fields}}}")
    if isinstance(value, np.matrix):
        raise TypeMismatch(
            f"{what} is an np.matrix, for which * and ** mean matrix products; pass np.asarray(x) and use @"
        )
    return as_array(value, what)


def _run(fn: Callable[..., Any], given: Mapping[str, Any], tracer: Tracer) -> Any:
    try:
        result = called(fn, given)
    except UnsupportedError:
        raise
    except TypeMismatch as e:
        kind = UnsupportedError if isinstance(e, UnknownDtype) else TypeMismatch  # of arguments it is told before
        raise kind(f"{origins.place(sys.exc_info()[2])}: {e}") from e
    except WaxeqError:
        raise
    except (Exception, SystemExit) as e:
        _refuse_caught(tracer)
        trail = sys.exc_info()[2]
        where, advice = origins.place(trail), foreign.advice(e, trail, TracedArray.__name__)
        if advice is not None:
            raise UnsupportedError(f"{where}: {advice}") from e
        raise TargetError(f"{where}: the model raises {type(e).__name__}: {e}") from e
    _refuse_caught(tracer)
    return result


def _refuse_caught(tracer: Tracer) -> None:
    """Raise what could not be traced, where the model caught that: NumPy, which raises nothing there, goes on."""
    for e in tracer.refused:
        if origins.reached_user(e):
            raise UnsupportedError(f"{e} (the model catches this error, which NumPy does not raise)") from e


def _structure(fn: Callable[..., Any], result: Any, arguments: _Arguments, found: list[tuple[str, int]]) -> Any:
    """The structure of what the model returns, whose outputs are added to `found`."""
    if result is None and arguments.updates:  # a model may do nothing but write its states
        return []
    if result is None:
        raise UnsupportedError(_no_output(place(fn), "out", "None") + _sorting(fn))
    structure = _outputs(result, arguments.tracer, found, "out", place(fn), frozenset(arguments.states))
    if not found and not arguments.updates:
        raise UnsupportedError(f"{place(fn)}: the model returns no arrays" + _sorting(fn))
    return structure


def _said_of_left(names: Sequence[str]) -> tuple[str, ...]:
    """A note where a model keeps what it computed under `names`."""
    if not names:
        return ()
    shown = ", ".join([*names[:_FEW]] + ["..."] * (len(names) > _FEW))
    return (
        f"the model leaves what it computed in {shown}: calls of a plan find there what was there when it was traced, "
        "and leave nothing; return it, or write it to a parameter annotated wx.State (h[...] = x)",
    )


def _refuse_draws(fn: Callable[..., Any], draws: Draws) -> None:
    if names := draws.names():
        raise UnsupportedError(
            f"{place(fn)}: the model draws random numbers (from {', '.join(names)}) once, while tracing; draw them "
            "outside of the model and pass them as an argument, or as a weight where they stay the same"
        )


def _outputs(
    value: Any, tracer: Tracer, found: list[tuple[str, int]], name: str, where: str, taken: Collection[str]
) -> Any:
    """The structure of what the model returns: its containers, with names of outputs in place of arrays. Names in
    `taken` are those of states: what a call gives is looked up by name, outputs and next states in one."""
    if value is None:  # beside arrays, as where a model was asked for no cache
        return None
    if isinstance(value, Mapping):
        return {_key(k, where): _outputs(v, tracer, found, str(k), where, taken) for k, v in value.items()}
    if is_named_tuple(value):
        fields: Any = type(value)
        pairs = zip(fields._fields, value, strict=True)
        return fields._make(_outputs(v, tracer, found, k, where, taken) for k, v in pairs)
    if isinstance(value, (list, tuple)):
        parts = [_outputs(v, tracer, found, f"{name}{i}", where, taken) for i, v in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, Selection):
        raise value.refused(value.place)  # the model has returned
    if not isinstance(value, (TracedArray, np.ndarray, np.generic, bool, int, float)):
        given = repr(value) if isinstance(value, (str, bytes)) else _kind(value)
        raise UnsupportedError(_no_output(where, name, given))
    unique, n = name, 1
    while unique in taken or any(unique == other for other, _ in found):
        n, unique = n + 1, f"{name}_{n}"
    found.append((unique, tracer.value(value)))
    return unique


def _no_output(where: str, name: str, given: str) -> str:
    return f"{where}: output {name!r} of the model is {given}; return arrays, or tuples, lists and dicts of them"


def _sorting(fn: Callable[..., Any]) -> str:
    """What to add for a model that gives None and sorts in place, as that does; else nothing."""
    try:
        sorts = _SORTS.search(inspect.getsource(fn))
    except (OSError, TypeError):  # there is no source
        return ""
    return "" if sorts is None else f" ({sorts[1]}.sort() sorts in place and gives None: write np.sort({sorts[1]}))"


def _kind(value: Any) -> str:
    return f"of class {type(value).__name__}"


def _key(key: Any, where: str) -> str | float | bool | None:
    """The key of a dict of results, as a plan file can hold it."""
    plain = key.item() if isinstance(key, np.generic) else key
    if plain is None or isinstance(plain, (str, int, float)):
        return plain
    raise UnsupportedError(f"{where}: the model returns a dict with the key {key!r}; use texts or numbers as keys")
