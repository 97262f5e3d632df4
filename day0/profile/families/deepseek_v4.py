"""DeepSeek V4: a window beside a compressed past, hyper-connections, and experts of the first layers by hash."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from day0.profile.families.decoder_names import layer_names, predictor_names
from day0.profile.families.family import Family
from day0.profile.read_compressed import read_compressed_attention
from day0.profile.read_hyper_connections import read_manifold_connections
from day0.profile.read_predictors import read_predictors
from day0.profile.read_shared_experts import ExpertDefaults, read_shared_experts

_COMPRESSOR_LEAVES = {
    "kv_proj.weight": "wkv.weight",
    "gate_proj.weight": "wgate.weight",
    "position_bias": "ape",
    "norm.weight": "norm.weight",
}
_ATTENTION_LEAVES = {
    "q_a_proj.weight": "wq_a.weight",
    "q_a_norm.weight": "q_norm.weight",
    "q_b_proj.weight": "wq_b.weight",
    "kv_proj.weight": "wkv.weight",
    "kv_norm.weight": "kv_norm.weight",
    "o_a_proj.weight": "wo_a.weight",
    "o_b_proj.weight": "wo_b.weight",
    "sinks": "attn_sink",
    "indexer.q_b_proj.weight": "indexer.wq_b.weight",
    "indexer.weights_proj.weight": "indexer.weights_proj.weight",
    **{f"compressor.{ours}": f"compressor.{theirs}" for ours, theirs in _COMPRESSOR_LEAVES.items()},
    **{f"indexer.compressor.{ours}": f"indexer.compressor.{theirs}" for ours, theirs in _COMPRESSOR_LEAVES.items()},
}
_MLP = {"gate": "w1", "up": "w3", "down": "w2"}
_MIXING = ("fn", "base", "scale")

_LAYER: Mapping[str, str] = {
    "mixer_norm.weight": "attn_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    **{f"mixer_res.{leaf}": f"hc_attn_{leaf}" for leaf in _MIXING},
    **{f"ffn_res.{leaf}": f"hc_ffn_{leaf}" for leaf in _MIXING},
    **{f"mixer.{ours}": f"attn.{theirs}" for ours, theirs in _ATTENTION_LEAVES.items()},
    "ffn.router.weight": "ffn.gate.weight",
    "ffn.router.correction_bias": "ffn.gate.bias",
    "ffn.router.table": "ffn.gate.tid2eid",
    **{f"ffn.shared.{ours}_proj.weight": f"ffn.shared_experts.{theirs}.weight" for ours, theirs in _MLP.items()},
    **{f"ffn.experts.{ours}.weight": f"ffn.experts.{{expert}}.{theirs}.weight" for ours, theirs in _MLP.items()},
}
_JOINT = {
    "embed_norm.weight": "enorm.weight",
    "hidden_norm.weight": "hnorm.weight",
    "embed_proj.weight": "e_proj.weight",
    "hidden_proj.weight": "h_proj.weight",
    "norm.weight": "norm.weight",
    **{f"output_res.{leaf}": f"hc_head_{leaf}" for leaf in _MIXING},
}
_DECODER = layer_names(_LAYER)
_EXPERTS = partial(
    read_shared_experts,
    defaults=ExpertDefaults(scoring="sqrtsoftplus", scaling=1.5, limit=10.0, hash_layers=3),
)

DEEPSEEK_V4 = Family(
    name="deepseek_v4",
    native=True,
    model_types=("deepseek_v4", "deepseek_ref"),
    architectures=("DeepseekV4ForCausalLM",),
    read_mixer=read_compressed_attention,
    read_feed_forward=_EXPERTS,
    read_residual=read_manifold_connections,
    read_mtp=partial(
        read_predictors,
        key="num_nextn_predict_layers",
        mixer=read_compressed_attention,
        feed_forward=_EXPERTS,
        residual=read_manifold_connections,
        like_last=False,
        split_join=True,
    ),
    names={
        "embed.weight": "embed.weight",
        "norm.weight": "norm.weight",
        "lm_head.weight": "head.weight",
        **{f"output_res.{leaf}": f"hc_head_{leaf}" for leaf in _MIXING},
        **{ours: theirs.removeprefix("model.") for ours, theirs in _DECODER.items()},
        **predictor_names(_DECODER, "mtp.{l}", _JOINT),
    },
    block_scale="scale F8_E8M0",
    # No product has biases, whatever these say.
    inert=("attention_bias", "mlp_bias"),
    # Prompts reach several rows of the wider ratio, which is 128 in releases.
    tiny={
        "num_hidden_layers": 5,
        "compress_ratios": [0, 16, 4, 16, 4],
        "num_hash_layers": 3,
        "num_nextn_predict_layers": 0,
        "index_topk": 6,
    },
)
