"""The tensors of a decoder layer, by our paths: norms, residual reads, mixer and feed-forward."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.convolved_tensors import branch_convolution_drafts
from day0.profile.draft import Draft
from day0.profile.feed_forward_tensors import FEED_FORWARD_DRAFTS
from day0.profile.mixer_tensors import MIXER_DRAFTS
from day0.profile.profile import (
    AffineResidual,
    ArchitectureProfile,
    AttentionResidual,
    GatedResidual,
    HyperConnections,
    LayerSpec,
    ScaledResidual,
)
from day0.profile.residual_tensors import affine_site, hyper_connection_site


def layer_drafts(profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[Draft]:
    """All tensors of one layer, with paths relative to it."""
    hidden = profile.hidden_size
    for norm in layer.norms:
        yield from norm_drafts(f"{norm}.norm" if norm in layer.gated_norms else norm, profile)
    for norm in layer.gated_norms:
        # Small MLPs, and counted as such.
        yield Draft(f"{norm}.gate_down.weight", (layer.norm_gate_rank, hidden), "dense_mlp")
        yield Draft(f"{norm}.gate_up.weight", (hidden, layer.norm_gate_rank), "dense_mlp")
    if isinstance(layer.residual, AttentionResidual):
        for site in ("mixer_res", "ffn_res"):
            yield from residual_site(site, hidden)
    yield from _residual_drafts(layer, hidden)
    if profile.ends.per_layer is not None:
        width = profile.ends.per_layer.width
        yield Draft("layer_input.gate.weight", (width, hidden), "other")
        yield Draft("layer_input.proj.weight", (hidden, width), "other")
    yield from MIXER_DRAFTS[type(layer.mixer)](layer.mixer, hidden)
    if layer.convolution is not None:
        yield from branch_convolution_drafts(layer.convolution)
    yield from FEED_FORWARD_DRAFTS[type(layer.feed_forward)](layer.feed_forward, hidden)


def norm_drafts(path: str, profile: ArchitectureProfile) -> Iterator[Draft]:
    """A norm over the hidden size."""
    yield Draft(f"{path}.weight", (profile.hidden_size,), "norm")
    if profile.norm_kind == "layer_bias":
        yield Draft(f"{path}.bias", (profile.hidden_size,), "norm")


def _residual_drafts(layer: LayerSpec, hidden: int) -> Iterator[Draft]:
    if isinstance(layer.residual, ScaledResidual):
        yield Draft("scale", (1,), "other")
    if isinstance(layer.residual, HyperConnections):
        for site in ("mixer_res", "ffn_res"):
            yield from hyper_connection_site(site, layer.residual, hidden)
    if isinstance(layer.residual, AffineResidual):
        for site in ("mixer_res", "ffn_res"):
            yield from affine_site(site, hidden, branch=True)
    if isinstance(layer.residual, GatedResidual):
        for branch in ("mixer", "ffn"):
            yield Draft(f"{branch}_res.gate", (hidden,), "other", dtype="F32", keep_float32=True)


def residual_site(path: str, hidden: int) -> Iterator[Draft]:
    """One read of the attention residual: a norm over the candidates and one scoring row."""
    yield Draft(f"{path}.norm.weight", (hidden,), "residual_mixing")
    yield Draft(f"{path}.proj.weight", (1, hidden), "residual_mixing")
