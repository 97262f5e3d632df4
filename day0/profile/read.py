"""config.json -> ArchitectureProfile, through the family table that the config belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from day0.profile.config_reader import ConfigReader
from day0.profile.families.dialects import translate
from day0.profile.families.family import Family
from day0.profile.families.table import find_family, stored_like
from day0.profile.inert_keys import INERT_KEYS
from day0.profile.likeness import Likeness
from day0.profile.profile import ArchitectureProfile, LayerSpec, NoFeedForward, NoMixer, PlainResidual, Residual
from day0.profile.read_packing import settle_packing
from day0.profile.read_quant import read_quantization
from day0.profile.read_towers import read_towers
from day0.profile.unseen import read_unseen, unseen_finding
from day0.source.model_files import ModelFiles

_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64"}


def read_profile(files: ModelFiles) -> ArchitectureProfile:
    """The profile of a published model.

    Raises InputError naming file and field where a known family's config is incomplete or contradicts itself. An
    unknown family is no error: what fits a known one is read as that, else there are no layers; a finding says so.
    """
    reader, model_type, architectures = _open(files)
    family = find_family(model_type, architectures)
    if family is not None:
        return _read_as(family, files)
    profile, likeness = read_unseen(files, model_type, architectures, partial(_read_as, files=files))
    return profile or _unknown(reader, files, model_type, architectures, likeness)


def _open(files: ModelFiles) -> tuple[ConfigReader, str, tuple[str, ...]]:
    """The config to be read, in words the readers know; the model type and architectures it names."""
    translation = translate(files.config, files.config_name)
    if translation is None:
        reader = ConfigReader(files.config, files.config_name)
        model_type = reader.word("model_type", "")
    else:
        reader = ConfigReader(translation.values, files.config_name, original=translation.original)
        reader.ignore("model_type", *translation.inert)
        model_type = translation.model_type
    return reader, model_type, reader.words("architectures", ())


def _read_as(family: Family, files: ModelFiles) -> ArchitectureProfile:
    reader, model_type, architectures = _open(files)
    table = stored_like(family, files.tensors)
    return settle_packing(_read_family(table, reader, files, model_type, architectures), files.tensors)


def _read_family(
    family: Family, top: ConfigReader, files: ModelFiles, model_type: str, architectures: tuple[str, ...]
) -> ArchitectureProfile:
    text = _text_section(family, top)
    for reader in {id(top): top, id(text): text}.values():
        reader.ignore(*INERT_KEYS, *family.inert)
    if text is not top:
        text.ignore("model_type", "architectures")  # names of the section's own class; the family is the whole model's
    residual = family.read_residual(text)
    length_key = next((key for key in family.max_position_keys if text.has(key)), family.max_position_keys[0])
    layers = tuple(_read_layer(family, text, index, residual) for index in range(family.count_layers(text)))
    quantization = read_quantization(top, text, family, files.extras)
    towers = read_towers(family, top, text.integer("hidden_size"))
    return ArchitectureProfile(
        family=family.name,
        model_type=model_type,
        architectures=architectures,
        dtype=_read_dtype(top, text),
        hidden_size=text.integer("hidden_size"),
        vocab_size=text.integer("vocab_size"),
        norm_eps=text.number(family.norm_eps_key, family.norm_eps_default),
        tie_word_embeddings=_read_tie(family, top, text),
        max_position=text.optional_integer(length_key),
        max_position_field=text.prefix + length_key if text.has(length_key) else None,
        layers=layers,
        residual=residual,
        ends=family.read_ends(text),
        norm_kind=family.norm_kind,
        mtp=family.read_mtp(text),
        native=family.native,
        quantization=quantization.spec,
        vision=towers.vision,
        audio=towers.audio,
        bos_token_id=_token_id(top, text, "bos_token_id"),
        eos_token_ids=_eos_ids(top, text, files.extras),
        unused_config_keys=top.unused(),
        defaulted_config_keys=top.defaulted,
        findings=(*quantization.findings, *towers.findings),
    )


def _text_section(family: Family, top: ConfigReader) -> ConfigReader:
    if family.text_section is None or (family.flat_text and not top.has(family.text_section)):
        return top
    return top.required_section(family.text_section)


def _read_layer(family: Family, text: ConfigReader, index: int, residual: Residual) -> LayerSpec:
    """One layer; a branch that is not there has no norms."""
    mixer, feed_forward = family.read_mixer(text, index), family.read_feed_forward(text, index)
    absent = [
        name
        for name, missing in (("mixer", isinstance(mixer, NoMixer)), ("ffn", isinstance(feed_forward, NoFeedForward)))
        if missing
    ]
    norms = tuple(norm for norm in family.norms if norm.split("_")[0] not in absent)
    return family.finish_layer(text, LayerSpec(index, mixer, feed_forward, residual, norms))


def _read_tie(family: Family, top: ConfigReader, text: ConfigReader) -> bool:
    """Whether input and output tables are one; the whole model's word counts before its decoder's."""
    found = [reader.flag(key) for reader in (top, text) for key in family.tie_keys if reader.has(key)]
    return found[0] if found else text.flag(family.tie_keys[-1], family.tie_default)


def _read_dtype(top: ConfigReader, text: ConfigReader) -> str:
    """The checkpoint's main dtype in safetensors' spelling; transformers before 5 called the key torch_dtype."""
    known = _DTYPES | {f"torch.{name}": word for name, word in _DTYPES.items()}
    found = [r.choice(key, known) for r in (top, text) for key in ("dtype", "torch_dtype") if r.has(key)]
    return found[0] if found else top.choice("dtype", known, "bfloat16")


def _token_id(top: ConfigReader, text: ConfigReader, key: str) -> int | None:
    ours = text.optional_integer(key, minimum=0)
    outer = top.optional_integer(key, minimum=0)
    return outer if outer is not None else ours


def _eos_ids(top: ConfigReader, text: ConfigReader, extras: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
    """End-of-sequence ids; generation_config.json counts before the config, as in transformers' generate."""
    generation = ConfigReader(extras.get("generation_config.json", {}), "generation_config.json")
    found: tuple[int, ...] = ()
    for reader in (text, top, generation):
        if reader.has("eos_token_id"):
            value = reader.values["eos_token_id"]
            found = (
                reader.integers("eos_token_id")
                if isinstance(value, list)
                else (reader.integer("eos_token_id", minimum=0),)
            )
    return found


def _unknown(
    reader: ConfigReader,
    files: ModelFiles,
    model_type: str,
    architectures: tuple[str, ...],
    likeness: Likeness | None,
) -> ArchitectureProfile:
    """What can be said of a model that fits no family table: nothing about its layers."""
    text = next((s for key in ("text_config", "llm_config") if (s := reader.section(key)) is not None), reader)
    reader.ignore(*INERT_KEYS)
    return ArchitectureProfile(
        family=None,
        model_type=model_type,
        architectures=architectures,
        dtype=_read_dtype(reader, text),
        hidden_size=text.integer("hidden_size", 0, minimum=0),
        vocab_size=text.integer("vocab_size", 0, minimum=0),
        norm_eps=text.number("rms_norm_eps", 1e-6),
        tie_word_embeddings=text.flag("tie_word_embeddings", False),
        max_position=text.optional_integer("max_position_embeddings"),
        max_position_field=f"{text.prefix}max_position_embeddings" if text.has("max_position_embeddings") else None,
        layers=(),
        residual=PlainResidual(),
        unused_config_keys=reader.unused(),
        defaulted_config_keys=reader.defaulted,
        findings=(unseen_finding(files, model_type, likeness),),
        likeness=likeness,
    )
