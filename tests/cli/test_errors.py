"""What goes wrong is one sentence on stderr and an exit code, and nothing is left half-written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.testing.rule import SAMPLES
from waxeq_native import library

CODE = {"internal": 1, "usage": 2, "target": 3, "unsupported": 4, "check": 6, "budget": 7, "locked": 8}


@pytest.fixture
def fails(waxeq, quick, tmp_path: Path):
    """`fails(3, target)`: optimizing exits with that code, one sentence, and leaves no file; the sentence."""

    def check(code: int, target: object, *more: object) -> str:
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        outcome = waxeq("optimize", target, "-o", out / "p.plan.json", *quick, *more)
        assert outcome.code == code, outcome.err
        assert outcome.out == "" and list(out.iterdir()) == []
        return outcome.sentence

    return check


# -- usage


@pytest.mark.parametrize(
    "argv",
    [["frobnicate"], ["optimize"], ["optimize", "m.py", "--bogus"], ["run", "p.json", "--threads", "many"],
     ["db", "frob"], ["db", "status", "--foo"], ["optimize", "m.py", "--measur"]],
    ids=lambda a: " ".join(a),
)  # fmt: skip
def test_wrong_command_lines(waxeq, argv: list[str]) -> None:
    """Each names the help in which the right ones are."""
    outcome = waxeq(*argv)
    command = " ".join(a for a in argv if a in ("optimize", "run", "db", "status"))
    assert outcome.code == CODE["usage"]
    assert outcome.sentence.endswith(f"; see {' '.join(('waxeq', *command.split()))} --help")
    assert "--measure" not in outcome.sentence, "which no help shows"


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [("--budget", "soon", "30s"), ("--tolerance", "low", "approximate"), ("--threads", "0", "threads"),
     ("--max-memory", "much", "4GiB"), ("--backend", "abacus", "abacus")],
)  # fmt: skip
def test_option_values_that_make_no_sense(fails, model, option: str, value: str, word: str) -> None:
    assert word in fails(CODE["usage"], model(), option, value)


def test_a_size_of_the_cache_that_makes_no_sense(fails, model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "shared", library.shared.__wrapped__)  # which reads it each time
    monkeypatch.setenv("WAXEQ_CACHE_SIZE", "foo")
    assert fails(CODE["usage"], model()) == (
        "WAXEQ_CACHE_SIZE: 'foo' is not an amount of memory; write it as 4GiB or 512MiB"
    )


# -- the model


def test_no_such_file(fails, tmp_path: Path) -> None:
    assert "nowhere.py: no such file" in fails(CODE["target"], tmp_path / "nowhere.py")


PROMPT = """
import sys
from waxeq.cli import main
codes = [main([c, a]) for c, a in zip(sys.argv[1::2], sys.argv[2::2])]
heavy = {"egglog", "duckdb", "pydantic", "highspy", "scipy", "sympy", "waxeq.search", "waxeq.ops", "waxeq.plan"}
print(codes, sorted(heavy & set(sys.modules)))
"""


def test_a_file_that_is_not_there_is_told_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    models = [
        a for c in ("optimize", "bench", "explain", "mem", "paths", "pareto") for a in (c, str(tmp_path / "no.py"))
    ]
    plans = [a for c in ("run", "bench", "explain", "mem") for a in (c, str(tmp_path / "no.json"))]
    run = subprocess.run([sys.executable, "-c", PROMPT, *models, *plans], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"{[3] * 10} []"
    assert run.stderr.count("no such file") == 10, run.stderr


def test_syntax_error(fails, model) -> None:
    assert "broken.py:2: " in fails(CODE["target"], model("import numpy as np\ndef model(x:\n", "broken.py"))


def test_a_file_that_is_no_text(fails, model) -> None:
    sentence = fails(CODE["target"], model("def model(x):\n    return x\0\n", "binary.py"))
    assert "binary.py: source code" in sentence and "None" not in sentence


def test_unknown_name(fails, model) -> None:
    sentence = fails(CODE["target"], f"{model()}:other")
    assert "'other'" in sentence and "it has model" in sentence


@pytest.mark.parametrize("value", ["None", "3", "[1, 2]"])
def test_weights_that_are_no_names(fails, model, value: str) -> None:
    said = fails(CODE["target"], model(f"WEIGHTS = {value}\ndef model(x): return x + 1"))
    assert f"WEIGHTS is {value}" in said and 'WEIGHTS = ("w1", "b1")' in said


NAMELESS = """
import numpy as np

class Net:
    def __call__(self, x):
        return np.tanh(x) + 1

model, other = Net(), lambda x: x * 2

def example_inputs():
    return {"x": np.ones(5, np.float32)}
"""


def unheld(outcome: Any) -> list[str]:
    """Notes of a contest that could not be held, as where its process did not find the model."""
    return [n for n in outcome.data["notes"] if "contest" in n]


@pytest.mark.parametrize(("name", "title"), [("", "small"), (":other", "other")])
def test_what_is_called_may_have_no_name(waxeq, model, table, tmp_path: Path, name: str, title: str) -> None:
    path = tmp_path / "p.plan.json"
    outcome = waxeq("optimize", f"{model(NAMELESS)}{name}", "-o", path, "--table", table, "--json", "--budget", "20s")
    assert outcome.code == 0, outcome.err
    assert outcome.data["model"] == title and not unheld(outcome)


def test_a_folder_with_a_colon_in_its_name(waxeq, table, tmp_path: Path) -> None:
    """The process of the contest loads the model from there too."""
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "net.py").write_text(NAMELESS)
    for name in ("", ":other"):
        argv = (f"{folder / 'net.py'}{name}", "-o", tmp_path / "p.plan.json", "--table", table, "--budget", "20s")
        outcome = waxeq("optimize", *argv, "--json")
        assert outcome.code == 0 and not unheld(outcome), outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_looked_into(fails, tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0)
    assert "no such file" in fails(CODE["target"], shut / "m.py")


def test_what_is_no_file_is_told_what_it_is(fails, waxeq, plan: Path) -> None:
    assert "/dev/null is neither a file nor a folder" in fails(CODE["target"], "/dev/null")
    assert "an empty name is no model" in fails(CODE["target"], "")
    for command in ("explain", "mem", "bench", "optimize"):
        outcome = waxeq(command, plan.with_suffix(".waxeq"))
        assert outcome.code == CODE["target"] and "is a bundle, which `waxeq run` takes" in outcome.sentence


def test_a_coroutine_function_is_refused_in_one_sentence(fails, model) -> None:
    """A warning that nobody awaited it stood beside the sentence."""
    text = model().read_text().replace("def model(", "async def model(")
    for more in ((), ("--dim", "T=1:4")):
        sentence = fails(CODE["unsupported"], model(text), *more)
        assert re.search(r"small\.py:\d+: a coroutine function \(async def\) cannot be traced", sentence)


def test_an_example_of_any_size_asks_for_dims(fails, model) -> None:
    text = "import numpy as np\ndef model(x):\n    return x + 1\n"
    text += "def example_inputs(T, B, more=3):\n    return {'x': np.ones((T, B))}\n"
    assert "takes sizes: say which, as --dim T=1:512 --dim B=1:512" in fails(CODE["target"], model(text))
    text = text.replace("T, B, more=3", "more=3").replace("(T, B)", "3 + None")
    assert "example_inputs() raises TypeError" in fails(CODE["target"], model(text)), "which sizes do not mend"


def test_a_name_that_is_too_long_for_a_file(fails) -> None:
    assert "no such file" in fails(CODE["target"], f"{'m' * 300}.py")


def test_no_example(fails, model) -> None:
    assert "example_inputs" in fails(CODE["target"], model("def model(x):\n    return x\n"))


def test_example_that_raises(fails, model) -> None:
    text = "def model(x):\n    return x\ndef example_inputs():\n    raise KeyError('lost')\n"
    assert "example_inputs() raises KeyError" in fails(CODE["target"], model(text))


def test_the_line_that_raises_while_the_file_is_loaded(fails, model) -> None:
    assert "small.py:2: loading it raises ModuleNotFoundError" in fails(CODE["target"], model("\nimport numpyy\n"))
    text = "def model(x):\n    return x\ndef example_inputs():\n    return {'x': 1 / 0}\n"
    assert "small.py:4: example_inputs() raises ZeroDivisionError" in fails(CODE["target"], model(text))


def test_an_example_of_no_parameter_is_named(fails, model) -> None:
    text = "import numpy as np\ndef model(x, y):\n    return x + y\n"
    text += "def example_inputs():\n    return {'x': np.ones(3), 'z': np.ones(3)}\n"
    sentence = fails(CODE["target"], model(text))
    assert "what is 'y'" in sentence and "'z', which is no parameter" in sentence


def test_the_module_of_an_unknown_function_is_its_own(fails, model) -> None:
    text = "from scipy.special import gammaln\ndef model(x):\n    return gammaln(x)\n"
    text += "import numpy as np\ndef example_inputs():\n    return {'x': np.ones(3)}\n"
    assert "scipy.special.gammaln is not traced" in fails(CODE["unsupported"], model(text))


def test_a_check_that_says_nothing_is_no_silent_one(waxeq, model, quick, tmp_path: Path) -> None:
    text = (
        model()
        .read_text()
        .replace('"x": rng.standard_normal((4, 8), dtype=np.float32)', '"x": np.full((4, 8), np.nan)')
    )
    outcome = waxeq("optimize", model(text), "-o", tmp_path / "n.plan.json", *quick)
    assert outcome.code == 0 and "nothing checks output 'out'" in " ".join(outcome.out.split()), outcome.out


def test_a_file_that_is_no_array(waxeq, model, quick, tmp_path: Path) -> None:
    path, other = tmp_path / "p.plan.json", tmp_path / "x.txt"
    assert waxeq("optimize", model(), "-o", path, *quick).code == 0
    other.write_text("1 2 3")
    outcome = waxeq("run", path, "--input", f"x={other}")
    assert outcome.code == CODE["target"] and "write one with numpy.save" in outcome.sentence
    assert "pickle" not in outcome.err


def test_model_that_raises(fails, model) -> None:
    text = model().read_text().replace("    return", "    raise RuntimeError('not today')\n    return", 1)
    sentence = fails(CODE["target"], model(text))
    assert "RuntimeError: not today" in sentence and re.search(r"small\.py:\d+", sentence)


def test_wrong_shapes(fails, model) -> None:
    text = model().read_text().replace("(8, 3)", "(7, 3)")
    sentence = fails(CODE["target"], model(text))
    assert "small.py:7" in sentence and "8" in sentence and "7" in sentence


def test_what_cannot_be_traced(fails, model) -> None:
    text = model().read_text().replace("    return", "    if x.sum() > 0:\n        return x\n    return", 1)
    assert "small.py:7" in fails(CODE["unsupported"], model(text))


@pytest.mark.parametrize("what", ["x * 1j", "np.fft.fft(x)", "x.astype(np.complex64)", "x.astype(object)"])
def test_a_dtype_that_arises_in_the_model_is_not_supported(fails, model, what: str) -> None:
    text = model().read_text().replace("    return", f"    return {what}\n    return", 1)
    assert "small.py:7: " in fails(CODE["unsupported"], model(text))


def test_an_input_of_a_dtype_that_is_not_supported_cannot_be_loaded(fails, model) -> None:
    text = model().read_text().replace("rng.standard_normal((4, 8), dtype=np.float32)", "np.ones((4, 8), complex)")
    assert "input 'x': dtype complex128 is not supported" in fails(CODE["target"], model(text))


def test_missing_weights(fails, model) -> None:
    text = """
from safetensors.numpy import load_file
def model(x, weights):
    return x @ weights["w"]
def example_inputs():
    return {}
def weights():
    return load_file("/nowhere/model.safetensors")
"""
    assert "/nowhere/model.safetensors" in fails(CODE["target"], model(text))


def test_nan_weights_are_said_and_kept(waxeq, model, table: Path, tmp_path: Path) -> None:
    text = (
        model()
        .read_text()
        .replace("    return {\n", "    w = np.ones((8, 3), np.float32)\n    w[0, 0] = np.nan\n    return {\n")
    )
    text = text.replace('"w": rng.standard_normal((8, 3), dtype=np.float32)', '"w": w')
    path = tmp_path / "nan.plan.json"
    outcome = waxeq("optimize", model(text), "-o", path, "--table", table, "--no-trial", "--no-measure")
    assert outcome.code == 0, outcome.err
    assert "note: weight 'w' holds 1 NaN of 24 elements" in outcome.err
    (row,) = waxeq("run", path, "--json").data["outputs"]
    assert row["nan"] == 4


@pytest.mark.parametrize("shape", [(0, 8), (4, 0)], ids=str)
def test_sizes_of_zero_work(waxeq, model, quick, tmp_path: Path, shape: tuple[int, int]) -> None:
    text = model().read_text().replace("(4, 8)", str(shape)).replace("(8, 3)", f"({shape[1]}, 3)")
    path = tmp_path / "zero.plan.json"
    outcome = waxeq("optimize", model(text), "-o", path, *quick)
    assert outcome.code == 0, outcome.err
    (row,) = waxeq("run", path, "--json").data["outputs"]
    assert row["shape"] == [shape[0], 3]
    assert row.get("max", 1.0) == 1.0


# -- limits


def test_memory_over_the_limit(fails, model) -> None:
    text = (
        model().read_text().replace("rng.standard_normal((4, 8), dtype=np.float32)", "np.zeros((10**7, 8), np.float32)")
    )
    sentence = fails(CODE["budget"], model(text), "--max-memory", "300MB")
    assert "the limit is 286.1 MiB" in sentence
    assert "--max-memory" in fails(CODE["budget"], model(), "--max-memory", "100")


def test_mem_refuses_too(waxeq, plan: Path) -> None:
    outcome = waxeq("mem", plan, "--max-memory", "64kB")
    assert outcome.code == 0
    outcome = waxeq("mem", plan, "--max-memory", "99")
    assert outcome.code == CODE["budget"] and "99 bytes" in outcome.sentence


# -- files that cannot be written


def test_plan_path_in_no_folder(waxeq, model, quick, tmp_path: Path) -> None:
    outcome = waxeq("optimize", model(), "-o", tmp_path / "no" / "p.plan.json", *quick)
    assert outcome.code == CODE["target"] and "cannot be written: No such file or directory" in outcome.sentence


def test_plan_path_is_a_folder(waxeq, model, quick, tmp_path: Path) -> None:
    outcome = waxeq("optimize", model(), "-o", tmp_path, *quick)
    assert outcome.code == CODE["target"] and "it is a folder" in outcome.sentence


def test_read_only_disk(waxeq, model, quick) -> None:
    outcome = waxeq("optimize", model(), "-o", "/proc/p.plan.json", *quick)
    assert outcome.code == CODE["target"] and "/proc/p.plan.json cannot be written" in outcome.sentence


def test_disk_that_fills_up_leaves_the_old_plan(waxeq, model, tmp_path: Path, quick, monkeypatch) -> None:
    plan = tmp_path / "small.plan.json"
    waxeq("optimize", model(), "-o", plan, *quick)  # the table knows all it will: what is written next is the plan
    before = {p: p.read_bytes() for p in plan.parent.iterdir()}

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    outcome = waxeq("optimize", model(), "-o", plan, *quick)
    assert outcome.code == CODE["target"] and "No space left on device" in outcome.sentence
    assert {p: p.read_bytes() for p in plan.parent.iterdir()} == before


def test_table_on_a_read_only_disk(waxeq, model, tmp_path: Path) -> None:
    outcome = waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", "--table", "/proc/t.duckdb", "--quiet")
    assert outcome.code == CODE["internal"] and "--table" in outcome.sentence


# -- the table


def test_corrupt_table(waxeq, model, tmp_path: Path) -> None:
    bad = tmp_path / "bad.duckdb"
    bad.write_bytes(b"not a table" * 1000)
    outcome = waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", "--table", bad, "--quiet")
    assert outcome.code == CODE["internal"] and "bad.duckdb" in outcome.sentence
    assert bad.read_bytes() == b"not a table" * 1000 and not (tmp_path / "p.plan.json").exists()


def test_locked_table(waxeq, tmp_path: Path, monkeypatch) -> None:
    from filelock import FileLock

    from waxeq.cost.table import TimingTable

    path = tmp_path / "t.duckdb"
    TimingTable.open(path)
    patient = TimingTable.open
    hasty = lambda p, extra=(), wait=0.0, **named: patient(p, extra, 0.1, **named)  # noqa: E731
    monkeypatch.setattr(TimingTable, "open", staticmethod(hasty))
    with FileLock(f"{path}.lock"):
        outcome = waxeq("db", "status", "--table", path)
    assert outcome.code == CODE["locked"] and "locked by another process" in outcome.sentence


# -- plans


def test_damaged_plans(waxeq, plan: Path, tmp_path: Path) -> None:
    assert "no such file" in waxeq("run", tmp_path / "none.plan.json").sentence
    text = plan.read_text()
    for damage in ("", text[: len(text) // 2], "[]", text.replace('"waxeq": 1', '"waxeq": 99')):
        plan.write_text(damage)
        outcome = waxeq("run", plan)
        assert outcome.code == CODE["target"] and outcome.sentence, damage[:20]
    plan.write_text(text)
    plan.with_suffix(".safetensors").write_bytes(b"torn")
    assert "is damaged" in waxeq("run", plan).sentence


def test_inputs_that_do_not_fit(waxeq, plan: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((4, 9), np.float32))
    (tmp_path / "junk.npy").write_bytes(b"junk")
    outcome = waxeq("run", plan, "--input", f"x={tmp_path / 'wrong.npy'}")
    assert outcome.code == CODE["target"] and "float32[4, 9]" in outcome.sentence
    outcome = waxeq("run", plan, "--input", f"x={tmp_path / 'junk.npy'}")
    assert outcome.code == CODE["target"] and "junk.npy" in outcome.sentence
    outcome = waxeq("run", plan, "--input", f"y={tmp_path / 'wrong.npy'}")
    assert outcome.code == CODE["target"] and "'y'" in outcome.sentence
    outcome = waxeq("run", plan, "--input", "x")
    assert outcome.code == CODE["usage"] and "NAME=FILE.npy" in outcome.sentence


def test_results_of_any_name_are_saved(waxeq, model, quick, tmp_path: Path) -> None:
    """Also of those that numpy.savez takes for its own."""
    path = tmp_path / "p.plan.json"
    text = "import numpy as np\ndef model(x): return {'file': x + 1, 'allow_pickle': x * 2}\n"
    text += "def example_inputs(): return {'x': np.ones(3, np.float32)}"
    assert waxeq("optimize", model(text), "-o", path, *quick).code == 0
    assert waxeq("run", path, "-o", tmp_path / "r.npz").code == 0
    with np.load(tmp_path / "r.npz") as found:
        assert {n: a.tolist() for n, a in found.items()} == {"file": [2.0] * 3, "allow_pickle": [2.0] * 3}


# -- where a plan goes


def test_a_plan_takes_the_place_of_nothing_but_a_plan(waxeq, model, quick, tmp_path: Path) -> None:
    source, weights, other = model(), tmp_path / "net.safetensors", tmp_path / "settings.json"
    weights.write_bytes(b"somebody's")
    other.write_text("{}")
    before = {p: p.read_bytes() for p in (source, weights, other)}
    for name, said in (
        (source, "plans are called NAME.json"),
        (tmp_path / "net.json", "net.safetensors is there already, and belongs to no plan"),
        (other, "settings.json is there already, and belongs to no plan"),
        (tmp_path / "p.waxeq", "plans are called NAME.json"),
    ):
        outcome = waxeq("optimize", source, "-o", name, *quick)
        assert outcome.code == CODE["target"] and said in outcome.sentence
    assert before == {p: p.read_bytes() for p in before}
    for _ in range(2):
        assert waxeq("optimize", source, "-o", tmp_path / "p.json", *quick).code == 0


def test_a_folder_is_no_plan_to_bundle(waxeq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", "/"):
        assert "is a folder; give a plan file in it" in waxeq("bundle", folder).sentence


def test_results_take_the_place_of_nothing_else(waxeq, plan: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "copy.npz"
    shutil.copyfile(plan, copy)
    shutil.copyfile(plan.with_suffix(".safetensors"), copy.with_suffix(".safetensors"))
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    for place in (plan, tmp_path / "small.py", plan.with_suffix(".safetensors")):
        outcome = waxeq("run", plan, "-o", place)
        assert outcome.code == CODE["usage"] and "results are called NAME.npz" in outcome.sentence
    outcome = waxeq("run", copy, "-o", tmp_path / "." / "copy.npz")
    assert outcome.code == CODE["usage"] and "is the plan itself" in outcome.sentence
    outcome = waxeq("run", plan, "-o", ".")
    assert outcome.code == CODE["target"] and "it is a folder" in outcome.sentence
    assert before == {p: p.read_bytes() for p in tmp_path.iterdir()}


# -- rules

RULE = """(ruleset mine)
; {law}
;; {cls}
(rewrite {left} {right} :ruleset mine :name "mine/own")
"""


@pytest.fixture
def rule(tmp_path: Path):
    def write(left: str, right: str, cls: str = "exact") -> Path:
        path = tmp_path / "mine.egg"
        path.write_text(RULE.format(law=f"{left} = {right}", cls=cls, left=left, right=right))
        return path

    return write


def test_sound_rule(waxeq, rule, table: Path) -> None:
    argv = ("rules", "check", rule("(Add a b)", "(Add b a)"), "--samples", "10", "--json", "--table", table)
    outcome = waxeq(*argv)
    assert outcome.code == 0 and [r["verdict"] for r in outcome.data] == ["certified"]


def test_a_certificate_of_few_samples_is_not_remembered(waxeq, rule, table: Path, model, quick, tmp_path: Path) -> None:
    path = rule("(Add a b)", "(Add b a)")
    said = []
    for samples in (1, SAMPLES):
        assert waxeq("rules", "check", path, "--samples", samples, "--table", table).code == 0
        argv = ("optimize", model(), "-o", tmp_path / "p.plan.json", "--rules", path, *quick[:-1])
        said.append("certifying rule mine/own" in waxeq(*argv).err)
        if samples == 1:
            for left in table.parent.iterdir():  # with the certificate that this made
                left.unlink() if left.is_file() else shutil.rmtree(left)
    assert said == [True, False]


def test_unsound_rule(waxeq, rule, table: Path) -> None:
    wrong = rule('(Zip "sub" a b)', '(Zip "sub" b a)')
    outcome = waxeq("rules", "check", wrong, "--samples", "10", "--table", table)
    assert outcome.code == CODE["check"] and "mine.egg:4: mine/own (exact) is refuted" in outcome.out


@pytest.mark.parametrize(
    ("left", "right"),
    [("(Add a b)", "(Add b c)"), ("(Add a b)", "(Frob a b)"), ("(Add a", "(Add a b)"), ("(Add a)", "a")],
    ids=["unbound", "unknown head", "unclosed", "arity"],
)
def test_ill_typed_rule(waxeq, rule, table: Path, left: str, right: str) -> None:
    outcome = waxeq("rules", "check", rule(left, right), "--samples", "10", "--table", table)
    assert outcome.code == CODE["check"]
    assert re.search(r"mine\.egg:\d", outcome.sentence)


def test_rule_file_that_is_not_there(waxeq, table: Path, tmp_path: Path) -> None:
    outcome = waxeq("rules", "check", tmp_path / "none.egg", "--table", table)
    assert outcome.code == CODE["target"] and "none.egg cannot be read" in outcome.sentence


def test_rule_files_that_cannot_be_read(waxeq, table: Path, tmp_path: Path) -> None:
    binary = tmp_path / "binary.egg"
    binary.write_bytes(b"\0\xff")
    for path, why in ((tmp_path, "cannot be read: Is a directory"), (binary, "is not text")):
        outcome = waxeq("rules", "check", path, "--table", table)
        assert outcome.code == CODE["target"] and f"{path} {why}" in outcome.sentence


def test_a_rule_file_that_is_named_twice_is_checked_once(waxeq, rule, table: Path, monkeypatch) -> None:
    path = rule("(Add a b)", "(Add b a)")
    monkeypatch.chdir(path.parent)
    outcome = waxeq("rules", "check", path, path.name, "--json", "--table", table)
    assert outcome.code == 0 and [r["verdict"] for r in outcome.data] == ["certified"]


# -- what is looked at


def test_numbers_and_names_that_make_no_sense(waxeq, model, plan: Path, tmp_path: Path) -> None:
    def usage(*argv: object) -> str:
        outcome = waxeq(*argv)
        assert outcome.code == CODE["usage"], outcome.err
        return outcome.sentence

    assert "--limit 0" in usage("paths", model(), "--limit", "0")
    assert "--limit -1" in usage("paths", model(), "--limit=-1")
    assert "--seconds -1" in usage("bench", model(), "--seconds=-1")
    assert "give the model" in usage("paths", plan)
    assert "x is given twice" in usage("run", plan, "--input", "x=a", "--input", "x=b")
    assert "--threads 0" in usage("run", plan, "--threads", "0")
    assert "--samples 0" in usage("rules", "check", "--samples", "0")
    assert "--seed -1" in usage("rules", "check", "--seed=-1")


def test_looking_at_a_table_does_not_make_one(waxeq, tmp_path: Path) -> None:
    outcome = waxeq("db", "status", "--table", tmp_path / "missing.duckdb")
    assert outcome.code == 1 and "there is no table at" in outcome.sentence
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_are_not_one_array_of_numbers(waxeq, plan: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(3))
    np.save(tmp_path / "x.npy", np.array(["a"]))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:60])
    assert "no whole .npy file" in waxeq("run", plan, "--input", f"x={tmp_path / 'cut.npz'}").sentence
    assert "input 'x' needs one" in waxeq("run", plan, "--input", f"x={tmp_path / 'x.npz'}").sentence
    assert "input 'x'" in waxeq("run", plan, "--input", f"x={tmp_path / 'x.npy'}").sentence


def test_plans_that_are_none(waxeq, plan: Path, tmp_path: Path) -> None:
    assert "nope.json: no such file" in waxeq("run", tmp_path / "nope.json").sentence
    text = plan.read_text()
    plan.write_text("{}")
    assert f"{plan.name} is not a plan" in waxeq("run", plan).sentence
    plan.write_text(text[: len(text) // 2])
    assert "is damaged or cut off" in waxeq("run", plan).sentence


# -- bugs


def test_a_bug_is_a_sentence_and_a_traceback_on_request(waxeq, plan: Path, monkeypatch) -> None:
    def bug(*args: object) -> None:
        raise ZeroDivisionError("what\nnow")

    monkeypatch.setattr("waxeq.cli.running.opened", bug)
    outcome = waxeq("run", plan)
    assert outcome.code == CODE["internal"] and "internal error: ZeroDivisionError: what now" in outcome.sentence
    assert "Traceback" in waxeq("run", plan, "--traceback").err


def test_too_little_memory_is_a_sentence(waxeq, plan: Path, monkeypatch) -> None:
    def large(*args: object) -> None:
        raise MemoryError("Unable to allocate 298. GiB for an array")

    monkeypatch.setattr("waxeq.cli.running.opened", large)
    outcome = waxeq("run", plan)
    assert outcome.code == CODE["budget"] and "not enough memory: Unable to allocate 298. GiB" in outcome.sentence


def test_files_of_the_folder_it_is_called_from_are_no_modules_of_its_processes(tmp_path: Path) -> None:
    for name in ("numpy.py", "json.py", "pickle.py"):
        (tmp_path / name).write_text("raise SystemExit('not the module')\n")
    code = (
        "import operator\nfrom waxeq.runtime.measure import in_fresh_process\n"
        "print(in_fresh_process(operator.mul, (6, 7), threads=1))"
    )
    paths = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "42", done.stderr


GATHERED = """
import numpy as np
def model(t, ids):
    return t[ids].sum(-1)
def example_inputs():
    return {"t": np.ones((10, 4), np.float32), "ids": np.array([1, 90])}
"""


def test_an_index_outside_its_axis_is_a_fault_of_the_inputs(waxeq, model, table, tmp_path: Path) -> None:
    out, options = tmp_path / "p.plan.json", ("--table", table, "--budget", "0", "--quiet")
    outcome = waxeq("optimize", model(GATHERED), "-o", out, *options)
    assert outcome.code == CODE["target"] and "small.py:4: index 90 is out of bounds" in outcome.sentence
    assert waxeq("optimize", model(GATHERED.replace("90", "9")), "-o", out, *options).code == 0
    np.save(tmp_path / "far.npy", np.array([1, 90]))
    outcome = waxeq("run", out, "--input", f"ids={tmp_path / 'far.npy'}")
    assert outcome.code == CODE["target"] and "out of bounds" in outcome.sentence


def test_a_module_beside_the_model_that_its_functions_import(waxeq, model, quick, tmp_path: Path) -> None:
    model("import numpy as np\n\ndef made():\n    return np.ones(4)\n", "beside_small.py")
    text = "def model(x):\n    return x + 1\n\ndef example_inputs():\n    from beside_small import made\n"
    target = model(text + "    return {'x': made()}\n")
    assert waxeq("optimize", target, "-o", tmp_path / "p.plan.json", *quick).code == 0


def test_a_file_name_of_two_lines(waxeq, model, quick, tmp_path: Path) -> None:
    target = model(name="two\nlines.py")
    out = tmp_path / "p.plan.json"
    assert waxeq("optimize", target, "-o", out, *quick).code == 0 and waxeq("run", out).code == 0


@pytest.mark.parametrize(("name", "said"), [
    ("gone.json", "models are FILE.py or FILE.py:NAME, `waxeq optimize` writes plans"),
    ("gone", "models are FILE.py or FILE.py:NAME, plans NAME.plan.json"),
])  # fmt: skip
def test_a_file_that_is_not_there_is_told_what_models_are_called(name: str, said: str, fails) -> None:
    assert f"{name}: no such file; {said}" in fails(CODE["target"], name)
