"""The arguments of a call in the order of a program's inputs: by position or by name, flat or in the containers (dicts,
lists, tuples, dataclasses) that the model takes them in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from waxeq.amounts import number_of
from waxeq.errors import TypeMismatch
from waxeq.frontend.containers import fields_of, is_array, is_said

_FEW = 3
"""So many Python values are named where there are more."""


def ordered(
    args: Sequence[Any], named: Mapping[str, Any], types: Mapping[str, str], fixed: Mapping[str, str] | None = None
) -> list[Any]:
    """What a program is called with, in the order of its inputs. `types`: what it takes, by name of the input; empty
    where that is not one type. `fixed`: Python values among the examples, which the plan is for. Raises TypeMismatch
    when an input is missing, unknown or given twice."""
    fixed = fixed or {}
    if _structured((*args, *named.values()), types):
        args, named = (), _leaves(args, named, types, fixed)
    if len(args) > len(types):
        raise _too_many(args, types, types, fixed)
    rows = dict(zip(types, args, strict=False))
    for n, value in named.items():
        if n in rows:
            raise _twice(n)
        if n not in types:
            raise _unknown(n, value, types, fixed)
    rows |= named
    for n, t in types.items():
        if n not in rows:
            raise TypeMismatch(
                f"no array was given for input {n!r}{f' ({t})' if t else ''}; the program takes {_takes(types)}"
            )
    return [rows[n] for n in types]


def _structured(values: Sequence[Any], types: Mapping[str, str]) -> bool:
    """Whether arguments are of parameters, some of which hold several inputs; a list may be an array, too."""
    values = [_as_mapping(v) for v in values]
    if not any(isinstance(v, (list, tuple, Mapping)) for v in values):
        return False
    parameters = _parameters(types)
    if len(parameters) == len(types) and not any("." in n for n in types):
        return False
    flat = len(values) == len(types) != len(parameters)
    return any(isinstance(v, Mapping) or (isinstance(v, (list, tuple)) and not flat) for v in values)


def _as_mapping(value: Any) -> Any:
    """The fields of a dataclass by name; whatever else as it is."""
    parts = fields_of(value)
    return value if parts is None else parts


def _parameters(types: Mapping[str, str]) -> list[str]:
    """The parameters of the model that inputs are, or lie in."""
    return list(dict.fromkeys(n.partition(".")[0] for n in types))


def _leaves(
    args: Sequence[Any], named: Mapping[str, Any], types: Mapping[str, str], fixed: Mapping[str, str]
) -> dict[str, Any]:
    """Inputs by name, of arguments for parameters. Raises TypeMismatch."""
    parameters = _parameters(types)
    args = _with_rows(args, parameters, types, fixed)
    if len(args) > len(parameters):
        raise _too_many(args, parameters, types, fixed)
    rows: dict[str, Any] = {}
    for n, value in (*zip(parameters, args, strict=False), *named.items()):
        for path, leaf in _walked(n, value, types, fixed):
            if path in rows:
                raise _twice(path)
            if path in types:
                rows[path] = leaf
            elif not is_said(fixed.get(path), leaf) and (path in fixed or not _traced_through(path, leaf, parameters)):
                raise _unknown(path, leaf, types, fixed)
    return rows


def _with_rows(
    args: Sequence[Any], parameters: Sequence[str], types: Mapping[str, str], fixed: Mapping[str, str]
) -> Sequence[Any]:
    """Arguments, those of `*rows` in a tuple: inputs in it are numbered, and it is no tuple as it was given, or more
    than one parameter takes. A list that is all that the parameter takes is that, unless it is a row that may be."""
    names = {*types, *fixed}

    def known(parameter: str, value: Any) -> bool:
        paths = [path for path, _ in _walked(parameter, value, types, fixed)]
        return bool(paths) and names.issuperset(paths)

    numbered = [i for i, p in enumerate(parameters[: len(args)]) if _is_numbered(p, names)]
    for i in numbered:
        value, rows = _as_mapping(args[i]), tuple(args[i:])
        more = i == numbered[-1] and len(args) > len(parameters)
        counted = isinstance(value, (list, tuple)) or (
            isinstance(value, Mapping) and all(str(k).isdigit() for k in value)
        )
        if not counted or (more and (known(parameters[i], rows) or not known(parameters[i], value))):
            return (*args[:i], rows)
    return args


def _is_numbered(parameter: str, names: Collection[str]) -> bool:
    inside = [n.split(".")[1] for n in names if n.startswith(f"{parameter}.")]
    return bool(inside) and all(n.isdigit() for n in inside)


def _traced_through(path: str, leaf: Any, parameters: Sequence[str]) -> bool:
    """Whether something in an argument is neither an array nor a Python value: a function, say."""
    plain = leaf is None or isinstance(leaf, (str, bool, int, float)) or is_array(leaf)
    return not plain and path.partition(".")[0] in parameters


def _walked(path: str, value: Any, types: Mapping[str, str], fixed: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """What lies in an argument, by the names that a trace gives it."""
    value = _as_mapping(value)
    if path in types or ("." in path and path in fixed) or not isinstance(value, (Mapping, list, tuple)):
        yield path, value
        return
    names = value if isinstance(value, Mapping) else getattr(value, "_fields", range(len(value)))
    for k, v in zip(names, value.values() if isinstance(value, Mapping) else value, strict=True):
        yield from _walked(f"{path}.{k}", v, types, fixed)


def _takes(types: Mapping[str, str]) -> str:
    return ", ".join(f"{n}: {t}" if t else n for n, t in types.items()) or "none"


def _twice(name: str) -> TypeMismatch:
    return TypeMismatch(f"input {name!r} is given twice: by position and by name")


def _too_many(
    args: Sequence[Any], wanted: Sequence[str] | Mapping[str, str], types: Mapping[str, str], fixed: Mapping[str, str]
) -> TypeMismatch:
    takes = number_of(len(wanted), "input" if wanted is types else "argument")
    more, own = "", [f"{n} = {v}" for n, v in fixed.items() if "." not in n]
    if own:
        few, one = own[:_FEW] + ["..."] * (len(own) > _FEW), len(own) == 1
        were = "was a Python value when it was optimized, and is a constant" if one else _CONSTANTS
        more = f"; {', '.join(few)} {were} of the plan: leave {'it' if one else 'them'} out"
    elif any(type(a) in (bool, int, float) for a in args):
        more = f"; {_GENERAL}"
    return TypeMismatch(f"the program takes {takes} ({_takes(types)}), {len(args)} were given{more}")


_CONSTANTS = "were Python values when it was optimized, and are constants"
_GENERAL = "what was a Python number when it was optimized is a constant of the plan: leave it out"


def _unknown(name: str, value: Any, types: Mapping[str, str], fixed: Mapping[str, str]) -> TypeMismatch:
    if name in fixed:
        return TypeMismatch(
            f"{name!r} is no input of the program: it was the Python value {fixed[name]} when it was optimized, and "
            "is a constant of the plan; leave it out, or optimize with an array for it"
        )
    more = f"; {_GENERAL}" if type(value) in (bool, int, float) else ""
    return TypeMismatch(f"the program has no input {name!r}; it takes {_takes(types)}{more}")
