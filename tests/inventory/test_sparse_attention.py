"""Operators of latent, sparse and compressed attention, of hash routing and of several residual streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from day0.inventory import OperatorNeed, layer_operators, operators_needed
from day0.operators import OPERATORS
from day0.profile.profile import (
    ActivationSpec,
    ArchitectureProfile,
    CompressedSparseAttention,
    DenseFeedForward,
    FeedForward,
    HeavilyCompressedAttention,
    HyperConnections,
    IndexerSpec,
    LatentAttention,
    LayerSpec,
    Mixer,
    OutputGate,
    PlainResidual,
    QueryTemperature,
    Residual,
    RopeSpec,
    RoutedExperts,
    RouterSpec,
    SharedKeyValueAttention,
    SparseLatentAttention,
)

LATENT = LatentAttention(
    num_heads=4,
    q_lora_rank=24,
    kv_lora_rank=20,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=10,
    rope=RopeSpec(1e4, 8, "interleaved"),
    scale=0.2,
    latent_norm_eps=1e-6,
)
INDEXER = IndexerSpec(num_heads=3, head_dim=16, top_k=32, rope=RopeSpec(1e4, 8))
SHARED = SharedKeyValueAttention(
    num_heads=4,
    head_dim=32,
    q_lora_rank=24,
    o_groups=2,
    o_lora_rank=12,
    rope=RopeSpec(1e4, 8, "interleaved"),
    scale=0.2,
    window=16,
    norm_eps=1e-6,
)
MLP = DenseFeedForward(96, ActivationSpec("silu"))


def needs(
    mixer: Mixer = LATENT, feed_forward: FeedForward = MLP, residual: Residual = PlainResidual(), **layer: Any
) -> dict[str, list[OperatorNeed]]:
    found: dict[str, list[OperatorNeed]] = {}
    for need in operators_needed(model(mixer, feed_forward, residual, **layer)):
        contract = OPERATORS[need.name]
        assert set(need.shapes) == set(contract.model_axes) and set(need.attributes) == set(contract.attributes)
        found.setdefault(need.name, []).append(need)
    return found


def model(mixer: Mixer, feed_forward: FeedForward, residual: Residual, **layer: Any) -> ArchitectureProfile:
    return ArchitectureProfile(
        family="test",
        model_type="test",
        architectures=(),
        dtype="BF16",
        hidden_size=64,
        vocab_size=99,
        norm_eps=1e-6,
        tie_word_embeddings=False,
        max_position=None,
        max_position_field=None,
        layers=(LayerSpec(0, mixer, feed_forward, residual, **layer),),
        residual=residual,
    )


def place(found: dict[str, list[OperatorNeed]], name: str, used_for: str) -> OperatorNeed:
    (need,) = [need for need in found[name] if used_for in need.used_for]
    return need


class TestLatent:
    def test_all_tokens_or_a_window_or_with_sinks(self) -> None:
        assert "paged_mla_attention" in needs()
        (window,) = needs(replace(LATENT, window=7))["window_mla_attention"]
        assert (window.attributes["window"], window.attributes["sinks"]) == (7, False)
        (sinks,) = needs(replace(LATENT, sinks=True))["window_mla_attention"]
        assert (sinks.attributes["window"], sinks.attributes["sinks"]) == (None, True)

    def test_gates(self) -> None:
        assert "sigmoid_gate" not in needs()
        per_channel = needs(replace(LATENT, output_gate=OutputGate()))
        assert place(per_channel, "linear", "mixer.g_proj").shapes["out_features"] == 40
        assert place(per_channel, "sigmoid_gate", "mixer.gate").shapes == {"width": 40}
        per_head = needs(replace(LATENT, output_gate=OutputGate(per="head")))
        assert place(per_head, "linear", "mixer.g_proj").shapes["out_features"] == 4
        assert per_head["head_sigmoid_gate"][0].shapes == {"heads": 4, "head_dim": 10}
        fused = needs(replace(LATENT, output_gate=OutputGate(in_query=True), raw_query_latent=True))
        assert not any("mixer.g_proj" in need.used_for for need in fused["linear"])
        assert place(fused, "linear", "mixer.q_b_proj").shapes == {"in_features": 48, "out_features": 4 * 30}

    def test_what_else_a_latent_may_pass(self) -> None:
        found = needs(
            replace(LATENT, scaled_latents=True, rope_key_norm=True, bias=True, temperature=QueryTemperature(64, 0.1))
        )
        factors = {need.attributes["factor"] for need in found["constant_scale"]}
        assert sorted(factors) == pytest.approx([(64 / 24) ** 0.5, (64 / 20) ** 0.5])
        assert place(found, "rms_norm", "mixer.k_rope_norm").shapes == {"width": 8}
        assert place(found, "linear", "mixer.kv_a_proj").attributes["bias"] is True
        assert found["query_temperature"][0].attributes == {"floor": 64, "growth": 0.1, "offset": 0.0}

    def test_queries_without_a_latent_and_keys_without_rotation(self) -> None:
        found = needs(replace(LATENT, q_lora_rank=None, rope=None))
        assert place(found, "linear", "mixer.q_proj").shapes["out_features"] == 80
        assert "rope" not in found and "rope_table" not in found


class TestSparse:
    def test_an_indexer_chooses_and_attention_reads_the_choice(self) -> None:
        found = needs(SparseLatentAttention(LATENT, 32, INDEXER))
        (choice,), (attention,) = found["lightning_indexer_topk"], found["sparse_mla_attention"]
        assert choice.shapes == {"heads": 3, "head_dim": 16, "chosen": 32}
        assert choice.attributes["scale"] == pytest.approx(16**-0.5 * 3**-0.5)
        assert attention.shapes["chosen"] == 32 and attention.shapes["cached_dim"] == 28
        assert found["layer_norm"][0].shapes == {"width": 16}
        assert {"mixer.indexer.rope.q", "mixer.indexer.rope.k"} <= {p for n in found["rope"] for p in n.used_for}

    def test_a_layer_that_reuses_a_choice_makes_none(self) -> None:
        found = needs(SparseLatentAttention(LATENT, 32, None))
        assert "lightning_indexer_topk" not in found and "layer_norm" not in found
        assert found["sparse_mla_attention"][0].shapes["chosen"] == 32

    def test_pools_of_keys_and_rotation_at_the_end(self) -> None:
        found = needs(SparseLatentAttention(LATENT, 32, replace(INDEXER, pool=4, pool_tail=True, rope_last=True)))
        assert found["gated_pool"][0].shapes == {"pooled_width": 16, "head_dim": 16, "stride": 4}
        (choice,) = found["lightning_indexer_topk"]
        assert choice.shapes["chosen"] == 8 and choice.attributes["ratio"] == 4 and choice.attributes["keep_tail"]
        assert {need.shapes["heads"] for need in found["rope_tail"]} == {1, 3}


class TestCompressed:
    def test_the_window_alone(self) -> None:
        found = needs(SHARED)
        assert found["shared_kv_attention"][0].attributes == {"scale": 0.2, "window": 16}
        assert found["head_linear"][0].shapes == {"heads": 2, "in_features": 64, "out_features": 12}
        assert [need.attributes["inverse"] for need in found["rope_tail"]] == [False, False, True]
        assert "gated_pool" not in found

    def test_heavily_compressed(self) -> None:
        found = needs(HeavilyCompressedAttention(SHARED, 128))
        assert found["gated_pool"][0].shapes == {"pooled_width": 32, "head_dim": 32, "stride": 128}
        assert found["hca_attention"][0].attributes["ratio"] == 128
        assert "lightning_indexer_topk" not in found

    def test_compressed_and_chosen(self) -> None:
        found = needs(CompressedSparseAttention(SHARED, 4, replace(INDEXER, rope_last=True)))
        assert [need.shapes["pooled_width"] for need in found["gated_pool"]] == [64, 32]
        assert all(need.attributes["overlap"] for need in found["gated_pool"])
        assert found["csa_attention"][0].shapes["chosen"] == 32
        assert found["lightning_indexer_topk"][0].attributes["ratio"] == 4
        widths = {need.shapes["width"] for need in found["paged_cache_write"]}
        assert widths == {16, 32}


class TestStreams:
    def test_streams_are_read_written_and_joined(self) -> None:
        found = needs(residual=HyperConnections(4, 1e-6, 20))
        (read,), (write,), (join,) = (found[f"hyper_connection_{verb}"] for verb in ("read", "write", "join"))
        assert read.used_for == write.used_for == ("mixer_res", "ffn_res")
        assert (read.shapes["mixing_weights"], read.shapes["flat_width"], read.shapes["scales"]) == (24, 256, 3)
        assert read.attributes["iterations"] == 20 and join.attributes["learned"] and not join.layers
        assert "residual_add" not in found

    def test_streams_that_are_not_mixed_have_fewer_weights(self) -> None:
        found = needs(residual=HyperConnections(4, 1e-6, None, write_scale=3.0, learned_head=False))
        (read,), (join,) = found["hyper_connection_read"], found["hyper_connection_join"]
        assert (read.shapes["mixing_weights"], read.shapes["scales"]) == (8, 2)
        assert read.attributes["iterations"] is None and read.attributes["write_scale"] == 3.0
        assert join.attributes["learned"] is False

    def test_a_gate_follows_the_norm_it_belongs_to(self) -> None:
        profile = model(LATENT, MLP, PlainResidual(), gated_norms=("mixer_norm",), norm_gate_rank=5)
        assert layer_operators(profile, profile.layers[0])[:4] == ("rms_norm", "linear", "silu", "sigmoid_gate")
        found = needs(gated_norms=("mixer_norm",), norm_gate_rank=5)
        assert place(found, "linear", "mixer_norm.gate_down").shapes == {"in_features": 64, "out_features": 5}


class TestExperts:
    ROUTER = RouterSpec(8, 2, "sqrtsoftplus", renormalize=True, scaling_factor=1.5, correction_bias=True)

    def experts(self, **fields: Any) -> RoutedExperts:
        return replace(RoutedExperts(self.ROUTER, 16, ActivationSpec("silu", limit=10.0), shared_width=24), **fields)

    def test_chosen_by_score_or_by_hash(self) -> None:
        assert "moe_router_topk_sqrtsoftplus_bias" in needs(feed_forward=self.experts())
        (table,) = needs(feed_forward=self.experts(router=replace(self.ROUTER, hash_rows=99)))["moe_router_hash"]
        assert table.shapes == {"experts": 8, "top_k": 2, "table_rows": 99}
        assert table.attributes["scoring"] == "sqrtsoftplus"
        limited = replace(self.ROUTER, scoring="softmax", best_of_group=True, num_groups=4, topk_groups=2)
        assert "moe_router_group_best_softmax" in needs(feed_forward=self.experts(router=limited))

    def test_clamped_inside_experts_and_beside_them(self) -> None:
        both = needs(feed_forward=self.experts())
        assert both["routed_experts"][0].attributes["activation"] == "silu clamped at 10"
        assert both["clamped_silu_and_mul"][0].attributes == {"limit": 10.0}
        routed = needs(feed_forward=self.experts(shared_activation=ActivationSpec("silu")))
        assert "clamped_silu_and_mul" not in routed and "silu_and_mul" in routed
