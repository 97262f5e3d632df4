"""The tensors of the decoder: both ends and, between them, its layers as the checkpoint lays them out."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.draft import Draft
from day0.profile.layer_tensors import layer_drafts, norm_drafts, residual_site
from day0.profile.profile import (
    AffineResidual,
    ArchitectureProfile,
    AttentionResidual,
    HyperConnections,
    PerLayerInputs,
)
from day0.profile.residual_tensors import affine_site, hyper_connection_head
from day0.profile.storage import Storage, as_stored


def decoder_drafts(profile: ArchitectureProfile, storage: Storage) -> Iterator[tuple[Draft, int | None]]:
    """All tensors with the layer they belong to, None outside of layers, in the order of execution."""
    hidden, vocab, ends = profile.hidden_size, profile.vocab_size, profile.ends
    yield Draft("embed.weight", (vocab + ends.extra_rows, hidden), "embed", 0, vocab), None
    if ends.embedding_weight:
        yield Draft("embed.norm.weight", (hidden,), "embed"), None
    if isinstance(profile.residual, AffineResidual):
        for draft in affine_site("input_res", hidden, branch=False):
            yield draft, None
    if ends.per_layer is not None:
        for draft in _per_layer_drafts(ends.per_layer, profile):
            yield draft, None
    for layer in profile.layers:
        for draft in as_stored(layer_drafts(profile, layer), storage):
            yield draft, layer.index
    if isinstance(profile.residual, AttentionResidual):
        for draft in residual_site("output_res", hidden):
            yield draft, None
    if isinstance(profile.residual, HyperConnections):
        for draft in hyper_connection_head("output_res", profile.residual, hidden):
            yield draft, None
    for draft in norm_drafts("norm", profile):
        yield draft, None
    if not profile.tie_word_embeddings:
        yield Draft("lm_head.weight", (vocab, hidden), "lm_head", 0, vocab), None
    if ends.head_bias:
        yield Draft("lm_head.bias", (vocab,), "lm_head", 0, vocab), None


def _per_layer_drafts(spec: PerLayerInputs, profile: ArchitectureProfile) -> Iterator[Draft]:
    """The second table, one projection of the first table's rows for all layers, and a norm that layers share."""
    width = spec.width * profile.num_layers
    yield Draft("per_layer.embed.weight", (spec.vocab, width), "embed", 0, spec.vocab)
    yield Draft("per_layer.proj.weight", (width, profile.hidden_size), "other")
    yield Draft("per_layer.norm.weight", (spec.width,), "norm")
