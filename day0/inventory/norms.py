"""What the norms around a layer's branches need, of every kind that models have."""

from __future__ import annotations

from collections.abc import Iterator

from day0.inventory.use import Use, linear, use
from day0.profile.profile import ArchitectureProfile, LayerSpec

LAYER_NORMS = ("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm", "layer_input_norm")
"""Places of norms that have a rule."""


def norm(place: str, profile: ArchitectureProfile, eps: float | None = None) -> Use:
    """A norm of the model's kind over the hidden size; `eps` None is the model's."""
    width, eps = profile.hidden_size, profile.norm_eps if eps is None else eps
    match profile.norm_kind:
        case "rms":
            return use("rms_norm", place, width=width, eps=eps)
        case "rms_plus_one":
            return use("rms_norm_plus_one", place, width=width, eps=eps)
        case "layer":
            return use("layer_norm_without_bias", place, width=width, eps=eps)
        case "layer_bias":
            return use("layer_norm", place, width=width, eps=eps)


def last_norm(profile: ArchitectureProfile) -> Use:
    """The norm before the head."""
    if profile.ends.plain_norm:
        return use("rms_norm", "norm", width=profile.hidden_size, eps=profile.norm_eps)
    return norm("norm", profile)


def layer_norm(name: str, profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[Use]:
    """The norm in this place of the layer, if there is one, and the gate on what it gives."""
    eps = layer.post_norm_eps if name.endswith("_post_norm") else None
    if name in layer.norms:
        yield norm(name, profile, eps)
    if name in layer.unit_norms:
        width = profile.hidden_size
        yield use("unit_rms_norm", name, width=width, eps=profile.norm_eps if eps is None else eps)
    if name in layer.gated_norms:
        yield from _norm_gate(name, profile.hidden_size, layer.norm_gate_rank)


def _norm_gate(name: str, hidden: int, rank: int) -> Iterator[Use]:
    """What a norm gives, times a sigmoid of itself through `rank` channels."""
    yield linear(f"{name}.gate_down", hidden, rank)
    yield use("silu", f"{name}.gate", width=rank)
    yield linear(f"{name}.gate_up", rank, hidden)
    yield use("sigmoid_gate", name, width=hidden)
