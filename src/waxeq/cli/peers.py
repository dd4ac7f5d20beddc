"""A user's own NumPy function under other compilers, for `waxeq bench --vs`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from waxeq.errors import UsageError, WaxeqError
from waxeq.frontend.calling import called
from waxeq.frontend.containers import is_array
from waxeq.frontend.load import Target
from waxeq.ir.graph import Graph
from waxeq.ir.structure import is_named_tuple

Call = Callable[[], Any]
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "numpy": ("numpy",),
    "jax": ("jax",),
    "torch": ("torch",),
    "ort": ("onnx", "onnxruntime"),
}
"""The peers, and the packages each needs."""
_SHORT, _LONG = 20, 300
"""Characters of a line that says little by itself, and at most of a reason."""
OF_GRAPHS = ("ort",)
"""The peers that run the graph of a model, which a plan holds; the others run its Python function."""


def require(names: Sequence[str], plan: str | None = None) -> None:
    """Raise UsageError for a peer that does not exist, is not installed, or cannot run the plan in the file `plan`."""
    for name in names:
        if name not in PACKAGES:
            raise UsageError(f"--vs {name}: there is no such peer; there are {', '.join(PACKAGES)}")
        if plan is not None and name not in OF_GRAPHS:
            raise UsageError(
                f"--vs {name} runs the model's Python function, which {plan} does not hold; give the model, as "
                f"FILE.py, or leave {name} out"
            )
        missing = [p for p in PACKAGES[name] if find_spec(p) is None]
        if missing:
            raise UsageError(f"--vs {name} needs {missing[0]}: pip install 'waxeq[bench]'")


def peer(
    name: str,
    target: Target | None,
    graph: Graph,
    tensors: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    threads: int,
) -> Call:
    """What runs the model on its example: the target, or the graph on `inputs` for a peer of graphs, which needs no
    target. What it raises is the peer's own."""
    if name in OF_GRAPHS:
        return _onnx_runtime(graph, tensors, inputs, threads)
    assert target is not None, "require has seen to that"
    if name == "jax":
        return _jax(target)
    return _torch(target, threads) if name == "torch" else target.call


def reason(e: BaseException) -> str:
    """An error in one line."""
    lines = [x.strip() for x in str(e).splitlines() if x.strip()] or [""]
    text = lines[0] if len(lines[0]) > _SHORT else " ".join(lines[:3])
    kind = "" if isinstance(e, WaxeqError) else f"{type(e).__name__}: "
    return f"{kind}{text}"[:_LONG]


def failure(name: str, e: BaseException) -> str:
    """Why a peer cannot take part, in one sentence, and what to do: what its compiler says of itself goes on for
    pages."""
    why = reason(e).rstrip(". ")
    if isinstance(e, ImportError):
        return f"{name} is installed but cannot be imported ({why}); install it anew, or leave it out of --vs"
    if name != "torch":
        return why
    if "Cxx" in why:
        return f"torch.compile finds no C++ compiler that works ({why}); install g++, or name one in CXX"
    return f"torch.compile does not take this function ({why}); leave torch out of --vs"


def keep_to(threads: int) -> None:
    """Hold this process to so many cores: every library's threads, not only those that read a variable."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def arrays(results: Any, like: Any = None) -> list[np.ndarray]:
    """A peer's results as NumPy arrays, in the order that a trace gives them names. `like`: the structure of the
    model's results (see `ir.structure`): entries of a dict are paired by key, as some libraries sort them."""
    if isinstance(results, Mapping):
        known = isinstance(like, Mapping) and like.keys() == results.keys()
        return [a for k in (like if known else results) for a in arrays(results[k], like[k] if known else None)]
    if isinstance(results, (list, tuple)):
        known = isinstance(like, (list, tuple)) and len(like) == len(results)
        return [a for i, v in enumerate(results) for a in arrays(v, like[i] if known else None)]
    return [] if results is None else [np.asarray(results)]


def _jax(target: Target) -> Call:
    """Arrays go in and come out side by side: jax sorts the keys of dicts, which a model may walk through in order.
    What else is among the arguments is a constant, as it is of a plan."""
    jax = import_module("jax")
    given = [a for _, a in leaves(target.example)]
    jax.config.update("jax_enable_x64", any(a.dtype.itemsize == 8 for a in given))
    fn = swapped(target.fn, as_jax)

    def flat(*taken: Any) -> tuple[Any, ...]:
        rest = iter(taken)
        return tuple(parts(called(fn, mapped(target.example, lambda _: next(rest)))))

    compiled, placed = jax.jit(flat), [jax.device_put(a) for a in given]
    return lambda: jax.block_until_ready(compiled(*placed))


def _torch(target: Target, threads: int) -> Call:
    torch = import_module("torch")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    compiled = torch.compile(torch.compiler.wrap_numpy(swapped(target.fn, _as_torch)), dynamic=False)
    given = mapped(target.example, lambda a: torch.from_numpy(np.array(a)))
    return lambda: called(compiled, given)


def _onnx_runtime(
    graph: Graph, tensors: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray], threads: int
) -> Call:
    from waxeq.cli.onnx import as_onnx

    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    model = as_onnx(graph, tensors).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {x.name: np.asarray(inputs[x.name], order="C") for x in session.get_inputs()}  # scalars keep their shape
    return lambda: session.run(None, feeds)


# -- arguments


def mapped(value: Any, fn: Callable[[np.ndarray], Any]) -> Any:
    """Arguments with a function applied to each array in them, in the order of `leaves`."""
    if isinstance(value, Mapping):
        return {k: mapped(v, fn) for k, v in value.items()}
    if is_named_tuple(value):
        return type(value)._make(mapped(v, fn) for v in value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, fn) for v in value)
    return fn(np.asarray(value)) if is_array(value) else value


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Arrays of arguments by the names that a trace gives them."""
    if isinstance(value, (Mapping, list, tuple)):
        keys = value if isinstance(value, Mapping) else getattr(value, "_fields", range(len(value)))
        for k, v in zip(keys, _inside(value), strict=True):
            yield from leaves(v, f"{path}.{k}" if path else str(k))
    elif is_array(value):
        yield path, np.asarray(value)


def parts(value: Any) -> Iterator[Any]:
    """Results without their containers, in the order that a trace gives them names."""
    if isinstance(value, (Mapping, list, tuple)):
        for v in _inside(value):
            yield from parts(v)
    elif value is not None:
        yield value


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value


# -- the function with another library's names in it


def swapped(fn: Callable[..., Any], stand: Callable[[Any], Any]) -> Callable[..., Any]:
    """A copy of a function, and of the functions of the user's that it names, in which `stand` says what stands for a
    module or function; None: it stays. Raises UsageError for a callable that is no Python function."""
    tables: dict[int, dict[str, Any]] = {}

    def value(v: Any) -> Any:
        other = stand(v) if callable(v) or isinstance(v, ModuleType) else None
        if other is not None:
            return other
        return copied(v) if isinstance(v, FunctionType) and "site-packages" not in v.__code__.co_filename else v

    def copied(f: FunctionType) -> FunctionType:
        table = f.__globals__
        if id(table) not in tables:
            # a module of its own: torch.compile looks globals up by the name of their module
            module = ModuleType(f"{table.get('__name__', 'model')}_swapped")
            sys.modules[module.__name__] = module
            mine = tables[id(table)] = vars(module)
            mine.update({n: value(v) for n, v in table.items() if n != "__name__"})
        copy = FunctionType(f.__code__, tables[id(table)], f.__name__, f.__defaults__, f.__closure__)
        copy.__kwdefaults__ = f.__kwdefaults__
        return copy

    if not isinstance(fn, FunctionType):
        raise UsageError(f"{fn!r} is no Python function whose np could be replaced")
    return copied(fn)


def as_jax(value: Any) -> Any:
    """jax.numpy for numpy, jax.scipy for scipy, and what is named in them."""
    if isinstance(value, ModuleType):
        known = {"numpy": "jax.numpy", "numpy.linalg": "jax.numpy.linalg", "scipy.special": "jax.scipy.special"}
        return import_module(known[value.__name__]) if value.__name__ in known else None
    name = getattr(value, "__name__", "")
    for module, other in ((np, "jax.numpy"), (import_module("scipy.special"), "jax.scipy.special")):
        if name and getattr(module, name, None) is value:
            return getattr(import_module(other), name, None)
    return None


def _as_torch(value: Any) -> Any:
    """torch.compile follows NumPy by itself, but not scipy.special: torch.special stands for it."""
    special = import_module("scipy.special")
    name = getattr(value, "__name__", "")
    if value is special:
        names = [n for n in dir(import_module("torch").special) if hasattr(special, n) and not n.startswith("_")]
        module = ModuleType("special")
        vars(module).update({n: _on_arrays(n) for n in names})
        return module
    return _on_arrays(name) if name and getattr(special, name, None) is value else None


def _on_arrays(name: str) -> Any:
    """A function of torch.special that takes and gives NumPy arrays, as torch.compile follows them."""
    torch = import_module("torch")
    fn = getattr(torch.special, name, None)
    return None if fn is None else lambda *xs: fn(*(torch.as_tensor(x) for x in xs)).numpy()
