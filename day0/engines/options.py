"""The options of `day0 serve` in the words of other engines, and an engine's command line where no plan makes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from day0.engines import sglang, upstream, vllm
from day0.engines.flag_table import flag_table
from day0.engines.launch import Launch
from day0.errors import InputError
from day0.plan.engine_version import version_numbers

Value = str | int | float | bool
VALUE = "{}"
"""Stands in the words of an option for what the user gave."""

WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        "served_model_name": ("--served-model-name", VALUE),
        "tool_call_parser": ("--enable-auto-tool-choice", "--tool-call-parser", VALUE),
        "reasoning_parser": ("--reasoning-parser", VALUE),
        "dtype": ("--dtype", VALUE),
        "kv_dtype": ("--kv-cache-dtype", VALUE),
        "max_model_len": ("--max-model-len", VALUE),
        "max_num_seqs": ("--max-num-seqs", VALUE),
        "max_num_batched_tokens": ("--max-num-batched-tokens", VALUE),
        "mem_fraction": ("--gpu-memory-utilization", VALUE),
        "kv_cache_bytes": ("--kv-cache-memory-bytes", VALUE),
        "tp": ("--tensor-parallel-size", VALUE),
        "pp": ("--pipeline-parallel-size", VALUE),
        "dp": ("--data-parallel-size", VALUE),
    },
    "sglang": {
        "served_model_name": ("--served-model-name", VALUE),
        "tool_call_parser": ("--tool-call-parser", VALUE),
        "reasoning_parser": ("--reasoning-parser", VALUE),
        "device": ("--device", VALUE),
        "dtype": ("--dtype", VALUE),
        "kv_dtype": ("--kv-cache-dtype", VALUE),
        "max_model_len": ("--context-length", VALUE),
        "max_num_seqs": ("--max-running-requests", VALUE),
        "max_num_batched_tokens": ("--chunked-prefill-size", VALUE),
        "mem_fraction": ("--mem-fraction-static", VALUE),
        "tp": ("--tp-size", VALUE),
        "ep": ("--ep-size", VALUE),
        "pp": ("--pp-size", VALUE),
        "dp": ("--dp-size", VALUE),
    },
    "transformers": {
        "device": ("--device", VALUE),
        "dtype": ("--dtype", VALUE),
    },
}
"""By engine and option: what stands for it on the engine's command line. What is missing the engine has no flag for."""

SWITCHES: Mapping[str, Mapping[str, tuple[tuple[str, ...] | None, tuple[str, ...]]]] = {
    "vllm": {
        "prefix_caching": (("--no-enable-prefix-caching",), ("--enable-prefix-caching",)),
        "trust_remote_code": (None, ("--trust-remote-code",)),
        "ep": ((), ("--enable-expert-parallel",)),
    },
    "sglang": {
        "prefix_caching": (("--disable-radix-cache",), ()),
        "trust_remote_code": (None, ("--trust-remote-code",)),
    },
    "transformers": {"trust_remote_code": (None, ("--trust-remote-code",))},
}
"""The same for options that an engine is told by a bare flag: off, then on. A degree is on where it is above 1."""

_KV_DTYPES: Mapping[str, Mapping[str, str]] = {"vllm": vllm.KV_DTYPES, "sglang": sglang.KV_DTYPES}
_STARTS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path"),
}
API_KEY_VARIABLES: Mapping[str, str] = {"vllm": "VLLM_API_KEY"}
"""The variable that an engine reads its key from: on a command line every user of the host can read it."""


def option_words(engine: str, given: Mapping[str, Value]) -> tuple[str, ...]:
    """The options that the user gave, as words for an engine; "none" for a parser is no parser.

    Raises InputError for an option that the engine has no flag for.
    """
    words: list[str] = []
    lacking: list[str] = []
    for name, value in given.items():
        if name.endswith("_parser") and value == "none":
            continue
        if name in SWITCHES[engine]:
            is_on = value if isinstance(value, bool) else value not in (1, "1")
            pattern = SWITCHES[engine][name][bool(is_on)]
        else:
            pattern = WORDS[engine].get(name)
        if pattern is None:
            lacking.append(f"--{name.replace('_', '-')}")
            continue
        if name == "kv_dtype":
            value = _KV_DTYPES[engine].get(str(value), value)
        words += [str(value) if word == VALUE else word for word in pattern]
    if lacking:
        hint = "leave it out; --engine-arg passes on what the engine itself knows"
        raise InputError(f"{engine} has no such option", where=", ".join(lacking), hint=hint)
    return tuple(words)


def drain_words(engine: str, version: str | None, words: Sequence[str], seconds: int) -> tuple[str, ...]:
    """What makes an engine finish requests on SIGTERM where it would cut them off; nothing if the user said otherwise.

    SGLang finishes them anyway, transformers has no word for it, and vLLM has one since 0.21.
    """
    flag = "--shutdown-timeout"
    if engine != "vllm" or flag in {word.partition("=")[0] for word in words}:
        return ()
    return () if flag_table(engine).complaints((flag,), version) else (flag, str(seconds))


def parser_flags(given: Mapping[str, Value]) -> tuple[str, ...]:
    """The flags of a recipe that the user's own choice of parsers replaces; both engines spell them alike."""
    flags = [f"--{name.replace('_', '-')}" for name in ("tool_call_parser", "reasoning_parser") if name in given]
    return (*flags, "--enable-auto-tool-choice") if "tool_call_parser" in given else tuple(flags)


def without_flags(words: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """`words` without these flags and the values that follow them."""
    kept: list[str] = []
    leaving = False
    for word in words:
        if word.startswith("--"):
            leaving = word.partition("=")[0] in flags
        if not leaving:
            kept.append(word)
    return tuple(kept)


def unplanned_launch(
    engine: str, model: str, revision: str | None, host: str, port: int, words: Sequence[str], version: str | None
) -> Launch:
    """One command line without a plan: the engine decides what the user left open.

    Raises InputError for a flag that this version of the engine does not take, as far as that is recorded.
    """
    if engine == "transformers":
        base = upstream.launch(model, revision, host, port, batching=not _is_on_cpu(words)).argv[0]
    else:
        which = ("--revision", revision) if revision is not None else ()
        base = (*_STARTS[engine], model, *which, "--host", host, "--port", str(port))
    table = flag_table(engine)
    is_recorded = version is None or version_numbers(version) in map(version_numbers, table.versions)
    if is_recorded and (complaints := table.complaints(words, version)):  # else its own parser alone knows
        raise InputError("; ".join(complaints), where=f"--engine {engine}")
    return Launch(((*base, *words),), port=port, checked=table.record(version))


def _is_on_cpu(words: Sequence[str]) -> bool:
    return ("--device", "cpu") in pairwise(words) or "--device=cpu" in words
