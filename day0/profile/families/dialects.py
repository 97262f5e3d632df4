"""Configs in another language: a publisher's own inference code spells the same architecture its own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from day0.errors import InputError


@dataclass(frozen=True, slots=True)
class Translation:
    """A config in the words the readers know.

    `values` is the config, `original` maps words of it to those of the file, and `inert` are the file's words that
    describe a run and not the model. `model_type` names the family's word.
    """

    values: Mapping[str, Any]
    original: Mapping[str, str]
    inert: tuple[str, ...]
    model_type: str


_MARKS = ("dim", "n_layers", "n_heads", "n_activated_experts")
_VENDOR_MARKS = _MARKS[:3]
_WORDS: Mapping[str, str] = {
    "dim": "hidden_size",
    "inter_dim": "intermediate_size",
    "moe_inter_dim": "moe_intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_dense_layers": "first_k_dense_replace",
    "n_hash_layers": "num_hash_layers",
    "n_mtp_layers": "num_nextn_predict_layers",
    "n_heads": "num_attention_heads",
    "n_activated_experts": "num_experts_per_tok",
    "n_expert_groups": "n_group",
    "n_limited_groups": "topk_group",
    "route_scale": "routed_scaling_factor",
    "score_func": "scoring_func",
    "norm_eps": "rms_norm_eps",
    "rope_head_dim": "qk_rope_head_dim",
    "window_size": "sliding_window",
}
"""DeepSeek's inference code -> config.json."""
_RUN = ("max_batch_size", "max_seq_len")
_YARN = {
    "rope_factor": ("factor", 40.0),
    "original_seq_len": ("original_max_position_embeddings", 4096),
    "beta_fast": ("beta_fast", 32),
    "beta_slow": ("beta_slow", 1),
}
"""Keys of the frequency rule, which are flat there: (word in the section, what the code takes where it is silent)."""
_BLOCK = 128
"""Rows and columns under one scale of an FP8 weight."""


def translate(config: Mapping[str, Any], where: str = "config.json") -> Translation | None:
    """The config of DeepSeek's inference code in the words of its config.json; None for a config in the usual words.

    Raises InputError for the words of another publisher's code: a params.json under the name of a config.
    """
    if not all(mark in config for mark in _MARKS):
        if all(mark in config for mark in _VENDOR_MARKS) and "hidden_size" not in config:
            raise InputError(
                f"is in the words of a vendor's own code ({', '.join(_VENDOR_MARKS)}), a params.json by another name",
                where=where,
                hint="use the Hugging Face version of the model (with a config.json)",
            )
        return None
    values = {_WORDS.get(key, key): value for key, value in config.items() if key not in (*_YARN, "mscale")}
    compressed = "compress_ratios" in config
    _add_rotation(values, config, compressed=compressed)
    _add_packing(values)
    if not compressed:
        _add_routing(values)
    if values.get("q_lora_rank") == 0:
        values["q_lora_rank"] = None  # how that code says that queries have no latent
    return Translation(
        values, {ours: theirs for theirs, ours in _WORDS.items()}, _RUN, _model_type(config, compressed=compressed)
    )


def _model_type(config: Mapping[str, Any], *, compressed: bool) -> str:
    if compressed:
        return "deepseek_v4"
    if "index_topk" in config:
        return "deepseek_v32"
    return "deepseek_v3" if config.get("score_func") == "sigmoid" else "deepseek_v2"


def _add_rotation(values: dict[str, Any], config: Mapping[str, Any], *, compressed: bool) -> None:
    """That code always stretches frequencies, and softmax's scale with them, where V4's only does if told to."""
    if compressed and "rope_factor" not in config:
        return
    section = {word: config.get(key, default) for key, (word, default) in _YARN.items()}
    if not compressed:
        section |= {"mscale": config.get("mscale", 1.0), "mscale_all_dim": config.get("mscale", 1.0)}
    values["rope_scaling"] = {"type": "yarn", **section}


def _add_packing(values: dict[str, Any]) -> None:
    """A dtype "fp8" means matrices in FP8 with a scale per block, and everything else in bfloat16."""
    scale_format = values.pop("scale_fmt", None)
    if values.get("dtype") == "bf16":
        values["dtype"] = "bfloat16"
    if values.get("dtype") != "fp8":
        return
    values["dtype"] = "bfloat16"
    values["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [_BLOCK, _BLOCK],
        **({"scale_fmt": scale_format} if scale_format else {}),
    }


def _add_routing(values: dict[str, Any]) -> None:
    """Sigmoid scores come with a learnt bias and are renormalised; softmax scores are neither, nor need be grouped."""
    sigmoid = values.get("scoring_func", "softmax") == "sigmoid"
    grouped = "group_limited_greedy" if values.get("n_group", 1) != 1 else "greedy"
    values["topk_method"] = "noaux_tc" if sigmoid else grouped
    values["norm_topk_prob"] = sigmoid
