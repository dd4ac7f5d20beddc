"""Every function that is traced, against NumPy itself: value, dtype and shape, over dtypes, odd shapes and options."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest
import scipy.special

from waxeq.errors import WaxeqError
from waxeq.frontend.handlers import CREATORS, HANDLERS, METHODS
from waxeq.frontend.handlers.elementwise import UFUNCS
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ir.text import parse_graph, print_graph
from waxeq.ops import OPS

Case = Callable[..., Any]
DTYPES = ("float32", "float64", "float16", "int64", "int8", "uint8", "bool")
SHAPES = ((2, 3), (), (1,), (0,), (5,), (3, 1), (1, 0, 2), (2, 3, 4))
FLOATS = np.array([0.5, -1.25, 2.0, 0.0, 3.5, -0.0, 0.75, -2.5, 1.0, 1.5, -0.5, 4.0])
INTS = np.array([0, 1, 3, -2, 5, 7, -1, 2, 4, 6, 1, 3])


def array(dtype: str, shape: tuple[int, ...], start: int = 0) -> np.ndarray:
    """A small array with signs, zeros and repeats; the same each time."""
    pool = FLOATS if dtype.startswith("float") else INTS
    n = int(np.prod(shape, dtype=int))
    return pool[(start + 5 * np.arange(n)) % len(pool)].astype(dtype).reshape(shape)


def squares(*kinds: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Every second combination, as the white squares of a board: of any two kinds each pair occurs."""
    for at in itertools.product(*map(range, map(len, kinds))):
        if sum(at) % 2 == 0:
            yield tuple(k[n] for k, n in zip(kinds, at, strict=True))


def named(code: CodeType) -> set[str]:
    """What a function's text names, and that of the functions in it."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*map(named, inner))


def apart(fn: Case) -> Case:
    """The function in a module of its own, which has what it names: a trace looks at all that a module has, and the
    hundreds of cases of this one took it ten times as long as all else."""
    if not isinstance(fn, FunctionType):
        return fn
    names = named(fn.__code__)
    around = {n: x for n, x in fn.__globals__.items() if n in names}
    made = FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


def run(fn: Case, arrays: tuple[Any, ...]) -> list[np.ndarray]:
    """The results of a function by tracing and interpreting it; its graph survives being written and read."""
    own = apart(fn)
    traced = trace(apart(lambda **kw: own(*kw.values())), {f"x{i}": a for i, a in enumerate(arrays)})
    assert parse_graph(print_graph(traced.graph), OPS, traced.graph.constants) == traced.graph
    return list(interpret(traced.graph, traced.inputs).values())


def check(fn: Case, *arrays: Any, ulps: float = 8) -> None:
    """`fn` gives what NumPy gives, or both refuse."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            want = fn(*(a.copy() if isinstance(a, np.ndarray) else a for a in arrays))
        except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError, np.exceptions.AxisError):
            with pytest.raises((WaxeqError, ValueError)):
                run(fn, arrays)
            return
        got = run(fn, arrays)
    rows = list(want) if isinstance(want, (tuple, list)) else [want]
    assert len(got) == len(rows)
    for g, w in zip(got, map(np.asarray, rows), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w)
        else:
            scale = max(1.0, float(np.max(np.abs(w[np.isfinite(w)]), initial=0.0)))
            eps = float(np.finfo(w.dtype).eps)
            np.testing.assert_allclose(g, w, rtol=ulps * eps, atol=ulps * eps * scale)


# -- element-wise: cases follow from the ufunc's arity


def function(name: str) -> Any:
    """The function a handler is called after."""
    module, _, last = name.rpartition(".")
    if module == "special":
        return getattr(scipy.special, last)
    if name == "sliding_window_view":
        return np.lib.stride_tricks.sliding_window_view
    return getattr(np.linalg if module == "linalg" else np, last)


UNARY = sorted(n for n in UFUNCS if function(n).nin == 1)
BINARY = sorted(n for n in UFUNCS if function(n).nin == 2)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    f = function(name)
    for dtype in DTYPES:
        for shape in ((3, 4), (), (0,), (2, 1)):
            if dtype == "bool" and name == "negative":
                continue
            check(f, array(dtype, shape))
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
    check(f, odd)
    check(f, odd.astype(np.float16))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    f = function(name)
    pairs = [*((d, d) for d in DTYPES), ("float32", "int64"), ("int8", "uint8"), ("float16", "int8"), ("bool", "int64")]
    for a, b in pairs:
        x, y = array(a, (2, 3)), array(b, (2, 3), 3)
        if np.result_type(a, b).kind == "i":
            y = np.abs(y) if name in ("power", "left_shift", "right_shift") else y
        check(f, x, y)
        check(f, array(a, (4, 1)), np.abs(array(b, (1, 3))))
        check(f, array(a, ()), np.abs(array(b, (0,))))
    for number in (2, 2.5, True):
        for a in ("float32", "float16", "int8", "int64", "bool"):
            check(lambda x, n=number: f(x, n), array(a, (5,)))
            if name not in ("power", "left_shift", "right_shift"):
                check(lambda x, n=number: f(n, x), array(a, (5,)))
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0])
    check(f, odd[:, None], odd)


def test_out_where_and_dtype() -> None:
    x, y = array("float32", (2, 3)), array("float32", (3,), 4)

    def into(a: Any, b: Any) -> Any:
        c = a.copy()
        d = np.add(a, b, out=c)
        np.multiply(c, 2, out=c, where=a > 0)
        np.exp(b, c[0])
        return c, d

    def reduced(a: Any, b: Any) -> Any:
        c = np.empty(2, np.float32)
        np.sum(a, axis=1, out=c)
        return c, a.max(axis=0, initial=1.0, where=a > 0), np.sum(a, -1, None, None, True)

    def halves(a: Any, b: Any) -> Any:
        part, whole = np.empty_like(a), np.empty_like(a)
        np.modf(a, part, whole)
        return part, whole

    for fn in (into, reduced, halves):
        check(fn, x, y)
    check(lambda a: np.add(a, 1, dtype=np.float64), x)
    check(lambda a: np.subtract.outer(a, a), x)
    check(lambda a: np.add(a, 300), array("uint8", (3,)))


# -- folds: cases follow from axis and keepdims

FOLDS = ("sum", "prod", "any", "all", "max", "amax", "min", "amin", "mean", "var", "std", "ptp", "count_nonzero",
         "median", "nanmedian", "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd",
         "average")  # fmt: skip
AXES = (None, 0, -1, (0, -1))


@pytest.mark.parametrize("name", FOLDS)
def test_fold(name: str) -> None:
    f = function(name)
    for dtype, shape, axis, keepdims in squares(DTYPES, SHAPES, AXES, (False, True)):
        if (name == "median" and 0 in shape) or (axis != 0 and dtype not in ("float32", "int8")):
            continue
        x = array(dtype, shape)
        if name.startswith("nan") and dtype.startswith("float") and x.size > 2:
            x.reshape(-1)[::2] = np.nan
        check(lambda a, k=keepdims, i=axis: f(a, axis=i, keepdims=k), x, ulps=32)


PICKS = ("argmax", "argmin", "nanargmax", "nanargmin")


@pytest.mark.parametrize("name", PICKS)
def test_pick(name: str) -> None:
    f = function(name)
    for dtype, shape, axis, keepdims in squares(DTYPES, SHAPES, (None, 0, -1), (False, True)):
        x = array(dtype, shape)
        if name.startswith("nan") and dtype.startswith("float") and x.size > 2:
            x.reshape(-1)[[0, -2]] = np.nan
        nothing = name.startswith("nan") and x.size > 0 and np.isnan(x).all(axis if shape else None).any()
        if (dtype != "bool" or np.prod(shape)) and not nothing:
            check(lambda a, k=keepdims, i=axis: f(a, axis=i, keepdims=k), x)


SCANS = ("cumsum", "cumprod", "cumulative_sum", "cumulative_prod", "nancumsum", "nancumprod", "sort", "argsort")


@pytest.mark.parametrize("name", SCANS)
def test_scan(name: str) -> None:
    f = function(name)
    more = {"kind": "stable"} if name == "argsort" else {}
    for dtype, shape, axis in squares(DTYPES, SHAPES, (None, 0, -1, 1)):
        check(lambda a, i=axis: f(a, axis=i, **more), array(dtype, shape), ulps=32)


@pytest.mark.parametrize("name", ["add.reduce", "multiply.reduce", "maximum.reduce", "minimum.reduce",
                                  "logical_or.reduce", "logical_and.reduce", "add.accumulate",
                                  "multiply.accumulate", "maximum.accumulate", "minimum.accumulate",
                                  "logical_or.accumulate", "logical_and.accumulate", "logical_xor.reduce",
                                  "subtract.reduce"])  # fmt: skip
def test_ufunc_methods(name: str) -> None:
    ufunc, method = name.split(".")
    f = getattr(getattr(np, ufunc), method)
    for dtype, shape in itertools.product(DTYPES, ((2, 3), (1,), (3, 1), (2, 3, 4))):
        check(f, array(dtype, shape))
        check(lambda a: f(a, axis=-1), array(dtype, shape))


JOINED = {"bitwise_and": "biu", "bitwise_or": "biu", "bitwise_xor": "biu", "logaddexp": "f", "logaddexp2": "f",
          "hypot": "f"}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_reductions_by_pairs(name: str) -> None:
    f = getattr(np, name).reduce
    for dtype, shape in itertools.product(DTYPES, ((2, 3), (1,), (7, 1), (2, 5, 4), (0, 3))):
        if np.dtype(dtype).kind in JOINED[name]:
            check(f, array(dtype, shape), ulps=64)
            check(lambda a: f(a, axis=-1, keepdims=True), array(dtype, shape), ulps=64)
            check(lambda a: f(a, axis=None), array(dtype, shape), ulps=64)


# -- everything else: calls on one or two arrays, over shapes and dtypes

x23, x5, x234, x33 = (2, 3), (5,), (2, 3, 4), (3, 3)
L = np.linalg
CALLS: dict[str, list[tuple[Case, tuple[tuple[int, ...], ...]]]] = {
    "where": [(lambda a, b: np.where(a > 0, a, b), (x23, (3,))), (lambda a: np.where(a, 1, 2.5), (x23,))],
    "clip": [
        (lambda a: np.clip(a, 0, 2), (x23,)),
        (lambda a: a.clip(max=1), (x23,)),
        (lambda a, b: np.clip(a, None, b), (x23, (3,))),
        (lambda a: np.clip(a, min=1), (x5,)),
    ],
    "round": [
        (np.round, (x23,)),
        (lambda a: a.round(1), (x23,)),
        (lambda a: np.round(a.astype(np.float32), -1), (x23,)),
    ],
    "around": [(np.around, (x23,))],
    "fix": [(np.fix, (x23,))],
    "sinc": [(np.sinc, (x23,))],
    "nan_to_num": [(lambda a: np.nan_to_num(a / np.abs(a), posinf=3.0), (x23,)), (np.nan_to_num, (x23,))],
    "select": [(lambda a: np.select([a > 1, a > 0], [a, -a], 7), (x23,))],
    "astype": [
        (lambda a: a.astype(np.float16), (x23,)),
        (lambda a: np.astype(a, np.int32), (x23,)),
        (lambda a: np.float64(a), (x23,)),
    ],
    "real": [(np.real, (x23,)), (lambda a: a.real, (x5,))],
    "real_if_close": [(np.real_if_close, (x23,))],
    "imag": [(np.imag, (x23,)), (lambda a: a.imag, ((),))],
    "sum": [(lambda a: a.sum(dtype=np.float32), (x23,)), (lambda a: np.sum(a, where=a > 0), (x23,))],
    "linalg.norm": [
        (L.norm, (x23,)),
        (L.norm, (x234,)),
        (lambda a: L.norm(a, axis=-1, keepdims=True), (x234,)),
        *((lambda a, o=o: L.norm(a, o, axis=1), (x23,)) for o in (0, 1, 2, 3, np.inf, -np.inf)),
        *((lambda a, o=o: L.norm(a, o), (x33,)) for o in ("fro", 1, -1, np.inf, -np.inf)),
    ],
    "linalg.vector_norm": [(L.vector_norm, (x23,)), (lambda a: L.vector_norm(a, axis=0, ord=1), (x23,))],
    "linalg.matrix_norm": [(L.matrix_norm, (x234,)), (lambda a: L.matrix_norm(a, ord=1, keepdims=True), (x234,))],
    "trapezoid": [(np.trapezoid, (x23,)), (lambda a, b: np.trapezoid(a, b, axis=0), ((3, 2), (3,)))],
    "diff": [
        (np.diff, (x23,)),
        (lambda a: np.diff(a, 2, axis=0), ((4, 2),)),
        (np.diff, ((1,),)),
        (lambda a: np.diff(a, prepend=0, append=a[-1:]), (x5,)),
    ],
    "median": [(lambda a: np.median(np.where(a > 2, np.nan, a), axis=0), (x234,))],
    "quantile": [
        (lambda a: np.quantile(a, 0.3, axis=-1), (x234,)),
        (lambda a: np.quantile(a, [0.1, 0.9]), (x23,)),
        (lambda a: np.quantile(a, 1, axis=0), (x23,)),
        (lambda a: np.quantile(a, [0, 1]), (x23,)),
        (lambda a: np.quantile(a, [], axis=1), (x23,)),
        (lambda a: np.quantile(a, 1.0, axis=(0, 1), keepdims=True), (x234,)),
    ],
    "percentile": [(lambda a: np.percentile(a, 70, axis=0), (x23,)), (lambda a: np.percentile(a, 101), (x23,))],
    "nanquantile": [
        (lambda a, q=q, k=k: np.nanquantile(np.where(a > 2, np.nan, a), q, **k), (x234,))
        for q in (0.3, 0.0, 1, [0.1, 0.9])
        for k in ({}, {"axis": 0}, {"axis": (0, -1), "keepdims": True})
    ]
    + [(lambda a: np.nanquantile(a, 0.4, axis=1), (x23,)), (lambda a: np.nanquantile(a, 1.5), (x23,))],
    "nanpercentile": [
        (lambda a: np.nanpercentile(np.where(a > 2, a.dtype.type(0) / 0, a).astype(a.dtype), 30, axis=0), (x234,)),
        (lambda a: np.nanpercentile(a, [30, 70]), (x23,)),
    ],
    "searchsorted": [
        (lambda a, b: np.searchsorted(np.sort(a), b), (x5, x23)),
        (lambda a, b: np.sort(a).searchsorted(b, side="right"), (x5, ())),
    ],
    "matmul": [
        (np.matmul, s)
        for s in (
            (x23, (3, 2)),
            ((3,), (3,)),
            (x234, (4, 2)),
            ((4,), (2, 4, 3)),
            ((2, 0), (0, 3)),
            ((1, 2, 3), (5, 3, 1)),
        )
    ]
    + [(lambda a, b: a @ b, (x23, (3,)))],
    "linalg.matmul": [(L.matmul, (x23, (3, 2)))],
    "dot": [(np.dot, s) for s in ((x23, (3, 2)), ((3,), (3,)), ((), x23), (x234, (4,)), (x23, (2, 3, 2)))]
    + [(lambda a, b: a.dot(b), (x23, (3,)))],
    "inner": [(np.inner, s) for s in ((x23, (4, 3)), ((3,), (3,)), ((), x23))],
    "vdot": [(np.vdot, (x23, x23))],
    "outer": [(np.outer, (x23, x5)), (np.outer, ((), (0,)))],
    "linalg.outer": [(L.outer, ((2,), x5))],
    "vecdot": [(np.vecdot, (x23, (3,))), (lambda a, b: np.vecdot(a, b, axis=0), (x23, x23))],
    "linalg.vecdot": [(L.vecdot, (x23, (3,)))],
    "matvec": [(np.matvec, (x234, (4,)))],
    "vecmat": [(np.vecmat, (x23, (2, 3, 4)))],
    "tensordot": [
        (lambda a, b: np.tensordot(a, b, 1), (x23, (3, 4))),
        (lambda a, b: np.tensordot(a, b, 0), (x23, x5)),
        (lambda a, b: np.tensordot(a, b, ((0, 2), (1, 0))), (x234, (4, 2, 3))),
    ],
    "linalg.tensordot": [(lambda a, b: L.tensordot(a, b, axes=1), (x23, (3, 4)))],
    "kron": [(np.kron, (x23, (2,))), (np.kron, (x23, (3, 2)))],
    "einsum": [
        (lambda a, b: np.einsum(" ij, jk -> ki", a, b), (x23, (3, 4))),
        (lambda a: np.einsum("ii", a), (x33,)),
        (lambda a: np.einsum("iij->ij", a), ((3, 3, 2),)),
        (lambda a: np.einsum("ij->", a), (x23,)),
        (lambda a, b: np.einsum("...ij,...jk", a, b), (x234, (4, 2))),
        (lambda a, b: np.einsum("i...,i", a, b), (x23, (2,))),
        (lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c), (x23, (3, 4), (4, 2))),
        (lambda a, b, c: np.einsum("ia,ja,ka->ijk", a, b, c), (x23, (4, 3), (1, 3))),
    ],
    "linalg.matrix_power": [(lambda a, n=n: L.matrix_power(a, n), (x33,)) for n in (0, 1, 2, 3, 5)],
    "linalg.multi_dot": [(lambda a, b, c: L.multi_dot([a, b, c]), (x23, (3, 4), (4,)))],
    "linalg.solve": [(lambda a, b: L.solve(a + 9 * np.eye(3, dtype=a.dtype), b), (x33, (3,)))],
    "linalg.inv": [(lambda a: L.inv(a + 9 * np.eye(3, dtype=a.dtype)), (x33,)), (L.inv, (x23,))],
    "linalg.det": [(L.det, (x33,)), (L.det, ((2, 3, 3),)), (L.det, (x23,))],
    "linalg.slogdet": [(lambda a: L.slogdet(a + 9 * np.eye(3, dtype=a.dtype)), (x33,))],
    "linalg.cholesky": [(lambda a: L.cholesky(a + 19 * np.eye(3, dtype=a.dtype)), (x33,)), (L.cholesky, (x33,))],
    "cross": [(np.cross, (x23, (3,))), (lambda a, b: np.cross(a, b, axis=0), ((3, 2), (3, 2)))],
    "linalg.cross": [(L.cross, (x23, x23))],
    "convolve": [
        (lambda a, b, m=m: np.convolve(a, b, m), s)
        for m in ("full", "same", "valid")
        for s in ((x5, (3,)), ((2,), x5), (x5, (4,)), ((1,), (1,)))
    ],
    "correlate": [
        (lambda a, b, m=m: np.correlate(a, b, m), s)
        for m in ("full", "same", "valid")
        for s in ((x5, (3,)), (x5, (4,)), ((2,), x5))
    ],
    "polyval": [(lambda a, b: np.polyval(a, b), ((3,), x23))],
    "transpose": [
        (np.transpose, (x234,)),
        (lambda a: a.transpose(1, 0, 2), (x234,)),
        (lambda a: a.T, ((),)),
        (lambda a: a.transpose((-1, 0, 1)), (x234,)),
    ],
    "permute_dims": [(lambda a: np.permute_dims(a, (2, 0, 1)), (x234,))],
    "swapaxes": [(lambda a: np.swapaxes(a, 0, -1), (x234,)), (lambda a: a.swapaxes(0, 1), (x23,))],
    "moveaxis": [(lambda a: np.moveaxis(a, 0, -1), (x234,)), (lambda a: np.moveaxis(a, (0, 1), (-1, 0)), (x234,))],
    "rollaxis": [(lambda a: np.rollaxis(a, 2), (x234,)), (lambda a: np.rollaxis(a, 0, 2), (x234,))],
    "matrix_transpose": [(np.matrix_transpose, (x234,)), (lambda a: a.mT, (x23,))],
    "linalg.matrix_transpose": [(L.matrix_transpose, (x234,))],
    "reshape": [
        (lambda a: np.reshape(a, (3, -1)), (x23,)),
        (lambda a: a.reshape(-1), (x234,)),
        (lambda a: a.reshape(4, 6), (x234,)),
        (lambda a: a.reshape((1, 6, 1), order="F"), (x23,)),
        (lambda a: np.reshape(a, (-1, 2), "F"), (x234,)),
        (lambda a: a.reshape(0, 5), ((1, 0, 2),)),
        (lambda a: a.reshape(4), (x23,)),
        (lambda a: a.reshape(()), ((1,),)),
    ],
    "ravel": [(np.ravel, (x234,)), (lambda a: a.ravel(order="F"), (x23,)), (lambda a: a.flatten(), (x23,))],
    "expand_dims": [(lambda a: np.expand_dims(a, (0, -1)), (x23,)), (lambda a: np.expand_dims(a, 1), ((0,),))],
    "squeeze": [(np.squeeze, ((1, 2, 1),)), (lambda a: a.squeeze(-1), ((2, 1),)), (lambda a: np.squeeze(a, 0), (x23,))],
    "broadcast_to": [
        (lambda a: np.broadcast_to(a, (4, 2, 3)), (x23,)),
        (lambda a: np.broadcast_to(a, 0), ((1,),)),
        (lambda a: np.broadcast_to(a, (2, 2)), (x23,)),
    ],
    "broadcast_arrays": [(lambda a, b: np.broadcast_arrays(a, b), ((3, 1), (4,)))],
    **{f"atleast_{n}d": [(getattr(np, f"atleast_{n}d"), (s,)) for s in ((), x5, x23, x234)] for n in (1, 2, 3)},
    "flip": [
        (np.flip, (x23,)),
        (lambda a: np.flip(a, -1), (x234,)),
        (lambda a: np.flip(a, (0, 1)), (x234,)),
        (np.flip, ((0,),)),
    ],
    "fliplr": [(np.fliplr, (x23,))],
    "flipud": [(np.flipud, (x23,))],
    "rot90": [(lambda a, k=k: np.rot90(a, k), (x23,)) for k in range(-1, 5)]
    + [(lambda a: np.rot90(a, 1, (1, 2)), (x234,))],
    "diagonal": [(lambda a, k=k: np.diagonal(a, k), (x23,)) for k in (-3, -1, 0, 1, 2)]
    + [(lambda a: a.diagonal(0, -1, 0), (x234,)), (np.diagonal, ((1, 1),))],
    "linalg.diagonal": [(lambda a: L.diagonal(a, offset=1), (x234,))],
    "trace": [(np.trace, (x23,)), (lambda a: a.trace(1, 1, 2), (x234,))],
    "linalg.trace": [(L.trace, (x234,))],
    "sliding_window_view": [
        (lambda a: np.lib.stride_tricks.sliding_window_view(a, 2), (x5,)),
        (lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 3)), ((4, 5),)),
        (lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=-1), (x23,)),
    ],
    "concatenate": [
        (lambda a, b: np.concatenate([a, b]), (x23, (1, 3))),
        (lambda a: np.concatenate([a, a], -1), (x23,)),
        (lambda a, b: np.concatenate((a, b), axis=None), (x23, x5)),
        (lambda a, b: np.concatenate([a, np.ones((1, 3), np.int8), b]), (x23, (0, 3))),
        (lambda a, b: np.concatenate([a, b], dtype=np.float64), (x5, (1,))),
    ],
    "concat": [(lambda a, b: np.concat([a, b], axis=1), (x23, (2, 1)))],
    "stack": [
        (lambda a, b: np.stack([a, b], axis=-1), (x23, x23)),
        (lambda a, b: np.stack((a, b)), ((), ())),
        (lambda a, b: np.array([a, b]), (x5, x5)),
        (lambda a, b: np.array([[a[0], 1], [b, 2]]), (x5, ())),
    ],
    "vstack": [(lambda a, b: np.vstack([a, b]), (x23, (3,)))],
    "hstack": [(lambda a, b: np.hstack([a, b]), (x23, (2, 1))), (lambda a, b: np.hstack([a, b]), (x5, ()))],
    "dstack": [(lambda a, b: np.dstack([a, b]), (x23, x23)), (lambda a: np.dstack([a, a]), (x5,))],
    "column_stack": [(lambda a, b: np.column_stack([a, b]), ((2,), x23))],
    "append": [(lambda a, b: np.append(a, b), (x23, x5)), (lambda a, b: np.append(a, b, 0), (x23, (1, 3)))],
    "block": [
        (lambda a, b: np.block([[a, b], [b, a]]), (x23, (2, 3))),
        (lambda a: np.block([a, a]), (x5,)),
        (lambda a, b: np.block([[a], [b]]), (x23, (3,))),
    ],
    "split": [
        (lambda a: np.split(a, 3, axis=1), (x23,)),
        (lambda a: np.split(a, [1, 3, 9]), (x5,)),
        (lambda a: np.split(a, 2), (x5,)),
    ],
    "array_split": [(lambda a: np.array_split(a, 3), (x5,)), (lambda a: np.array_split(a, 3, -1), ((1, 0),))],
    "vsplit": [(lambda a: np.vsplit(a, 2), (x23,))],
    "hsplit": [(lambda a: np.hsplit(a, [1]), (x23,)), (lambda a: np.hsplit(a, [1]), (x5,))],
    "dsplit": [(lambda a: np.dsplit(a, 2), (x234,))],
    "unstack": [(lambda a: np.unstack(a, axis=-1), (x23,)), (lambda a: list(a), (x23,))],
    "tile": [
        (lambda a: np.tile(a, 2), (x23,)),
        (lambda a: np.tile(a, (2, 1, 3)), (x23,)),
        (lambda a: np.tile(a, 0), (x5,)),
    ],
    "repeat": [
        (lambda a: np.repeat(a, 2), (x23,)),
        (lambda a: a.repeat(3, axis=-1), (x23,)),
        (lambda a: np.repeat(a, [1, 0, 2], axis=1), (x23,)),
    ],
    "roll": [
        (lambda a: np.roll(a, 1), (x23,)),
        (lambda a: np.roll(a, -2, axis=1), (x23,)),
        (lambda a: np.roll(a, 1), ((0,),)),
        (lambda a: np.roll(a, (1, 2), (0, 1)), (x23,)),
    ],
    "pad": [
        (lambda a, m=m: np.pad(a, ((1, 2), (0, 3)), m), (x23,))
        for m in ("constant", "edge", "reflect", "symmetric", "wrap")
    ]
    + [
        (lambda a, m=m, w=w: np.pad(a, w, m), (shape,))
        for m in ("edge", "reflect", "symmetric", "wrap")
        for w, shape in (((4, 3), x5), (7, x5), (3, (1,)), ((5, 0), (2,)), ((0, 9), (3,)), (((0, 0), (2, 1)), x23))
    ]
    + [(lambda a: np.pad(a, 2, "reflect", reflect_type="even"), (x5,))]
    + [(lambda a: np.pad(a, 1, constant_values=3), (x5,)), (lambda a: np.pad(a, {-1: (1, 0)}), (x23,))],
    "delete": [
        (lambda a: np.delete(a, 1, axis=1), (x23,)),
        (lambda a: np.delete(a, [0, 3]), (x5,)),
        (lambda a: np.delete(a, slice(1, 3)), (x5,)),
    ],
    "insert": [
        (lambda a, b: np.insert(a, 2, b), (x5, ())),
        (lambda a: np.insert(a, -1, 7, axis=1), (x23,)),
        (lambda a, b: np.insert(a, 1, b, axis=0), (x23, (3,))),
    ],
    "zeros_like": [(lambda a: np.zeros_like(a), (x23,)), (lambda a: np.zeros_like(a, dtype=float, shape=(2,)), (x23,))],
    "ones_like": [(lambda a: np.ones_like(a), (x23,))],
    "empty_like": [(lambda a: np.empty_like(a).shape[0] * a, (x23,))],
    "full_like": [(lambda a: np.full_like(a, 3), (x23,)), (lambda a, b: np.full_like(a, b), (x23, ()))],
    "copy": [
        (np.copy, (x23,)),
        (lambda a: a.copy(), ((),)),
        (lambda a: np.array(a), (x23,)),
        (lambda a: np.asarray(a, dtype=np.float32), (x23,)),
        (lambda a: np.ascontiguousarray(a.T), (x23,)),
        (lambda a: np.asfortranarray(a), (x23,)),
        (lambda a: np.asfortranarray(a, dtype=np.float32), ((),)),
    ],
    "tril": [(lambda a, k=k: np.tril(a, k), (x23,)) for k in (-1, 0, 1)] + [(np.tril, (x234,)), (np.tril, (x5,))],
    "triu": [(lambda a, k=k: np.triu(a, k), (x23,)) for k in (-1, 0, 1)] + [(np.triu, (x234,))],
    "diag": [(lambda a, k=k: np.diag(a, k), s) for k in (-1, 0, 2) for s in (x5, x23, (1,))],
    "diagflat": [(lambda a: np.diagflat(a, 1), (x23,))],
    "meshgrid": [
        (lambda a, b: np.meshgrid(a, b), ((3,), (2,))),
        (lambda a, b: np.meshgrid(a, b, indexing="ij"), ((3,), (2,))),
        (lambda a, b: np.meshgrid(a, b, sparse=True), ((3,), (2,))),
        (lambda a: np.meshgrid(a), (x5,)),
    ],
    "eye": [(lambda a, k=k: a + np.eye(2, 3, k), (x23,)) for k in (-1, 0, 2)],
    "identity": [(lambda a: a * np.identity(3), ((3, 3),))],
    "ix_": [(lambda a: a[np.ix_([1, 0], [2, 1])], (x23,)), (lambda a: a[:, np.ix_([1, 0], [2])[1][0]], (x23,))],
    "vander": [(lambda a: np.vander(a), ((3,),)), (lambda a: np.vander(a, 2, True), ((3,),))],
    "take": [
        (lambda a: np.take(a, [0, -1, 1], axis=1), (x23,)),
        (lambda a: a.take(4), (x23,)),
        (lambda a: np.take(a, [[0, 9]], mode="wrap"), (x5,)),
        (lambda a: np.take(a, [-4, 9], 0, mode="clip"), (x5,)),
        (lambda a: np.take(a, [], axis=0), (x5,)),
        (lambda a: np.take(a, [7]), (x5,)),
    ],
    "take_along_axis": [
        (lambda a: np.take_along_axis(a, np.argsort(a, axis=0, kind="stable"), 0), (x23,)),
        (lambda a: np.take_along_axis(a, np.array([[1], [0]]), -1), (x23,)),
    ],
    "compress": [
        (lambda a: np.compress([True, False, True], a, axis=1), (x23,)),
        (lambda a: a.compress([0, 1]), (x5,)),
    ],
    "choose": [(lambda a, b: np.choose((a > 0).astype(int), [a, b]), (x23, (3,)))],
    "resize": [
        (lambda a, n=n: np.resize(a, n), (s,))
        for n in (7, (2, 4), (), 0, (3, 0), (2, -1))
        for s in (x23, (), (0,), (1,))
    ],
    "array_equiv": [(np.array_equiv, (x23, x23)), (np.array_equiv, (x23, (3,))), (np.array_equiv, (x23, (2,)))],
    "apply_over_axes": [
        (lambda a: np.apply_over_axes(np.sum, a, [0, 2]), (x234,)),
        (lambda a: np.apply_over_axes(np.max, a, -1), (x23,)),
        (lambda a: np.apply_over_axes(np.cumsum, a, (0,)), (x23,)),
    ],
    "histogram": [
        (lambda a: np.histogram(a, 4, (-1, 3)), (x234,)),
        (lambda a: np.histogram(a, 4, (-1.5, 3)), ((0,),)),
        (lambda a: np.histogram(a, range=(0.0, 0.0)), ((),)),
        (lambda a, b: np.histogram(a, 3, (-1, 5), weights=b), (x23, x23)),
        (lambda a, b: np.histogram(a, bins=3, range=(-1, 5), weights=b, density=True), (x23, x23)),
        (lambda a: np.histogram(a, [-1, 0, 0.5, 3]), (x234,)),
        (lambda a: np.histogram(a, np.array([0, 1, 1, 2, 4]), density=True), (x23,)),
        (lambda a, b: np.histogram(a, [-1, 1, 4], weights=np.abs(b)), (x23, x23)),
        (lambda a: np.histogram(a, [1, 0]), (x23,)),
        (lambda a: np.histogram(a, [1]), (x23,)),
        (lambda a: np.histogram(a, 0, (0, 1)), (x23,)),
        (lambda a, b: np.histogram(a, 2, (0, 1), weights=b), (x23, x5)),
        (lambda a, b: np.histogram(a, np.sort(b)), (x23, x5)),
    ],
    "histogram_bin_edges": [
        (lambda a: np.histogram_bin_edges(a, 5, (0, 2)), (x23,)),
        (lambda a: np.histogram_bin_edges(a, [0, 1, 4]), (x23,)),
    ],
    "digitize": [
        (lambda a, e=e, r=r: np.digitize(a, e, right=r), (x23,))
        for e in ([-1, 0.5, 0.5, 3], [4, 1, 0], [2, 2], [0.5], np.zeros(0), [1, 3, 2])
        for r in (False, True)
    ]
    + [(lambda a: np.digitize(a, [0, 1]), ((),))],
    "bincount": [
        (lambda a: np.bincount(a.astype(np.uint8), minlength=300), (x23,)),
        (lambda a: np.bincount(np.abs(a).astype(np.uint8), minlength=256), (x5,)),
        (lambda a, b: np.bincount(a.astype(bool), b, 2), (x5, x5)),
        (lambda a, b: np.bincount([3, 0, 1, 0, 3], b), (x5, x5)),
        (lambda a: np.bincount(a.astype(np.uint8), minlength=3), ((0,),)),
        (lambda a: np.bincount(a.astype(np.uint8), minlength=-3), (x5,)),
        (lambda a: np.bincount(a.astype(np.uint8), np.ones(3), 300), (x5,)),
    ],
    "interp": [
        (lambda a: np.interp(a, [-1, 0, 2, 3], [1.0, 5, 2, -4]), (x23,)),
        (lambda a: np.interp(a, [0], [5], left=-1), (x5,)),
        (lambda a, b: np.interp(a, np.arange(5), b, 7, 8), (x234, x5)),
        (lambda a, b: np.interp(a, np.cumsum(np.abs(b) + 1), b), ((), x5)),
        (lambda a, b: np.interp(a, [0, 1, 5, -3, 2.5], b, period=4), (x23, x5)),
        (lambda a, b: np.interp(a, b, b, period=-3), (x23, ())),
        (lambda a, b: np.interp(a, [1, 2, 3], b), (x23, x5)),
        (lambda a: np.interp(a, [], []), (x23,)),
        (lambda a: np.interp(a, [0, 1], [0, 1], period=0), (x23,)),
    ],
    "gradient": [
        (np.gradient, (x5,)),
        (np.gradient, (x234,)),
        (lambda a: np.gradient(a, 2.0, axis=1), (x234,)),
        (lambda a: np.gradient(a, 2, edge_order=2), (x5,)),
        (lambda a: np.gradient(a, np.array([0, 1, 3, 4, 9]), edge_order=2), (x5,)),
        (lambda a: np.gradient(a, [0.0, 0.5, 1, 1.5, 2]), (x5,)),
        (lambda a: np.gradient(a, 3, [0.0, 0.5, 2], axis=(-2, 1)), ((4, 3),)),
        (lambda a: np.gradient(a, 3, [0.0, 0.5, 2], axis=(0, 1)), ((4, 3),)),
        (lambda a, b: np.gradient(a, np.cumsum(np.abs(b) + 1)), (x5, x5)),
        (lambda a: np.gradient(a, np.float64(0.5), axis=0), (x23,)),
        (np.gradient, ((1,),)),
        (lambda a: np.gradient(a, edge_order=2), ((2,),)),
        (lambda a: np.gradient(a, 1, 2, 3), (x23,)),
        (lambda a: np.gradient(a, [1, 2]), (x5,)),
    ],
    "ediff1d": [
        (np.ediff1d, (x23,)),
        (np.ediff1d, ((),)),
        (np.ediff1d, ((0,),)),
        (lambda a: np.ediff1d(a, to_end=[9, 8], to_begin=-1), (x5,)),
        (lambda a, b: np.ediff1d(a, b), (x5, x23)),
        (lambda a: np.ediff1d(a, 1.5), (x5,)),
    ],
    "unwrap": [
        (lambda a: np.unwrap(a * 3), (x5,)),
        (lambda a: np.unwrap(a * 3, axis=0), (x234,)),
        (lambda a: np.unwrap(a, 1.5, period=3), (x23,)),
        (lambda a: np.unwrap(a, period=4), (x5,)),
        (lambda a: np.unwrap(a, period=3), (x5,)),
        (np.unwrap, ((),)),
        (np.unwrap, ((0,),)),
    ],
    "piecewise": [
        (lambda a: np.piecewise(a, [a < 0, a > 1], [-1, lambda v: 2 * v]), (x23,)),
        (lambda a: np.piecewise(a, [a < 0, a > 1], [lambda v, k: np.abs(v), lambda v, k: v * k, 7], 3), (x23,)),
        (lambda a: np.piecewise(a, a > 0, [lambda v: v + 1]), (x5,)),
        (lambda a: np.piecewise(a, [a > 0], [lambda v: v + 1, lambda v: -v]), ((),)),
        (lambda a: np.piecewise(a, a > 0, [3, 5]), ((),)),
        (lambda a: np.piecewise(a, [a > 0], [1, 2, 3]), (x5,)),
        (lambda a: np.piecewise(a, [[True, False, True, False, True]], [1, np.abs]), (x5,)),
        (lambda a: np.piecewise(a, [True, False, True, False, True], [1, np.abs]), (x5,)),
        (lambda a: np.piecewise(a, [a > 0, a > 1], [1, 2]), ((0,),)),
    ],
    "cov": [
        (np.cov, (x23,)),
        (np.cov, (x5,)),
        (lambda a, b: np.cov(a, b), (x5, x5)),
        (lambda a, b: np.cov(a, b, rowvar=False), ((4, 2), (4, 3))),
        (lambda a: np.cov(a, bias=True), (x23,)),
        (lambda a: np.cov(a, ddof=0, fweights=[1, 2, 3]), (x23,)),
        (lambda a: np.cov(a, fweights=[1, 2, 3], aweights=[0.5, 1, 2]), (x23,)),
        (lambda a, b: np.cov(a, aweights=np.abs(b) + 1, dtype=np.float32), (x23, (3,))),
        (lambda a: np.cov(a), ((2, 1),)),
        (lambda a: np.cov(a), ((0, 3),)),
        (np.cov, (x234,)),
        (lambda a: np.cov(a, fweights=[1, -2, 3]), (x23,)),
        (lambda a: np.cov(a, fweights=[1, 1.5, 3]), (x23,)),
        (lambda a: np.cov(a, ddof=1.5), (x23,)),
    ],
    "corrcoef": [
        (lambda a: np.corrcoef(a), (x234[:2],)),
        (lambda a: np.corrcoef(a), ((3, 5),)),
        (lambda a, b: np.corrcoef(a, b, rowvar=False), ((5, 1), (5, 2))),
        (np.corrcoef, (x5,)),
    ],
    "partition": [
        (lambda a: np.sort(np.partition(a, 2)[:2]), (x5,)),
        (lambda a: np.partition(a, 1, axis=0)[1], (x23,)),
        (lambda a: np.partition(a, (0, -1), axis=None)[[0, -1]], (x23,)),
        (lambda a: np.partition(a, 5), (x5,)),
        (lambda a: np.partition(a, -6), (x5,)),
        (lambda a: np.partition(a, 0), ((),)),
        (lambda a: np.partition(a, 0), ((0,),)),
        (lambda a: np.partition(a, 1.0), (x5,)),
    ],
    "argpartition": [
        (lambda a: np.take_along_axis(a, np.argpartition(a, 1, 0), 0)[1], (x23,)),
        (lambda a: a[a.argpartition(3)[3]], (x5,)),
        (lambda a: np.argpartition(a, 0), ((),)),
        (lambda a: np.argpartition(a, 9, axis=None), (x23,)),
    ],
    "unravel_index": [
        (lambda a: np.unravel_index(np.argmax(a), a.shape), (x234,)),
        (lambda a: np.unravel_index(np.abs(a.astype(np.int8)), (2, 3, 4)), (x23,)),
        (lambda a: np.unravel_index(np.abs(a.astype(np.int8)), (2, 3, 4), order="F"), (x23,)),
        (lambda a: np.unravel_index(a.astype(int) % 30, 30), (x5,)),
        (lambda a: np.unravel_index(a, ()), (x5,)),
        (lambda a: np.unravel_index(a > 0, (1, 2)), (x5,)),
    ],
    "ravel_multi_index": [
        (lambda a, b: np.ravel_multi_index(((a > 0).astype(int), (b > 0).astype(np.uint8)), (2, 3)), (x23, x23)),
        (lambda a, b: np.ravel_multi_index((a > 0, [1, 0, 2]), (2, 3), order="F"), (x23, x23)),
        (lambda a: np.ravel_multi_index((a.astype(int), a.astype(int)), (2, 3), mode="wrap"), (x5,)),
        (lambda a: np.ravel_multi_index((a.astype(int), a.astype(int)), (2, 3), mode=("wrap", "clip")), (x5,)),
        (lambda a: np.ravel_multi_index((a > 0,), (2, 3)), (x5,)),
        (lambda a: np.ravel_multi_index((a > 0, [5]), (2, 3)), (x5,)),
    ],
    "tril_indices_from": [
        (lambda a: a[np.tril_indices_from(a)], (x23,)),
        (lambda a: a[np.tril_indices_from(a, k=-1)], (x33,)),
        (np.tril_indices_from, (x5,)),
    ],
    "triu_indices_from": [(lambda a: a[np.triu_indices_from(a, 1)], (x23,)), (np.triu_indices_from, (x234,))],
    "diag_indices_from": [(lambda a: a[np.diag_indices_from(a)], (x33,)), (np.diag_indices_from, (x23,))],
    "packbits": [
        (lambda a: np.packbits(a > 0), (x234,)),
        (np.packbits, (x23,)),
        (lambda a: np.packbits(a > 0, axis=-1, bitorder="little"), (x234,)),
        (lambda a: np.packbits(a > 0, axis=0), ((2, 0),)),
        (lambda a: np.packbits(a > 0, axis=1), ((2, 0),)),
        (lambda a: np.packbits(a > 0), ((),)),
    ],
    "unpackbits": [
        (lambda a: np.unpackbits(a.astype(np.uint8)), (x23,)),
        (lambda a: np.unpackbits(a.astype(np.uint8), axis=0, bitorder="little"), (x23,)),
        (lambda a: np.unpackbits(a.astype(np.uint8), axis=1, count=20), (x23,)),
        (lambda a: np.unpackbits(a.astype(np.uint8), count=40), (x23,)),
        (lambda a: np.unpackbits(a.astype(np.uint8), count=60), (x23,)),
        (lambda a: np.unpackbits(a.astype(np.uint8), count=-3), (x23,)),
        (lambda a: np.unpackbits(a.astype(np.uint8), count=-99), (x23,)),
        (np.unpackbits, (x5,)),
    ],
    "polyadd": [(np.polyadd, (x5, (3,))), (np.polyadd, ((2,), x5)), (np.polyadd, ((), x5))],
    "polysub": [(np.polysub, (x5, (3,))), (np.polysub, ((2,), x5)), (np.polysub, (x5, x5))],
    "polyder": [(lambda a, m=m: np.polyder(a, m), (s,)) for m in (0, 1, 2, -1) for s in (x5, (1,), (0,))],
    "poly": [(np.poly, (s,)) for s in (x5, (1,))],
    "polyint": [(lambda a, m=m: np.polyint(a, m), (s,)) for m in (0, 1, 2, -1) for s in (x5, (1,), (0,))]
    + [
        (lambda a: np.polyint(a, 2, k=[1, 2.5]), (x5,)),
        (lambda a, b: np.polyint(a, 2, b), (x5, (1,))),
        (lambda a: np.polyint(a, 3, [1, 2]), (x5,)),
    ],
    "isclose": [
        (lambda a, b: np.isclose(a, b), (x23, (3,))),
        (lambda a: np.isclose(a / 0, a / 0, equal_nan=True), (x5,)),
    ],
    "allclose": [(lambda a: np.allclose(a, a + 1e-7), (x23,))],
    "array_equal": [(lambda a, b: np.array_equal(a, b), (x23, x23))],
    "isin": [(lambda a: np.isin(a, [1, 2]), (x23,)), (lambda a, b: np.isin(a, b, invert=True), (x23, x5))],
    "isposinf": [(lambda a: np.isposinf(a / np.float32(0)), (x23,))],
    "isneginf": [(lambda a: np.isneginf(a / np.float32(0)), (x23,))],
    "isreal": [(np.isreal, (x23,))],
    "iscomplex": [(np.iscomplex, (x23,))],
    **{n: [(lambda a, n=n: a * getattr(np, n)(a), (x23,))] for n in ("isrealobj", "iscomplexobj", "ndim", "size")},
    "shape": [(lambda a: a * np.shape(a)[1] * len(a), (x23,))],
    "result_type": [(lambda a: np.ones(2, np.result_type(a, np.float32)) * a, ((2,),))],
    "can_cast": [(lambda a: a * np.can_cast(a, np.float32), ((2,),)), (lambda a: a * isinstance(a, np.ndarray), (x5,))],
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_call(name: str) -> None:
    for fn, shapes in CALLS[name]:
        for dtype in DTYPES:
            check(fn, *(array(dtype, s, i * 3) for i, s in enumerate(shapes)), ulps=64)


def fill(a: Any) -> Any:
    b = a.copy()
    b.fill(3)
    return b


def sort(a: Any) -> Any:
    b = a.copy()
    b.sort(axis=0)
    return b


def copyto(a: Any) -> Any:
    b = np.zeros_like(a)
    np.copyto(b, a, where=a > 0)
    np.putmask(b, a > 1, 5)
    return b


def fill_diagonal(a: Any) -> Any:
    b = a.copy()
    np.fill_diagonal(b, 7)
    return b


def partition(a: Any) -> Any:
    b = a.copy()
    b.partition(1, axis=0)
    return b


def at(name: str) -> Case:
    def model(a: Any) -> Any:
        b = a.copy()
        getattr(np, name).at(b, [0, 1, 0], a[1:])
        return b

    return model


def put(a: Any) -> Any:
    b, c = a.copy(), np.zeros_like(a)
    np.put(b, [0, -1, 0, 4], [7, 5, 3])
    c.put([-1, 9], a[0], mode="wrap")
    return b, c


def put_along_axis(a: Any) -> Any:
    b, c = a.copy(), a.copy()
    np.put_along_axis(b, np.argmax(a, axis=1, keepdims=True), 3, axis=1)
    np.put_along_axis(c, np.array([[0, -1, 1], [0, 0, 0]]), a, axis=0)
    return b, c


def place(a: Any) -> Any:
    b = a.copy()
    np.place(b, a > 0, [7, 5])
    return b


IN_PLACE = {"fill": fill, "sort": sort, "copyto": copyto, "putmask": copyto, "fill_diagonal": fill_diagonal,
            "partition": partition, "put": put, "put_along_axis": put_along_axis, "place": place,
            **{f"{n}.at": at(n) for n in ("add", "subtract", "maximum", "minimum")}}  # fmt: skip


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_in_place(name: str) -> None:
    for dtype in DTYPES:
        check(IN_PLACE[name], array(dtype, (2, 3)))


SPECIAL = {
    "special.softmax": lambda a: scipy.special.softmax(a, axis=-1),
    "special.log_softmax": lambda a: scipy.special.log_softmax(a, axis=0),
    "special.logsumexp": lambda a: scipy.special.logsumexp(a, axis=-1, keepdims=True),
}


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special(name: str) -> None:
    for dtype in ("float32", "float64", "int64"):
        for shape in ((2, 3), (1, 4), (5,)):
            check(SPECIAL[name], array(dtype, shape), ulps=64)


def cases() -> Iterator[str]:
    yield from itertools.chain(UNARY, BINARY, FOLDS, PICKS, SCANS, CALLS, IN_PLACE, SPECIAL)
    yield from ("add.reduce", "multiply.reduce", "maximum.reduce", "minimum.reduce", "logical_or.reduce")
    yield from ("logical_and.reduce", "add.accumulate", "multiply.accumulate", "maximum.accumulate")
    yield from ("minimum.accumulate", "logical_or.accumulate", "logical_and.accumulate", "logical_xor.reduce")
    yield "subtract.reduce"
    yield from (f"{name}.reduce" for name in JOINED)
    yield from ("linspace", "logspace", "geomspace", "apply_along_axis", "lexsort", "polymul", "polyfit", "view")  # of
    yield from ("linalg.lstsq", "linalg.pinv", "linalg.cond", "linalg.tensorsolve", "linalg.tensorinv")  # test_numerics
    yield from ("histogramdd", "histogram2d", "angle", "einsum_path", "fft.fftshift", "fft.ifftshift")  # test_numerics
    yield from ("ldexp", "fmax.reduce", "fmin.reduce", *(n for n in HANDLERS if n.endswith(".reduceat")))  # test_ufuncs


def test_every_handler_has_cases() -> None:
    own = {
        "array",
        "asarray",
        "asanyarray",
        "ascontiguousarray",
        "asfortranarray",
        "zeros",
        "ones",
        "empty",
        "full",
    }  # in CALLS of others
    named = {*UFUNCS, *HANDLERS, *CREATORS}
    assert named - set(cases()) - own == set()
    assert set(METHODS) - set(cases()) - {"conj", "flatten"} == set()


def test_an_array_that_was_made_outside_is_indexed_by_take() -> None:
    table = np.arange(12.0).reshape(4, 3)
    ids = np.array([[3, 0], [1, 1]])
    for axis, which in ((0, ids), (1, ids % 3)):
        traced = trace(lambda i, axis=axis: np.take(table, i, axis=axis), {"i": which})
        got = interpret(traced.graph, {**traced.inputs, **traced.tensors})
        assert np.array_equal(got["out"], np.take(table, which, axis=axis))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "f4", "f8", "int16"])
@pytest.mark.parametrize("fn", [
    lambda x, dtype: x.astype(dtype),
    lambda x, dtype: np.sum(x, dtype=dtype),
    lambda x, dtype: np.zeros_like(x, dtype=dtype) + np.ones_like(x, dtype),
    lambda x, dtype: np.concatenate([x, x], dtype=dtype, casting="unsafe"),
    lambda x, dtype: np.full_like(x, 3, dtype=dtype),
])  # fmt: skip
def test_a_dtype_is_what_numpy_takes_it_for(fn: Case, dtype: str) -> None:
    """NumPy's "i8" has eight bytes; 300 as an integer of eight bits is 44."""
    check(lambda x: fn(x, dtype), np.array([300.0, 0.0, 7.0]))
