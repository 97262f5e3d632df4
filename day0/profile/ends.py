"""What stands before the first layer and after the last, where a model has more than a table and a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NormKind = Literal["rms", "rms_plus_one", "layer", "layer_bias"]
"""RMS norm, its weight stored as it is or less one; layer norm (mean removed) with a weight alone or a bias too."""


@dataclass(frozen=True, slots=True)
class PerLayerInputs:
    """A second embedding of each token, `width` channels a layer, mixed with a projection of the first (Gemma 3n).

    Every layer adds norm(up(act(down x) * its slice)) to the stream after its feed-forward.
    """

    width: int
    vocab: int


@dataclass(frozen=True, slots=True)
class ModelEnds:
    """Both ends of the decoder.

    Embeddings are multiplied by `embedding_scale` and, with `embedding_norm`, brought to unit root mean square first;
    `embedding_weight` is a weight of that norm.
    `extra_rows` are rows of the input table that the head does not have. Logits are multiplied by `logit_scale`, then
    bounded to softcap x tanh(logit / softcap). `plain_norm` says that the norm before the head is an RMS norm whose
    weight is stored as it is, whatever kind the others are (Muse).
    """

    embedding_scale: float = 1.0
    embedding_norm: bool = False
    embedding_weight: bool = False
    extra_rows: int = 0
    per_layer: PerLayerInputs | None = None
    head_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    plain_norm: bool = False
