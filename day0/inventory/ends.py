"""What stands before the first layer, after the last, and between layers besides their branches."""

from __future__ import annotations

from collections.abc import Iterator

from day0.inventory.norms import layer_norm
from day0.inventory.use import Use, linear, use
from day0.profile.profile import ArchitectureProfile, LayerSpec, ModelEnds, PerLayerInputs, ScaledResidual


def embeddings(profile: ArchitectureProfile) -> Iterator[Use]:
    """Rows of the table, as the first layer reads them; then the inputs of all layers, where they have such."""
    hidden, ends = profile.hidden_size, profile.ends
    yield use("embedding_lookup", "embed", vocab=profile.vocab_size + ends.extra_rows, width=hidden)
    if ends.embedding_norm:
        weighed = "rms_norm" if ends.embedding_weight else "unit_rms_norm"
        yield use(weighed, "embed.norm", width=hidden, eps=profile.norm_eps)
    if ends.embedding_scale != 1.0:
        yield use("constant_scale", "embed.scale", width=hidden, factor=ends.embedding_scale)
    if ends.per_layer is not None:
        yield from _per_layer_inputs(ends.per_layer, profile)


def _per_layer_inputs(spec: PerLayerInputs, profile: ArchitectureProfile) -> Iterator[Use]:
    """A second table's rows and a normed projection of the embeddings, each scaled, then averaged by root two."""
    width = spec.width * profile.num_layers
    yield use("per_layer_embedding_lookup", "per_layer.embed", vocab=spec.vocab, width=width)
    yield use("constant_scale", "per_layer.embed.scale", width=width, factor=spec.width**0.5)
    yield linear("per_layer.proj", profile.hidden_size, width)
    yield use("constant_scale", "per_layer.proj.scale", width=width, factor=profile.hidden_size**-0.5)
    yield use("rms_norm", "per_layer.norm", width=spec.width, eps=profile.norm_eps)
    yield use("residual_add", "per_layer.sum", width=width)
    yield use("constant_scale", "per_layer.sum.scale", width=width, factor=2.0**-0.5)


def after_branches(profile: ArchitectureProfile, layer: LayerSpec) -> Iterator[Use]:
    """The layer's own input, joined to the stream, and the stream's learnt scale."""
    hidden, per_layer = profile.hidden_size, profile.ends.per_layer
    if per_layer is not None:
        yield linear("layer_input.gate", hidden, per_layer.width)
        yield use("gelu_and_mul", "layer_input.activation", width=per_layer.width, approximate="tanh")
        yield linear("layer_input.proj", per_layer.width, hidden)
        yield from layer_norm("layer_input_norm", profile, layer)
        yield use("residual_add", "layer_input", width=hidden)
    if isinstance(layer.residual, ScaledResidual):
        yield use("learnt_scale", "scale", width=hidden, single=1)


def logits(profile: ArchitectureProfile) -> Iterator[Use]:
    """The head, what is done to its logits, and the draw."""
    ends: ModelEnds = profile.ends
    vocab, width = profile.vocab_size, profile.hidden_size
    yield use("biased_lm_head" if ends.head_bias else "lm_head", "lm_head", vocab=vocab, width=width)
    if ends.logit_scale != 1.0:
        yield use("constant_scale", "logits.scale", width=vocab, factor=ends.logit_scale)
    if ends.logit_softcap is not None:
        yield use("softcap", "logits.softcap", width=vocab, softcap=ends.logit_softcap)
    yield use("sampling", "sampling", vocab=vocab)
