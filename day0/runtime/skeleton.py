"""Tiny random checkpoints of an architecture, every feature on: real tensor names, shapes, dtypes and files."""

from __future__ import annotations

import copy
import itertools
import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from day0.errors import CannotSay, InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.family import Family
from day0.profile.families.table import FAMILIES, find_family
from day0.profile.profile import ArchitectureProfile, RoutedExperts
from day0.profile.read import read_profile
from day0.profile.shrink import set_path, shrunk_config, text_section
from day0.profile.tensors import TensorSpec, expected_tensors
from day0.runtime.skeleton_folder import MARKER, skeleton_folder, write_json
from day0.runtime.skeleton_packed import packed_matrices_by_name, random_part
from day0.runtime.skeleton_tokenizer import IMAGE_KEYS, SPECIAL_TOKENS, VOCABULARY, write_tokenizer
from day0.source.model_files import ModelFiles
from day0.source.shards import INDEX_NAME, shard_names

LARGEST = 256 << 20
"""Bytes of a checkpoint that is still called tiny; a family without a table of small sizes is not shrunk."""

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def write_tiny(
    files: ModelFiles, out: Path, *, seed: int = 0, shards: int = 2, force: bool = False
) -> ArchitectureProfile:
    """Write a small random checkpoint of the architecture in `files` into the folder `out`; gives its profile.

    The same seed gives the same bytes. Raises InputError for a family that is not known, or where `out` holds
    something other than a skeleton, or a skeleton without `force`; CannotSay for a packing it cannot fill.
    """
    config = tiny_config(files)
    profile = read_profile(_as_config(files, config))
    if profile.quantization is not None and not profile.quantization.native:
        packed = "; ".join(map(str, profile.quantization.groups))
        raise CannotSay(
            f"a tiny checkpoint is not written in this packing ({packed})",
            where=files.id,
            hint="--scale full writes its headers; without the quantisation section the weights are plain",
        )
    size = sum(spec.nbytes for spec in expected_tensors(profile))
    if size > LARGEST:
        raise CannotSay(
            f"would take {size:,} bytes: the table of {profile.family} says too little of how to shrink it",
            where=files.id,
            hint="--scale full writes its headers alone; or shrink config.json by hand and name that",
        )
    with skeleton_folder(out, force=force) as folder:
        _write_folder(folder, files, config, profile, seed, shards)
    return profile


def _write_folder(
    folder: Path, files: ModelFiles, config: dict[str, Any], profile: ArchitectureProfile, seed: int, shards: int
) -> None:
    write_json(folder / MARKER, {"made_from": files.id, "scale": "tiny", "seed": seed})
    write_json(folder / "config.json", config)
    generation = {"eos_token_id": list(profile.eos_token_ids), "bos_token_id": profile.bos_token_id}
    write_json(folder / "generation_config.json", generation)
    for name, content in _tiny_extras(files).items():
        write_json(folder / name, content)
    write_tokenizer(folder, profile)
    _write_shards(folder, profile, seed, shards)


def tiny_config(files: ModelFiles) -> dict[str, Any]:
    """The config shrunk to a test size, with the skeleton's own small vocabulary."""
    family = _family_of(files)
    config = shrunk_config(files, family)
    text = text_section(config, family)
    for section in {id(config): config, id(text): text}.values():
        own = {key: section[key] for key in section if key.endswith(_TOKEN_KEYS)}
        section |= _token_ids(own) | {"eos_token_id": SPECIAL_TOKENS["eos_token_id"]}
    text["vocab_size"] = VOCABULARY
    return config


_TOKEN_KEYS = ("_token_id", "_token_index")


def _token_ids(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Ids for the control tokens that a config names; those that the tokenizer does not have follow on its last."""
    ids: dict[str, Any] = {}
    free = itertools.count(max(SPECIAL_TOKENS.values()) + 1)
    for key, token in theirs.items():
        if token is None:
            continue
        if key in IMAGE_KEYS:
            ids[key] = SPECIAL_TOKENS["media_placeholder_token_id"]
        else:
            ids[key] = SPECIAL_TOKENS[key] if key in SPECIAL_TOKENS else next(free)
    return ids


def _tiny_extras(files: ModelFiles) -> dict[str, Any]:
    """The JSON files that a skeleton takes over from its model, with limits to match its size."""
    shrunk = {}
    for name, values in _family_of(files).tiny_extras.items():
        if name in files.extras:
            shrunk[name] = copy.deepcopy(dict(files.extras[name]))
            for path, value in values.items():
                set_path(shrunk[name], path, value)
    return shrunk


def _family_of(files: ModelFiles) -> Family:
    config = ConfigReader(files.config, files.config_name)
    family = find_family(config.word("model_type", ""), config.words("architectures", ()))
    if family is None:
        known = ", ".join(FAMILIES)
        raise InputError("no family table explains this model", where=files.id, hint=f"known families: {known}")
    return family


def _as_config(files: ModelFiles, config: dict[str, Any]) -> ModelFiles:
    return ModelFiles(files.id, None, "config", None, config, "config.json", None, (), (), {})


def _write_shards(folder: Path, profile: ArchitectureProfile, seed: int, shards: int) -> None:
    """Write all tensors in order, in as many files as asked for where there are tensors enough."""
    generator = torch.Generator().manual_seed(seed)
    packed = packed_matrices_by_name(profile)
    tensors = {
        name: random_part(spec, packed[spec.name], generator)
        if spec.format
        else _routing_table(spec, profile, generator)
        if spec.dtype == "I64"
        else _random(spec, profile, generator)
        for spec in expected_tensors(profile)
        for name in spec.names()
    }
    total, filled = sum(tensor.nbytes for tensor in tensors.values()), 0
    parts: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        parts[filled * shards // total][name] = tensor  # the file that the tensor's first byte falls into
        filled += tensor.nbytes
    weight_map: dict[str, str] = {}
    for file_name, part in zip(shard_names(len(parts)), parts.values(), strict=True):
        _save(part, folder / file_name)
        weight_map |= dict.fromkeys(part, file_name)
    write_json(folder / INDEX_NAME, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:  # its Rust code tells of the disk in text only: "... (os error 28)"
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
    path.chmod(0o644)


def _routing_table(spec: TensorSpec, profile: ArchitectureProfile, generator: torch.Generator) -> torch.Tensor:
    """Different experts for every token id, [ids, top_k]."""
    assert spec.layer is not None and spec.path.endswith("router.table"), f"{spec.path} is another table of numbers"
    block = profile.layers[spec.layer].feed_forward
    assert isinstance(block, RoutedExperts)
    rows, top_k = spec.shape
    return torch.rand(rows, block.router.num_experts, generator=generator).argsort(dim=1)[:, :top_k].contiguous()


def _is_model_norm(spec: TensorSpec) -> bool:
    """Whether a norm is of the kind that the model's norms are; recurrent mixers have some of their own."""
    return spec.group == "norm" or spec.path.endswith(("q_norm.weight", "k_norm.weight"))


def _random(spec: TensorSpec, profile: ArchitectureProfile, generator: torch.Generator) -> torch.Tensor:
    """Values that leave no branch inert: norms near one, matrices that keep variance, decays of every speed."""
    shape, leaf = spec.shape, spec.path.rpartition(".")[2]
    noise = torch.randn(shape, generator=generator)
    if leaf == "A_log":
        values = torch.log(1.0 + 15.0 * torch.rand(shape, generator=generator))
        values[spec.parameters :] = 0.0
    elif leaf in ("dt_bias", "correction_bias", "bias"):
        values = noise * 0.1
    elif len(shape) == 1:
        values = noise * 0.1 + (0.0 if profile.norm_kind == "rms_plus_one" and _is_model_norm(spec) else 1.0)
    elif "conv" in spec.path:
        values = noise * 0.5
    elif leaf == "positions" or spec.path == "embed.weight":
        values = noise
    else:
        values = noise / math.sqrt(math.prod(shape[1:]))
    return values.to(_DTYPES[spec.dtype])
