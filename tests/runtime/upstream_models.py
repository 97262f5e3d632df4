"""Tiny random models that transformers makes and saves, of families with different caches; and a repository's own."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import transformers.dynamic_module_utils
from safetensors.torch import save_file

logging.getLogger("transformers").setLevel(logging.ERROR)

VOCAB = 96
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GROUPED = _SIZES | {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128}
_LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 16,
    "short_factor": [1.0] * 4, "long_factor": [2.0, 1.5, 3.0, 4.0],
}  # fmt: skip

CONFIGS: Mapping[str, dict[str, Any]] = {
    # Windows shorter than the prompts, norms after the branches, a scaled embedding.
    "gemma3_text": _GROUPED | {"num_hidden_layers": 3, "sliding_window": 8},
    # Layer norms, learned positions, no family table.
    "gpt2": {
        "vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    # Mamba beside attention and experts; its state is forgotten by a longer portion.
    "jamba": _SIZES | {
        "num_hidden_layers": 4, "num_key_value_heads": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4, "mamba_d_state": 8,
    },
    # Nothing but state.
    "mamba2": {
        "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8,
        "state_size": 16, "n_groups": 2, "chunk_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    },
    # Rotates every position anew beyond 16 tokens.
    "phi3": _GROUPED | {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 16},
    # Sees what comes after.
    "bert": _SIZES,
    # Frequencies that other sequences change.
    "llama": _GROUPED | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
}  # fmt: skip


def make_model(model_type: str, folder: Path, seed: int = 0) -> Any:
    """Save a model of `CONFIGS` in `folder`; biases and norms are random too, and weights large enough to matter."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(model_type, **CONFIGS[model_type])
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.dim() < 2:
            parameter += 0.1 * torch.randn_like(parameter)
        else:
            parameter *= 4
    model.save_pretrained(folder)
    return model


def greedy(model: Any, prompt: list[int], count: int) -> tuple[int, ...]:
    """What transformers' own generate says, end tokens ignored."""
    ids = torch.tensor([prompt])
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return tuple(found[0, len(prompt) :].tolist())


_CODE = """
from pathlib import Path

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

Path(MARK).touch()


class SumConfig(PretrainedConfig):
    model_type = "running_sum"

    def __init__(self, vocab_size=96, hidden_size=16, num_hidden_layers=0, **rest):
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        super().__init__(**rest)


class SumForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = SumConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids=None, past_key_values=None, use_cache=None, **rest):
        return CausalLMOutput(logits=self.head(torch.tanh(self.table(input_ids).cumsum(dim=1))))
"""
"""A model whose hidden state is the sum of all embeddings so far, and which keeps no cache. Run, it leaves a mark."""


def keep_code_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers copy code that it runs to `folder` and not to the user's cache."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)


def make_remote_repository(folder: Path) -> Callable[[list[int]], torch.Tensor]:
    """A repository with code of its own; gives its logits [tokens, vocab] as computed without that code."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    table, head = torch.randn(VOCAB, 16, generator=generator), torch.randn(VOCAB, 16, generator=generator)
    save_file({"table.weight": table, "head.weight": head}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "modeling_sum.py").write_text(_CODE.replace("MARK", repr(str(folder / "was-run"))))
    config = {
        "model_type": "running_sum", "architectures": ["SumForCausalLM"], "vocab_size": VOCAB, "hidden_size": 16,
        "eos_token_id": 2,
        "auto_map": {"AutoConfig": "modeling_sum.SumConfig", "AutoModelForCausalLM": "modeling_sum.SumForCausalLM"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return lambda ids: torch.tanh(table[ids].cumsum(dim=0)) @ head.T
