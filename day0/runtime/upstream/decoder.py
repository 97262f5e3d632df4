"""A transformers model behind the contract of our decoder: a flat batch goes in, logits of the wanted rows come out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from day0.profile.profile import ArchitectureProfile
from day0.runtime.batch import ForwardBatch, SequenceGroup
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.trace import Trace
from day0.runtime.upstream.definition import Definition
from day0.runtime.upstream.limits import Account, limits_of
from day0.runtime.upstream.points import Tap, decoder_layers, find_points, recorded, replacing
from day0.runtime.upstream.sessions import CacheCost, CacheUse, Session, Sessions

_CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""What definitions call the cache in their forward and in their output."""


class UpstreamDecoder(nn.Module):
    """A transformers causal language model as the engine's model. Sequences of a batch run one after another.

    `upstream` is the model itself; `cache_use` and `cost` are what was measured of it (`measure.try_out`).
    `layers.{i}.mixer` and `layers.{i}.ffn` hand on what these parts of a decoder layer give, in rows as ours do, so
    that hooks on them see it.
    """

    def __init__(self, upstream: Any, profile: ArchitectureProfile, definition: Definition, account: Account) -> None:
        super().__init__()
        self.upstream = upstream
        self.profile = profile
        self.definition = definition
        self.account = account
        self.cache_use = CacheUse.CHUNKS
        self.cost = CacheCost(0, 0)
        self.points = find_points(upstream)
        count = max(len(decoder_layers(upstream)), profile.num_layers)
        self.layers = nn.ModuleList(nn.ModuleDict({"mixer": Tap(), "ffn": Tap()}) for _ in range(count))
        accepted = inspect.signature(upstream.forward).parameters
        self._cache_name = next((name for name in _CACHE_NAMES if name in accepted), None)
        self._keeps_logits = "logits_to_keep" in accepted
        self._switch = _switch_length(upstream.config)

    @property
    def embed(self) -> Any:
        """The input table, with its `weight` [vocab, hidden]."""
        return self.upstream.get_input_embeddings()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of activations."""
        dtype: torch.dtype = self.embed.weight.dtype
        return dtype

    @property
    def limits(self) -> tuple[str, ...]:
        """What is weaker than with our own blocks, in sentences."""
        return limits_of(self, self.cost)

    def forward(self, batch: ForwardBatch, cache: CacheStorage) -> torch.Tensor:
        """Logits of the batch's wanted rows, [wanted, vocab] float32; every sequence's tokens go into its session."""
        assert isinstance(cache, Sessions), "a transformers model keeps its cache in sessions"
        assert batch.trace is None or len(batch.groups) == batch.groups[0].sequences == 1, "a trace is of one sequence"
        wanted, parts = batch.rows.tolist(), []
        for group in batch.groups:
            for place, start in enumerate(range(group.start, group.end, group.length)):
                session = cache.session(int(group.state_slots[place]))
                _extend(session, batch, group, place, start)
                rows = [row - start for row in wanted if start <= row < start + group.length]
                keep = group.length - min(rows, default=group.length)
                logits = self.advance(session, keep, batch.trace)
                if logits is not None:
                    first = group.length - len(logits)
                    parts.append(logits[[row - first for row in rows]])
        return torch.cat(parts) if parts else torch.empty(0, self.profile.vocab_size, device=batch.rows.device)

    def advance(self, session: Session, keep: int, trace: Trace | None = None) -> torch.Tensor | None:
        """Compute a session's pending tokens; logits [keep, vocab] float32 of its last `keep` tokens, None for 0.

        Where the definition's cache takes no portions, tokens that nobody asks logits of wait for those that follow.
        """
        if keep == 0 and self.cache_use is not CacheUse.CHUNKS:
            return None
        portion = session.num_pending > 1
        switches = self._switch is not None and session.cached <= self._switch < len(session.token_ids)
        if switches or self.cache_use is CacheUse.NEVER or (self.cache_use is CacheUse.STEPS and portion):
            session.start_over()
        logits = self._run(session, max(keep, 1), trace)
        session.cached = len(session.token_ids)
        return logits if keep else None

    def _run(self, session: Session, keep: int, trace: Trace | None) -> torch.Tensor:
        start, pending = session.cached, session.num_pending
        ids = torch.tensor([session.token_ids[start:]], device=self.embed.weight.device)
        cached = self._cache_name is not None and self.cache_use is not CacheUse.NEVER
        given: dict[str, Any] = {"input_ids": ids, "use_cache": cached}
        if cached and session.cache is not None:
            given[str(self._cache_name)] = session.cache
        if self._keeps_logits:
            given["logits_to_keep"] = keep
        watched = trace is not None or any(tap._forward_hooks for tap in self._taps())
        replaced = {at - start: row for at, row in session.replaced.items() if at >= start}
        with ExitStack() as hooks:
            if replaced:
                hooks.enter_context(replacing(self.embed, replaced))
            found = hooks.enter_context(recorded(self.points if watched else (), pending))
            output = self.upstream(**given)
        self._hand_out({name: tensor[-keep:] for name, tensor in found.items()}, trace)
        session.cache = getattr(output, str(self._cache_name), None) if cached else None
        logits: torch.Tensor = output.logits[0, -keep:].float()
        if trace is not None:
            trace.save("logits", logits)
        return logits

    def _taps(self) -> Iterator[nn.Module]:
        for layer in self.layers:
            yield from layer.children()

    def _hand_out(self, found: dict[str, torch.Tensor], trace: Trace | None) -> None:
        for name, tensor in found.items():
            if trace is not None:
                trace.save(name, tensor)
            if name.endswith("_out"):
                self.get_submodule(name.removesuffix("_out"))(tensor)


def _switch_length(config: Any) -> int | None:
    """Tokens beyond which a definition rotates all positions anew (LongRoPE), so that what it cached is void."""
    rotation = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    if rotation.get("rope_type") != "longrope":
        return None
    length: int | None = rotation.get("original_max_position_embeddings")
    return length


def _extend(session: Session, batch: ForwardBatch, group: SequenceGroup, place: int, start: int) -> None:
    """Take a sequence's new tokens in."""
    before = len(session.token_ids)
    assert before == int(group.context[place]), f"a session of {before} tokens is not the sequence that goes on here"
    session.token_ids += batch.token_ids[start : start + group.length].tolist()
    if batch.image_rows is not None and batch.image_embeddings is not None:
        for row, embedding in zip(batch.image_rows.tolist(), batch.image_embeddings, strict=True):
            if start <= row < start + group.length:
                session.replaced[before + row - start] = embedding
