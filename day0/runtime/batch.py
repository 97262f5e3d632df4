"""What one step is given and what it gives back: requests, sampling parameters, the batch, the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from day0.errors import Day0Error, InputError

if TYPE_CHECKING:
    import torch

    from day0.runtime.cache.entries import Entries
    from day0.runtime.trace import Trace

FinishReason = Literal["stop", "length", "abort", "error"]

NO_TOKEN = -1
"""The token of an output that ends its request without one."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must look like, in llguidance's Lark dialect, over the tokens of the tokenizer in a folder.

    Plain text, so that it travels to other ranks; each compiles it for itself.
    """

    text: str
    tokenizer_folder: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 leave the distribution whole.

    `logprobs` is how many alternatives to report beside the chosen token (None: no log probabilities at all).
    `stop_token_ids` end a sequence besides the model's own end tokens, which `ignore_eos` switches off.
    `grammar` is what the answer must keep; `logit_bias` is added to the logits of some tokens.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    grammar: Grammar | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _require(0.0 <= self.temperature <= 100.0, "temperature", self.temperature, "between 0 and 100")
        _require(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "in (0, 1]")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (all) or more")
        _require(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "in [0, 1]")
        _require(-2.0 <= self.presence_penalty <= 2.0, "presence_penalty", self.presence_penalty, "in [-2, 2]")
        _require(-2.0 <= self.frequency_penalty <= 2.0, "frequency_penalty", self.frequency_penalty, "in [-2, 2]")
        _require(0.0 < self.repetition_penalty <= 10.0, "repetition_penalty", self.repetition_penalty, "in (0, 10]")
        _require(self.logprobs is None or 0 <= self.logprobs <= 20, "logprobs", self.logprobs, "in 0..20")


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    # A comparison with NaN is false, so NaN is refused here too.
    if not holds:
        raise InputError(f"{name} must be {wanted}, got {value}", where=name)


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Embeddings that replace the placeholder tokens `start .. start + len(embeddings)` of a prompt.

    A row holds what takes the token's place and, where a tower has such features, what is added to it behind each of
    the first layers. `grid` are the rows and columns in which the tokens lie, for models whose positions have several
    axes; without it they are placed like text.
    """

    start: int
    embeddings: torch.Tensor  # [tokens, (1 + levels) x hidden]
    grid: tuple[int, int] | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The first token and the one after the last."""
        return self.start, self.start + len(self.embeddings)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete. `id` is unique in an engine; its queue is fair between `client`s."""

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    images: tuple[ImageSpan, ...] = ()
    client: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its log probability under the model (natural log, before penalties and temperature)."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One new token of one request. `finish_reason` is set on the request's last one.

    `reused` prompt tokens were not computed but found in the cache. "error" comes
    with NO_TOKEN and says in `fault` why none can be drawn: numbers that are not finite, a grammar that broke.
    """

    request_id: str
    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    reused: int = 0
    fault: Day0Error | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """All tokens of one request; a stop token, where there was one, is the last of them.

    `reused` prompt tokens were found in the cache.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] = ()
    reused: int = 0


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Rows of a step that are computed together: `sequences` sequences of `length` new tokens each.

    They lie one sequence after another from row `start` on. All decoding sequences make one group of length 1;
    every prefill chunk is a group of its own. `kv_slots` are the flat cache slots of all tokens of each sequence,
    old and new; a shorter sequence repeats its first slot at the end, which the causal rule hides. `entries` has, for
    each stride of the model's planes above 1, the entries that so many tokens share.
    """

    start: int
    sequences: int
    length: int
    context: torch.Tensor  # [sequences] int64: tokens of each that came before this step
    kv_slots: torch.Tensor  # [sequences, longest] int64
    state_slots: torch.Tensor  # [sequences] int64
    entries: Mapping[int, Entries] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + self.sequences * self.length


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step's facts, filled by the runner and passed down through every `forward`.

    Rows are tokens, one sequence after another without padding. `rows` are those whose logits are wanted. `lengths`
    are all tokens that a row's sequence has, also those of later steps; only models whose rotation follows the length
    are told.
    """

    token_ids: torch.Tensor  # [tokens] int64
    positions: torch.Tensor  # [tokens] int64, or [axes, tokens] where images are among them and positions have axes
    write_slots: torch.Tensor  # [tokens] int64: the flat cache slot of each row
    rows: torch.Tensor  # [wanted] int64
    groups: tuple[SequenceGroup, ...]
    lengths: torch.Tensor | None = None  # [tokens] int64
    image_rows: torch.Tensor | None = None  # [image tokens] int64
    image_embeddings: torch.Tensor | None = None  # [image tokens, (1 + levels) x hidden]
    trace: Trace | None = None

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.shape[0])
