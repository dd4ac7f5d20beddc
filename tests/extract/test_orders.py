"""Orders in which what windows slide over may lie, and what is made in one with a convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from waxeq.events import Events
from waxeq.extract.candidates import Candidate
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search import block as blocks_search
from waxeq.search.session import Session

CHANNELS, SIDE, OTHER = 8, 12, 16


def convolved(x, w, mean, gain, bias):
    """A convolution of images with padding, and what follows it in a network."""
    mean, gain, bias = (v[:, None, None] for v in (mean, gain, bias))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2))
    return np.maximum((np.einsum("chwrs,kcrs->khw", windows, w) - mean) * gain + bias, 0)


def grown(model: Callable, weights: Mapping[str, tuple[int, ...]], folder: Path, **inputs: tuple[int, ...]):
    """The candidates of a model of one block."""
    examples = {n: np.ones(s, np.float32) for n, s in {**inputs, **weights}.items()}
    (block,) = cut(expand(trace(model, examples, weights=tuple(weights)).graph))
    with Session.open(Options.of(table=folder / "t.duckdb", threads=1, measure=False), Events()) as session:
        at = blocks_search.saturated(session, block)
        space, roots = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        return blocks_search.grow(space, roots).rows


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> list[Candidate]:
    weights = {"w": (OTHER, CHANNELS, 3, 3), "mean": (OTHER,), "gain": (OTHER,), "bias": (OTHER,)}
    return grown(convolved, weights, Path(tmp_path_factory.mktemp("orders")), x=(CHANNELS, SIDE, SIDE))


def test_images_under_windows_may_lie_with_their_channels_between_lines(candidates: list[Candidate]) -> None:
    """A convolution reads all channels of three lines: where planes lie one after another, each is pages away."""
    sides = {CHANNELS: "c", SIDE + 2: "s"}
    padded = {
        "".join(sides[n] for n in c.call.out.shape)
        for c in candidates
        if sorted(c.call.out.shape) == [CHANNELS, SIDE + 2, SIDE + 2]
    }
    assert {"css", "scs"} <= padded


def test_what_follows_a_convolution_may_be_made_with_it(candidates: list[Candidate]) -> None:
    """It has sums over three axes, each an e-class of its own: cuts did not grow past them."""
    whole = (c.call for c in candidates if len(c.call.operands) > 2 and c.call.out.shape == (OTHER, SIDE, SIDE))
    assert any(str(c.meaning).count("(Sum ") == 3 for c in whole)


def test_a_norm_may_be_made_in_one(tmp_path: Path) -> None:
    """Its sum is cheap by another kernel, which left only cuts that read the sum."""
    rows = grown(lambda x, g: x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5) * g, {}, tmp_path,
                 x=(128, 768), g=(768,))  # fmt: skip
    sums = [c.call for c in rows if c.call.out.shape == (128, 768) and str(c.call.meaning).count("(Sum ") == 1]
    assert any(sorted(v.shape for v in call.operands) == [(128, 768), (768,)] for call in sums)


def test_a_product_may_be_made_with_the_axes_of_each_factor_together(tmp_path: Path) -> None:
    """A transposed convolution was written element by element where its rows and columns meet: 6.5 ms, not 0.9."""
    shapes = {"x": (4, 64, 32, 32), "w": (64, 32, 2, 2)}
    rows = grown(lambda x, w: np.einsum("nchw,coij->nohiwj", x, w), {}, tmp_path, **shapes)
    made = {c.call.out.shape for c in rows if c.call.kernel == "native.products"}
    assert (4, 32, 32, 32, 2, 2) in made
