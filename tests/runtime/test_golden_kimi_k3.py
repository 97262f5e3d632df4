"""The text decoder against numbers of an independent implementation: every snapshot, both kernels of each operator.

The data lie beside the repository; `test_kimi_k3_numpy.py` needs nothing from outside.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from closeness import relative_error
from kimi_k3_numpy import KimiK3
from safetensors.torch import load_file

from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.ops.registry import choose_operators
from day0.runtime.trace import Trace
from day0.source.resolve import resolve

LIMIT = 1e-4
LAYERS = range(9)
MOE_LAYERS = range(1, 9)
KDA_LAYERS = (0, 1, 2, 4, 5, 6)
KERNELS = {
    "reference": {},
    "fast": {"kda_chunk": "day0-chunked", "paged_gqa_attention": "torch-sdpa"},
}

# The golden data's word for a snapshot of a layer -> ours.
WHOLE_LAYER = {
    "attn_in": "mixer_in",
    "attn_out": "mixer_out",
    "mlp_mix": "ffn_mix",
    "mlp_probs": "ffn_mix_weights",
    "mlp_in": "ffn_in",
    "mlp_out": "ffn_out",
    "output": "output",
}
MIXED_READ = {"attn_mix": "mixer_mix", "attn_probs": "mixer_mix_weights"}
KDA = {
    "kda.q_conv": "mixer.q_conv",
    "kda.k_conv": "mixer.k_conv",
    "kda.v_conv": "mixer.v_conv",
    "kda.g_raw": "mixer.decay_in",
    "kda.g": "mixer.decay",
    "kda.beta": "mixer.beta",
    "kda.o": "mixer.attention",
    "kda.gate_logits": "mixer.gate",
    "kda.o_gated": "mixer.gated",
}
MLA = {
    "mla.q": "mixer.q",
    "mla.kv_latent": "mixer.latent",
    "mla.k_rope": "mixer.k_rope",
    "mla.k_nope": "mixer.k_nope",
    "mla.v": "mixer.v",
    "mla.probs": "mixer.probs",
    "mla.ctx": "mixer.attention",
    "mla.gate": "mixer.gate",
}
MOE = {
    "moe.router_logits": "ffn.router_logits",
    "moe.latent_in": "ffn.latent_in",
    "moe.routed_sum": "ffn.routed_sum",
    "moe.latent_norm": "ffn.latent_norm",
    "moe.routed_out": "ffn.routed_out",
    "moe.shared_out": "ffn.shared_out",
}
SNAPSHOTS = {
    **{f"layers.{i}.{theirs}": f"layers.{i}.{ours}" for i in LAYERS for theirs, ours in WHOLE_LAYER.items()},
    **{f"layers.{i}.{theirs}": f"layers.{i}.{ours}" for i in LAYERS if i for theirs, ours in MIXED_READ.items()},
    **{f"layers.{i}.{theirs}": f"layers.{i}.{ours}" for i in (0, 5) for theirs, ours in KDA.items()},
    **{f"layers.{i}.{theirs}": f"layers.{i}.{ours}" for i in (3, 8) for theirs, ours in MLA.items()},
    **{f"layers.{i}.{theirs}": f"layers.{i}.{ours}" for i in (1, 6) for theirs, ours in MOE.items()},
    "embed": "embed",
    "final_mix": "output_mix",
    "final_probs": "output_mix_weights",
    "final_norm": "norm",
    "logits": "logits",
}
STATES = {f"layers.{i}.kda.{name}" for i in KDA_LAYERS for name in ("final_state", *(f"conv_state_{a}" for a in "qkv"))}
ROUTES = {f"layers.{i}.moe.{name}" for i in MOE_LAYERS for name in ("topk_ids", "topk_weights")}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    folder = shared / "golden" / "kimi-k3-tiny"
    if not (folder / "expected.safetensors").is_file():
        pytest.skip(f"no golden data at {folder}")
    return folder


@pytest.fixture(scope="module")
def expected(golden: Path) -> dict[str, torch.Tensor]:
    return load_file(golden / "expected.safetensors")


@pytest.fixture(scope="module", params=KERNELS)
def engine(request: pytest.FixtureRequest, golden: Path, make_engine) -> Engine:
    ops = choose_operators(torch.device("cpu"), torch.float32, forced=KERNELS[request.param])
    return make_engine(golden, ops=ops)


@pytest.fixture(scope="module")
def trace(engine: Engine, expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    kept = Trace()
    engine.forward(expected["input_ids"].flatten().tolist(), trace=kept)
    return kept.tensors


def test_the_profile_explains_every_tensor(golden: Path) -> None:
    files = resolve(str(golden))
    profile = read_profile(files)
    assert compare_tensors(profile, files).sound
    assert profile.unused_config_keys == ()


def test_no_snapshot_of_the_text_part_is_left_out(expected) -> None:
    ours = {*SNAPSHOTS, *STATES, *ROUTES, "input_ids", "generated_ids", "decode.logits"}
    ours |= {"decode.layers.0.kda.state_after", "long.input_ids", "long.logits_last8"}
    ours |= {f"long.layers.{i}.kda.final_state" for i in (0, 6)}
    theirs = {name for name in expected if not name.startswith(("image.", "video.", "prep."))}
    assert theirs == ours


def test_every_snapshot(trace, expected) -> None:
    errors = {}
    for theirs, ours in SNAPSHOTS.items():
        wanted = expected[theirs]
        found = trace[ours].sigmoid() if theirs.endswith("mla.gate") else trace[ours]
        errors[theirs] = relative_error(found.reshape(wanted.shape), wanted)
    assert {name: error for name, error in errors.items() if not error < LIMIT} == {}


def test_states_after_the_prompt(trace, expected) -> None:
    errors = {}
    for layer in KDA_LAYERS:
        name = f"layers.{layer}.kda"
        errors[f"{name}.final_state"] = relative_error(
            trace[f"layers.{layer}.mixer.state"], expected[f"{name}.final_state"]
        )
        for place, axis in enumerate("qkv"):
            # They keep four inputs, of which a convolution of four taps needs the last three.
            wanted = expected[f"{name}.conv_state_{axis}"][:, 1:]
            errors[f"{name}.{axis}"] = relative_error(trace[f"layers.{layer}.mixer.conv_state"][place], wanted)
    assert {name: error for name, error in errors.items() if not error < LIMIT} == {}


@pytest.mark.parametrize("layer", MOE_LAYERS)
def test_experts_and_their_weights(trace, expected, layer: int) -> None:
    # They sort by weight, we by biased score: compare the choice as a set and the weights expert by expert.
    found, wanted = torch.zeros(40, 16), torch.zeros(40, 16)
    found.scatter_(1, trace[f"layers.{layer}.ffn.topk_ids"], trace[f"layers.{layer}.ffn.topk_weights"])
    wanted.scatter_(1, expected[f"layers.{layer}.moe.topk_ids"], expected[f"layers.{layer}.moe.topk_weights"])
    assert torch.equal(found > 0, wanted > 0)
    assert relative_error(found, wanted) < LIMIT


def test_greedy_continuation_is_identical(engine, expected) -> None:
    prompt = tuple(expected["input_ids"].flatten().tolist())
    wanted = expected["generated_ids"].flatten().tolist()
    params = SamplingParams(max_tokens=len(wanted), ignore_eos=True)
    # A second request beside it, so that it is not decoded alone.
    first, _ = engine.generate([Request("golden", prompt, params), Request("beside", prompt[:17], params)])
    assert list(first.token_ids) == wanted


@pytest.mark.parametrize("chunk", [None, 1, 7, 16, 64])
def test_decode_logits(engine, expected, chunk: int | None) -> None:
    prompt, generated = expected["input_ids"].flatten().tolist(), expected["generated_ids"].flatten().tolist()
    logits = engine.forward(prompt + generated[:-1], chunk=chunk)
    assert relative_error(logits[:40], expected["logits"]) < LIMIT
    assert relative_error(logits[39:], expected["decode.logits"]) < LIMIT


def test_state_after_decoding(engine, expected) -> None:
    prompt, generated = expected["input_ids"].flatten().tolist(), expected["generated_ids"].flatten().tolist()
    kept = Trace(only=("layers.0.mixer.state",))
    engine.forward(prompt + generated[:-1], trace=kept)
    assert relative_error(kept.tensors["layers.0.mixer.state"], expected["decode.layers.0.kda.state_after"]) < LIMIT


def test_long_prompt(engine, expected) -> None:
    ids = expected["long.input_ids"].flatten().tolist()
    kept = Trace(only=("layers.0.mixer.state", "layers.6.mixer.state"))
    logits = engine.forward(ids, trace=kept)
    assert relative_error(logits[-8:], expected["long.logits_last8"]) < LIMIT
    for layer in (0, 6):
        found, wanted = kept.tensors[f"layers.{layer}.mixer.state"], expected[f"long.layers.{layer}.kda.final_state"]
        assert relative_error(found, wanted) < LIMIT
    assert relative_error(engine.forward(ids, chunk=64)[-8:], expected["long.logits_last8"]) < LIMIT


def test_the_numpy_decoder_is_judged_by_the_same_numbers(golden, expected) -> None:
    seen = KimiK3(golden).forward(expected["input_ids"].flatten().tolist())
    names = ["logits", *(f"layers.{layer}.output" for layer in LAYERS)]
    assert max(relative_error(seen[name], expected[name]) for name in names) < LIMIT
