"""Plan files: what is saved comes back and runs the same; what is damaged is a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import waxeq as wx
from waxeq.backend.kernel import Kernel
from waxeq.errors import PlanError, WaxeqError
from waxeq.ir.term import Term
from waxeq.ir.types import DTYPES, numpy_dtype
from waxeq.plan.encode import encode
from waxeq.plan.plan import Plan
from waxeq.runtime.files import write_together
from waxeq.runtime.program import Program
from waxeq.runtime.save import load_plan, save_plan, tensors_path

Affine = Callable[..., Plan]
Kernels = Mapping[str, Kernel]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_what_is_saved_runs_the_same(affine: Affine, kernels: Kernels, tmp_path: Path) -> None:
    plan, w, x = affine(5, 7), ones(7) / 3, ones(5, 7) / 7
    save_plan(tmp_path / "a.plan.json", plan, {"w": w}, {"x": x})
    saved = load_plan(tmp_path / "a.plan.json")
    assert encode(saved.plan) == encode(plan)
    np.testing.assert_array_equal(saved.inputs["x"], x)
    for got, want in zip(
        Program(saved.plan, kernels, saved.tensors)(saved.inputs["x"]), Program(plan, kernels, {"w": w})(x), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_saving_twice_gives_equal_bytes(affine: Affine, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_plan(tmp_path / f"{name}.plan.json", affine(5, 7), {"w": ones(7)})
    files = [(tmp_path / f"{n}.plan.json").read_bytes() for n in "ab"]
    tensors = [tensors_path(tmp_path / f"{n}.plan.json").read_bytes() for n in "ab"]
    assert files[0] == files[1] and tensors[0] == tensors[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_tensors_of_every_dtype(
    build: type, kernels: Kernels, tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    axes = "ij"[: len(shape)]
    b = build(**dict(zip(axes, shape, strict=True)))
    b.leaf("w", axes, dtype=dtype, kind="weight")
    b.leaf("s", axes, dtype=dtype, kind="state")
    b.step("y", lambda w, s: Term("Select", Term("Num", 1.0, "bool"), w, s), "w", "s")
    b.output("y", "y")
    w = np.array([0, 1, 5, 7, 100, 127])[: int(np.prod(shape))].reshape(shape).astype(numpy_dtype(dtype))
    save_plan(tmp_path / "a.plan.json", b.plan(), {"w": w, "s": w})
    saved = load_plan(tmp_path / "a.plan.json")
    assert saved.tensors["w"].dtype == w.dtype and saved.tensors["w"].shape == shape
    y = Program(saved.plan, kernels, saved.tensors)()
    assert y.dtype == w.dtype and np.array_equal(y, w)


def test_weights_that_are_views_are_saved_as_they_look(affine: Affine, tmp_path: Path) -> None:
    w = np.arange(14, dtype=np.float32)[::-2]
    save_plan(tmp_path / "a.plan.json", affine(5, 7), {"w": w})
    np.testing.assert_array_equal(load_plan(tmp_path / "a.plan.json").tensors["w"], w)


@pytest.fixture
def saved(affine: Affine, tmp_path: Path) -> Path:
    path = tmp_path / "a.plan.json"
    save_plan(path, affine(5, 7), {"w": ones(7)}, {"x": ones(5, 7)})
    return path


@pytest.mark.parametrize("which", [lambda p: p, tensors_path])
def test_a_file_that_is_missing(saved: Path, which: Callable[[Path], Path]) -> None:
    which(saved).unlink()
    with pytest.raises(PlanError, match=r"(?i)no such file") as e:
        load_plan(saved)
    assert which(saved).name in str(e.value) and e.value.exit_code == 3


@pytest.mark.parametrize("which", [lambda p: p, tensors_path])
@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"\xff\x00" * 50])
def test_a_file_that_is_damaged(saved: Path, which: Callable, damage: Callable[[bytes], bytes]) -> None:
    which(saved).write_bytes(damage(which(saved).read_bytes()))
    with pytest.raises(PlanError) as e:
        load_plan(saved)
    assert which(saved).name in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("content", ["null", "[]", "7", "{}", '{"waxeq": 0}', '{"waxeq": 1}', '{"waxeq": 1e99}'])
def test_a_file_that_is_no_plan(saved: Path, content: str) -> None:
    saved.write_text(content)
    with pytest.raises(PlanError):
        load_plan(saved)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", "is a folder; give a plan file in it"),
        ("", "is not the path of a plan file"),
        (None, "None is not the path of a plan file"),
        (3, "3 is not the path of a plan file"),
        ("none.plan.json", "no such file; `waxeq optimize`"),
        ("a\0b", "cannot be read"),
        ("text.json", "is not a plan; give the .json file"),
        ("empty.json", "is empty; make the plan anew"),
        ("other.json", "is not a plan that waxeq wrote"),
        ("deep.json", "is not a plan; give the .json file"),
        ("a.plan.safetensors", "is not a plan; give the .json file"),
        ("cut.plan.json", r"cut\.plan\.json is damaged or cut off; make the plan anew"),
        ("alone.plan.json", r"alone\.plan\.safetensors: no such file; it holds the weights of alone\.plan\.json"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_a_sentence(
    saved: Path, monkeypatch: pytest.MonkeyPatch, name: Any, said: str
) -> None:
    monkeypatch.chdir(saved.parent)
    texts = {"text": "hello", "empty": " ", "other": "{}", "deep": "[" * 100_000}
    for stem, text in texts.items():
        Path(f"{stem}.json").write_text(text)
    Path("cut.plan.json").write_bytes(saved.read_bytes()[:300])
    Path("alone.plan.json").write_bytes(saved.read_bytes())
    with pytest.raises(WaxeqError, match=said) as e:
        wx.load(name)
    assert "\n" not in str(e.value) and e.value.exit_code in (2, 3)


@pytest.mark.parametrize(
    ("name", "said"), [(".", "is a folder; name a file in it"), ("a.safetensors", "as a.plan.json"), ("", "path")]
)
def test_where_a_plan_cannot_go(
    affine: Affine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WaxeqError, match=said):
        save_plan(name, affine(5, 7), {"w": ones(7)})
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_plan_is_not_replaced(affine: Affine, tmp_path: Path) -> None:
    """Weights of somebody else's beside the name of a plan, or another file of that name."""
    (tmp_path / "net.safetensors").write_bytes(b"somebody's")
    (tmp_path / "settings.json").write_text("{}")
    for name in ("net.json", "settings.json"):
        with pytest.raises(PlanError, match="is there already, and belongs to no plan"):
            save_plan(tmp_path / name, affine(5, 7), {"w": ones(7)})
    assert (tmp_path / "net.safetensors").read_bytes() == b"somebody's"
    for _ in range(2):
        save_plan(tmp_path / "own.json", affine(5, 7), {"w": ones(7)})


@pytest.mark.parametrize("late", [False, True], ids=["before it moves", "after it moved"])
def test_an_interruption_between_two_files_finishes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    place, seen = os.replace, []

    def interrupted(old: str, new: Path) -> None:
        seen.append(new)
        if len(seen) > 1 or late:
            place(old, new)
        if len(seen) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_together({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"1", "b": b"2"}


def test_an_interruption_while_writing_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")
    calls: list[int] = []

    def interrupted(number: int) -> None:
        calls.append(number)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_together({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"old"}


def test_others_may_read_a_plan_as_any_new_file(saved: Path) -> None:
    plain = saved.parent / "plain"
    plain.touch()
    for path in (saved, tensors_path(saved)):
        assert path.stat().st_mode == plain.stat().st_mode


def test_tensors_of_something_else(saved: Path) -> None:
    from safetensors.numpy import save

    tensors_path(saved).write_bytes(save({"layer.0.weight": ones(3)}))
    with pytest.raises(PlanError, match=tensors_path(saved).name):
        load_plan(saved)


def test_a_place_that_cannot_be_written(affine: Affine, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "a.plan.json", Path("/proc/nowhere.plan.json")):
        with pytest.raises(PlanError, match="cannot be written"):
            save_plan(path, affine(5, 7), {"w": ones(7)})
    assert list(tmp_path.iterdir()) == []


def test_tensors_of_another_plan(affine: Affine, saved: Path, tmp_path: Path) -> None:
    save_plan(tmp_path / "b.plan.json", affine(5, 7), {"w": 2 * ones(7)})
    tensors_path(tmp_path / "b.plan.json").replace(tensors_path(saved))
    with pytest.raises(PlanError, match="belongs to another plan"):
        load_plan(saved)


def test_a_plan_of_another_version(saved: Path) -> None:
    saved.write_text(saved.read_text().replace('"waxeq": 1', '"waxeq": 99'))
    with pytest.raises(PlanError, match="not a waxeq plan of version 1"):
        load_plan(saved)


# -- every kind of damage to the plan itself

_VALUES = st.sampled_from(
    [None, True, -1, 0, 1, 7, 10**12, 1.5, "", "x", "float64", "temporary", [], [1], {}, {"x": 1}]
)


def places(data: Any, at: tuple = ()) -> list[tuple]:
    rows = [at] if at else []
    for k, v in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        rows += places(v, (*at, k))
    return rows


@pytest.fixture(scope="session")
def text_and_path(affine: Affine, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("plans") / "a.plan.json"
    save_plan(path, affine(5, 7), {"w": ones(7)})
    return path.read_text(), path


@given(st.data())
def test_a_plan_with_anything_replaced_is_refused(text_and_path: tuple[str, Path], data: st.DataObject) -> None:
    text, path = text_and_path
    raw = json.loads(text)
    at = data.draw(st.sampled_from(places(raw)))
    target = raw
    for k in at[:-1]:
        target = target[k]
    before = target[at[-1]]
    if data.draw(st.booleans()):
        target[at[-1]] = data.draw(_VALUES.filter(lambda v: json.dumps(v) != json.dumps(before)))
    else:
        del target[at[-1]]
    path.write_text(json.dumps(raw))
    with pytest.raises(PlanError) as e:
        load_plan(path)
    assert "\n" not in str(e.value)


@given(st.data())
def test_a_flipped_bit_anywhere_in_the_tensors_is_noticed(text_and_path: tuple[str, Path], data: st.DataObject) -> None:
    text, path = text_and_path
    path.write_text(text)
    packed = tensors_path(path).read_bytes()
    at = data.draw(st.integers(0, len(packed) - 1))
    flipped = packed[:at] + bytes([packed[at] ^ 1 << data.draw(st.integers(0, 7))]) + packed[at + 1 :]
    try:
        tensors_path(path).write_bytes(flipped)
        with pytest.raises(PlanError, match="is damaged"):
            load_plan(path)
    finally:
        tensors_path(path).write_bytes(packed)


def test_keys_of_results_stay_in_the_order_of_the_model() -> None:
    from waxeq.runtime.save import _sorted

    got = _sorted({"b": {"d": 1, "c": (2,)}, "a": 0, "structure": {"z": "z", "y": "y"}})
    assert list(got) == ["a", "b", "structure"]
    assert list(got["b"]) == ["c", "d"] and list(got["structure"]) == ["z", "y"]
