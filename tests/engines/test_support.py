"""What installed engines say they know: transformers as it is here, SGLang's files read without being run."""

from __future__ import annotations

import sys

import pytest

from day0.engines.support import Support, ask_support, remarks
from day0.errors import EnvironmentFault, InputError

KNOWS = Support(("LlamaForCausalLM",), ("hermes", "kimi_k2"), ("qwen3",), ("llama", "newmodel"))


def test_transformers_is_asked_in_its_own_interpreter():
    support = ask_support("transformers", sys.executable)
    assert not support.fault and "LlamaForCausalLM" in (support.architectures or ())
    assert "llama" in (support.model_types or ()) and support.tool_parsers is None


def test_sglang_is_read_and_not_run(tmp_path):
    files = {
        "__init__.py": "raise SystemExit('imported')",
        "srt/models/a.py": "import torch_of_another_world\nEntryClass = [A, B]\n",
        "srt/models/deep/c.py": "EntryClass = C\n",
        "srt/function_call/parser_names.py": "TOOL_CALL_PARSER_NAMES = ['glm', 'beam']\n",
    }
    for name, text in files.items():
        path = tmp_path / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    support = ask_support("sglang", str(python))
    assert support == Support(("A", "B", "C"), ("beam", "glm"), None, None)


def test_an_engine_that_cannot_be_asked_is_a_remark_and_no_verdict(tmp_path):
    support = ask_support("sglang", sys.executable)
    assert support.fault
    assert "could not be asked" in remarks(support, "sglang", ["A"], "a")[0]


def test_what_is_known_needs_no_remark():
    assert remarks(KNOWS, "vllm", ["LlamaForCausalLM"], "llama", "hermes", "none") == ()
    assert "slower" in remarks(KNOWS, "vllm", ["NewForCausalLM"], "newmodel")[0]


def test_what_is_not_known_is_an_error():
    with pytest.raises(EnvironmentFault, match="does not know OtherForCausalLM"):
        remarks(KNOWS, "vllm", ["OtherForCausalLM"], "other")
    with pytest.raises(InputError, match="no parser 'kimi'") as fault:
        remarks(KNOWS, "vllm", ["LlamaForCausalLM"], "llama", "kimi")
    assert "kimi_k2" in fault.value.hint
    with pytest.raises(InputError, match="no parser 'think'"):
        remarks(KNOWS, "vllm", ["LlamaForCausalLM"], "llama", None, "think")
