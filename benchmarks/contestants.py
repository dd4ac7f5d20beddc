"""How each peer runs a workload: what is made ready before the clock starts, what its first call has to do, a call."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import Arguments, Workload, flat, mapped
from waxeq.cli.peers import as_jax, keep_to, swapped

Call = Callable[[], Any]
Start = Callable[[], Call]
"""Builds what can be called: compiles, or makes a session. Its time and that of the first call are reported."""


class NoForm(Exception):
    """The peer has no natural way to say this workload."""


@dataclass(frozen=True)
class Contestant:
    """`modules` are imported before any clock starts. `prepare(workload, arguments, threads)` brings arguments into
    the peer's own types; raises NoForm. `copies`: they are copied for that."""

    name: str
    modules: tuple[str, ...]
    prepare: Callable[[Workload, Arguments, int], Start]
    note: str
    copies: bool = False

    def ready(self, workload: Workload, arguments: Arguments, threads: int) -> Start:
        for module in self.modules:
            importlib.import_module(module)
        return self.prepare(workload, arguments, threads)


def _numpy(workload: Workload, arguments: Arguments, threads: int) -> Start:
    return lambda: lambda: workload.fn(**arguments)


def _form(workload: Workload, *names: str) -> Callable[..., Any]:
    make = next((workload.forms[n] for n in names if n in workload.forms), None)
    if make is None:
        raise NoForm
    return make()


def _numexpr(workload: Workload, arguments: Arguments, threads: int) -> Start:
    import numexpr

    fn = _form(workload, "numexpr")
    numexpr.set_num_threads(threads)
    return lambda: lambda: fn(**arguments)


def _numba(workload: Workload, arguments: Arguments, threads: int) -> Start:
    import numba

    numba.set_num_threads(threads)
    fn = _form(workload, "numba")
    values = workload.ordered(arguments)
    return lambda: lambda: fn(*values)


def _bound(workload: Workload, arguments: Arguments, threads: int, *names: str) -> tuple[Any, tuple[Any, ...]]:
    """The workload as a torch module that owns its weights, and its other arguments as tensors."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    fn = _form(workload, *names, "torch")
    tensors = {n: mapped(v, torch.from_numpy) for n, v in arguments.items()}
    given = tuple(n for n in tensors if n not in workload.weights)
    owned = {n: tensors[n] for n in tensors if n in workload.weights}

    class Bound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.paths = {p: p.replace(".", "__") for p in flat(owned)}
            for path, tensor in flat(owned).items():
                self.register_parameter(self.paths[path], torch.nn.Parameter(tensor, requires_grad=False))

        def forward(self, *values: Any) -> Any:
            weights = {n: self.part(n, v) for n, v in owned.items()}
            return fn(**dict(zip(given, values, strict=True)), **weights)

        def part(self, path: str, like: Any) -> Any:
            if isinstance(like, Mapping):
                return {n: self.part(f"{path}.{n}", v) for n, v in like.items()}
            return getattr(self, self.paths[path])

    return Bound().eval(), tuple(tensors[n] for n in given)


def _torch(workload: Workload, arguments: Arguments, threads: int) -> Start:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    fn = _form(workload, "torch")
    tensors = {n: mapped(v, torch.from_numpy) for n, v in arguments.items()}
    return lambda: lambda: fn(**tensors)


def _torch_compile(workload: Workload, arguments: Arguments, threads: int) -> Start:
    import torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    module, values = _bound(workload, arguments, threads, "torch.compile")

    def start() -> Call:
        compiled = torch.compile(module, fullgraph=True, dynamic=False)
        return lambda: compiled(*values)

    return start


def _jax(workload: Workload, arguments: Arguments, threads: int) -> Start:
    import jax

    fn = workload.forms["jax"]() if "jax" in workload.forms else swapped(workload.fn, as_jax)
    arrays = {n: mapped(v, jax.device_put) for n, v in arguments.items()}
    owned = {n: arrays.pop(n) for n in workload.weights}  # constants of what is compiled: XLA lays them out once

    def start() -> Call:
        compiled = jax.jit(lambda *given: fn(**dict(zip(arrays, given, strict=True)), **owned))
        return lambda: jax.block_until_ready(compiled(*arrays.values()))

    return start


def _onnx_runtime(workload: Workload, arguments: Arguments, threads: int) -> Start:
    import onnxruntime as ort
    import torch

    module, values = _bound(workload, arguments, threads, "onnx")
    names = [n for n in arguments if n not in workload.weights]
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "model.onnx")
    program = torch.onnx.export(
        module, values, dynamo=True, opset_version=18, input_names=names, verbose=False, external_data=True
    )
    assert program is not None
    program.save(path, external_data=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3

    def start() -> Call:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        folder.cleanup()
        binding = session.io_binding()
        for x, name in zip(session.get_inputs(), names, strict=True):
            binding.bind_ortvalue_input(x.name, ort.OrtValue.ortvalue_from_numpy(arguments[name]))
        for y in session.get_outputs():
            binding.bind_output(y.name)

        def call() -> Any:
            session.run_with_iobinding(binding)
            return binding

        return call

    return start


CONTESTANTS: Mapping[str, Contestant] = {
    c.name: c
    for c in (
        Contestant("numpy", ("numpy",), _numpy, "the function itself"),
        Contestant("numexpr", ("numexpr",), _numexpr, "expressions as text, for rows that are element-wise"),
        Contestant(
            "numba",
            ("numba",),
            _numba,
            "explicit loops under `njit(parallel=True, fastmath=True)`, for rows without products of matrices; "
            "its PyPI wheels have no vectorized exp, log or erf",
        ),
        Contestant("torch", ("torch",), _torch, "eager, with the fused functions of torch.nn.functional"),
        Contestant(
            "torch.compile",
            ("torch", "torch._inductor.config", "torch._dynamo"),
            _torch_compile,
            "the same functions, `fullgraph`, static shapes, weights frozen into the code",
        ),
        Contestant(
            "jax",
            ("jax", "jax.scipy.special"),
            _jax,
            "`jax.jit` of the NumPy source with jax.numpy in it, weights as constants of it",
            copies=True,
        ),
        Contestant(
            "ort",
            ("onnxruntime", "torch.onnx", "onnxscript"),
            _onnx_runtime,
            "ONNX Runtime on torch's export (opset 18), all graph optimizations, inputs and outputs bound; the time of "
            "the export is not counted",
        ),
    )
}


def arrays(results: Any) -> list[np.ndarray]:
    """A contestant's results as NumPy arrays."""
    if hasattr(results, "copy_outputs_to_cpu"):
        return list(results.copy_outputs_to_cpu())
    if isinstance(results, Mapping):
        results = tuple(results.values())
    return [np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else (results,))]


def settle(threads: int, folder: str, own: Path | None = None) -> None:
    """Make this process the same for all: its cores, no caches of compiled code, and memory that is not given back to
    the system between calls (fresh pages cost more than most kernels). Call it before peers are imported. `own`:
    waxeq's cache, which has nothing that belongs to a model, as its peers' packages come compiled."""
    keep_to(threads)
    _keep_memory()
    os.environ |= {
        "NUMEXPR_MAX_THREADS": str(threads),
        "NUMBA_NUM_THREADS": str(threads),
        # its OpenMP layer loads a second libgomp beside torch's; torch's small kernels then take a second, not 1 ms
        "NUMBA_THREADING_LAYER": "workqueue",
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "JAX_PLATFORMS": "cpu",
        **({} if own is None else {"WAXEQ_CACHE": str(own)}),
    }


def _keep_memory() -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
