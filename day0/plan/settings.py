"""How the reference runtime is told to run: the part of a plan that the engine reads."""

from __future__ import annotations

from dataclasses import dataclass

from day0.errors import InputError

RUNTIMES = ("auto", "native", "upstream")
OFFLOADS = ("none", "host", "disk")
EXPERT_DTYPES = ("auto", "fp8")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of one engine. Sizes are in tokens unless they say otherwise.

    `dtype` "auto" is float32 on a CPU and the checkpoint's own dtype elsewhere; `kv_dtype` "auto" follows it.
    `max_model_len` None means the model's own limit, cut to what the cache can hold for one sequence.
    `kv_cache_bytes` None lets the engine size the cache from free memory, `mem_fraction` of it at most.
    `page_size` is rounded up where entries that several tokens share would lie on two pages.
    `cpu_threads` None lets the engine choose: one for a small model, whose steps are too short to share out.
    `workspace_experts` is how many unpacked experts the conversion workspace holds at once; `expert_cache_bytes` is
    for those that are kept unpacked from one step to the next, `relaid_bytes` for copies of matrices in a layout that
    a kernel reads faster than the stored one (on a CPU in bfloat16).
    `expert_dtype` "fp8" turns MXFP4 experts into FP8 blocks and keeps them so, before they become numbers of `dtype`.
    `debug` fills pages and
    state slots with NaN when they are freed, so that a stale read shows.
    `offload` "disk" reads the weights of decoder layers when they run, "host" copies them from host memory then;
    `weight_budget` is how many bytes of them stay on the device all the same, layers first, then experts.
    `runtime` "native" runs our own blocks, "upstream" the definition in transformers, "auto" the latter where a block
    is missing; `trust_remote_code` lets code from the model's own repository run there.

    `prefix_caching` reuses what earlier requests with the same beginning have computed; for models with recurrent state
    up to where a copy of the state was kept, in `snapshot_bytes` of host memory at most. While sequences run,
    `watermark` of the pages is not given to new ones, so that those need not be put back at once.

    `tp` ranks cut each layer between them, `pp` stages have layers of their own, `dp` replicas sequences of their own;
    over the `tp` x `dp` ranks of a stage experts are dealt into `ep` lots (`docs/parallel.md`).
    """

    device: str = "auto"
    dtype: str = "auto"
    kv_dtype: str = "auto"
    page_size: int = 16
    max_model_len: int | None = None
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048
    max_queue: int = 1024
    mem_fraction: float = 0.5
    kv_cache_bytes: int | None = None
    prefix_caching: bool = True
    snapshot_bytes: int = 256 << 20
    watermark: float = 0.01
    workspace_experts: int = 16
    expert_cache_bytes: int = 0
    expert_dtype: str = "auto"
    relaid_bytes: int = 1 << 30
    cpu_threads: int | None = None
    seed: int = 0
    debug: bool = False
    runtime: str = "auto"
    trust_remote_code: bool = False
    offload: str = "none"
    weight_budget: int = 0
    tp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for name in (
            *("page_size", "max_num_seqs", "max_num_batched_tokens", "workspace_experts"),
            *("tp", "ep", "pp", "dp"),
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}", where="settings")
        if not 0.0 <= self.watermark < 1.0:
            raise InputError(f"watermark must be in [0, 1), got {self.watermark}", where="settings")
        if not 0.0 < self.mem_fraction <= 1.0:
            raise InputError(f"mem_fraction must be in (0, 1], got {self.mem_fraction}", where="settings")
        if self.offload not in OFFLOADS:
            raise InputError(f"no such place {self.offload!r}", where="--offload", hint=f"one of {', '.join(OFFLOADS)}")
        if self.expert_dtype not in EXPERT_DTYPES:
            known = ", ".join(EXPERT_DTYPES)
            raise InputError(f"no dtype {self.expert_dtype!r}", where="--expert-dtype", hint=f"one of {known}")
        for name in ("weight_budget", "relaid_bytes"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be 0 or more, got {getattr(self, name)}", where="settings")
        if self.runtime not in RUNTIMES:
            raise InputError(f"no runtime {self.runtime!r}", where="--runtime", hint=f"one of {', '.join(RUNTIMES)}")
