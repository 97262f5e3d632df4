from __future__ import annotations

import pytest

from day0.errors import InputError


def kinds(profile) -> str:
    """One letter a layer: D dense, R routed."""
    return "".join("R" if layer.feed_forward.kind == "moe" else "D" for layer in profile.layers)


def test_dense(profile_of) -> None:
    ffn = profile_of("llama-3.1-8b", mlp_bias=True).layers[0].feed_forward
    assert (ffn.width, ffn.bias, ffn.activation.name) == (14336, True, "silu")
    assert not profile_of("qwen3-0.6b").layers[0].feed_forward.bias


@pytest.mark.parametrize(
    ("word", "name"),
    [("silu", "silu"), ("swish", "silu"), ("gelu", "gelu"), ("gelu_pytorch_tanh", "gelu_tanh")],
)
def test_activations(profile_of, word: str, name: str) -> None:
    assert profile_of("llama-3.1-8b", hidden_act=word).layers[0].feed_forward.activation.name == name


def test_an_unknown_activation_is_refused(profile_of) -> None:
    with pytest.raises(InputError, match="'mish' is not known here") as caught:
        profile_of("llama-3.1-8b", hidden_act="mish")
    assert caught.value.where == "config.json: hidden_act"


def test_mixtral(profile_of) -> None:
    profile = profile_of("mixtral-8x7b")
    assert kinds(profile) == "R" * 32
    router = profile.layers[0].feed_forward.router
    assert (router.num_experts, router.top_k, router.scoring, router.renormalize) == (8, 2, "softmax", True)
    assert (router.correction_bias, router.scaling_factor) == (False, 1.0)


@pytest.mark.parametrize("recipe", ["mixtral-8x7b", "qwen3-30b-a3b"])
def test_both_spellings_of_the_number_of_experts(profile_of, absent, recipe: str) -> None:
    theirs, other = ("num_local_experts", "num_experts")[:: 1 if recipe == "mixtral-8x7b" else -1]
    profile = profile_of(recipe, **{theirs: absent, other: 24})
    assert profile.layers[0].feed_forward.router.num_experts == 24
    with pytest.raises(InputError, match="is missing") as caught:
        profile_of(recipe, **{theirs: absent})
    assert caught.value.where == f"config.json: {theirs}"


@pytest.mark.parametrize(
    ("edits", "wanted"),
    [
        ({}, "R" * 48),
        ({"decoder_sparse_step": 2}, "DR" * 24),
        ({"decoder_sparse_step": 3}, "DDR" * 16),
        ({"mlp_only_layers": [0, 47]}, "D" + "R" * 46 + "D"),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, "DD" + "DR" * 23),
    ],
)
def test_qwen3_moe_layers(profile_of, edits: dict, wanted: str) -> None:
    profile = profile_of("qwen3-30b-a3b", **edits)
    assert kinds(profile) == wanted
    widths = {layer.feed_forward.width for layer in profile.layers if layer.feed_forward.kind == "dense"}
    assert widths <= {6144}


def test_qwen3_moe_renormalises_only_if_told(profile_of, absent) -> None:
    assert profile_of("qwen3-30b-a3b").layers[0].feed_forward.router.renormalize
    silent = profile_of("qwen3-30b-a3b", norm_topk_prob=absent)
    assert not silent.layers[0].feed_forward.router.renormalize
    assert silent.defaulted_config_keys == ("norm_topk_prob",)


def test_kimi(profile_of) -> None:
    profile = profile_of("kimi-k3")
    assert kinds(profile) == "D" + "R" * 92
    dense, ffn = profile.layers[0].feed_forward, profile.layers[1].feed_forward
    assert (dense.width, ffn.width, ffn.shared_width, ffn.latent_dim, ffn.latent_norm) == (
        33792,
        3072,
        6144,
        3584,
        True,
    )
    assert (ffn.activation.name, ffn.activation.beta, ffn.activation.linear_beta) == ("situ", 4.0, 25.0)
    router = ffn.router
    assert (router.num_experts, router.top_k, router.scoring) == (896, 16, "sigmoid")
    assert (router.renormalize, router.correction_bias, router.scaling_factor) == (True, True, 1.0)
    assert (router.num_groups, router.topk_groups) == (1, 1)


def test_situ_without_bounds(profile_of) -> None:
    nulls = {"text_config__activation_situ_beta": None, "text_config__activation_situ_linear_beta": None}
    activation = profile_of("kimi-k3", **nulls).layers[0].feed_forward.activation
    assert (activation.beta, activation.linear_beta) == (1.0, None)


@pytest.mark.parametrize(
    ("first", "step", "wanted"), [(0, 1, "R" * 93), (3, 1, "DDD" + "R" * 90), (1, 2, "DD" + "RD" * 45 + "R")]
)
def test_kimi_leading_dense_layers(profile_of, first: int, step: int, wanted: str) -> None:
    profile = profile_of("kimi-k3", text_config__first_k_dense_replace=first, text_config__moe_layer_freq=step)
    assert kinds(profile) == wanted


def test_experts_at_the_models_own_width(profile_of) -> None:
    ffn = profile_of("kimi-k3", text_config__routed_expert_hidden_size=None).layers[1].feed_forward
    assert ffn.latent_dim is None


def test_a_single_kimi_expert_keeps_its_score(profile_of) -> None:
    assert not profile_of("kimi-k3", text_config__num_experts_per_token=1).layers[1].feed_forward.router.renormalize


def test_groups_count_only_when_switched_on(profile_of) -> None:
    groups = {"text_config__num_expert_group": 8, "text_config__topk_group": 4}
    router = profile_of("kimi-k3", **groups).layers[1].feed_forward.router
    assert (router.num_groups, router.topk_groups) == (8, 4)
    off = profile_of("kimi-k3", **groups, text_config__use_grouped_topk=False).layers[1].feed_forward.router
    assert (off.num_groups, off.topk_groups) == (1, 1)


@pytest.mark.parametrize(
    ("recipe", "edits", "message", "field"),
    [
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "chooses 9 of 8 experts", "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"num_experts": 7}, "chooses 8 of 7 experts", "num_experts_per_tok"),
        ("kimi-k3", {"text_config__num_experts_per_token": 900}, "900 of 896", "text_config.num_experts_per_token"),
        ("kimi-k3", {"text_config__num_expert_group": 5}, "896 experts in 5 groups", "text_config.num_expert_group"),
        (
            "kimi-k3",
            {"text_config__num_expert_group": 4, "text_config__topk_group": 5},
            "5 of them chosen",
            "text_config.num_expert_group",
        ),
        (
            "kimi-k3",
            {"text_config__num_expert_group": 112, "text_config__topk_group": 1},
            "16 of 8 experts",
            "text_config.num_experts_per_token",
        ),
        ("mixtral-8x7b", {"num_local_experts": 10**9}, "at most", "num_local_experts"),
        ("kimi-k3", {"text_config__topk_method": "greedy"}, "'greedy' is not known", "text_config.topk_method"),
    ],
)
def test_contradictions_are_named(profile_of, recipe: str, edits: dict, message: str, field: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        profile_of(recipe, **edits)
    assert caught.value.where == f"config.json: {field}"
