"""How ranks share a model, and the rules a layout must obey; a broken rule says its numbers and what would mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from day0.plan.cluster import MOST_GPUS, Cluster
from day0.plan.mixer_sizes import head_cuts, latent_part
from day0.profile.profile import ArchitectureProfile, DenseFeedForward, FeedForward, Mixer, RoutedExperts

VOCABULARY_MULTIPLE = 64
"""Rows of the embedding and the head are padded to a multiple of this before they are cut, as vLLM and SGLang do."""

Degree = Annotated[int, Meta(ge=1, le=MOST_GPUS)]
"""A number of ranks; the bounds are those of a plan file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Who holds what, the same words for every engine.

    A stage (of `pp`) has `dp` replicas of the attention layers, each cut into `attention_tp`. `tp` cuts dense MLPs,
    shared experts and the vocabulary: it is `attention_tp`, or all ranks of the stage (DP attention as SGLang does it).
    Routed experts are dealt whole into `ep` lots and each is cut into `expert_tp` slices, over `ep` x `expert_tp`
    ranks, which may belong to several replicas. `cp` spreads the tokens of one sequence over as many ranks
    of an attention group (decode context parallelism); it needs no ranks of its own.
    """

    tp: Degree = 1
    pp: Degree = 1
    ep: Degree = 1
    dp: Degree = 1
    cp: Degree = 1
    attention_tp: Degree = 1
    expert_tp: Degree = 1

    @property
    def stage_ranks(self) -> int:
        return self.dp * self.attention_tp

    @property
    def ranks(self) -> int:
        return self.stage_ranks * self.pp

    @property
    def label(self) -> str:
        """Short text: what differs from 1, in the order of the contract."""
        parts = [f"{name} {getattr(self, name)}" for name in ("tp", "pp", "ep", "dp", "cp") if getattr(self, name) > 1]
        if self.attention_tp != self.tp:
            parts.append(f"attention tp {self.attention_tp}")
        return " ".join(parts) or "one rank"


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What the user asked for; None is left to the planner."""

    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    cp: int | None = None
    attention_tp: int | None = None

    @property
    def is_empty(self) -> bool:
        return all(getattr(self, name) is None for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a layout or its memory breaks."""

    rule: str
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class ModelParts:
    """A profile and its different mixers and feed-forwards, in order of first use, and the experts of each layer that
    are kept twice: what rules look at. `engine` is the one that cuts them, where that matters."""

    profile: ArchitectureProfile
    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    redundant_experts: int = 0
    engine: str = ""

    @property
    def routed(self) -> tuple[RoutedExperts, ...]:
        return tuple(spec for spec in self.feed_forwards if isinstance(spec, RoutedExperts))


def model_parts(profile: ArchitectureProfile, redundant_experts: int = 0, engine: str = "") -> ModelParts:
    return ModelParts(
        profile,
        tuple(dict.fromkeys(layer.mixer for layer in profile.layers)),
        tuple(dict.fromkeys(layer.feed_forward for layer in profile.layers)),
        redundant_experts,
        engine,
    )


Rule = Callable[[ModelParts, Layout, Cluster], Iterator[Violation]]


def check_layout(parts: ModelParts, layout: Layout, cluster: Cluster) -> tuple[Violation, ...]:
    """All rules that hold for every engine."""
    return tuple(violation for rule in RULES for violation in rule(parts, layout, cluster))


def padded_vocabulary(profile: ArchitectureProfile) -> int:
    return -(-profile.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def _degrees(limit: int, *sizes: int) -> str:
    """The cuts up to `limit` that divide all sizes, for a message."""
    fitting = [str(n) for n in range(1, min(limit, *sizes) + 1) if all(size % n == 0 for size in sizes)]
    return ", ".join(fitting)


def _product(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del parts
    if layout.ranks != cluster.gpus:
        yield Violation(
            "ranks",
            f"attention tp {layout.attention_tp} x dp {layout.dp} x pp {layout.pp} makes {layout.ranks} ranks, "
            f"the cluster has {cluster.gpus} GPUs",
            f"choose tp, dp and pp with a product of {cluster.gpus}, or a cluster of {layout.ranks} GPUs",
        )
    if layout.tp not in (layout.attention_tp, layout.stage_ranks):
        yield Violation(
            "dense-width",
            f"tp {layout.tp} is neither the attention group of {layout.attention_tp} nor the stage's "
            f"{layout.stage_ranks} ranks",
            f"--tp {layout.attention_tp} or --tp {layout.stage_ranks}",
        )


def _heads(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del cluster
    cut = layout.attention_tp
    for heads in dict.fromkeys(heads for mixer in parts.mixers for heads in head_cuts(mixer)):
        if heads.may_repeat:
            if heads.parts % cut and cut % heads.parts:
                yield Violation(
                    "kv-heads" if heads.name.startswith("key") else "state-groups",
                    f"{heads.parts} {heads.name} neither divide by attention tp {cut} nor divide it",
                    f"attention tp that divides {heads.parts} or is a multiple of it",
                )
        elif heads.parts % cut:
            yield Violation(
                heads.name.replace(" ", "-"),
                f"{heads.parts} {heads.name} do not divide by attention tp {cut}",
                f"attention tp of {_degrees(max(cut, 8), heads.parts)}; the rest of the GPUs as dp or pp",
            )


def _widths(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del cluster
    for name, width in dict.fromkeys(pair for spec in parts.feed_forwards for pair in _dense_widths(spec)):
        if width % layout.tp:
            yield Violation(
                "mlp-width",
                f"{name} width {width} does not divide by tp {layout.tp}",
                f"tp of {_degrees(max(layout.tp, 8), width)}",
            )
    profile = parts.profile
    padded = padded_vocabulary(profile)
    if padded % layout.tp:
        yield Violation(
            "vocabulary",
            f"{profile.vocab_size} vocabulary rows, padded to {padded}, do not divide by tp {layout.tp}",
            f"tp of {_degrees(max(layout.tp, 8), padded)}",
        )


def _dense_widths(spec: FeedForward) -> Iterator[tuple[str, int]]:
    """Widths that `tp` cuts: of a dense MLP, of shared experts, of an MLP beside the experts."""
    if isinstance(spec, DenseFeedForward):
        yield "dense MLP", spec.width
    if isinstance(spec, RoutedExperts):
        yield "shared expert", spec.shared_width
        if spec.parallel is not None:
            yield "dense MLP", spec.parallel.width


def _experts(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del cluster
    if not parts.routed:
        if layout.ep > 1:
            yield Violation("experts", f"ep {layout.ep}, but the model has no routed experts", "leave --ep out")
        return
    if layout.stage_ranks % (layout.ep * layout.expert_tp):
        yield Violation(
            "expert-ranks",
            f"{layout.stage_ranks} ranks of a stage cannot be dealt into ep {layout.ep}",
            f"ep of {_degrees(max(layout.stage_ranks, 1), layout.stage_ranks)}",
        )
    for spec in parts.routed:
        dealt = spec.router.num_experts + parts.redundant_experts
        if dealt % layout.ep:
            twice = f" and {parts.redundant_experts} second copies" if parts.redundant_experts else ""
            yield Violation(
                "experts",
                f"{spec.router.num_experts} experts{twice} do not divide by ep {layout.ep}",
                f"ep of {_degrees(max(layout.ep, 8), dealt)}, or --redundant-experts "
                f"{-spec.router.num_experts % layout.ep}",
            )
        yield from _expert_slices(parts, spec, layout)


def _redundancy(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del cluster
    wanted = parts.redundant_experts
    if not wanted:
        return
    if not parts.routed:
        yield Violation("redundancy", f"{wanted} redundant experts, but the model has no routed ones", "leave them out")
    elif layout.ep == 1:
        yield Violation(
            "redundancy",
            f"{wanted} redundant experts even out the load between lots of experts, and ep 1 is a single lot",
            f"--ep {layout.stage_ranks}, or leave --redundant-experts out",
        )
    elif (fewest := min(spec.router.num_experts for spec in parts.routed)) * (layout.ep - 1) < wanted:
        yield Violation(
            "redundancy",
            f"{wanted} redundant experts are more than one copy of each of {fewest} on every other of {layout.ep} lots",
            f"at most {fewest * (layout.ep - 1)}",
        )


def _rounds_groups(parts: ModelParts, spec: RoutedExperts, packing: str, slices: int, units: int) -> bool:
    """Whether slices are whole groups of which the last has fewer, but some: how vLLM and SGLang load the MXFP4 experts
    of gpt-oss, the ones with biases (`per_rank_intermediate_size_block`)."""
    rounds = parts.engine in ("vllm", "sglang") and packing == "mxfp4" and spec.bias
    return rounds and -(-units // slices) * (slices - 1) < units


def _expert_slices(parts: ModelParts, spec: RoutedExperts, layout: Layout) -> Iterator[Violation]:
    quantization = parts.profile.quantization
    packing = quantization.of("routed_experts") if quantization is not None else None
    group = packing.step if packing is not None else 1
    units = spec.width // group
    if units % layout.expert_tp == 0 and spec.width % layout.expert_tp == 0:
        return
    if packing is not None and _rounds_groups(parts, spec, packing.name, layout.expert_tp, units):
        return
    grouped = f", which is {units} {packing.name} groups of {group}," if packing and group > 1 else ""
    whole = layout.ep * layout.expert_tp
    instead = f", or whole experts: --ep {whole}" if spec.router.num_experts % whole == 0 else ""
    yield Violation(
        "expert-slices",
        f"expert width {spec.width}{grouped} cannot be cut into {layout.expert_tp} slices",
        f"slices of {_degrees(max(layout.expert_tp, 8), units)}{instead}",
    )


def _pipeline(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del cluster
    layers = parts.profile.num_layers
    if layout.pp > layers:
        yield Violation(
            "pipeline",
            f"pp {layout.pp} is more than the model's {layers} layers",
            f"pp of at most {layers}",
        )


def _context(parts: ModelParts, layout: Layout, cluster: Cluster) -> Iterator[Violation]:
    del cluster
    if layout.cp == 1:
        return
    if layout.attention_tp % layout.cp:
        yield Violation(
            "context",
            f"cp {layout.cp} does not divide attention tp {layout.attention_tp}, whose ranks it uses",
            f"cp of {_degrees(layout.attention_tp, layout.attention_tp)}",
        )
    for mixer in parts.mixers:
        copies = cache_copies(mixer, layout.attention_tp)
        if copies and layout.cp > copies:
            yield Violation(
                "context",
                f"cp {layout.cp}, but only {copies} ranks hold the same {mixer.kind} cache at attention tp "
                f"{layout.attention_tp}; tokens can be spread over no more",
                f"cp of at most {copies}",
            )


RULES: tuple[Rule, ...] = (_product, _heads, _widths, _experts, _redundancy, _pipeline, _context)


def cache_copies(mixer: Mixer, attention_tp: int) -> int:
    """How many ranks of an attention group hold the same cached values; 0 where nothing is cached per token."""
    planes = mixer.cache_planes()
    if not planes:
        return 0
    heads = [plane.shape[plane.head_axis] if plane.head_axis is not None else 1 for plane in planes]
    return max(1, attention_tp // max(heads))


def layout_notes(parts: ModelParts, layout: Layout, cluster: Cluster) -> tuple[str, ...]:
    """What a reader should know of a legal layout: copies, padding, traffic across stages and nodes."""
    notes = list(cluster.notes)
    for mixer in parts.mixers:
        notes += _mixer_notes(mixer, layout)
    padded = padded_vocabulary(parts.profile)
    if layout.tp > 1 and padded != parts.profile.vocab_size:
        notes.append(f"vocabulary padded from {parts.profile.vocab_size} to {padded} rows to be cut {layout.tp} ways")
    if layout.attention_tp > cluster.gpus_per_node:
        notes.append(
            f"attention tp {layout.attention_tp} reaches across nodes of {cluster.gpus_per_node}: its all-reduces "
            "run at network speed; pp across nodes costs far less traffic"
        )
    elif layout.ep * layout.expert_tp > cluster.gpus_per_node:
        notes.append(
            f"experts are spread over {layout.ep * layout.expert_tp} ranks, more than a node's "
            f"{cluster.gpus_per_node}: their exchange runs at network speed"
        )
    return tuple(notes)


def _mixer_notes(mixer: Mixer, layout: Layout) -> Iterator[str]:
    cut = layout.attention_tp
    copies = cache_copies(mixer, cut)
    whole = bool(mixer.cache_planes()) and all(plane.head_axis is None for plane in mixer.cache_planes())
    if whole and cut > 1 and layout.cp == 1:
        what = "latent" if latent_part(mixer) is not None else mixer.kind
        yield f"each of {cut} ranks holds the whole {what} cache (one vector per token cannot be cut by heads)"
    elif copies > 1 and layout.cp == 1:
        yield (
            f"{cut // copies} key/value heads over attention tp {cut}: each head is kept by {copies} ranks, "
            "so more tp saves no cache"
        )
    if mixer.state_shapes() and layout.cp > 1:
        yield f"cp {layout.cp} leaves the state of {mixer.kind} layers as it is: state has no tokens to spread"
