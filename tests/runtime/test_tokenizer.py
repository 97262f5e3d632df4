"""Tokenizer against transformers: chat templates, encoding, and the folders that it takes or refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import BASE, CONFIG, byte_fallback_folder, byte_level, byte_level_folder, write_folder
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models, pre_tokenizers, processors

from day0.errors import EnvironmentFault, InputError
from day0.runtime.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_level_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="session")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(byte_fallback_folder(tmp_path_factory.mktemp("fallback")))


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
