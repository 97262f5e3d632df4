"""Score the planner on observed figures of real servers: weights, cache bytes per token, and whether it fitted.

    python benchmarks/plan_truth.py ../shared/plan_truth/rows.yaml --configs ../shared/model_configs

A row's model is found by its name: its own config or recipe, else a config of the same series and size (marked `kin`)
with the packing that the name announces; one of the same shape but another packing only says bytes per token.
Nothing is looked up by row.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plan_truth_models import Models, NoConfig

from day0.errors import Day0Error
from day0.plan.accounting import accounting_for
from day0.plan.cluster import GIB, Cluster, known_gpus, parse_cluster
from day0.plan.layout import Layout
from day0.plan.memory_sglang import SglangAccounting
from day0.plan.plan import Plan, Planner
from day0.plan.workload import make_workload
from day0.profile.profile import ArchitectureProfile
from day0.source.data_files import load_yaml

_GPU_WORDS = {
    "h100nvl": "h100",
    "gb10": "gb10",
    "l4": "l4",
    "rtx3090": "rtx-3090",
    "rtx5090": "rtx-5090",
    "rtxpro6000": "rtx-pro-6000",
}
_KV_WORDS = ("fp8", "bf16", "bfloat16", "fp16")


@dataclass(frozen=True, slots=True)
class Score:
    """One row: planned and observed figures, None where the row or the planner has none."""

    row: str
    how: str
    weights: tuple[float, float] | None
    weight_limit: float
    token_bytes: tuple[float, float] | None
    token_limit: float
    fits: tuple[bool | None, bool] | None
    exact: bool
    remark: str = ""
    released: bool = True

    def ok(self, name: str) -> bool | None:
        pair = getattr(self, name)
        if pair is None:
            return None
        if name == "fits":
            return bool(pair[0] == pair[1])
        limit = self.weight_limit if name == "weights" else self.token_limit
        return bool(abs(pair[0] / pair[1] - 1) <= limit)


def cluster_of(row: dict[str, Any]) -> Cluster:
    """The row's machine: the known GPU of that name with the memory that the row states."""
    word = re.sub(r"[^a-z0-9]", "", row["gpu"].lower().split("(")[0])
    names = {re.sub(r"[^a-z0-9]", "", name): name for name in known_gpus()} | _GPU_WORDS
    name = next((names[key] for key in sorted(names, key=len, reverse=True) if word.startswith(key)), "h100")
    nodes = max(1, row["n_gpus"] // 8)
    cluster = parse_cluster(f"{name}:{row['n_gpus'] // nodes}x{nodes}")
    if row["gpu_mem_gib"] is None:
        return cluster
    return replace(cluster, gpu=replace(cluster.gpu, memory_bytes=int(row["gpu_mem_gib"] * GIB)))


def layout_of(row: dict[str, Any], profile: ArchitectureProfile) -> Layout:
    """The row's engine-neutral layout in our words."""
    given = row["layout"]
    shared = given["moe_ranks"] if any(layer.feed_forward.kind == "moe" for layer in profile.layers) else 1
    dealt = shared if given["moe_mode"] == "ep" else 1
    sglang = row["engine"].startswith("sglang")
    tp = given["attn_tp"] * given["attn_dp"] if sglang else given["attn_tp"]
    cp = row["flags"].get("decode_context_parallel_size", 1)
    return Layout(tp, given["pp"], dealt, given["attn_dp"], cp, given["attn_tp"], shared // dealt)


def number(value: Any) -> float | None:
    """The number that a flag starts with or ends on ("default 0.9"), None where it has none or several."""
    found = re.findall(r"\d+(?:\.\d+)?", str(value))
    return float(found[0]) if len(found) == 1 else None


def drafts(flags: dict[str, Any]) -> bool:
    """Whether tokens are drafted without a word on what drafts them: then it is the model's own predictors."""
    return "num_speculative_tokens" in flags and "speculative" not in flags


def stated(row: dict[str, Any], flag: str) -> Any:
    """A flag's value as the row's flags have it, or its note, where the source named it in its explanation only."""
    noted = re.search(rf"\b{flag} (\d+)", row["note"] or "")
    return row["flags"].get(flag) or (noted.group(1) if noted else None)


def planner_of(row: dict[str, Any], profile: ArchitectureProfile) -> Planner:
    flags = row["flags"]
    kv = next((word for word in _KV_WORDS if word in str(flags.get("kv_cache_dtype", "")).lower()), "auto")
    if kv == "auto" and profile.quantization is not None and profile.quantization.kv_cache and "vllm" in row["engine"]:
        kv = profile.quantization.kv_cache
    context = number(flags.get("max_model_len") or flags.get("context_length"))
    length = int(context) if context else min(profile.max_position or 8192, 8192)
    profile = replace(profile, max_position=max(profile.max_position or 0, length))
    engine = row["engine"].split()[0]
    fraction = number(flags.get("gpu_memory_utilization") or flags.get("mem_fraction_static"))
    seqs, tokens = flags.get("max_num_seqs") or stated(row, "max_running_requests"), flags.get("max_num_batched_tokens")
    tokens = tokens or flags.get("chunked_prefill_size")
    workload = make_workload(
        profile,
        context=length,
        kv_dtype=kv,
        mem_fraction=fraction if fraction and fraction <= 1 else None,
        max_num_seqs=int(number(seqs) or 0) or None,
        max_batched_tokens=int(number(tokens) or 0) or None,
        speculate=profile.mtp is not None and ("MTP" in str(flags.get("speculative", "")) or drafts(flags)),
        drafted_tokens=int(number(flags.get("num_speculative_tokens")) or 0) or None,
    )
    return Planner(profile, cluster_of(row), accounting_for(engine, row["engine_version"]), workload)


def bytes_per_token(row: dict[str, Any], planner: Planner, layout: Layout) -> tuple[float, float] | None:
    """Pool bytes per token of one GPU, planned and observed, the pool being the observed one.

    A hybrid's tokens depend on the longest request, so it is only compared where the row states one.
    """
    observed, tokens = row["observed"], row["observed"]["kv_tokens"]
    pool = observed["kv_cache_gib_per_gpu"]
    table = planner.table
    if pool is None or pool <= 0 or not tokens or table is None:
        return None
    needs = planner.needs(layout, table)
    hybrid = any(layer.state_bytes or layer.windowed for need in needs for layer in need.cache.layers)
    stated = number(row["flags"].get("max_model_len"))
    concurrency = observed["max_concurrency"]
    if hybrid and (stated is None or concurrency is None):
        return None
    if hybrid:
        tokens = concurrency * stated
    nbytes = int(pool * GIB)
    if isinstance(planner.accounting, SglangAccounting):
        planned = nbytes / max(need.cache.token_bytes for need in needs)
    else:
        context = planner.workload.context
        planned = min(planner.accounting.capacity(need, nbytes)[0].tokens(context) or 0 for need in needs)
    return (nbytes / planned if planned else float("inf"), nbytes / tokens)


def score(row: dict[str, Any], models: Models) -> Score:
    observed = row["observed"]
    try:
        found = models.find(row["model"])
        profile = found.profile
        if found.how == "shape":  # another packing's calibration says nothing of this one's cache
            profile = replace(profile, quantization=None)
        planner = planner_of(row, profile)
        layout = layout_of(row, profile)
        plan = planner.plan(layout)
    except (NoConfig, Day0Error) as error:
        return Score(row["id"], "-", None, 0, None, 0, None, False, str(error))
    packed = profile.quantization.of("routed_experts") if profile.quantization is not None else None
    four_bit = packed is not None and packed.value_bits < 5
    weights = observed["weights_gib_per_gpu"]
    planned = plan.weights_gib_per_gpu
    hybrid = any(layer.state_shapes() or any(p.window for p in layer.cache_planes()) for layer in profile.layers)
    exact = row["quality"] == "exact"
    return Score(
        row=row["id"],
        how=found.how,
        weights=(planned, weights) if weights and planned and exact and found.how != "shape" else None,
        weight_limit=0.05 if four_bit else 0.03,
        token_bytes=bytes_per_token(row, planner, layout),
        token_limit=0.10 if hybrid else 0.01,
        fits=(plan.fits, observed["fits"])
        if observed["fits"] is not None and found.how != "shape" and row["gpu_mem_gib"]
        else None,
        exact=exact,
        remark=remark_of(plan),
        released="fork" not in row["engine"],
    )


def remark_of(plan: Plan) -> str:
    if plan.unsized:
        return plan.unsized[0]
    return f"{plan.violations[0].rule}: {plan.violations[0].message}" if plan.violations else ""


def table(scores: list[Score]) -> str:
    lines = [f"{'row':52} {'model':5} {'weights GiB':>19} {'bytes per token':>22} {'fits':>13}  remark"]
    for each in scores:
        cells = []
        for name, form in (("weights", "{:.2f}"), ("token_bytes", "{:.0f}")):
            pair = getattr(each, name)
            mark = {True: " ", False: "!", None: " "}[each.ok(name)]
            cells.append("-" if pair is None else f"{form.format(pair[0])}/{form.format(pair[1])}{mark}")
        fits = "-" if each.fits is None else f"{_word(each.fits[0])}/{_word(each.fits[1])}"
        fits += "!" if each.ok("fits") is False else " "
        lines.append(f"{each.row:52} {each.how:5} {cells[0]:>19} {cells[1]:>22} {fits:>13}  {each.remark[:90]}")
    lines += summary("all rows", scores)
    lines += summary("released engines", [each for each in scores if each.released])
    lines.append(f"rows without a model: {sum(each.how == '-' for each in scores)} of {len(scores)}")
    return "\n".join(lines)


def summary(what: str, scores: list[Score]) -> list[str]:
    """How many of the rows are within their bounds; a fork's overheads and formats are its own."""
    lines = []
    for name in ("weights", "token_bytes", "fits"):
        verdicts = [each.ok(name) for each in scores if each.ok(name) is not None]
        share = 100 * sum(map(bool, verdicts)) / len(verdicts) if verdicts else 0.0
        lines.append(f"{what}: {name}: {sum(map(bool, verdicts))} of {len(verdicts)} ({share:.0f}%)")
    false_fits = [each.row for each in scores if each.fits == (True, False)]
    return [*lines, f"{what}: false fits: {len(false_fits)} {', '.join(false_fits)}"]


def _word(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unsaid"}[value]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--configs", type=Path, required=True)
    arguments = parser.parse_args()
    models = Models(arguments.configs)
    sys.stdout.write(table([score(row, models) for row in load_yaml(arguments.rows)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
