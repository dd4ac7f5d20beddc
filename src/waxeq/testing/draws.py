"""How a random op of each class is drawn: attributes by their names, operands that fit. What does not fit is drawn
again, so a new operator whose attributes have known names is drawn without being named here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from waxeq.basis.matrices import make_regular
from waxeq.errors import TypeMismatch
from waxeq.ir.op import Op
from waxeq.ir.types import DTYPES, TensorType, is_float

if TYPE_CHECKING:
    from waxeq.testing.programs import Draft

Drawn = tuple[Op, Sequence[int]]
Types = Sequence[TensorType]


def generic(d: Draft, cls: type[Op]) -> Drawn:
    """An op on as many operands as it takes, alike in dtype and shape, with attributes drawn by name."""
    xs: list[int] = []
    for _ in range(d.rng.randint(1, 3) if cls.arity is None else cls.arity):
        xs.append(d.like(xs[0]) if xs else _first(d, cls))
    return cls(**attributes(d, cls, [d.type(x) for x in xs])), xs


def _first(d: Draft, cls: type[Op]) -> int:
    """The first operand: a condition for an op of three, else of any dtype, floats more often."""
    want = d.rng.random()
    found = d.pick((lambda t: is_float(t.dtype)) if want < 0.7 else (lambda t: True))
    return d.leaf() if found is None or want > 0.97 else found


def attributes(d: Draft, cls: type[Op], types: Types) -> dict[str, Any]:
    """Attributes of an op, each drawn knowing the ones before it."""
    rows: dict[str, Any] = {}
    for f in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if f.name not in FIELDS:
            raise AssertionError(f"say in FIELDS how the attribute {f.name!r} of {cls.__name__} is drawn")
        rows[f.name] = FIELDS[f.name](d, cls, types, rows)
    return rows


def _axis(d: Draft, types: Types) -> int:
    if not types[0].rank:
        raise TypeMismatch("no axes")
    return d.rng.randrange(types[0].rank)


def _size(types: Types, rows: Mapping[str, Any]) -> int:
    return types[0].shape[rows["axis"]]


def _axes(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> tuple[int, ...]:
    rank = types[0].rank
    if str(rows.get("f", "")).startswith("arg"):
        return (_axis(d, types),)
    return tuple(sorted(d.rng.sample(range(rank), d.rng.randint(min(rank, 1), rank))))


def _perm(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(d.rng.sample(range(types[0].rank), types[0].rank))


def _shape(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> tuple[int, ...]:
    """The elements regrouped; for what broadcasts, more axes and some of size 1 stretched."""
    shape = types[0].shape
    if "Broadcast" in cls.__name__:
        lead = tuple(d.rng.choice(d.sizes) for _ in range(d.rng.randint(0, 2)))
        return (*lead, *(d.rng.choice(d.sizes) if s == 1 and d.rng.random() < 0.6 else s for s in shape))
    rest, made = math.prod(shape), []
    while rest > 1 and len(made) < 4:
        k = d.rng.choice([k for k in range(1, rest + 1) if rest % k == 0])
        made.append(k)
        rest //= k
    return (*made, rest) if rest != 1 or d.rng.random() < 0.3 else tuple(made)


def _start(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> int:
    return d.rng.randrange(max(_size(types, rows), 1))


def _count(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> int:
    if "step" not in rows:
        return d.rng.randint(1, max(types[0].rank, 1))
    step, start = rows["step"], rows["start"]
    room = (_size(types, rows) - 1 - start) // step if step > 0 else start // -step
    return d.rng.randint(0 if d.rng.random() < 0.05 else 1, max(room + 1, 1))


def _function(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> str:
    return d.rng.choice(sorted(cls.functions))  # pyright: ignore[reportAttributeAccessIssue]


def _value(d: Draft, cls: type[Op], types: Types, rows: Mapping[str, Any]) -> float:
    return d.rng.choice((0.0, 1.0, 2.0, 3.0, *((-0.5, 0.25) if not types or is_float(types[0].dtype) else ())))


def _spatial(d: Draft) -> int:
    return d.rng.choice((1, 1, 2))


FIELDS: Mapping[str, Callable[[Draft, type[Op], Types, Mapping[str, Any]], Any]] = {
    "f": _function,
    "axis": lambda d, cls, types, rows: _axis(d, types),
    "axis1": lambda d, cls, types, rows: _axis(d, types),
    "axis2": lambda d, cls, types, rows: _axis(d, types),
    "axes": _axes,
    "perm": _perm,
    "shape": _shape,
    "keepdims": lambda d, *_: d.rng.random() < 0.4,
    "approximate": lambda d, *_: d.rng.random() < 0.5,
    "start": _start,
    "step": lambda d, *_: d.rng.choice((1, 1, 1, 2, 3, -1, -2)),
    "count": _count,
    "low": lambda d, *_: d.rng.randint(0, 2),
    "high": lambda d, *_: d.rng.randint(0, 2),
    "value": _value,
    "dtype": lambda d, *_: d.rng.choice(("float32", "float64", "float64", *DTYPES)),
    "size": lambda d, *_: d.rng.choice((0, *d.sizes, 1, 2, 3)),
    "stride": lambda d, *_: d.rng.choice((1, 1, 2)),
    "dilation": lambda d, *_: d.rng.choice((1, 1, 2)),
    "epsilon": lambda d, *_: d.rng.choice((1e-5, 1e-3, 0.1)),
}
"""How an attribute is drawn, by its name."""


# -- ops whose operands must fit each other in ways of their own


def _select(d: Draft, cls: type[Op]) -> Drawn:
    x = _first(d, cls)
    t = d.type(x)
    c = d.pick(lambda o: o.dtype == "bool" and o.shape == t.shape)
    return cls(), (d.leaf(TensorType("bool", t.shape[d.rng.randint(0, t.rank) :])) if c is None else c, x, d.like(x))


def _einsum(d: Draft, cls: type[Op]) -> Drawn:
    """Labels of the second operand are those of the first where the sizes agree, as chance has it."""
    x = _first(d, cls)
    y = d.pick(lambda t: t.dtype == d.type(x).dtype) if d.rng.random() < 0.85 else None
    a = "abcdef"[: d.type(x).rank]
    if y is None:
        out = "".join(d.rng.sample(a, d.rng.randint(0, len(a))))
        return cls(spec=f"{a}->{out}"), (x,)  # pyright: ignore[reportCallIssue]
    labels = ""
    for i, s in enumerate(d.type(y).shape):
        fits = [c for c, n in zip(a, d.type(x).shape, strict=True) if n == s and c not in labels]
        labels += d.rng.choice(fits) if fits and d.rng.random() < 0.7 else "uvwxyz"[i]
    every = "".join(dict.fromkeys(a + labels))
    shared = [c for c in a if c in labels]
    out = [c for c in d.rng.sample(every, len(every)) if d.rng.random() < (0.3 if c in shared else 0.9)]
    return cls(spec=f"{a},{labels}->{''.join(out)}"), (x, y)  # pyright: ignore[reportCallIssue]


def _matmul(d: Draft, cls: type[Op]) -> Drawn:
    x = _first(d, cls)
    t = d.type(x)
    if not t.rank:
        raise TypeMismatch("no axes")
    k = t.shape[-1]
    y = d.pick(lambda o: o.dtype == t.dtype and o.rank > 0 and o.shape[-2 if o.rank > 1 else 0] == k)
    if y is None or d.rng.random() < 0.3:
        batch = t.shape[:-2] if d.rng.random() < 0.3 else ()
        y = d.leaf(TensorType(t.dtype, (*batch, k, *d.shape(1)) if batch or d.rng.random() < 0.8 else (k,)))
    return cls(), (x, y)


def _layer_norm(d: Draft, cls: type[Op]) -> Drawn:
    x = _first(d, cls)
    t = d.type(x)
    count = d.rng.randint(1, max(t.rank, 1))
    scale, bias = (d.leaf(TensorType(t.dtype, t.shape[t.rank - count :])) for _ in range(2))
    return cls(**attributes(d, cls, [t]) | {"count": count}), (x, scale, bias)


def _conv(d: Draft, cls: type[Op]) -> Drawn:
    n, g = _spatial(d), d.rng.choice((1, 1, 2))
    dtype = d.rng.choice(("float32", "float64"))
    x = d.leaf(
        TensorType(dtype, (d.rng.randint(1, 2), g * d.rng.randint(1, 3), *(d.rng.randint(3, 8) for _ in range(n))))
    )
    w = d.leaf(
        TensorType(dtype, (g * d.rng.randint(1, 3), d.type(x).shape[1] // g, *(d.rng.randint(1, 3) for _ in range(n))))
    )
    pads = tuple((d.rng.randint(0, 1), d.rng.randint(0, 1)) for _ in range(n))
    steps = [tuple(d.rng.choice((1, 1, 2)) for _ in range(n)) for _ in range(2)]
    return cls(strides=steps[0], pads=pads, dilations=steps[1], groups=g), (x, w)  # pyright: ignore[reportCallIssue]


def _indexed(d: Draft, cls: type[Op]) -> Drawn:
    """Ops that index an axis of x: by an index of any shape, along the axis, or with an update."""
    x = _first(d, cls)
    t = d.type(x)
    rows = attributes(d, cls, [t])
    n = _size([t], rows)
    before, after = t.shape[: rows["axis"]], t.shape[rows["axis"] + 1 :]
    if cls.arity == 3:
        i = d.index((d.rng.randint(0, 4),), n)
        return cls(**rows), (x, i, d.leaf(TensorType(t.dtype, (*before, d.type(i).shape[0], *after))))
    if "Along" in cls.__name__:
        rest = tuple(s if d.rng.random() < 0.8 else 1 for s in (*before, *after))
        return cls(**rows), (x, d.index((*rest[: len(before)], d.rng.randint(1, 4), *rest[len(before) :]), n))
    known = d.pick(lambda o: o.dtype == "int64" and o.rank < 3) if d.rng.random() < 0.3 else None
    if known is not None and n:
        values = d.values[known].array
        if values.size and -n <= values.min() and values.max() < n:
            return cls(**rows), (x, known)
    return cls(**rows), (x, d.index(d.shape(d.rng.randint(0, 2)), n))


def _factored(d: Draft, cls: type[Op]) -> Drawn:
    """Matrices with large diagonals, at times a batch of them, and the right sides of a system, whose matrices are
    triangular now and then: those are solved otherwise."""
    n, dtype = d.rng.choice(d.sizes), d.rng.choice(("float32", "float64"))
    batch = d.shape(d.rng.choice((0, 0, 1, 2)))
    matrix = d.content(TensorType(dtype, (*batch, n, n)))
    make_regular(matrix, tuple("xyij"[2 - len(batch) :]), "i", "j")
    if cls.arity == 2:
        matrix = d.rng.choice((np.array, np.array, np.tril, np.triu))(matrix)
    a = d.leaf(TensorType(dtype, matrix.shape), matrix / max(1.0, float(np.abs(matrix).max(initial=0.0))))
    if cls.arity == 1:
        return cls(**attributes(d, cls, [d.type(a)])), (a,)
    some = tuple(s if d.rng.random() < 0.8 else 1 for s in batch[d.rng.randint(0, len(batch)) :])
    return cls(), (a, d.leaf(TensorType(dtype, (*some, n, *d.shape(1)))))


DRAWERS: Mapping[str, Callable[[Draft, type[Op]], Drawn]] = {
    "Select": _select,
    "Einsum": _einsum,
    "Matmul": _matmul,
    "LayerNorm": _layer_norm,
    "Conv": _conv,
    **dict.fromkeys(("Gather", "TakeAlong", "Scatter"), _indexed),
    **dict.fromkeys(("Solve", "Cholesky", "Determinant"), _factored),
}
