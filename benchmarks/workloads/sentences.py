"""MiniLM whole: eight sentences of different lengths to embeddings, with the real weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.workload import Arguments, Workload, example

minilm = example("minilm")


def _arguments() -> Arguments:
    return {**minilm.example_inputs(), "weights": minilm.weights()}


def _torch() -> Callable[..., Any]:
    import torch
    from torch.nn import functional as f

    def linear(x, w, name):
        return f.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, w, name):
        return f.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], minilm.EPSILON)

    def block(x, bias, w, name):
        n, t, m = x.shape
        own = f"{name}.attention"
        q, k, v = (
            linear(x, w, f"{own}.self.{part}").view(n, t, minilm.HEADS, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mixed = f.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(n, t, m)
        x = norm(linear(mixed, w, f"{own}.output.dense") + x, w, f"{own}.output.LayerNorm")
        hidden = f.gelu(linear(x, w, f"{name}.intermediate.dense"))
        return norm(linear(hidden, w, f"{name}.output.dense") + x, w, f"{name}.output.LayerNorm")

    def run(input_ids, attention_mask, weights):
        w, e = weights, "embeddings"
        length = input_ids.shape[1]
        places, kinds = w[f"{e}.position_embeddings.weight"][:length], w[f"{e}.token_type_embeddings.weight"][0]
        x = norm(f.embedding(input_ids, w[f"{e}.word_embeddings.weight"]) + places + kinds, w, f"{e}.LayerNorm")
        mask = attention_mask.to(x.dtype)
        bias = (1.0 - mask[:, None, None, :]) * -1e9
        for i in range(minilm.LAYERS):
            x = block(x, bias, w, f"encoder.layer.{i}")
        pooled = torch.sum(x * mask[:, :, None], 1) / mask.sum(1, keepdim=True)
        return pooled / pooled.square().sum(-1, keepdim=True).sqrt()

    return run


WORKLOADS = (Workload("minilm", minilm.model, _arguments, weights=frozenset({"weights"}), forms={"torch": _torch}),)
