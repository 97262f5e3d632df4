"""The sizes at which operators are measured: the smallest, odd ones, and those of the largest models we know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from day0.runtime.verify.case import EPS, GROUPED_CHOICES, HEADS, PLAIN, ROUTING, WIDTHS, Cases, Fact, rows
from day0.runtime.verify.cases_vision import PATCHES
from day0.runtime.verify.sizes_grouped import GROUPED_SIZES
from day0.runtime.verify.sizes_vision import VISION_SIZES

_FORMS = ({"approximate": "erf"}, {"approximate": "tanh"})
_RULES = ("none", "linear", "llama3", "yarn")
_DELTA = rows("tokens heads head_dim value_dim", (1, 1, 2, 2), (63, 5, 10, 7), (2, 128, 128, 128), (70, 1, 256, 256))
_DELTA_SPANS = ("heads", "head_dim", "value_dim")
_CONVOLUTION_SPANS = ("width", "taps", "past_taps")
_CONVOLUTIONS = rows("tokens width taps past_taps", (1, 1, 2, 1), (63, 100, 4, 3), (5, 63, 3, 2), (2, 65536, 8, 7))
_ACTIVATIONS = ({"activation": "silu"}, {"activation": None})
_GATED_DELTA_SPANS = ("key_heads", "value_heads", "head_dim", "value_dim")
_GATED_DELTA = rows(
    "tokens key_heads value_heads head_dim value_dim",
    *((1, 1, 1, 2, 2), (63, 5, 15, 10, 7), (150, 2, 4, 24, 12), (2, 64, 64, 128, 128), (70, 1, 128, 256, 256)),
)
_LIGHTNING = rows("tokens heads head_dim", (1, 1, 2), (63, 5, 10), (150, 2, 24), (2, 128, 128), (66, 1, 256))
_SELECTIVE = rows("tokens width state_size", (1, 1, 1), (63, 100, 5), (150, 7, 16), (3, 16384, 16), (70, 6, 256))
_SSD_SPANS = ("heads", "head_dim", "state_groups", "state_size", "step_max")
_SSD = rows(
    "tokens heads head_dim state_groups state_size",
    *((1, 1, 1, 1, 1), (63, 15, 10, 5, 7), (150, 4, 12, 2, 24), (2, 256, 64, 8, 128), (66, 16, 256, 16, 256)),
)
_STEPS = ({"step_min": 0.0, "step_max": None}, {"step_min": 0.0, "step_max": 0.5}, {"step_min": 0.3, "step_max": 1.5})
_LATENTS = rows(
    "tokens slots heads latent_dim rope_dim cached_dim",
    (1, 2, 1, 1, 1, 2),
    (13, 100, 6, 50, 7, 57),
    (2, 40, 128, 1024, 64, 1088),
)
_SHARED = rows("tokens slots heads head_dim", (1, 2, 1, 2), (13, 100, 6, 50), (2, 600, 128, 512))
_WINDOWS = ({"scale": 0.05, "window": 1}, {"scale": 0.05, "window": 7}, {"scale": 0.05, "window": 4096})
_MIXED_SPANS = ("streams", "width", "mixing_weights", "flat_width")


def _mixed(largest: int) -> Iterator[dict[str, Fact]]:
    """Sizes of hyper-connections that hang together, with and without mixing."""
    for streams, width in ((1, 1), (3, 50), (largest, 16384)):
        for iterations in (None, 20):
            yield {
                "streams": streams,
                "width": width,
                "flat_width": streams * width,
                "mixing_weights": streams * (2 if iterations is None else 2 + streams),
                "scales": 2 if iterations is None else 3,
                "eps": 1e-6,
                "iterations": iterations,
                "write_scale": 2.0,
            }


CASES: Mapping[str, Cases] = {
    "embedding_lookup": Cases(
        ("vocab", "width"), rows("tokens vocab width", (1, 1, 1), (63, 257, 100), (3, 262144, 2), (3, 16, 65536))
    ),
    "embedding_scatter": Cases(("width",), rows("tokens merged width", (1, 1, 1), (100, 63, 100), (5, 3, 65536))),
    "linear": Cases(
        ("in_features", "out_features"),
        rows("tokens in_features out_features", (1, 1, 1), (63, 100, 63), (2, 65536, 31), (2, 31, 262144)),
        ({"bias": False}, {"bias": True}),
    ),
    "head_linear": Cases(
        ("heads", "in_features", "out_features"),
        rows(
            "tokens heads in_features out_features", (1, 1, 1, 1), (63, 5, 100, 63), (2, 128, 512, 16), (2, 2, 16, 512)
        ),
    ),
    "lm_head": Cases(
        ("vocab", "width"), rows("wanted vocab width", (1, 1, 1), (63, 257, 100), (3, 262144, 16), (3, 16, 65536))
    ),
    "mxfp4_dequantize": Cases(
        ("rows", "columns", "row_bytes", "row_groups"),
        rows(
            "rows columns row_bytes row_groups",
            (1, 32, 16, 1),
            (63, 96, 48, 3),
            (16384, 32, 16, 1),
            (3, 16384, 8192, 512),
        ),
        ({"group_size": 32},),
    ),
    "rms_norm": Cases(("width",), WIDTHS, EPS),
    "qk_norm": Cases(
        ("heads", "kv_heads", "head_dim"),
        rows("tokens heads kv_heads head_dim", (1, 1, 1, 2), (63, 6, 3, 100), (3, 128, 128, 256)),
        tuple({"eps": 1e-6, "form": form} for form in ("head", "per_head", "all", "unit")),
    ),
    "l2_norm": Cases(("heads", "head_dim"), HEADS),
    "gated_rms_norm": Cases(
        ("heads", "head_dim"),
        HEADS,
        ({"eps": 1e-6, "activation": "sigmoid"}, {"eps": 1e-6, "activation": "silu"}),
        {"activation": {"one_of": ["sigmoid", "silu"]}},
    ),
    "residual_add": Cases(("width",), WIDTHS),
    "attention_residual_mix": Cases(
        ("width", "block_size"),
        rows("candidates tokens width", (1, 1, 1), (5, 63, 100), (9, 3, 65536)),
        ({"eps": 1e-5, "block_size": 1}, {"eps": 1e-5, "block_size": 128}),
    ),
    "rope_table": Cases(
        ("rope_pairs",),
        rows("tokens rope_pairs", (1, 1), (63, 50), (100, 128)),
        tuple({"theta": 1e6, "scaling": rule} for rule in _RULES),
        {"scaling": {"one_of": [*_RULES]}},
    ),
    "rope": Cases(
        ("heads", "head_dim", "rope_pairs"),
        rows("tokens heads head_dim rope_pairs", (1, 1, 2, 1), (63, 5, 100, 30), (3, 128, 256, 128)),
        ({"layout": "neox"}, {"layout": "interleaved"}),
    ),
    "paged_cache_write": Cases(("width",), rows("tokens slots width", (1, 1, 1), (63, 160, 100), (3, 5, 65536))),
    "paged_gqa_attention": Cases(
        ("heads", "kv_heads", "head_dim", "window"),
        rows(
            "tokens slots heads kv_heads head_dim",
            (1, 2, 1, 1, 2),
            (13, 100, 6, 3, 50),
            (2, 8, 128, 128, 16),
            (2, 40, 8, 2, 256),
        ),
        (
            {"scale": 0.2, "window": None},
            {"scale": 0.2, "window": 1},
            {"scale": 0.2, "window": 7},
            {"scale": 0.2, "window": 131072},
        ),
    ),
    "paged_mla_attention": Cases(
        ("heads", "latent_dim", "rope_dim", "cached_dim"),
        rows(
            "tokens slots heads latent_dim rope_dim cached_dim",
            (1, 2, 1, 1, 1, 2),
            (13, 100, 6, 50, 7, 57),
            (2, 40, 128, 512, 64, 576),
        ),
        ({"scale": 0.05},),
    ),
    "window_mla_attention": Cases(
        ("heads", "latent_dim", "rope_dim", "cached_dim", "window"),
        _LATENTS,
        tuple({"scale": 0.05, "window": w, "sinks": s} for w in (None, 1, 7, 131072) for s in (False, True)),
    ),
    "sparse_mla_attention": Cases(
        ("heads", "latent_dim", "rope_dim", "cached_dim", "chosen"),
        tuple(row | {"chosen": chosen} for row, chosen in zip(_LATENTS, (1, 17, 4096), strict=True)),
        ({"scale": 0.05, "sinks": False}, {"scale": 0.05, "sinks": True}),
    ),
    "lightning_indexer_topk": Cases(
        ("heads", "head_dim", "chosen"),
        rows("tokens slots heads head_dim chosen", (1, 2, 1, 1, 1), (13, 100, 6, 50, 17), (2, 400, 64, 128, 4096)),
        tuple({"scale": 0.125, "ratio": r, "keep_tail": tail} for r in (1, 4, 16) for tail in (False, True)),
    ),
    "block_indexer_topk": Cases(
        ("index_heads", "head_dim", "chosen", "block"),
        rows("tokens slots index_heads head_dim chosen", (1, 2, 1, 1, 1), (5, 40, 3, 10, 5), (2, 1200, 16, 128, 128)),
        tuple({"block": block, "local_blocks": local} for block in (1, 7, 128) for local in (0, 1)),
    ),
    "block_sparse_attention": Cases(
        ("heads", "kv_heads", "index_heads", "head_dim", "chosen", "block"),
        rows(
            "tokens slots heads kv_heads index_heads head_dim chosen",
            (1, 2, 1, 1, 1, 2, 1),
            (13, 100, 12, 6, 3, 50, 5),
            (2, 600, 128, 16, 16, 256, 128),
        ),
        tuple({"scale": 0.2, "block": block} for block in (1, 7, 128)),
    ),
    "gated_pool": Cases(
        ("head_dim", "pooled_width", "stride"),
        rows("entries stride", (1, 1), (7, 5), (3, 128)),
        tuple(
            {"overlap": overlap, "head_dim": dim, "pooled_width": dim * (1 + overlap)}
            for overlap in (False, True)
            for dim in (1, 50, 512)
        ),
    ),
    "shared_kv_attention": Cases(("heads", "head_dim", "window"), _SHARED, _WINDOWS),
    "hca_attention": Cases(
        ("heads", "head_dim", "window", "ratio"),
        _SHARED,
        tuple(row | {"ratio": ratio} for row in _WINDOWS for ratio in (1, 5, 128)),
    ),
    "csa_attention": Cases(
        ("heads", "head_dim", "window", "ratio", "chosen"),
        tuple(row | {"chosen": chosen} for row, chosen in zip(_SHARED, (1, 7, 2048), strict=True)),
        tuple(row | {"ratio": ratio} for row in _WINDOWS for ratio in (1, 3, 128)),
    ),
    "hyper_connection_read": Cases(_MIXED_SPANS, rows("tokens", (1,), (9,)), tuple(_mixed(4)), {}),
    "hyper_connection_write": Cases(_MIXED_SPANS[:3], rows("tokens", (1,), (9,)), tuple(_mixed(4)), {}),
    "hyper_connection_join": Cases(
        ("streams", "width", "flat_width"),
        rows("tokens streams width flat_width single", (1, 1, 1, 1, 1), (9, 3, 50, 150, 1), (3, 8, 8192, 65536, 1)),
        ({"eps": 1e-6, "learned": True}, {"eps": 1e-6, "learned": False}),
    ),
    "rope_tail": Cases(
        ("heads", "head_dim", "rope_pairs"),
        rows("tokens heads head_dim rope_pairs", (1, 1, 2, 1), (63, 5, 100, 30), (3, 128, 512, 128)),
        tuple({"layout": word, "inverse": back} for word in ("neox", "interleaved") for back in (False, True)),
    ),
    "layer_norm": Cases(("width",), WIDTHS, EPS),
    "head_sigmoid_gate": Cases(("heads", "head_dim"), HEADS),
    "constant_scale": Cases(("width",), WIDTHS, ({"factor": 12.0},)),
    "sigmoid_gate": Cases(("width",), WIDTHS),
    "gated_group_rms_norm": Cases(
        ("width", "norm_groups"),
        rows("tokens width norm_groups", (1, 2, 1), (63, 100, 5), (3, 65536, 64)),
        ({"eps": 1e-6, "gate_first": False}, {"eps": 1e-6, "gate_first": True}),
    ),
    "causal_conv1d": Cases(_CONVOLUTION_SPANS, _CONVOLUTIONS, _ACTIVATIONS),
    "causal_conv1d_bias": Cases(_CONVOLUTION_SPANS, _CONVOLUTIONS, _ACTIVATIONS),
    "kda_gate": Cases(("heads", "head_dim"), HEADS, ({"lower_bound": None}, {"lower_bound": -5.0})),
    "kda_chunk": Cases(_DELTA_SPANS, _DELTA, ({"scale": 0.1},)),
    "kda_recurrent": Cases(_DELTA_SPANS, _DELTA, ({"scale": 0.1},)),
    "gated_delta_gate": Cases(
        ("value_heads",),
        rows("tokens value_heads", (1, 1), (63, 100), (3, 256)),
        ({"strength": 1.0}, {"strength": 2.0}),
    ),
    "gated_delta_chunk": Cases(_GATED_DELTA_SPANS, _GATED_DELTA, ({"scale": 0.1},)),
    "gated_delta_recurrent": Cases(_GATED_DELTA_SPANS, _GATED_DELTA, ({"scale": 0.1},)),
    "lightning_chunk": Cases(("heads", "head_dim"), _LIGHTNING),
    "lightning_recurrent": Cases(("heads", "head_dim"), _LIGHTNING),
    "selective_scan": Cases(("width", "state_size"), _SELECTIVE),
    "selective_state_update": Cases(("width", "state_size"), _SELECTIVE),
    "ssd_chunk_scan": Cases(_SSD_SPANS, _SSD, _STEPS),
    "ssd_state_update": Cases(_SSD_SPANS, _SSD, _STEPS),
    "multiply": Cases(("width",), WIDTHS),
    "silu": Cases(("width",), WIDTHS),
    "silu_and_mul": Cases(("width",), WIDTHS),
    "gelu_and_mul": Cases(("width",), WIDTHS, _FORMS),
    "situ_and_mul": Cases(("width",), WIDTHS, ({"beta": 4.0, "linear_beta": 25.0}, {"beta": 1.0, "linear_beta": None})),
    "gelu": Cases(("width",), WIDTHS, _FORMS),
    "moe_router_topk_softmax": Cases(
        ("experts", "top_k"),
        rows("tokens experts top_k num_groups topk_groups", (1, 1, 1, 1, 1), (63, 100, 7, 1, 1), (5, 1024, 32, 1, 1)),
        ROUTING,
        {"num_groups": {"max": 1}},
    ),
    "moe_router_topk_sigmoid_bias": Cases(("experts", "top_k", "num_groups", "topk_groups"), GROUPED_CHOICES, ROUTING),
    "moe_router_group_best_softmax": Cases(("experts", "top_k", "num_groups", "topk_groups"), GROUPED_CHOICES, ROUTING),
    "routed_experts": Cases(
        ("experts", "top_k", "expert_in", "expert_width"),
        rows(
            "tokens experts top_k expert_in expert_width",
            (1, 1, 1, 32, 32),
            (63, 9, 3, 96, 160),
            (3, 1024, 32, 32, 32),
            (2, 3, 2, 16384, 32),
            (2, 3, 2, 32, 16384),
        ),
        tuple({"activation": a, "weight_format": w} for a in ("silu", "situ", "gelu_tanh") for w in (PLAIN, "mxfp4")),
        {
            "activation": {"one_of": ["silu", "situ", "gelu", "gelu_tanh"]},
            "weight_format": {"one_of": ["float32", "bfloat16", "float16", "mxfp4"]},
        },
    ),
    "sampling": Cases(("vocab",), rows("wanted vocab", (1, 1), (63, 100), (7, 262144))),
    "vision_patch_embed": Cases(
        ("width", "patch_values"), rows("patches width patch_values", (1, 1, 3), (63, 100, 588), (3, 8192, 3072))
    ),
    "vision_position_embed": Cases(
        ("grid_rows", "grid_columns", "width"),
        rows("patches grid_rows grid_columns width", (PATCHES, 1, 1, 2), (PATCHES, 7, 5, 100), (PATCHES, 64, 64, 2048)),
    ),
    "vision_rope_2d": Cases(
        ("heads", "head_dim", "rope_pairs"),
        rows("patches heads head_dim rope_pairs", (1, 1, 4, 2), (63, 5, 36, 18), (3, 64, 128, 64)),
    ),
    "vision_attention": Cases(
        ("heads", "head_dim"),
        rows("patches heads head_dim", (PATCHES, 1, 4), (PATCHES, 5, 36), (PATCHES, 64, 128)),
        ({"scale": 0.1},),
    ),
    "patch_merge": Cases(
        ("width",), rows("patches width cell", (PATCHES, 1, 4), (PATCHES, 100, 4), (PATCHES, 8192, 4))
    ),
    **GROUPED_SIZES,
    **VISION_SIZES,
}
