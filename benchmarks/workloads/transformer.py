"""Layers of language models: MLP, attention, a BERT layer, a Llama block, MiniLM whole.

Weights of projections are (out, in), as checkpoints hold them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workload import Arguments, Workload, generator, normal
from benchmarks.workloads.elementwise import gelu
from benchmarks.workloads.norms import EPSILON, layer_norm, rms_norm, softmax

HEAD = 64
"""Width of an attention head in all of these models."""


def linear(x, w, name):
    """x (..., n) times the transposed weight (m, n), plus the bias: (..., m)."""
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def mlp(x, w):
    """Up, gelu, down."""
    return linear(gelu(linear(x, w, "up")), w, "down")


def attention(q, k, v):
    """q, k, v (heads, length, HEAD)."""
    return softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(HEAD)) @ v


def split(x):
    """(length, heads * HEAD) to (heads, length, HEAD)."""
    return np.swapaxes(x.reshape(x.shape[0], -1, HEAD), 0, 1)


def join(x):
    """The inverse of `split`."""
    return np.swapaxes(x, 0, 1).reshape(x.shape[1], -1)


def bert_layer(x, w):
    """Post-norm encoder layer (Devlin et al., 2018)."""
    q, k, v = (split(linear(x, w, name)) for name in ("query", "key", "value"))
    x = layer_norm(x + linear(join(attention(q, k, v)), w, "out"), w["norm1.gain"], w["norm1.bias"])
    return layer_norm(x + mlp(x, w), w["norm2.gain"], w["norm2.bias"])


def rotate(x, w):
    """Rotary positions (Su et al., 2021); cos and sin are (length, HEAD)."""
    turned = np.concatenate([-x[..., HEAD // 2 :], x[..., : HEAD // 2]], axis=-1)
    return x * w["cos"] + turned * w["sin"]


def grouped(q, k, v, mask):
    """Attention with several query heads to one of keys and values; mask (length, keys) is added to the scores."""
    q = q.reshape(k.shape[0], -1, q.shape[1], HEAD)
    scores = q @ np.swapaxes(k, -1, -2)[:, None] / math.sqrt(HEAD) + mask
    return (softmax(scores) @ v[:, None]).reshape(-1, q.shape[2], HEAD)


def llama_rest(x, mixed, w):
    """What follows attention: projection, residual, norm, gated feed-forward, residual."""
    x = x + join(mixed) @ w["out"].T
    h = rms_norm(x, w["norm2"])
    gate = h @ w["gate"].T
    return x + (gate / (1.0 + np.exp(-gate)) * (h @ w["up"].T)) @ w["down"].T


def llama_prefill(x, w):
    """Pre-norm decoder block (Touvron et al., 2023), causal, on a whole prompt; also the keys and values to cache."""
    h = rms_norm(x, w["norm1"])
    q, k = rotate(split(h @ w["query"].T), w), rotate(split(h @ w["key"].T), w)
    v = split(h @ w["value"].T)
    mask = np.triu(np.full((x.shape[0], x.shape[0]), -1e9, np.float32), 1)
    return llama_rest(x, grouped(q, k, v, mask), w), k, v


def llama_decode(x, keys, values, w):
    """The same block for one more token, on a cache (heads, length, HEAD) of keys and values."""
    h = rms_norm(x, w["norm1"])
    q, k = rotate(split(h @ w["query"].T), w), rotate(split(h @ w["key"].T), w)
    v = split(h @ w["value"].T)
    mixed = grouped(q, np.concatenate([keys, k], axis=1), np.concatenate([values, v], axis=1), 0.0)
    return llama_rest(x, mixed, w), k, v


def _linear_weights(rng: np.random.Generator, sizes: dict[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    rows = {}
    for name, (m, n) in sizes.items():
        rows[f"{name}.weight"] = normal(rng, m, n, scale=n**-0.5)
        rows[f"{name}.bias"] = normal(rng, m, scale=0.1)
    return rows


def mlp_arguments(rows: int, width: int, hidden: int) -> Arguments:
    rng = generator()
    w = _linear_weights(rng, {"up": (hidden, width), "down": (width, hidden)})
    return {"x": normal(rng, rows, width), "w": w}


def attention_arguments(heads: int, length: int) -> Arguments:
    rng = generator()
    return {name: normal(rng, heads, length, HEAD) for name in ("q", "k", "v")}


def bert_arguments(length: int, width: int) -> Arguments:
    rng = generator()
    square = dict.fromkeys(("query", "key", "value", "out"), (width, width))
    w = _linear_weights(rng, {**square, "up": (4 * width, width), "down": (width, 4 * width)})
    for name in ("norm1", "norm2"):
        w[f"{name}.gain"], w[f"{name}.bias"] = 1 + normal(rng, width, scale=0.1), normal(rng, width, scale=0.1)
    return {"x": normal(rng, length, width), "w": w}


def llama_arguments(length: int, cached: int, width: int, shared: int, hidden: int) -> Arguments:
    """`shared`: heads of keys and values; `cached`: length of the cache, 0 for a prompt."""
    rng = generator()
    sizes = {"query": (width, width), "key": (shared * HEAD, width), "value": (shared * HEAD, width)}
    sizes |= {"out": (width, width), "gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
    w = {name: normal(rng, m, n, scale=n**-0.5) for name, (m, n) in sizes.items()}
    w |= {name: 1 + normal(rng, width, scale=0.1) for name in ("norm1", "norm2")}
    angles = np.arange(cached, cached + length)[:, None] * 5e5 ** (-np.arange(HEAD // 2) / (HEAD // 2))
    for name, f in (("cos", np.cos), ("sin", np.sin)):
        w[name] = np.tile(f(angles), 2).astype(np.float32)
    cache = {name: normal(rng, shared, cached, HEAD) for name in ("keys", "values")} if cached else {}
    return {"x": normal(rng, length, width), **cache, "w": w}


def _mlp_torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    def run(x, w):
        hidden = f.gelu(f.linear(x, w["up.weight"], w["up.bias"]))
        return f.linear(hidden, w["down.weight"], w["down.bias"])

    return run


def _attention_torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    return lambda q, k, v: f.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def _bert_torch() -> Callable[..., Any]:
    from torch.nn import functional as f

    feed = _mlp_torch()

    def run(x, w):
        n, m = x.shape
        q, k, v = (
            f.linear(x, w[f"{name}.weight"], w[f"{name}.bias"]).view(1, n, -1, HEAD).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, m)
        x = x + f.linear(mixed, w["out.weight"], w["out.bias"])
        x = f.layer_norm(x, (m,), w["norm1.gain"], w["norm1.bias"], EPSILON)
        return f.layer_norm(x + feed(x, w), (m,), w["norm2.gain"], w["norm2.bias"], EPSILON)

    return run


def _llama_torch() -> Callable[..., Any]:
    import torch
    from torch.nn import functional as f

    def turn(x, w):
        turned = torch.cat([-x[..., HEAD // 2 :], x[..., : HEAD // 2]], -1)
        return x * w["cos"] + turned * w["sin"]

    def longer(past, new):
        return new if past is None else torch.cat([past, new], 1)

    def run(x, w, keys=None, values=None):
        n, m = x.shape
        h = f.rms_norm(x, (m,), w["norm1"], EPSILON)
        q, k, v = (f.linear(h, w[name]).view(n, -1, HEAD).transpose(0, 1) for name in ("query", "key", "value"))
        q, k = turn(q, w), turn(k, w)
        ks, vs, prompt = longer(keys, k), longer(values, v), keys is None
        mixed = f.scaled_dot_product_attention(q[None], ks[None], vs[None], is_causal=prompt, enable_gqa=True)
        x = x + f.linear(mixed[0].transpose(0, 1).reshape(n, m), w["out"])
        h = f.rms_norm(x, (m,), w["norm2"], EPSILON)
        return x + f.linear(f.silu(f.linear(h, w["gate"])) * f.linear(h, w["up"]), w["down"]), k, v

    return run


_BLOCK = {"width": 2048, "shared": 8, "hidden": 8192}
_BLOCK_SMALL = {"width": 256, "shared": 2, "hidden": 192}
_BLOCK_BYTES = 4 * (2 * 2048 * 2048 + 2 * 512 * 2048 + 3 * 2048 * 8192)
_W = frozenset({"w"})

WORKLOADS = (
    Workload(
        "mlp_128x768x3072",
        mlp,
        partial(mlp_arguments, 128, 768, 3072),
        partial(mlp_arguments, 5, 6, 8),
        weights=_W,
        forms={"torch": _mlp_torch},
    ),
    Workload(
        "mlp_decode",
        mlp,
        partial(mlp_arguments, 1, 768, 3072),
        partial(mlp_arguments, 1, 6, 8),
        weights=_W,
        forms={"torch": _mlp_torch},
        moved=4 * 2 * 768 * 3072,
    ),
    *(
        Workload(
            f"attention_{length}",
            attention,
            partial(attention_arguments, 12, length),
            partial(attention_arguments, 2, 5),
            forms={"torch": _attention_torch},
        )
        for length in (128, 1024)
    ),
    Workload(
        "bert_layer_128",
        bert_layer,
        partial(bert_arguments, 128, 768),
        partial(bert_arguments, 5, 128),
        weights=_W,
        forms={"torch": _bert_torch},
    ),
    Workload(
        "llama_prefill_128",
        llama_prefill,
        partial(llama_arguments, 128, 0, **_BLOCK),
        partial(llama_arguments, 5, 0, **_BLOCK_SMALL),
        weights=_W,
        forms={"torch": _llama_torch},
    ),
    Workload(
        "llama_decode_512",
        llama_decode,
        partial(llama_arguments, 1, 512, **_BLOCK),
        partial(llama_arguments, 1, 7, **_BLOCK_SMALL),
        weights=_W,
        forms={"torch": _llama_torch},
        moved=_BLOCK_BYTES + 4 * 2 * 8 * 512 * HEAD,
    ),
)
