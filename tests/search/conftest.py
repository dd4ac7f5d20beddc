"""Searches that know nothing but what they time themselves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _alone(nothing_shipped: None) -> None:
    """What a checkout knows of this machine is not what is tested."""
