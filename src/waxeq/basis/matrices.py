"""Operands that are factored, made such that they can be: random matrices are seldom positive definite, and now and
then all but singular."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from waxeq.basis.heads import FACTORED, HEADS
from waxeq.ir.term import Term, postorder


def factored(*roots: Term) -> Mapping[Term, tuple[str, str]]:
    """The terms that are factored, with the axes of their rows and columns."""
    found: dict[Term, tuple[str, str]] = {}
    for t in postorder(*roots):
        if t.head in FACTORED:
            i, j, a = places(t.head, t.args)
            found[a] = (i, j)
    return found


def places(head: str, args: Iterable[object]) -> tuple:
    """The axes of rows and columns, and the matrix, of a head that factors one."""
    named = dict(zip((n for n, _ in HEADS[head].args), args, strict=True))
    return named["i"], named["j"], named["a"]


def make_regular(x: np.ndarray, axes: tuple[str, ...], rows: str, columns: str) -> None:
    """Add to the diagonals of matrices what makes each larger than all else in its row and its column together: they
    are regular then, and positive definite by their lower triangles. An axis of size 1 may be missing. Matrices that
    are constant along their rows or columns alone are left as they are."""
    if (rows in axes) != (columns in axes) or x.dtype.kind in "biu":
        return
    m = np.moveaxis(x, (axes.index(rows), axes.index(columns)), (-2, -1)) if rows in axes else x[..., None, None]
    with np.errstate(all="ignore"):
        size = np.abs(m).astype(np.float64)
        enough = size.sum(-1) + size.sum(-2) + 1.0
    at = np.arange(m.shape[-1])
    m[..., at, at] += enough.astype(x.dtype)
