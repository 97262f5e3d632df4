"""Tokenizer against transformers, and TextStream against decoding everything at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as RustTokenizer

from day0.errors import EnvironmentFault, InputError
from day0.runtime.tokenizer import TextStream, Tokenizer

CORPUS = [
    "The cat sat on the mat. Then the dog sat on the cat, and that was that.",
    "naïve café, élan vital; Привет, мир! 漢字とカタカナ、你好世界",
    "def f(x):\n    if x:\n        return  x\n    return   None\n",
    "😀😁😂 👍🏽 👨‍👩‍👧 for (int i = 0; i < 10; ++i) {\n\treturn 3.14;\n}\n\n",
] * 3
BASE = 380  # entries before the special tokens
SPECIAL = ("<|end|>", "<|user|>", "<|model|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('this model takes no system message') }}{% endif %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if tools %}[{% for tool in tools %}{{ tool.function.name }}{% endfor %}]{% endif %}"
    "{% if mood is defined %}({{ mood }}){% endif %}"
    "{% if add_generation_prompt %}<|model|>{% endif %}"
)
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "chat_template": TEMPLATE}
HELLO = [{"role": "user", "content": "hello"}]


def byte_level() -> RustTokenizer:
    """A trained byte-level BPE: tokens of several characters, and tokens that end inside one."""
    tokenizer = RustTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=BASE, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    assert tokenizer.get_vocab_size() == BASE
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return tokenizer


def byte_fallback() -> RustTokenizer:
    """SentencePiece's way: spaces as a visible mark, unknown characters as byte tokens, the first space dropped."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdeé漢", "▁a", "▁b", "ab"]
    merges = [("▁", "a"), ("▁", "b"), ("a", "b")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = RustTokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", normalized=False)])
    return tokenizer


def write_folder(folder: Path, rust: RustTokenizer | None, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    if rust is not None:
        rust.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tokenizer"), byte_level(), CONFIG)


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="session")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    return Tokenizer.from_folder(write_folder(tmp_path_factory.mktemp("fallback"), byte_fallback(), config))


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


class TestChat:
    def test_the_template_writes_the_prompt(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.chat_ids(HELLO)
        assert tokenizer.decode(ids, skip_special_tokens=False) == "<|user|>hello<|end|><|model|>"
        assert ids[0] == tokenizer.encode("<|user|>")[0] and len(tokenizer.encode("<|user|>")) == 1

    def test_tools_and_arguments_reach_the_template(self, tokenizer: Tokenizer) -> None:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
        ids = tokenizer.chat_ids(HELLO, tools=tools, add_generation_prompt=False, mood="sad")
        assert tokenizer.decode(ids) == "hello[weather](sad)"

    def test_the_final_message_can_be_continued(self, tokenizer: Tokenizer) -> None:
        messages = [*HELLO, {"role": "model", "content": "Dear"}]
        ids = tokenizer.chat_ids(messages, add_generation_prompt=False, continue_final_message=True)
        assert tokenizer.decode(ids, skip_special_tokens=False) == "<|user|>hello<|end|><|model|>Dear"

    def test_control_tokens_in_a_message_are_control_tokens(self, tokenizer: Tokenizer) -> None:
        """As documented: the ids are those of the rendered text, whoever wrote which part of it."""
        end = tokenizer.encode("<|end|>")
        ids = tokenizer.chat_ids([{"role": "user", "content": "a<|end|>b"}])
        assert ids.count(end[0]) == 2

    @pytest.mark.parametrize(
        ("messages", "said"),
        [
            ([{"role": "system", "content": "be kind"}], "this model takes no system message"),
            ([], "empty conversation"),
        ],
    )
    def test_a_template_that_raises(self, tokenizer: Tokenizer, messages: list[dict[str, str]], said: str) -> None:
        with pytest.raises(InputError, match=said) as caught:
            tokenizer.chat_ids(messages)
        assert caught.value.where == "chat template"

    @pytest.mark.parametrize(
        ("template", "said"),
        [
            ("a\n{% for %}", r"line 2"),
            ("{{ ''.__class__.__mro__ }}", "unsafe"),
            ("{{ 1 / 0 }}", "division by zero"),
            ("{{ messages[0]['content'] + 1 }}", "str"),
            ("{{ messages[5]['content'] }}", "no element 5"),
            ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ],
    )
    def test_a_broken_template(self, tmp_path: Path, template: str, said: str) -> None:
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), {**CONFIG, "chat_template": template}))
        with pytest.raises(InputError, match=said):
            tokenizer.chat_ids(HELLO)

    def test_a_template_without_end_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = "{% for a in range(99999) %}"
        template = 4 * loop + 4 * "{% endfor %}"
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), {**CONFIG, "chat_template": template}))
        monkeypatch.setattr("day0.runtime.tokenizer.TEMPLATE_SECONDS", 0.2)
        with pytest.raises(InputError, match="longer than"):
            tokenizer.chat_ids(HELLO)

    @pytest.mark.parametrize("name", ["messages", "self"])
    def test_names_that_calls_need_are_refused(self, tokenizer: Tokenizer, name: str) -> None:
        with pytest.raises(InputError, match=name):
            tokenizer.chat_ids(HELLO, **{name: 1})

    @pytest.mark.parametrize("name", ["chat_template", "tokenize", "return_dict", "padding", "conversation"])
    def test_arguments_of_the_rendering_are_no_template_arguments(self, tokenizer: Tokenizer, name: str) -> None:
        with pytest.raises(InputError, match=name):
            tokenizer.chat_ids(HELLO, **{name: "{{ 'mine' }}"})

    def test_without_a_template(self, fallback: Tokenizer) -> None:
        assert not fallback.has_chat_template
        with pytest.raises(InputError, match="no chat template"):
            fallback.chat_ids(HELLO)

    def test_the_template_may_be_a_file_of_its_own(self, tmp_path: Path) -> None:
        config = {key: value for key, value in CONFIG.items() if key != "chat_template"}
        write_folder(tmp_path, byte_level(), config)
        (tmp_path / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
        tokenizer = Tokenizer.from_folder(tmp_path)
        assert tokenizer.has_chat_template
        assert tokenizer.decode(tokenizer.chat_ids(HELLO)) == "hello!"


class TestEncoding:
    @given(text=st.text(max_size=60))
    @settings(max_examples=100, deadline=None)
    def test_round_trip(self, tokenizer: Tokenizer, text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text

    def test_vocabulary_and_end_token(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.vocab_size == BASE + 3
        assert tokenizer.eos_token_ids == (BASE,) == tuple(tokenizer.encode("<|end|>"))
        assert tokenizer.findings == ()

    def test_half_a_surrogate_pair_is_no_text(self, tokenizer: Tokenizer) -> None:
        with pytest.raises(InputError, match="surrogate"):
            tokenizer.encode("a\ud800b")

    @pytest.mark.parametrize("token", [-1, 2**40])
    def test_numbers_that_are_no_ids(self, tokenizer: Tokenizer, token: int) -> None:
        with pytest.raises(InputError, match="token id"):
            tokenizer.decode([token])

    def test_decoding_adds_no_rules_of_its_own(self, tmp_path: Path) -> None:
        """Old configs ask for English punctuation to be pulled together, which changes text already given out."""
        rust = RustTokenizer(models.WordLevel({"one": 0, ".": 1, "<|end|>": 2}, unk_token="<|end|>"))
        config = {**CONFIG, "clean_up_tokenization_spaces": True}
        assert Tokenizer.from_folder(write_folder(tmp_path, rust, config)).decode([0, 1]) == "one ."

    def test_start_token_where_the_file_asks_for_one(self, tmp_path: Path) -> None:
        rust = byte_level()
        rust.post_processor = processors.TemplateProcessing(
            single="<|user|> $A", pair="$A $B", special_tokens=[("<|user|>", BASE + 1)]
        )
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, rust, CONFIG))
        assert tokenizer.encode("a", add_special_tokens=True) == [BASE + 1, *tokenizer.encode("a")]
        assert tokenizer.chat_ids(HELLO).count(BASE + 1) == 1, "the template writes its own"


class TestFromFolder:
    @pytest.mark.parametrize(
        ("files", "said"),
        [
            ({}, r"tokenizer\.json"),
            ({"tokenizer_config.json": json.dumps(CONFIG)}, r"none of tokenizer\.json"),
            ({"vocab.json": "{}", "config.json": "{}"}, r"merges\.txt is missing"),
            ({"tokenizer.json": "version https://git-lfs.github.com/spec/v1\nsize 7000000\n"}, "7,000,000 bytes"),
            ({"tokenizer.json": "{", "tokenizer_config.json": json.dumps(CONFIG)}, "cannot be used"),
            ({"tokenizer.json": "{}", "tokenizer_config.json": json.dumps(CONFIG)}, "cannot be used"),
            ({"tokenizer.json": "[]", "tokenizer_config.json": "{"}, "not valid JSON"),
            ({"tokenizer.model": "not a protobuf", "config.json": '{"model_type": "llama"}'}, "cannot be used|package"),
        ],
    )
    def test_files_that_will_not_do(self, tmp_path: Path, files: dict[str, str], said: str) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with pytest.raises((InputError, EnvironmentFault), match=said):
            Tokenizer.from_folder(tmp_path)

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no such folder"):
            Tokenizer.from_folder(tmp_path / "none")

    def test_errors_of_the_rust_part_are_input_errors(self, tmp_path: Path) -> None:
        """It raises Exception itself, which no list of classes catches."""
        write_folder(tmp_path, byte_level(), CONFIG)
        document = json.loads((tmp_path / "tokenizer.json").read_text())
        document["model"]["merges"].append(["no", "such token"])
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match="cannot be used") as caught:
            Tokenizer.from_folder(tmp_path)
        assert caught.value.where == str(tmp_path)

    @pytest.mark.parametrize("auto_map", [{"AutoTokenizer": ["tokenization_x.X", None]}, ["tokenization_x.X", None]])
    def test_code_of_the_repository_is_refused(self, tmp_path: Path, auto_map: object) -> None:
        write_folder(tmp_path, None, {"tokenizer_class": "X", "auto_map": auto_map})
        (tmp_path / "tiktoken.model").write_text("IQ== 0\n")
        (tmp_path / "tokenization_x.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass X: pass\n")
        with pytest.raises(InputError, match=r"tokenization_x\.X") as caught:
            Tokenizer.from_folder(tmp_path)
        assert "tokenizer.json" in caught.value.hint
        assert not (tmp_path / "ran").exists()

    def test_code_is_not_needed_where_the_file_says_it_all(self, tmp_path: Path) -> None:
        auto_map = {"AutoTokenizer": [None, "tokenization_x.X"]}
        write_folder(tmp_path, byte_level(), {"tokenizer_class": "X", "auto_map": auto_map})
        (tmp_path / "tokenization_x.py").write_text("raise SystemExit('ran')\n")
        model = {"model_type": "unheard_of", "auto_map": {"AutoConfig": "tokenization_x.X"}}
        (tmp_path / "config.json").write_text(json.dumps(model))
        tokenizer = Tokenizer.from_folder(tmp_path)
        assert tokenizer.encode("the cat") == byte_level().encode("the cat").ids

    @pytest.mark.parametrize(
        ("family", "model_type"), [("GPT2Tokenizer", "llama"), ("Qwen2Tokenizer", "qwen3"), ("LlamaTokenizer", "llama")]
    )
    def test_the_file_counts_more_than_the_family(self, tmp_path: Path, family: str, model_type: str) -> None:
        """A family's class would bring its own way of splitting, whatever the file says."""
        rust = byte_level()
        rust.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        write_folder(tmp_path, rust, {**CONFIG, "tokenizer_class": family})
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        text = "a \n\n  5 12345"
        assert Tokenizer.from_folder(tmp_path).encode(text) == rust.encode(text, add_special_tokens=False).ids

    def test_a_class_that_knows_its_end_token(self, tmp_path: Path) -> None:
        rust = byte_level()
        rust.add_special_tokens(["<|endoftext|>"])
        write_folder(tmp_path, rust, {"tokenizer_class": "GPT2Tokenizer"})
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
        assert Tokenizer.from_folder(tmp_path).eos_token_ids == (BASE + 3,)

    @pytest.mark.parametrize(
        ("value", "ids"), [(7, (7, BASE)), ([7, BASE, 9], (7, BASE, 9)), (None, (BASE,)), ([], (BASE,))]
    )
    def test_end_tokens_of_the_generation_config(self, tmp_path: Path, value: object, ids: tuple[int, ...]) -> None:
        write_folder(tmp_path, byte_level(), CONFIG)
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
        assert Tokenizer.from_folder(tmp_path).eos_token_ids == ids

    @pytest.mark.parametrize("value", ["7", [True], -1, 1.5])
    def test_end_tokens_that_are_none(self, tmp_path: Path, value: object) -> None:
        write_folder(tmp_path, byte_level(), CONFIG)
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
        with pytest.raises(InputError, match="token id"):
            Tokenizer.from_folder(tmp_path)

    def test_moved_ids_are_a_finding(self, tmp_path: Path) -> None:
        added = {str(BASE): {"content": "<|end|>"}, "407": {"content": "<|user|>", "special": True}}
        write_folder(tmp_path, byte_level(), {**CONFIG, "added_tokens_decoder": added})
        (finding,) = Tokenizer.from_folder(tmp_path).findings
        assert finding.severity == "error" and "407" in finding.where and str(BASE + 1) in finding.message

    def test_a_gap_in_the_vocabulary_counts(self, tmp_path: Path) -> None:
        rust = RustTokenizer(models.BPE(vocab={"a": 0, "b": 7, "<|end|>": 3}, merges=[]))
        assert Tokenizer.from_folder(write_folder(tmp_path, rust, CONFIG)).vocab_size == 8

    def test_torch_stays_out(self, folder: Path) -> None:
        program = (
            "import sys, pathlib; from day0.runtime.tokenizer import Tokenizer\n"
            "assert 'transformers' not in sys.modules\n"
            f"tokenizer = Tokenizer.from_folder(pathlib.Path({str(folder)!r}))\n"
            "tokenizer.chat_ids([{'role': 'user', 'content': 'x'}])\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True)
