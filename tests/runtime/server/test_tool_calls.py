"""Tools and reasoning through the official client: engines that write what a test wants, and a real one held to it."""

import json
import shutil
from dataclasses import dataclass

import openai
import pytest

from day0.runtime.batch import TokenOutput
from day0.runtime.tokenizer import Tokenizer

TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.city }}){% endfor %}"
    "{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %}{% endfor %}<think>x</think>[assistant]"
)
MESSAGES = [{"role": "user", "content": "Weather?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Rome", "Paris"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("look", "ask")
]
CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Rome"}}\n</tool_call>'
TEXT = f"<think>\nWhich city?\n</think>\n\nLet me see.\n{CALL}\n{CALL}"


@pytest.fixture(scope="module")
def folder(tiny_llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools") / "model"
    shutil.copytree(tiny_llama, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    model = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(model | {"max_position_embeddings": 4096}))
    return folder


@pytest.fixture(scope="module")
def says(serve, scripted_engine, folder):
    """`says(text)`: a server whose model answers with `text`."""
    tokenizer = Tokenizer.from_folder(folder)

    @dataclass(slots=True)
    class Says(scripted_engine):
        ids: tuple[int, ...] = ()

        def _advance(self, request):
            number = self.generated[request.id]
            self.generated[request.id] += 1
            if number == len(self.ids) or number == request.params.max_tokens:
                del self.requests[request.id]
                reason = "stop" if number == len(self.ids) else "length"
                return TokenOutput(request.id, tokenizer.eos_token_ids[0], finish_reason=reason)
            return TokenOutput(request.id, self.ids[number])

    def start(text, **options):
        engine = Says(max_model_len=4096, ids=tuple(tokenizer.encode(text)))
        return serve(lambda: engine, tokenizer, **options)

    return start


@pytest.fixture(scope="module")
def calling(says):
    return says(TEXT)


def chat(served, **body):
    return served.openai().chat.completions.create(**({"model": "tiny", "messages": MESSAGES, "tools": TOOLS} | body))


def collected(chunks):
    """The message that the deltas of a stream make, and how it finished."""
    content, reasoning, calls, reason = "", "", {}, None
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                calls[call.index] = (call.function.name, call.function.arguments)
            reason = choice.finish_reason or reason
    return content, reasoning, [calls[index] for index in sorted(calls)], reason


def test_reasoning_text_and_calls_whole_and_streamed(calling):
    choice = chat(calling).choices[0]
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert choice.message.reasoning_content == "Which city?"
    assert [(name, json.loads(text)) for name, text in calls] == [("look", {"city": "Rome"})] * 2
    assert len({call.id for call in choice.message.tool_calls}) == 2
    streamed = collected(chat(calling, stream=True))
    assert streamed == ("Let me see.", "Which city?", calls, "tool_calls")


def test_one_call_at_a_time(calling):
    assert len(chat(calling, parallel_tool_calls=False).choices[0].message.tool_calls) == 1
    assert len(collected(chat(calling, parallel_tool_calls=False, stream=True))[2]) == 1


def test_without_tools_calls_are_text(calling):
    for body in ({"tools": openai.omit}, {"tool_choice": "none"}):
        choice = chat(calling, **body).choices[0]
        assert choice.finish_reason == "stop" and choice.message.tool_calls is None
        assert CALL in choice.message.content and choice.message.reasoning_content == "Which city?"


def test_a_call_cut_off_is_text(says):
    cut = TEXT[: TEXT.index("Rome")]
    choice = chat(says(cut)).choices[0]
    assert choice.finish_reason == "stop" and choice.message.tool_calls is None
    assert choice.message.content.endswith('{"city": "')


def test_results_go_through_the_template(calling):
    before = chat(calling, tools=openai.omit).choices[0]
    message = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Rome"}'}}
    ]}  # fmt: skip
    turns = [*MESSAGES, message, {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
    tokens = calling.http().post("/tokenize", json={"messages": turns}).json()["tokens"]
    text = calling.http().post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert "[assistant](look Rome)[tool]sunny#c1" in text
    assert before.finish_reason == "stop"


def test_the_choice_of_a_parser_by_name(says):
    harmony = says(
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.look "
        '<|constrain|>json<|message|>{"city": "Rome"}',
        tool_call_parser="harmony",
        reasoning_parser="harmony",
    )
    choice = chat(harmony).choices[0]
    assert choice.message.reasoning_content == "Hm."
    assert [call.function.arguments for call in choice.message.tool_calls] == ['{"city": "Rome"}']
    plain = says(TEXT, tool_call_parser="none", reasoning_parser="none")
    with pytest.raises(openai.BadRequestError, match="tool-call-parser"):
        chat(plain)
    assert chat(plain, tools=openai.omit).choices[0].message.content == TEXT


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": openai.omit, "tool_choice": "required"}, "needs tools"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "same name"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "no tool is named 'other'"),
        ({"response_format": {"type": "json_object"}}, "either"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
    ],
)
def test_what_does_not_go_together_is_refused(calling, body, words):
    with pytest.raises(openai.BadRequestError, match=words):
        chat(calling, **body)


def test_a_template_that_shows_no_tools(llama):
    with pytest.raises(openai.BadRequestError, match="shows it no tools") as caught:
        chat(llama, tool_choice="required")
    assert caught.value.code == "no_tools_in_template"


@pytest.fixture(scope="module")
def held(serve, load_from, folder):
    return serve(load_from(folder), Tokenizer.from_folder(folder))


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ask"}}])
def test_a_call_that_must_come_comes(held, choice):
    body = {"tool_choice": choice, "max_tokens": 600, "seed": 5, "temperature": 1.0, "parallel_tool_calls": False}
    whole = chat(held, **body).choices[0]
    (call,) = whole.message.tool_calls
    assert whole.finish_reason == "tool_calls"
    assert call.function.name in ("ask", "look") if choice == "required" else call.function.name == "ask"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Paris")
    streamed = collected(chat(held, stream=True, **body))
    assert streamed[2] == [(call.function.name, call.function.arguments)] and streamed[3] == "tool_calls"
