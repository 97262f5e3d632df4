"""Full-size checkpoints without weights: every file, name, shape and offset of a release, the data as holes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from day0.errors import CannotSay
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.runtime.skeleton_folder import MARKER, skeleton_folder, write_json
from day0.runtime.skeleton_tokenizer import released_ids, write_tokenizer
from day0.source.model_files import ModelFiles
from day0.source.sparse_shards import StoredTensor, usual_shards, write_sparse_checkpoint

_GUESSED = ("unknown-family", "quantization-not-read")
"""Findings of a profile whose stored tensors nobody can be sure of."""

_OWN_TOKENIZER = ("tokenizer_config.json",)
"""Not taken over: a skeleton has a tokenizer of its own."""


@dataclass(frozen=True, slots=True)
class FullSkeleton:
    """What was written: files, tensors, and the bytes that the tensors would take."""

    profile: ArchitectureProfile
    shards: int
    tensors: int
    weight_bytes: int


def write_full(files: ModelFiles, out: Path, *, shards: int | None = None, force: bool = False) -> FullSkeleton:
    """Write the checkpoint that the architecture in `files` asks for into the folder `out`, all weights zero.

    Without `shards`, as many files as the release has where that is known, else one for about every 5 GB. Raises
    CannotSay where the tensors are not known for sure, InputError for an `out` that holds anything but a skeleton, and
    EnvironmentFault where the file system has no sparse files.
    """
    profile = read_profile(files)
    for finding in profile.findings:
        if finding.code in _GUESSED:
            raise CannotSay(f"names and sizes of its tensors would be a guess: {finding.message}", where=files.id)
    tensors = [
        StoredTensor(name, spec.dtype, spec.shape) for spec in expected_tensors(profile) for name in spec.names()
    ]
    weight_bytes = sum(tensor.nbytes for tensor in tensors)
    count = shards or len(files.shards) or usual_shards(weight_bytes)
    with skeleton_folder(out, force=force) as folder:
        write_json(folder / MARKER, {"made_from": files.id, "scale": "full"})
        write_json(folder / "config.json", dict(files.config))
        generation = {"eos_token_id": list(profile.eos_token_ids), "bos_token_id": profile.bos_token_id}
        extras = {"generation_config.json": generation, **files.extras}
        for name, content in extras.items():
            if name not in _OWN_TOKENIZER:
                write_json(folder / name, dict(content))
        write_tokenizer(folder, profile, released_ids(profile))
        written = write_sparse_checkpoint(folder, tensors, count)
    return FullSkeleton(profile, written, len(tensors), weight_bytes)
