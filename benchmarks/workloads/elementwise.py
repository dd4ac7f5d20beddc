"""Chains of element-wise functions: bound by memory when arrays are large, by the start of kernels when tiny."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

try:
    from scipy.special import erf
except ImportError:  # where plans are run, no model is
    erf = None

from benchmarks.workload import Arguments, Workload, generator, normal

ROUNDS = 16
"""Times four operations: 64."""


def gelu(x):
    """The exact form, by the error function."""
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_axb(x, a, b):
    """x (n, m), a and b (m,)."""
    return gelu(a * x + b)


def _gelu_arguments(n: int, m: int) -> Arguments:
    rng = generator()
    return {"x": normal(rng, n, m), "a": normal(rng, m), "b": normal(rng, m)}


def _gelu_torch() -> Callable[..., Any]:
    import torch

    return lambda x, a, b: torch.nn.functional.gelu(torch.addcmul(b, a, x))


def _gelu_numba() -> Callable[..., Any]:
    from numba import njit, prange

    half, one, root = np.float32(0.5), np.float32(1), np.float32(math.sqrt(0.5))

    @njit(parallel=True, fastmath=True)
    def run(x, a, b):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            for j in range(x.shape[1]):
                t = a[j] * x[i, j] + b[j]
                out[i, j] = half * t * (one + math.erf(t * root))
        return out

    return run


def tiny_ops(x, a, b):
    """64 operations on (64, 64) arrays, four at a time."""
    for _ in range(ROUNDS):
        x = np.minimum(np.maximum(x * a + b, -2.0), 2.0)
    return x


def _tiny_arguments(n: int) -> Arguments:
    rng = generator()
    return {name: normal(rng, n, n) for name in ("x", "a", "b")}


def _tiny_torch() -> Callable[..., Any]:
    import torch

    def run(x, a, b):
        for _ in range(ROUNDS):
            x = torch.clamp(torch.addcmul(b, x, a), -2.0, 2.0)
        return x

    return run


def _tiny_numba() -> Callable[..., Any]:
    from numba import njit

    low, high = np.float32(-2), np.float32(2)

    @njit(fastmath=True)  # four thousand elements are too few to share among threads
    def run(x, a, b):
        out = np.empty_like(x)
        p, q, r, s = x.ravel(), a.ravel(), b.ravel(), out.ravel()
        for i in range(p.size):
            t = p[i]
            for _ in range(ROUNDS):
                t = min(max(t * q[i] + r[i], low), high)
            s[i] = t
        return out

    return run


def _tiny_numexpr() -> Callable[..., Any]:
    import numexpr

    text = "x"
    for _ in range(ROUNDS):
        text = f"minimum(maximum(({text}) * a + b, low), high)"
    bounds = {"low": np.float32(-2), "high": np.float32(2)}  # a Python float would make it float64
    return lambda x, a, b: numexpr.evaluate(text, local_dict={"x": x, "a": a, "b": b, **bounds})


def normal_cdf(x):
    return 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def black_scholes(spot, strike, years, rate, volatility):
    """Call and put prices, (n,) each (Black and Scholes, 1973)."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return call, put


def _options(n: int) -> Arguments:
    rng = generator()
    ranges = {"spot": (50, 150), "strike": (50, 150), "years": (0.1, 2), "rate": (0, 0.05), "volatility": (0.1, 0.6)}
    return {k: rng.uniform(low, high, n).astype(np.float32) for k, (low, high) in ranges.items()}


def _black_scholes_torch() -> Callable[..., Any]:
    import torch

    cdf = torch.special.ndtr

    def run(spot, strike, years, rate, volatility):
        spread = volatility * torch.sqrt(years)
        d1 = (torch.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
        d2 = d1 - spread
        discounted = strike * torch.exp(-rate * years)
        call = spot * cdf(d1) - discounted * cdf(d2)
        put = discounted * cdf(-d2) - spot * cdf(-d1)
        return call, put

    return run


def _black_scholes_numba() -> Callable[..., Any]:
    from numba import njit, prange

    half, one, root = np.float32(0.5), np.float32(1), np.float32(math.sqrt(0.5))

    @njit(parallel=True, fastmath=True)
    def run(spot, strike, years, rate, volatility):
        call, put = np.empty_like(spot), np.empty_like(spot)
        for i in prange(spot.size):
            spread = volatility[i] * math.sqrt(years[i])
            drift = (rate[i] + half * volatility[i] * volatility[i]) * years[i]
            d1 = (math.log(spot[i] / strike[i]) + drift) / spread
            d2 = d1 - spread
            discounted = strike[i] * math.exp(-rate[i] * years[i])
            c1, c2 = half * (one + math.erf(d1 * root)), half * (one + math.erf(d2 * root))
            call[i] = spot[i] * c1 - discounted * c2
            put[i] = discounted * (one - c2) - spot[i] * (one - c1)
        return call, put

    return run


WORKLOADS = (
    *(
        Workload(
            f"gelu_{n}x{m}",
            gelu_axb,
            partial(_gelu_arguments, n, m),
            partial(_gelu_arguments, 5, 7),
            forms={"torch": _gelu_torch, "numba": _gelu_numba},
            moved=4 * 2 * n * m,
            functions={"erf": n * m},
        )
        for n, m in ((4096, 4096), (128, 768))
    ),
    Workload(
        "tiny_ops_64",
        tiny_ops,
        partial(_tiny_arguments, 64),
        partial(_tiny_arguments, 5),
        forms={"torch": _tiny_torch, "numba": _tiny_numba, "numexpr": _tiny_numexpr},
    ),
    Workload(
        "black_scholes_10m",
        black_scholes,
        partial(_options, 10_000_000),
        partial(_options, 30),
        forms={"torch": _black_scholes_torch, "numba": _black_scholes_numba},
        moved=4 * 7 * 10_000_000,
        functions={"log": 10_000_000, "exp": 10_000_000, "erf": 20_000_000},  # N(-d) is 1 - N(d)
    ),
)
