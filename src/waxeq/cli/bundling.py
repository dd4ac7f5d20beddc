"""The command that makes bundles: plans that run where of all packages only NumPy is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from waxeq.cli.console import aside, finish
from waxeq.cli.options import SHOW, Show


def bundle(
    plan: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    backend: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    arch: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    show: Show = SHOW,
) -> None:
    """Write a plan, its weights and inputs, and the CUDA kernels it uses into one file, which `waxeq run` takes.

    Where it is run, NumPy and waxeq itself (pip install --no-deps) are enough, and the driver of a GPU that it uses.
    CUDA kernels lie in it compiled. Kernels of generated C are compiled there: a plan that has some needs a C compiler
    too.

    Parameters
    ----------
    plan
        A file that `waxeq optimize` wrote, for one size.
    output
        Where to write it [default: NAME.waxeq, beside NAME.plan.json].
    backend
        Backends whose kernels are compiled; may be repeated [default: all that are installed].
    arch
        What to compile for, such as sm_90 for an H100 or H200, which need not be here; may be repeated
        [default: what each backend thinks likely].
    """
    from waxeq.inspect.show import bundle_view

    with aside():
        data = _written(plan, output, backend, arch)
    finish(show, data, bundle_view)


def _written(plan: Path, output: Path | None, names: tuple[str, ...], wanted: tuple[str, ...]) -> dict[str, object]:
    from waxeq.backend.discover import installed
    from waxeq.errors import UsageError
    from waxeq.runtime.bundle import SUFFIX, contents, is_bundle, write_bundle
    from waxeq.runtime.files import read_plan_bytes
    from waxeq.runtime.save import load_plan

    if output is None:
        read_plan_bytes(plan)  # a folder may have no name to make another of
    path = output or plan.with_name(plan.name.removesuffix(".json").removesuffix(".plan") + SUFFIX)
    if not is_bundle(path):
        raise UsageError(f"{path}: bundles are called NAME{SUFFIX}")
    saved = load_plan(plan)
    done = write_bundle(path, saved.plan, saved.tensors, saved.inputs, installed(names), wanted, "--output")
    made = {"plan": str(plan), "path": str(path), "bytes": path.stat().st_size, "files": contents(path)}
    built = {backend: list(architectures) for backend, architectures in done.built.items()}
    return {**made, "compiled_for": built, "compiled_when_run": dict(done.later)}
