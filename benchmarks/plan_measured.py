"""Predicted against measured: plan models for this machine's GPU, run them in day0's runtime, compare line by line.

    python benchmarks/plan_measured.py recipe:qwen3-0.6b --context 8192
    python benchmarks/plan_measured.py recipe:kimi-k3 --layers 4 --offload disk --weight-budget 9000000000
    python benchmarks/plan_measured.py tiny:recipe:llama-3.1-8b tiny:recipe:kimi-k3 config.json --output results.md

A model is what `day0 plan` takes, of full size and all zeros (sparse files cost neither time nor disk); with "tiny:"
before it the shrunk checkpoint of random numbers that `day0 skeleton` writes.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import platform
import struct
import sys
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from day0.cli.serve_plan import CheckedPlan
from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import Layout
from day0.plan.plan import Planner
from day0.plan.settings import EngineSettings
from day0.plan.workload import make_workload
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.offload import LayerStore
from day0.runtime.skeleton import write_tiny
from day0.source.folder import read_folder
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

MIB = 2**20


def config_of(model: str, layers: int | None) -> dict[str, Any]:
    """The model's config, cut to its first layers."""
    config = copy.deepcopy(dict(resolve(model).config))
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


def run(engine: Engine, prompt: int, step: int) -> int:
    """Peak bytes beyond what is held, over requests of `prompt` tokens, enough of them for one step of `step`."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    params = SamplingParams(max_tokens=4, temperature=0.0)
    ids = [tuple(1 + (place + first) % 100 for place in range(prompt)) for first in range(-(-step // prompt))]
    engine.generate([Request(str(number), each, params) for number, each in enumerate(ids)])
    return torch.cuda.max_memory_allocated() - held


def write_model(model: str, layers: int | None, folder: Path) -> ModelFiles:
    """The model with numbers of some kind, in `folder`."""
    if model.startswith("tiny:"):
        write_tiny(resolve(model.removeprefix("tiny:")), folder, force=True)
    else:
        write_zeros(config_of(model, layers), folder)
    return read_folder(folder, model_id=model)


def compare(model: str, layers: int | None, demand: dict[str, Any], gpu: str) -> dict[str, tuple[int, int]]:
    """Planned and measured bytes of each line and of all of them.

    Overhead is what the process holds in the end beside all that the engine names: the driver's context, loaded
    kernels, a workspace of cuBLAS.
    """
    torch.zeros(1, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    with tempfile.TemporaryDirectory() as scratch:
        files = write_model(model, layers, Path(scratch))
        profile = read_profile(files)
        cluster = parse_cluster(f"{gpu}:1")
        cluster = replace(cluster, gpu=replace(cluster.gpu, memory_bytes=total))
        demand = demand | {"context": min(demand["context"], profile.max_position or demand["context"])}
        planner = Planner(profile, cluster, accounting_for("day0"), make_workload(profile, **demand))
        plan = planner.plan(Layout())
        assert plan.settings is not None, plan.violations
        settings = CheckedPlan(Path("plan.yaml"), files, planner, plan).settings()
        engine = load_engine(files, profile, EngineSettings(device="cuda", **settings))
        memory = engine.memory
        measured = {
            "weights": memory.weight_bytes,
            "workspace": memory.workspace_bytes + memory.expert_cache_bytes + memory.relaid_bytes,
            "state_pool": memory.state_bytes,
            "kv_pool": memory.kv_bytes,
        }
        store = engine.model.store
        gone = store.largest_layer if isinstance(store, LayerStore) else 0  # it comes and goes
        named = sum(measured.values()) - gone
        measured["activations"] = run(engine, demand["context"] - 8, plan.settings.max_batched_tokens)
        gc.collect()
        torch.cuda.empty_cache()
        outside = total - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
        measured["overhead"] = outside + torch.cuda.memory_allocated() - named
    lines = {name: (getattr(plan.ranks[0], name), nbytes) for name, nbytes in measured.items()}
    lines["all"] = (sum(planned for planned, _ in lines.values()), sum(got for _, got in lines.values()))
    return lines


def table(rows: dict[str, dict[str, tuple[int, int]]]) -> str:
    """MiB planned / measured; a line that both leave empty is "-"."""
    names = list(next(iter(rows.values())))
    text = [f"| model | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for model, lines in rows.items():
        cells = [
            f"{planned / MIB:,.1f} / {got / MIB:,.1f}" if planned or got else "-" for planned, got in lines.values()
        ]
        text.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--layers", type=int, help="only so many of the first layers of a model that is not tiny")
    parser.add_argument("--context", type=int, default=8192, help="at most the model's own")
    parser.add_argument("--offload", default="none")
    parser.add_argument("--weight-budget", type=int, default=0)
    parser.add_argument("--expert-cache-bytes", type=int, default=0)
    parser.add_argument("--gpu", default="h200", help="its figures other than memory")
    parser.add_argument("--output", type=Path, help="append the table to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU here to measure", file=sys.stderr)
        return 3
    demand = {name: getattr(arguments, name) for name in ("context", "offload", "weight_budget", "expert_cache_bytes")}
    rows = {model: compare(model, arguments.layers, demand, arguments.gpu) for model in arguments.models}
    asked = " ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in demand.items() if value not in (0, "none")
    )
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, {torch.cuda.get_device_name()}"
    text = f"{date.today()}, {versions}, {asked}, MiB planned / measured\n\n{table(rows)}\n\n"
    sys.stdout.write(text)
    if arguments.output is not None:
        with arguments.output.open("a") as stream:
            stream.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
