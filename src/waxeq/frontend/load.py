"""Loading a model from a Python file: FILE.py[:NAME]."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from waxeq.errors import TargetError, WaxeqError
from waxeq.frontend.annotations import example_arguments
from waxeq.frontend.calling import called

_DEFAULTS = ("model", "forward")


@dataclass(frozen=True)
class Target:
    """A function with example arguments; `weights` names the parameters that stay the same between calls. Parameters
    annotated `wx.Weight` and `wx.State` are known to `trace`. `given`: the arguments that the file itself gives;
    `at_sizes` gives them for any sizes, where its `example_inputs` takes some."""

    fn: Callable[..., Any]
    name: str
    example: Mapping[str, Any]
    weights: frozenset[str]
    origin: tuple[str, str]
    given: Mapping[str, Any] = field(default_factory=dict)
    at_sizes: Callable[..., Mapping[str, Any]] | None = None

    def call(self) -> Any:
        """Run the function on its example."""
        return called(self.fn, self.example)


def load_target(reference: str, sizes: Mapping[str, int] | None = None) -> Target:
    """The model at FILE.py[:NAME]: NAME, else the sole @wx.model, else `model`, else `forward`.

    Example arguments come from `example_inputs()` of the file, those it lacks from annotations;
    `weights()` gives the argument called `weights`, and `WEIGHTS` names more parameters that are weights. `sizes` of
    dims are for annotations, and for an `example_inputs` that has parameters. Raises TargetError with one sentence.
    """
    require_file(reference)
    path, name = parted(reference)
    module = _load(Path(path))
    name, fn = _find(module, path, name)
    weights, more = _named(module, path, name, fn), dict[str, Any]()
    give = getattr(module, "weights", None)
    if callable(give) and give is not fn and (_is_parameter("weights", fn) or not _takes(give)):  # else a helper
        more = {"weights": _run(path, "weights", give)}
        weights.add("weights")

    def at_sizes(**sizes: int) -> Mapping[str, Any]:
        return {**_example(module, path, sizes), **more}

    given = at_sizes(**(sizes or {}))
    _require_examples(path, given.keys() - more.keys(), name, fn)
    example = example_arguments(fn, given, sizes)
    _require_parameters(f"{path}: example_inputs() gives", given.keys() - more.keys(), name, fn)
    _require_parameters(f"{path}: weights() gives", more, name, fn)
    title = Path(path).stem if name in _DEFAULTS else name
    origin = (str(Path(path).resolve()), name)
    takes = bool(sizes) and _takes(getattr(module, "example_inputs", None))
    return Target(fn, title, example, frozenset(weights), origin, given, at_sizes if takes else None)


def parted(reference: str) -> tuple[str, str]:
    """FILE.py and NAME of FILE.py:NAME; no NAME is an empty one. Folders may have colons in their names."""
    path, mark, name = reference.rpartition(":")
    return (path, name) if mark and "/" not in name and not name.endswith(".py") else (reference, "")


def _takes(give: Any) -> tuple[str, ...]:
    """The parameters of `example_inputs`."""
    return tuple(inspect.signature(give).parameters) if callable(give) else ()


def require_file(reference: str) -> None:
    """Raise TargetError where FILE.py of FILE.py[:NAME] is no Python file."""
    path = Path(parted(reference)[0])
    if reference.endswith(":") and not os.path.exists(reference):
        raise TargetError(f"{reference} names no function after its colon; give {path} or {path}:NAME")
    if os.path.isdir(path):  # Path.is_dir raises where a folder may not be looked into
        raise TargetError(f"{path} is a folder; give FILE.py or FILE.py:NAME")
    if not os.path.isfile(path):
        instead = "" if path.suffix == ".py" else "; models are FILE.py or FILE.py:NAME, plans NAME.plan.json"
        raise TargetError(f"{path}: no such file{instead}")
    if path.suffix != ".py":
        raise TargetError(f"{path}: not a Python file; give FILE.py or FILE.py:NAME")


class _Source(SourceFileLoader):
    """Loads a file as it is now: bytecode is taken for that of any text of the same length that was written in its
    second."""

    def path_stats(self, path: str) -> Any:
        raise OSError("a file that may have changed")


def _load(path: Path) -> ModuleType:
    import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by its name then, for which safetensors asks it

    name, whole = module_name(path), str(path.resolve())
    spec = importlib.util.spec_from_file_location(name, whole, loader=_Source(name, whole))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder, top = (str(f) for f in (path.resolve().parent, path.resolve().parents[name.count(".")]))
    others = [folder] if top == folder else [folder, top]
    sys.path[:0] = others
    try:
        spec.loader.exec_module(module)
    except SyntaxError as e:
        raise TargetError(f"{path if e.lineno is None else f'{path}:{e.lineno}'}: {e.msg}") from e
    except (Exception, SystemExit) as e:
        alone = isinstance(e, ImportError) and "relative import" in str(e)
        advice = "; a folder is a package where it has an __init__.py" if alone else ""
        raise TargetError(f"{at(path, e)}: loading it raises {type(e).__name__}: {e}{advice}") from e
    finally:
        for f in others:
            with suppress(ValueError):
                sys.path.remove(f)
            if f not in sys.path:  # last, for what functions of the model import: there it hides no installed module
                sys.path.append(f)
    return module


def module_name(path: Path) -> str:
    """What the module of a file is called once it is loaded: in the package that its folder is, so that it may import
    relatively."""
    packages = list[str]()
    for folder in path.resolve().parents:
        if not folder.name.isidentifier() or not (folder / "__init__.py").is_file():
            break
        packages.insert(0, folder.name)
    return ".".join([*packages, f"waxeq_target_{path.stem.replace('.', '_')}"])


def at(path: Path, e: BaseException) -> str:
    """A file with the line in it where something was raised, if it was on the way."""
    lines = [f.lineno for f in extract_tb(e.__traceback__) if Path(f.filename) == path.resolve()]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _named(module: ModuleType, path: str, name: str, fn: Callable[..., Any]) -> set[str]:
    """What WEIGHTS names. Raises TargetError for what is no parameter of the model, which is called `name`."""
    given = getattr(module, "WEIGHTS", ())
    given = (given,) if isinstance(given, str) else given
    if not isinstance(given, Collection) or not all(isinstance(n, str) for n in given):
        raise TargetError(f'{path}: WEIGHTS is {given!r:.60}; give names of parameters, as WEIGHTS = ("w1", "b1")')
    _require_parameters(f"{path}: WEIGHTS names", given, name, fn)
    return set(given)


def _is_parameter(wanted: str, fn: Callable[..., Any]) -> bool:
    """Whether a model may be given an argument of a name."""
    try:
        parameters = inspect.signature(fn).parameters
    except (ValueError, TypeError):  # Python does not tell
        return True
    return wanted in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _require_parameters(what: str, names: Iterable[str], name: str, fn: Callable[..., Any]) -> None:
    """Raise TargetError for what is no parameter of the model, which is called `name`."""
    if unknown := sorted(str(n) for n in names if not _is_parameter(n, fn)):
        parameters = ", ".join(inspect.signature(fn).parameters) or "none"
        raise TargetError(f"{what} {unknown[0]!r}, which is no parameter of {name}; it has {parameters}")


def _require_examples(path: str, given: Set[str], name: str, fn: Callable[..., Any]) -> None:
    """Raise TargetError where the examples of a file are all of another model's parameters than of this one, which is
    called `name`."""
    try:
        parameters = inspect.signature(fn).parameters
    except (ValueError, TypeError):  # Python does not tell
        return
    if given and parameters and not given & parameters.keys() and not _takes_any(parameters.values()):
        mine, others = _listed(parameters), _listed(sorted(given))
        raise TargetError(
            f"{path}: example_inputs() gives {others}, and {name} takes {mine}: write one that gives these, in a file "
            f"that imports {name} if other models need that one"
        )


def _takes_any(parameters: Iterable[inspect.Parameter]) -> bool:
    """Whether there are parameters for arguments of any name."""
    return any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _find(module: ModuleType, path: str, name: str) -> tuple[str, Callable[..., Any]]:
    """The model, and what it is called in its file: what is called may have another name of its own, or none. Raises
    TargetError."""
    every = {k: v for k, v in vars(module).items() if callable(v)}
    rows = {k: v for k, v in every.items() if getattr(v, "__module__", None) == module.__name__}
    marked = [k for k, v in rows.items() if hasattr(v, "__waxeq__")]
    if len(marked) > 1 and not name:
        raise TargetError(f"{path} has several @wx.model functions; say which, as {path}:NAME")
    defaults = (k for known in (rows, every) for k in _DEFAULTS if k in known)  # its own before what it imports
    found = name or next(iter((*marked, *defaults)), "")
    if not found:
        raise TargetError(f"{path} has no model: name a function `model`, or say which, as {path}:NAME")
    if found not in every:
        raise TargetError(f"{path} has no function {name!r}; it has {', '.join(rows) or 'none'}")
    if isinstance(every[found], type):
        raise TargetError(f"{path}: {found} is a class; name one of its objects, as model = {found}()")
    return found, every[found]


def _example(module: ModuleType, path: str, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    give = getattr(module, "example_inputs", None)
    if not callable(give):
        return {}
    wanted = {n: sizes[n] for n in _takes(give) if n in sizes}
    found = _run(path, "example_inputs", lambda: give(**wanted))
    if not isinstance(found, Mapping):
        raise TargetError(f"{path}: example_inputs() must return a dict from parameter name to array")
    return found


def _run(path: str, what: str, fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except WaxeqError:
        raise
    except (Exception, SystemExit) as e:
        raise TargetError(f"{at(Path(path), e)}: {what}() raises {type(e).__name__}: {e}") from e
