"""The tensors of multi-token prediction, by our paths: what joins embedding and hidden state, then ordinary layers."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.draft import Draft
from day0.profile.layer_tensors import layer_drafts
from day0.profile.profile import ArchitectureProfile, HyperConnections, MultiTokenPrediction
from day0.profile.residual_tensors import hyper_connection_head


def mtp_drafts(profile: ArchitectureProfile, mtp: MultiTokenPrediction) -> Iterator[tuple[Draft, int]]:
    """All tensors with the number of the layer they are stored under, in the order of execution."""
    hidden, vocab = profile.hidden_size, profile.vocab_size
    depth = len(mtp.layers) // mtp.depths
    for position, layer in enumerate(mtp.layers):
        if position % depth == 0:
            if not mtp.shares_embedding:
                yield Draft("embed.weight", (vocab, hidden), "mtp", 0, vocab), layer.index
            yield Draft("embed_norm.weight", (hidden,), "mtp"), layer.index
            yield Draft("hidden_norm.weight", (hidden,), "mtp"), layer.index
            if mtp.split_join:
                for part in ("embed", "hidden"):
                    yield Draft(f"{part}_proj.weight", (hidden, hidden), "mtp"), layer.index
            else:
                yield Draft("join_proj.weight", (hidden, 2 * hidden), "mtp"), layer.index
        for draft in layer_drafts(profile, layer):
            yield draft, layer.index
        if position % depth == depth - 1:
            if isinstance(layer.residual, HyperConnections):
                for draft in hyper_connection_head("output_res", layer.residual, hidden):
                    yield draft, layer.index
            yield Draft("norm.weight", (hidden,), "mtp"), layer.index
            if not mtp.shares_embedding:
                yield Draft("lm_head.weight", (vocab, hidden), "mtp", 0, vocab), layer.index
