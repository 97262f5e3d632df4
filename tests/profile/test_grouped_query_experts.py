"""What sets the experts, ends and predictors of each line of grouped-query decoders apart, in small configs."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import Any

import pytest
from grouped_query_models import MOE, SMALL, Read, experts, mixers, small_reader, tensor

from day0.errors import InputError
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors


@pytest.fixture
def read(files_of: Callable[[dict[str, Any]], Any]) -> Read:
    return small_reader(files_of)


class TestExperts:
    def test_gpt_oss_has_biases_throughout(self, read: Read) -> None:
        profile = read("gpt_oss", num_local_experts=4, num_experts_per_tok=2, swiglu_limit=5.0)
        joined = tensor(profile, "layers.0.ffn.experts.gate_up.weight")
        assert (joined.name, joined.shape) == ("model.layers.0.mlp.experts.gate_up_proj", (4, 48, 200))
        assert (joined.stacked, joined.count, joined.parameters) == (4, 1, 4 * 48 * 200)
        assert tensor(profile, "layers.0.ffn.experts.gate_up.bias").shape == (4, 200)
        assert tensor(profile, "layers.0.ffn.experts.down.bias").shape == (4, 48)
        assert tensor(profile, "layers.0.ffn.router.bias").shape == (4,)
        assert experts(profile, 0).activation.limit == 5.0
        assert all(m.sinks and m.qkv_bias and m.o_bias for m in mixers(profile))

    def test_stacked_experts_lie_as_their_line_writes_them(self, read: Read) -> None:
        granite = read("granitemoe", num_local_experts=4, num_experts_per_tok=2)
        assert tensor(granite, "layers.0.ffn.experts.gate_up.weight").shape == (4, 200, 48)
        assert tensor(granite, "layers.0.ffn.experts.down.weight").shape == (4, 48, 100)
        llama4 = read("llama4_text", num_local_experts=4)
        assert tensor(llama4, "layers.0.ffn.experts.gate_up.weight").shape == (4, 48, 200)
        assert tensor(llama4, "layers.0.ffn.experts.down.weight").shape == (4, 100, 48)

    def test_a_joined_tensor_is_cut_inside_each_of_its_parts(self, read: Read) -> None:
        phi = read("phi3")
        assert tensor(phi, "layers.0.mixer.qkv_proj.weight").shape == (100, 48)
        assert tensor(phi, "layers.0.mixer.qkv_proj.weight").shard_units == 2
        stacked = tensor(
            read("granitemoe", num_local_experts=4, num_experts_per_tok=2), "layers.0.ffn.experts.down.weight"
        )
        assert (stacked.shard_axis, stacked.shard_units) == (2, 100)

    def test_which_layers_are_routed(self, read: Read) -> None:
        def kinds(profile: ArchitectureProfile) -> list[str]:
            return [layer.feed_forward.kind for layer in profile.layers]

        ernie = {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 24}
        assert kinds(read("ernie4_5_moe", **ernie)) == ["dense", "moe", "moe", "moe"]
        assert kinds(read("ernie4_5_moe", moe_layer_interval=2, **ernie)) == ["dense", "moe", "dense", "moe"]
        assert kinds(read("flint", **MOE)) == ["dense", "dense", "moe", "moe"]
        assert kinds(read("qwen2_moe", mlp_only_layers=[2], **MOE)) == ["moe", "moe", "dense", "moe"]
        dots = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
        assert kinds(read("dots1", first_k_dense_replace=2, **dots)) == ["dense", "dense", "moe", "moe"]
        assert kinds(read("laguna", mlp_layer_types=["sparse", "dense", "dense", "sparse"], **MOE)) == [
            "moe",
            "dense",
            "dense",
            "moe",
        ]
        interleaved = read("llama4_text", interleave_moe_layer_step=2, intermediate_size_mlp=90, num_local_experts=4)
        assert kinds(interleaved) == ["dense", "moe", "dense", "moe"]
        assert tensor(interleaved, "layers.0.ffn.gate_proj.weight").shape == (90, 48)
        assert kinds(read("mistral")) == ["dense"] * 4

    def test_shared_experts(self, read: Read) -> None:
        gated = read("qwen2_moe", shared_expert_intermediate_size=30, **MOE)
        assert tensor(gated, "layers.0.ffn.shared_gate.weight").shape == (1, 48)
        assert tensor(gated, "layers.0.ffn.shared.gate_proj.weight").shape == (30, 48)
        dots = read("dots1", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=2)
        assert tensor(dots, "layers.0.ffn.shared.gate_proj.weight").shape == (48, 48)

    def test_sizes_by_layer_in_hunyuan(self, read: Read) -> None:
        profile = read(
            "hunyuan_v1_moe",
            num_experts=8,
            moe_topk=[1, 2, 2, 3],
            moe_intermediate_size=[20, 20, 30, 30],
            num_shared_expert=[1, 1, 2, 2],
        )
        assert [experts(profile, layer).router.top_k for layer in range(4)] == [1, 2, 2, 3]
        assert [experts(profile, layer).shared_width for layer in range(4)] == [20, 20, 60, 60]
        with pytest.raises(InputError, match="no number from 1 up for layer 3"):
            read("hunyuan_v1_moe", num_experts=8, moe_topk=[1, 2, 2])

    def test_gemma4_has_experts_beside_its_mlp(self, read: Read) -> None:
        keys = {"enable_moe_block": True, "top_k_experts": 2, "hidden_size_per_layer_input": 0}
        profile = read("gemma4_text", num_experts=8, moe_intermediate_size=24, **keys)
        assert experts(profile, 0).parallel is not None
        assert tensor(profile, "layers.0.ffn.parallel.gate_proj.weight").name == "model.layers.0.mlp.gate_proj.weight"
        assert tensor(profile, "layers.0.ffn.router.scale").shape == (48,)
        assert tensor(profile, "layers.0.ffn.router.expert_scale").shape == (8,)
        assert tensor(profile, "layers.0.scale").shape == (1,)

    def test_more_chosen_than_there_are(self, read: Read) -> None:
        with pytest.raises(InputError, match="each token chooses 9 of 8 experts"):
            read("flint", **MOE | {"num_experts_per_tok": 9})


class TestEnds:
    def test_granite_scales_everything(self, read: Read) -> None:
        keys = {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.25}
        profile = read("granite", attention_multiplier=0.5, **keys)
        assert profile.ends.embedding_scale == 12.0 and profile.ends.logit_scale == 0.125
        assert {m.scale for m in mixers(profile)} == {0.5}
        assert getattr(profile.residual, "branch_scale", None) == 0.25

    def test_gemma_bounds_its_logits(self, read: Read) -> None:
        profile = read("gemma2")
        assert isclose(profile.ends.embedding_scale, 48**0.5)
        assert (profile.ends.logit_softcap, mixers(profile)[0].softcap) == (30.0, 50.0)
        free = read("gemma3_text")
        assert (free.ends.logit_softcap, mixers(free)[0].softcap) == (None, None)
        with pytest.raises(InputError, match="encoders are not known"):
            read("gemma3_text", use_bidirectional_attention=True)

    def test_muse_spark(self, files_of: Callable[[dict[str, Any]], Any]) -> None:
        text = SMALL | {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_hidden_size": 32,
            "moe_intermediate_size": 24,
            "layer_rope_theta": [1e4, 0, 1e4, 1e4],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        }
        profile = read_profile(files_of({"model_type": "muse_spark", "text_config": text}))
        assert [m.rope is not None for m in mixers(profile)] == [True, False, True, True]
        assert [m.window for m in mixers(profile)] == [2048, 2048, 2048, None]
        assert profile.layers[0].unit_norms == ("mixer_post_norm",) and profile.layers[0].post_norm_eps == 1e-8
        assert tensor(profile, "layers.1.ffn.experts.gate_up.weight").shape == (4, 48, 32)
        assert tensor(profile, "layers.1.ffn.latent_down.weight").shape == (32, 48)
        gate = tensor(profile, "layers.0.mixer_res.gate")
        assert gate.name == "model.language_model.layers.0.post_attention_residual_gate.gate"
        assert (gate.shape, gate.dtype) == ((48,), "F32")


class TestPredictors:
    def test_mimo_and_minimax(self, read: Read) -> None:
        mimo = read("mimo", num_nextn_predict_layers=2)
        assert mimo.mtp is not None and mimo.mtp.depths == 2
        names = {spec.name for spec in expected_tensors(mimo) if spec.group == "mtp"}
        assert {"model.mtp_layers.0.input_proj.weight", "model.mtp_layers.1.self_attn.q_proj.bias"} <= names
        keys = {"num_local_experts": 8, "num_experts_per_tok": 2, "num_mtp_modules": 3}
        assert read("minimax_m2", use_mtp=False, **keys).mtp is None
        minimax = read("minimax_m2", use_mtp=True, **keys)
        assert minimax.mtp is not None and [layer.index for layer in minimax.mtp.layers] == [4, 5, 6]
