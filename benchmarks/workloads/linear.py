"""The linear-algebra set of the examples, n = 2000: what the algebra alone is worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.workload import Arguments, Form, Workload, example, generator, normal

_N, _THIN = 8, 3
_SMALL: dict[str, dict[str, tuple[int, ...]]] = {
    "abv": {"a": (_N, _N), "b": (_N, _N), "v": (_N,)},
    "sum_ab": {"a": (_N, _N), "b": (_N, _N)},
    "ab_plus_ac": {"a": (_N, _N), "b": (_N, _N), "c": (_N, _N)},
    "uvt_minus_x_v": {"u": (_N, _THIN), "v": (_N, _THIN), "x": (_N, _N)},
    "matrix_chain": {"a": (_N, _THIN), "b": (_THIN, _N), "c": (_N, _N), "d": (_N, 1)},
}

_DRAWS = {"sum_ab": 8}
"""Of the arguments of what has one number as its result."""


def _small(shapes: dict[str, tuple[int, ...]]) -> Arguments:
    rng = generator()
    return {name: normal(rng, *shape) for name, shape in shapes.items()}


def _sum_ab() -> Callable[..., Any]:
    return lambda a, b: (a @ b).sum()


_MODULES = {name: example(name) for name in _SMALL}


def _torch(name: str) -> Form:
    """Where the source has operators only, tensors run it as it is."""
    return _sum_ab if name == "sum_ab" else lambda: _MODULES[name].model


WORKLOADS = tuple(
    Workload(
        name,
        module.model,
        module.example_inputs,
        partial(_small, _SMALL[name]),
        forms={"torch": _torch(name)},
        tolerance=1e-3,
        draws=_DRAWS.get(name, 1),
    )
    for name, module in _MODULES.items()
)
