"""Faults of ranks that share a model: sums left out or done twice, slices of the wrong rank."""

from __future__ import annotations

from typing import Any

import torch
from fault_switches import edited, wrapped
from hunting import Fault
from rank_runs import RANKS, Threads
from torch import Tensor

from day0.runtime.engine.engine import Engine
from day0.runtime.models.decoder import Decoder

DENSE, OSS, QWEN, SHARED = (
    "llama-3.1-8b ranks", "gpt-oss-120b ranks", "qwen3-30b-a3b ranks", "llama-4-scout ranks"
)  # fmt: skip


class NoSum(Threads):
    """Partial results are taken for whole."""

    def sum(self, x: Tensor) -> Tensor:
        return x


class MeanForSum(Threads):
    def sum(self, x: Tensor) -> Tensor:
        return super().sum(x) / RANKS


class ColumnsReversed(Threads):
    """Shares of the vocabulary in the reverse order of ranks."""

    def gather_columns(self, x: Tensor, columns: int) -> Tensor:
        return torch.cat(self._all(x)[::-1], dim=1)


def rank_of(engine: Engine) -> int:
    assert isinstance(engine.model, Decoder)
    return engine.model.ranks.place.rank


def shared_twice(engine: Engine) -> None:
    """The shared expert is whole on every rank, and added up as if it were a part."""
    block = engine.model.layers[1].ffn  # type: ignore[union-attr]
    sound = block.shared.forward
    block.shared.forward = lambda x: block.ranks.tp.sum(sound(x))


def second_rank_alone(path: str, change: Any) -> Any:
    """A parameter changed on the second rank only."""

    def edit(engine: Engine) -> None:
        if rank_of(engine) == 1:
            parameter = dict(engine.model.named_parameters())[path]  # type: ignore[union-attr]
            parameter.data.copy_(change(parameter.data.clone()))

    return edit


def not_summed(layer: int, branch: str) -> Any:
    """One branch's sum over the ranks is left out."""

    def make(sound: Any) -> Any:
        count = 0

        def whole(part: Any, output: Tensor) -> Tensor:
            nonlocal count
            count += 1
            left_out = (count % 2 == 1) == (branch == "mixer")
            return output if left_out else sound(part, output)

        return whole

    return edited(wrapped(lambda engine: engine.model.layers[layer], "_whole", make), "ranks")


def summed_twice(layer: int) -> Any:
    """What is a sum already is summed once more, as a module that adds up by itself within one that does."""

    def make(sound: Any) -> Any:
        return lambda part, output: sound(part, sound(part, output))

    return edited(wrapped(lambda engine: engine.model.layers[layer], "_whole", make), "ranks")


FAULTS: tuple[Fault, ...] = (
    Fault("ranks-no-sum", "no partial result is added up", DENSE, "ranks", layer=None, point="embed", kind="scale",
          group=NoSum),
    Fault("ranks-mean-for-sum", "partial results averaged", DENSE, "ranks", layer=None, point="embed", kind="scale",
          group=MeanForSum),
    Fault("ranks-vocabulary-order", "shares of the vocabulary in the wrong order", DENSE, "ranks", layer=None,
          point="logits", kind="permutation", group=ColumnsReversed),
    Fault("ranks-attention-not-summed", "the sum behind one layer's attention is left out", DENSE, layer=1,
          point="mixer_out", kind="scale", **not_summed(1, "mixer")),
    Fault("ranks-experts-not-summed", "the sum behind one layer's experts is left out", QWEN, layer=0,
          point="ffn_out", kind="scale", source="tp-moe-reduce-dropped", **not_summed(0, "ffn")),
    Fault("ranks-summed-twice", "one layer's branches are added up twice", OSS, layer=1, point="mixer_out",
          kind="scale", **summed_twice(1)),
    Fault("ranks-shared-twice", "the shared expert is added up over ranks twice", SHARED, layer=1,
          point="ffn.shared_out", kind="scale", source="tp-moe-reduce-dropped", **edited(shared_twice, "ranks")),
    Fault("ranks-slice-of-another", "the second rank's heads are in another order", DENSE, layer=0, point="mixer.q",
          kind="permutation",
          **edited(second_rank_alone("layers.0.mixer.q_proj.weight", lambda w: w.roll(len(w) // 2, dims=0)), "ranks")),
    Fault("ranks-expert-slice", "the second rank has slices of other experts", QWEN, layer=0, point="ffn.routed_sum",
          kind="other",
          **edited(second_rank_alone("layers.0.ffn.experts.down.weight", lambda w: w.roll(1, dims=0)), "ranks")),
    Fault("ranks-norm-differs", "one rank has another norm weight", OSS, layer=2, point="mixer_in", kind="scale",
          **edited(second_rank_alone("layers.2.mixer_norm.weight", lambda w: 0 * w + 1), "ranks")),
)  # fmt: skip
