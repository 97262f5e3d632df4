"""Small checkpoints written byte by byte, each of which a test spoils in one way, and the inspection of them."""

from __future__ import annotations

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import pytest

from day0.cli.main import main
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.source.model_files import DTYPE_BITS, ModelFiles

# The faults of the runtime are plain modules beside these tests, which use small models of the runtime's tests.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runtime")]

INDEX = "model.safetensors.index.json"
GQA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
"""The sizes of a small decoder, in everybody's words."""
LATENT: dict[str, Any] = GQA | {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
    "attention_bias": False,
    "num_key_value_heads": 4,
}
QUANTIZED = {"quant_method": "fp8", "weight_block_size": [8, 8], "activation_scheme": "dynamic", "fmt": "e4m3"}
"""FP8 in blocks so small that the widths above do not fill the last ones."""
SMALL_TOWER = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
LLAMA = GQA | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def files_of(config: Mapping[str, Any]) -> ModelFiles:
    return ModelFiles("test/model", None, "config", None, config, "config.json", None, (), (), {})


@dataclass
class Checkpoint:
    """A folder to be: tensors as (dtype, shape, bytes) by name, the shard of each, other files by name.

    Norms hold ones, everything else bytes that differ from tensor to tensor.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)
    shard_of: dict[str, str] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, dtype: str, *shape: int, fill: int = 1) -> None:
        size = prod(shape) * DTYPE_BITS[dtype] // 8
        self.tensors[name] = (dtype, shape, bytes([fill % 256]) * size)
        self.shard_of.setdefault(name, "model.safetensors")

    def set_all(self, name: str, value: float) -> None:
        """Every number of a BF16 tensor."""
        dtype, shape, _ = self.tensors[name]
        self.tensors[name] = (dtype, shape, struct.pack("<f", value)[2:] * prod(shape))

    def take(self, *parts: str) -> None:
        """Take out the tensors whose names contain one of the parts."""
        for name in [name for name in self.tensors if any(part in name for part in parts)]:
            del self.tensors[name], self.shard_of[name]

    def split(self, count: int) -> None:
        """Deal the tensors out to `count` shards, which an index then names."""
        for place, name in enumerate(self.tensors):
            number = place * count // len(self.tensors) + 1
            self.shard_of[name] = f"model-{number:05d}-of-{count:05d}.safetensors"

    def write_beside(self, shard: str, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
        """A file of tensors that the checkpoint does not know of."""
        write_shard(self.folder / shard, tensors)

    def tokens(self, count: int) -> None:
        """Another tokenizer, of `count` ids."""
        self.files |= tokenizer_files(count)

    def write(self) -> Path:
        self.folder.mkdir(exist_ok=True)
        shards: dict[str, dict[str, tuple[str, tuple[int, ...], bytes]]] = defaultdict(dict)
        for name, tensor in self.tensors.items():
            shards[self.shard_of[name]][name] = tensor
        for shard, tensors in shards.items():
            write_shard(self.folder / shard, tensors)
        if shards.keys() - {"model.safetensors"}:
            total = sum(len(data) for _, _, data in self.tensors.values())
            self.files.setdefault(INDEX, {"metadata": {"total_size": total}, "weight_map": dict(self.shard_of)})
        for name, content in {"config.json": self.config, **self.files}.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder


def write_shard(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    header: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def tokenizer_files(count: int = 64) -> dict[str, Any]:
    """A tokenizer of `count` ids with three special tokens, a template, and how to end an answer."""
    special = {0: "<pad>", 1: "<s>", 2: "</s>"}
    vocabulary = {special.get(number, f"t{number}"): number for number in range(count)}
    added = [{"id": number, "content": text, "special": True} for number, text in special.items()]
    return {
        "tokenizer.json": {"version": "1.0", "added_tokens": added, "model": {"type": "BPE", "vocab": vocabulary}},
        "tokenizer_config.json": {
            "chat_template": "{{ messages }}",
            "added_tokens_decoder": {str(number): {"content": text} for number, text in special.items()},
        },
        "generation_config.json": {"eos_token_id": 2, "bos_token_id": 1},
    }


@pytest.fixture
def configs() -> Mapping[str, dict[str, Any]]:
    """Configs to start from, by a short name."""
    return {"llama": LLAMA, "latent": LATENT, "sizes": GQA, "fp8": QUANTIZED}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Checkpoint]:
    """`make(config)`: a sound checkpoint of that config, to be spoiled and then written."""

    def build(config: Mapping[str, Any] = LLAMA, **changes: Any) -> Checkpoint:
        full = {key: value for key, value in {**config, **changes}.items() if value is not ...}
        if full["model_type"] == "mistral3":  # its tower's defaults are those of a large one
            full.setdefault("vision_config", SMALL_TOWER)
        checkpoint = Checkpoint(tmp_path / "model", full, files=tokenizer_files())
        profile = read_profile(files_of(full))
        centre = 0.125 if profile.norm_kind == "rms_plus_one" else 1.0
        for place, spec in enumerate(expected_tensors(profile)):
            for name in spec.names():
                checkpoint.add(name, spec.dtype, *spec.shape, fill=place + 3)
                if spec.dtype == "BF16" and len(spec.shape) == 1 and "norm" in spec.path:
                    checkpoint.set_all(name, centre)
        return checkpoint

    return build


@dataclass(frozen=True)
class Inspection:
    """Exit status, document (empty where the command refused) and what was said on stderr."""

    status: int
    document: dict[str, Any]
    error: str

    @property
    def codes(self) -> set[str]:
        return {finding["code"] for finding in self.document["findings"]}

    @property
    def serious(self) -> set[str]:
        """Codes of errors and warnings."""
        return {finding["code"] for finding in self.document["findings"] if finding["severity"] != "note"}

    def finding(self, code: str) -> dict[str, Any]:
        return next(finding for finding in self.document["findings"] if finding["code"] == code)


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Inspection]:
    """Run `day0 inspect --json` as a script would."""

    def run(model: Path | Checkpoint, *options: str) -> Inspection:
        path = model.write() if isinstance(model, Checkpoint) else model
        capsys.readouterr()
        status = main(["inspect", str(path), "--json", "--device", "cpu", *options])
        captured = capsys.readouterr()
        return Inspection(status, json.loads(captured.out) if captured.out else {}, captured.err)

    return run
