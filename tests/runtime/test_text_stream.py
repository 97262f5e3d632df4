"""TextStream against decoding everything at once: pieces, half characters, stop strings, and what a token costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import BASE, CONFIG, byte_fallback_folder, byte_level_folder, write_folder
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models

from day0.errors import InputError
from day0.runtime.tokenizer import TextStream, Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(byte_level_folder(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(byte_fallback_folder(tmp_path_factory.mktemp("fallback")))


def symbols_of(data: bytes) -> list[str]:
    """How a byte-level vocabulary spells bytes: printable ones as themselves, the others from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in data]


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """Ids of the tokens of single bytes."""
    ids: list[int] = tokenizer._tokenizer.convert_tokens_to_ids(symbols_of(data))
    return ids


def expected(text: str, stop: Sequence[str]) -> str:
    """`text` before the stop string that ends first, of those the longest; by trying every place."""
    for end in range(1, len(text) + 1):
        for word in sorted(stop, key=len, reverse=True):
            if text[:end].endswith(word):
                return text[: end - len(word)]
    return text


def stream_all(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> tuple[TextStream, list[str]]:
    """Pieces of a stream over all ids; checks on the way that `text` keeps up and nothing follows a stop."""
    stream, pieces = TextStream(tokenizer, stop), []
    for token in ids:
        before = stream.stopped
        pieces.append(stream.push(token))
        assert not (before and pieces[-1])
        assert stream.text == "".join(pieces)
    pieces.append(stream.finish())
    assert stream.finish() == ""
    return stream, pieces


# Ids past the vocabulary are among them: heads are often padded, and a random model samples those rows too.
any_ids = st.lists(st.integers(0, BASE + 20), max_size=60)
# Few different tokens, so that runs of noise and of control tokens happen.
noise_ids = st.lists(st.sampled_from([*range(90, 260, 17), BASE, BASE + 1, BASE + 15]), max_size=80)
short_stops = st.lists(st.text(alphabet="at e.\ufffd😀é", min_size=1, max_size=4), max_size=4)


class CountingTokenizer(Tokenizer):
    """Counts the ids that it decodes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer._tokenizer)
        self.decoded = 0

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        self.decoded += len(ids)
        return super().decode(ids, skip_special_tokens=skip_special_tokens)


def stream_all_quick(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(token) for token in ids), stream.finish()]


class TestTextStream:
    @given(ids=st.one_of(any_ids, noise_ids))
    @settings(max_examples=300, deadline=None)
    def test_pieces_join_to_the_whole(self, tokenizer: Tokenizer, ids: list[int]) -> None:
        stream, pieces = stream_all(tokenizer, ids)
        assert "".join(pieces) == tokenizer.decode(ids)
        assert not stream.stopped

    @given(ids=st.one_of(any_ids, noise_ids), stop=short_stops)
    @settings(max_examples=300, deadline=None)
    def test_cut_before_the_first_stop(self, tokenizer: Tokenizer, ids: list[int], stop: list[str]) -> None:
        whole = tokenizer.decode(ids)
        stream, pieces = stream_all(tokenizer, ids, stop)
        assert "".join(pieces) == expected(whole, stop)
        assert stream.stopped == any(word in whole for word in stop)

    @given(data=st.data(), text=st.text(min_size=2, max_size=40))
    @settings(max_examples=200, deadline=None)
    def test_stop_strings_out_of_the_text(self, tokenizer: Tokenizer, data: st.DataObject, text: str) -> None:
        start = data.draw(st.integers(0, len(text) - 1))
        stop = [text[start : start + data.draw(st.integers(1, 6))], text[start : start + 2] + "never"]
        stream, pieces = stream_all(tokenizer, tokenizer.encode(text), stop)
        assert "".join(pieces) == expected(text, stop)
        assert stream.stopped

    @given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=40))
    @settings(max_examples=200, deadline=None)
    def test_nothing_is_held_longer_than_it_must(self, tokenizer: Tokenizer, text: str) -> None:
        stream, ids = TextStream(tokenizer), tokenizer.encode(text)
        for count, token in enumerate(ids, 1):
            stream.push(token)
            assert stream.text == tokenizer.decode(ids[:count]).rstrip("\ufffd")

    @given(text=st.text(alphabet="abé漢😀 \n", max_size=40), stop=short_stops)
    @settings(max_examples=300, deadline=None)
    def test_sentencepiece_spaces_and_byte_tokens(self, fallback: Tokenizer, text: str, stop: list[str]) -> None:
        ids = fallback.encode(text)
        whole = fallback.decode(ids)
        assert whole == text
        assert "".join(stream_all(fallback, ids, stop)[1]) == expected(whole, stop)

    @given(ids=st.lists(st.sampled_from([0, 1, *range(258, 270), 500]), max_size=40))
    @settings(max_examples=200, deadline=None)
    def test_sentencepiece_tokens_in_any_order(self, fallback: Tokenizer, ids: list[int]) -> None:
        assert "".join(stream_all(fallback, ids)[1]) == fallback.decode(ids)

    def test_half_a_character_waits(self, tokenizer: Tokenizer) -> None:
        stream, ids = TextStream(tokenizer), tokenizer.encode("x🦜")
        assert len(ids) == 4, "three tokens for the four bytes of the bird"
        assert [stream.push(token) for token in ids] == ["x", "", "", "🦜"]

    @pytest.mark.parametrize("noise", range(70))
    def test_a_character_after_noise(self, tokenizer: Tokenizer, noise: int) -> None:
        ids = [*byte_ids(tokenizer, b"\xff" * noise), *byte_ids(tokenizer, "🦜".encode())]
        assert "".join(stream_all(tokenizer, ids)[1]) == tokenizer.decode(ids) == "\ufffd" * noise + "🦜"

    def test_tokens_that_always_end_inside_a_character(self, tmp_path: Path) -> None:
        """Their text comes out all the same, a character late, and the cost stays level."""
        symbols = dict(zip(range(256), symbols_of(bytes(range(256))), strict=True))
        inner = "".join(symbols[byte] for byte in (*"🦜".encode()[1:], "🦜".encode()[0]))
        vocabulary = {**{symbol: byte for byte, symbol in symbols.items()}, inner: 256}
        rust = RustTokenizer(models.BPE(vocab=vocabulary, merges=[]))
        rust.decoder = decoders.ByteLevel()
        counting = CountingTokenizer(Tokenizer.from_folder(write_folder(tmp_path, rust, CONFIG)))
        stream = TextStream(counting)
        pieces = [stream.push(token) for token in (0xF0, *[256] * 500)]
        assert pieces == ["", *["🦜"] * 500]
        assert stream.finish() == "\ufffd"
        assert counting.decoded < 50 * len(pieces)

    @pytest.mark.parametrize("text", ["😀" * 50, "漢字 😀 " * 30, "  " + "a " * 50])
    def test_long_runs_of_byte_tokens(self, fallback: Tokenizer, text: str) -> None:
        """A run is noise to the decoder while its last character is incomplete, however long it is."""
        assert "".join(stream_all(fallback, fallback.encode(text))[1]) == text

    def test_finish_shows_the_half_character(self, tokenizer: Tokenizer) -> None:
        stream = TextStream(tokenizer)
        for token in tokenizer.encode("x🦜")[:3]:
            stream.push(token)
        assert (stream.finish(), stream.text) == ("\ufffd", "x\ufffd")

    def test_the_start_of_a_stop_string_waits(self, tokenizer: Tokenizer) -> None:
        stream, ids = TextStream(tokenizer, ["##END"]), [tokenizer.encode(char)[0] for char in "a##b##E"]
        assert [stream.push(token) for token in ids] == ["a", "", "", "##b", "", "", ""]
        assert stream.finish() == "##E"
        assert not stream.stopped

    def test_the_stop_that_ends_first_counts(self, tokenizer: Tokenizer) -> None:
        """However the text is cut into tokens: one that holds all of it finds the same stop."""
        ids = [tokenizer.encode(char)[0] for char in "xabcd"]
        stream, pieces = stream_all(tokenizer, ids, ["abcd", "c", "bc"])
        assert "".join(pieces) == "xa" and stream.stopped
        (that,) = tokenizer.encode(" that")
        assert TextStream(tokenizer, ["hat", "a"]).push(that) == " th"
        assert TextStream(tokenizer, ["hat", "t"]).push(that) == " "
        assert TextStream(tokenizer, ["a", "tha", "ha"]).push(that) == " "

    def test_control_tokens_have_no_text(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("a<|end|>b")
        assert "".join(stream_all(tokenizer, ids, ["<|end|>"])[1]) == "ab"

    def test_an_empty_stop_string_is_refused(self, tokenizer: Tokenizer) -> None:
        with pytest.raises(InputError, match="empty"):
            TextStream(tokenizer, ["x", ""])

    @pytest.mark.parametrize("text", ["the cat sat ", "漢字😀", "<|user|>", "noise"])
    def test_a_token_costs_the_same_however_long_the_text(self, tokenizer: Tokenizer, text: str) -> None:
        unit = [tokenizer.encode("🦜")[0]] if text == "noise" else tokenizer.encode(text)
        counting = CountingTokenizer(tokenizer)
        ids = (unit * 2000)[:2000]
        assert "".join(stream_all_quick(counting, ids)) == tokenizer.decode(ids)
        assert counting.decoded < 50 * len(ids)
