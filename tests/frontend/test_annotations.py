"""wx.model, wx.trace, annotations, states, and finding the model in a file."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import waxeq as wx
from waxeq.errors import TargetError, TypeMismatch, UnsupportedError
from waxeq.frontend.annotations import annotated
from waxeq.frontend.load import load_target
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick


@wx.model(dims={"B": 4})
def affine(x: wx.Input["f32", "B", 8], w: wx.Weight["f32", 8, 3], b: wx.Weight["f32", 3] = None):  # noqa: F821
    return x @ w + b


def step(token: wx.Input["f64", 3], cache: wx.State["f64", 5, 3], at: wx.Input["int64"]):  # noqa: F821
    cache[at] = token
    return cache.sum(axis=0)


def test_annotations_make_inputs_and_bind_weights() -> None:
    w, b = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3), np.ones(3, np.float32)
    traced = wx.trace(affine, w=w, b=b)
    assert {x.name: (x.kind, str(x.type)) for x in traced.graph.leaves} == {
        "x": ("input", "float32[4, 8]"),
        "w": ("weight", "float32[8, 3]"),
        "b": ("weight", "float32[3]"),
    }
    again = wx.trace(affine, w=w, b=b)
    np.testing.assert_array_equal(traced.inputs["x"], again.inputs["x"])
    np.testing.assert_array_equal(traced.tensors["w"], w)
    got = interpret(traced.graph, {**traced.inputs, **traced.tensors})["out"]
    np.testing.assert_allclose(got, affine(traced.inputs["x"], traced.tensors["w"], traced.tensors["b"]), rtol=1e-6)
    assert affine(1.0 * np.ones((1, 8)), np.ones((8, 3)), 0).shape == (1, 3)  # the function is still a function


def test_a_weight_without_a_value_is_refused() -> None:
    with pytest.raises(
        TargetError, match=r"test_annotations\.py:\d+: no value for weight 'w': pass an array or return it"
    ):
        wx.trace(affine)


def test_examples_win_over_annotations_and_give_sizes() -> None:
    def model(x: wx.Input["f32", "N", "N"], y: wx.Input["f32", "N"]) -> Any:  # noqa: F821
        return x @ y

    assert wx.trace(model, np.ones((6, 6), np.float32)).inputs["y"].shape == (6,)
    assert wx.trace(model, dims={"N": 2}).inputs["x"].shape == (2, 2)
    with pytest.raises(TargetError, match=r"'N' of 'x' has no size.*@wx\.model\(dims="):
        wx.trace(model)
    with pytest.raises(TargetError, match=r"'x' is annotated Input\[float32, N, N\].*float32\[2, 3\]"):
        wx.trace(model, np.ones((2, 3), np.float32))
    with pytest.raises(TargetError, match=r"float64\[2, 2\]"):
        wx.trace(model, np.ones((2, 2)))
    with pytest.raises(TargetError, match=r"what is 'z'.*wx\.Input"):
        wx.trace(lambda z: z)


def test_a_state_is_what_the_model_writes_to_it() -> None:
    traced = wx.trace(step)
    assert [x.kind for x in traced.graph.leaves] == ["input", "state", "input"]
    ((name, _),) = traced.graph.states
    assert name == "cache" and not traced.tensors["cache"].any()
    token = np.array([1.0, 2.0, 3.0])
    given = {"token": token, "at": np.asarray(2), **traced.tensors}
    after = interpret(traced.graph, given)
    np.testing.assert_array_equal(after["cache"][2], token)
    np.testing.assert_array_equal(after["out"], token)


def test_a_state_that_is_only_read_stays() -> None:
    traced = trace(lambda s, x: s + x, {"s": np.ones(3), "x": np.ones(3)}, states=("s",))
    assert traced.graph.states == () and list(traced.tensors) == ["s"]


def test_annotations_of_other_kinds_are_left_alone() -> None:
    def model(x: np.ndarray, n: int, y: wx.Input["f32", 2], other: "Missing") -> np.ndarray:  # noqa: F821
        return x * n

    assert list(annotated(model)) == ["y"]


def test_an_annotation_that_makes_no_sense_is_told() -> None:
    with pytest.raises(TypeMismatch, match="-3 is not a dimension"):
        wx.Input["f32", -3]
    with pytest.raises(TypeMismatch, match="complex64"):
        wx.Weight["complex64", 3]

    def model(x: "wx.Input['f99', 3]") -> Any:  # noqa: F821
        return x

    with pytest.raises(TargetError, match=r"test_annotations\.py:\d+: an annotation of model: .*f99"):
        wx.trace(model)


def test_arguments_of_many_kinds() -> None:
    def model(params: Any, xs: Any, *, scale: float, flag: bool, name: str, nothing: None) -> Any:
        y = params["w"] * scale if flag and name == "a" and nothing is None else xs[0]
        return {"sum": y + xs[0] + xs[1], "parts": (xs[0], y)}

    example = {"params": {"w": np.ones(3)}, "xs": [np.ones(3), np.ones(1)], "scale": 2.0, "flag": True, "name": "a",
               "nothing": None}  # fmt: skip
    traced = trace(model, example, weights=("params",))
    assert {x.name: x.kind for x in traced.graph.leaves} == {"params.w": "weight", "xs.0": "input", "xs.1": "input"}
    assert traced.structure == {"sum": "sum", "parts": ("parts0", "parts1")}
    np.testing.assert_array_equal(interpret(traced.graph, {**traced.inputs, **traced.tensors})["sum"], [4, 4, 4])


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda a: None, "output 'out' .* is None"),
        (lambda a: {"c": None}, "the model returns no arrays$"),
        (lambda a: (), "the model returns no arrays$"),
        (lambda a: "hello", "output .*'hello'"),
    ],
    ids=["None", "None in a dict", "nothing in a tuple", "text"],
)
def test_results_that_are_no_arrays_are_told(give: Any, said: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"test_annotations\.py:\d+: {said}"):
        trace(give, {"a": np.ones(3)})


class Scores(NamedTuple):
    best: Any
    every: Any


def test_results_keep_the_containers_of_the_model() -> None:
    def model(x: Any) -> Any:
        return Scores(x.max(), [x, {1: (x + 1,), "a": Scores(x - 1, x - 2), np.int64(3): x * 3}])

    traced = wx.trace(model, np.ones(3))
    names = [n for n, _ in traced.graph.outputs]
    assert traced.structure == Scores("best", ["every0", {1: ("10",), "a": Scores("best_1", "every"), 3: "3"}])
    assert names == ["best", "every0", "10", "best_1", "every", "3"]
    assert type(traced.structure) is Scores and type(traced.structure.every[1]["a"]) is Scores


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda a: {1, 2}, "output 'out' of the model is of class set; return arrays"),
        (lambda a: [a, (b for b in [a])], "output 'out1' of the model is of class generator"),
        (lambda a: object(), "of class object"),
        (lambda a: {(1, 2): a}, r"a dict with the key \(1, 2\); use texts or numbers"),
    ],
    ids=["set", "generator", "object", "key"],
)
def test_results_that_no_plan_can_hold_are_refused(give: Any, said: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"test_annotations\.py:\d+: .*{said}"):
        wx.trace(give, np.ones(3))


def test_python_numbers_as_arguments_are_noted() -> None:
    traced = trace(lambda x, s: x * s, {"x": np.ones(3), "s": 0.5})
    (note,) = traced.notes
    assert note.startswith("argument s = 0.5 is a Python number") and "np.float32(0.5)" in note
    assert trace(lambda x, s: x * s, {"x": np.ones(3), "s": np.float64(0.5)}).notes == ()
    with pytest.raises(TargetError, match=r"argument x is a list of numbers; make it an array"):
        trace(lambda x: x, {"x": [1.0, 2.0]})
    with pytest.raises(TypeMismatch, match="input 'x'"):
        trace(lambda x: x, {"x": np.array(["a"])})


# -- files


def write(folder: Path, text: str) -> str:
    (folder / "m.py").write_text(text, encoding="utf-8")
    return str(folder / "m.py")


def test_the_sole_marked_function_comes_before_names(tmp_path: Path) -> None:
    text = "import waxeq as wx\ndef model(x): return x\n@wx.model\ndef other(x: wx.Input['f32', 2]): return x * 2\n"
    path = write(tmp_path, text)
    assert load_target(path).name == "other"
    assert load_target(path).example["x"].shape == (2,)
    with pytest.raises(TargetError, match=r"what is 'x' of model.*example_inputs"):
        load_target(path + ":model")
    path = write(tmp_path, text + "@wx.model\ndef third(x): return x\n")
    with pytest.raises(TargetError, match=r"several @wx\.model"):
        load_target(path)


def test_a_file_of_a_package_imports_relatively(tmp_path: Path) -> None:
    """Regression: it was refused, as Python refuses it of a script."""
    inner = tmp_path / "wx_outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner.parent / "scales.py").write_text("def twice(x): return x * 2\n")
    (inner / "shifts.py").write_text("def one(): return 1\n")
    text = "from ..scales import twice\nfrom . import shifts\ndef model(x): return twice(x) + shifts.one()\n"
    path = write(inner, text + "def example_inputs(): return {'x': 3}\n")
    assert load_target(path).call() == 7


def test_a_relative_import_where_there_is_no_package_is_told_what_makes_one(tmp_path: Path) -> None:
    path = write(tmp_path, "from . import shifts\ndef model(x): return x\n")
    with pytest.raises(TargetError, match=r"m\.py:1: .*relative import.*; a folder is a package where"):
        load_target(path)


def test_a_colon_with_no_name_is_refused(tmp_path: Path) -> None:
    """Regression: it was taken for no colon."""
    path = write(tmp_path, "def model(x): return x\ndef example_inputs(): return {'x': 3}\n")
    with pytest.raises(TargetError, match=r"names no function after its colon; give .*m\.py or .*m\.py:NAME"):
        load_target(path + ":")


def test_model_comes_before_forward_and_examples_may_be_partial(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nimport numpy as np, waxeq as wx\n"
        "def forward(x): return -x\n"
        "def model(x: wx.Input['f64', 3], w: wx.Weight['f64', 3]): return x * w\n"
        "def example_inputs(): return {'w': np.ones(3)}\n"
    )
    target = load_target(write(tmp_path, text))
    assert target.name == "m" and list(target.example) == ["x", "w"]
    traced = trace(target.fn, target.example, weights=target.weights)
    assert {x.name: x.kind for x in traced.graph.leaves} == {"x": "input", "w": "weight"}


def test_weights_that_are_no_parameters_are_told(tmp_path: Path) -> None:
    path = write(tmp_path, "WEIGHTS = ('nope',)\ndef model(x, w): return x @ w\n")
    with pytest.raises(TargetError, match=r"WEIGHTS names 'nope', which is no parameter of model; it has x, w"):
        load_target(path)
    path = write(tmp_path, "def model(x): return x\ndef example_inputs(): return {'x': 1.0, 'z': 2.0}\n")
    with pytest.raises(TargetError, match=r"example_inputs\(\) gives 'z', which is no parameter of model"):
        load_target(path)
    with pytest.raises(TargetError, match="is a folder"):
        load_target(str(tmp_path))


def test_examples_of_another_model_are_told(tmp_path: Path) -> None:
    text = "def add(img, xs): return img + xs\ndef median3(a, b): return a * b\n"
    path = write(tmp_path, text + "def example_inputs(): return {'xs': 1.0, 'img': 2.0}\n")
    assert load_target(f"{path}:add").name == "add"
    with pytest.raises(TargetError, match=r"gives 'img', 'xs', and median3 takes 'a', 'b': write one"):
        load_target(f"{path}:median3")


def test_weights_of_another_name_are_told_what_to_say(tmp_path: Path) -> None:
    text = "def model(x, k): return x @ k\ndef example_inputs(): return {'x': 1.0}\ndef weights(): return {'k': 2.0}\n"
    with pytest.raises(TargetError, match=r"weights\(\) is for one called so; with WEIGHTS = \('k',\) 'k' is a weight"):
        load_target(write(tmp_path, text))


def test_a_file_may_import_its_model(tmp_path: Path) -> None:
    """It was said to have none, and so was one whose model is made by functools."""
    (tmp_path / "imported_model.py").write_text("def model(x, k): return x * k\n", encoding="utf-8")
    text = "from functools import partial\nfrom imported_model import model\ndef example_inputs(): return {'x': 1.0}\n"
    path = write(tmp_path, f"{text}twice = partial(model, k=2)\n")
    with pytest.raises(TargetError, match=r"what is 'k' of model"):
        load_target(path)
    assert load_target(f"{path}:twice").fn(3) == 6
    assert load_target(write(tmp_path, f"{text}model = partial(model, k=2)\n")).name == "m"
    with pytest.raises(TargetError, match=r"has no function 'third'; it has example_inputs$"):
        load_target(f"{path}:third")


def test_a_model_of_the_file_itself_goes_before_one_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "part_of_model.py").write_text("def model(y): return y + 1\n", encoding="utf-8")
    text = "from part_of_model import model\ndef forward(x): return 2 * model(x)\n"
    assert load_target(write(tmp_path, f"{text}def example_inputs(): return {{'x': 1.0}}\n")).call() == 4


def test_a_class_is_no_model(tmp_path: Path) -> None:
    path = write(tmp_path, "class model:\n    def __call__(self, x): return x\n")
    with pytest.raises(TargetError, match=r"m\.py: model is a class; name one of its objects, as model = model\(\)"):
        load_target(path)


def test_weights_are_for_models_that_take_some(tmp_path: Path) -> None:
    text = "def model(x): return x * weights(2)\ndef example_inputs(): return {'x': 1.0}\n"
    assert load_target(write(tmp_path, f"{text}def weights(n): return n\n")).call() == 2
    with pytest.raises(TargetError, match=r"weights\(\) gives 'weights', which is no parameter of model; it has x"):
        load_target(write(tmp_path, f"{text}def weights(): return 3\n"))


def test_a_file_that_was_changed_a_moment_ago_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytecode of a text of the same length was taken for it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    for factor in (2, 3, 4):
        path = write(tmp_path, f"import waxeq as wx\ndef model(x: wx.Input['f32', 2]): return x * {factor}\n")
        assert load_target(path).fn(1) == factor
    assert not list(tmp_path.rglob("*.pyc"))


def test_files_that_are_no_models_are_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no such file"):
        load_target(str(tmp_path / "none.py"))
    with pytest.raises(TargetError, match="has no model"):
        load_target(write(tmp_path, "x = 1\n"))
    with pytest.raises(TargetError, match=r"m\.py:2"):
        load_target(write(tmp_path, "x = 1\ndef f(:\n"))
    with pytest.raises(TargetError, match="ZeroDivisionError"):
        load_target(write(tmp_path, "1 / 0\n"))
    with pytest.raises(TargetError, match="has no function 'g'; it has f"):
        load_target(write(tmp_path, "def f(x): return x\n") + ":g")
    with pytest.raises(TargetError, match="must return a dict"):
        load_target(write(tmp_path, "def model(x): return x\ndef example_inputs(): return [1]\n"))


LOADS = """
import numpy as np
from safetensors.numpy import load_file
def model(x, weights): return x @ weights["w"].astype(np.float32)
def example_inputs(): return {"x": np.ones((2, 3), np.float32)}
def weights(): return load_file("w.safetensors")
"""


def test_weights_of_a_file_of_bfloat16_are_loaded(tmp_path: Path) -> None:
    """`load_file` asks NumPy for "bfloat16", which it does not know before ml_dtypes is imported."""
    safetensors.numpy.save_file({"w": np.ones((3, 4), ml_dtypes.bfloat16)}, tmp_path / "w.safetensors")
    read = "load_target(sys.argv[1]).example['weights']['w'].dtype"
    program = f"import sys; from waxeq.frontend.load import load_target; print({read})"
    command = [sys.executable, "-c", program, write(tmp_path, LOADS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("bfloat16\n", "")
