"""Running plans: what `waxeq run` does."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from waxeq.errors import BoundsError, TargetError, TypeMismatch, UsageError
from waxeq.ir.interpret import MatrixError
from waxeq.ir.types import TensorType, numpy_dtype
from waxeq.options import cores
from waxeq.runtime.files import require_writable, write_atomically
from waxeq.runtime.load import opened
from waxeq.runtime.measure import time_calls
from waxeq.runtime.program import Program

_BFLOAT16_SAVED = np.dtype("V2")
"""What NumPy makes of the dtype of bfloat16 arrays when it saves them: it has no name for that."""


def run_plan(path: Path, given: Sequence[str], output: Path | None, threads: int | None) -> dict[str, Any]:
    """Run a plan or a bundle; its results in numbers. Raises PlanError, TypeMismatch, BoundsError, MatrixError,
    TargetError, UsageError."""
    if output is not None:
        require_results(output, path)
    program, saved = opened(path)
    inputs = {**saved, **read_inputs(given)}
    with _limited(threads):
        try:
            results = program.flat_results(inputs)
        except IndexError as e:
            raise BoundsError(f"{e}: give inputs of {path} whose indices fit") from e
        except np.linalg.LinAlgError as e:
            raise MatrixError(f"{e}: give inputs of {path} whose matrices can be factored") from e
        times = time_calls(lambda: program.flat_results(inputs), min_seconds=0.3, max_samples=50)
    if output is not None:
        write_atomically(output, _packed(results), "--output")
    return {
        "plan": str(path),
        **(facts(program) if isinstance(program, Program) else _of_sizes(program, inputs)),
        "seconds": times.median,
        "calls_timed": len(times.seconds),
        "outputs": [{"name": n, **summary(a)} for n, a in results.items()],
        "saved": None if output is None else str(output),
    }


def require_results(output: Path, plan: Path) -> None:
    """Raise PlanError where results cannot be written, UsageError where they would take the place of the plan, or of
    what has another name than results have: before the plan is run."""
    require_writable(output, "--output")
    if output.suffix != ".npz":
        raise UsageError(f"{output}: results are called NAME.npz; name another with --output, as {output.stem}.npz")
    if output.resolve() == plan.resolve():
        raise UsageError(f"{output} is the plan itself; name another with --output")


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """As numpy.savez does, which has parameters whose names a result may have."""
    data = io.BytesIO()
    with ZipFile(data, "w") as archive:
        for name, a in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, np.asanyarray(a), allow_pickle=False)
    return data.getvalue()


def _limited(threads: int | None) -> AbstractContextManager[Any]:
    """BLAS held to so many threads; not held where threadpoolctl is not installed. Raises UsageError."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        if threads is not None:
            raise UsageError("--threads needs the package threadpoolctl: install it, or leave --threads out") from None
        return nullcontext()
    return threadpool_limits(threads or cores())


def _of_sizes(program: Any, inputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
    from waxeq.cli.sizes import facts_of

    return facts_of(program, inputs)


def facts(program: Program) -> dict[str, Any]:
    """What is known of a plan."""
    plan = program.plan
    return {"model": plan.name, "as_written": plan.written, "predicted_seconds": plan.predicted}


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
            if array.dtype == _BFLOAT16_SAVED:
                with suppress(ImportError):  # ml_dtypes: a plan that takes such arrays needs it
                    array = array.view(numpy_dtype("bfloat16"))
            TensorType.of(array)
            return name, array
        raise TargetError(f"{file} holds several arrays; input {name!r} needs one: save {name!r} alone, as a .npy file")
    except TypeMismatch as e:
        raise TargetError(f"input {name!r}, {file}: {e}") from e
    except OSError as e:
        raise TargetError(f"{file} cannot be read as an array: {e.strerror or e}") from e
    except (ValueError, EOFError, BadZipFile) as e:
        raise TargetError(
            f"{file} cannot be read as an array: it is no whole .npy file of numbers; write one with numpy.save"
        ) from e


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
