"""Where the named tensors of a trace are found in a transformers model: the parts of its decoder layers, by hooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from day0.errors import CannotSay

_MIXERS = (
    *("self_attn", "self_attention", "attention", "attn", "linear_attn", "mamba", "mixer", "conv"),
    *("temporal_block", "short_conv", "recurrent"),
)
_FEED_FORWARDS = ("mlp", "feed_forward", "block_sparse_moe", "moe", "ffn", "ff", "mlp_block")
_PARTS = dict.fromkeys(_MIXERS, "mixer") | dict.fromkeys(_FEED_FORWARDS, "ffn")
"""What transformers calls the two parts of a decoder layer, in the words of our trace points."""

_LAST_NORMS = ("norm", "final_layernorm", "ln_f", "norm_f", "final_norm")
"""What it calls the norm before the head."""


@dataclass(frozen=True, slots=True)
class Point:
    """A module whose input or output (the first tensor of it) is a trace point."""

    name: str
    module: nn.Module
    of_input: bool = False


def decoder_layers(model: Any) -> list[nn.Module]:
    """The decoder's layers in order; none where its list of layers cannot be told from others."""
    decoder = _decoder(model)
    if decoder is None:
        return []
    try:
        count = model.config.get_text_config(decoder=True).num_hidden_layers
    except AttributeError:
        return []
    lists = (list(part) for part in decoder.modules() if isinstance(part, nn.ModuleList))
    return next((part for part in lists if len(part) == count), [])


def find_points(model: Any) -> tuple[Point, ...]:
    """Every trace point that can be told, in execution order. A module that several layers share is none."""
    layers = decoder_layers(model)
    points = [Point("embed", model.get_input_embeddings())]
    uses = Counter(id(child) for layer in layers for child in layer.children())
    for index, layer in enumerate(layers):
        for name, child in layer.named_children():
            if name in _PARTS and uses[id(child)] == 1:
                place = f"layers.{index}.{_PARTS[name]}"
                points += [Point(f"{place}_in", child, of_input=True), Point(f"{place}_out", child)]
        points.append(Point(f"layers.{index}.output", layer))
    norms = (getattr(_decoder(model), name, None) for name in _LAST_NORMS)
    points += [Point("norm", norm) for norm in norms if isinstance(norm, nn.Module)][:1]
    return tuple(points)


def _decoder(model: Any) -> nn.Module | None:
    try:
        decoder: nn.Module | None = model.get_decoder()
    except AttributeError:
        return None
    return decoder


@contextmanager
def recorded(points: Iterable[Point], tokens: int) -> Iterator[dict[str, Tensor]]:
    """Tensors [tokens, ...] of the points that ran exactly once inside, by name in execution order.

    The mapping is filled when the block ends. A point that ran several times, or gave something that has no row per
    token, stays out.
    """
    calls: dict[str, list[Tensor]] = {}
    handles = [_hook(point, calls.setdefault(point.name, []), tokens) for point in points]
    found: dict[str, Tensor] = {}
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
    found.update({name: tensors[0] for name, tensors in calls.items() if len(tensors) == 1})


@contextmanager
def replacing(module: nn.Module, rows: Mapping[int, Tensor]) -> Iterator[None]:
    """Put embeddings [hidden] in the place of rows of what `module`, the input table, gives for one sequence.

    Unlike embeddings given instead of ids, this leaves ids to definitions that look at them elsewhere too. Raises
    CannotSay for one that does not call its table.
    """
    calls = 0

    def hook(table: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        replaced = output.clone()
        index = torch.tensor(list(rows), device=output.device)
        replaced[0, index] = torch.stack(list(rows.values())).to(output)
        return replaced

    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if not calls:
        raise CannotSay("the definition in transformers takes no embeddings in place of tokens")


def _hook(point: Point, kept: list[Tensor], tokens: int) -> Any:
    def keep(value: Any) -> None:
        first = value[0] if isinstance(value, (tuple, list)) and value else value
        if isinstance(first, Tensor) and first.dim() > 1 and first.numel() == tokens * first.shape[-1]:
            # [1, tokens, hidden], except experts, which may come flattened to [tokens, hidden].
            kept.append(first.detach().reshape(tokens, first.shape[-1]))

    if not point.of_input:
        return point.module.register_forward_hook(_after(keep))
    return point.module.register_forward_pre_hook(_before(keep), with_kwargs=True)


def _after(keep: Callable[[Any], None]) -> Callable[..., None]:
    def hook(module: nn.Module, arguments: Any, output: Any) -> None:
        keep(output)

    return hook


def _before(keep: Callable[[Any], None]) -> Callable[..., None]:
    def hook(module: nn.Module, arguments: Any, named: Any) -> None:
        keep(arguments[0] if arguments else named.get("hidden_states"))

    return hook


class Tap(nn.Module):
    """Hands rows [tokens, hidden] on. It stands where a block of ours would, for those who hook blocks by path."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows
