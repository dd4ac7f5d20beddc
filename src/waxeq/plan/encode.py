"""Plans as plain data (JSON): what the plan file and the memory of optimized blocks hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from typing import Any

from waxeq.backend.call import Call, View, axes_in, sharing
from waxeq.backend.storage import CPU
from waxeq.egraph.rules import RuleFile, parse_rules
from waxeq.errors import PlanError
from waxeq.ir.structure import decode_structure, encode_structure
from waxeq.ir.term import Term, dump, parse
from waxeq.ir.text import parse_graph, print_graph
from waxeq.ir.types import TensorType
from waxeq.ops import OPS
from waxeq.plan.plan import Buffer, Fold, Output, Plan, RunnerUp, Step
from waxeq.plan.schedule import BlockPlan

_dump = lru_cache(maxsize=8192)(dump)
VERSION = 1
"""Version of the plan format; a plan of another version is refused."""


def _view(v: View) -> list:
    return [list(v.axes), list(v.shape), list(v.strides), v.dtype, v.offset]


def _read_view(row: list) -> View:
    axes, shape, strides, dtype, offset = row
    return View(tuple(axes), tuple(shape), tuple(strides), dtype, offset)


def _step(s: Step) -> dict[str, Any]:
    c = s.call
    return {
        "kernel": c.kernel,
        "meaning": _dump(c.meaning),
        "sizes": dict(c.sizes),
        "reads": [[n, _view(v)] for n, v in zip(s.reads, c.operands, strict=True)],
        "writes": [s.writes, _view(c.out)],
        "fixed": list(c.fixed),
        "threads": c.threads,
        "workspace": s.workspace,
        "retained": s.retained,
        "predicted": [s.predicted, s.low, s.high, s.basis],
        "sources": list(s.sources),
        "runner_up": None if s.runner_up is None else list(astuple(s.runner_up)),
        **({"part": s.part} if s.part else {}),
    }


def read_call(d: Mapping[str, Any], meaning: Term) -> Call:
    """The call of a step that means this."""
    reads, operands = tuple(n for n, _ in d["reads"]), tuple(_read_view(v) for _, v in d["reads"])
    out = _read_view(d["writes"][1])
    fixed, threads = tuple(d.get("fixed", ())), d.get("threads", 1)
    return Call(d["kernel"], meaning, dict(d["sizes"]), operands, out, sharing(reads), fixed, threads)


def _read_step(d: Mapping[str, Any]) -> Step:
    call, reads = read_call(d, parse(d["meaning"])), tuple(n for n, _ in d["reads"])
    predicted, low, high, basis = d["predicted"]
    other = RunnerUp(*d["runner_up"]) if d["runner_up"] else None
    kept = d.get("retained", 0)
    about = (predicted, low, high, basis, tuple(d["sources"]), other, kept, d.get("part", ""))
    return Step(call, reads, d["writes"][0], d["workspace"], *about)


def _fold(f: Fold) -> dict[str, Any]:
    used = set()
    for a in f.leaves.values():
        used.update(k for k in a if k is not None)
    used.update(axes_in(f.term))
    used.update(f.order)
    return {
        "writes": f.writes,
        "term": dump(f.term),
        "sizes": {k: f.sizes[k] for k in sorted(used)},
        "order": list(f.order),
        "dtype": f.dtype,
        "leaves": {n: list(a) for n, a in f.leaves.items()},
    }


def _read_fold(d: Mapping[str, Any]) -> Fold:
    leaves = {n: tuple(a) for n, a in d["leaves"].items()}
    return Fold(d["writes"], parse(d["term"]), dict(d["sizes"]), tuple(d["order"]), d["dtype"], leaves)


def _buffer(b: Buffer) -> list:
    return [b.dtype, b.elements, b.role, b.offset, *([] if b.place == CPU else [b.place])]


def encode_block(p: BlockPlan) -> dict[str, Any]:
    """A plan of one block as JSON values, for the memo of the timing table."""
    return {
        "buffers": {n: _buffer(b) for n, b in p.buffers.items()},
        "folds": [_fold(f) for f in p.folds],
        "steps": [_step(s) for s in p.steps],
        "outputs": dict(p.outputs),
    }


def decode_block(d: Mapping[str, Any]) -> BlockPlan:
    """The inverse of `encode_block`."""
    return BlockPlan(
        {n: Buffer(n, *row) for n, row in d["buffers"].items()},
        tuple(map(_read_fold, d["folds"])),
        tuple(map(_read_step, d["steps"])),
        dict(d["outputs"]),
    )


def encode_rules(files: Iterable[RuleFile]) -> list[list[str]]:
    """Rule files as names and texts: a plan carries those it was searched with that are not installed, so that it can
    be explained without them."""
    return [[f.path.name, f.text] for f in files]


def decode_rules(about: Mapping[str, Any]) -> tuple[RuleFile, ...]:
    """The rule files that `Plan.about` carries; none in a plan written before they were. Raises RuleError."""
    return tuple(parse_rules(Path(name), text) for name, text in about.get("search", {}).get("rules", ()))


def encode(p: Plan, *, sources: bool = True) -> dict[str, Any]:
    """The plan as JSON-able data. Constant arrays of the graph are not in it; they travel with the tensors. `sources`:
    with the lines of the model that its values come from."""
    return {
        "waxeq": VERSION,
        "name": p.name,
        "about": dict(p.about),
        "graph": print_graph(p.graph, sources=sources),
        "buffers": {n: _buffer(b) for n, b in p.buffers.items()},
        "folds": [_fold(f) for f in p.folds],
        "steps": [_step(s) for s in p.steps],
        "outputs": [[o.name, str(o.type), o.buffer] for o in p.outputs],
        "states": [list(s) for s in p.states],
        "arena_bytes": p.arena_bytes,
        "in_place": [list(r) for r in p.in_place],
        "structure": encode_structure(p.structure),
        "written": p.written,
        **({"arenas": dict(p.arenas)} if p.arenas else {}),
        **({"around": p.around} if p.around else {}),
    }


def running(p: Plan) -> dict[str, Any]:
    """Of `encode` what decides what runs: not what is predicted and said of a plan, what it is called and where in a
    file its model stands."""
    rows = {k: v for k, v in encode(p, sources=False).items() if k not in ("about", "name", "around")}
    steps = [{k: v for k, v in s.items() if k not in ("predicted", "runner_up", "sources")} for s in rows["steps"]]
    return {**rows, "steps": steps}


def decode(d: Mapping[str, Any], constants: Mapping[str, Any]) -> Plan:
    """Inverse of `encode`. Raises PlanError on data that is no plan or of another version."""
    if not isinstance(d, Mapping) or d.get("waxeq") != VERSION:
        raise PlanError(f"not a waxeq plan of version {VERSION}; make it anew with `waxeq optimize`")
    try:
        return Plan(
            d["name"],
            parse_graph(d["graph"], OPS, constants),
            {n: Buffer(n, *row) for n, row in d["buffers"].items()},
            tuple(map(_read_fold, d["folds"])),
            tuple(map(_read_step, d["steps"])),
            tuple(Output(n, TensorType.parse(t), b) for n, t, b in d["outputs"]),
            tuple((a, b) for a, b in d["states"]),
            d["arena_bytes"],
            tuple((a, b) for a, b in d["in_place"]),
            decode_structure(d["structure"]),
            d["written"],
            d["about"],
            dict(d.get("arenas", {})),
            d.get("around", 0.0),
        )
    except (KeyError, ValueError, TypeError, IndexError) as e:
        raise PlanError(f"the plan is damaged ({type(e).__name__}: {e}); make it anew with `waxeq optimize`") from e
