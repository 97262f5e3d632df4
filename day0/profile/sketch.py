"""What headers and config fields say of a model that no family table explains: sizes, layers, experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from day0.errors import Finding
from day0.profile.config_evidence import ConfigEvidence, config_evidence
from day0.profile.header_counts import count_elements, int_bits
from day0.profile.layer_evidence import LayerEvidence, layer_evidence
from day0.profile.parameters import ParameterCounts
from day0.profile.tensor_patterns import TensorPattern, group_tensors
from day0.source.model_files import ModelFiles

_NOT_ACTIVE = ("vision", "audio", "mtp")
_CLASS_OF = {
    **dict.fromkeys(("gqa", "mla", "dsa", "csa", "hca", "block_sparse", "shared_kv", "cross"), "attention"),
    **dict.fromkeys(("kda", "gated_deltanet", "mamba", "mamba2", "lightning"), "linear"),
    "short_conv": "conv",
    "none": "none",
}
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Sketch:
    """Layers by number, parameters counted from header elements (None without headers), and every name's pattern."""

    layers: tuple[LayerEvidence, ...]
    params: ParameterCounts | None
    patterns: tuple[TensorPattern, ...]
    findings: tuple[Finding, ...]

    @property
    def empty(self) -> bool:
        return not self.layers and not self.patterns


def sketch(files: ModelFiles) -> Sketch:
    """Layers come from tensor names and config fields both; where these disagree, a finding says so."""
    said = config_evidence(files.config)
    if files.tensors is None:
        return Sketch(_by_config(said), None, (), ())
    seen = layer_evidence(files.tensors)
    patterns = group_tensors(files.tensors)
    params, active_known = _count(files, said, seen, patterns)
    findings = tuple(_disagreements(files, said, seen))
    if not active_known:
        text = "routed experts, and no field says how many a token uses: `active` counts all of them"
        findings += (Finding("active-unknown", "note", files.config_name, text),)
    return Sketch(seen[: said.num_layers] if said.num_layers else seen, params, patterns, findings)


def _by_config(said: ConfigEvidence) -> tuple[LayerEvidence, ...]:
    kinds = said.kinds or ("unknown",) * (said.num_layers or 0)
    feed_forward = "moe" if said.num_experts and said.num_experts > 1 else "unknown"
    return tuple(LayerEvidence(index, kind, feed_forward) for index, kind in enumerate(kinds))


def _count(
    files: ModelFiles, said: ConfigEvidence, seen: tuple[LayerEvidence, ...], patterns: tuple[TensorPattern, ...]
) -> tuple[ParameterCounts, bool]:
    """Parameters by group, and whether those that one token uses are known."""
    assert files.tensors is not None
    bits = int_bits(files.config)
    groups = count_elements(patterns, int_bits=bits)
    # Layers beyond the decoder's number are predictors that some publishers store at its end.
    beyond = [layer.index for layer in seen if said.num_layers is not None and layer.index >= said.num_layers]
    if beyond:
        marks = tuple(f"layers.{index}." for index in beyond)
        ahead = group_tensors(files.tensors, (name for name in files.tensors if any(m in name for m in marks)))
        for group, count in count_elements(ahead, int_bits=bits).items():
            if group not in _NOT_ACTIVE:
                groups[group] -= count
                groups["mtp"] += count
    section = files.config.get(said.count_field.rpartition(".")[0], files.config)
    tied = files.config.get("tie_word_embeddings", section.get("tie_word_embeddings", False)) is True
    if tied:
        groups["lm_head"] = 0
    idle = 0
    known = not groups["routed_experts"] or bool(said.num_experts and said.top_k)
    if groups["routed_experts"] and said.num_experts and said.top_k:
        idle = groups["routed_experts"] // said.num_experts * max(0, said.num_experts - said.top_k)
    total = sum(count for group, count in groups.items() if group != "mtp")
    active = sum(count for group, count in groups.items() if group not in _NOT_ACTIVE) - idle
    return ParameterCounts(total, active, active - (0 if tied else groups["embed"]), groups), known


def _disagreements(files: ModelFiles, said: ConfigEvidence, seen: tuple[LayerEvidence, ...]) -> Iterator[Finding]:
    """Where config fields and tensor names do not describe the same layers."""
    where = f"{files.config_name}: {said.count_field}"
    if said.num_layers is not None and seen and len(seen) < said.num_layers:
        text = f"says {said.num_layers} layers, the tensors are those of {len(seen)}"
        yield Finding("layer-count", "error", where, text, "a shard is missing, or the config is another model's")
    differing = [
        (layer, kind)
        for layer, kind in zip(seen, said.kinds, strict=False)
        if _contradict(kind, _CLASS_OF.get(layer.mixer, ""))
    ]
    if differing:
        shown = ", ".join(
            f"layer {layer.index}: {kind}, tensors of {layer.mixer}" for layer, kind in differing[:_SHOWN]
        )
        text = f"{len(differing)} layers are of another kind than their tensors: {shown}"
        yield Finding("layer-kind-differs", "error", f"{files.config_name}: {said.where}", text)


def _contradict(said: str, seen: str) -> bool:
    if said == "other":
        return seen == "attention"
    return bool(seen) and said in ("attention", "linear", "conv", "none") and said != seen
