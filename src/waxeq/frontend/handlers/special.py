"""Functions of scipy.special that are no ufuncs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import Tracer
from waxeq.frontend.explicit import axes_tuple
from waxeq.ir.types import is_floating
from waxeq.ops.composite import LogSoftmax, LogSumExp, Softmax


def _along(op: Any, t: Tracer, x: Any, axis: Any = None) -> Any:
    a = t.array(x)
    a = a if is_floating(a.dtype) else a.astype(np.float64)
    return t.wrap(t.builder(op(axes_tuple(axis, a.ndim)), a.value))


def _logsumexp(
    t: Tracer, a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """To SciPy bfloat16 is no float here: of it, as of integers, the result is float64."""
    if b is not None or return_sign:
        raise t.refuse("scipy.special.logsumexp with b= or return_sign=", "write np.log(np.sum(b * np.exp(a)))")
    x = t.array(a)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    return t.wrap(t.builder(LogSumExp(axes_tuple(axis, x.ndim), bool(keepdims)), x.value))


CREATORS: Mapping[str, Callable[..., Any]] = {
    "special.softmax": partial(_along, Softmax),
    "special.log_softmax": partial(_along, LogSoftmax),
    "special.logsumexp": _logsumexp,
}
