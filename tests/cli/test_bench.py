"""`waxeq bench --vs`: peers run the user's own function, are held to float64, and fail in words."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from waxeq.cli import bench, peers
from waxeq.cli.bench import race
from waxeq.cli.peers import arrays, leaves, mapped, parts, swapped
from waxeq.cli.plot import label, plot
from waxeq.errors import UnsupportedError, UsageError, WaxeqError
from waxeq.runtime.measure import Samples
from waxeq.runtime.save import load_plan, save_plan

INSTALLED = {n: all(importlib.util.find_spec(p) is not None for p in ps) for n, ps in peers.PACKAGES.items()}
SMALL = """
import numpy as np
from scipy.special import erf
WEIGHTS = ("w",)
def norm(x):
    d = x - np.mean(x, axis=-1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5)
def model(x, w):
    return {"h": erf(norm(x) @ w), "s": np.where(x > 0, x, 0.5 * x)[::-1, 1:]}
def example_inputs():
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((6, 8), np.float32), "w": rng.standard_normal((8, 4), np.float32)}
"""


@pytest.fixture
def small_plan(waxeq, model, quick, tmp_path: Path) -> tuple[str, tuple[str, str]]:
    file = model(SMALL)
    path = tmp_path / "small.plan.json"
    assert waxeq("optimize", file, "-o", path, *quick).code == 0
    return str(path), (str(file), "model")


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing in this very process must not bind it to a core for the tests that follow."""
    monkeypatch.setattr(peers, "keep_to", lambda threads: None)


@pytest.mark.parametrize("name", [n for n in peers.PACKAGES if n != "numpy"])
def test_a_peer_computes_the_model(name: str, small_plan: tuple[str, tuple[str, str]]) -> None:
    if not INSTALLED[name]:
        pytest.skip(f"{name} is not installed")
    times, states, _ = race(*small_plan, (name,), 1, 0.0)
    assert states[name]["failed"] is None and states[name]["error"] < 1e-5 and states[name]["first_call"] > 0
    assert times.keys() == {bench.PLAN, bench.WRITTEN, bench.ORIGINAL, name}


NESTED = """
from collections import namedtuple
from types import MappingProxyType
import numpy as np
Pair = namedtuple("Pair", "x a")
def model(p, w, s):
    y = p.x
    for v in w.values():
        y = np.tanh(y @ v) * s["k"]
    return MappingProxyType({
        "b": y.sum(0), "a": {"z": y.mean(1), 1: (p.a, [y * 2]), "c": y.max(0)}, "p": Pair(y.min(0), p.x.sum(0))
    })
def example_inputs():
    draw = lambda *shape: np.random.default_rng(0).standard_normal(shape, np.float32)
    return {"p": Pair(draw(6, 8), draw(3, 4)), "w": {"u": draw(8, 5), "c": draw(5, 8)}, "s": {"k": 3.0}}
"""


@pytest.mark.parametrize("name", [n for n in peers.PACKAGES if n != "numpy"])
def test_results_and_arguments_of_peers_lie_as_the_model_has_them(
    waxeq, model, quick, tmp_path: Path, name: str
) -> None:
    """Regression: jax sorts the keys of dicts, so that results of other keys were compared, and layers came in another
    order; named tuples as arguments were refused, and an output called as an input is was no ONNX model."""
    if not INSTALLED[name]:
        pytest.skip(f"{name} is not installed")
    text = NESTED if name != "torch" else NESTED.replace("MappingProxyType(", "dict(").replace("1: ", "'1': ")
    file, path = model(text, "nested.py"), tmp_path / "nested.plan.json"
    assert waxeq("optimize", file, "-o", path, *quick).code == 0
    _, states, _ = race(str(path), (str(file), "model"), (name,), 1, 0.0)
    assert states[name]["failed"] is None and max(s["error"] for s in states.values()) < 1e-5


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: {"h": np.zeros((6, 4)), "s": np.zeros((6, 7))}, "its results are not those of the model"),
        (lambda: np.zeros(3), "its results are not those of the model: relative RMS error inf"),
        (lambda: 1 // 0, "ZeroDivisionError: integer division"),
    ],
    ids=["wrong", "other shapes", "raises"],
)
def test_a_peer_that_fails_is_a_row_with_the_reason(
    call: Callable[[], Any], text: str, small_plan: tuple[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = peers.peer
    monkeypatch.setattr(peers, "peer", lambda name, *rest: call if name == "odd" else real(name, *rest))
    times, states, _ = race(*small_plan, ("odd",), 1, 0.0)
    assert "odd" not in times and states["odd"]["failed"].startswith(text)
    assert states[bench.PLAN]["error"] < 1e-5 and len(times[bench.ORIGINAL]) >= 3


def test_a_row_that_failed_is_printed_and_the_plan_still_timed(
    waxeq, model, quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(fn: Any, job: Any, **limits: Any) -> Any:
        times, states, note = fn(*job[:2], (), 1, 0.0)
        return times, {**states, "jax": {"first_call": None, "error": None, "failed": "TypeError: no"}}, note

    monkeypatch.setattr(bench, "in_fresh_process", here)
    monkeypatch.setattr(peers, "require", lambda names, plan: None)
    argv = ("bench", model(SMALL), "--vs", "numpy,jax", "--seconds", "0.1", *quick[:2], "--quiet")
    rows = {r["name"]: r for r in waxeq(*argv, "--json").data["rivals"]}
    assert rows["jax"]["failed"] == "TypeError: no" and rows["jax"]["seconds"] is None
    assert rows["plan"]["seconds"] > 0 and rows["original function"]["ratio"] > 0 and "numpy" not in rows
    assert "failed: TypeError: no" in waxeq(*argv).out


def test_what_makes_no_sense_is_refused_before_work(waxeq, model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "jax" else object())

    def usage(*argv: object) -> str:
        outcome = waxeq("bench", model(SMALL), *argv)
        assert outcome.code == 2
        return outcome.sentence

    assert usage("--vs", "rust") == "--vs rust: there is no such peer; there are numpy, jax, torch, ort"
    assert usage("--vs", "torch,jax") == "--vs jax needs jax: pip install 'waxeq[bench]'"
    assert "times.pdf is no name of a picture: give one that ends in .png or .svg" in usage("--plot", "times.pdf")
    monkeypatch.setattr("waxeq.cli.plot.find_spec", lambda name: None)
    assert usage("--plot", "times.png") == "a picture needs matplotlib: pip install 'waxeq[bench]'"


@pytest.mark.parametrize("peer", ["", "ort"])
def test_a_plan_is_timed_as_it_lies(waxeq, small_plan, peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the inputs saved with it, with the model file gone; what peer there is runs its graph."""
    if peer and not INSTALLED[peer]:
        pytest.skip(f"{peer} is not installed")
    path, (file, _) = small_plan
    Path(file).unlink()
    monkeypatch.setattr(bench, "in_fresh_process", lambda fn, job, **limits: fn(*job))
    argv = ("bench", path, "--seconds", "0.1", "--threads", "1", "--vs", peer)
    data = waxeq(*argv, "--json").data
    assert [r["name"] for r in data["rivals"]] == [bench.PLAN, bench.WRITTEN, *([peer] if peer else [])]
    assert (data["model"], data["threads"], data["as_written"]) == ("small", 1, False)
    assert all(r["seconds"] > 0 and r["error"] < 1e-5 and r["failed"] is None for r in data["rivals"])
    assert "model as written" in waxeq(*argv).out


def test_what_a_plan_cannot_be_timed_with_is_said(waxeq, small_plan, tmp_path: Path) -> None:
    path, _ = small_plan

    def said(code: int, *argv: object) -> str:
        outcome = waxeq("bench", *argv)
        assert outcome.code == code
        return outcome.sentence

    for name in ("numpy", "jax", "torch"):
        text = f"--vs {name} runs the model's Python function, which {path} does not hold; give the model, as FILE.py"
        assert said(2, path, "--vs", name).startswith(text)
    assert "--budget is for searching" in said(2, path, "--budget", "3s")
    assert "no such file" in said(3, tmp_path / "none.plan.json")
    bare = tmp_path / "bare.plan.json"
    saved = load_plan(path)
    save_plan(bare, saved.plan, saved.tensors)
    assert said(3, bare).startswith(f"{bare} holds no input 'x' to time it on")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_plot(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    row = {"name": "plan", "seconds": 1e-3, "fast": 9e-4, "slow": 2e-3, "ratio": None}
    rivals = [row, {**row, "name": "torch", "ratio": 2.0}, {**row, "name": "jax", "seconds": None}]
    path = tmp_path / f"times{suffix}"
    plot({"model": "small", "threads": 1, "rivals": rivals}, path)
    start = path.read_bytes()[:5]
    assert start == (b"\x89PNG\r" if suffix == ".png" else b"<?xml")


def test_a_bar_says_its_time_and_its_ratio() -> None:
    assert label({"seconds": 2e-3, "ratio": 2.0}) == "2 ms  2.00x"
    assert label({"seconds": 2e-3, "ratio": None}) == "2 ms"


# -- the function with other names in it


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "swapped_model.py"
    path.write_text(
        "import numpy as np\nimport math\nfrom numpy import exp\nSCALE = 2.0\n"
        "def twice(x, by=SCALE):\n    return np.multiply(x, by) + even(0)\n"
        "def even(n):\n    return 0 if n == 0 else odd(n - 1)\n"
        "def odd(n):\n    return 1 if n == 0 else even(n - 1)\n"
        "def model(x, *, shift=1.0):\n    return twice(exp(x)) + shift + math.floor(0.5)\n"
    )
    spec = importlib.util.spec_from_file_location("swapped_model", path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["swapped_model"] = found
    spec.loader.exec_module(found)
    yield found
    del sys.modules["swapped_model"]


def test_names_are_swapped_in_a_function_and_its_helpers_only(module: ModuleType) -> None:
    other = ModuleType("other")
    vars(other)["multiply"] = lambda x, y: ("multiply", x, y)
    stand: dict[int, Any] = {id(np): other, id(np.exp): lambda x: "exp"}
    with pytest.raises(TypeError):  # the helper's tuple meets a number
        swapped(module.model, lambda v: stand.get(id(v)))(1.0)
    vars(other)["multiply"] = lambda x, y: 10.0 if (x, y) == ("exp", 2.0) else math.nan
    assert swapped(module.model, lambda v: stand.get(id(v)))(1.0) == 11.0
    assert module.model(0.0) == 3.0  # the user's own is as it was


def test_only_functions_can_be_swapped() -> None:
    with pytest.raises(UsageError, match="no Python function"):
        swapped(len, lambda v: None)


def test_arguments_and_results_are_walked() -> None:
    a, b = np.zeros(2), np.ones(3)
    nested = {"x": a, "w": {"up": b, "n": 3}, "rest": [a, None]}
    assert [n for n, _ in leaves(nested)] == ["x", "w.up", "rest.0"]
    assert mapped(nested, np.size) == {"x": 2, "w": {"up": 3, "n": 3}, "rest": [2, None]}
    assert [r.shape for r in arrays({"a": (a, b), "c": 1.0})] == [(2,), (3,), ()]
    point = namedtuple("point", "y x")(a, b)
    assert [n for n, _ in leaves({"p": point})] == ["p.y", "p.x"] and mapped(point, np.size) == (2, 3)
    assert list(parts({"b": (1, [2]), "a": point})) == [1, 2, a, b]


def test_results_are_paired_by_their_keys() -> None:
    like = {"b": "b", "a": ({"z": "z", "c": "c"},)}
    assert [int(r) for r in arrays({"a": ({"c": 3, "z": 2},), "b": 1}, like)] == [1, 2, 3]
    assert [int(r) for r in arrays((1, 2, 3), like)] == [1, 2, 3], "as graphs give them"
    assert [int(r) for r in arrays({"other": 5, "b": 1}, like)] == [5, 1]


# -- as ONNX


def onnx_results(fn: Callable[..., Any], *examples: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    import waxeq as wx
    from waxeq.cli.onnx import as_onnx

    traced = wx.trace(fn, *examples)
    data = as_onnx(traced.graph, traced.tensors).SerializeToString()
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, {x.name: traced.inputs[x.name] for x in session.get_inputs()}), arrays(fn(*examples))


X = np.arange(24, dtype=np.float32).reshape(4, 6) / 7 - 1
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "scalar functions": lambda x: (np.exp(x), np.abs(x), x * x, np.tanh(x), 1 / np.sqrt(x * x + 1), np.sign(x)),
    "comparisons": lambda x: np.where((x != 0) & (x < 2), x, -x),
    "folds": lambda x: (np.sum(x, 0), np.max(x, 1, keepdims=True), np.argmax(x, 1), np.prod(x), np.cumsum(x, 1)),
    "slices": lambda x: (x[1:-1, ::2], x[::-1], x[2, :], x[:, 4::-2]),
    "movement": lambda x: np.pad(np.concatenate([x, x.T.reshape(4, 6)], 1), ((1, 0), (0, 2))),
    "products": lambda x: (x @ x.T, np.einsum("ij,kj->ik", x, x), x @ x[0]),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(0, 1)) * 2,
    "indices": lambda x: (x[:, np.array([5, 0, -1])], np.take(x, np.array([[1], [2]]), 0)),
    "casts": lambda x: (x.astype(np.int32) + np.arange(6, dtype=np.int32), x.astype(np.float64)),
    "broadcasts": lambda x: np.broadcast_to(x[:, :1], (4, 3)) + np.ones(3, np.float32),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_onnx_model_computes_the_same(name: str) -> None:
    got, want = onnx_results(FUNCTIONS[name], X)
    assert [(g.dtype, g.shape) for g in got] == [(w.dtype, w.shape) for w in want]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_what_onnx_lacks_is_a_sentence() -> None:
    with pytest.raises(UnsupportedError, match="ONNX Runtime cannot run this model: cbrt has no form in ONNX here"):
        onnx_results(lambda x: np.cbrt(x), X)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        (
            "torch",
            ImportError("libx.so: no such file\nmore"),
            r"^torch is installed but cannot be imported \(.*\); install",
        ),
        (
            "torch",
            RuntimeError("InvalidCxxCompiler: No working C++ compiler\n\nSet X"),
            r"^torch.compile finds no C\+\+ compiler",
        ),
        (
            "torch",
            RuntimeError("call_function not supported at all\n\nfrom user code:\n  x"),
            "^torch.compile does not take",
        ),
        ("jax", TypeError("no"), "^TypeError: no$"),
    ],
)
def test_the_failure_of_a_peer_is_one_sentence_with_a_way_out(name: str, error: Exception, said: str) -> None:
    text = peers.failure(name, error)
    assert "\n" not in text and re.search(said, text), text


def test_a_reason_is_one_line() -> None:
    assert bench.reason(ValueError("\n  first of several lines, long enough\nsecond")) == (
        "ValueError: first of several lines, long enough"
    )
    assert bench.reason(WaxeqError("no plan")) == "no plan"


SCALARS = """
import numpy as np
def model(s, x, t):
    return s * x + t, np.sin(s) * t, s > t, x.sum() * s
def example_inputs():
    return {"s": np.float32(3.5), "x": np.ones(9, np.float32), "t": np.float64(2.0)}
"""


@pytest.mark.parametrize("name", ["jax", "ort"])
def test_a_peer_takes_numbers_of_numpy(waxeq, model, quick, tmp_path: Path, name: str) -> None:
    """No static argument, and none with an axis of its own."""
    if not INSTALLED[name]:
        pytest.skip(f"{name} is not installed")
    file, path = model(SCALARS, "numbers.py"), tmp_path / "numbers.plan.json"
    assert waxeq("optimize", file, "-o", path, *quick).code == 0
    _, states, _ = race(str(path), (str(file), "model"), (name,), 1, 0.0)
    assert states[name]["failed"] is None and states[name]["error"] < 1e-5


def test_an_interrupted_search_is_timed_once(waxeq, model, quick, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []

    def here(fn: Any, job: Any, **limits: Any) -> Any:
        jobs.append(job)
        return fn(*job)

    def stopped(traced: Any, options: Any, events: Any, opened: Any = None) -> Any:
        events.request_stop()
        return search_plan(traced, options, events, opened)

    search_plan = bench.search_plan
    monkeypatch.setattr(bench, "search_plan", stopped)
    monkeypatch.setattr(bench, "in_fresh_process", here)
    monkeypatch.setattr(peers, "require", lambda names, plan: None)
    argv = ("bench", model(SMALL), "--vs", "jax", "--threads", "1", *quick[:2], "--no-measure")
    done = waxeq(*argv, "--json")
    rows = {r["name"]: r for r in done.data["rivals"]}
    assert done.code == 130 and "the plan is timed once, and jax not at all" in done.err
    assert [job[2] for job in jobs] == [()] and {r["samples"] for r in rows.values()} == {1}
    assert rows["original function"]["ratio"] > 0 and rows["original function"]["low"] is None
    assert "x once" in waxeq(*argv).out


# -- how sure it is


def test_seconds_are_spent_on_all_while_intervals_are_wide(small_plan: tuple[str, tuple[str, str]]) -> None:
    """Regression: with any --seconds there were 20 samples of the plan and three of what was slower."""
    few, *_ = race(*small_plan, (), 1, 0.0)
    many, *_ = race(*small_plan, (), 1, 2.0)
    assert min(map(len, many.values())) > 2 * max(map(len, few.values()))


def test_what_is_known_well_is_not_timed_further() -> None:
    def unsettled(written: tuple[float, ...], original: tuple[float, ...] = (3.0,) * 12) -> Any:
        times = {bench.PLAN: (1.0,) * 12, bench.WRITTEN: written, bench.ORIGINAL: original}
        return bench._unsettled({n: Samples(t) for n, t in times.items()})  # pyright: ignore[reportPrivateUsage]

    assert not unsettled((2.0,) * 12)
    assert list(unsettled((2.0, 3.0) * 6)) == [bench.PLAN, bench.WRITTEN]
    assert list(unsettled((2.0,) * 12, (3.0,) * 3)) == [bench.PLAN, bench.ORIGINAL], "three may agree by chance"


def test_wide_intervals_are_noted(waxeq, small_plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a row with an interval from 0.26 to 45.5, which contradicted itself, stood there without a word."""
    row = {"first_call": 1e-3, "error": 1e-7, "failed": None}
    times: dict[str, tuple[float, ...]] = {}
    times |= {bench.PLAN: (27e-3, 1e-3, 27e-3, 27e-3), bench.WRITTEN: (11e-3, 45e-3, 11e-3, 50e-3)}
    found: list[Any] = [times, dict.fromkeys(times, row), "other processes had 1.5 of 2 cores"]
    monkeypatch.setattr(bench, "in_fresh_process", lambda *job, **limits: found)
    said = waxeq("bench", small_plan[0], "--seconds", "2", "--json").data["notes"]
    assert said[0] == found[2] and said[1].startswith("how the plan compares with model as written is known within a")
    assert said[1].endswith("are too few; give more than --seconds 2, on a quiet machine")
    assert "note" in waxeq("bench", small_plan[0]).out
    times[bench.WRITTEN], times[bench.PLAN], found[2] = (2e-3,) * 4, (1e-3,) * 4, None
    assert waxeq("bench", small_plan[0], "--json").data["notes"] == []
