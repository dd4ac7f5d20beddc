"""`waxeq optimize --dim`, and running the plan at other sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.cli import bench, main, peers

pytestmark = pytest.mark.slow

MODEL = """
import numpy as np

WEIGHTS = ("w",)

def model(x, y, w):
    return np.tanh(x @ w) * y[:, None]

def example_inputs(T):
    rng = np.random.default_rng(0)
    return {
        "w": rng.standard_normal((8, 3), dtype=np.float32),
        "x": rng.standard_normal((T, 8), dtype=np.float32),
        "y": rng.standard_normal(T, dtype=np.float32),
    }
"""
FIXED = MODEL.replace("example_inputs(T)", "example_inputs()").replace("(T,", "(5,").replace("(T,", "(5,").replace(
    "normal(T,", "normal(5,"
)  # fmt: skip
ANNOTATED = """
import numpy as np
import waxeq as wx

def model(x: wx.Input["f32", "B", "T", 4]):
    return x.sum(1)
"""


def saved(folder: Path, name: str, array: np.ndarray) -> str:
    np.save(folder / f"{name}.npy", array)
    return f"{name}={folder / name}.npy"


def test_a_range_of_sizes(
    waxeq: Callable[..., Any], model: Callable[..., Path], quick: tuple[object, ...], tmp_path: Path
) -> None:
    plan, out = tmp_path / "m.plan.json", tmp_path / "r.npz"
    done = waxeq("optimize", model(MODEL), "--dim", "T=1:40", "-o", plan, *quick, "--json")
    assert done.code == 0, done.err
    assert done.data["inputs"] == {"x": ["T", 8], "y": ["T"]}
    assert next(i["ranges"]["T"] for i in done.data["intervals"])[0] == 1
    assert done.data["switch_points"] == {"T": [i["ranges"]["T"][0] for i in done.data["intervals"]][1:]}
    names: dict[str, Any] = {}
    exec(MODEL, names)
    w = names["example_inputs"](5)["w"]
    for t in (1, 2, 13, 40):
        x, y = names["example_inputs"](t)["x"], names["example_inputs"](t)["y"]
        files = ("--input", saved(tmp_path, "x", x), "--input", saved(tmp_path, "y", y))
        ran = waxeq("run", plan, *files, "-o", out, "--json")
        assert ran.code == 0 and ran.data["sizes"] == {"T": t}, ran.err
        assert np.allclose(np.load(out)["out"], names["model"](x, y, w), atol=1e-5)
    assert waxeq("run", plan).code == 0, "on the inputs it was made with"
    big = saved(tmp_path, "x", np.zeros((41, 8), np.float32))
    assert waxeq("run", plan, "--input", big).sentence.startswith("T is 41 in input 'x'")
    apart = waxeq("run", plan, "--input", saved(tmp_path, "x", np.zeros((3, 8), np.float32)))
    assert (apart.code, "T is 3 in input 'x' and" in apart.sentence) == (3, True)


def test_weights_that_change_with_the_size_are_noted(
    waxeq: Callable[..., Any], model: Callable[..., Path], quick: tuple[object, ...], tmp_path: Path
) -> None:
    text = MODEL.replace("default_rng(0)", "default_rng(T)")
    done = waxeq("optimize", model(text), "--dim", "T=1:40", "-o", tmp_path / "m.plan.json", *quick, "--json")
    (note,) = (n for n in done.data["notes"] if "is another at another size" in n)
    assert "weight 'w'" in note and "the plan holds the one of T = " in note


def test_axes_by_name_and_by_annotation(
    waxeq: Callable[..., Any], model: Callable[..., Path], quick: tuple[object, ...], tmp_path: Path
) -> None:
    plan = tmp_path / "m.plan.json"
    named = waxeq("optimize", model(FIXED), "--dim", "T=2:40@x.0,y.0", "-o", plan, *quick)
    assert named.code == 0 and "T = 2 to 40" in named.out, named.err
    two = waxeq("optimize", model(ANNOTATED), "--dim", "T=1:9", "--dim", "B=1:4", "-o", plan, *quick)
    assert two.code == 0 and "x[B, T, 4]" in two.out, two.err


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, its plan for T from 1 to 40 and the lock of that."""
    folder = tmp_path_factory.mktemp("sized")
    (folder / "small.py").write_text(MODEL)
    argv = ["optimize", str(folder / "small.py"), "--dim", "T=1:40", "-o", str(folder / "m.plan.json")]
    argv += ["--lock", str(folder / "my.lock"), "--table", str(folder / "t.duckdb"), "--no-trial", "--no-measure", "-q"]
    assert main(argv) == 0
    return folder


def test_memory_and_reasons_of_each_interval(waxeq: Callable[..., Any], sized: Path) -> None:
    told = waxeq("mem", sized / "m.plan.json", "--json")
    assert told.code == 0, told.err
    for i in told.data["intervals"]:
        least, greatest = i["edges"]
        assert [e["sizes"]["T"] for e in i["edges"]] == i["ranges"]["T"]
        assert least["peak"] < greatest["peak"] <= told.data["peak"]
        assert any("T" in formula for formula in i["peak"])
    assert waxeq("mem", sized / "m.plan.json", "--max-memory", "1KiB").code == 7
    why = waxeq("explain", sized / "m.plan.json", "--json")
    assert why.code == 0, why.err
    for i in why.data["intervals"]:
        low, high = i["ranges"]["T"]
        assert low <= i["explained_at"]["T"] <= high
        assert i["as_written"] or all(k["rules"] is not None for k in i["kernels"])
    shown = waxeq("explain", sized / "m.plan.json")
    assert "T = 1 to" in shown.out and "0 ns" not in shown.out, shown.out


def test_times_at_sizes(
    waxeq: Callable[..., Any], sized: Path, quick: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "in_fresh_process", lambda fn, job, **more: fn(*job))
    monkeypatch.setattr(peers, "keep_to", lambda threads: None)
    given = ("--at", "T=3", "--at", "T=40", "--seconds", "0.01", "--json")
    for target in ((sized / "m.plan.json",), (sized / "small.py", "--dim", "T=1:40", *quick[:2], *quick[3:])):
        told = waxeq("bench", *target, *given)
        assert told.code == 0, told.err
        assert [r["sizes"] for r in told.data["at"]] == [{"T": 3}, {"T": 40}]
        names = {"plan", "model as written"} | ({"original function"} if len(target) > 1 else set())
        for r in told.data["at"]:
            assert {x["name"] for x in r["rivals"]} == names
            assert all(x["error"] < 1e-5 and x["seconds"] > 0 for x in r["rivals"]), r["rivals"]
    edges = waxeq("bench", sized / "m.plan.json", "--seconds", "0.01")
    assert edges.code == 0 and "T = 1\n" in edges.out.replace(" \n", "\n") and "T = 40" in edges.out, edges.out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("bench", "m.plan.json", "--at", "T=41"), "T goes from 1 to 40"),
        (("bench", "m.plan.json", "--at", "B=4"), "give a size for each dim, as T=40"),
        (("bench", "m.plan.json", "--at", "T=²"), "give a size for each dim, as T=40"),
        (("bench", "m.plan.json", "--at", "T=4,T=5"), "give a size for each dim, as T=40"),
        (("mem", "m.plan.json", "--dim", "T=1:4"), "is a plan already"),
        (("explain", "m.plan.json", "--seed", "3"), "is a plan already"),
    ],
)
def test_what_a_plan_for_sizes_does_not_take(
    given: tuple[str, ...], says: str, waxeq: Callable[..., Any], sized: Path
) -> None:
    done = waxeq(given[0], sized / given[1], *given[2:])
    assert (done.code, says in done.sentence) == (2, True), done.err


def test_a_locked_plan_for_sizes_is_the_same_bytes(
    waxeq: Callable[..., Any], sized: Path, quick: tuple[object, ...], tmp_path: Path
) -> None:
    again, lock = tmp_path / "m.plan.json", ("--locked", "--lock", sized / "my.lock", "--table", tmp_path / "t.duckdb")
    done = waxeq("optimize", sized / "small.py", "--dim", "T=1:40", *lock, "-o", again, "--json")
    assert done.code == 0, done.err
    assert again.read_bytes() == (sized / "m.plan.json").read_bytes()
    assert done.data["searched_at"] == [] and any("nothing was searched" in n for n in done.data["notes"])
    other = waxeq("optimize", sized / "small.py", "--dim", "T=1:39", *lock, "-q")
    assert (other.code, "locks small for T=1:40, and not small for T=1:39" in other.sentence) == (9, True), other.err
    changed = sized / "changed"
    changed.mkdir(exist_ok=True)
    (changed / "small.py").write_text(MODEL.replace("np.tanh", "np.exp"))
    unlike = waxeq("optimize", changed / "small.py", "--dim", "T=1:40", *lock, "-q")
    assert (unlike.code, "computes something else" in unlike.sentence) == (9, True), unlike.err


@pytest.mark.parametrize(
    ("dims", "code", "says"),
    [
        (["T=1:40"], 2, "no input has an axis of size T"),
        (["T=40"], 2, "write it as T=1:512"),
        (["T=9:3@x.0"], 2, "goes from 9 to 3"),
        (["T=1:9@x.0", "T=1:9@y.0"], 2, "given twice"),
        (["T=1:9@x.5"], 2, "axis 5"),
        (["T=1:9@x.0"], 3, "do not broadcast (where T = "),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    dims: list[str], code: int, says: str, waxeq: Callable[..., Any], model: Callable[..., Path],
    quick: tuple[object, ...],
) -> None:  # fmt: skip
    done = waxeq("optimize", model(FIXED), *(a for d in dims for a in ("--dim", d)), *quick)
    assert (done.code, says in done.sentence) == (code, True), done.err


def test_the_size_of_an_example_that_does_not_fit_is_said_once(
    waxeq: Callable[..., Any], model: Callable[..., Path], quick: tuple[object, ...]
) -> None:
    """Regression: it was said twice."""
    done = waxeq("optimize", model(MODEL), "--dim", "T=1:64@x.7", *quick)
    assert (done.code, done.sentence.count("where T = ")) == (2, 1), done.err


def test_a_branch_on_the_size_names_its_line(
    waxeq: Callable[..., Any], model: Callable[..., Path], quick: tuple[object, ...]
) -> None:
    text = MODEL.replace("return np.tanh", "return np.exp(x @ w)[:, 0] * y if len(y) > 20 else np.tanh")
    done = waxeq("optimize", model(text), "--dim", "T=1:40", *quick)
    assert done.code == 4 and "small.py:7" in done.sentence and "another one where T = " in done.sentence


def test_a_damaged_plan_is_one_sentence(
    waxeq: Callable[..., Any], model: Callable[..., Path], quick: tuple[object, ...], tmp_path: Path
) -> None:
    from waxeq.runtime.save import _digest

    plan = tmp_path / "m.plan.json"
    assert waxeq("optimize", model(MODEL), "--dim", "T=1:40", "-o", plan, *quick).code == 0
    whole = json.loads(plan.read_text())

    def written(change: Callable[[Any], Any]) -> None:
        data = json.loads(json.dumps(whole))
        data.pop("sha256")
        change(data["sized"])
        plan.write_text(json.dumps({**data, "sha256": _digest(data)}))

    for change in (
        lambda s: s["intervals"][0]["ranges"].update(T=[2, 40]),
        lambda s: s.update(dims=[]),
        lambda s: s["intervals"][0].pop("order"),
        lambda s: s["intervals"][0]["plan"].update(buffers={"x": ["float32", "⟨__import__('os')⟩", "input", None]}),
        lambda s: s["takes"][0].update(axes=["⟨T.real⟩", 8]),
        lambda s: s["intervals"][0].update(order=[{"buffers": ["t"], "below": [0]}]),
    ):
        written(change)
        done = waxeq("run", plan)
        assert done.code == 3 and done.sentence, done.err
    assert waxeq("explain", plan).code == 3
