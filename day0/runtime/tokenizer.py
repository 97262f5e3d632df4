"""Text to ids and back: the model's own tokenizer and chat template, and incremental decoding with stop strings.

transformers does the work, from local files and without code of the repository; it is imported on first use.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any

import jinja2

from day0.errors import Day0Error, EnvironmentFault, Finding, InputError
from day0.runtime.deadline import Deadline, Overdue
from day0.source.json_text import parse_object, refuse_lfs_pointer

CONFIG_NAME = "tokenizer_config.json"
WHOLE_FILE = "tokenizer.json"
VOCABULARY_FILES = (
    WHOLE_FILE, "tokenizer.model", "tekken.json", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt",
)  # fmt: skip
"""Files that transformers can make a tokenizer of, with others beside them."""

# Classes that take tokenizer.json as it stands.
_PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# What transformers' own code raises over files it did not foresee.
_FILE_ERRORS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, AssertionError)
TEMPLATE_SECONDS = 10.0
"""How long a chat template may take over one conversation; honest ones take milliseconds."""
# What a template can raise: jinja's own errors, and Python's for an expression that meets the wrong kind of value.
_TEMPLATE_ERRORS = (
    jinja2.TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError, Overdue,
)  # fmt: skip
# Arguments of transformers' `apply_chat_template` that a caller may set; the others change what is returned.
_TEMPLATE_CONTROLS = frozenset({"documents", "continue_final_message"})

_REPLACEMENT = "\ufffd"
# A character has up to 4 bytes and so up to 4 tokens. Text that is still open after this many tokens is noise, or of
# tokens that all end inside a character.
_MAX_OPEN_TOKENS = 32
# Of those, the last ones are kept. Each has a byte or more: up to 9 bytes belong to the up to 3 replacement characters
# that may still become a character, up to 3 in front are the rest of one that is cut, and the others decode as before.
_KEPT_TOKENS = 16
_MAX_OPEN_CHARACTERS = 3


class Tokenizer:
    """A model's tokenizer.

    Control tokens spelled out in a text (`<|im_end|>`) become control tokens, in prompts and in chat messages alike,
    as with transformers, vLLM and SGLang; who serves strangers must know that they can write such tokens.
    `findings` holds what is odd about the files.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        eos_token_ids: Sequence[int] = (),
        findings: Sequence[Finding] = (),
        folder: Path | None = None,
    ) -> None:
        """`tokenizer` is one of transformers'. Its own end token counts beside `eos_token_ids`."""
        self._tokenizer = tokenizer
        self.folder = folder
        own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        self.eos_token_ids: tuple[int, ...] = tuple(dict.fromkeys((*eos_token_ids, *own)))
        self.findings: tuple[Finding, ...] = tuple(findings)
        vocabulary = tokenizer.get_vocab()
        self.vocab_size: int = max(vocabulary.values(), default=-1) + 1
        """One more than the largest id; the ids below it need not all be in use."""
        self.longest_token: int = max(map(len, vocabulary), default=1) or 1
        """The most characters that one token stands for: a text of n has n over this tokens or more."""

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Load from the files in `folder`; nothing is downloaded, nothing of the repository is executed."""
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder))
        config = _read_optional(folder / CONFIG_NAME)
        with _Reading(folder):
            tokenizer = _load(folder, config)
            return cls(
                tokenizer,
                eos_token_ids=_generation_end_ids(folder),
                findings=tuple(_moved_tokens(tokenizer, config)),
                folder=folder.absolute(),
            )

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def chat_template(self) -> str:
        """The source of the chat template; of several (a table by name) the sources of all, joined."""
        template = self._tokenizer.chat_template
        return "\n".join(map(str, template.values())) if isinstance(template, dict) else str(template or "")

    def definition(self) -> str:
        """The tokenizer as the JSON of a tokenizer.json; InputError for one that is written in Python."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InputError(
                f"answers cannot be held to a grammar: the model's tokenizer is none of {WHOLE_FILE}", where="tokenizer"
            )
        copied = copy(backend)
        copied.no_padding()
        copied.no_truncation()
        text: str = copied.to_str()
        return text

    def control_tokens(self, texts: Iterable[str]) -> dict[int, str]:
        """Those of `texts` that are one control token each, by id; the others are ordinary text, or nothing."""
        vocabulary, control = self._tokenizer.get_vocab(), set(self._tokenizer.all_special_ids)
        return {vocabulary[text]: text for text in texts if vocabulary.get(text) in control}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens, verbose=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise InputError("the text is no Unicode text: it holds half of a surrogate pair", where="text") from error
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`; ids that no token has are left out."""
        try:
            text: str = self._tokenizer.decode(
                list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
            )
        except OverflowError as error:
            raise InputError("a token id is negative, or too large to be one", where="ids") from error
        return text

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_arguments: Any,
    ) -> str:
        """A conversation as the model's chat template writes it.

        `template_arguments` reach the template as variables (`enable_thinking=False`); `documents` and
        `continue_final_message` mean what they mean to transformers.
        """
        if not self.has_chat_template:
            raise InputError(
                "the tokenizer has no chat template", where=CONFIG_NAME, hint="send plain text instead of messages"
            )
        reserved = inspect.signature(self._tokenizer.apply_chat_template).parameters.keys() - _TEMPLATE_CONTROLS
        if clash := sorted(reserved & template_arguments.keys()):
            raise InputError(f"{', '.join(clash)}: not an argument that a template takes", where="template arguments")
        try:
            with Deadline(TEMPLATE_SECONDS):
                text: str = self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=None if tools is None else [dict(tool) for tool in tools],
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                    **template_arguments,
                )
        except _TEMPLATE_ERRORS as error:
            line = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise InputError(f"{_first_line(error)}{line}", where="chat template") from error
        return text

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], /, **arguments: Any) -> list[int]:
        """The ids of `chat_text`, which has the same arguments."""
        return self.encode(self.chat_text(messages, **arguments))


class TextStream:
    """The text of one sequence, token by token.

    What `push` and `finish` return, joined, is `decode` of all ids, cut before the first stop string: the one that
    ends first, and of those that end together the longest. Nothing is given out that a later token could change
    (half a UTF-8 character) or take back (the start of a stop string). Control tokens have no text, so a stop string
    that spells one never matches. One exception: SentencePiece's byte tokens decode as a run, which is all noise as
    soon as one byte of it is; characters of the run that went out before stay as they were.

    A push costs the decoding of a few tokens, those before the new one among them: some decoders drop the white space
    in front of what they are given, and a character may be spread over tokens in any way.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), visible: Mapping[int, str] | None = None
    ) -> None:
        """`visible` are control tokens that do have a text here, for those who read the answer's parts by them."""
        if "" in stop:
            raise InputError("a stop string must not be empty", where="stop")
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._visible = visible or {}
        self._longest_stop = max(map(len, stop), default=0)
        # The last ids and their text. The first `num_context` ids are there for decoders that treat the front of a
        # text otherwise; all text before `num_certain` went on to `_give_out`.
        self._window: list[int] = []
        self._window_text = ""
        self._num_context = 0
        self._num_certain = 0
        self._held = ""  # certain, but may be the start of a stop string
        self._parts: list[str] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """All that was given out so far."""
        return "".join(self._parts)

    def push(self, token_id: int) -> str:
        """The text that is certain now and was not before; nothing once `stopped`."""
        if self.stopped:
            return ""
        if token_id in self._visible:
            return self._give_out(self._close_window() + self._visible[token_id])
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        if text == self._window_text and not self._tokenizer.decode([token_id, token_id]):
            # A token without text, such as a control token. Twice, as a space at the very front decodes to nothing.
            self._window.pop()
            return ""
        self._window_text = text
        certain = text.rstrip(_REPLACEMENT)
        new = self._advance(len(certain))
        if new and certain == text:
            self._keep_as_context(len(self._window) - self._num_context)
        elif len(self._window) - self._num_context >= _MAX_OPEN_TOKENS:
            new += self._give_up_waiting()
        return self._give_out(new)

    def finish(self) -> str:
        """What was held back, when no token follows."""
        if self.stopped:
            return ""
        return self._give_out(self._close_window(), last=True)

    def _close_window(self) -> str:
        """The text of the window that is still open; nothing that follows changes it."""
        rest = self._window_text[self._num_certain :]
        self._window, self._window_text, self._num_context, self._num_certain = [], "", 0, 0
        return rest

    def _advance(self, num_certain: int) -> str:
        """Text of the window up to `num_certain` that did not go on before."""
        new = self._window_text[self._num_certain : num_certain]
        self._num_certain += len(new)
        return new

    def _keep_as_context(self, count: int) -> None:
        """Forget all of the window but its last `count` ids; all their text counts as certain."""
        self._window = self._window[-count:]
        self._window_text = self._tokenizer.decode(self._window)
        self._num_context, self._num_certain = count, len(self._window_text)

    def _give_up_waiting(self) -> str:
        """Let out what has been open for too long, all but what may be the start of the next character."""
        text = self._window_text
        num_open = min(len(text) - len(text.rstrip(_REPLACEMENT)), _MAX_OPEN_CHARACTERS)
        new = self._advance(len(text) - num_open)
        self._keep_as_context(_KEPT_TOKENS)
        self._num_certain = max(0, self._num_certain - num_open)
        return new

    def _give_out(self, new: str, *, last: bool = False) -> str:
        self._held += new
        ends = [(at + len(stop), at) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if ends:
            self.stopped = True
            size = min(ends)[1]
        else:
            size = len(self._held) - (0 if last else self._possible_stop())
        given, self._held = self._held[:size], "" if ends else self._held[size:]
        self._parts.append(given)
        return given

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that a stop string starts with."""
        for size in range(min(self._longest_stop - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0


class _Reading:
    """Turns what transformers and tokenizers raise over a stranger's files into our errors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or error is None or isinstance(error, Day0Error):
            return
        if isinstance(error, ImportError):
            raise EnvironmentFault(f"the tokenizer needs a package: {_first_line(error)}") from error
        # The Rust part raises Exception itself, and PanicException where it meets what it takes for impossible.
        if isinstance(error, _FILE_ERRORS) or kind is Exception or kind.__name__ == "PanicException":
            hint = "day0 reads the tokenizer with transformers; does its AutoTokenizer load this folder?"
            message = f"the tokenizer files cannot be used: {kind.__name__}: {_first_line(error)}"
            raise InputError(message, where=str(self._folder), hint=hint) from error


def _load(folder: Path, config: Mapping[str, Any]) -> Any:
    """The transformers tokenizer of a folder."""
    whole, remote_class = folder / WHOLE_FILE, _remote_class(config)
    _refuse_missing_files(folder, remote_class)
    if remote_class and not whole.exists():
        raise InputError(
            f"the tokenizer is code of the repository ({remote_class}), which is not run",
            where=f"{folder / CONFIG_NAME}: auto_map",
            hint=f"put a {WHOLE_FILE} of the same tokenizer into the folder",
        )
    if whole.exists():
        with whole.open("rb") as file:
            refuse_lfs_pointer(file.read(1024), str(whole))
    options = {"local_files_only": True, "trust_remote_code": False}
    # A model family's class rebuilds the tokenizer by the family's rules, whatever tokenizer.json says: SmolLM2,
    # published as a GPT2Tokenizer, would get other ids for white space before digits than it was trained with. So
    # the file counts as it stands, unless the class is needed to know which token ends a text. That also spares the
    # imports of AutoTokenizer, torch among them (0.7 s instead of 2.6 s).
    plain = remote_class or config.get("tokenizer_class") in _PLAIN_CLASSES or config.get("eos_token")
    if plain and whole.exists():
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(str(folder), **options)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder), **options)


def _refuse_missing_files(folder: Path, remote_class: str | None) -> None:
    present = {path.name for path in folder.iterdir()}
    if present.isdisjoint(VOCABULARY_FILES) and not remote_class:
        raise InputError(
            f"no tokenizer: none of {', '.join(VOCABULARY_FILES)}",
            where=str(folder),
            hint="copy the tokenizer's files from the published model into this folder",
        )
    if "vocab.json" in present and present.isdisjoint({WHOLE_FILE, "merges.txt", "tokenizer.model"}):
        # Without merges transformers would make some up from the vocabulary, and the ids would differ.
        raise InputError("vocab.json is here, but merges.txt is missing", where=str(folder))


def _read_optional(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    return parse_object(path.read_bytes(), where=str(path), name=path.name).value


def _remote_class(config: Mapping[str, Any]) -> str | None:
    """Name of the class that a repository's own code defines for its tokenizer."""
    auto_map = config.get("auto_map")
    named = auto_map.get("AutoTokenizer") if isinstance(auto_map, Mapping) else auto_map
    names = [named] if isinstance(named, str) else named or []
    return next((str(name) for name in names if name), None)


def _generation_end_ids(folder: Path) -> tuple[int, ...]:
    """End tokens of generation_config.json; chat models often end a turn with another than the tokenizer's own."""
    value = _read_optional(folder / "generation_config.json").get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int and token >= 0 for token in ids):
        where = f"{folder / 'generation_config.json'}: eos_token_id"
        raise InputError(f"must be a token id or a list of them, is {value!r}", where=where)
    return tuple(ids)


def _moved_tokens(tokenizer: Any, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Added tokens that the loaded tokenizer gives another id than the publisher declared."""
    declared = config.get("added_tokens_decoder") or {}
    for index, entry in declared.items():
        content = entry["content"] if isinstance(entry, Mapping) else str(entry)
        if (found := tokenizer.convert_tokens_to_ids(content)) != int(index):
            yield Finding(
                "tokenizer-id-moved",
                "error",
                f"{CONFIG_NAME}: added_tokens_decoder.{index}",
                f"{content!r} is declared as id {index}, but the loaded tokenizer gives it {found}",
                "ids above this one may be shifted; compare with the publisher's own tokenizer",
            )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
