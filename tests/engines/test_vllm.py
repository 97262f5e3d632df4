from __future__ import annotations

from typing import Any

import pytest

from day0.engines.flag_table import flag_table
from day0.engines.vllm import FLAGS, launch
from day0.errors import InputError
from day0.plan.recipe import LaunchFacts

from .conftest import flag_values


def test_every_flag_is_one_the_parser_knows() -> None:
    assert {flag.name for flag in FLAGS} <= set(flag_table("vllm").flags)
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)


def test_one_node(request_for: Any) -> None:
    request = request_for("kimi-k3", "b300:8", "vllm", tp=8, ep=8, demand={"kv_dtype": "fp8", "concurrency": 300})
    (argv,) = launch(request).argv
    assert argv[:3] == ("vllm", "serve", "org/model")
    assert flag_values(argv) == {
        "--tensor-parallel-size": "8",
        "--enable-expert-parallel": True,
        "--max-model-len": "65536",
        "--max-num-seqs": "1024",
        "--max-num-batched-tokens": "16384",
        "--gpu-memory-utilization": "0.9",
        "--kv-cache-dtype": "fp8",
        "--mm-encoder-tp-mode": "data",
        "--host": "0.0.0.0",
        "--port": "8000",
    }
    assert launch(request).worker is None


def test_a_tower_whose_heads_divide_is_cut(request_for: Any) -> None:
    cut = flag_values(launch(request_for("kimi-k3", "b300:8", "vllm", tp=4, dp=2, ep=8)).argv[0])
    assert "--mm-encoder-tp-mode" not in cut
    text = flag_values(launch(request_for("llama-3.1-8b", "h100:8", "vllm", tp=8, demand={"context": 8192})).argv[0])
    assert "--mm-encoder-tp-mode" not in text


def test_stages_over_two_nodes_are_one_engine_of_two_nodes(request_for: Any) -> None:
    made = launch(request_for("kimi-k3", "b200:8x2", "vllm", tp=8, pp=2))
    head, second = map(flag_values, made.argv)
    assert made.env["VLLM_PP_LAYER_PARTITION"] == "47,46"
    for flags, rank in ((head, "0"), (second, "1")):
        assert (flags["--nnodes"], flags["--node-rank"], flags["--master-addr"]) == ("2", rank, "${HEAD_ADDRESS}")
        assert flags["--pipeline-parallel-size"] == "2" and "--data-parallel-size" not in flags
    assert "--headless" not in head and second["--headless"] is True
    assert "--port" in head and "--port" not in second
    assert made.worker is not None and flag_values(made.worker)["--node-rank"] == "${NODE_RANK}"


def test_replicas_over_nodes_are_data_parallel_ranks(request_for: Any) -> None:
    made = launch(request_for("qwen3-30b-a3b", "h100:8x2", "vllm", tp=2, dp=8, ep=16, demand={"context": 8192}))
    head, second = map(flag_values, made.argv)
    assert (head["--data-parallel-size"], head["--data-parallel-size-local"]) == ("8", "4")
    assert "--data-parallel-start-rank" not in head and second["--data-parallel-start-rank"] == "4"
    assert "--nnodes" not in head and second["--headless"] is True
    assert made.worker is not None and flag_values(made.worker)["--data-parallel-start-rank"] == "$((NODE_RANK * 4))"


def test_replicas_wider_than_a_node_are_said_to_need_ray(request_for: Any) -> None:
    made = launch(request_for("kimi-k3", "b200:8x4", "vllm", tp=16, dp=2))
    assert made.argv == () and "Ray" in made.notes[0]


def test_a_recipe_adds_what_the_plan_does_not_decide(request_for: Any) -> None:
    facts = LaunchFacts(image="some/image", arguments=("--tool-call-parser", "kimi_k3"), env={"SWITCH": "1"})
    made = launch(request_for("kimi-k3", "b300:8", "vllm", facts=facts, tp=8, ep=8))
    assert made.argv[0][-2:] == ("--tool-call-parser", "kimi_k3")
    assert made.image == "some/image" and made.env == {"SWITCH": "1"}
    clashing = LaunchFacts(arguments=("--max-num-seqs=8",))
    with pytest.raises(InputError, match="--max-num-seqs"):
        launch(request_for("kimi-k3", "b300:8", "vllm", facts=clashing, tp=8, ep=8))
