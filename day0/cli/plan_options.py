"""The options of `day0 plan`, each with its help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from day0.plan.cluster import MOST_GPUS
from day0.plan.settings import EXPERT_DTYPES, OFFLOADS


class Engine(StrEnum):
    DAY0 = "day0"
    VLLM = "vllm"
    SGLANG = "sglang"
    TRANSFORMERS = "transformers"


class Form(StrEnum):
    """What `--emit` prints."""

    COMMAND = "command"
    COMPOSE = "compose"
    K8S = "k8s"
    SLURM = "slurm"
    YAML = "yaml"


class Goal(StrEnum):
    """What `--rank-by` puts first."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    CONTEXT = "context"
    CONCURRENCY = "concurrency"
    FIT = "fit"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="Hub id, folder, config.json or recipe:NAME.")]
ClusterSpec = Annotated[
    str | None, typer.Option("--cluster", metavar="SPEC", help="GPU:COUNT, GPU:COUNTxNODES or a cluster file.")
]
TensorParallel = Annotated[int | None, typer.Option(min=1, max=MOST_GPUS, metavar="N", help="Tensor parallel ranks.")]
PipelineStages = Annotated[int | None, typer.Option(min=1, max=MOST_GPUS, metavar="N", help="Pipeline stages.")]
ExpertLots = Annotated[
    int | None, typer.Option(min=1, max=MOST_GPUS, metavar="N", help="Lots that whole experts are dealt into.")
]
Replicas = Annotated[int | None, typer.Option(min=1, max=MOST_GPUS, metavar="N", help="Replicas of attention.")]
ContextParallel = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_GPUS, metavar="N", help="Ranks that the tokens of a sequence are spread over."),
]
AttentionCut = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_GPUS, metavar="N", help="Ranks that share attention, where they are not tp's."),
]
EngineName = Annotated[Engine | None, typer.Option("--engine", help="Whose accounting and flags. [default: day0]")]
EngineVersion = Annotated[str | None, typer.Option(metavar="V", help="Version of the engine. [default: newest known]")]
Context = Annotated[
    int | None, typer.Option(min=1, metavar="TOKENS", help="Tokens one request may hold. [default: the model's]")
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Requests at once, over all replicas. [default: 1]")
]
Prompt = Annotated[int | None, typer.Option(min=1, metavar="TOKENS", help="Prompt that times are estimated for.")]
Decode = Annotated[int | None, typer.Option(min=1, metavar="TOKENS", help="Answer that times are estimated for.")]
KvDtype = Annotated[str | None, typer.Option(metavar="DTYPE", help="auto, bf16 or fp8. [default: auto]")]
MemFraction = Annotated[
    float | None, typer.Option(metavar="SHARE", help="Share of the GPU, as the engine means it. [default: its own]")
]
MaxNumSeqs = Annotated[int | None, typer.Option(min=1, metavar="N", help="Requests one replica may run at once.")]
MaxBatchedTokens = Annotated[int | None, typer.Option(min=1, metavar="N", help="Tokens of one step.")]
Load = Annotated[Path | None, typer.Option(metavar="FILE", help="Check a plan file again; other options override it.")]
Top = Annotated[int, typer.Option(min=1, metavar="N", help="Plans to show.")]
Emit = Annotated[Form | None, typer.Option(help="Print the best plan in this form instead of the report.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page as well.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document to this file as well.")]
RankBy = Annotated[Goal, typer.Option("--rank-by", help="What the best of the plans that fit has most of.")]
MostContext = Annotated[
    bool, typer.Option("--most-context", help="Find the longest context at which --concurrency requests fit.")
]
FewestGpus = Annotated[
    bool, typer.Option("--fewest-gpus", help="Find the smallest part of the cluster that holds the demand.")
]
Speculate = Annotated[
    bool | None,
    typer.Option("--speculate/--no-speculate", help="Load the model's own predictors of further tokens. [default: no]"),
]
DraftedTokens = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Tokens drafted at a time with --speculate. [default: the engine's]"),
]
Offload = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(OFFLOADS),
        help="day0: where the weights of layers rest that are not on the GPU. [default: none]",
    ),
]
WeightBudget = Annotated[
    int | None,
    typer.Option(min=0, metavar="BYTES", help="With --offload: layers and experts that stay on the GPU. [default: 0]"),
]
ExpertCacheBytes = Annotated[
    int | None, typer.Option(min=0, metavar="BYTES", help="day0: packed experts kept as numbers. [default: 0]")
]
ExpertDtype = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(EXPERT_DTYPES),
        help="day0: fp8 turns MXFP4 experts into FP8 blocks and keeps them so. [default: auto]",
    ),
]
RedundantExperts = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Experts of each layer kept twice, to even out the load. [default: 0]"),
]
EngineArg = Annotated[
    list[str] | None,
    typer.Option(metavar="WORD", help="A word of your own for the engine: --engine-arg=--flag, once for each word."),
]
