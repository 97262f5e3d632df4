from __future__ import annotations

from typing import Any

from day0.engines.flag_table import flag_table
from day0.engines.sglang import FLAGS, launch

from .conftest import flag_values


def test_every_flag_is_one_the_parser_knows() -> None:
    assert {flag.name for flag in FLAGS} <= set(flag_table("sglang").flags)
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)


def test_dp_attention_has_a_size_of_its_own_in_new_versions(request_for: Any) -> None:
    for version, expected in (
        (None, {"--attn-dp-size": "8"}),
        ("0.5.23", {"--attn-dp-size": "8"}),
        ("0.5.9", {"--dp-size": "8", "--enable-dp-attention": True}),
    ):
        (argv,) = launch(request_for("kimi-k3", "b300:8", "sglang", version, tp=8, dp=8, ep=8)).argv
        flags = flag_values(argv)
        assert {name: flags[name] for name in flags if "dp" in name} == expected
        assert (flags["--tp-size"], flags["--ep-size"]) == ("8", "8")
        assert flags["--max-running-requests"] == str(8 * 256), "counted over all replicas of one server"


def test_whole_replicas_are_dp(request_for: Any) -> None:
    (argv,) = launch(request_for("llama-3.1-8b", "h100:8", "sglang", tp=2, dp=4, demand={"context": 8192})).argv
    flags = flag_values(argv)
    assert (flags["--tp-size"], flags["--dp-size"]) == ("2", "4") and "--attn-dp-size" not in flags
    assert argv[:5] == ("python3", "-m", "sglang.launch_server", "--model-path", "org/model")


def test_nodes_meet_at_the_head(request_for: Any) -> None:
    made = launch(request_for("kimi-k3", "b200:8x2", "sglang", tp=8, pp=2, demand={"kv_dtype": "fp8"}))
    head, second = map(flag_values, made.argv)
    assert made.env["SGLANG_PP_LAYER_PARTITION"].count(",") == 1
    assert (head["--node-rank"], second["--node-rank"]) == ("0", "1")
    assert head["--dist-init-addr"] == second["--dist-init-addr"] == "${HEAD_ADDRESS}:20000"
    assert head["--kv-cache-dtype"] == "fp8_e4m3"


def test_states_are_asked_for_by_number_only_where_the_share_would_not_do(request_for: Any) -> None:
    (usual,) = launch(request_for("kimi-k3", "b300:8", "sglang", tp=8, ep=8)).argv
    assert "--max-mamba-cache-size" not in usual
    demand = {"context": 2048, "concurrency": 300}
    (many,) = launch(request_for("kimi-k3", "b300:8", "sglang", tp=8, ep=8, demand=demand)).argv
    assert flag_values(many)["--max-mamba-cache-size"] == "900"


def test_the_fraction_of_the_plan_is_passed_on(request_for: Any) -> None:
    request = request_for("llama-3.1-8b", "h100:1", "sglang", demand={"context": 8192})
    (argv,) = launch(request).argv
    assert flag_values(argv)["--mem-fraction-static"] == str(request.plan.settings.mem_fraction)


def test_replicas_over_nodes_are_several_servers(request_for: Any) -> None:
    """Four replicas on two nodes are two servers of two; replicas of two nodes are a server each, with its own head."""
    made = launch(request_for("llama-3.1-8b", "h100:8x2", "sglang", tp=4, dp=4, demand={"context": 8192}))
    (argv,) = made.argv
    flags = flag_values(argv)
    assert made.servers == 2 and "router" in made.notes[-1]
    assert (flags["--tp-size"], flags["--dp-size"], flags["--port"]) == ("4", "2", "8000") and "--nnodes" not in flags
    made = launch(request_for("deepseek-r1", "h100:8x4", "sglang", tp=8, pp=2, dp=2))
    head, second = map(flag_values, made.argv)
    assert made.servers == 2 and (head["--nnodes"], second["--node-rank"]) == ("2", "1") and "--dp-size" not in head
    uneven = launch(request_for("deepseek-r1", "gb200:4x3", "sglang", tp=2, pp=3, dp=2))
    assert uneven.argv == () and "evenly" in uneven.notes[0]
