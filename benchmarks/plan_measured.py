"""Predicted against measured: plan a recipe for this machine's GPU, run it in day0's runtime, compare line by line.

    python benchmarks/plan_measured.py qwen3-0.6b --context 8192
    python benchmarks/plan_measured.py kimi-k3 --layers 4 --context 8192

The checkpoint is full-size and all zeros (sparse files), so it costs neither time nor disk to make.
"""

from __future__ import annotations

import argparse
import copy
import json
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import Layout
from day0.plan.plan import Plan, Planner
from day0.plan.settings import EngineSettings
from day0.plan.workload import make_workload
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.source.folder import read_folder
from day0.source.resolve import resolve

GIB = 2**30


def config_of(recipe: str, layers: int | None) -> dict[str, Any]:
    """The recipe's config, cut to its first layers."""
    config = copy.deepcopy(dict(resolve(f"recipe:{recipe}").config))
    if layers is not None:
        text = config.get("text_config", config)
        text["num_hidden_layers"] = layers
        linear = text.get("linear_attn_config", {})
        for name in ("kda_layers", "full_attn_layers"):
            if name in linear:
                linear[name] = [layer for layer in linear[name] if layer <= layers]
    return config


def write_zeros(config: dict[str, Any], folder: Path) -> None:
    """A folder with every tensor the config asks for, one sparse shard per layer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    profile = read_profile(replace(resolve("recipe:qwen3-0.6b"), config=config))
    shards: dict[str, dict[str, Any]] = {}
    for spec in expected_tensors(profile):
        shard = shards.setdefault(f"layer-{'outside' if spec.layer is None else spec.layer}.safetensors", {})
        size = spec.nbytes // spec.count
        for name in spec.names():
            end = max((entry["data_offsets"][1] for entry in [*shard.values()][-1:]), default=0)
            shard[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [end, end + size]}
    weight_map: dict[str, str] = {}
    for file_name, header in shards.items():
        text = json.dumps(header).encode()
        length = max(entry["data_offsets"][1] for entry in header.values())
        with (folder / file_name).open("wb") as stream:
            stream.write(struct.pack("<Q", len(text)) + text)
            stream.truncate(8 + len(text) + length)
        weight_map |= dict.fromkeys(header, file_name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def run(engine: Engine, prompt: int) -> int:
    """Peak bytes beyond what is held, over one request of `prompt` tokens."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    params = SamplingParams(max_tokens=4, temperature=0.0)
    engine.generate([Request("measured", tuple(range(10, 10 + prompt)), params)])
    return torch.cuda.max_memory_allocated() - held


def compare(recipe: str, layers: int | None, context: int, gpu: str) -> dict[str, Any]:
    torch.zeros(1, device="cuda")
    free, total = torch.cuda.mem_get_info()
    with tempfile.TemporaryDirectory() as scratch:
        write_zeros(config_of(recipe, layers), Path(scratch))
        files = read_folder(Path(scratch), model_id=recipe)
        profile = read_profile(files)
        cluster = parse_cluster(f"{gpu}:1")
        cluster = replace(cluster, gpu=replace(cluster.gpu, memory_bytes=total))
        planner = Planner(profile, cluster, accounting_for("day0"), make_workload(profile, context=context))
        plan = planner.plan(Layout())
        assert plan.settings is not None, plan.violations
        settings = EngineSettings(
            max_model_len=context,
            max_num_seqs=plan.settings.max_num_seqs,
            max_num_batched_tokens=plan.settings.max_batched_tokens,
            mem_fraction=plan.settings.mem_fraction,
        )
        engine = load_engine(files, profile, settings)
        measured = {
            "overhead": total - free,
            "weights": engine.memory.weight_bytes,
            "workspace": engine.memory.workspace_bytes,
            "state_pool": engine.memory.state_bytes,
            "kv_pool": engine.memory.kv_bytes,
            "activations": run(engine, context - 8),
        }
    return {"recipe": recipe, "layers": layers, "context": context, "total": total, **lines(plan, measured)}


def lines(plan: Plan, measured: dict[str, int]) -> dict[str, Any]:
    planned = {name: getattr(plan.ranks[0], name) for name in measured}
    return {
        "max_batched_tokens": plan.settings.max_batched_tokens if plan.settings else None,
        "lines": {
            name: {"planned_gib": round(planned[name] / GIB, 3), "measured_gib": round(measured[name] / GIB, 3)}
            for name in measured
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--gpu", default="h200", help="its figures other than memory")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU here to measure", file=sys.stderr)
        return 3
    print(json.dumps(compare(arguments.recipe, arguments.layers, arguments.context, arguments.gpu), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
