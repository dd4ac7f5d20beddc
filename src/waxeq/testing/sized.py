"""Do kernels that are compiled once for all sizes compute what they mean at each? Random calls, some of whose axes are
of sizes that change, run at the edges of their ranges and between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from waxeq.backend.call import Call, Over, View, size_axis
from waxeq.backend.extent import Extent
from waxeq.backend.kernel import Kernel, prepare
from waxeq.errors import WaxeqError
from waxeq.testing.calls import free, nested
from waxeq.testing.conformance import Conformance, check_call

_HIGHS = (2, 9, 40, 130, 700, 3000)
_MOST = 1 << 16
"""Elements of the iteration space of a call at its largest sizes."""


def check_sized(name: str, kernel: Kernel, *, calls: int = 20, seed: int = 0) -> Conformance:
    """Run the sized form of a kernel on about so many calls, each at several sizes."""
    rng = np.random.default_rng(seed)
    assert kernel.sized is not None
    sized = kernel.sized
    drawn = [c for call in nested(name, kernel, rng, calls) for c in everywhere(call, rng) if sized.accepts(c)]
    with suppress(WaxeqError):  # which of them that is shows when it is run
        prepare((sized, c) for c in drawn)
    count, dtypes, sizes = 0, set[str](), set[int]()
    for c in drawn:
        ran = list[object]()
        failure = check_call(sized, c, rng, lambda operands, result, ran=ran: ran.append(result))
        if ran:
            count += 1
            dtypes.add(c.out.dtype)
            sizes.update(c.over.sizes.values() if c.over is not None else ())
        if failure is not None:
            shown = f"{failure}: {c.meaning} {dict(c.sizes)} {c.operands} -> {c.out} over {c.over}"
            return Conformance(name, count, frozenset(dtypes), frozenset(sizes), failure=shown)
    return Conformance(name, count, frozenset(dtypes), frozenset(sizes))


def everywhere(call: Call, rng: np.random.Generator) -> Iterator[Call]:
    """A call at several sizes of one or two of its axes: the least, the next, the greatest and one between. None where
    the sizes of its axes depend on each other."""
    axes = [k for k, n in call.sizes.items() if n > 0]
    if not axes or not free(call.meaning):
        return
    ranges = _ranges(call, [str(k) for k in rng.permutation(axes)[: int(rng.integers(1, 3))]], rng)
    known = {f"S{i}": Extent.of(f"S{i}", *r) for i, r in enumerate(ranges.values())}
    dims = dict(zip(known, ranges, strict=True))
    template = _resized(call, {**call.sizes, **{k: known[n] for n, k in dims.items()}})
    more = tuple(View((size_axis(n),), (1,), (1,), "int64") for n in known)
    sizes = {**template.sizes, **{size_axis(n): 1 for n in known}}
    template = replace(template, operands=(*template.operands, *more), sizes=sizes)
    low, high = {k: r[0] for k, r in ranges.items()}, {k: r[1] for k, r in ranges.items()}
    between = {k: int(rng.integers(a, b + 1)) for k, (a, b) in ranges.items()}
    mixed = {**high, **dict([*low.items()][:1])}
    for at in (low, {k: min(n + 1, high[k]) for k, n in low.items()}, high, between, mixed):
        values = {n: at[k] for n, k in dims.items()}
        over = Over(template, values, tuple(np.array([values[n]], np.int64) for n in known))
        yield replace(_resized(call, {**call.sizes, **at}), over=over)


def _ranges(call: Call, axes: list[str], rng: np.random.Generator) -> dict[str, tuple[int, int]]:
    """Ranges of some axes; together no more than can be run."""
    rest = int(np.prod([n for k, n in call.sizes.items() if k not in axes], dtype=object))
    found: dict[str, tuple[int, int]] = {}
    for k in axes:
        low = int(rng.integers(1, 4))
        able = [h for h in _HIGHS if h > low and h * rest <= _MOST] or [low + 1]
        found[k] = low, able[int(rng.integers(len(able)))]
        rest *= found[k][1]
    return found


def _resized(call: Call, sizes: Mapping[str, int]) -> Call:
    """The call at other sizes: its views are dense, with their axes in the order in which they lay."""

    def dense(v: View) -> View:
        order = sorted(v.axes, key=lambda k: -abs(v.stride(k)))
        return View.dense(order, sizes, v.dtype).ordered(v.axes)

    operands = tuple(dense(v) for v in call.operands)
    return replace(call, sizes=dict(sizes), operands=operands, out=dense(call.out))
