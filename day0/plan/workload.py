"""What the machines are asked to serve: how long, how many at once, and how the cache is kept."""

from __future__ import annotations

from dataclasses import dataclass

from day0.errors import InputError
from day0.plan.settings import EXPERT_DTYPES, OFFLOADS
from day0.profile.cache_sizes import element_bytes
from day0.profile.profile import ArchitectureProfile, RoutedExperts

_LONG_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_DEFAULT_CONTEXT = 8192
_DEFAULT_PROMPT = 4096
_DEFAULT_DECODE = 1024
_MOST = 10**12
"""Tokens or requests beyond any machine: a larger number is a slip of the hand."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One demand on the whole deployment. Lengths are tokens.

    `context` is what one request may hold, prompt and answer together; `concurrency` how many such requests run at
    once over all replicas. `prompt` and `decode` are the request that times are estimated for. `kv_dtype` "auto"
    keeps the model's own dtype. `mem_fraction`, `max_num_seqs` (requests a replica may run at once) and
    `max_batched_tokens` (tokens of one step) None leave these settings to the engine. `speculate` loads the
    model's own predictors of further tokens, which have weights and a cache like other layers, and `drafted_tokens` is
    how many tokens a step drafts for each request (None is the engine's own number). `redundant_experts` of each layer
    are kept twice, for engines to even out the load (EPLB).

    For our own runtime alone: `offload` other than "none" lets layers come and go, all but `weight_budget` bytes of
    them, `expert_cache_bytes` keep experts as numbers, and `expert_dtype` "fp8" turns MXFP4 experts into FP8 blocks and
    keeps those instead (`EngineSettings` has the same words).
    """

    context: int
    concurrency: int = 1
    prompt: int = _DEFAULT_PROMPT
    decode: int = _DEFAULT_DECODE
    kv_dtype: str = "auto"
    mem_fraction: float | None = None
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    speculate: bool = False
    redundant_experts: int = 0
    drafted_tokens: int | None = None
    offload: str = "none"
    weight_budget: int = 0
    expert_cache_bytes: int = 0
    expert_dtype: str = "auto"

    def __post_init__(self) -> None:
        for name in (
            *("context", "concurrency", "prompt", "decode"),
            *("max_num_seqs", "max_batched_tokens", "drafted_tokens"),
        ):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _MOST:
                raise InputError(f"--{name.replace('_', '-')} must be from 1 to {_MOST:,}, got {value}")
        if not 0 <= self.redundant_experts <= _MOST:
            raise InputError(f"--redundant-experts must be from 0 to {_MOST:,}, got {self.redundant_experts}")
        if self.offload not in OFFLOADS:
            raise InputError(f"no such place {self.offload!r}", where="--offload", hint=f"one of {', '.join(OFFLOADS)}")
        if self.expert_dtype not in EXPERT_DTYPES:
            known = ", ".join(EXPERT_DTYPES)
            raise InputError(f"no dtype {self.expert_dtype!r}", where="--expert-dtype", hint=f"one of {known}")
        if self.weight_budget < 0 or self.expert_cache_bytes < 0:
            raise InputError("--weight-budget and --expert-cache-bytes must be 0 or more")
        if self.weight_budget and not self.streams:
            raise InputError("all weights stay on the device anyway", where="--weight-budget", hint="give --offload")
        if self.mem_fraction is not None and not 0.0 < self.mem_fraction <= 1.0:
            raise InputError(f"--mem-fraction must be in (0, 1], got {self.mem_fraction}")
        if self.kv_dtype != "auto":
            element_bytes(self.kv_dtype)
        if self.prompt + self.decode > self.context:
            raise InputError(
                f"--prompt {self.prompt} and --decode {self.decode} make {self.prompt + self.decode} tokens, "
                f"more than --context {self.context}",
                hint=f"--context {self.prompt + self.decode}",
            )

    @property
    def streams(self) -> bool:
        """Whether layers come and go."""
        return self.offload != "none"

    def drafted(self, usual: int) -> int:
        """Tokens that a step drafts for each request, `usual` being the engine's own number; 0 without predictors."""
        return (self.drafted_tokens or usual) if self.speculate else 0

    def sequences(self, replicas: int) -> int:
        """Requests that the busiest of `replicas` holds at once."""
        return -(-self.concurrency // replicas)


def make_workload(
    profile: ArchitectureProfile,
    *,
    context: int | None = None,
    concurrency: int = 1,
    prompt: int | None = None,
    decode: int | None = None,
    kv_dtype: str = "auto",
    mem_fraction: float | None = None,
    max_num_seqs: int | None = None,
    max_batched_tokens: int | None = None,
    speculate: bool = False,
    redundant_experts: int = 0,
    drafted_tokens: int | None = None,
    offload: str = "none",
    weight_budget: int = 0,
    expert_cache_bytes: int = 0,
    expert_dtype: str = "auto",
) -> Workload:
    """Fill in what was not said: the model's whole context, as engines do, and a request of common size within it."""
    limit = profile.max_position
    if speculate and profile.mtp is None:
        raise InputError("--speculate, but the model has no predictors of further tokens", hint="leave it out")
    if expert_dtype == "fp8":
        _check_float8_experts(profile)
    if context is None:
        context = limit or max(_DEFAULT_CONTEXT, (prompt or 0) + (decode or 0))
    elif limit is not None and context > limit:
        raise InputError(
            f"--context {context} is beyond the model's {limit} ({profile.max_position_field})", hint=f"at most {limit}"
        )
    if decode is None:
        decode = max(1, min(_DEFAULT_DECODE, context // 4, context - (prompt or 0)))
    if prompt is None:
        prompt = max(1, min(_DEFAULT_PROMPT, context - decode))
    return Workload(
        context,
        concurrency,
        prompt,
        decode,
        _LONG_NAMES.get(kv_dtype, kv_dtype),
        mem_fraction,
        max_num_seqs,
        max_batched_tokens,
        speculate,
        redundant_experts,
        drafted_tokens,
        offload,
        weight_budget,
        expert_cache_bytes,
        expert_dtype,
    )


def _check_float8_experts(profile: ArchitectureProfile) -> None:
    """Raises InputError for what `serve --expert-dtype fp8` refuses."""
    packing = profile.quantization.of("routed_experts") if profile.quantization is not None else None
    routed = any(isinstance(layer.feed_forward, RoutedExperts) for layer in profile.layers)
    if not routed or packing is None or packing.name != "mxfp4":
        raise InputError(
            "the model has no MXFP4 experts, and no others are re-encoded", where="--expert-dtype", hint="auto"
        )
    if profile.dtype == "F16":
        raise InputError("float16 does not hold MXFP4's range", where="--expert-dtype", hint="auto")
