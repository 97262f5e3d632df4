"""A plan: one layout of one model on one cluster, with every byte of each rank, and whether it fits."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

from day0.plan.accounting import Accounting
from day0.plan.activations import SIZED
from day0.plan.cluster import GIB, Cluster
from day0.plan.estimate import Estimate, estimate
from day0.plan.layout import Layout, ModelParts, Violation, check_layout, layout_notes, model_parts
from day0.plan.memory import Budget, RankCache, RankNeed, Risk, Settings, element_size, rank_cache
from day0.plan.stages import balance
from day0.plan.weights import Cuts, RankWeights, WeightTable, place_weights, weight_table
from day0.plan.workload import Workload
from day0.profile.profile import ArchitectureProfile, AttentionResidual, CrossAttention


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank's memory, bytes; `count` ranks of this stage from `rank` on are alike. All lines add up to `total`.

    `free` is below 0 where the GPU is too small. `layers` is how many decoder layers the stage has.
    """

    rank: int
    count: int
    stage: int
    layers: int
    weights: int
    workspace: int
    activations: int
    state_pool: int
    kv_pool: int
    comm: int
    overhead: int
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout and what follows from it.

    `weights_gib_per_gpu` is the fullest rank's, `kv_gib_per_gpu` the smallest pool (state and cached tokens).
    `kv_tokens`, `max_concurrency` (requests of the asked context at once) and `max_context` (of one request beside
    the others asked for) are for the whole deployment; an engine's log shows the first two for one of `dp` replicas.
    `kv_bytes_per_token` and `state_bytes_per_sequence` are one rank's, of the stage that keeps most. `settings` is
    what the engine must be told for these figures to hold.
    """

    layout: Layout
    engine: str
    fits: bool | None
    unsized: tuple[str, ...]
    ranks: tuple[RankMemory, ...]
    weights_gib_per_gpu: float | None
    kv_gib_per_gpu: float | None
    kv_bytes_per_token: int | None
    state_bytes_per_sequence: int | None
    kv_tokens: int | None
    max_concurrency: float | None
    max_context: int | None
    estimate: Estimate | None
    settings: Settings | None
    violations: tuple[Violation, ...]
    notes: tuple[str, ...]

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Decoder layers of each stage."""
        return tuple(rank.layers for rank in self.ranks)

    @property
    def shortfall(self) -> int:
        """Bytes that the tightest rank lacks, 0 where all fit."""
        return max((-rank.free for rank in self.ranks), default=0)


class Planner:
    """What stays the same over all layouts of one question: the model's weights by place, the cluster, the demand."""

    def __init__(
        self,
        profile: ArchitectureProfile,
        cluster: Cluster,
        accounting: Accounting,
        workload: Workload,
        stored_bytes: int | None = None,
        unsaid: str | None = None,
    ) -> None:
        """`stored_bytes` are those of the tensor headers, the one bound there is for a model that is not understood;
        `unsaid` names a size that nothing at hand tells."""
        self.profile = profile
        self.cluster = cluster
        self.accounting = accounting
        self.workload = workload
        self._parts = model_parts(profile, workload.redundant_experts, accounting.name)
        strange = _without_formula(self._parts)
        self.unsized = _not_understood(profile) + strange + _encoder_rows(self._parts)
        if unsaid is not None:
            self.unsized += (unsaid,)
        self._stored_bytes = stored_bytes
        known = profile.family is not None and bool(profile.layers) and not strange
        self.table = weight_table(profile) if known else None

    def with_context(self, context: int) -> Planner:
        """The same question for longer or shorter requests; the model's weights are not looked at again."""
        return self._copy(self.cluster, replace(self.workload, context=context))

    def with_cluster(self, cluster: Cluster) -> Planner:
        """The same question on other machines."""
        return self._copy(cluster, self.workload)

    def _copy(self, cluster: Cluster, workload: Workload) -> Planner:
        other = copy(self)
        other.cluster, other.workload = cluster, workload
        return other

    @property
    def is_sized(self) -> bool:
        """Whether the model's layers are known at all."""
        return self.table is not None

    def check(self, layout: Layout) -> tuple[Violation, ...]:
        """The rules that the layout breaks, before any byte is counted."""
        if self.table is None:
            return ()
        common = check_layout(self._parts, layout, self.cluster)
        return common + self.accounting.check(self._parts, layout, self.workload)

    def plan(self, layout: Layout, broken: tuple[Violation, ...] | None = None) -> Plan:
        """Size the layout; one that breaks a rule is sized as far as its pieces can be rounded up.

        `broken` are the rules it breaks, where `check` has been asked already.
        """
        if self.table is None:
            return self._unknown(layout)
        violations = self.check(layout) if broken is None else broken
        needs = self.needs(layout, self.table) if layout.pp <= self.profile.num_layers else ()
        budgets = tuple(self.accounting.budget(need) for need in needs)
        if not self.unsized:  # sizes that are not understood refute nothing
            violations += memory_violations(needs, budgets, self.workload)
        notes = (
            *layout_notes(self._parts, layout, self.cluster),
            *self.accounting.notes(self._parts, layout, self.cluster.gpu),
            *_tower_notes(self.profile, self._cuts(layout), layout),
            *_stage_notes(self.profile, needs),
        )
        fits = not violations
        unsized = self.unsized + (self._doubts(needs, budgets) if fits else ())
        return Plan(
            layout=layout,
            engine=self.accounting.name,
            fits=None if fits and unsized else fits,
            unsized=unsized,
            ranks=_rank_lines(needs, budgets),
            weights_gib_per_gpu=_gib(max((budget.weights for budget in budgets), default=None)),
            kv_gib_per_gpu=_gib(min((budget.kv_pool + budget.state_pool for budget in budgets), default=None)),
            kv_bytes_per_token=max((need.cache.token_bytes for need in needs), default=None),
            state_bytes_per_sequence=max((need.cache.state_bytes for need in needs), default=None),
            kv_tokens=_kv_tokens(layout, budgets, self.workload),
            max_concurrency=_max_concurrency(layout, budgets, self.workload),
            max_context=_max_context(self.profile, layout, budgets, self.workload),
            # weights that come and go arrive at the speed of a disk or a host link, which no cluster file has
            estimate=estimate(needs, self.cluster) if needs and not self.workload.streams else None,
            settings=_settings(budgets),
            violations=violations,
            notes=tuple(dict.fromkeys(notes)),  # kinds of a mixer say the same
        )

    def needs(self, layout: Layout, table: WeightTable) -> tuple[RankNeed, ...]:
        """One rank of each stage; stages are balanced by weights and the cache of the demand."""
        profile, cuts = self.profile, self._cuts(layout)
        whole = rank_cache(profile, profile.layers, layout, self.workload.kv_dtype, self.accounting)
        sequences = self.workload.sequences(layout.dp)
        held = table.layer_weights(cuts)
        kept = {layer: layer.state_bytes + layer.bytes_at(self.workload.context) for layer in set(whole.layers)}
        costs = [weights.total + sequences * kept[layer] for weights, layer in zip(held, whole.layers, strict=True)]
        ends = RankWeights(), RankWeights()
        if layout.pp > 1:
            ends = (
                table.stage(range(0), cuts, held, is_first=True, is_last=False),
                table.stage(range(0), cuts, held, is_first=False, is_last=True),
            )
        stages = balance(costs, ends[0].total, ends[1].total, layout.pp)
        return tuple(self._need(layout, table, layers, held, whole) for layers in stages)

    def _doubts(self, needs: tuple[RankNeed, ...], budgets: tuple[Budget, ...]) -> tuple[str, ...]:
        """Risks that the headroom does not cover, where all of a rank's come true."""
        found: list[Risk] = []
        for need, budget in zip(needs, budgets, strict=True):
            inside = [risk for risk in budget.risks if risk.in_pool and risk.nbytes]
            beside = [risk for risk in budget.risks if not risk.in_pool and risk.nbytes]
            if budget.sure.sequences(self.workload.context) < need.sequences:
                found += inside
            if sum(risk.nbytes for risk in beside) > budget.free:
                found += beside
        return tuple(dict.fromkeys(f"{risk.what}; {risk.remedy}" for risk in found))

    def _cuts(self, layout: Layout) -> Cuts:
        return replace(self.accounting.cuts(layout), redundant=self.workload.redundant_experts)

    def _need(
        self, layout: Layout, table: WeightTable, layers: range, held: tuple[RankWeights, ...], whole: RankCache
    ) -> RankNeed:
        """One stage; `held` and `whole` are the weights and caches of all layers."""
        is_first, is_last = layers.start == 0, layers.stop == self.profile.num_layers
        specs = tuple(self.profile.layers[index] for index in layers)
        cuts = self._cuts(layout)
        weights = table.stage(layers, cuts, held, is_first=is_first, is_last=is_last)
        caches = whole.layers[layers.start : layers.stop]
        if is_last and self.workload.speculate and self.profile.mtp is not None:
            predictors = self.profile.mtp.layers
            specs += predictors
            weights += place_weights(table.mtp, cuts)
            caches += rank_cache(self.profile, predictors, layout, self.workload.kv_dtype, self.accounting).layers
        return RankNeed(
            profile=self.profile,
            layout=layout,
            gpu=self.cluster.gpu,
            workload=self.workload,
            layers=specs,
            weights=weights,
            cache=RankCache(caches, whole.cp),
            is_first=is_first,
            is_last=is_last,
        )

    def _unknown(self, layout: Layout) -> Plan:
        """Nothing is known of the layers: all that can be said is whether the stored bytes could fit at all."""
        violations: tuple[Violation, ...] = ()
        notes: tuple[str, ...] = ()
        if self._stored_bytes is not None:
            stored, memory = self._stored_bytes / GIB, self.cluster.gpus * self.cluster.gpu.memory_bytes / GIB
            notes = (f"the stored weights are {stored:.1f} GiB, {stored / self.cluster.gpus:.1f} per GPU at least",)
            if stored > memory:
                message = f"the stored weights are {stored:.1f} GiB, all GPUs together have {memory:.1f}"
                violations = (Violation("memory", message, "more GPUs"),)
        return Plan(
            layout=layout,
            engine=self.accounting.name,
            fits=False if violations else None,
            unsized=self.unsized or ("the model's layers",),
            ranks=(),
            weights_gib_per_gpu=None,
            kv_gib_per_gpu=None,
            kv_bytes_per_token=None,
            state_bytes_per_sequence=None,
            kv_tokens=None,
            max_concurrency=None,
            max_context=None,
            estimate=None,
            settings=None,
            violations=violations,
            notes=notes,
        )


def memory_violations(
    needs: tuple[RankNeed, ...], budgets: tuple[Budget, ...], workload: Workload
) -> tuple[Violation, ...]:
    """Ranks whose lines exceed the GPU, and pools too small for the demand; the tightest stage speaks for all."""
    if not budgets:
        return ()
    tightest = min(range(len(budgets)), key=lambda stage: budgets[stage].free)
    budget = budgets[tightest]
    where = f"a rank of stage {tightest}" if len(budgets) > 1 else "a rank"
    if budget.free < 0:
        claims = ", ".join(
            f"{name} {size / GIB:.1f}"
            for name in ("weights", "workspace", "activations", "state_pool", "comm", "overhead")
            if (size := getattr(budget, name)) > 0
        )
        return (
            Violation(
                "memory",
                f"{where} needs {budget.claimed / GIB:.1f} GiB of {budget.total / GIB:.1f}: {claims}",
                "more GPUs, a layout that cuts more, or fewer batched tokens",
            ),
        )
    smallest = min(range(len(budgets)), key=lambda stage: budgets[stage].capacity.sequences(workload.context))
    capacity, need = budgets[smallest].capacity, needs[smallest]
    held = capacity.sequences(workload.context)
    if held >= need.sequences:
        return ()
    wanted = need.sequences * need.cache.sequence_bytes(workload.context)
    pool = budgets[smallest].kv_pool + budgets[smallest].state_pool
    fitting = budgets[smallest].sure.context(need.sequences)
    shorter = f"--context {fitting}, or " if fitting else ""
    return (
        Violation(
            "cache",
            f"{need.sequences} x {workload.context} tokens need {wanted / GIB:.2f} GiB of cache on a rank of stage "
            f"{smallest}; the pool of {pool / GIB:.2f} GiB holds {held:.2f} such requests",
            f"{shorter}a smaller --kv-dtype, fewer requests at once, or more GPUs",
        ),
    )


def _rank_lines(needs: tuple[RankNeed, ...], budgets: tuple[Budget, ...]) -> tuple[RankMemory, ...]:
    return tuple(
        RankMemory(
            rank=stage * need.layout.stage_ranks,
            count=need.layout.stage_ranks,
            stage=stage,
            layers=len(need.layers),
            weights=budget.weights,
            workspace=budget.workspace,
            activations=budget.activations,
            state_pool=budget.state_pool,
            kv_pool=budget.kv_pool,
            comm=budget.comm,
            overhead=budget.overhead,
            free=budget.free,
            total=budget.total,
        )
        for stage, (need, budget) in enumerate(zip(needs, budgets, strict=True))
    )


def _settings(budgets: tuple[Budget, ...]) -> Settings | None:
    """One set of settings for all ranks: the one of the stage that can run the fewest requests."""
    return min((budget.settings for budget in budgets), key=lambda each: each.max_num_seqs, default=None)


def _kv_tokens(layout: Layout, budgets: tuple[Budget, ...], workload: Workload) -> int | None:
    held = [tokens for budget in budgets if (tokens := budget.capacity.tokens(workload.context)) is not None]
    return min(held) * layout.dp if held else None


def _max_concurrency(layout: Layout, budgets: tuple[Budget, ...], workload: Workload) -> float | None:
    held = min((budget.capacity.sequences(workload.context) for budget in budgets), default=None)
    return None if held is None or held == float("inf") else round(held * layout.dp, 2)


def _max_context(
    profile: ArchitectureProfile, layout: Layout, budgets: tuple[Budget, ...], workload: Workload
) -> int | None:
    sequences = workload.sequences(layout.dp)
    held = [tokens for budget in budgets if (tokens := budget.sure.context(sequences)) is not None]
    limits = held + ([profile.max_position] if profile.max_position is not None else [])
    return min(limits, default=None) if budgets else None


def _stage_notes(profile: ArchitectureProfile, needs: tuple[RankNeed, ...]) -> tuple[str, ...]:
    if len(needs) < 2:
        return ()
    notes = [f"layers per stage: {', '.join(str(len(need.layers)) for need in needs)}"]
    residual = profile.residual
    if isinstance(residual, AttentionResidual):
        sent = [need.layers[-1].index // residual.block_size + 2 for need in needs[:-1]]
        size = max(sent) * profile.hidden_size * element_size(profile)
        notes.append(
            f"attention residuals cross stages with their snapshots: up to {max(sent)} vectors, {size} bytes per token"
        )
    return tuple(notes)


def _tower_notes(profile: ArchitectureProfile, cuts: Cuts, layout: Layout) -> tuple[str, ...]:
    if profile.vision is None or layout.stage_ranks == 1:
        return ()
    heads = profile.vision.num_heads
    if cuts.vision > 1 and heads % cuts.vision == 0:
        return (f"the vision tower's {heads} heads are cut over {cuts.vision} ranks of the first stage",)
    return ("every rank of the first stage holds the whole vision tower",)


def _without_formula(parts: ModelParts) -> tuple[str, ...]:
    kinds = dict.fromkeys(part.kind for part in (*parts.mixers, *parts.feed_forwards) if not isinstance(part, SIZED))
    return tuple(f"no formula for the memory of {kind} layers yet" for kind in kinds)


def _encoder_rows(parts: ModelParts) -> tuple[str, ...]:
    """Layers that attend to an encoder keep its rows for each sequence; how many there are is the request's affair."""
    rows = [layer.mixer for layer in parts.profile.layers if isinstance(layer.mixer, CrossAttention)]
    if not rows:
        return ()
    nbytes = sum(mixer.encoder_elements for mixer in rows) * element_size(parts.profile)
    return (f"{len(rows)} cross-attention layers keep {nbytes} bytes for every encoder row of a sequence beside this",)


def _not_understood(profile: ArchitectureProfile) -> tuple[str, ...]:
    return tuple(f"{finding.where}: {finding.message}" for finding in profile.findings if finding.severity == "error")


def _gib(nbytes: int | None) -> float | None:
    return None if nbytes is None else round(nbytes / GIB, 3)
