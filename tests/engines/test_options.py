"""Options of `day0 serve` in other engines' words, held against the flags that those engines are known to take."""

from __future__ import annotations

import pytest

from day0.engines.flag_table import flag_table
from day0.engines.options import (
    SWITCHES,
    WORDS,
    drain_words,
    option_words,
    parser_flags,
    unplanned_launch,
    without_flags,
)
from day0.errors import InputError


@pytest.mark.parametrize("engine", WORDS)
def test_every_word_is_a_flag_of_the_newest_version(engine):
    patterns = [*WORDS[engine].values(), *(words for pair in SWITCHES[engine].values() for words in pair if words)]
    assert patterns
    said = [flag_table(engine).complaints(pattern, None) for pattern in patterns]
    assert not [words for complaints in said for words in complaints if "is not a flag" in words]


def test_options_become_the_engines_own_words():
    given = {"tool_call_parser": "hermes", "kv_dtype": "bf16", "prefix_caching": False, "tp": 2, "ep": 2}
    assert option_words("vllm", given) == (
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--kv-cache-dtype", "bfloat16",
        "--no-enable-prefix-caching", "--tensor-parallel-size", "2", "--enable-expert-parallel",
    )  # fmt: skip
    assert option_words("sglang", given) == (
        "--tool-call-parser", "hermes", "--kv-cache-dtype", "bf16", "--disable-radix-cache",
        "--tp-size", "2", "--ep-size", "2",
    )  # fmt: skip
    assert option_words("vllm", {"ep": 1, "reasoning_parser": "none"}) == ()
    with pytest.raises(InputError, match="no such option") as fault:
        option_words("transformers", {"tp": 2, "dtype": "bfloat16", "offload": "disk"})
    assert fault.value.where == "--tp, --offload"


def test_a_recipes_parsers_give_way_to_the_users():
    recipe = ("--reasoning-parser", "kimi_k2", "--enable-auto-tool-choice", "--tool-call-parser", "kimi_k2", "--seed=1")
    assert without_flags(recipe, parser_flags({"tool_call_parser": "hermes"})) == recipe[:2] + recipe[5:]
    assert without_flags(recipe, parser_flags({})) == recipe


def test_requests_are_finished_where_the_version_can():
    assert drain_words("vllm", "0.32.0+cpu", (), 60) == ("--shutdown-timeout", "60")
    assert drain_words("vllm", "0.11.0", (), 60) == drain_words("sglang", None, (), 60) == ()
    assert drain_words("vllm", None, ("--shutdown-timeout=5",), 60) == ()


def test_transformers_batches_where_there_is_a_device_for_it():
    def words(*given: str) -> tuple[str, ...]:
        return unplanned_launch("transformers", "org/m", None, "h", 9, given, None).argv[0]

    assert "--continuous-batching" in words() and "--continuous-batching" not in words("--device", "cpu")


def test_a_flag_is_held_against_the_record_where_there_is_one_for_the_version():
    launch = unplanned_launch("sglang", "org/m", "abc", "::1", 9, ("--tp-size", "2"), None)
    assert " ".join(launch.argv[0]) == (
        "python3 -m sglang.launch_server --model-path org/m --revision abc --host ::1 --port 9 --tp-size 2"
    )
    with pytest.raises(InputError, match="--tensor-size is not a flag of vllm"):
        unplanned_launch("vllm", "org/m", None, "h", 9, ("--tensor-size", "2"), "0.32.0+cpu")
    assert unplanned_launch("vllm", "org/m", None, "h", 9, ("--tensor-size", "2"), "99.0").argv
