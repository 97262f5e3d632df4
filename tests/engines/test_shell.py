from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.engines.shell import is_open, shell_line


@given(
    st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12), max_size=6)
)
def test_a_shell_reads_a_line_back_as_its_words(words: list[str]) -> None:
    if any(map(is_open, words)):
        return
    printed = subprocess.run(
        ["sh", "-c", "printf '<%s\\0' " + shell_line(["end", *words])], capture_output=True, check=True
    )
    assert printed.stdout.decode() == "".join(f"<{word}\0" for word in ["end", *words])


@pytest.mark.parametrize("word", ["${HEAD_ADDRESS}", "${HEAD_ADDRESS}:20000", "${NODE_RANK}", "$((NODE_RANK * 4))"])
def test_variables_of_a_launch_are_left_for_the_shell(word: str) -> None:
    assert is_open(word) and shell_line([word]) == f'"{word}"'


@pytest.mark.parametrize("word", ["$HOME", "${HEAD_ADDRESS}x", "$(ls)", "$((NODE_RANK * 4))$(ls)", "${NODE_RANK:-1}"])
def test_nothing_else_is(word: str) -> None:
    assert not is_open(word) and shell_line([word]) == shlex.quote(word)


def test_a_flag_and_its_value_share_a_line() -> None:
    assert shell_line(["run", "it", "--a", "1", "--b"]) == "run it \\\n  --a 1 \\\n  --b"
