"""docs/trace-points.md against real traces: names, order and shapes, in both directions."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from day0.numerics.compare import execution_order
from day0.profile.profile import ArchitectureProfile, LayerSpec
from day0.runtime.engine.engine import Engine
from day0.runtime.trace import Trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trace-points.md"
MODELS = ("tiny_llama", "tiny_qwen3", "tiny_mixtral", "tiny_qwen3_moe", "tiny_kimi_k3", "tiny_sparse")
LINEAR = ("gated_deltanet", "lightning", "mamba", "mamba2", "gqa_mamba2", "short_conv")
"""Mixers whose traces models/test_linear_trace.py looks at."""
COMPRESSED = ("shared_kv", "hca", "csa", "block_sparse")
"""Mixers whose traces models/test_compressed_trace.py looks at, and those of hyper-connections with them."""
TOKENS = 5
ROW = re.compile(r"^\| `([^`]+)` \|([^|]*)\|")


def sections() -> dict[str, dict[str, list[str]]]:
    """Heading -> name -> words of its shape, in the order of the page."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").replace("`", "")
            found[heading] = {}
        elif match := ROW.match(line):
            assert match[1] not in found[heading], f"{match[1]} stands twice"
            found[heading][match[1]] = [word.strip() for word in match[2].split(",") if word.strip()]
    return found


def sizes(profile: ArchitectureProfile, layer: LayerSpec | None) -> dict[str, int]:
    """What the words of the page stand for in a layer of this model."""
    known = {"tokens": TOKENS, "hidden": profile.hidden_size, "vocab": profile.vocab_size, "3": 3}
    if layer is None:
        return known
    mixer, ffn = layer.mixer, layer.feed_forward
    if mixer.kind == "gqa":
        known |= {"heads": mixer.num_heads, "kv_heads": mixer.num_kv_heads, "head_dim": mixer.head_dim}
        known["value_dim"] = mixer.value_dim
    elif mixer.kind in ("mla", "dsa"):
        if mixer.kind == "dsa":
            known |= {"entries": TOKENS, "chosen": mixer.top_k}
            if mixer.indexer is not None:
                known |= {"index_heads": mixer.indexer.num_heads, "index_dim": mixer.indexer.head_dim}
            mixer = mixer.attention
        known |= {"heads": mixer.num_heads, "qk_head_dim": mixer.qk_head_dim, "latent": mixer.kv_lora_rank}
        known |= {"rope_dim": mixer.qk_rope_head_dim, "nope_dim": mixer.qk_nope_head_dim, "value_dim": mixer.v_head_dim}
        known["heads x value_dim"] = mixer.num_heads * mixer.v_head_dim
    else:
        known |= {"heads": mixer.num_heads, "head_dim": mixer.head_dim, "width": mixer.width}
        known["past_taps"] = mixer.conv_kernel - 1
    if ffn.kind == "moe":
        known |= {"experts": ffn.router.num_experts, "top_k": ffn.router.top_k}
        known["expert_in"] = ffn.latent_dim or profile.hidden_size
    return known


def expected(profile: ArchitectureProfile) -> Iterator[tuple[str, list[str], LayerSpec | None]]:
    """Every name the page gives for this model, in its order."""
    page = sections()
    for name, words in page["Around the layers"].items():
        if not name.startswith("layers."):
            yield name, words, None
            continue
        for layer in profile.layers:
            for own, shape in page["A layer"].items():
                yield f"layers.{layer.index}.{own}", shape, layer
                inner = {"mixer_in": f"Mixer {layer.mixer.kind}", "ffn_in": f"Feed-forward {layer.feed_forward.kind}"}
                for below, below_shape in page[inner[own]].items() if own in inner else ():
                    yield f"layers.{layer.index}.{below}", below_shape, layer


@pytest.fixture(scope="session")
def tiny_sparse(tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An indexer that chooses fewer tokens than are traced here, and a layer that shares its choice."""
    folder = tmp_path_factory.mktemp("sparse") / "model"
    shutil.copytree(tiny("glm-5.2"), folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"index_topk": 3}), "utf-8")
    return folder


@pytest.fixture(scope="module", params=MODELS)
def traced(request: pytest.FixtureRequest, make_engine) -> tuple[ArchitectureProfile, dict[str, torch.Tensor]]:
    engine: Engine = make_engine(request.getfixturevalue(request.param))
    kept = Trace()
    engine.forward(list(range(TOKENS)), trace=kept)
    return engine.profile, kept.tensors


def test_names_are_known_and_in_the_order_of_the_page(traced) -> None:
    profile, tensors = traced
    order = [name for name, _, _ in expected(profile)]
    assert list(tensors) == [name for name in order if name in tensors]


def test_traces_are_compared_in_that_order(traced) -> None:
    # Without a recorded order `day0 compare` knows the large steps of a layer and sorts what is inside them by name.
    large = [name for name in traced[1] if not re.search(r"\.(mixer|ffn)\.", name)]
    assert sorted(large, key=execution_order) == large
    every = sorted(traced[1], key=execution_order)
    for name in traced[1]:
        if match := re.fullmatch(r"(layers\.\d+)\.(mixer|ffn)\..*", name):
            before, after = (every.index(f"{match[1]}.{match[2]}_{side}") for side in ("in", "out"))
            assert before < every.index(name) < after, name


def test_shapes_are_those_of_the_page(traced) -> None:
    profile, tensors = traced
    for name, words, layer in expected(profile):
        if name not in tensors:
            continue
        known, shape = sizes(profile, layer), tensors[name].shape
        assert len(words) == len(shape), name
        for word, size in zip(words, shape, strict=True):
            if word == "candidates":
                assert 2 <= size <= 1 + profile.num_layers, name
            else:
                assert size == known[word], f"{name}: {word}"


def test_what_may_be_missing_is_missing_for_a_reason(traced) -> None:
    profile, tensors = traced
    mixing = profile.residual.kind == "attention_residual"
    for name, _, layer in expected(profile):
        if name in tensors:
            continue
        leaf = name.rpartition(".")[2]
        if leaf.startswith(("mixer_mix", "ffn_mix", "output_mix")):
            assert not mixing or name.startswith("layers.0.mixer_mix"), name
        else:
            assert layer is not None, name
            shares = layer.mixer.kind == "dsa" and layer.mixer.indexer is None
            reasons = {
                **dict.fromkeys(("index_q", "index_k", "index_weights", "index_scores", "topk_ids"), shares),
                "gate": layer.mixer.kind == "mla" and not layer.mixer.output_gate,
                "latent_norm": layer.feed_forward.kind == "moe" and not layer.feed_forward.latent_norm,
                "choice_scores": layer.feed_forward.kind == "moe" and not layer.feed_forward.router.correction_bias,
                "shared_out": layer.feed_forward.kind == "moe" and not layer.feed_forward.shared_width,
            }
            assert reasons.get(leaf), name


def test_integers_and_float32_are_where_the_page_says(tiny_kimi_k3: Path, make_engine) -> None:
    kept = Trace()
    engine: Engine = make_engine(tiny_kimi_k3, dtype="bfloat16")
    engine.forward(list(range(TOKENS)), trace=kept)
    # Mixers of other models have rows of the same names, whose numbers may be of another kind.
    parts = PAGE.read_text("utf-8").split("\n## ")
    others = ("Hyper-connections", *(f"Mixer `{kind}`" for kind in LINEAR + COMPRESSED))
    text = "\n".join(part for part in parts if not part.startswith(others))
    said = {match[1]: "float32" in line for line in text.splitlines() if (match := ROW.match(line))}
    for name, tensor in kept.tensors.items():
        leaf = re.sub(r"^layers\.\d+\.", "", name)
        if leaf == "ffn.topk_ids":
            assert tensor.dtype == torch.int64
        elif leaf != "mixer.attention":  # float32 in the recurrence, the model's own in attention
            assert (tensor.dtype == torch.float32) == said[leaf], name


def test_every_row_of_the_page_is_seen_in_some_trace(
    tiny_llama, tiny_qwen3_moe, tiny_kimi_k3, tiny_sparse, make_engine
) -> None:
    elsewhere = {"Vision", "Hyper-connections", *(f"Mixer {kind}" for kind in LINEAR + COMPRESSED)}
    unseen = {(heading, name) for heading, rows in sections().items() for name in rows if heading not in elsewhere}
    unseen.discard(("Around the layers", "layers.{i}..."))
    for folder in (tiny_llama, tiny_qwen3_moe, tiny_kimi_k3, tiny_sparse):
        kept = Trace()
        engine: Engine = make_engine(folder)
        engine.forward(list(range(TOKENS)), trace=kept)
        for name in kept.tensors:
            match = re.match(r"layers\.(\d+)\.(.*)", name)
            if not match:
                unseen.discard(("Around the layers", name))
                continue
            layer = engine.profile.layers[int(match[1])]
            for heading in ("A layer", f"Mixer {layer.mixer.kind}", f"Feed-forward {layer.feed_forward.kind}"):
                unseen.discard((heading, match[2]))
    assert unseen == set()


def test_vision_names_shapes_and_order(tiny_kimi_k3: Path, make_engine) -> None:
    engine: Engine = make_engine(tiny_kimi_k3)
    spec, kept = engine.profile.vision, Trace()
    engine.vision.encode(torch.randn(24, 3, 14, 14), [(1, 4, 6)], kept)
    known = {"patches": 24, "merged": 6, "cell": 4, "vision_hidden": spec.hidden_size, "hidden": spec.text_hidden_size}
    rows = sections()["Vision"]
    wanted: list[tuple[str, list[int]]] = []
    for name, words in rows.items():
        blocks = range(spec.num_layers) if "{i}" in name else (0,)
        wanted += [(name.replace("{i}", str(block)), [known[word] for word in words]) for block in blocks]
    assert [(name, list(tensor.shape)) for name, tensor in kept.tensors.items()] == wanted


def test_only_keeps_what_was_asked_for(tiny_kimi_k3: Path, make_engine) -> None:
    engine: Engine = make_engine(tiny_kimi_k3)
    everything = Trace()
    engine.forward([1, 2, 3], trace=everything)
    for name in ("layers.3.mixer.probs", "layers.3.mixer.v", "layers.0.mixer.state", "norm"):
        kept = Trace(only=(name,))
        engine.forward([1, 2, 3], trace=kept)
        assert list(kept.tensors) == [other for other in everything.tensors if other.startswith(name)]
        assert torch.equal(kept.tensors[name], everything.tensors[name])


def test_a_trace_keeps_copies_and_each_name_once() -> None:
    kept, tensor = Trace(), torch.zeros(3)
    kept.save("a", tensor)
    tensor += 1
    assert not kept.tensors["a"].any()
    with pytest.raises(AssertionError, match="a saved twice"):
        kept.save("a", tensor)
