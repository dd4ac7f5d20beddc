"""Calls of loops that read each other through views: which are found in models, and that they compute these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import lower
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.extract.candidates import Candidate
from waxeq.frontend.trace import trace
from waxeq.inspect.formula import sweeps
from waxeq.ir.graph import expand
from waxeq.search.block import grow, make_space
from waxeq_native import backend
from waxeq_native.sliding import Sliding

N = 150
"""Rows and columns: a result is of a size from which such calls are a choice."""


def jacobi(u, f):
    for _ in range(4):
        u = np.pad(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - f[1:-1, 1:-1]), 1)
    return u


def heat(u, f):
    """Steps without a border: each is smaller by two."""
    for _ in range(3):
        u = u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return u


def wave(u, before):
    """Each step reads two earlier ones."""
    for _ in range(3):
        sides = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        before, u = u, np.pad(2 * u[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.2 * sides, 1)
    return u


def edges(x, scale):
    """Sizes of the slopes of an image that is smoothed first, one axis after the other."""
    y = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]
    y = np.tanh(0.25 * y[:, :-2] + 0.5 * y[:, 1:-1] + 0.25 * y[:, 2:])
    sizes = np.sqrt((y[2:, 1:-1] - y[:-2, 1:-1]) ** 2 + (y[1:-1, 2:] - y[1:-1, :-2]) ** 2)
    return sizes * scale[2:-2, 2:-2]


def alike(x, y):
    """Nothing is read beside its own place."""
    return np.tanh(x + y) * x


MODELS = MappingProxyType({"jacobi": (jacobi, 4), "heat": (heat, 3), "wave": (wave, 3), "edges": (edges, 3)})


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {n: rng.random((N, N), np.float32) for n in "ab"}


@dataclass(frozen=True)
class Found:
    """Calls of loops that read each other that compute a whole model, and what classes of inputs hold."""

    calls: list[Candidate]
    given: dict[int, np.ndarray]

    @staticmethod
    def of(fn: Callable[..., Any], worker: Worker) -> Found:
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        given = dict(zip(names, arrays().values(), strict=True))
        kernels = backend().kernels
        lowered = lower(expand(trace(fn, given).graph))
        rules = load_rules("reassociating", patterns(kernels))
        snapshot = saturate(lowered, rules, Limits(300, 60.0, 2 << 30), worker).snapshot
        space, roots = make_space(kernels, lowered, snapshot)
        rows = [c for c in grow(space, roots).rows if kernels[c.call.kernel].form == "sweeps" and c.out == roots[0]]
        return Found(rows, {snapshot.roots[f"%{v}"]: given[n] for v, n in enumerate(lowered.leaves) if n in given})

    def run(self, c: Candidate) -> np.ndarray:
        """What a call gives that reads nothing but inputs."""
        given = [self.given[s.number].ravel() for s in c.inputs]
        out = np.empty(c.call.out.shape, np.float32)
        views = [v.array(x) for v, x in zip(c.call.operands, given, strict=True)]
        (step,) = backend().kernels[c.call.kernel].bind(c.call, views, out, np.empty(0, np.uint8))
        step()
        return out


def loops(c: Candidate) -> int:
    return len(Sliding().walk(c.call).sweeps)


@pytest.mark.parametrize("model", MODELS)
def test_models_are_found_to_be_loops_one_after_another(model: str, worker: Worker) -> None:
    """The longest call computes the model from what that is given; shorter ones read what is made before."""
    fn, many = MODELS[model]
    found = Found.of(fn, worker)
    assert {loops(c) for c in found.calls} == {2, many}
    assert [sweeps(c.call.meaning) for c in found.calls] == [loops(c) for c in found.calls]
    longest = max(found.calls, key=loops)
    want = fn(*(a.astype(np.float64) for a in arrays().values()))
    np.testing.assert_allclose(found.run(longest), want, rtol=1e-4, atol=1e-5)


def test_every_swift_way_to_walk_is_offered(worker: Worker) -> None:
    """The first kernel that takes a walk was the only one: those past the cache were never chosen."""
    found, kernels = Found.of(jacobi, worker), backend().kernels
    longest = max(found.calls, key=loops)
    size, meaning = longest.call.out.bytes, longest.call.meaning
    able = {n for n, k in kernels.items() if k.form == "sweeps" and size >= k.smallest and k.matches(meaning)}
    able = {n for n in able if kernels[n].accepts(replace(longest.call, kernel=n)) and kernels[n].swift(meaning)}
    assert {c.call.kernel for c in found.calls if loops(c) == loops(longest)} == able


def test_a_model_that_reads_every_element_once_has_none(worker: Worker) -> None:
    assert not Found.of(alike, worker).calls


def framed(x, source):
    """Beyond the border lies what lies on it."""
    for _ in range(2):
        p = np.pad(x, 1, mode="edge")
        x = 0.2 * (p[1:-1, 1:-1] + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) + source
    return x


def test_a_border_that_is_there_again_is_read_beside_its_place(worker: Worker) -> None:
    """Rows at a known place were loops of their own: ten calls for four sweeps, 4.6 ms where one walk takes 1.9."""
    found = Found.of(framed, worker)
    whole = [c for c in found.calls if all(s.number in found.given for s in c.inputs)]
    assert whole and all(loops(c) > 1 for c in whole)
    for c in whole:
        np.testing.assert_allclose(found.run(c), framed(*arrays().values()), rtol=1e-6)
        assert "bad" not in Sliding().of(c.call).parts[-1].text
