import pytest

from day0.runtime.batch import SamplingParams
from day0.runtime.server.generation import Piece, by_choice, sampling_params
from day0.runtime.server.schema import CompletionRequest


def params_of(*, end=(7,), max_tokens=5, logprobs=None, **fields):
    body = CompletionRequest(prompt="x", **fields)
    return sampling_params(body, max_tokens=max_tokens, logprobs=logprobs, end_token_ids=end, vocab_size=320)


def test_what_is_not_said_is_what_openai_has():
    assert params_of() == (SamplingParams(max_tokens=5, temperature=1.0, stop_token_ids=(7,)),)


def test_every_field_arrives():
    (params,) = params_of(
        temperature=0.0, top_p=0.5, top_k=40, min_p=0.1, presence_penalty=1.5, frequency_penalty=-0.5,
        repetition_penalty=1.2, seed=3, stop_token_ids=[9, 7],
    )  # fmt: skip
    assert params == SamplingParams(
        max_tokens=5, temperature=0.0, top_p=0.5, top_k=40, min_p=0.1, presence_penalty=1.5, frequency_penalty=-0.5,
        repetition_penalty=1.2, seed=3, stop_token_ids=(9, 7),
    )  # fmt: skip


def test_ignoring_the_end_leaves_the_clients_own_stops():
    (params,) = params_of(ignore_eos=True, stop_token_ids=[9])
    assert params.ignore_eos and params.stop_token_ids == (9,)


@pytest.mark.parametrize("top_k", [-1, 0, None])
def test_all_tokens_have_three_spellings(top_k):
    assert params_of(top_k=top_k)[0].top_k == 0


def test_seeds_of_choices_follow_and_wrap():
    assert [params.seed for params in params_of(n=3, seed=41)] == [41, 42, 43]
    assert [params.seed for params in params_of(n=2, seed=2**63 - 1)] == [2**63 - 1, -(2**63)]
    assert [params.seed for params in params_of(n=2)] == [None, None]


def test_pieces_are_sorted_into_choices():
    pieces = [Piece(1, "a", None, None), Piece(0, "b", None, None), Piece(1, "c", None, "stop")]
    assert [[piece.text for piece in own] for own in by_choice(pieces, 2)] == [["b"], ["a", "c"]]
