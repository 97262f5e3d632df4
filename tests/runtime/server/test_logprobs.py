from day0.runtime.batch import TokenLogprob, TokenOutput
from day0.runtime.server.logprobs import chat_logprobs, completion_logprobs


class Letters:
    """Token i is the i-th capital letter; 26 is half a character."""

    def decode(self, ids, *, skip_special_tokens):
        assert not skip_special_tokens, "a control token is a token too"
        return "".join(chr(65 + token) if token < 26 else "\N{REPLACEMENT CHARACTER}" for token in ids)


def test_minus_infinity_is_a_number_that_json_can_say():
    token = TokenOutput("r", 0, float("-inf"), (TokenLogprob(1, float("-inf")),))
    chat = chat_logprobs(Letters(), [token]).content[0]
    assert chat.logprob == chat.top_logprobs[0].logprob == -9999.0
    assert completion_logprobs(Letters(), [token], 0).token_logprobs == [-9999.0]


def test_half_a_character_has_no_bytes():
    content = chat_logprobs(Letters(), [TokenOutput("r", 26, -1.0), TokenOutput("r", 2, -1.0)]).content
    assert [token.bytes for token in content] == [None, [67]]


def test_of_tokens_that_read_the_same_the_likeliest_is_told():
    others = (TokenLogprob(27, -0.5), TokenLogprob(26, -2.0), TokenLogprob(28, -3.0))
    told = completion_logprobs(Letters(), [TokenOutput("r", 3, -1.0, others)], 0)
    assert told.top_logprobs == [{"D": -1.0, "\N{REPLACEMENT CHARACTER}": -0.5}]


def test_offsets_count_characters():
    tokens = [TokenOutput("r", token, -1.0) for token in (0, 1, 2)]
    assert completion_logprobs(Letters(), tokens, 10).text_offset == [10, 11, 12]
