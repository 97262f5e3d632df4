"""A local model folder, or a bare config.json, as `ModelFiles`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from day0.errors import Finding, InputError
from day0.source.json_text import MAX_JSON_BYTES, JsonObject, parse_object
from day0.source.model_files import ModelFiles, SourceKind
from day0.source.safetensors_header import read_header
from day0.source.shards import INDEX_NAME, Checkpoint, HeaderReader, ShardIndex, parse_index, read_checkpoint
from day0.source.tokenizer_file import damaged_files

CONFIG_NAME = "config.json"
EXTRA_NAMES = (
    "generation_config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "hf_quant_config.json",
)
"""Small files beside the config that the rooms after this one read."""

VENDOR_CONFIG_NAME = "params.json"


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The parsed JSON of a model folder."""

    config: JsonObject
    extras: Mapping[str, Mapping[str, Any]]
    index: ShardIndex | None
    findings: tuple[Finding, ...]


def read_folder(folder: Path, *, model_id: str) -> ModelFiles:
    """Read configuration and tensor headers of a model folder."""
    names = list_names(folder)
    small = read_small_files(folder, names)
    stored = set(names)
    if small.index is not None:  # an index may name shards in subfolders
        stored |= {shard for shard in small.index.shards if (folder / shard).is_file()}
    checkpoint = read_checkpoint(small.index, stored, local_headers(folder), where=str(folder))
    files = join_files(
        small, checkpoint, model_id=model_id, revision=None, source="folder", folder=folder, names=sorted(stored)
    )
    damaged = tuple(damaged_files(folder, names, read=(CONFIG_NAME, INDEX_NAME, *EXTRA_NAMES)))
    return replace(files, findings=files.findings + _link_findings(folder, checkpoint.shards) + damaged)


def join_files(
    small: SmallFiles,
    checkpoint: Checkpoint,
    *,
    model_id: str,
    revision: str | None,
    source: SourceKind,
    folder: Path,
    names: Sequence[str],
) -> ModelFiles:
    """Put together what the JSON files and the headers of one model say."""
    return ModelFiles(
        id=model_id,
        revision=revision,
        source=source,
        folder=folder,
        config=small.config.value,
        config_name=CONFIG_NAME,
        tensors=checkpoint.tensors,
        shards=checkpoint.shards,
        file_names=tuple(names),
        extras=small.extras,
        findings=small.findings + checkpoint.findings,
    )


def read_config_file(path: Path, *, model_id: str) -> ModelFiles:
    """Read a config.json by itself: an architecture without weights."""
    if path.suffix != ".json":
        raise InputError(
            "is neither a model folder nor a config.json",
            where=str(path),
            hint="give the folder that holds config.json and the *.safetensors files",
        )
    if path.name == VENDOR_CONFIG_NAME:
        raise _vendor_config(path)
    config = parse_object(_read_json(path), where=str(path), name=path.name)
    return ModelFiles(
        id=model_id,
        revision=None,
        source="config",
        folder=path.parent,
        config=config.value,
        config_name=path.name,
        tensors=None,
        shards=(),
        file_names=(path.name,),
        extras={},
        findings=config.findings,
    )


def read_small_files(folder: Path, names: Sequence[str]) -> SmallFiles:
    """Parse config, index and extras; of the extras a broken one is a finding, the model can be read without it."""
    if CONFIG_NAME not in names:
        raise no_config(str(folder), names)
    config_path = folder / CONFIG_NAME
    config = parse_object(_read_json(config_path), where=str(config_path), name=CONFIG_NAME)
    index = None
    if INDEX_NAME in names:
        index = parse_index(_read_json(folder / INDEX_NAME), where=str(folder / INDEX_NAME))
    extras: dict[str, Mapping[str, Any]] = {}
    findings = list(config.findings)
    for name in EXTRA_NAMES:
        if name not in names:
            continue
        try:
            parsed = parse_object(_read_json(folder / name), where=name, name=name)
        except InputError as error:
            where = error.where or name
            findings.append(Finding("unreadable-file", "warning", where, error.message, error.hint))
        else:
            extras[name] = parsed.value
            findings.extend(parsed.findings)
    return SmallFiles(config, extras, index, tuple(findings))


def no_config(where: str, names: Sequence[str]) -> InputError:
    """What to say of a folder or repository without a config.json."""
    if VENDOR_CONFIG_NAME in names:
        return _vendor_config(Path(where))
    hint = "a model folder holds config.json beside its *.safetensors files"
    gguf = [name for name in names if name.endswith(".gguf")]
    if gguf:
        hint = f"{gguf[0]} is GGUF; day0 reads the Hugging Face layout"
    return InputError(f"has no {CONFIG_NAME}", where=where, hint=hint)


def _vendor_config(path: Path) -> InputError:
    return InputError(
        f"describes the model by {VENDOR_CONFIG_NAME}, the vendor's own format, which day0 does not read",
        where=str(path),
        hint="use the Hugging Face version of the model (with a config.json)",
    )


def local_headers(folder: Path) -> HeaderReader:
    """A header reader for shards that lie in `folder`."""
    return lambda shards: ((shard, read_header(folder / shard, shard=shard)) for shard in shards)


def list_names(folder: Path) -> tuple[str, ...]:
    """The files directly in `folder`, sorted."""
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_file()))
    except OSError as error:
        raise InputError(f"cannot be listed: {error.strerror or error}", where=str(folder)) from None


def _read_json(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError("is not a file" if path.exists() else "no such file", where=str(path))
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise InputError(f"has {size:,} bytes, too many for a JSON file of a model", where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def _link_findings(folder: Path, shards: Sequence[str]) -> tuple[Finding, ...]:
    """Shards that another folder shares: an edit there changes this model (day0 itself never writes to one)."""
    shared = [shard for shard in shards if (folder / shard).stat().st_nlink > 1]
    if not shared:
        return ()
    message = f"{len(shared)} shards are hard-linked: whoever edits the other name in place changes this model too"
    return (Finding("hard-linked-shards", "note", shared[0], message),)
