"""At what part of its points each value of a nest is needed: of arrays that are side by side, or padded, each is read
where it lies only."""

from __future__ import annotations

from waxeq_cfamily.values import Guard, Values


def shares(values: Values) -> tuple[float, ...]:
    """Of every row, roughly: what several others need is needed wherever one of them is, at most everywhere."""
    found = [0.0] * len(values.rows)
    for n, _ in values.results:
        found[n] = 1.0
    for n in range(len(values.rows) - 1, -1, -1):
        r, own = values.rows[n], min(1.0, found[n])
        needs = dict.fromkeys(values.reads(r), own)
        if r.op == "within" and r.args[0] != r.args[1]:
            inside, outside = _parts(values, (r.name[1], *r.name[0]))
            needs |= {r.args[0]: own * inside, r.args[1]: own * outside}
        for a, share in needs.items():
            found[a] += share
    return tuple(min(1.0, share) for share in found)


def _parts(values: Values, guard: Guard) -> tuple[float, float]:
    """At what part of the places a guard holds, and at what part it does not; both at all of them where it asks for
    more than a place along an axis. Of sizes in ranges the largest count."""
    where, low, high = guard
    first, last = int(low) - int(where.const), int(high) - int(where.const)
    match where.terms:
        case ((str(axis), 1),) if size := int(values.sizes[axis]):
            held = max(0, min(size, last) - max(0, first)) / size
            return held, 1 - held
        case _:
            return 1.0, 1.0
