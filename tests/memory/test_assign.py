"""Offsets: whatever the buffers, no two that are needed at one call share a byte, but for what was granted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.errors import PlanError
from waxeq.memory.alias import alias
from waxeq.memory.assign import Assignment, assign
from waxeq.memory.check import check_assignment
from waxeq.memory.liveness import Buffer, InPlace, busiest, rounded

pytestmark = pytest.mark.quick


@st.composite
def problems(draw: st.DrawFn, largest: int = 5000) -> tuple[list[Buffer], list[InPlace]]:
    """Buffers as a program makes them (call i writes one, reads some), and wishes, sensible and silly."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 63, 64, 65, 256]) | st.integers(0, largest), min_size=1, max_size=14))
    buffers = []
    for i, size in enumerate(sizes):
        first = draw(st.integers(max(0, i - 1), i + 1))
        align = draw(st.sampled_from([1, 16, 64, 256]))
        buffers.append(Buffer(f"b{i}", size, first, first + draw(st.integers(0, 5)), align))
    names = st.sampled_from([b.name for b in buffers])
    wishes = draw(st.lists(st.builds(InPlace, names, names), max_size=8))
    return buffers, wishes


def overlap(a: Buffer, b: Buffer, found: Assignment) -> bool:
    """By the definition: a byte and a call at which both are needed."""
    i, j = found.offsets[a.name], found.offsets[b.name]
    share = max(i, j) < min(i + a.bytes, j + b.bytes)
    return share and max(a.first, b.first) <= min(a.last, b.last)


@given(problems())
def test_no_two_live_buffers_overlap_but_where_granted(problem: tuple[list[Buffer], list[InPlace]]) -> None:
    buffers, wishes = problem
    found = assign(buffers, wishes)
    check_assignment(buffers, found, found.in_place)
    granted = {(w.buffer, w.reuses) for w in found.in_place}
    assert set(found.in_place) <= set(wishes)
    for i, a in enumerate(buffers):
        assert found.offsets[a.name] % a.align == 0
        assert 0 <= found.offsets[a.name] <= found.offsets[a.name] + a.bytes <= found.arena_bytes
        for b in buffers[i + 1 :]:
            if overlap(a, b, found):
                old, new = (a, b) if (b.name, a.name) in granted else (b, a)
                assert (new.name, old.name) in granted
                assert old.last == new.first and found.offsets[old.name] == found.offsets[new.name]
                assert new.bytes <= old.bytes


@given(problems())
def test_the_arena_is_no_smaller_than_the_lower_bound(problem: tuple[list[Buffer], list[InPlace]]) -> None:
    buffers, wishes = problem
    plain = assign(buffers)
    needed, _ = busiest((b.bytes, b.first, b.last) for b in buffers)
    assert needed <= plain.least_bytes <= plain.arena_bytes
    assert plain.arena_bytes <= sum(rounded(b.bytes, 256) + 256 for b in buffers)
    found = assign(buffers, wishes)
    assert found.least_bytes <= found.arena_bytes and found.gap >= 0


@given(problems())
def test_the_answer_depends_on_the_arguments_alone(problem: tuple[list[Buffer], list[InPlace]]) -> None:
    buffers, wishes = problem
    assert assign(buffers, wishes) == assign(list(buffers), list(wishes))


@given(problems(), st.data())
def test_a_planted_overlap_is_caught(problem: tuple[list[Buffer], list[InPlace]], data: st.DataObject) -> None:
    buffers, _ = problem
    found = assign(buffers)
    pairs = [
        (a, b) for a in buffers for b in buffers
        if a is not b and a.bytes and b.bytes and max(a.first, b.first) <= min(a.last, b.last)
    ]  # fmt: skip
    if not pairs:
        return
    a, b = data.draw(st.sampled_from(pairs))
    at = found.offsets[b.name] + data.draw(st.integers(0, b.bytes - 1)) // a.align * a.align
    at = rounded(at, a.align) if rounded(at, a.align) < found.offsets[b.name] + b.bytes else at // a.align * a.align
    planted = replace(found, offsets={**found.offsets, a.name: at}, arena_bytes=found.arena_bytes + a.bytes)
    if overlap(a, b, planted):
        with pytest.raises(PlanError, match="share memory and are both needed"):
            check_assignment(buffers, planted)


ONE, TWO = Buffer("one", 100, 0, 1), Buffer("two", 100, 1, 2)


def test_a_result_takes_the_memory_of_an_operand_that_dies() -> None:
    wish = InPlace("two", "one")
    found = assign([ONE, TWO], [wish])
    assert found.offsets == {"one": 0, "two": 0} and found.in_place == (wish,) and found.arena_bytes == 128
    check_assignment([ONE, TWO], found, [wish])
    with pytest.raises(PlanError, match="one and two share memory"):
        check_assignment([ONE, TWO], found)


@pytest.mark.parametrize(
    ("new", "old", "reason"),
    [
        (TWO, replace(ONE, last=2), "is needed after the call"),
        (TWO, replace(ONE, last=0), "is not read by the call"),
        (TWO, replace(ONE, first=1), "is not written before"),
        (replace(TWO, bytes=101), ONE, "has 101 bytes, one 100"),
        (replace(TWO, bytes=0), ONE, "has 0 bytes"),
    ],
)
def test_a_wish_that_would_change_a_value_is_refused(new: Buffer, old: Buffer, reason: str) -> None:
    wish = InPlace("two", "one")
    found = alias([old, new], [wish])
    assert not found.granted and reason in found.refused[wish]
    check_assignment([old, new], assign([old, new], [wish]))


def test_one_operand_gives_its_memory_once() -> None:
    other = replace(TWO, name="other")
    wishes = [InPlace("two", "one"), InPlace("other", "one")]
    found = alias([ONE, TWO, other], wishes)
    assert found.granted == (wishes[0],) and "would share memory" in found.refused[wishes[1]]


def test_a_chain_of_results_lies_in_one_place() -> None:
    rows = [Buffer(f"b{i}", 1000, i, i + 1) for i in range(20)]
    wishes = [InPlace(f"b{i + 1}", f"b{i}") for i in range(19)]
    found = assign(rows, wishes)
    assert set(found.offsets.values()) == {0} and found.arena_bytes == 1024 == found.least_bytes
    assert assign(rows).arena_bytes == 2048, "two at a time without wishes"


def test_a_small_buffer_does_not_hold_on_to_the_room_of_a_large_one() -> None:
    big, small, late = Buffer("big", 4096, 0, 1), Buffer("small", 64, 1, 9), Buffer("late", 4096, 2, 3)
    found = assign([big, small, late], [InPlace("small", "big")])
    assert found.arena_bytes == 4096 + 64


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: replace(f, offsets={"one": 0}), "has no offset"),
        (lambda f: replace(f, offsets={"one": 0, "two": -64}), "lies outside the arena"),
        (lambda f: replace(f, arena_bytes=200), "lies outside the arena"),
        (lambda f: replace(f, offsets={"one": 0, "two": 104}, arena_bytes=400), "no multiple of 64"),
    ],
)
def test_damaged_offsets_are_caught(damage, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_assignment([ONE, TWO], damage(assign([ONE, TWO])))


def test_nonsense_is_refused() -> None:
    for make in (
        lambda: Buffer("b", -1, 0, 0),
        lambda: Buffer("b", 1, 2, 1),
        lambda: Buffer("b", 1, 0, 0, align=3),
        lambda: assign([ONE, ONE]),
        lambda: assign([ONE], [InPlace("one", "other")]),
    ):
        with pytest.raises(PlanError):
            make()


def test_no_buffers_need_no_memory() -> None:
    assert assign([]) == Assignment({}, 0, 0, (), "largest first, best fit")
    assert assign([Buffer("b", 0, 0, 3)]).arena_bytes == 0
