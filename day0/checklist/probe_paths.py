"""What several probes share: one prompt along two paths through an engine, and the place where they part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from day0.checklist.checklist import Measured, Where
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.target import CheckContext
from day0.numerics.compare import Comparison, Node, compare_traces
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.memory import choose_dtype, shape_cache

PATH_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Relative error of a whole model's tensors between two correct paths, by dtype: rounding of every operator, passed
through all layers. Two independent float32 implementations of a 9-layer hybrid differ by 1e-5."""


def engine_of(context: CheckContext) -> Engine:
    """The engine of an in-process target; probes that call this need "engine"."""
    assert isinstance(context.target, RuntimeTarget)
    return context.target.engine()


def path_tolerance(engine: Engine) -> float:
    return PATH_TOLERANCE[engine.model.embed.weight.dtype]


def sibling(engine: Engine, settings: EngineSettings) -> Engine:
    """Another engine around the same weights, with a cache of its own."""
    model, profile, device = engine.model, engine.profile, engine.device
    dtype = model.embed.weight.dtype
    kv_dtype = dtype if settings.kv_dtype == "auto" else choose_dtype(settings.kv_dtype, profile, device)
    shape = shape_cache(profile, settings, device, kv_dtype, dtype)
    storage = CacheStorage(
        profile.layers, shape.num_pages, settings.page_size, shape.num_slots, kv_dtype, dtype, device
    )
    pages = PageAllocator(shape.num_pages, settings.page_size)
    cache = CacheManager(storage, pages, SlotAllocator(shape.num_slots), settings.debug)
    memory = replace(
        engine.memory, kv_bytes=storage.kv_bytes, state_bytes=storage.state_bytes, num_pages=shape.num_pages
    )
    return Engine(model, engine.vision, settings, cache, shape.max_model_len, engine.load_report, memory, device)


@dataclass(slots=True)
class BlockOutputs:
    """Outputs of every mixer and feed-forward, gathered over the steps of one sequence."""

    parts: dict[str, list[Tensor]] = field(default_factory=dict)

    def tensors(self, logits: Tensor) -> dict[str, Tensor]:
        """By trace name, [tokens, hidden] joined over the steps, and `logits` [tokens, vocab]."""
        return {name: torch.cat(parts) for name, parts in self.parts.items()} | {"logits": logits}


@contextmanager
def recorded(engine: Engine) -> Iterator[BlockOutputs]:
    """Record block outputs inside; unlike a trace, over any number of steps."""
    outputs = BlockOutputs()

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(module: nn.Module, arguments: Any, output: Tensor) -> None:
            outputs.parts.setdefault(name, []).append(output.detach().float().clone())

        return hook

    handles = []
    for index in range(engine.profile.num_layers):
        for block in ("mixer", "ffn"):
            module = engine.model.get_submodule(f"layers.{index}.{block}")
            handles.append(module.register_forward_hook(keep(f"layers.{index}.{block}_out")))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def forward_outputs(engine: Engine, token_ids: Sequence[int], chunk: int | None = None) -> dict[str, Tensor]:
    """Block outputs and logits of one forward in chunks (None: whole)."""
    with recorded(engine) as outputs:
        logits = engine.forward(token_ids, chunk=chunk)
    return outputs.tensors(logits)


@dataclass(slots=True)
class PathErrors:
    """The worst of several comparisons against one tolerance, and the first deviation found."""

    tolerance: float
    comparisons: int = 0
    tensors: int = 0
    worst: float = 0.0
    broken: int = 0
    first: Node | None = None
    first_label: str = ""
    errors: dict[str, float | None] = field(default_factory=dict)

    def add(self, label: str, comparison: Comparison) -> None:
        """Take one comparison in; `errors` keeps, by tensor, the worst over all of them (None: no number)."""
        self.comparisons += 1
        self.tensors += comparison.num_checked
        for node in comparison.nodes:
            if node.verdict == "not checked":
                continue
            if node.error is None:
                self.broken += 1
                self.errors[node.tensor] = None
            elif self.errors.get(node.tensor, 0.0) is not None:
                self.errors[node.tensor] = max(node.error, self.errors.get(node.tensor) or 0.0)
                self.worst = max(self.worst, node.error)
        if self.first is None and comparison.first is not None:
            self.first, self.first_label = comparison.first, label

    def measured(self, profile: ArchitectureProfile, hint: str, **values: object) -> Measured:
        """`error_over_tolerance` is null where a tensor had another shape, NaN, or was stuck."""
        over = None if self.broken else self.worst / self.tolerance
        message = ""
        if self.first is not None:
            what = self.first.message or f"relative error {self.first.error:.2e}"
            message = f"{self.first_label}: {self.first.tensor} is the first to deviate ({what})"
            if over is not None and over <= 1.0:  # stuck, not beyond tolerance
                over = None
        return Measured(
            inspected=self.tensors,
            values={
                "error_over_tolerance": over,
                "worst_error": self.worst,
                "tolerance": self.tolerance,
                "comparisons": self.comparisons,
                "errors": self.errors,
                **values,
            },
            where=node_place(self.first, profile) if self.first is not None else None,
            message=message,
            hint=hint,
        )


def node_place(node: Node, profile: ArchitectureProfile) -> Where:
    """Layer, operator and tensor of a node; a point of a layer is said by the kind of block it belongs to."""
    operator = node.operator
    if node.layer is not None and node.layer < profile.num_layers:
        layer = profile.layers[node.layer]
        if node.operator.startswith("mixer"):
            operator = layer.mixer.kind
        elif node.operator.startswith("ffn"):
            operator = layer.feed_forward.kind
    return Where(layer=node.layer, operator=operator, tensor=node.tensor, length=node.position)


def compare_outputs(candidate: dict[str, Tensor], reference: dict[str, Tensor], tolerance: float) -> Comparison:
    return compare_traces(candidate, reference, tolerance)


def first_difference(
    engine: Engine, prompt: Sequence[int], one: Sequence[int], two: Sequence[int], tie: float
) -> int | None:
    """Position in the answers where they part for a reason, None where they agree or part at a near tie.

    A near tie: the two tokens' logits, after the common beginning, differ by at most `tie` times the logits' spread.
    After it both answers are right, so that nothing more is compared.
    """
    for position, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            logits = engine.forward([*prompt, *one[:position]])[-1]
            return None if abs(float(logits[left] - logits[right])) <= tie * float(logits.std()) else position
    return None if len(one) == len(two) else min(len(one), len(two))
