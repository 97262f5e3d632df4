"""The tensors of a decoder layer, by our paths: norms, residual reads, mixer and feed-forward."""

from __future__ import annotations

from collections.abc import Iterator

from day0.profile.draft import Draft
from day0.profile.feed_forward_tensors import FEED_FORWARD_DRAFTS
from day0.profile.mixer_tensors import MIXER_DRAFTS
from day0.profile.profile import ArchitectureProfile, AttentionResidual, LayerSpec


def layer_drafts(profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[Draft]:
    """All tensors of one layer, with paths relative to it."""
    hidden = profile.hidden_size
    for norm in layer.norms:
        yield Draft(f"{norm}.weight", (hidden,), "norm")
    if isinstance(layer.residual, AttentionResidual):
        for site in ("mixer_res", "ffn_res"):
            yield from residual_site(site, hidden)
    yield from MIXER_DRAFTS[type(layer.mixer)](layer.mixer, hidden)
    yield from FEED_FORWARD_DRAFTS[type(layer.feed_forward)](layer.feed_forward, hidden, profile.quantization)


def residual_site(path: str, hidden: int) -> Iterator[Draft]:
    """One read of the attention residual: a norm over the candidates and one scoring row."""
    yield Draft(f"{path}.norm.weight", (hidden,), "residual_mixing")
    yield Draft(f"{path}.proj.weight", (1, hidden), "residual_mixing")
