"""The distinct blocks of a model: those that the table remembers, and the others, which share the time there is."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from waxeq.basis.typing import types
from waxeq.cost.memos import BLOCK, CUT_BLOCK
from waxeq.egraph.lower import lower
from waxeq.ir.blocks import Block
from waxeq.naming import option
from waxeq.plan.encode import decode_block, encode_block
from waxeq.search.block import Optimized, place, saturated, search_block, stage
from waxeq.search.parts import copied
from waxeq.search.session import Session

_EVEN = 0.5
"""Part of the time that blocks share evenly: with a fifth of it a block of attention, which computes little beside
products with weights, was planned without a timing, and took thirty times as long as it should."""
_SLACK = 1.1
"""What counts as no more time for a search that begins after another, a moment earlier or later each time."""


def recalled(session: Session, blocks: Sequence[Block], *, cut: bool = False) -> dict[str, Optimized]:
    """Blocks of a model whose plan the table remembers, by key, and whose kernels were not given up since. One that
    time ran out for counts where it would be given no more time than it had been, and with `cut` in any case."""
    if session.options.fresh or not any(session.table.remembers(k.name) for k in (BLOCK, CUT_BLOCK)):
        return {}  # under what they would be remembered takes reading the text of all kernels
    distinct = {session.memo_key(BLOCK, block=b.key): b for b in blocks}
    rows = {distinct[k].key: _read(distinct[k], text) for k, text in session.table.memos(BLOCK.name, distinct).items()}
    left = [k for k, b in distinct.items() if b.key not in rows]
    short = {k: _read(distinct[k], text) for k, text in session.table.memos(CUT_BLOCK.name, left).items()}
    if short:
        given = _given(session, _works(blocks))
        slack = _SLACK if session.begun else 1.0
        enough = {o.block.key: slack * _endless(o.seconds) for o in short.values()}
        rows |= {k: o for o in short.values() if _endless(given[k := o.block.key]) <= enough[k] or cut}
    unusable = session.prices.excluded
    return {k: o for k, o in rows.items() if unusable.isdisjoint(s.call.kernel for s in o.plan.steps)}


def searched(session: Session, blocks: Sequence[Block], *, sole: bool = False) -> dict[str, Optimized]:
    """The best plans of blocks, by key: of distinct ones, the one with most to compute wherever it occurs first. While
    candidates of one are grown the next is saturated. Each may spend its share of the time for measuring, and what
    those before it left.
    `sole`: whether the model is one block, which occurs once."""
    rows: dict[str, Optimized] = {}
    work = _works(blocks)
    given = _given(session, work)
    blocks = sorted({b.key: b for b in blocks}.values(), key=lambda b: (-work[b.key], b.key))
    if not sole:
        rows |= {b.key: plain for b in blocks if (plain := copied(session, b)) is not None}
        blocks = [b for b in blocks if b.key not in rows]
    session.sole = sole
    begun = [session.beside(partial(saturated, session, b)) for b in blocks[:1]]
    if blocks:
        session.begin_ready(x.type.dtype for b in blocks for x in (*b.graph.leaves, *b.graph.nodes))
    for b in blocks:  # worked out while others are at work: the first of them takes as long
        session.memo_key(BLOCK, block=b.key)
    for n, block in enumerate(blocks):
        first = stage(session, "saturate", begun[n].result)
        session.release()
        begun += [session.beside(partial(saturated, session, b)) for b in blocks[n + 1 : n + 2]]
        part, of_all = (_share(work[block.key], [work[b.key] for b in rest]) for rest in (blocks[n:], blocks))
        session.share(part, of_all)
        found = replace(search_block(session, block, first), seconds=given[block.key])
        rows[block.key] = found
        if not session.stopped:  # what somebody stopped is not the last word on a block
            remember(session, found)
    session.share(1.0)
    session.settled()
    return rows


def _given(session: Session, work: Mapping[str, float]) -> dict[str, float | None]:
    """Seconds of the budget that each of the blocks of a model is given, by key, of what each has to compute; the fewer
    others, the more."""
    budget = session.given
    return {k: None if budget is None else budget * _share(w, list(work.values())) for k, w in work.items()}


def _endless(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _share(own: float, left: Sequence[float]) -> float:
    """A block's part of the time for those that are left, itself included: some of it is shared out evenly, the rest by
    what they have to compute."""
    part = own / math.fsum(left)
    return part + _EVEN * (1.0 / len(left) - part)


def _works(blocks: Iterable[Block]) -> dict[str, float]:
    """What each of the blocks has to compute, by key, as often as it occurs."""
    rows = [*blocks]
    repeats = Counter(b.key for b in rows)
    return {k: repeats[k] * _work(b) for k, b in {b.key: b for b in rows}.items()}


def _work(block: Block) -> float:
    """Elements of all values of a block, products of matrices included before they are summed."""
    lowered = lower(block.graph)
    kinds = types(*(x.term for x in lowered.roots.values())).values()
    return 1.0 + sum(math.prod(lowered.sizes[k] for k in kind.axes) for kind in kinds)


def remember(session: Session, found: Optimized) -> None:
    """Keep the plan of a block in the table, for every model that has an equal block; not one that fell back, or
    was searched without kernels that should have run, and not one that time ran out for where none was given, or where
    the plan of a longer search is kept."""
    key = session.memo_key(BLOCK, block=found.block.key)
    if found.note or session.prices.excluded or (found.left and not _longest(session, key, found)):
        return
    payload = {"plan": encode_block(found.plan), "facts": dict(found.facts), "model": session.model}
    if found.left:
        payload |= {"left": list(found.left), "seconds": found.seconds}
    session.table.memo_put((CUT_BLOCK if found.left else BLOCK).name, key, json.dumps(payload, sort_keys=True))


def _longest(session: Session, key: str, found: Optimized) -> bool:
    """Whether a block had some time, and no less than when it was remembered last."""
    known = session.table.memo_get(CUT_BLOCK.name, key)
    before = 0.0 if known is None else _endless(json.loads(known)["seconds"])
    return found.seconds != 0 and _endless(found.seconds) >= before


def _read(block: Block, text: str) -> Optimized:
    """What is remembered of a block."""
    data = json.loads(text)
    return Optimized(
        block, decode_block(data["plan"]), True, data["facts"], of=data.get("model", ""),
        left=tuple(data.get("left", ())), seconds=data.get("seconds"),
    )  # fmt: skip


def said(blocks: Sequence[Optimized]) -> list[str]:
    """Sentences on what blocks fell back on, and on what time ran out for."""
    notes = [b.note for b in blocks if b.note]
    for known in (False, True):
        cut = [b for b in blocks if b.left and b.remembered is known and b.seconds != 0]
        if cut:
            what = "; ".join(dict.fromkeys(text for b in cut for text in b.left))
            where = ", ".join(sorted({place(b.block) for b in cut}))
            text = f"time ran out for {len(cut)} of {len(blocks)} blocks (at {where}): {what}"
            again = (
                f"; these plans are remembered, and with {option('fresh', 'True')} or a larger {option('budget')} they "
                "are searched anew"
            )
            notes.append(text + again * known)
    return notes
