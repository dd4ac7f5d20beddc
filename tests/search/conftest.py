"""Searches that know nothing but what they time themselves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a checkout knows of this machine is not what is tested: fits to it are made anew in each session, and again
    whenever something is timed, which takes most of what a search of a few calls takes."""
    monkeypatch.setattr("waxeq.search.tables.calibration_tables", tuple)
