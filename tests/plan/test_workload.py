from __future__ import annotations

from dataclasses import replace

import pytest

from day0.errors import InputError
from day0.plan.workload import Workload, make_workload
from day0.profile.profile import ArchitectureProfile


def test_what_is_not_said_is_the_models_whole_context(kimi_k3: ArchitectureProfile) -> None:
    workload = make_workload(kimi_k3)
    assert (workload.context, workload.concurrency) == (1048576, 1)
    assert workload.prompt + workload.decode <= workload.context


@pytest.mark.parametrize("context", [1, 2, 3, 100, 5000])
def test_the_usual_request_shrinks_into_a_short_context(kimi_k3: ArchitectureProfile, context: int) -> None:
    if context == 1:
        with pytest.raises(InputError, match="more than --context 1"):
            make_workload(kimi_k3, context=context)
        return
    workload = make_workload(kimi_k3, context=context)
    assert workload.prompt >= 1 and workload.decode >= 1 and workload.prompt + workload.decode <= context


def test_a_context_beyond_the_model_names_the_field(kimi_k3: ArchitectureProfile) -> None:
    with pytest.raises(InputError, match="max_position_embeddings"):
        make_workload(kimi_k3, context=2_000_000)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"concurrency": 0}, "--concurrency"),
        ({"prompt": 900, "decode": 200}, "1100"),
        ({"kv_dtype": "int3"}, "int3"),
        ({"mem_fraction": 1.5}, "--mem-fraction"),
        ({"max_num_seqs": 0}, "--max-num-seqs"),
        ({"offload": "cloud"}, "--offload"),
        ({"weight_budget": 1}, "--weight-budget"),
        ({"expert_cache_bytes": -1}, "--expert-cache-bytes"),
    ],
)
def test_impossible_demands_are_refused(fields: dict[str, object], word: str) -> None:
    with pytest.raises(InputError) as caught:
        Workload(**{"context": 1000, "prompt": 100, "decode": 100, **fields})  # type: ignore[arg-type]
    assert word in str(caught.value)


def test_dtypes_are_spelt_as_the_engines_do(kimi_k3: ArchitectureProfile) -> None:
    assert make_workload(kimi_k3, kv_dtype="bf16").kv_dtype == "bfloat16"
    assert make_workload(kimi_k3, kv_dtype="fp8").kv_dtype == "fp8"


@pytest.mark.parametrize(("concurrency", "replicas", "held"), [(1, 1, 1), (16, 4, 4), (17, 4, 5), (1, 8, 1)])
def test_the_busiest_replica_decides(concurrency: int, replicas: int, held: int) -> None:
    assert Workload(100, concurrency, 50, 50).sequences(replicas) == held


@pytest.mark.parametrize("name", ["llama", "moe"])
def test_only_mxfp4_experts_pass_through_fp8(name: str, small: dict[str, ArchitectureProfile]) -> None:
    with pytest.raises(InputError, match="no MXFP4 experts") as caught:
        make_workload(small[name], expert_dtype="fp8")
    assert caught.value.where == "--expert-dtype"
    assert make_workload(small["kimi_k3"], expert_dtype="fp8").expert_dtype == "fp8"


def test_float16_does_not_hold_what_passes_through_fp8(small: dict[str, ArchitectureProfile]) -> None:
    with pytest.raises(InputError, match="float16"):
        make_workload(replace(small["kimi_k3"], dtype="F16"), expert_dtype="fp8")
