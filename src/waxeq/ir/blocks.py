"""Cutting a graph into blocks, so that equal blocks are optimized once.

The nodes of a graph in execution order are a word; repeated layers are a repeated substring of it. The word is cut at
the repeats, and every segment becomes a block: a graph of its own whose leaves are numbered by first use, so that two
blocks that do the same to different values are the same graph. A segment of consecutive nodes is always convex: no
value leaves it and comes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

import numpy as np

from waxeq.ir.graph import Graph, Leaf, Node
from waxeq.ir.words import Word, elementwise, is_fixed, is_swept

MOST = 44
"""Nodes of a piece of a longer graph: what one search handles in a second or two. A longer stretch is cut where fewest
values cross."""
_WHOLE = 64
"""Nodes of a graph that is one block, whatever repeats in it."""
_LOOP = 256
"""Nodes of a stretch that is one block where one loop may make all of it: rules find little more in it."""
_MANY = 8
"""Blocks that differ in numbers only from which on these are passed to them, and they are one block."""
_PART = 1 << 18
"""Bytes of a part of an input that is copied, so that the blocks that read one each are one block."""
_PLAIN = frozenset({"add", "sub", "mul", "div", "min", "max", "Reshape", "Concat"})
"""What a block may do with numbers that are passed to it."""
_LOOKED_AT = 16
"""Places that are looked at of what may be a repeat, before all of it is."""
_LEAST = 30
"""Nodes of the shortest period that is cut at; a shorter one is taken several times, so that blocks can be fused."""


@dataclass(frozen=True)
class Block:
    """A piece of a graph. `graph` is the canonical form (leaves "v0", "w0", ... outputs "o0", ...); `leaves` and
    `outputs` say which values of the whole graph these stand for; `key` is equal for equal blocks. `places`: on which
    devices leaves and outputs lie, but for those that lie where the first device has its memory."""

    graph: Graph
    leaves: Mapping[str, int]
    outputs: Mapping[str, int]
    values: tuple[int, ...]
    key: str
    places: Mapping[str, str] = field(default_factory=dict)

    def placed(self, places: Mapping[str, str]) -> Block:
        """The block with these leaves and outputs in the memory of other devices; itself where there are none."""
        if not places:
            return self
        key = hashlib.sha256("\n".join((self.key, *(f"{n}@{p}" for n, p in sorted(places.items())))).encode())
        return replace(self, places=dict(places), key=key.hexdigest())


def cut(graph: Graph, most: int = MOST) -> tuple[Block, ...]:
    """Blocks of an expanded graph, in order; together they compute every result.

    Nodes without operands (constants, iotas) belong to every block that reads them: passed between blocks they would
    hide from the rules what their value is. So do views of what is passed anyway: they would be copied.
    """
    word = Word.of(graph)
    if not word.nodes:
        return ()
    end = len(word.nodes)
    if end <= max(most, _WHOLE) or _is_loop(word, 0, end) or is_swept(word):
        return (_block(word, (0, end), _Passed(frozenset(), frozenset())),)
    long = [range(a, b + 1) for a, b in _runs(word, 0, end) if most < b - a <= _LOOP]
    repeats = (at for at in _repeats_in(word, 0, end) if not any(at in r for r in long))
    bounds = sorted({0, end, *repeats})
    spans = [s for a, b in pairwise(bounds) for s in _short(word, a, b, most)]
    return tuple(b for b in _alike(word, spans, _Passed.between(word, spans)) if b.outputs)


def _alike(word: Word, spans: Sequence[tuple[int, int]], passed: _Passed) -> list[Block]:
    """The blocks of spans. Where many are equal but for some numbers, or for which part of an input or of what another
    block makes they read, such as those of a step in time, blocks before them pass them these."""
    blocks = [_block(word, s, passed) for s in spans]
    found = [_numbers(word, b) | _parts(word, b) for b in blocks]
    bare = [_block(word, s, passed, own) for s, own in zip(spans, found, strict=True)]
    groups: dict[tuple[str, frozenset[str]], list[int]] = {}
    for i, b in enumerate(bare):
        own = frozenset(n for n, v in b.leaves.items() if v in found[i])
        groups.setdefault((b.key, own), []).append(i)
    given = dict[int, frozenset[int]]()
    for (_, own), group in groups.items():
        if len({blocks[i].key for i in group}) < _MANY:
            continue
        rows = {n: [bare[i].leaves[n] for i in group] for n in own}
        others = [n for n, vs in rows.items() if len({_text(word, v, passed) for v in vs}) > 1]
        given |= {i: frozenset(bare[i].leaves[n] for n in others) for i in group}
    for i, own in given.items():
        blocks[i] = _block(word, spans[i], passed, own)
    return [*_passing(word, blocks, [word.nodes[at] for at, _ in spans], given, passed)]


def _passing(
    word: Word, blocks: Sequence[Block], firsts: Sequence[int], given: Mapping[int, frozenset[int]], passed: _Passed
) -> Iterator[Block]:
    """Blocks, and before those that are given something one that makes it, for as many as one search looks through and
    as there is something made by then to be looked at. `firsts`: the first value that each block makes."""
    made, wanted = set[int](), [given.get(i, frozenset()) for i in range(len(blocks))]
    for i, b in enumerate(blocks):
        if not wanted[i] <= made:
            ahead = set[int]()
            for values in islice(wanted, i, None):
                if len(ahead) >= MOST or any(_last(word, v, passed) >= firsts[i] for v in values - made):
                    break
                ahead |= values - made
            yield _made(word, _behind(word, ahead, passed), sorted(ahead))
            made |= ahead
        yield b


def _last(word: Word, value: int, passed: _Passed) -> int:
    """The last value that is looked at by a number or a part."""
    behind = _behind(word, [value], passed)
    return max((i for v in behind for i in word.node(v).inputs if i not in behind), default=-1)


def _text(word: Word, value: int, passed: _Passed) -> str:
    """What a number is, or how a part of something is looked at."""
    node = word.node(value)
    inside = [_text(word, i, passed) for i in node.inputs if not passed.given(word, i)]
    return " ".join([repr(node.op), *inside])


def _behind(word: Word, given: Iterable[int], passed: _Passed) -> list[int]:
    """Numbers and parts with what they are looked at through."""
    found, stack = set[int](), [*given]
    while stack:
        v = stack.pop()
        if v not in found:
            found.add(v)
            stack += (i for i in word.node(v).inputs if not passed.given(word, i))
    return sorted(found)


def _parts(word: Word, block: Block) -> frozenset[int]:
    """Small parts of what a block is given, weights apart, that it makes for itself and computes with: the last of some
    views of one."""
    views, leaves = set[int](), {v for v in block.leaves.values() if not is_fixed(word.graph, v)}
    for v in block.values:
        node = word.node(v)
        if node.op.view == "once" and (node.inputs[0] in views or node.inputs[0] in leaves):
            views.add(v)
    read = {i for v in block.values if v not in views for i in word.node(v).inputs}
    results = {*word.graph.results}
    return frozenset(v for v in views & read - results if word.graph.type(v).bytes <= _PART)


def _numbers(word: Word, block: Block) -> frozenset[int]:
    """Numbers that a block only calculates with in plain ways, or puts beside others; 0 and 1 are laws of their own."""
    found, kept = set[int](), set[int]()
    for v in block.values:
        node = word.node(v)
        plain = node.op.label in _PLAIN
        (found if plain else kept).update(i for i in node.inputs if i in word.sources)
    known = {v: word.node(v).op.attributes for v in found - kept if word.node(v).op.label == "Const"}
    return frozenset(v for v, a in known.items() if isinstance(a["value"], float) and a["value"] not in (0, 1, -1))


@dataclass(frozen=True)
class _Passed:
    """Values that other blocks read than the one that makes them, and views that each block makes for itself."""

    values: frozenset[int]
    views: frozenset[int]

    def given(self, word: Word, value: int) -> bool:
        """Whether a value is a leaf, or what another block makes."""
        return value < len(word.graph.leaves) or value in self.values

    @staticmethod
    def between(word: Word, spans: Sequence[tuple[int, int]]) -> _Passed:
        """Each block makes for itself the views of what is passed anyway: of leaves, of nodes without operands, of what
        is passed itself or in several views; and those that have elements again and again. Another view is passed:
        whoever makes what it looks at can write it as it is read."""
        home = {v: n for n, (a, b) in enumerate(spans) for v in word.nodes[a:b]}
        values = {i for v, n in home.items() for i in word.node(v).inputs if home.get(i, n) != n}
        views: dict[int, list[int]] = {}
        made, results = set[int](), {*word.graph.results}
        for v in reversed(range(word.nodes[-1])):  # what is looked at after all views of it
            passed = values & {v, *views.get(v, ())}
            again = [x for x in views.get(v, ()) if word.node(x).op.view == "again"]
            if len(passed) > 1 or again or (passed and v not in home):
                made |= passed - {v}
                values.add(v)
            if v in home and v in values and word.node(v).op.view and v not in results:
                views.setdefault(word.node(v).inputs[0], []).append(v)
        return _Passed(frozenset(values - made), frozenset(made))


def _repeats_in(word: Word, low: int, high: int) -> Iterator[int]:
    """Cut points around the longest stretch that repeats with a period of at least `_LEAST` nodes, then inside the
    rest.
    """
    letters = np.array(word.letters[low:high])
    stretches = _stretches_of(letters, _LEAST)
    best: tuple[int, int, int] | None = None  # (length, -period, start)
    for period in range(_LEAST, (high - low) // 2 + 1):
        if not _may_repeat(stretches, period, period if best is None else max(period, best[0] - period + 1)):
            continue
        ends = np.concatenate([[-1], np.flatnonzero(letters[period:] != letters[:-period]), [high - low - period]])
        runs = np.diff(ends) - 1
        last = len(runs) - 1 - int(np.argmax(runs[::-1]))
        run = int(runs[last])
        if run >= period:
            found = (run + period, -period, low + int(ends[last + 1]) - run)
            best = found if best is None or found > best else best
    if best is None:
        return
    length, period, start = best[0], -best[1], best[2]
    first = start + _quietest(word, start, period, length)
    count = (start + length - first) // period
    points = [first + i * period for i in range(count + 1)]
    yield from points
    yield from _repeats_in(word, low, points[0])
    yield from _repeats_in(word, points[-1], high)


def _stretches_of(letters: np.ndarray, count: int) -> np.ndarray:
    """By position, a number that is equal for equal stretches of so many letters from there on."""
    known, have = letters, 1
    while have < count and len(known) > 0:
        step = min(have, count - have)
        pairs = known[:-step].astype(np.int64) * (int(known.max()) + 1) + known[step:]
        known, have = np.unique(pairs, return_inverse=True)[1], have + step
    return known


def _may_repeat(stretches: np.ndarray, period: int, least: int) -> bool:
    """Whether so many letters in a row may be those that follow a period later: looked at in a few places of each such
    row, as most periods are none and a row has as many letters as a period."""
    row = least - _LEAST + 1
    apart = max(1, row // _LOOKED_AT)
    other = stretches[:-period:apart] != stretches[period::apart]
    ends = np.flatnonzero(other)
    longest = np.diff(ends, prepend=-1, append=len(other)).max() - 1
    return bool(longest >= row // apart)


def _quietest(word: Word, start: int, period: int, length: int) -> int:
    """The offset in the period where fewest values cross, the earliest of equals that keeps most repeats."""
    spare = length % period
    offsets = range(min(period, spare + 1)) if length // period > 1 and spare else range(period)
    return min(offsets, key=lambda o: (word.crossing[start + o + period], o))


def _is_loop(word: Word, low: int, high: int) -> bool:
    """Whether one loop may make all of a span, and it is not too long for one search."""
    return high - low <= _LOOP and all(map(word.in_one_loop, word.nodes[low:high]))


def _runs(word: Word, low: int, high: int) -> Iterator[tuple[int, int]]:
    """The parts of a span that one loop may make."""
    others = [at for at in range(low, high) if not word.in_one_loop(word.nodes[at])]
    yield from ((a + 1, b) for a, b in pairwise((low - 1, *others, high)))


def _stretches(word: Word, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
    """Those of them that are longer than `most` and not too long for one search, less some nodes for what is before
    them, and for what goes on after them: that is made along with them. A contraction does not go on."""
    left = most // 2
    for first, last in _runs(word, low, high):
        goes_on = last < high and elementwise(word.graph, word.nodes[last])
        a, b = first + left * (first > low), last - left * goes_on
        if most < b - a <= _LOOP:
            yield a, b


def _short(word: Word, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
    """A span in pieces: long stretches that one loop may make, and what is around them."""
    at = low
    for first, last in _stretches(word, low, high, most):
        yield from _halved(word, at, first, most)
        yield first, last
        at = last
    yield from _halved(word, at, high, most)


def _halved(word: Word, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
    """A span in pieces of at most `most` nodes, longer ones where one loop may make them, cut in the middle half
    where fewest values cross; of such places, where least is torn apart."""
    if high - low <= most or _is_loop(word, low, high):
        if high > low:
            yield low, high
        return
    quarter = (high - low) // 4
    fewest = min(word.crossing[i] for i in range(low + quarter, high - quarter + 1))
    quiet = [i for i in range(low + quarter, high - quarter + 1) if word.crossing[i] == fewest]
    at = min(quiet, key=lambda i: (word.torn[i], abs(2 * i - low - high)))
    yield from _halved(word, low, at, most)
    yield from _halved(word, at, high, most)


def _block(word: Word, span: tuple[int, int], passed: _Passed, given: frozenset[int] = frozenset()) -> Block:
    """The block of a span; `given`: numbers and parts of inputs that are passed to it."""
    outputs, inside = _inside(word, word.nodes[slice(*span)], passed)
    outputs = [v for v in outputs if v not in given]
    return _made(word, _left(word, inside, outputs, given, passed) if given else inside, outputs)


def _left(
    word: Word, inside: Sequence[int], outputs: Collection[int], given: frozenset[int], passed: _Passed
) -> list[int]:
    """What is left to make where values are given: neither these nor what nothing else is looked at through."""
    behind, needed, made = set(_behind(word, given, passed)), {*outputs}, set[int]()
    for v in sorted(inside, reverse=True):
        if v not in given and (v in needed or v not in behind):
            made.add(v)
            needed.update(word.node(v).inputs)
    return [v for v in inside if v in made]


def _made(word: Word, inside: Sequence[int], outputs: Sequence[int]) -> Block:
    """The block of some nodes."""
    local: dict[int, int] = {}
    leaves: list[Leaf] = []
    own = {*inside}
    for v in inside:
        for i in word.node(v).inputs:
            if i not in own and i not in local:
                local[i] = len(leaves)
                leaves.append(_leaf(word.graph, i, len(leaves)))
    number = dict(local) | {v: len(leaves) + j for j, v in enumerate(inside)}
    nodes = (word.node(v) for v in inside)
    made = tuple(Node(n.op, tuple(number[i] for i in n.inputs), n.type, n.source) for n in nodes)
    named = {f"o{j}": v for j, v in enumerate(outputs)}
    g = Graph(tuple(leaves), made, tuple((n, number[v]) for n, v in named.items()))
    names = {leaves[j].name: i for i, j in local.items()}
    return Block(g, names, named, tuple(inside), _key(g))


def _inside(word: Word, span: Sequence[int], passed: _Passed) -> tuple[list[int], tuple[int, ...]]:
    """What a block makes of its span for others, and all that it makes: views that others read and it does not are
    not among it, those are that it reads and others make."""
    results = {*word.graph.results}
    outputs = [v for v in span if v in passed.values or v in results]
    inside, stack = set[int](), [v for v in span if v not in passed.views]
    while stack:
        v = stack.pop()
        if v not in inside:
            inside.add(v)
            stack += [i for i in word.node(v).inputs if i in word.sources or i in passed.views]
    return outputs, (*sorted(inside & word.sources), *sorted(inside - word.sources))


def _leaf(graph: Graph, value: int, number: int) -> Leaf:
    fixed = is_fixed(graph, value)
    return Leaf(f"{'w' if fixed else 'v'}{number}", graph.type(value), "weight" if fixed else "input")


def _key(graph: Graph) -> str:
    rows = [f"{x.name}:{x.type}" for x in graph.leaves]
    rows += [f"{n.op!r}{n.inputs}" for n in graph.nodes]
    rows += [f"{n}={v}" for n, v in graph.outputs]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()
