"""Answers held to a schema, by a model that left alone writes noise."""

import json

import openai
import pytest

from day0.runtime.server.errors import ApiError
from day0.runtime.server.schema_tools import FunctionDefinition
from day0.runtime.server.structured import ANY_OBJECT, json_grammar, schema_of_calls

MESSAGES = [{"role": "user", "content": "Describe Paris."}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Paris", "Rome"]}, "size": {"enum": [1, 22, 333]}, "old": {"type": "boolean"}},
    "required": ["name", "size", "old"],
    "additionalProperties": False,
}


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}


def chat(served, **body):
    defaults = {"model": "tiny", "messages": MESSAGES, "temperature": 1.5, "max_tokens": 400, "seed": 3}
    return served.openai().chat.completions.create(**(defaults | body))


def kept(text):
    value = json.loads(text)
    return (
        list(value) == ["name", "size", "old"]
        and value["name"] in ("Paris", "Rome")
        and value["size"] in (1, 22, 333)
        and isinstance(value["old"], bool)
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0},
        {"presence_penalty": 2, "frequency_penalty": 2},
        {"top_p": 0.1},
        {"extra_body": {"top_k": 1}},
    ],
)
def test_an_answer_keeps_its_schema(llama, more):
    choice = chat(llama, response_format=form(SCHEMA), **more).choices[0]
    assert choice.finish_reason == "stop" and kept(choice.message.content)


def test_several_choices_streamed_and_whole(llama):
    whole = chat(llama, response_format=form(SCHEMA), n=3)
    texts = ["", "", ""]
    for chunk in chat(llama, response_format=form(SCHEMA), n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert all(map(kept, texts)) and len(set(texts)) > 1


def test_a_neighbour_is_left_alone(llama):
    alone = chat(llama, temperature=0, max_tokens=20).choices[0].message.content
    with chat(llama, response_format=form(SCHEMA), stream=True) as held:
        next(iter(held))
        assert chat(llama, temperature=0, max_tokens=20).choices[0].message.content == alone


def test_any_object(llama):
    choice = chat(llama, response_format={"type": "json_object"}, max_tokens=60).choices[0]
    assert choice.message.content.lstrip().startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "frob"}, "'/'"),
        ({"properties": {"a": {"items": {"type": "string", "pattern": "(?=x)"}}}}, "'/properties/a/items'"),
        ({"anyOf": [{"type": "string"}, {"not": {"type": "string"}}]}, "'/anyOf/1'"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "'/nowhere'"),
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused_at_its_place(llama, schema, place):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(llama, response_format=form(schema))
    assert caught.value.code == "invalid_schema" and place in str(caught.value)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_object", "json_schema": {"name": "x"}}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object"}, "extra_body": {"ignore_eos": True}}, "ignore_eos"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ],
)
def test_a_form_that_says_nothing_is_refused(llama, body, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(llama, **body)
    assert caught.value.param == param


def test_references_of_a_tool_follow_it_into_the_list_of_calls():
    own = {"$defs": {"day": {"type": "integer"}}, "properties": {"day": {"$ref": "#/$defs/day"}}}
    schema = schema_of_calls([FunctionDefinition(name="look", parameters=own)], at_most=None)
    assert json_grammar(schema, param="tools")
    with pytest.raises(ApiError, match="nowhere"):
        broken = FunctionDefinition(name="look", parameters={"properties": {"a": {"$ref": "#/nowhere"}}})
        json_grammar(schema_of_calls([broken], at_most=1), param="tools")


def test_a_plain_grammar_is_one():
    assert "%json" in json_grammar(ANY_OBJECT, param="response_format")


def test_logit_bias_forces_and_forbids(llama):
    forced = chat(llama, logit_bias={"65": 100}, temperature=0, max_tokens=4, extra_body={"ignore_eos": True})
    letter = llama.openai().completions.create(
        model="tiny", prompt=[1], max_tokens=4, logit_bias={"65": 100}, temperature=0
    )
    assert letter.choices[0].text == forced.choices[0].message.content != ""
    assert len(set(letter.choices[0].text)) == 1
    with pytest.raises(openai.BadRequestError, match="outside the vocabulary"):
        chat(llama, logit_bias={"99999": 1})


def test_a_schema_that_never_compiles_is_refused_and_holds_nobody_up(llama, monkeypatch):
    monkeypatch.setattr("day0.runtime.server.grammar_check.CHECK_SECONDS", 2.0)
    endless = {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{length}}}"} for length in range(5, 40)]}
    with pytest.raises(openai.BadRequestError, match="did not compile within 2 seconds"):
        chat(llama, response_format=form(endless))
    assert kept(chat(llama, response_format=form(SCHEMA)).choices[0].message.content)
