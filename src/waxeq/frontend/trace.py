"""Tracing: a Python function over NumPy arrays is run once on stand-ins that write down what is done to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from waxeq.errors import TargetError, TypeMismatch, UnsupportedError, WaxeqError
from waxeq.frontend import calls
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.ir.graph import Graph, GraphBuilder, Kind
from waxeq.ir.types import TensorType

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Traced:
    """A traced model: its graph, the structure its results come in (names, tuples, dicts), the arrays of its weights
    and states, and the inputs it was traced with. `origin` is (file, name) where it can be loaded again."""

    name: str
    graph: Graph
    structure: Any
    tensors: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]
    origin: tuple[str, str] | None = None


def trace(
    fn: Callable[..., Any],
    example: Mapping[str, Any],
    *,
    weights: Collection[str] = (),
    name: str | None = None,
    origin: tuple[str, str] | None = None,
) -> Traced:
    """Run `fn(**example)` on stand-ins. `example` values are arrays, scalars or nested dicts, lists and tuples of them;
    parameters named in `weights` are bound once, the rest are inputs.

    Raises UnsupportedError (file:line and the way out) for what cannot be traced, TargetError when the function raises.
    """
    b = GraphBuilder()
    tracer = Tracer(b, _PACKAGE)
    arrays: dict[str, dict[str, np.ndarray]] = {"input": {}, "weight": {}}

    def leaf(path: str, value: Any, kind: Kind) -> Any:
        if isinstance(value, Mapping):
            return {k: leaf(f"{path}.{k}", v, kind) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(leaf(f"{path}.{i}", v, kind) for i, v in enumerate(value))
        if isinstance(value, (str, type(None), bool, int, float)):
            return value
        a = np.asarray(value)
        arrays[kind][path] = a
        return TracedArray(tracer, b.leaf(path, TensorType.of(a), kind))

    given = {k: leaf(k, v, "weight" if k in weights else "input") for k, v in example.items()}
    with calls.swapped_numpy(fn, tracer):
        result = _run(fn, given, tracer)
    outputs: list[tuple[str, int]] = []
    structure = _outputs(result, tracer, outputs, "out")
    single = isinstance(structure, str)
    graph = b.finish(outputs, keep=range(len(arrays["input"]) + len(arrays["weight"])))
    kept = {x.name for x in graph.leaves}
    tensors = {k: v for k, v in arrays["weight"].items() if k in kept}
    title = name or getattr(fn, "__name__", "model")
    return Traced(title, graph.check(), None if single else structure, tensors, arrays["input"], origin)


def _run(fn: Callable[..., Any], given: Mapping[str, Any], tracer: Tracer) -> Any:
    try:
        return fn(**given)
    except UnsupportedError:
        raise
    except TypeMismatch as e:
        raise TypeMismatch(f"{tracer.place(sys.exc_info()[2])}: {e}") from e
    except WaxeqError:
        raise
    except Exception as e:
        where = tracer.place(sys.exc_info()[2])
        raise TargetError(f"{where}: the model raises {type(e).__name__}: {e}") from e


def _outputs(value: Any, tracer: Tracer, found: list[tuple[str, int]], name: str) -> Any:
    if isinstance(value, Mapping):
        return {k: _outputs(v, tracer, found, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_outputs(v, tracer, found, f"{name}{i}") for i, v in enumerate(value)]
    unique, n = name, 1
    while any(unique == other for other, _ in found):
        n, unique = n + 1, f"{name}_{n}"
    found.append((unique, tracer.value(value)))
    return unique
