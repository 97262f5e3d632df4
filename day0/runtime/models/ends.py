"""Both ends of the decoder: the input table with what follows it, inputs of every layer, and the head."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import ArchitectureProfile, ModelEnds, PerLayerInputs
from day0.runtime.models.build import Build
from day0.runtime.models.linear import Embedding, weight


class InputTable(Embedding):
    """ids [tokens] -> [tokens, hidden] in `dtype`, normed and scaled where the ends say so.

    The table itself may be kept as it is stored: rows are converted as they are looked up.
    """

    def __init__(self, profile: ArchitectureProfile, build: Build) -> None:
        ends = profile.ends
        self.tp, rows = build.ranks.tp, profile.vocab_size + ends.extra_rows
        self.own = self.tp.own(rows)
        super().__init__(len(self.own), build.hidden, build.ops)
        self.factor = ends.embedding_scale
        self.norm: nn.Module | None = None
        if ends.embedding_norm:
            self.norm = build.rms_norm(build.hidden) if ends.embedding_weight else build.unit_norm()

    def forward(self, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:  # type: ignore[override]
        x = self._rows(ids).to(dtype)
        x = x if self.norm is None else self.norm(x)
        if self.factor == 1.0:
            return x
        # The factor in the model's dtype, as Gemma's own code has it: in bfloat16 the root of 2560 is 50.5.
        return self.ops["constant_scale"](x, torch.tensor(self.factor).to(x.dtype).item())

    def _rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Each rank looks up what it has of the table; the others add nothing."""
        if self.tp.alone:
            return super().forward(ids)
        inside = (ids >= self.own.start) & (ids < self.own.stop)
        found = super().forward(torch.where(inside, ids - self.own.start, 0))
        return self.tp.sum(found.masked_fill(~inside[:, None], 0))


class LayerInputs(nn.Module):
    """A second embedding of each token, some channels a layer: ids and embeddings -> [tokens, layers, width].

    The mean by root two of a second table's rows and of a normed projection of the embeddings, each scaled by the root
    of its width (Gemma 3n).
    """

    def __init__(self, spec: PerLayerInputs, layers: int, build: Build) -> None:
        super().__init__()
        self.spec, self.layers, self.ops = spec, layers, build.ops
        self.embed = Embedding(spec.vocab, spec.width * layers, build.ops)
        self.proj = build.linear(build.hidden, spec.width * layers)
        self.norm = build.norm(spec.width)
        self.hidden = build.hidden

    def forward(self, ids: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        scale, shape = self.ops["constant_scale"], (self.layers, self.spec.width)
        own = self.ops["per_layer_embedding_lookup"](ids, self.embed.weight)
        own = scale(own, self.spec.width**0.5).unflatten(-1, shape)
        projected = scale(self.proj(embeddings), self.hidden**-0.5).unflatten(-1, shape)
        return scale(self.norm(projected) + own, 2.0**-0.5)


class LayerInput(nn.Module):
    """What a layer makes of its own input: x [tokens, hidden] and input [tokens, width] -> [tokens, hidden]."""

    def __init__(self, spec: PerLayerInputs, build: Build) -> None:
        super().__init__()
        self.ops = build.ops
        self.gate = build.linear(build.hidden, spec.width)
        self.proj = build.linear(spec.width, build.hidden)

    def forward(self, x: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        return self.proj(self.ops["gelu_and_mul"](self.gate(x), own, approximate="tanh"))


class Head(nn.Module):
    """What is done at the end with x [wanted, hidden] -> logits [wanted, vocab] float32; it owns no weights.

    `relaid` is a copy of its matrix as the chosen kernel wants it for the numbers of rows `relaid_for`
    (`models/relaid.py`).
    """

    def __init__(self, ends: ModelEnds, build: Build) -> None:
        super().__init__()
        self.ends, self.ops = ends, build.ops
        self.relaid: torch.Tensor | None = None
        self.relaid_for = range(0)

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`weight` [vocab, hidden] is the head's own or the input table."""
        ends, scale = self.ends, self.ops["constant_scale"]
        matrix = weight if self.relaid is None or x.shape[0] not in self.relaid_for else self.relaid
        product = self.ops["lm_head"](x, matrix) if bias is None else self.ops["biased_lm_head"](x, matrix, bias)
        logits = product if ends.logit_scale == 1.0 else scale(product, ends.logit_scale)
        return logits if ends.logit_softcap is None else self.ops["softcap"](logits, ends.logit_softcap)


class TiedBias(nn.Module):
    """The bias of a head that is otherwise the input table."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.bias = weight(vocab)
