"""Calls of a kernel, drawn at random: typed instances of its pattern, random trees for loops, and memory laid out to
hurt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from waxeq.backend.call import Call, View, axes_in, operand
from waxeq.backend.kernel import Kernel
from waxeq.basis.evaluate import Native
from waxeq.basis.heads import HEADS
from waxeq.basis.matrices import factored
from waxeq.basis.scalar import SCALARS
from waxeq.basis.typing import types
from waxeq.egraph.kernels import MANY
from waxeq.egraph.kernels import pattern as kernel_pattern
from waxeq.egraph.rules import Apply, Expr, Lit, Var
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import DTYPES, HALVES
from waxeq.search.samples import windows
from waxeq.testing.alone import functions, in_pattern, takes_functions
from waxeq.testing.dtypes import IllTyped
from waxeq.testing.instances import draw
from waxeq.testing.integers import QUANTIZED, quantized
from waxeq.testing.pattern import Pattern
from waxeq.testing.picks import PICK, picked
from waxeq.testing.rows import Found
from waxeq.testing.runs import RUN, scanned
from waxeq.testing.scatters import PUT, scattered
from waxeq.testing.stencils import lined, swept
from waxeq.testing.values import evaluate, truncations, unheld

_ATTEMPTS = 15
"""Calls drawn, for each call wanted: kernels do not accept every one."""
_RARE = 100
"""The same for kernels of products that take whole lines of memory only, or windows."""
_LARGE = (1, 2, 7, 33, 64, 129, 700, 3000, 20_000, 200_000)
_MOST = 1 << 19
"""Elements of the iteration space of a large call."""
_SIZES, _WHOLE = (1, 2, 5, 8, 17, 33, 70), (8, 16, 24, 40, 72)
"""Of products, and of those whose lines are whole groups of 16 bytes."""
_SQUARE = (1, 2, 3, 4, 5, 8, 13, 16, 17, 40)
"""Of matrices that are factored."""
_SMALL = (4, 5, 8, 11, 19)
"""Of images, and of their channels."""
_NARROW, _DEPTHS = (8, 17, 33, 40), (512, 700, 2050, 2300)
"""Of products that are deep, and their depths."""
_WHOLE_DTYPES = (*HALVES, "float32")
_WIDE = ("float32", "float32", "float64")
"""Dtypes of products that most kernels of them take; others take `HALVES`."""
_NESTED = ("Map", "Zip", "Add", "Mul", "Select", "Cast", "Sum", "Red", "Iota")
"""Heads that random loops are made of."""


def generated(name: str, kernel: Kernel, rng: np.random.Generator, calls: int, *, alone: bool = True) -> Iterator[Call]:
    """Calls that the kernel accepts: about `calls`, and (`alone`) for kernels of form "loops" that take functions of
    operands and nothing else each of these besides. Of products where it accepts none of memory laid out to hurt, those
    on whole lines of memory, deep ones, or convolutions; of sweeps, where it accepts fewer, those over long rows."""
    pools = [(_ATTEMPTS * calls, calls, _source(kernel))]
    if alone and takes_functions(kernel):
        pools += [(8, 1, lambda r, p=p: p) for p in functions()]
    found = 0
    for attempts, wanted, make in pools:
        for _ in range(attempts):
            if wanted == 0:
                break
            call = _draw(name, kernel, make(rng), rng)
            if call is not None and kernel.accepts(call):
                wanted, found = wanted - 1, found + 1
                yield call
    for n in range(_ATTEMPTS * calls if kernel.form == "sweeps" else 0):
        call = _draw(name, kernel, lined(rng), rng, whole=n % 2 == 0) if found < calls else None
        if call is not None and kernel.accepts(call):
            found += 1
            yield call
    dtypes = _multiplied_dtypes(kernel)
    deep = partial(_deep, dtypes=dtypes)
    rarer: tuple[tuple[Source, bool], ...] = ((_in_lines, True), (convolved, False), (deep, False))
    for n in range(len(rarer) * _RARE * calls if dtypes and not found else 0):
        make, whole = rarer[n % len(rarer)]
        call = _draw(name, kernel, make(rng), rng, whole=whole) if found < calls else None
        call = _of_one_buffer(call, rng) if call is not None and make is deep else call
        if call is not None and kernel.accepts(call):
            found += 1
            yield call


def nested(name: str, kernel: Kernel, rng: np.random.Generator, calls: int) -> Iterator[Call]:
    """About so many calls of random nests of loops, for kernels of form "loops", and as many of products of matrices
    and of running folds where the kernel takes some."""
    own = _own(kernel)
    nests = (lambda: in_pattern(_tree(rng, int(rng.integers(1, 5)), own)), lambda: multiplied(rng))
    for source in (*nests, *([lambda: scanned(rng, _MOST)] if kernel.matches(RUN) else [])):
        wanted = calls
        for _ in range(_ATTEMPTS * calls):
            call = _draw(name, kernel, source(), rng) if wanted else None
            if call is not None and kernel.accepts(call):
                wanted -= 1
                yield call


Source = Callable[[np.random.Generator], Pattern | Found | None]


def _source(kernel: Kernel) -> Source:
    """Where meanings come from: the kernel's pattern, random trees, or (None) the identity."""
    if kernel.form == "copy":
        return lambda rng: None
    if kernel.form == "sweeps":
        return swept
    if dtypes := _multiplied_dtypes(kernel):
        return partial(multiplied, dtypes=dtypes)
    kinds = (RUN, scanned), (PUT, scattered), (PICK, picked), (QUANTIZED, quantized)
    for one, drawn in kinds if kernel.form == "loops" else ():
        if kernel.matches(one) and not any(map(kernel.matches, one.terms)):
            return lambda rng, drawn=drawn: next(f for _ in range(_RARE) if kernel.matches((f := drawn(rng, _MOST))[0]))
    if kernel.form == "loops":
        own = _own(kernel)
        return lambda rng: in_pattern(_tree(rng, int(rng.integers(1, 5)), own))
    tree = kernel_pattern("k", kernel).tree
    variants = [in_pattern(_expr(tree, "T", n)) for n in (1, 2, 3)]
    return lambda rng: variants[int(rng.integers(len(variants)))]


def _multiplied_dtypes(kernel: Kernel) -> tuple[str, ...]:
    """Dtypes of the products of matrices that a kernel of form "loops" takes; none where it takes no products."""
    some = (dtypes for dtypes in (_WIDE, HALVES) if kernel.form == "loops")
    return next((d for d in some if kernel.matches(multiplied(np.random.default_rng(0), d)[0])), ())


def _expr(tree: Any, sort: str, sums: int) -> Expr:
    """A kernel's pattern as an expression; "Sum*" as so many sums."""
    if isinstance(tree, str):
        return Lit(tree.strip('"')) if tree[0] == '"' else Lit(float(tree)) if tree[0] in "-0123456789" else Var(tree)
    head, *rest = tree
    if head != MANY:
        return Apply(head, tuple(_expr(x, s, sums) for x, s in zip(rest, HEADS[head].sorts, strict=True)))
    e = _expr(rest[1], "T", sums)
    for n in range(sums):
        e = Apply("Sum", (Var(f"{rest[0]}{n}"), e))
    return e


_STEPS = frozenset(
    {"floor", "ceil", "trunc", "rint", "sign", "mod", "fmod", "floordiv", "copysign", "arctan2", "pow"}
    | {"arcsin", "arccos", "arccosh", "arctanh", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt"}
)
"""Functions that jump, end or stand upright where rounding may take their argument: tried on operands only."""


def _own(kernel: Kernel) -> tuple[str, ...]:
    """Functions that a kernel is there for, where it does not take any."""
    maps = [f.name for f in SCALARS.values() if f.arity == 1 and f.takes == "float"]
    taken = tuple(f for f in maps if kernel.matches(Term("Map", f, operand(0, "i", "float32"))))
    return taken if len(taken) < len(maps) else ()


def _tree(rng: np.random.Generator, depth: int, own: tuple[str, ...]) -> Expr:
    """A random term of heads that can be fused, over a few operands and axes, each of which may occur often."""
    if depth == 0 or rng.random() < 0.15:
        x = Var(f"x{rng.integers(3)}")
        return Apply("Map", (Lit(str(rng.choice(own))), x)) if own and rng.random() < 0.5 else x
    head = str(rng.choice(_NESTED))
    smooth = [s.name for s in SCALARS.values() if s.name not in _STEPS and s.gives == "same"]
    args: list[Expr] = []
    for n, s in HEADS[head].args:
        if s == "T":
            args.append(_tree(rng, depth - 1, own))
        elif s == "Axis":
            args.append(Var(f"k{rng.integers(2)}"))
        elif s == "Dtype":
            args.append(Lit(str(rng.choice(("float32", "float64")))))
        else:
            arity = len(HEADS[head].tensors)
            names = ["max", "min"] if head == "Red" else [f for f in smooth if SCALARS[f].arity == arity]
            args.append(Lit(str(rng.choice(names)))) if s == "Fn" else args.append(Var(n))
    return Apply(head, tuple(args))


def _draw(
    name: str, kernel: Kernel, p: Pattern | Found | None, rng: np.random.Generator, *, whole: bool = False
) -> Call | None:
    found = _identity(rng) if p is None else _instance(kernel, p, rng) if isinstance(p, Pattern) else p
    if found is None:
        return None
    meaning, sizes, kinds, extra = found
    if kernel.form == "sweeps" and not kernel.matches(meaning):
        return None
    if kernel.dtypes is not None and any(d not in kernel.dtypes for _, d in kinds):
        return None
    axes = types(meaning)[meaning].axes | extra
    order = _permuted(axes, rng)
    proposed = [o for o in kernel.orders(meaning, frozenset(axes)) if frozenset(o) == axes]
    if proposed and rng.random() < 0.7:
        order = proposed[int(rng.integers(len(proposed)))]
    out = View.dense(order, sizes, types(meaning)[meaning].dtype)
    dense = (View.dense(_permuted(a, rng), sizes, d) for a, d in kinds)
    operands = tuple(v if whole else _laid_out(v, rng) for v in dense)
    if rng.random() < 0.3 and kinds and kinds[0][0] == axes:  # as where the result may be written over an operand
        operands = (View.dense(order, sizes, kinds[0][1]), *operands[1:])
    fixed = tuple(i for i in range(len(operands)) if rng.random() < 0.2)
    return Call(name, meaning, sizes, operands, out, fixed=fixed, threads=int(rng.integers(1, 4)))


def multiplied(
    rng: np.random.Generator,
    dtypes: tuple[str, ...] = _WIDE,
    lengths: tuple[int, ...] = _SIZES,
) -> Found:
    """A product of matrices, or two with a softmax between, with something before and after it."""
    dtype = str(rng.choice(dtypes))
    sizes = {k: int(rng.choice(lengths)) for k in ("m", "n", "k", "d")}
    sizes |= {"b": int(rng.integers(1, 4)), "c": int(rng.integers(1, 4))}
    kinds: list[tuple[frozenset[str], str]] = []

    def leaf(axes: str) -> Term:
        kinds.append((frozenset(axes), dtype))
        return operand(len(kinds) - 1, axes, dtype)

    batch = "b" if rng.random() < 0.4 else ""
    deep = "c" if rng.random() < 0.2 else ""
    x = leaf(batch + deep + "mk")
    if rng.random() < 0.3:
        x = Term("Mul", x, leaf("k")) if rng.random() < 0.5 else Term("Map", "tanh", x)
    y = leaf((batch if rng.random() < 0.5 else "") + deep + "kn")
    z = Term("Mul", x, y) if rng.random() < 0.5 else Term("Mul", y, x)
    for k in deep + "k":
        z = Term("Sum", k, z)
    for _ in range(int(rng.integers(0, 3))):
        z = _after(z, leaf, rng)
    if rng.random() < 0.3:
        e = Term("Map", "exp", Term("Zip", "sub", z, Term("Red", "max", "n", z)))
        v = leaf(batch + "nd")
        z = Term("Zip", "div", Term("Sum", "n", Term("Mul", e, v)), Term("Sum", "n", e))
    used = {k for t in types(z).values() for k in t.axes}
    return z, {k: n for k, n in sizes.items() if k in used}, kinds, frozenset()


def _in_lines(rng: np.random.Generator) -> Found:
    return multiplied(rng, _WHOLE_DTYPES, _WHOLE)


def _deep(rng: np.random.Generator, dtypes: tuple[str, ...] = _WIDE) -> Found:
    """A product of few elements that are sums of many, and what may come after one."""
    dtype = str(rng.choice(dtypes))
    sizes = {"m": int(rng.choice(_NARROW)), "n": int(rng.choice(_NARROW)), "k": int(rng.choice(_DEPTHS))}
    sizes["n"] = sizes["m"] if rng.random() < 0.5 else sizes["n"]
    kinds = [(frozenset(axes), dtype) for axes in ("mk", "kn")]
    z = Term("Sum", "k", Term("Mul", operand(0, "mk", dtype), operand(1, "kn", dtype)))

    def leaf(axes: str) -> Term:
        kinds.append((frozenset(axes), dtype))
        return operand(len(kinds) - 1, axes, dtype)

    return (_after(z, leaf, rng) if rng.random() < 0.5 else z), sizes, kinds, frozenset()


def _of_one_buffer(call: Call, rng: np.random.Generator) -> Call:
    """A deep product of a square with its second side in the buffer of the first: the same matrix turned, or one that
    begins an element later."""
    if call.sizes["m"] != call.sizes["n"]:
        return call
    first, second = call.operands[:2]
    steps = dict(zip(first.axes, first.strides, strict=True))
    strides = tuple(steps["m" if k == "n" else k] for k in second.axes)
    same = replace(second, strides=strides, offset=first.offset + int(rng.random() < 0.3))
    rest = range(1, len(call.operands) - 1)
    return replace(call, operands=(first, same, *call.operands[2:]), shared=(0, 0, *rest))


def convolved(rng: np.random.Generator) -> Found:
    """A convolution of some images with windows of 3 x 3, and what may come after one."""
    dtype = str(rng.choice(("float32", "float32", "float64")))
    sizes = {k: int(rng.choice(_SMALL)) for k in "coHW"} | {"n": int(rng.integers(1, 3)), "i": 3, "j": 3}
    sizes |= {"h": sizes["H"] - 2, "w": sizes["W"] - 2}
    after = str(rng.choice(("", "o", "nohw")))
    kinds = [(frozenset(axes), dtype) for axes in ("ncHW", "ocij", *([after] * bool(after)))]
    x, weights, *rest = (operand(i, axes, dtype) for i, (axes, _) in enumerate(kinds))
    x = windows(x)
    z = Term("Mul", x, weights) if rng.random() < 0.5 else Term("Mul", weights, x)
    for k in rng.permutation(list("cij")):
        z = Term("Sum", str(k), z)
    for more in rest:
        z = Term("Zip", "max", Term("Add", z, more), Term("Num", 0.0, dtype))
    return z, sizes, kinds, frozenset()


def _after(z: Term, leaf: Callable[[str], Term], rng: np.random.Generator) -> Term:
    """Something done to a product with rows m and columns n."""
    centred = Term("Zip", "sub", z, Term("Red", "max", "n", z))
    number = Term("Num", 0.0, types(z)[z].dtype)
    kinds: tuple[Callable[[], Term], ...] = (
        lambda: Term("Add", z, leaf("n")),
        lambda: Term("Add", leaf("mn"), z),
        lambda: Term("Map", "tanh", z),
        lambda: Term("Zip", "max", z, number),
        lambda: Term("Mul", z, leaf("m")),
        lambda: Term("Zip", "div", Term("Map", "exp", centred), Term("Sum", "n", Term("Map", "exp", centred))),
    )
    return kinds[int(rng.integers(len(kinds)))]()


def _identity(rng: np.random.Generator) -> Found:
    names = [f"i{n}" for n in range(int(rng.integers(0, 5)))]
    sizes = {k: int(rng.choice((0, 1, 2, 3, 5, 17))) for k in names}
    axes, dtype = frozenset(k for k in names if rng.random() < 0.8), str(rng.choice(DTYPES))
    return operand(0, axes, dtype), sizes, [(axes, dtype)], frozenset(names)


def _instance(kernel: Kernel, p: Pattern, rng: np.random.Generator) -> Found | None:
    """A typed instance: what the tensor variables stand for becomes operands."""
    try:
        drawn = draw(p, rng)
    except IllTyped:
        return None
    if drawn is None or not p.roots:
        return None
    kinds: list[tuple[frozenset[str], str]] = []
    for v in p.leaves:
        t = drawn.values[v]
        if t.head != "Num" or kernel.form == "pattern":
            kind = drawn.types[t]
            drawn.values[v] = operand(len(kinds), kind.axes, kind.dtype)
            kinds.append((kind.axes, kind.dtype))
    meaning = drawn.roots[0]
    if kernel.form == "pattern" and _folds_twice(meaning):
        return None  # "Sum*" stands for sums over a set of axes
    if kernel.form == "loops" and not kernel.matches(meaning):
        return None
    sizes = {k: drawn.sizes[k] for k in axes_in(meaning)}
    if rng.random() < 0.4 and free(meaning):
        sizes = {k: int(rng.choice(_LARGE)) for k in sizes}
        for i, j in factored(meaning).values():
            sizes[i] = sizes[j] = int(rng.choice(_SQUARE))
    if math.prod(sizes.values()) > _MOST or _overflows(meaning, sizes):
        return None
    return meaning, sizes, kinds, frozenset()


def _overflows(meaning: Term, sizes: dict[str, int]) -> bool:
    """Whether a constant is converted to an integer that cannot hold it, as -2.0 to uint8: it has no value that a
    kernel could be held to."""
    constant = (t for t in truncations(meaning) if not any(x.head in ("In", "Par") for x in postorder(t)))
    return any(unheld(t, evaluate(x, {}, sizes, Native())[x].data) for t in constant for x in t.terms)


def _folds_twice(t: Term) -> bool:
    folded = []
    while t.head == "Sum":
        folded.append(t.args[0])
        t = t.args[1]
    return len(set(folded)) < len(folded)


def free(meaning: Term) -> bool:
    """Whether the axes of a term may have any sizes."""
    return all(t.head != "Ren" and "NewAxis" not in HEADS[t.head].sorts for t in postorder(meaning))


def _permuted(axes: frozenset[str], rng: np.random.Generator) -> tuple[str, ...]:
    return tuple(str(k) for k in rng.permutation(sorted(axes)))


def _laid_out(v: View, rng: np.random.Generator) -> View:
    """The tensor in memory as some other program may have left it: with gaps, backwards, broadcast or overlapping."""
    strides = [s * int(rng.choice((1, 1, 1, 2, 3))) for s in v.strides] if rng.random() < 0.3 else list(v.strides)
    if rng.random() < 0.25:
        strides = [-s if rng.random() < 0.5 else s for s in strides]
    if rng.random() < 0.15:
        strides = [0 if rng.random() < 0.4 else s for s in strides]
    elif len(strides) > 1 and rng.random() < 0.1:
        strides = [1] * len(strides)
    low = sum((n - 1) * s for n, s in zip(v.shape, strides, strict=True) if s < 0 < n)
    return View(v.axes, v.shape, tuple(strides), v.dtype, -low + int(rng.integers(0, 3)))
