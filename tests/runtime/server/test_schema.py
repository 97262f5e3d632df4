import msgspec
import pytest
from pydantic import ValidationError

from day0.plan.settings import EngineSettings
from day0.runtime.server.schema import (
    MAX_SEQUENCES,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatRequest,
    CompletionRequest,
    Message,
    PromptTokensDetails,
    Usage,
)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("ab", ["ab"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_the_forms_of_a_prompt(prompt, prompts):
    assert CompletionRequest(prompt=prompt).prompts() == prompts


def test_stop_in_both_forms():
    assert CompletionRequest(prompt="x", stop="a").stop_strings() == ("a",)
    assert CompletionRequest(prompt="x", stop=["a", "b"]).stop_strings() == ("a", "b")
    assert CompletionRequest(prompt="x").stop_strings() == ()


def test_nothing_is_converted():
    for field, value in (("n", "1"), ("n", 1.0), ("stream", 1), ("temperature", "0"), ("seed", 1.5), ("echo", "no")):
        with pytest.raises(ValidationError):
            CompletionRequest(prompt="x", **{field: value})
    assert CompletionRequest(prompt="x", temperature=1).temperature == 1.0, "1 is a float in JSON"


def test_every_unsupported_field_is_a_field():
    for kind in (ChatRequest, CompletionRequest):
        assert set(kind.NOT_YET) <= set(kind.model_fields)


def test_null_asks_for_nothing():
    messages = [{"role": "user", "content": "x"}]
    nulls = dict.fromkeys(ChatRequest.NOT_YET)
    assert ChatRequest(messages=messages, **nulls).unsupported() is None


def test_a_message_for_the_template():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert Message(role="user", content=parts, name="me").for_template() == {
        "role": "user", "content": "a\nb", "name": "me",
    }  # fmt: skip
    assert Message(role="assistant").for_template() == {"role": "assistant", "content": ""}


def test_template_arguments_come_from_two_fields():
    messages = [{"role": "user", "content": "x"}]
    body = ChatRequest(messages=messages, reasoning_effort="low", chat_template_kwargs={"thinking": True})
    assert body.template_arguments() == {"reasoning_effort": "low", "thinking": True}


def test_absent_and_null_differ():
    choice = ChatChunkChoice(0, ChatDelta(content="x"))
    absent = msgspec.json.decode(msgspec.json.encode(ChatChunk("i", 1, "m", [choice])))
    assert "usage" not in absent
    assert absent["choices"][0] == {"index": 0, "delta": {"content": "x"}, "logprobs": None, "finish_reason": None}
    null = msgspec.json.decode(msgspec.json.encode(ChatChunk("i", 1, "m", [choice], None)))
    assert null["usage"] is None
    told = msgspec.json.decode(msgspec.json.encode(ChatChunk("i", 1, "m", [], Usage(1, 2, 3, PromptTokensDetails(1)))))
    assert told["usage"]["total_tokens"] == 3


def test_the_largest_request_fits_the_queue() -> None:
    assert EngineSettings().max_queue >= MAX_SEQUENCES
