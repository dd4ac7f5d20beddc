"""Which tests of native kernels are compiled with few optimizations."""

from __future__ import annotations

import pytest

from waxeq_native import library


@pytest.fixture(autouse=True)
def odd_dtypes_are_compiled_little(
    request: pytest.FixtureRequest, little: library.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of every `dtype` is compiled as plans are for float32 alone: vectors of the others take compilers longest,
    and tests/backends/test_conformance.py has all of them.
    """
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("dtype", "float32") != "float32":
        monkeypatch.setattr(library, "shared", lambda: little)
