"""What transformers knows of a model before any weight is read: its configuration, and the class that runs it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from day0.errors import CannotSay, Day0Error
from day0.profile.profile import ArchitectureProfile
from day0.source.model_files import ModelFiles

REMOTE_CODE_OPTION = "--trust-remote-code"

_FAULTS = (
    *(OSError, ImportError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, ArithmeticError),
    *(AssertionError, NameError, SyntaxError),
)
"""What a definition raises that cannot be read, loaded or run."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A model's definition in transformers: its configuration, the auto class that loads it, and whose code it is.

    `remote` says that the code comes from the model's own repository.
    """

    config: Any
    auto: Any
    remote: bool


def find_definition(files: ModelFiles, *, trust_remote_code: bool) -> Definition:
    """The definition that would run these files.

    Raises CannotSay where transformers has none, or where there is only the repository's own code and the user has
    not allowed it to run.
    """
    if files.folder is None:
        raise CannotSay("transformers reads models from a folder, and this one has none", where=files.id)
    _check_known(files, trust_remote_code)
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM

    own_code = files.config.get("auto_map") if trust_remote_code else None
    remote = own_code if isinstance(own_code, dict) else {}
    with told_as("transformers does not read this configuration", files.id):
        config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=trust_remote_code)
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM):
        if auto.__name__ in remote or type(config) in auto._model_mapping:
            return Definition(config, auto, bool(remote))
    raise CannotSay(f"transformers has no language model for {type(config).__name__}", where=files.id)


def _check_known(files: ModelFiles, trust_remote_code: bool) -> None:
    from transformers import __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type, has_code = files.config.get("model_type"), "auto_map" in files.config
    if model_type in CONFIG_MAPPING or (has_code and trust_remote_code):
        return
    if has_code:
        raise CannotSay(
            f"model type {model_type!r} comes with code of its own, which is not run",
            where=files.id,
            hint=f"{REMOTE_CODE_OPTION} runs it, with whatever it does to this machine",
        )
    raise CannotSay(f"transformers {__version__} has no definition of model type {model_type!r}", where=files.id)


def completed(profile: ArchitectureProfile, files: ModelFiles, definition: Definition) -> ArchitectureProfile:
    """The profile of a model that no family explains, with sizes, context and end tokens by transformers' word.

    A profile of a known family stays as it is.
    """
    if profile.family is not None:
        return profile
    config = definition.config
    with told_as("the configuration lacks what every language model has", files.id):
        text = config.get_text_config(decoder=True)
        vocab_size, hidden_size = int(text.vocab_size), int(text.hidden_size)
    try:
        longest = text.max_position_embeddings
    except AttributeError:  # nothing limits the length of a purely recurrent model
        longest = None
    generation = files.extras.get("generation_config.json", {})
    ends = next((end for end in (generation.get("eos_token_id"), config.eos_token_id) if end is not None), ())
    return replace(
        profile,
        vocab_size=profile.vocab_size or vocab_size,
        hidden_size=profile.hidden_size or hidden_size,
        max_position=profile.max_position or (longest if isinstance(longest, int) else None),
        eos_token_ids=tuple(ends) if isinstance(ends, (list, tuple)) else (int(ends),),
    )


@contextmanager
def told_as(saying: str, where: str, hint: str = "") -> Iterator[None]:
    """Raise CannotSay with the first line of what transformers, or a repository's own code, raises inside."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as fault:
        # A validator of a configuration wraps what was wrong in a type of its own.
        wrong = fault if isinstance(fault, _FAULTS) else fault.__cause__
        if isinstance(wrong, _FAULTS) and not isinstance(fault, Day0Error):
            text = " ".join(str(wrong).split())[:300]
            raise CannotSay(f"{saying}: {type(wrong).__name__}: {text}", where=where, hint=hint) from fault
        raise
