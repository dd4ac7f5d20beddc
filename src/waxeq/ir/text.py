"""Graphs as text: one line a value, read back exactly.

input x: float32[4, 8]
weight w: float32[8, 2]
%2 = Einsum(%0, %1) spec="mk,kn->mn" : float32[4, 2]  # model.py:3
output y = %2
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping

import numpy as np

from waxeq.errors import PlanError, TypeMismatch
from waxeq.ir.graph import Graph, Leaf, Node, Source
from waxeq.ir.op import Op
from waxeq.ir.types import TensorType

_NODE = re.compile(r"%(\d+) = (\w+)\(([^)]*)\)(.*?) : (\w+\[[^\]]*\])(?:  # (.*))?$")


def print_graph(graph: Graph, *, sources: bool = True) -> str:
    """The graph as text; constant arrays are named, not written out. `sources`: with the lines that values come
    from."""
    rows = [f"{x.kind} {_quoted(x.name)}: {x.type}" for x in graph.leaves]
    for v, n in graph.values():
        reads = ", ".join(f"%{i}" for i in n.inputs)
        attributes = "".join(f" {k}={a!r}" for k, a in n.op.attributes.items())
        where = f"  # {n.source}" if sources and n.source else ""
        rows.append(f"%{v} = {type(n.op).__name__}({reads}){attributes} : {n.type}{where}")
    rows += [f"output {_quoted(n)} = %{v}" for n, v in graph.outputs]
    rows += [f"state {_quoted(n)} <- %{v}" for n, v in graph.states]
    return "\n".join(rows) + "\n"


def _quoted(name: str) -> str:
    """A name as it is, or as a Python string where it is no plain word."""
    return name if re.fullmatch(r"[\w.]+", name) else repr(name)


def _unquoted(text: str) -> str:
    return str(ast.literal_eval(text)) if text[:1] in ("'", '"') else text


def parse_graph(text: str, ops: Mapping[str, type[Op]], constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Inverse of `print_graph`. Raises PlanError naming the line it cannot read."""
    leaves: list[Leaf] = []
    nodes: list[Node] = []
    outputs: list[tuple[str, int]] = []
    states: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        word, _, rest = line.partition(" ")
        try:
            if word == "output":
                name, _, v = rest.rpartition(" = %")
                outputs.append((_unquoted(name), int(v)))
            elif word == "state" and " <- %" in rest:
                name, _, v = rest.rpartition(" <- %")
                states.append((_unquoted(name), int(v)))
            elif word in ("input", "weight", "state", "constant"):
                name, _, type_ = rest.rpartition(": ")
                leaves.append(Leaf(_unquoted(name), TensorType.parse(type_), word))
            else:
                nodes.append(_node(line, ops))
        except (ValueError, KeyError, TypeError, AttributeError, SyntaxError, TypeMismatch) as e:
            raise PlanError(f"line {number} of the graph cannot be read ({e}): {line}") from e
    return Graph(tuple(leaves), tuple(nodes), tuple(outputs), tuple(states), dict(constants or {}))


def _node(line: str, ops: Mapping[str, type[Op]]) -> Node:
    m = _NODE.match(line)
    if m is None:
        raise ValueError("not a value")
    _, name, reads, attributes, type_, where = m.groups()
    inputs = tuple(int(r.strip()[1:]) for r in reads.split(",") if r.strip())
    source = None
    if where:
        file, _, at = where.rpartition(":")
        source = Source(file, int(at))
    op = ops[name](**_attributes(attributes))
    return Node(op, inputs, TensorType.parse(type_), source)


def _attributes(text: str) -> dict[str, object]:
    call = ast.parse(f"f({','.join(_fields(text))})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(k.arg): _literal(k.value) for k in call.keywords}


def _literal(e: ast.expr) -> object:
    names = {"inf": math.inf, "nan": math.nan}
    if isinstance(e, ast.Name):
        return names[e.id]
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub) and isinstance(e.operand, ast.Name):
        return -names[e.operand.id]  # pyright: ignore[reportOperatorIssue]
    return ast.literal_eval(e)


def _fields(text: str) -> list[str]:
    """`a=1 b=(2, 3)` cut before each `name=`."""
    return [p.strip() for p in re.split(r"\s(?=\w+=)", text) if p.strip()]
