"""Index maps: which e-classes are only another way to look at a tensor that is in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from waxeq.backend.call import View
from waxeq.basis.heads import VIEWS
from waxeq.egraph.snapshot import ENode, Snapshot

Look = tuple[str, tuple[Any, ...]]
"""One index map: its head and its arguments but the tensor. Of a Gather, the axis and the place."""

LOOKS = (*sorted(VIEWS), "Gather")
"""Heads of e-nodes that may be another way to look at a tensor."""
_DEPTH, _LOOKED_AT, _SOURCES = 6, 24, 6


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor in memory (`base`, an e-class) and the view heads that lead from it to the e-class wanted, in order."""

    base: int
    path: tuple[Look, ...] = ()

    def view(self, dense: View, sizes: Mapping[str, int]) -> View | None:
        """The strided view, given how the base lies in memory; None where strides cannot express it."""
        v: View | None = dense
        for head, args in self.path:
            v = None if v is None else apply(v, head, args, sizes)
        return v


def sources(snapshot: Snapshot, number: int) -> tuple[Source, ...]:
    """Ways to see e-class `number` in a tensor that is materialized, the class itself first. Of many those that are
    views of nothing else come before the nearest: they lie in memory for whoever looks at them."""
    found, origins = [Source(number)], list[Source]()
    seen = {number}
    for s in found:
        views = [(step, n.args[-1]) for n in snapshot.classes[s.base].nodes if (step := look(snapshot, n))]
        if not views:
            origins.append(s)
        for step, base in views if len(s.path) < _DEPTH else ():
            if base not in seen and len(found) < _LOOKED_AT:
                seen.add(base)
                found.append(Source(base, (step, *s.path)))
    kept = list(dict.fromkeys((found[0], *origins, *found)))[:_SOURCES]
    return tuple(s for s in found if s in kept)


def look(snapshot: Snapshot, n: ENode) -> Look | None:
    """The step by which an e-node is another way to look at its last operand: an index map, or what lies at one known
    place along an axis, counted from its beginning; None where it is computed."""
    if n.head in VIEWS:
        return n.head, n.args[:-1]
    if n.head != "Gather":
        return None
    k, index, _ = n.args
    place = snapshot.classes[index].constant
    return ("Gather", (k, int(place))) if place is not None and 0 <= place < snapshot.sizes[k] else None


def seen(snapshot: Snapshot, n: ENode) -> bool:
    """Whether an e-node may be another way to look at memory: not one that repeats what it merges, as the heads of keys
    that queries share, which strides cannot express in any order."""
    if n.head != "Merge":
        return look(snapshot, n) is not None
    p, q, _, base = n.args
    own = snapshot.classes[base].axes
    return (p in own) == (q in own)


def _with(v: View, axis: str, size: int) -> View:
    """v with `axis` among its axes (stride 0 if it was constant along it)."""
    if axis in v.axes:
        return v
    return replace(v, axes=(*v.axes, axis), shape=(*v.shape, size), strides=(*v.strides, 0))


def _swap(v: View, old: tuple[str, ...], new: tuple[tuple[str, int, int], ...], offset: int = 0) -> View:
    """v with axes `old` replaced by `new` (name, size, stride), at the place of the first old one."""
    at = min(v.axes.index(k) for k in old)
    kept = [(k, n, s) for k, n, s in zip(v.axes, v.shape, v.strides, strict=True)]
    before = [x for x in kept[:at] if x[0] not in old]
    after = [x for x in kept[at:] if x[0] not in old]
    names, shape, strides = zip(*(before + list(new) + after), strict=True)
    return View(names, shape, strides, v.dtype, v.offset + offset)


def apply(v: View, head: str, args: tuple[Any, ...], sizes: Mapping[str, int]) -> View | None:
    """The view after one view head."""
    return _APPLY[head](v, sizes, *args)


def _ren(v: View, sizes: Mapping[str, int], a: str, b: str) -> View | None:
    if b in v.axes and a != b:
        return None
    v = _with(v, a, sizes[a])
    return replace(v, axes=tuple(b if k == a else k for k in v.axes))


def _split(v: View, sizes: Mapping[str, int], k: str, p: str, q: str) -> View | None:
    v = _with(v, k, sizes[k])
    s = v.stride(k)
    return _swap(v, (k,), ((p, sizes[p], s * sizes[q]), (q, sizes[q], s)))


def _merge(v: View, sizes: Mapping[str, int], p: str, q: str, k: str) -> View | None:
    v = _with(_with(v, p, sizes[p]), q, sizes[q])
    if v.stride(p) != v.stride(q) * sizes[q] and sizes[p] > 1:
        return None
    return _swap(v, (p, q), ((k, sizes[k], v.stride(q)),))


def _diag(v: View, sizes: Mapping[str, int], i: str, j: str, k: str) -> View | None:
    v = _with(_with(v, i, sizes[i]), j, sizes[j])
    return _swap(v, (i, j), ((k, sizes[k], v.stride(i) + v.stride(j)),))


def _slice(v: View, sizes: Mapping[str, int], k: str, n: str, start: int, step: int) -> View | None:
    v = _with(v, k, sizes[k])
    s = v.stride(k)
    return _swap(v, (k,), ((n, sizes[n], s * step),), offset=s * start if sizes[n] else 0)


def _unfold(v: View, sizes: Mapping[str, int], k: str, o: str, w: str, stride: int, dilation: int) -> View | None:
    v = _with(v, k, sizes[k])
    s = v.stride(k)
    return _swap(v, (k,), ((o, sizes[o], s * stride), (w, sizes[w], s * dilation)))


def _at(v: View, sizes: Mapping[str, int], k: str, place: int) -> View | None:
    v = _with(v, k, sizes[k])
    at = v.axes.index(k)
    axes, shape, strides = v.axes[:at] + v.axes[at + 1 :], v.shape[:at] + v.shape[at + 1 :], v.strides
    return View(axes, shape, strides[:at] + strides[at + 1 :], v.dtype, v.offset + strides[at] * place)


_APPLY = {
    "Ren": _ren, "Split": _split, "Merge": _merge, "Diag": _diag, "Slice": _slice, "Unfold": _unfold, "Gather": _at,
}  # fmt: skip
