"""Tiny random models of transformers, saved beside a config in the publisher's spelling."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file


def prompt(length: int, vocabulary: int = 256) -> list[int]:
    return [(91 * place + 7) % vocabulary for place in range(length)]


def text_prompt(length: int) -> list[int]:
    """Without the ids that mark images, which lie below 20 in models that see."""
    return [20 + token for token in prompt(length, 200)]


def make_model(
    config: dict[str, Any], folder: Path, seed: int = 1, rename: Callable[[str], str] = str
) -> transformers.PreTrainedModel:
    """A random float32 model of a config, norms and biases too, saved into `folder` with that very config beside it.

    `rename` makes the publisher's names of those that transformers gives the tensors it saves.
    """
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    theirs = transformers.AutoConfig.from_pretrained(folder)
    made = getattr(transformers, config["architectures"][0])
    model = made._from_config(theirs, dtype=torch.float32, attn_implementation="eager")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and "inv_freq" not in name:
            tensor.data = random_values(name, tensor.shape)
    save_model(model.eval(), config, folder, rename)
    return model


def save_model(
    model: transformers.PreTrainedModel, config: dict[str, Any], folder: Path, rename: Callable[[str], str] = str
) -> None:
    """Save a model under the names and with the config of its publisher."""
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    save_file({rename(name): tensor for name, tensor in load_file(path).items()}, path)


def random_values(name: str, shape: torch.Size) -> torch.Tensor:
    """Norms around 1, vectors large enough to be felt, matrices that keep the size of what they multiply."""
    noise = torch.randn(shape)
    if "norm" in name and not name.endswith("bias"):
        return 1 + 0.2 * noise
    if len(shape) == 1:
        return 0.3 * noise
    return noise / (1 if "embed" in name else shape[-1] ** 0.5)


@torch.no_grad()
def logits_of(model: transformers.PreTrainedModel, ids: list[int]) -> torch.Tensor:
    """[tokens, vocab] of one full forward."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


@torch.no_grad()
def cached_logits(model: transformers.PreTrainedModel, ids: list[int], prefill: int) -> torch.Tensor:
    """[tokens, vocab]: the first `prefill` tokens at once, then one by one through transformers' own cache."""
    output = model(torch.tensor([ids[:prefill]]), use_cache=True)
    rows = [output.logits[0]]
    for token in ids[prefill:]:
        output = model(torch.tensor([[token]]), use_cache=True, past_key_values=output.past_key_values)
        rows.append(output.logits[0])
    return torch.cat(rows)


def make_v4(config: dict[str, Any], folder: Path) -> transformers.PreTrainedModel:
    """A random model under the publisher's names; what transformers saves has some of its own among them."""
    model = make_model(config, folder)  # its tables are zeros yet
    experts, top_k = config["n_routed_experts"], config["num_experts_per_tok"]
    for name, table in model.named_buffers():
        if name.endswith("tid2eid"):
            table.copy_(torch.stack([torch.randperm(experts)[:top_k] for _ in table]))
    save_model(model, config, folder, v4_published)
    return model


def v4_published(name: str) -> str:
    name = name.removeprefix("model.").replace("embed_tokens.", "embed.").replace("hc_head.hc_", "hc_head_")
    return name.replace(".attn.norm.", ".attn.kv_norm.")
