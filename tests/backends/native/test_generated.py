"""Generated C: checked by sanitizers, by other compilers, and as a backend that may be missing."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq_native.compiler import CompileFailed
from waxeq_native.steps import Run
from waxeq_native.work import prelude

NATIVE = backends(["native"])[0].kernels
HERE = Path(__file__).parent


@pytest.mark.slow
def test_generated_kernels_pass_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {**os.environ, "LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, str(HERE / "sanitized.py"), str(tmp_path), "5"],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Conformance(") == len(NATIVE)
    assert "Together: 18" in done.stdout and "Called: 48" in done.stdout


def test_the_sanitizers_would_notice(tmp_path: Path) -> None:
    """An index past the end of what is read is found by the same build."""
    source = tmp_path / "bad.c"
    body = "int main(void) { float x[4] = {0}; volatile int i = 4; x[i] = 1; return (int)x[0]; }"
    source.write_text(prelude() + body)
    (checks,) = re.findall(r"^CHECKS = \((.*?)^\)", (HERE / "sanitized.py").read_text(encoding="utf-8"), re.M | re.S)
    flags = [*re.findall(r'"(.*?)"', checks), "-w", "-fopenmp-simd"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(tmp_path / "bad"), "-lm"], check=True)
    assert subprocess.run([str(tmp_path / "bad")], capture_output=True).returncode != 0


def _softmax(dtype: str = "float32") -> Call:
    x = operand(0, "ij", dtype)
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "j", x)))
    view = View.dense("ij", {"i": 5, "j": 70}, dtype)
    return Call("native.loops_fast", Term("Zip", "div", e, Term("Sum", "j", e)), {"i": 5, "j": 70}, (view,), view)


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize(
    "target", [(), ("-march=native",), *(("-target", f"aarch64-{x}") for x in ("linux-gnu", "macos"))]
)
@pytest.mark.parametrize("other", ["zig", "clang", "clang-14"])
def test_other_compilers_and_machines_take_the_text(
    other: str, target: tuple[str, ...], kind: str, tmp_path: Path
) -> None:
    """Regression: clang 14, which Debian 12 has, refused all kernels, as it knows _Float16 on few machines only."""
    command = [sys.executable, "-m", "ziglang", "cc"] if other == "zig" else [other]
    if not (_ziglang() if other == "zig" else shutil.which(other)):
        pytest.skip(f"{other} is not installed")
    if "-target" in target and other != "zig":
        pytest.skip("headers of other machines come with zig alone")
    work = NATIVE["native.loops_fast"].of(_softmax(kind))  # pyright: ignore[reportAttributeAccessIssue]
    source = tmp_path / "kernel.c"
    source.write_text(prelude() + "\n".join(p.source for p in work.parts))
    flags = ["-O2", "-std=gnu11", "-fopenmp-simd", "-w", "-c", *target]
    subprocess.run([*command, *flags, str(source), "-o", str(tmp_path / "kernel.o")], check=True)


def _ziglang() -> bool:
    from importlib.util import find_spec

    return find_spec("ziglang") is not None


def test_a_long_vector_is_shared_out_and_threads_agree() -> None:
    x = operand(0, "j", "float32")
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "j", x)))
    meaning, sizes = Term("Zip", "div", e, Term("Sum", "j", e)), {"j": 300_001}
    view = View.dense("j", sizes, "float32")
    data = np.random.default_rng(0).standard_normal(300_001).astype(np.float32)
    want = np.exp(data.astype(np.float64) - data.max())
    want /= want.sum()
    for threads in (1, 2, 3):
        call = Call("native.loops_fast", meaning, sizes, (view,), view, threads=threads)
        k = NATIVE["native.loops_fast"]
        out = np.empty_like(data)
        (step,) = k.bind(call, [data], out, np.empty(k.workspace(call), np.uint8))
        step()
        assert np.abs(out / want - 1).max() < 1e-5
        assert (threads > 1) == (k.workspace(call) > 0), "partial results lie in the workspace"


def test_what_is_least_is_nothing_and_no_rounding() -> None:
    """sqrt(max y - y) of y = x x: where products are made again for a difference, a compiler rounds both at once, and
    the root of what is left at the largest may be NaN."""
    x = operand(0, "ij", "float32")
    y, sizes = Term("Map", "square", x), {"i": 30, "j": 100}
    view = View.dense("ij", sizes, "float32")
    meaning = Term("Map", "sqrt", Term("Zip", "sub", Term("Red", "max", "j", y), y))
    data = np.random.default_rng(0).standard_normal((30, 100)).astype(np.float32)
    out = np.empty_like(data)
    (step,) = NATIVE["native.loops"].bind(
        Call("native.loops", meaning, sizes, (view,), view), [data], out, np.empty(0, np.uint8)
    )
    step()
    squares = data * data
    np.testing.assert_array_equal(out, np.sqrt(squares.max(1, keepdims=True) - squares))


def test_a_result_may_replace_what_the_last_of_several_walks_reads() -> None:
    """x / sum x on two threads: the text says so too."""
    x = operand(0, "j", "float32")
    view = View.dense("j", {"j": 300_000}, "float32")
    meaning = Term("Zip", "div", x, Term("Sum", "j", x))
    call = Call("native.loops", meaning, {"j": 300_000}, (view,), view, threads=2)
    k = NATIVE["native.loops"]
    work = k.of(call)  # pyright: ignore[reportAttributeAccessIssue]
    assert len(work.parts) > 1 and k.in_place(call) == (0,)
    assert re.search(r"const float \* x0 = ", work.parts[-1].source), "neither array is `restrict`ed"


def test_positions_outside_their_axis_are_refused() -> None:
    meaning = Term("Gather", "k", operand(0, "i", "int64"), operand(1, "kj", "float32"))
    sizes = {"i": 3, "k": 4, "j": 5}
    views = View.dense("i", sizes, "int64"), View.dense("kj", sizes, "float32")
    call = Call("native.loops", meaning, sizes, views, View.dense("ij", sizes, "float32"))
    table, out = np.arange(20, dtype=np.float32).reshape(4, 5), np.empty((3, 5), np.float32)
    k = NATIVE["native.loops"]
    for at, fine in (([0, -1, 3], True), ([0, 4, 1], False), ([-5, 0, 1], False)):
        (step,) = k.bind(call, [np.array(at), table], out, np.empty(0, np.uint8))
        if fine:
            step()
            assert np.array_equal(out, table[at])
        else:
            with pytest.raises(IndexError, match="out of bounds"):
                step()


def test_two_steps_that_look_outside_are_forgotten_at_once() -> None:
    """The second of them was left to be said of the next run, which was right."""
    meaning = Term("Gather", "k", operand(0, "i", "int64"), operand(1, "k", "float32"))
    sizes = {"i": 3, "k": 4}
    views = View.dense("i", sizes, "int64"), View.dense("k", sizes, "float32")
    call = Call("native.loops", meaning, sizes, views, View.dense("i", sizes, "float32"))
    at, table, outs = np.array([0, 4, 1]), np.arange(4, dtype=np.float32), np.empty((2, 3), np.float32)
    k = NATIVE["native.loops"]
    run = Run([k.bind(call, [at, table], out, np.empty(0, np.uint8))[0] for out in outs])
    with pytest.raises(IndexError, match="out of bounds"):
        run()
    at[1] = 3
    run()
    assert np.array_equal(outs, [[0, 3, 1]] * 2)


def _model(x: np.ndarray) -> np.ndarray:
    return np.tanh(x) * 2 + 1


def test_without_a_compiler_there_is_a_sentence_and_a_plan(tmp_path: Path) -> None:
    script = (
        "import numpy as np, waxeq as wx\n"
        "def f(x): return np.tanh(x) * 2 + 1\n"
        f"o = wx.Options(table={str(tmp_path / 't.duckdb')!r}, trial=False, strict=STRICT)\n"
        "r = wx.optimize(f, np.ones((64, 64), np.float32), options=o)\n"
        "print([n for n in r.report.notes if 'native' in n], {s.call.kernel for s in r.plan.steps})\n"
    )
    environment = {**os.environ, "CC": "/nowhere/cc", "WAXEQ_CACHE": str(tmp_path)}
    for strict in (False, True):
        line = [sys.executable, "-c", script.replace("STRICT", str(strict))]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        if strict:
            assert done.returncode != 0 and "FallbackError" in done.stderr and "/nowhere/cc" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
            assert "backend native is not used" in done.stdout and "'native." not in done.stdout


FULL = """
import sys, numpy as np, waxeq as wx
from waxeq.errors import FallbackError
if sys.argv[1] == "pretended":
    import errno, waxeq_native.library
    def full(*given): raise OSError(errno.ENOSPC, "No space left on device")
    waxeq_native.library._written = full
def f(x, w): return np.tanh(x @ w) * 2 + 1
x = np.ones((64, 64), np.float32)
for strict in (False, True):
    try:
        r = wx.optimize(f, x, x, options=wx.Options.of(table=sys.argv[2], trial=False, measure=False, strict=strict))
        print([n for n in r.report.notes if "native" in n], {s.call.kernel.partition(".")[0] for s in r.plan.steps})
    except FallbackError as e:
        print("strict:", e)
"""


def test_with_a_full_cache_there_is_a_sentence_and_a_plan(tmp_path: Path) -> None:
    """Candidates are grown with what the backend's own library says, before any kernel is compiled: it is unusable.
    The disk is a real one, where a small one can be mounted."""
    cache, table = tmp_path / "cache", tmp_path / "t.duckdb"
    cache.mkdir()
    space = ["unshare", "--user", "--map-root-user", "--mount"]
    small = [*space, "sh", "-c", f'mount -t tmpfs -o size=16k none "{cache}" && exec "$@"', "sh"]
    able = shutil.which("unshare") and not subprocess.run([*small, "true"], capture_output=True, check=False).returncode
    line = [*(small if able else ()), sys.executable, "-c", FULL, "real" if able else "pretended", str(table)]
    environment = {**os.environ, "WAXEQ_CACHE": str(cache)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    plan, strict = done.stdout.splitlines()
    assert plan.count("backend native is not used: Nothing can be compiled in") == 1 and "{'numpy'}" in plan
    assert "No space left on device" in plan and "WAXEQ_CACHE" in plan
    assert strict.startswith("strict: backend native is not used: Nothing can be compiled in")


@pytest.mark.parametrize("budget", [60.0, 0.0])
def test_kernels_that_do_not_compile_are_given_up_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, budget: float
) -> None:
    """Whether they were to be timed, or are first compiled for a plan that was guessed; what is found without them is
    not remembered for the day on which they compile."""
    from waxeq_native import library

    def broken(*args: object, **named: object) -> None:
        raise CompileFailed("`cc` says no; the source is kept in /somewhere.")

    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, budget=budget, threads=1)
    with monkeypatch.context() as patch:
        patch.setattr(library, "functions", broken)
        result = wx.optimize(_model, np.ones((64, 64), np.float32), options=options)
    (note,) = [n for n in result.report.notes if "native" in n]
    assert note.startswith("backend native could not be used: `cc` says no")
    assert result.plan.steps and not any(s.call.kernel.startswith("native.") for s in result.plan.steps)
    later = wx.optimize(_model, np.ones((64, 64), np.float32), options=options)
    assert not later.blocks[0].remembered
    assert any(s.call.kernel.startswith("native.") for s in later.plan.steps)


def test_inputs_and_results_that_move_are_followed_and_not_kept(tmp_path: Path) -> None:
    """Generated code is pointed at other memory in place: it reads what it is given, wherever a view of it begins."""
    options = wx.Options.of(table=tmp_path / "t.duckdb", backends=("native",), trial=False, threads=1, measure=False)
    shape = (200, 300)

    def model(x, y):
        return np.maximum(x[50:] * 2, -1.5) + y[:-50], (x * y).sum(axis=1)

    def drawn(seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]

    program = wx.optimize(model, *drawn(0), options=options).program
    assert {s.call.kernel.partition(".")[0] for s in program.plan.steps} == {"native"}
    given = [drawn(n) for n in range(6)]
    first = weakref.ref(given[0][0])
    held = [program(*g) for g in given]
    for got, g in zip(held, given, strict=True):
        for a, b in zip(got, model(*g), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
    del given[0], g
    gc.collect()
    assert first() is None, "an input of a call that is over is nobody's any more"
