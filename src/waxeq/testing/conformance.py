"""Does a kernel compute what it means? Calls drawn at random, on memory laid out to hurt, against the basis evaluator.

Results and workspace are poisoned beforehand, operands must stay as they were, instructions run twice as a program runs
them again and again, and every operand that a kernel says the result may replace is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from waxeq.backend.call import Call, View, axes_in, operand
from waxeq.backend.kernel import Kernel
from waxeq.basis.evaluate import NamedArray, Native
from waxeq.basis.heads import HEADS
from waxeq.basis.scalar import REDUCERS, SCALARS
from waxeq.basis.typing import types
from waxeq.cost.features import Features
from waxeq.egraph.kernels import MANY
from waxeq.egraph.kernels import pattern as kernel_pattern
from waxeq.egraph.rules import Apply, Body, Expr, Lit, Var
from waxeq.errors import AccuracyError
from waxeq.extract.cuts import FUSIBLE
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import DTYPES, FLOATS, is_float, numpy_dtype
from waxeq.testing.dtypes import IllTyped
from waxeq.testing.instances import draw
from waxeq.testing.pattern import Pattern, pattern
from waxeq.testing.values import draw_leaves, evaluate

_POISON = 0xA5
_GUARD = 16
"""Elements before and after every view that nobody may touch."""
_ATTEMPTS = 15
"""Calls drawn, for each call wanted: kernels do not accept every one."""
_LARGE = (1, 2, 7, 33, 64, 129, 700, 3000, 20_000, 200_000)
_MOST = 1 << 19
"""Elements of the iteration space of a large call."""
_DRAWS = ("normal", "normal", "positive", "unit", "sparse", "special")


@dataclass(frozen=True)
class Conformance:
    """What was found about a kernel: `calls` that it accepted were run; `dtypes` of their results, `ranks` and `sizes`
    that occurred, operands replaced `in_place`. `failure`: the first call that went wrong, and how."""

    kernel: str
    calls: int
    dtypes: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    in_place: int = 0
    failure: str | None = None

    def require(self) -> Conformance:
        """Itself. Raises AccuracyError when a call went wrong or none was accepted."""
        if self.failure is not None:
            raise AccuracyError(f"kernel {self.kernel} does not compute what it means: {self.failure}")
        if not self.calls:
            raise AccuracyError(f"kernel {self.kernel} accepted no call of those tried; does its pattern match?")
        return self


def check_kernel(name: str, kernel: Kernel, *, calls: int = 60, seed: int = 0) -> Conformance:
    """Run a kernel on about `calls` calls. Functions that the basis has are each met at least once."""
    rng = np.random.default_rng(seed)
    dtypes, sizes, in_place, count = set(), set(), 0, 0
    for call in generated(name, kernel, rng, calls):
        count += 1
        dtypes.add(call.out.dtype)
        sizes.update(call.sizes.values())
        failure = check_call(kernel, call, rng)
        if failure is not None:
            shown = f"{failure}: {call.meaning} {dict(call.sizes)} {call.operands} -> {call.out}"
            return Conformance(name, count, frozenset(dtypes), frozenset(sizes), in_place, shown)
        in_place += len(_replaceable(kernel, call))
    return Conformance(name, count, frozenset(dtypes), frozenset(sizes), in_place)


# -- calls


def generated(name: str, kernel: Kernel, rng: np.random.Generator, calls: int) -> Iterator[Call]:
    """Calls that the kernel accepts: about `calls`, and for kernels of form "loops" every function besides."""
    pools = [(_ATTEMPTS * calls, calls, _source(kernel))]
    if kernel.form == "loops":
        pools += [(8, 1, lambda r, p=p: p) for p in _functions()]
    for attempts, wanted, source in pools:
        for _ in range(attempts):
            if wanted == 0:
                break
            call = _draw(name, kernel, source(rng), rng)
            if call is not None and kernel.accepts(call):
                wanted -= 1
                yield call


Source = Callable[[np.random.Generator], Pattern | None]


def _source(kernel: Kernel) -> Source:
    """Where meanings come from: the kernel's pattern, random trees, or (None) the identity."""
    if kernel.form == "copy":
        return lambda rng: None
    if kernel.form == "loops":
        own = _own(kernel)
        return lambda rng: _pattern(_tree(rng, int(rng.integers(1, 5)), own))
    tree = kernel_pattern("k", kernel).tree
    variants = [_pattern(_expr(tree, "T", n)) for n in (1, 2, 3)]
    return lambda rng: variants[int(rng.integers(len(variants)))]


def _pattern(e: Expr) -> Pattern:
    return pattern(Body(((e,),), True), {}, "conformance")


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


_STEPS = frozenset({"floor", "ceil", "trunc", "rint", "sign", "mod", "fmod", "floordiv", "copysign", "arctan2", "pow"})
"""Functions that jump, or whose error has no bound, where their argument is rounded: tried on operands only."""


def _functions() -> Iterator[Pattern]:
    """Each function on operands."""
    x, y = Var("x"), Var("y")
    for f in SCALARS.values():
        yield _pattern(Apply("Map", (Lit(f.name), x)) if f.arity == 1 else Apply("Zip", (Lit(f.name), x, y)))
    for f in REDUCERS:
        yield _pattern(Apply("Red", (Lit(f), Var("k"), x)))
    for d in DTYPES:
        yield _pattern(Apply("Cast", (Lit(d), x)))


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
    head = str(rng.choice(sorted(FUSIBLE)))
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


def _draw(name: str, kernel: Kernel, p: Pattern | None, rng: np.random.Generator) -> Call | None:
    found = _identity(rng) if p is None else _instance(kernel, p, rng)
    if found is None:
        return None
    meaning, sizes, kinds, extra = found
    if kernel.dtypes is not None and any(d not in kernel.dtypes for _, d in kinds):
        return None
    axes = types(meaning)[meaning].axes | extra
    order = _permuted(axes, rng)
    proposed = [o for o in kernel.orders(meaning, frozenset(axes)) if frozenset(o) == axes]
    if proposed and rng.random() < 0.7:
        order = proposed[int(rng.integers(len(proposed)))]
    out = View.dense(order, sizes, types(meaning)[meaning].dtype)
    operands = tuple(_laid_out(View.dense(_permuted(a, rng), sizes, d), rng) for a, d in kinds)
    if rng.random() < 0.3 and kinds and kinds[0][0] == axes:  # as where the result may be written over an operand
        operands = (View.dense(order, sizes, kinds[0][1]), *operands[1:])
    return Call(name, meaning, sizes, operands, out)


Found = tuple[Term, dict[str, int], list[tuple[frozenset[str], str]], frozenset[str]]


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
    if rng.random() < 0.4 and _free(meaning):
        sizes = {k: int(rng.choice(_LARGE)) for k in sizes}
    return None if math.prod(sizes.values()) > _MOST else (meaning, sizes, kinds, frozenset())


def _folds_twice(t: Term) -> bool:
    folded = []
    while t.head == "Sum":
        folded.append(t.args[0])
        t = t.args[1]
    return len(set(folded)) < len(folded)


def _free(meaning: Term) -> bool:
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


# -- one call


@dataclass
class _Memory:
    """A buffer that holds a view, poisoned, with a guard behind it."""

    view: View
    raw: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        v = self.view
        reach = sum((n - 1) * s for n, s in zip(v.shape, v.strides, strict=True) if s > 0 and n > 0)
        self.raw = np.full((v.offset + reach + 1 + _GUARD) * numpy_dtype(v.dtype).itemsize, _POISON, np.uint8)

    @property
    def array(self) -> np.ndarray:
        return self.view.array(self.raw.view(numpy_dtype(self.view.dtype)))

    def untouched(self) -> bool:
        """Whether everything outside the view is still poison."""
        mark = np.zeros(self.raw.size, bool)
        inside = View(self.view.axes, self.view.shape, self.view.strides, self.view.dtype, self.view.offset)
        item = numpy_dtype(self.view.dtype).itemsize
        spots = np.ndarray(
            (*inside.shape, item), bool, mark, inside.offset * item, (*(s * item for s in inside.strides), 1)
        )
        spots[...] = True
        return bool(np.all(self.raw[~mark] == _POISON))


def check_call(kernel: Kernel, call: Call, rng: np.random.Generator) -> str | None:
    """What is wrong with the kernel on a call that it accepts; None when nothing is."""
    try:
        Features(kernel.features(call))
    except ValueError as e:
        return str(e)
    memory = [_Memory(v) for v in call.operands]
    if not _fill(call, memory, rng):
        return None  # no value to be equal to, such as the maximum of nothing
    leaves = {f"%{i}": NamedArray(m.view.axes, m.array.copy()) for i, m in enumerate(memory)}
    try:
        with np.errstate(all="ignore"):
            wanted = evaluate(call.meaning, leaves, call.sizes, Native())
    except (ValueError, IndexError):
        return None
    before = [m.raw.copy() for m in memory]
    for replaced in (None, *_replaceable(kernel, call)):
        for m, raw in zip(memory, before, strict=True):
            m.raw[...] = raw
        wrong = _run(kernel, call, memory, replaced, wanted)
        if wrong is None:
            changed = [i for i, m in enumerate(memory) if i != replaced and not np.array_equal(m.raw, before[i])]
            wrong = f"operand {changed[0]} was written" if changed else None
        if wrong is not None:
            return wrong if replaced is None else f"in place of operand {replaced}: {wrong}"
    return None


def _fill(call: Call, memory: Sequence[_Memory], rng: np.random.Generator) -> bool:
    """Draw the operands; positions lie in the axis they point into, counted from either end."""
    kind = str(rng.choice(_DRAWS))
    drawn = draw_leaves((call.meaning,), call.sizes, kind, Native(), rng)
    for i, m in enumerate(memory):
        x = drawn.get(f"%{i}")
        if x is not None:
            m.array[...] = x.aligned(m.view.axes)
    for t in postorder(call.meaning):
        if t.head in ("Gather", "Scatter"):
            named = dict(zip((n for n, _ in HEADS[t.head].args), t.args, strict=True))
            size, leaf = call.sizes[named["k"]], named["i"]
            if size == 0:
                return False
            if leaf.head == "In" and not memory[int(leaf.args[0][1:])].view.dtype.startswith("u"):
                m = memory[int(leaf.args[0][1:])]
                if 0 not in m.view.strides and m.view.is_dense:
                    m.array[...] -= (rng.random(m.view.shape) < 0.3).astype(m.array.dtype) * size
    return True


def _replaceable(kernel: Kernel, call: Call) -> tuple[int, ...]:
    """Operands whose memory a plan would give to the result."""
    return tuple(
        i for i in kernel.in_place(call)
        if call.operands[i].is_dense and call.operands[i].offset == 0
        and call.operands[i].bytes == call.out.bytes and call.out.is_dense and call.out.offset == 0
    )  # fmt: skip


def _run(
    kernel: Kernel,
    call: Call,
    memory: Sequence[_Memory],
    replaced: int | None,
    wanted: Mapping[Term, NamedArray],
) -> str | None:
    result = _Memory(call.out)
    out = result.array if replaced is None else call.out.array(memory[replaced].raw.view(result.array.dtype))
    size = kernel.workspace(call)
    scratch = np.full(size + 64, _POISON, np.uint8)
    times = 2 if replaced is None else 1
    try:
        with np.errstate(all="ignore"):
            steps = tuple(kernel.bind(call, [m.array for m in memory], out, scratch[:size]))
            for _ in range(times):
                for step in steps:
                    step()
    except Exception as e:
        return f"raises {type(e).__name__}: {e}"
    if np.any(scratch[size:] != _POISON):
        return "it writes behind its workspace"
    if replaced is None and not result.untouched():
        return "it writes outside its result"
    return difference(out, call, wanted, kernel.error)


def difference(got: np.ndarray, call: Call, wanted: Mapping[Term, NamedArray], error: float = 0.0) -> str | None:
    """How the result of a call differs from its meaning, more than rounding in another order explains; `error` is
    what the kernel admits to. `wanted`: the value of every subterm."""
    x = wanted[call.meaning]
    missing = tuple(k for k in call.out.axes if k not in x.axes)
    want = np.broadcast_to(x.aligned(call.out.axes), got.shape) if missing else x.aligned(call.out.axes)
    if not is_float(call.out.dtype):
        same = got == want
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(w)
        slack = _slack(call, wanted, error)
        with np.errstate(all="ignore"):
            near = np.abs(g - w) <= slack * (np.abs(w) + _largest(wanted.values()))
        # what is infinite in one order of adding and multiplying is NaN in another
        summed = any(t.head == "Sum" for t in wanted)
        same = np.where(finite, near, ~np.isfinite(g) if summed else (np.isnan(g) & np.isnan(w)) | (g == w))
    wrong = int(np.size(same) - np.count_nonzero(same))
    if not wrong:
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{wrong} of {np.size(same)} elements differ, {got[at]!s} where {want[at]!s} is meant, at {at}"


def _slack(call: Call, wanted: Mapping[Term, NamedArray], error: float) -> float:
    """Relative error that rounding may make: a few units in the last place for each step, more for long folds."""
    import ml_dtypes

    found = [k.dtype for k in types(call.meaning).values() if k.dtype in FLOATS]
    eps = max(float(ml_dtypes.finfo(numpy_dtype(d)).eps) for d in found)
    folded = [call.sizes[t.args[t.head != "Sum"]] for t in wanted if t.head in ("Sum", "Red", "Scan")]
    return eps * (8 * len(wanted) + math.prod(map(math.sqrt, folded)) + sum(folded) / 8) + 8 * error


def _largest(values: Any) -> float:
    """The largest finite number met on the way."""
    tops = [0.0]
    for v in values:
        if v.data.dtype.kind not in "biu" and v.data.size:
            x = np.abs(v.data.astype(np.float64))
            tops.append(float(np.max(x, where=np.isfinite(x), initial=0.0)))
    return max(tops)
