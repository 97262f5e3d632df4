"""Fragments of logs as engines write them: each is explained, and by the right signature."""

from __future__ import annotations

import pytest

from day0.engines.failures import SIGNATURES, explain, last_error

LOGS = {
    "unknown flag": "vllm: error: unrecognized arguments: --no-such-flag 3",
    "unknown value": "launch_server.py: error: argument --tool-call-parser: invalid choice: 'x' (choose from 'a')",
    "unknown parser": "KeyError: 'invalid tool call parser: nosuch (chose from { apertus,dots })'",
    "unknown architecture": "ValueError: Model architectures ['NewForCausalLM'] are not supported for now. Supported",
    "port in use": "OSError: [Errno 98] Address already in use",
    "no room for the cache": "ValueError: To serve at least one request (4.00 GiB KV cache is needed, which is larger "
    "than the available KV cache memory (1.0 GiB)",
    "memory of others": "ValueError: Free memory on device cuda:0 (10.00/139.8 GiB) on startup is less than desired",
    "out of memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "missing package": "ModuleNotFoundError: No module named 'flashinfer'",
    "no chat template": "ValueError: As of transformers v4.44, default chat template is no longer allowed",
    "missing files": "OSError: org/m does not appear to have a file named config.json.",
    "remote code": "ValueError: org/m contains custom code; pass `trust_remote_code=True` to allow it",
}
ALSO = [
    ("unknown architecture", "has model type `newmodel` but Transformers does not recognize this", "newmodel"),
    ("missing package", "a `device_map` requires `accelerate`. You can install it with `pip", "accelerate"),
    ("out of memory", "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried", "memory"),
    ("unknown flag", "Error: No such option: --ports (Possible options: --port)", "--ports"),
]


def test_there_is_a_log_for_every_signature():
    assert {signature.name for signature in SIGNATURES} == set(LOGS)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_explained_with_the_next_step(name):
    found = explain(["INFO all well", LOGS[name], "RuntimeError: Engine core initialization failed."])
    assert found is not None and found.name == name and found.line == LOGS[name]
    assert found.hint and "{" not in found.message + found.hint


@pytest.mark.parametrize(("name", "line", "word"), ALSO)
def test_other_words_for_the_same(name, line, word):
    found = explain([line])
    assert found is not None and found.name == name and word in found.message


def test_what_nobody_knows_is_not_explained():
    lines = ["INFO fine", "KeyError: 'x'", "AssertionError: shapes", "(Worker) INFO bye"]
    assert explain(lines) is None and last_error(lines) == "AssertionError: shapes"
    assert last_error(["INFO"]) is None
    lines = ["ValidationError: 1 validation error for VllmConfig", "  Value error, world size (2) is too large", "INFO"]
    assert (
        last_error(lines)
        == "ValidationError: 1 validation error for VllmConfig Value error, world size (2) is too large"
    )


def test_the_most_telling_of_several_wins():
    assert explain([LOGS["out of memory"], LOGS["unknown flag"]]).name == "unknown flag"
