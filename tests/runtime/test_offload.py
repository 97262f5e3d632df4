"""Layers that come and go: the same numbers as when they stay, whatever the budget, and what is read and held."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from day0.errors import InputError
from day0.profile.tensors import expected_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.offload import LayerStore
from day0.runtime.placement import wanted_here
from day0.runtime.weights import all_parameters
from day0.source.resolve import resolve

IDS = [7 * place % 200 for place in range(37)]
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "mixtral-8x7b", "kimi-k3", "deepseek-r1", "gpt-oss-120b", "qwen3-vl-30b-a3b")


def store_of(engine: Engine) -> LayerStore:
    store = engine.model.store
    assert isinstance(store, LayerStore)
    return store


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("recipe", MODELS)
def test_streamed_is_resident_to_the_last_bit(recipe: str, dtype: str, tiny, make_engine) -> None:
    folder = tiny(recipe)
    resident = make_engine(folder, dtype=dtype)
    wanted, stepped = resident.forward(IDS), resident.forward(IDS, chunk=5)
    for budget in (0, 300_000) if recipe == "kimi-k3" else (0, 300_000, 1 << 30):
        engine = make_engine(folder, dtype=dtype, offload="disk", weight_budget=budget)
        assert torch.equal(engine.forward(IDS), wanted)
        assert torch.equal(engine.forward(IDS, chunk=5), stepped)
        store = store_of(engine)
        assert store.resident_bytes <= budget or store.resident == 0


def test_a_budget_for_everything_keeps_everything(tiny_llama: Path, make_engine) -> None:
    engine = make_engine(tiny_llama, offload="disk", weight_budget=1 << 30)
    assert store_of(engine).resident == engine.profile.num_layers and store_of(engine).largest_layer == 0


def test_it_generates_and_batches(tiny_kimi_k3: Path, make_engine) -> None:
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    requests = [Request(str(n), tuple(IDS[: 3 + 7 * n]), params) for n in range(3)]
    wanted = [completion.token_ids for completion in make_engine(tiny_kimi_k3).generate(requests)]
    streamed = make_engine(tiny_kimi_k3, offload="disk")
    assert [completion.token_ids for completion in streamed.generate(requests)] == wanted


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "kimi-k3"])
def test_what_rests_in_host_memory_is_read_once(recipe: str, tiny, make_engine) -> None:
    """`--offload host` is refused where the device is the host, so the store is put in by hand."""
    folder = tiny(recipe)
    wanted = make_engine(folder).forward(IDS)
    engine = make_engine(folder, offload="disk")
    model, files = engine.model, resolve(str(folder))
    specs = wanted_here(expected_tensors(engine.profile), all_parameters({"": model}).keys())
    model.store = LayerStore(
        model, specs, files, store_of(engine)._experts, model.dtype, torch.device("cpu"), in_host=True
    )
    for _ in range(2):
        assert torch.equal(engine.forward(IDS), wanted)
        assert store_of(engine).layer_reads == engine.profile.num_layers
        assert {parameter.device.type for parameter in model.layers.parameters()} == {"meta"}


def test_between_steps_layers_hold_nothing(tiny_kimi_k3: Path, make_engine) -> None:
    engine = make_engine(tiny_kimi_k3, offload="disk")
    engine.forward(IDS)
    assert {parameter.device.type for parameter in engine.model.layers.parameters()} == {"meta"}
    assert {parameter.device.type for parameter in engine.model.embed.parameters()} == {"cpu"}
    names = [name for name, _ in engine.model.layers.named_parameters()]
    assert names and not [name for name in names if ".experts." in name]
    resident = make_engine(tiny_kimi_k3).model.layers
    kept = [sum(p.nbytes for n, p in layer.named_parameters() if ".experts." not in n) for layer in resident]
    assert store_of(engine).largest_layer == max(kept)


def test_of_experts_only_the_chosen_are_read(tiny, make_engine) -> None:
    """Of 8 experts a token takes 2: the bytes read for one token are 2/8 of what all of them are."""
    engine = make_engine(tiny("mixtral-8x7b"), offload="disk", prefix_caching=False)
    store = store_of(engine)
    spec = engine.profile.layers[0].feed_forward
    each = 3 * spec.width * engine.profile.hidden_size * 2  # stored in bfloat16
    before = store._experts.bytes_read
    engine.forward([3])
    assert store._experts.bytes_read - before == len(engine.profile.layers) * spec.router.top_k * each


def test_hot_experts_are_read_once(tiny, make_engine) -> None:
    engine = make_engine(tiny("mixtral-8x7b"), offload="disk", expert_cache_bytes=1 << 28)
    engine.forward(IDS)
    before = store_of(engine)._experts.bytes_read
    engine.forward(IDS)
    assert store_of(engine)._experts.bytes_read == before


def test_a_host_that_is_the_device_is_refused(tiny_llama: Path, make_engine) -> None:
    with pytest.raises(InputError, match="the device is the host already"):
        make_engine(tiny_llama, offload="host")


@pytest.fixture
def damaged(tiny_kimi_k3: Path, tmp_path: Path):
    """Edits the tensors of one shard of a copied checkpoint."""
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_kimi_k3, folder)

    def edit(suffix: str, change) -> Path:
        for shard in sorted(folder.glob("*.safetensors")):
            with safe_open(shard, framework="pt") as stored:
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            found = [name for name in tensors if name.endswith(suffix)]
            if found:
                tensors[found[0]] = change(tensors[found[0]])
                save_file({name: values for name, values in tensors.items() if values is not None}, shard)
                return folder
        raise AssertionError(suffix)

    return edit


def test_an_expert_of_another_shape_is_named(damaged, make_engine) -> None:
    folder = damaged("experts.0.w3.weight_packed", lambda values: values[:-1].contiguous())
    with pytest.raises(InputError, match="config asks for"):
        make_engine(folder, offload="disk").forward(IDS)


def test_weights_that_are_missing_are_told_before_anything_runs(damaged, make_engine) -> None:
    folder = damaged("experts.1.w2.weight_scale", lambda values: None)
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    with pytest.raises(InputError, match="lacks"):
        make_engine(folder, offload="disk")
