"""Faults put into our own runtime: the comparison names the layer and the point where each enters; clean runs pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from day0.numerics.decisions import CHOICE_POINTS, FED_POINTS
from day0.numerics.floor import Floor, measured_floor
from day0.numerics.reading import Recording
from day0.numerics.recording import Keep, Recorder
from day0.numerics.walk import Report, Sides, compare_recordings
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.engine.tracing import traced_steps
from day0.runtime.ops import causal_conv1d, kda, norm, paged_attention, residual, rope, router
from day0.runtime.ops.registry import Operators, choose_operators
from day0.runtime.trace import Trace
from day0.source.resolve import resolve

IDS = tuple((37 * place + 11) % 300 for place in range(24))
NEW = 3


def load(folder: Path, ops: Operators | None = None, **settings: object) -> Engine:
    files = resolve(str(folder))
    defaults: dict[str, object] = {"device": "cpu", "dtype": "float32", "max_num_seqs": 4, "max_model_len": 64}
    return load_engine(files, read_profile(files), EngineSettings(**(defaults | settings)), ops=ops)


def run(
    engine: Engine, replaced: Mapping[int, Mapping[str, Tensor]] | None = None, chunk: int | None = None
) -> Recording:
    recorder = Recorder(Keep())

    def make(index: int, start: int, length: int) -> Trace:
        return Trace(
            observe=lambda name, tensor: recorder.take(index, start, length, name, tensor),
            replaced=(replaced or {}).get(index, {}),
        )

    steps = list(traced_steps(engine, IDS, make, new_tokens=NEW, chunk=chunk))
    generated = tuple(step.next_id for step in steps if step.ends)
    return Recording("here", tuple(recorder.entries), recorder.tensors.__getitem__, IDS, generated)


def points(recording: Recording, operators: frozenset[str]) -> dict[int, dict[str, Tensor]]:
    found: dict[int, dict[str, Tensor]] = {}
    for entry in recording.entries:
        if entry.operator in operators:
            found.setdefault(entry.step, {})[entry.name] = recording.load(entry.key)
    return found


@dataclass(frozen=True)
class Model:
    folder: Path
    engine: Engine
    reference: Recording
    floor: Floor

    def compare(self, candidate: Recording, **others: Recording) -> Report:
        return compare_recordings(Sides(self.reference, candidate, self.floor, **others))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def models(tiny: Callable[[str], Path]) -> Callable[[str], Model]:
    made: dict[str, Model] = {}

    def make(recipe: str) -> Model:
        if recipe not in made:
            engine = load(tiny(recipe))
            reference = run(engine)
            coarse = run(load(tiny(recipe), dtype="bfloat16"), points(reference, CHOICE_POINTS))
            made[recipe] = Model(tiny(recipe), engine, reference, measured_floor(reference, coarse))
        return made[recipe]

    return make


K3, MOE, SPARSE = "kimi-k3", "qwen3-30b-a3b", "glm-5.2"


def ties_to_the_highest(logits, top_k, *rest):
    weights, ids = router.moe_router_topk_softmax(logits.flip(-1), top_k, *rest)
    return weights, logits.shape[-1] - 1 - ids


def other_layout(x, cos, sin, layout):
    return rope.rope(x, cos, sin, "interleaved" if layout == "half" else "half")


def wrong_page(q, k, v, slots, *rest):
    return paged_attention.paged_gqa_attention(q, k, v, slots.roll(1, dims=1), *rest)


def transposed_state(*arguments):
    output, state = kda.kda_recurrent(*arguments)
    return output, state.transpose(-1, -2).contiguous()


def late_taps(x, weight, *rest):
    return causal_conv1d.causal_conv1d(x, weight.roll(1, dims=1), *rest)


REPLACED: dict[str, tuple[str, str, Callable, int | None, set[str], set[str]]] = {
    "norm epsilon": (MOE, "rms_norm", lambda x, w, e: norm.rms_norm(x, w, 1e-3), 0, {"mixer_in"}, set()),
    "norm centred at 1": (MOE, "rms_norm", lambda x, w, e: norm.rms_norm(x, w + 1, e), 0, {"mixer_in"}, set()),
    "rotary layout": (MOE, "rope", other_layout, 0, {"mixer.q"}, {"rotary layout"}),
    "not rotated": (MOE, "rope", lambda x, *_: x, 0, {"mixer.q"}, {"rotary layout"}),
    "no renormalising": (
        *(MOE, "moe_router_topk_softmax"),
        lambda x, k, renormalize, *a: router.moe_router_topk_softmax(x, k, False, *a),
        *(0, {"ffn.topk_weights"}, {"scale"}),
    ),
    "one expert too far": (
        *(MOE, "moe_router_topk_softmax"),
        lambda x, *a: (lambda w, i: (w, (i + 1) % x.shape[-1]))(*router.moe_router_topk_softmax(x, *a)),
        *(0, {"ffn.topk_ids"}, {"decision"}),
    ),
    "an expert twice": (
        *(MOE, "moe_router_topk_softmax"),
        lambda x, *a: (lambda w, i: (w, i[:, :1].expand_as(i)))(*router.moe_router_topk_softmax(x, *a)),
        *(0, {"ffn.topk_ids"}, {"decision"}),
    ),
    "a slot off": (MOE, "paged_gqa_attention", wrong_page, 0, {"mixer.attention"}, set()),
    "activation without gate": (MOE, "silu_and_mul", lambda g, u: u, 0, {"ffn.routed_sum"}, set()),
    "NaN": (MOE, "silu_and_mul", lambda g, u: g * u / 0.0 * 0.0, 0, {"ffn.routed_sum"}, {"NaN origin"}),
    "transposed state": (K3, "kda_chunk", transposed_state, 0, {"mixer.state"}, {"transposed"}),
    "convolution off by one": (K3, "causal_conv1d", late_taps, 0, {"mixer.q_conv"}, set()),
    "no bias in the choice": (
        *(K3, "moe_router_topk_sigmoid_bias"),
        lambda x, k, r, s, bias, *a: router.moe_router_topk_sigmoid_bias(x, k, r, s, 0 * bias, *a),
        *(1, {"ffn.topk_ids"}, {"decision"}),
    ),
    "gate left out": (K3, "sigmoid_gate", lambda x, gate: x, 3, {"mixer_out"}, set()),
    "residual mix not weighed": (
        *(K3, "attention_residual_mix"),
        lambda c, w, q, e: residual.attention_residual_mix(c, torch.ones_like(w), q, e),
        *(0, {"ffn_mix_weights", "ffn_mix"}, set()),
    ),
    "sign of the norm": (K3, "rms_norm", lambda x, w, e: -norm.rms_norm(x, w, e), 0, {"mixer_in"}, {"sign"}),
    "indexer's first tokens": (
        *(SPARSE, "lightning_indexer_topk"),
        lambda q, w, c, slots, context, k, *a: _first_tokens(q, slots, context, k),
        *(0, {"mixer.topk_ids"}, {"decision"}),
    ),
}
"""What is wrong: model, operator, what runs in its place; layer and points that are right to name, kinds likewise."""


def _first_tokens(q, slots, context, k):
    places = torch.arange(min(k, slots.shape[1]))
    rows = context[:, None, None] + torch.arange(q.shape[1])[:, None]
    return torch.where(places <= rows, places, -1)


@pytest.mark.parametrize("fault", REPLACED)
def test_an_operator_at_fault_is_named(models: Callable[[str], Model], fault: str) -> None:
    recipe, operator, function, layer, named, kinds = REPLACED[fault]
    model = models(recipe)
    ops = choose_operators(torch.device("cpu"), torch.float32).replaced(operator, function)
    with without_check():
        engine = load(model.folder, ops)
    first = model.compare(run(engine)).first
    assert first is not None, "not noticed"
    assert (first.layer, first.operator in named) == (layer, True), first
    assert not kinds or first.kind in kinds, first


@contextmanager
def without_check() -> Iterator[None]:
    """Loading ends with one checked forward, which a fault that gives NaN would not pass."""
    from day0.runtime.engine import load as loading

    kept, loading._check_forward = loading._check_forward, lambda engine: None
    try:
        yield
    finally:
        loading._check_forward = kept


def zero_shared(name: str, tensor: Tensor) -> bool:
    return bool(name == "layers.2.ffn.shared.down_proj.weight" and tensor.zero_() is not None)


def swap_nibbles(name: str, tensor: Tensor) -> bool:
    found = name.startswith("layers.4.") and name.endswith(".packed")
    if found:
        tensor.copy_((tensor << 4) | (tensor >> 4))
    return found


def shift_scales(name: str, tensor: Tensor) -> bool:
    return bool(name.startswith("layers.4.") and name.endswith(".scale") and tensor.sub_(1) is not None)


def scale_values(name: str, tensor: Tensor) -> bool:
    return bool(name == "layers.5.mixer.o_proj.weight" and tensor.mul_(1.01) is not None)


def roll_embedding(name: str, tensor: Tensor) -> bool:
    if name == "embed.weight":
        tensor.copy_(tensor.roll(1, dims=1))
    return name == "embed.weight"


EDITED: dict[Callable[[str, Tensor], bool], tuple[int | None, str, str | None]] = {
    zero_shared: (2, "ffn.shared_out", None),
    swap_nibbles: (4, "ffn.routed_sum", None),
    shift_scales: (4, "ffn.routed_sum", None),
    scale_values: (5, "mixer_out", "scale"),
    roll_embedding: (None, "embed", "permutation"),
}


@pytest.mark.parametrize("edit", EDITED, ids=lambda edit: edit.__name__)
def test_weights_at_fault_are_named(models: Callable[[str], Model], edit: Callable[[str, Tensor], bool]) -> None:
    model = models(K3)
    parameters = dict(model.engine.model.named_parameters())
    kept = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    edited = [name for name, parameter in parameters.items() if edit(name, parameter.data)]
    assert edited
    try:
        first = model.compare(run(model.engine)).first
    finally:
        for name, parameter in parameters.items():
            parameter.data.copy_(kept[name])
    layer, operator, kind = EDITED[edit]
    assert first is not None
    assert (first.layer, first.operator) == (layer, operator), first
    assert kind is None or first.kind == kind, first


@pytest.mark.parametrize("recipe", [K3, MOE, SPARSE])
@pytest.mark.parametrize("variant", ["again", "chunks of 1", "chunks of 7", "other pages", "streamed", "fed"])
def test_no_alarm_over_clean_variants(models: Callable[[str], Model], recipe: str, variant: str) -> None:
    model, engine, replaced, chunk = models(recipe), models(recipe).engine, None, None
    if variant.startswith("chunks"):
        chunk = int(variant.split()[-1])
    elif variant == "other pages":
        engine = load(model.folder, page_size=64)
    elif variant == "streamed":
        engine = load(model.folder, offload="disk")
    elif variant == "fed":
        replaced = points(model.reference, FED_POINTS | CHOICE_POINTS)
    report = model.compare(run(engine, replaced, chunk))
    assert report.verdict == "equal", (report.first, [node for node in report.nodes if node.verdict == "not checked"])


def test_bfloat16_is_no_alarm_once_the_choices_are_replayed(models: Callable[[str], Model]) -> None:
    model = models(MOE)
    coarse = load(model.folder, dtype="bfloat16")
    free, replayed = run(coarse), run(coarse, points(model.reference, CHOICE_POINTS))
    report = model.compare(free, replayed=replayed)
    assert report.first is None, report.first
    assert all(decision.faults == 0 for decision in report.decisions)


def test_a_tie_broken_the_other_way_is_told_apart_from_a_fault(models: Callable[[str], Model]) -> None:
    model = models(MOE)
    held = dict(model.engine.model.named_parameters())
    name = next(path for path in held if path.endswith(".ffn.router.weight") and not path.startswith("layers.0."))
    routed, weight = int(name.split(".")[1]), held[name]
    kept = weight.detach().clone()
    weight.data.copy_(weight[:1].expand_as(weight))  # all experts score alike
    try:
        reference = run(model.engine)
    finally:
        weight.data.copy_(kept)
    other = load(model.folder, choose_operators(torch.device("cpu"), torch.float32).replaced(
        "moe_router_topk_softmax", ties_to_the_highest))  # fmt: skip
    dict(other.model.named_parameters())[name].data.copy_(weight[:1].expand_as(weight))
    report = compare_recordings(Sides(reference, run(other), model.floor))
    decision = next(decision for decision in report.decisions if decision.layer == routed and decision.step == 0)
    assert (decision.exact_ties, decision.faults, decision.flips) == (len(IDS), 0, len(IDS))
    assert report.verdict == "incomplete" and report.first is None, "what reads such a choice was not compared"


def test_added_and_inherited_error_are_told_apart_by_feeding(models: Callable[[str], Model]) -> None:
    model = models(MOE)
    weight = dict(model.engine.model.named_parameters())["layers.1.mixer.o_proj.weight"]
    kept = weight.detach().clone()
    weight.data.mul_(1.05)
    try:
        free = run(model.engine)
        fed = run(model.engine, points(model.reference, FED_POINTS | CHOICE_POINTS))
    finally:
        weight.data.copy_(kept)
    nodes = {node.tensor: node for node in model.compare(free, fed=fed).nodes}
    broken, later = nodes["layers.1.mixer_out"], nodes["layers.2.mixer_out"]
    assert broken.added_how == later.added_how == "measured"
    assert broken.added_error is not None and broken.added_error == pytest.approx(0.05, rel=1e-3)
    assert later.error is not None and later.error > 1e-3 and later.added_error == 0.0
