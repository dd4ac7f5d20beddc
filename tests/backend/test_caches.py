"""Sizes of caches, as the system tells them."""

from __future__ import annotations

from waxeq.backend.caches import cache_bytes


def test_a_farther_cache_is_no_smaller_and_what_is_not_there_has_no_bytes() -> None:
    told = [n for n in map(cache_bytes, (1, 2, 3)) if n]
    assert told == sorted(told) and all(n % 1024 == 0 for n in told)
    assert cache_bytes(9) == 0
