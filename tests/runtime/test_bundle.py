"""What a plan in one file has of its kernels, and what is said of a kernel that is not where it is run."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from waxeq.backend.discover import backends, found, require
from waxeq.errors import PlanError, WaxeqError
from waxeq.plan.plan import Plan
from waxeq.runtime.bundle import read_bundle, write_bundle

pytestmark = pytest.mark.quick


def _with_kernel(plan: Plan, name: str) -> Plan:
    return replace(plan, steps=tuple(replace(s, call=replace(s.call, kernel=name)) for s in plan.steps))


def test_it_names_the_backends_whose_kernels_are_not_in_it(affine: Callable[..., Plan], tmp_path: Path) -> None:
    """Those that compile, and those that are not here; NumPy's need nothing."""
    (numpy,) = backends(["numpy"])
    for name, later in {min(numpy.kernels): (), "native.loops": ("native",), "test.anything": ("test",)}.items():
        plan = _with_kernel(affine(3, 4), name)
        assert write_bundle(tmp_path / "b.waxeq", plan, {"w": np.zeros(4, np.float32)}).later == dict.fromkeys(
            later, ""
        )


def test_a_backend_that_lacks_a_package_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a backend of somebody else may, where only NumPy is installed."""

    def lacking() -> None:
        raise ModuleNotFoundError("No module named 'moon.phases'", name="moon.phases")

    monkeypatch.setattr("waxeq_native.library.shared", lacking)
    (row,) = (f for f in found() if f.name == "native")
    assert row.why == "the Python package moon is not installed (pip install moon)"
    with pytest.raises(PlanError, match=r"native\.loops, .* moon is not installed \(pip install "):
        require(["native.loops"], {})


def test_a_damaged_bundle_is_refused_in_a_sentence(affine: Callable[..., Plan], tmp_path: Path) -> None:
    """What the contents of a zip file say of themselves has no check sum: a changed bit there was an internal error."""
    path, rng = tmp_path / "b.waxeq", random.Random(0)
    write_bundle(path, affine(3, 4), {"w": np.ones(4, np.float32)}, {"x": np.ones((3, 4), np.float32)})
    whole = path.read_bytes()
    for at in (*range(len(whole) - 200, len(whole)), *rng.sample(range(len(whole)), 400)):
        changed = bytearray(whole)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with suppress(WaxeqError):  # anything else fails here
            read_bundle(path)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [("plan.json", "[]", "version"), ("weight/w.float32.npy", "cut off", "damaged"), ("input/x", "", "damaged")],
)
def test_a_zip_file_of_something_else_is_no_bundle(
    file: str, content: str, says: str, affine: Callable[..., Plan], tmp_path: Path
) -> None:
    path, other = tmp_path / "b.waxeq", tmp_path / "other.waxeq"
    write_bundle(path, affine(3, 4), {"w": np.ones(4, np.float32)})
    with zipfile.ZipFile(path) as z, zipfile.ZipFile(other, "w") as to:
        for name in {*z.namelist()} - {file}:
            to.writestr(name, z.read(name))
        to.writestr(file, content)
    with pytest.raises(PlanError, match=says):
        read_bundle(other)
