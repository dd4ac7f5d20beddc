"""Meanings as people write them: `sum_i2 %0 * %1` for (Sum "i2" (Mul %0 %1))."""

from __future__ import annotations

from collections.abc import Sequence

from waxeq.backend.call import Call, operand_index
from waxeq.basis.ways import swept
from waxeq.ir.term import Term, postorder
from waxeq.plan.plan import Step

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX |= {"eq": "==", "ne": "!="}
_LONGEST = 200
_LONG_NAME = 24


def formula(call: Call, names: Sequence[str] = ()) -> str:
    """The meaning of a call over the names of what it reads, cut at 200 characters. `@513` behind a name that is read
    from several places: so many elements from its start."""
    done: dict[Term, str] = {}
    for t in postorder(call.meaning):
        if t.head == "In":
            n = operand_index(t)
            done[t] = _operand(call, names, n) if n < len(names) else f"%{n}"
        else:
            done[t] = _node(t, [_short(done[a]) for a in t.terms])
    text = done[call.meaning]
    text = text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_last(text) else text
    return _short(text)


def sweeps(meaning: Term) -> int:
    """Of how many loops a meaning is one walk, where later ones read earlier ones at several places: its formula names
    every place of every loop, and is cut before it says what the last one does."""
    return 1 + len(swept(meaning))


def _operand(call: Call, names: Sequence[str], n: int) -> str:
    several = len({v.offset for v, name in zip(call.operands, names, strict=False) if name == names[n]}) > 1
    return _short_name(names[n]) + (f"@{call.operands[n].offset}" if several else "")


def _short_name(name: str) -> str:
    """The end of a long path: encoder.layer.0.output.dense.weight is ..dense.weight."""
    return name if len(name) <= _LONG_NAME else ".." + ".".join(name.split(".")[-2:])


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _closes_last(text: str) -> bool:
    """Whether the first parenthesis is closed by the last one."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


def _node(t: Term, args: list[str]) -> str:
    head = t.head
    if head == "Num":
        return f"{t.args[0]:g}"
    if head == "Par":
        return _short_name(t.args[0])
    if head in ("Add", "Mul"):
        return f"({args[0]} {'+' if head == 'Add' else '*'} {args[1]})"
    if head == "Zip":
        sign = _INFIX.get(t.args[0])
        return f"({args[0]} {sign} {args[1]})" if sign else f"{t.args[0]}({args[0]}, {args[1]})"
    if head in ("Map", "Cast"):
        return f"{t.args[0]}({_bare(args[0])})"
    if head == "Sum":
        return f"sum_{t.args[0]}({_bare(args[0])})"
    if head == "Red":
        return f"{t.args[0]}_{t.args[1]}({_bare(args[0])})"
    if head == "Select":
        return f"where({', '.join(map(_bare, args))})"
    atoms = [str(a) for a in t.args if not isinstance(a, (Term, frozenset))]
    return f"{head.lower()}[{','.join(atoms)}]({', '.join(map(_bare, args))})"


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(") and _closes_last(text) else text


def shapes(step: Step) -> str:
    """The sizes of what a step reads and writes: 256x784, 784x1024 -> 256x1024."""
    reads = ", ".join(_size(v.shape) for v in step.call.operands)
    return f"{reads} -> {_size(step.call.out.shape)}" if reads else _size(step.call.out.shape)


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
