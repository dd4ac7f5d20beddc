"""What a model asks NumPy to raise where numbers overflow, are divided by zero or are not defined: plans raise none of
it."""

from __future__ import annotations

import warnings

import numpy as np

INSTEAD = "leave it out of the model, and write np.where(y == 0, 0, x / np.where(y == 0, 1, y)) and the like"
AROUND = "NumPy is set to raise FloatingPointError here (np.seterr, np.errstate): calls of a plan raise none"


def asked() -> str:
    """What makes an error of a division by zero, an overflow or the like, as it is written; else nothing."""
    return numpys() or ("RuntimeWarning is made an error" if _warnings_are_errors() else "")


def numpys() -> str:
    """That part of it which is a state of NumPy's."""
    kinds = [f"{k}={v!r}" for k, v in np.geterr().items() if v in ("raise", "call")]
    return f"np.errstate({', '.join(kinds)})" if kinds else ""


def _warnings_are_errors() -> bool:
    """Whether a warning of NumPy's, whatever it says, is raised."""
    if "warn" not in np.geterr().values():
        return False
    every = (f for f in warnings.filters if f[1] is None and f[3] is None and issubclass(RuntimeWarning, f[2]))
    return next((f[0] for f in every), "") == "error"
