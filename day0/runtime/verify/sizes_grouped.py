"""The sizes at which operators of grouped-query decoders beyond the plain one are measured."""

from __future__ import annotations

from collections.abc import Mapping

from day0.runtime.verify.case import EPS, GROUPED_CHOICES, HEADS, PLAIN, ROUTING, WIDTHS, Cases, rows

_CHOICES = rows("tokens experts top_k", (1, 1, 1), (63, 100, 7), (5, 1024, 32))


def _experts(*activations: str) -> Cases:
    return Cases(
        ("experts", "top_k", "expert_in", "expert_width"),
        rows(
            "tokens experts top_k expert_in expert_width",
            *(
                (1, 1, 1, 32, 32),
                (63, 9, 3, 96, 160),
                (3, 1024, 32, 32, 32),
                (2, 3, 2, 16384, 32),
                (2, 3, 2, 32, 16384),
            ),
        ),
        tuple({"activation": name, "weight_format": PLAIN} for name in activations),
        {
            "activation": {"one_of": [*activations]},
            "weight_format": {"one_of": ["float32", "bfloat16", "float16"]},
        },
    )


GROUPED_SIZES: Mapping[str, Cases] = {
    "paged_gqa_attention_variant": Cases(
        ("heads", "kv_heads", "head_dim", "value_dim", "window"),
        rows(
            "tokens slots heads kv_heads head_dim value_dim",
            *((1, 2, 1, 1, 2, 2), (13, 100, 6, 3, 50, 30), (2, 8, 128, 128, 16, 16), (2, 40, 8, 2, 512, 512)),
        ),
        tuple(
            {"scale": 0.1, "window": window, "chunked": chunked, "sinks": sinks, "softcap": softcap}
            for window, chunked in (
                (None, False),
                (1, False),
                (7, False),
                (8192, False),
                (1, True),
                (7, True),
                (8192, True),
            )
            for sinks, softcap in ((False, None), (True, None), (False, 30.0), (True, 30.0))
        ),
    ),
    "query_temperature": Cases(("heads", "head_dim"), HEADS, ({"floor": 8192.0, "growth": 0.1, "offset": 1.0},)),
    "multi_axis_rope_table": Cases(
        (),
        rows("tokens rope_pairs position_axes", (1, 64, 3), (63, 64, 3)),
        tuple(
            {"theta": 1e6, "scaling": "none", "sections": "24 20 20", "interleaved": turns} for turns in (False, True)
        ),
        {"scaling": {"one_of": ["none"]}},
    ),
    "clamped_silu_and_mul": Cases(("width",), WIDTHS, ({"limit": 1.5},)),
    "silu_clamped_and_mul": Cases(("width",), WIDTHS, ({"limit": 1.5},)),
    "swiglu_oai_and_mul": Cases(("width",), WIDTHS, ({"alpha": 1.702, "limit": 1.5}, {"alpha": 1.702, "limit": None})),
    "softplus_gate": Cases(("width",), WIDTHS),
    "head_softplus_gate": Cases(("heads", "head_dim"), HEADS),
    "token_sigmoid_gate": Cases(("width",), WIDTHS),
    "softcap": Cases(("width",), WIDTHS, ({"softcap": 3.0},)),
    "relu2": Cases(("width",), WIDTHS),
    "unit_rms_norm": Cases(("width",), WIDTHS, EPS),
    "rms_norm_plus_one": Cases(("width",), WIDTHS, EPS),
    "layer_norm_without_bias": Cases(("width",), WIDTHS, EPS),
    "learnt_scale": Cases(("width",), rows("tokens width single", (1, 1, 1), (63, 100, 1), (3, 65536, 1))),
    "weighed_residual_add": Cases(("width",), WIDTHS, ({"skip": 3.5, "branch": 0.7, "normed": True},)),
    "moe_router_topk_sqrtsoftplus_bias": Cases(
        ("experts", "top_k", "num_groups", "topk_groups"), GROUPED_CHOICES, ROUTING
    ),
    "moe_router_topk_logit_bias": Cases(
        ("experts", "top_k"),
        _CHOICES,
        tuple({"renormalize": renormalize, "scaling_factor": 2.5} for renormalize in (False, True)),
    ),
    "moe_router_sparsemixer": Cases(
        ("experts", "top_k"),
        rows("tokens experts top_k num_groups topk_groups", (1, 1, 1, 1, 1), (63, 17, 3, 1, 1), (5, 1024, 32, 1, 1)),
        ({"renormalize": False, "correction_bias": False, "scaling_factor": 1.0},),
        {
            "renormalize": {"one_of": [False]},
            "correction_bias": {"one_of": [False]},
            "scaling_factor": {"max": 1.0},
            "num_groups": {"max": 1},
        },
    ),
    "moe_router_hash": Cases(
        ("experts", "top_k", "table_rows"),
        rows("tokens experts top_k table_rows", (1, 1, 1, 1), (63, 100, 7, 50), (5, 1024, 32, 1000)),
        tuple(
            {"scoring": scoring, "renormalize": renormalize, "scaling_factor": 2.5}
            for scoring in ("sqrtsoftplus", "sigmoid", "softmax")
            for renormalize in (False, True)
        ),
    ),
    "moe_expert_scale": Cases(("experts", "top_k"), _CHOICES),
    "biased_routed_experts": _experts("silu", "swiglu_oai of 1.702 clamped at 7"),
    "input_weighted_experts": _experts("silu"),
    "routed_experts_ungated": _experts("relu2"),
    "biased_lm_head": Cases(
        ("vocab", "width"), rows("wanted vocab width", (1, 1, 1), (63, 257, 100), (3, 262144, 16), (3, 16, 65536))
    ),
    "per_layer_embedding_lookup": Cases(
        ("vocab", "width"), rows("tokens vocab width", (1, 1, 1), (63, 257, 100), (3, 262144, 2), (3, 16, 65536))
    ),
}
