"""Running plans: what `waxeq run` and `waxeq bench` do."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.errors import TargetError, TypeMismatch, UsageError
from waxeq.frontend.trace import Traced
from waxeq.ir.types import TensorType
from waxeq.options import cores
from waxeq.runtime.files import write_atomically
from waxeq.runtime.measure import Samples, compare, in_fresh_process, interleaved, time_calls
from waxeq.runtime.program import Program
from waxeq.runtime.save import load_plan, save_plan
from waxeq.runtime.written import Written
from waxeq.search.result import Result


def run_plan(path: Path, given: Sequence[str], output: Path | None, threads: int | None) -> dict[str, Any]:
    """Run a plan; its results in numbers. Raises PlanError, TypeMismatch, TargetError, UsageError."""
    from threadpoolctl import threadpool_limits

    saved = load_plan(path)
    inputs = {**saved.inputs, **read_inputs(given)}
    with threadpool_limits(threads or cores()):
        program = Program(saved.plan, kernels(backends()), saved.tensors)
        results = program.flat_results(inputs)
        times = Samples(time_calls(lambda: program.flat_results(inputs), min_seconds=0.3, max_samples=50))
    if output is not None:
        data = io.BytesIO()
        np.savez(data, allow_pickle=False, **results)
        write_atomically(output, data.getvalue())
    return {
        "plan": str(path),
        "model": saved.plan.name,
        "as_written": saved.plan.written,
        "seconds": times.median,
        "predicted_seconds": saved.plan.predicted,
        "calls_timed": len(times.seconds),
        "outputs": [{"name": n, **summary(a)} for n, a in results.items()],
        "saved": None if output is None else str(output),
    }


def read_inputs(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by name. Raises UsageError, also for a name that is given twice, and TargetError."""
    names = [t.partition("=")[0] for t in texts]
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise UsageError(f"--input {twice} is given twice")
    return dict(map(read_input, texts))


def read_input(text: str) -> tuple[str, np.ndarray]:
    """NAME=FILE.npy as a name and an array. Raises UsageError, TargetError."""
    name, mark, file = text.partition("=")
    if not mark or not name or not file:
        raise UsageError(f"--input {text}: write it as NAME=FILE.npy")
    try:
        array = np.load(file, allow_pickle=False)
        if isinstance(array, np.ndarray):
            TensorType.of(array)
            return name, array
        raise TargetError(f"{file} holds several arrays; input {name!r} needs one: save {name!r} alone, as a .npy file")
    except TypeMismatch as e:
        raise TargetError(f"input {name!r}, {file}: {e}") from e
    except (OSError, ValueError) as e:
        raise TargetError(f"{file} cannot be read as an array: {getattr(e, 'strerror', None) or e}") from e


def summary(a: np.ndarray) -> Mapping[str, Any]:
    """An array in a few numbers."""
    rows: dict[str, Any] = {"dtype": str(a.dtype), "shape": list(a.shape)}
    if a.size == 0 or not np.can_cast(a.dtype, np.float64, "same_kind"):
        return rows
    wide = a.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size:
        rows |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    return {**rows, "nan": int(np.isnan(wide).sum()), "infinite": int(np.isinf(wide).sum())}


def bench_plan(result: Result, traced: Traced, threads: int, seconds: float) -> dict[str, Any]:
    """Time a plan, the model as written and the original function, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.plan.json"
        save_plan(path, result.plan, result.tensors, traced.inputs)
        times = in_fresh_process(race, (str(path), traced.origin, seconds), threads=threads)
    taken = {n: Samples(tuple(t)) for n, t in times.items()}
    rivals = [_rival(n, t, taken["plan"]) for n, t in taken.items()]
    return {"model": result.plan.name, "threads": threads, "as_written": result.plan.written, "rivals": rivals}


def _rival(name: str, times: Samples, plan: Samples) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "seconds": times.median, "samples": len(times.seconds)}
    if name == "plan":
        return {**row, "ratio": None, "low": None, "high": None, "verdict": None}
    c = compare(plan, times)
    return {**row, "ratio": c.ratio, "low": c.low, "high": c.high, "verdict": f"the plan is {c.verdict}"}


def race(path: str, origin: tuple[str, str] | None, seconds: float) -> dict[str, tuple[float, ...]]:
    """Raw seconds of each rival, taken side by side; runs in a process of its own."""
    saved = load_plan(path)
    program, written = Program(saved.plan, kernels(backends()), saved.tensors), Written(saved.plan.graph, saved.tensors)
    inputs = dict(saved.inputs)
    rivals = {"plan": lambda: program.flat_results(inputs), "model as written": lambda: written(inputs)}
    if origin is not None:
        from waxeq.frontend.load import load_target

        rivals["original function"] = load_target(":".join(origin)).call
    taken = interleaved(rivals, rounds=100_000, budget_seconds=seconds)
    return {n: t.seconds for n, t in taken.items()}
