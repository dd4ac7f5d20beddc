"""The coverage table is what the code says, and covers what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from waxeq.frontend.coverage import functions, table, traced

pytestmark = pytest.mark.quick


def test_the_table_is_up_to_date(root: Path) -> None:
    text = (root / "docs" / "coverage.md").read_text(encoding="utf-8")
    version = re.search(r"NumPy (\d+\.\d+)", text)
    assert version is not None
    if version[1] == ".".join(np.__version__.split(".")[:2]):
        assert text == table(), "run python -m waxeq.frontend.coverage"
    listed = set(re.findall(r"^\| `np\.([\w.]+)`", text, re.M))
    ours = {n for n in functions() if traced(n)} - {"sliding_window_view"}
    assert {n for n in ours ^ listed if n in functions() and n.partition(".")[0] != "lib"} == set()


def test_at_least_ninety_functions_are_traced() -> None:
    assert sum(map(traced, functions())) >= 90


def test_every_ufunc_of_real_numbers_is_traced_or_known_not_to_be() -> None:
    ufuncs = {n for n, f in functions().items() if isinstance(f, np.ufunc)}
    missing = {n for n in ufuncs if not traced(n)}
    assert missing == {"frexp", "gcd", "lcm", "nextafter", "spacing"}
