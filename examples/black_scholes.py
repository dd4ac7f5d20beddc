"""European call and put prices by the Black-Scholes formula (1973), a million options at once."""

import math

import numpy as np
from scipy.special import erf

N = 1_000_000


def normal_cdf(x):
    return 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def model(spot, strike, years, rate, volatility):
    """Call and put prices, (n,) each, in the currency of spot and strike; rate and volatility are per year."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return call, put


def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "spot": rng.uniform(50, 150, N),
        "strike": rng.uniform(50, 150, N),
        "years": rng.uniform(0.1, 2, N),
        "rate": rng.uniform(0, 0.05, N),
        "volatility": rng.uniform(0.1, 0.6, N),
    }
