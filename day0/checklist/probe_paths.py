"""What several probes share: one prompt along two paths through an engine, and the place where they part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from day0.checklist.checklist import Measured, Where
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.target import CheckContext
from day0.numerics.compare import Node, compare_traces
from day0.numerics.noise import NoiseFloor, noise_floor
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile
from day0.runtime.batch import ImageSpan
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import LeadingEngine
from day0.runtime.engine.load import assemble
from day0.runtime.trace import Trace
from day0.runtime.vision.encoder import ImageEncoder

Outputs = Callable[..., dict[str, Tensor]]
"""(engine, token_ids, images=...) -> named tensors: `forward_outputs` or `traced_outputs`."""


def engine_of(context: CheckContext) -> Engine:
    """The engine of an in-process target; probes that call this need "engine"."""
    assert isinstance(context.target, RuntimeTarget)
    return context.target.engine()


def sibling(engine: Engine, settings: EngineSettings) -> Engine:
    """Another engine around the same weights, with a cache of its own."""
    if isinstance(engine, LeadingEngine):
        return engine.world.again(engine, settings)
    return assemble(engine.model, engine.vision, settings, engine.load_report, engine.device)


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


def forward_outputs(
    engine: Engine, token_ids: Sequence[int], chunk: int | None = None, images: tuple[ImageSpan, ...] = ()
) -> dict[str, Tensor]:
    """Block outputs and logits of one forward in chunks (None: whole)."""
    with recorded(engine) as outputs:
        logits = engine.forward(token_ids, chunk=chunk, images=images)
    return outputs.tensors(logits)


def traced_outputs(engine: Engine, token_ids: Sequence[int], images: tuple[ImageSpan, ...] = ()) -> dict[str, Tensor]:
    """Every trace point of one whole forward."""
    trace = Trace()
    engine.forward(token_ids, trace=trace, images=images)
    return {name: tensor for name, tensor in trace.tensors.items() if tensor.is_floating_point()}


def rounding_noise(
    engine: Engine, token_ids: Sequence[int], outputs: Outputs, images: tuple[ImageSpan, ...] = ()
) -> NoiseFloor:
    """The noise floor of this prompt; the moved embeddings go in as if they were those of one long image."""
    embeddings = _embeddings(engine, token_ids)
    if isinstance(engine.vision, ImageEncoder):  # what a tower adds behind layers is nothing for text
        embeddings = functional.pad(embeddings, (0, engine.vision.width - embeddings.shape[1]))
    for span in images:
        embeddings[span.start : span.start + len(span.embeddings)] = span.embeddings
    return noise_floor(
        lambda moved: outputs(engine, token_ids, images=(ImageSpan(0, moved),)),
        embeddings,
        torch.finfo(embeddings.dtype).eps,
    )


def _embeddings(engine: Engine, token_ids: Sequence[int]) -> Tensor:
    """Rows of the input table, [tokens, hidden]; of a table that ranks have cut between them, what a forward made."""
    if isinstance(engine, LeadingEngine):
        trace = Trace(only=("embed",))
        engine.forward(token_ids, trace=trace)
        return trace.tensors["embed"]
    weight = engine.model.embed.weight
    return weight[torch.tensor(token_ids, device=weight.device)].detach().clone()


@dataclass(slots=True)
class PathErrors:
    """The worst of several comparisons against the noise floor, and the first deviation found."""

    noise: NoiseFloor
    comparisons: int = 0
    tensors: int = 0
    over: float | None = 0.0
    first: Node | None = None
    first_label: str = ""
    errors: dict[str, float | None] = field(default_factory=dict)
    tolerances: dict[str, float] = field(default_factory=dict)

    def compare(self, label: str, candidate: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> None:
        """Take one comparison in. `over` becomes None where a tensor gives no number at all."""
        comparison = compare_traces(candidate, reference, self.noise.allowance)
        self.comparisons += 1
        self.tensors += comparison.num_checked
        for node in comparison.nodes:
            if node.verdict != "not checked":
                self._take(node)
        if self.first is None and comparison.first is not None:
            self.first, self.first_label = comparison.first, label

    def _take(self, node: Node) -> None:
        self.tolerances[node.tensor] = node.tolerance
        before = self.errors.get(node.tensor, 0.0)
        self.errors[node.tensor] = None if node.error is None or before is None else max(node.error, before)
        if node.error is None or node.kind == "stuck":
            self.over = None
        elif self.over is not None:
            self.over = max(self.over, node.error / node.tolerance)

    def measured(self, profile: ArchitectureProfile, hint: str, **values: object) -> Measured:
        """`error_over_tolerance` is null where a tensor had another shape, was not finite, or was stuck."""
        message = ""
        if self.first is not None:
            what = self.first.message or f"relative error {self.first.error:.2e}, tolerance {self.first.tolerance:.2e}"
            message = f"{self.first_label}: {self.first.tensor} is the first to deviate ({what})"
        known = [error for error in self.errors.values() if error is not None]
        return Measured(
            inspected=self.tensors,
            values={
                "error_over_tolerance": self.over,
                "worst_error": max(known, default=None),
                "comparisons": self.comparisons,
                "errors": self.errors,
                "tolerances": self.tolerances,
                "judged_by_median_token": sum(self.noise.allowance(name).row == "median" for name in self.errors),
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
        if operator in ("mixer_in", "ffn_in"):
            operator = "rms_norm"
        elif operator.startswith("mixer"):
            operator = layer.mixer.kind
        elif operator.startswith("ffn"):
            operator = layer.feed_forward.kind
    return Where(layer=node.layer, operator=operator, tensor=node.tensor, length=node.position)


def first_difference(engine: Engine, prompt: Sequence[int], one: Sequence[int], two: Sequence[int]) -> int | None:
    """Position in the answers where they part for a reason, None where they agree or part at a near tie.

    A near tie: the two tokens' logits, after the common beginning, differ by no more than rounding may move them.
    After it both answers are right, so that nothing more is compared.
    """
    for position, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            ids = [*prompt, *one[:position]]
            logits = engine.forward(ids)[-1]
            near = abs(float(logits[left] - logits[right])) <= logit_allowance(engine, ids, logits)
            return None if near else position
    return None if len(one) == len(two) else min(len(one), len(two))


def logit_allowance(engine: Engine, token_ids: Sequence[int], logits: Tensor) -> float:
    """How far two correct ways may set one logit apart: the tolerance of logits, taken for an element.

    A row's error is relative to its norm; a single element may carry a few times its even share.
    """
    tolerance = rounding_noise(engine, token_ids, forward_outputs).tolerance("logits")
    return 4 * tolerance * float(logits.float().square().mean().sqrt())
