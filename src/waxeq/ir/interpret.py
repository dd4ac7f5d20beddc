"""The interpreter: what a graph means, op by op, in NumPy. Float64 inputs give the oracle all plans are held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from waxeq.errors import BoundsError, TypeMismatch
from waxeq.ir.graph import Graph, GraphBuilder, Node
from waxeq.ir.types import TensorType, is_float

_ALONE = 2
"""References to an array that a dict alone has, while they are counted."""


def interpret(graph: Graph, given: Mapping[str, np.ndarray], *, oracle: bool = False) -> dict[str, np.ndarray]:
    """Run a graph on `given` (leaf name -> array); returns outputs and new states by name.

    With `oracle`, every float is computed in float64: what the model means, apart from rounding.
    Raises TypeMismatch when an array is missing or of another type than its leaf, BoundsError for an index outside its
    axis, MatrixError for a matrix that has no solution or factor.
    """
    values: dict[int, np.ndarray] = {}
    for v, leaf in enumerate(graph.leaves):
        if leaf.name not in given and leaf.name not in graph.constants:
            raise TypeMismatch(f"no array was given for {leaf.kind} {leaf.name!r} ({leaf.type})")
        a = np.asarray(given.get(leaf.name, graph.constants.get(leaf.name)))
        if TensorType.of(a) != leaf.type:
            raise TypeMismatch(f"{leaf.kind} {leaf.name!r} is {TensorType.of(a)}, the model takes {leaf.type}")
        values[v] = a
    wide = {v for v, leaf in enumerate(graph.leaves) if oracle and is_float(leaf.type.dtype)}
    last = {i: v for v, n in graph.values() for i in n.inputs}
    kept = frozenset(graph.results)
    with np.errstate(all="ignore"):
        for v, n in graph.values():
            want = np.dtype(np.float64) if oracle and is_float(n.type.dtype) else n.type.numpy
            for i in wide.intersection(n.inputs):  # now: memory used again costs a fraction of fresh memory
                values[i] = values[i].astype(np.float64)
                wide.remove(i)
            dead = {i for i in n.inputs if last[i] == v} - kept
            try:
                values[v] = settle(_run(n, oracle, want, values, dead), want)
            except IndexError as e:
                raise _outside(n, e) from e
            except np.linalg.LinAlgError as e:
                raise MatrixError(f"{_where(n, e)}; give inputs whose matrices can be factored") from e
            for i in dead:
                del values[i]
    for i in wide & kept:
        values[i] = values[i].astype(np.float64)
    return {name: values[v] for name, v in (*graph.outputs, *graph.states)}


def _run(node: Node, oracle: bool, want: np.dtype, values: Mapping[int, np.ndarray], dead: Iterable[int]) -> Any:
    """The value of a node. It is written over an operand of its shape and dtype that nobody refers to but `values`, as
    a view of it would: fresh memory takes longer than most functions."""
    arrays = (values[i] for i in node.inputs)
    into = node.op.ideal_into if oracle else node.op.ufunc
    if into is not None:
        for i in dead:
            alike = values[i].shape == node.type.shape and values[i].dtype == want and values[i].flags.owndata
            if alike and getrefcount(values[i]) == _ALONE:
                return into(*arrays, out=values[i])
    return (node.op.ideal if oracle else node.op.reference)(*arrays)


class MatrixError(TypeMismatch, np.linalg.LinAlgError):
    """An input holds a matrix that is singular, or not positive definite; also a LinAlgError, as NumPy raises one."""


def _outside(node: Node, e: IndexError) -> BoundsError:
    return BoundsError(f"{_where(node, e)}; give inputs whose indices fit")


def _where(node: Node, e: Exception) -> str:
    """The message of an error, after the place that a node comes from."""
    where = "" if node.source is None else f"{node.source}: "
    return f"{where}{str(e).removeprefix(where)}"


def settle(value: Any, dtype: np.dtype) -> np.ndarray:
    """A reference's result as an array of exactly the declared dtype."""
    y = np.asarray(value)
    return y if y.dtype == dtype else y.astype(dtype)


def evaluate_expansion(op: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The value of a composite on arrays, by its expansion."""
    b = GraphBuilder()
    leaves = [b.leaf(str(i), TensorType.of(a)) for i, a in enumerate(arrays)]
    graph = b.finish([("y", op.expand(b, *leaves))], keep=leaves)
    return interpret(graph, {str(i): np.asarray(a) for i, a in enumerate(arrays)})["y"]
