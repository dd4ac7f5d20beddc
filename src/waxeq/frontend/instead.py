"""What to write in place of functions that are not traced."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType

import numpy as np

from waxeq.frontend.origins import theirs

LIST = "see docs/coverage.md for what is traced, or compute it outside the model and pass it as an argument"
_OUTSIDE = "compute it outside the model and pass it as an argument"
_EIGEN = f"there is no operator for eigenvalues, singular values and orthogonal factors: {_OUTSIDE}"
_SIZED = "how many there are depends on the data, and shapes of a plan are fixed: "
_MASK = f"{_SIZED}write np.where(mask, x, other), or fold over x[mask], as x[mask].sum()"
_EACH = f"{_SIZED}np.sort(x, axis=None), and y[1:] != y[:-1] of that, say where new values begin"
_MEMBERS = f"{_SIZED}np.isin(x, y) says of each element whether it is in the other"
_EUCLID = (
    "write Euclid's steps, a, b = np.where(b, b, a), np.where(b, a % b, 0), as often as the largest numbers need "
    "(24 times for 16 bits)"
)
_STEP = "np.abs(x) * np.finfo(x.dtype).eps is the distance to the next number, or up to twice as much"
_FOURIER = f"a product with constant matrices is one: x @ np.cos(angles), x @ np.sin(angles); of long rows {_OUTSIDE}"
_OWN = "call the function itself, on whole arrays: np.where(condition, a, b) has both sides of a branch"
_PLAIN = (
    "keep to operators and functions of numpy; join a list of arrays with np.stack first; index an array that other "
    "modules made with np.take(array, index, axis=0), and write into one with np.where"
)
_LOOP = "write the loop over the axis: for row in x[1:]: y = f(y, row)"

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("nonzero", "argwhere", "flatnonzero", "extract", "trim_zeros"), _MASK),
    **dict.fromkeys(("unique", "unique_values", "unique_counts", "unique_inverse", "unique_all"), _EACH),
    **dict.fromkeys(("setdiff1d", "setxor1d", "union1d", "intersect1d"), _MEMBERS),
    **dict.fromkeys(("gcd", "lcm", "gcd.reduce", "lcm.reduce"), _EUCLID),
    **dict.fromkeys(("nextafter", "spacing"), _STEP),
    **dict.fromkeys((f"linalg.{n}" for n in ("eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals", "qr")), _EIGEN),
    **dict.fromkeys(("roots", "linalg.matrix_rank"), _EIGEN),
    "frexp": "np.floor(np.log2(np.abs(x))) + 1 is the exponent, but for rounding beside powers of two",
    "i0": "write a polynomial that approximates it (Abramowitz and Stegun, 9.8.1 and 9.8.2) with np.polyval",
    "polydiv": "how long the rest is depends on the data; write the steps of the division: q = u[0] / v[0] and so on",
    "divide.reduce": "write x[0] / np.prod(x[1:], axis=0)",
}


def instead_of(name: str) -> str:
    """The way out where the function that handlers would call `name` is not traced."""
    if name.startswith("fft."):
        return _FOURIER
    if name.endswith("(vectorized)"):
        return _OWN
    return _INSTEAD.get(name) or (f"{_LOOP}, or {LIST}" if name.endswith((".reduce", ".accumulate")) else LIST)


def instead_of_conversion(frame: FrameType | None) -> str:
    """The way out where an array would be made a plain one, as `frame` asks for."""
    while frame is not None and not theirs(frame.f_code.co_filename):
        if isinstance(frame.f_locals.get("self"), np.vectorize):
            return f"np.vectorize calls its function for one element after the other: {_OWN}"
        frame = frame.f_back
    return _PLAIN
