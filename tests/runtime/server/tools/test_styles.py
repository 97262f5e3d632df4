"""Every style of tool call and reasoning, however the text is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.runtime.server.reasoning import THINK_STYLES, ThinkReader, opened
from day0.runtime.server.tools.harmony import HarmonyReader
from day0.runtime.server.tools.parts import Call, Content, PlainReader, Reasoning, joined
from day0.runtime.server.tools.tagged import TAG_STYLES, TagReader

STYLES = {style.name: style for style in TAG_STYLES}
SCHEMAS = {"look": {"type": "object", "properties": {"zip": {"type": "string"}, "days": {"type": "integer"}}}}
ARGUMENTS = {"zip": "0123", "days": 2}
OBJECT = json.dumps(ARGUMENTS)
CALLS = {
    "hermes": f'<tool_call>\n{{"name": "look", "arguments": {OBJECT}}}\n</tool_call>',
    "qwen_xml": "<tool_call>\n<function=look>\n<parameter=zip>\n0123\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm": "<tool_call>look\n<arg_key>zip</arg_key>\n<arg_value>0123</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "deepseek": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{OBJECT}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="look">\n'
    '<｜DSML｜parameter name="zip" string="true">0123</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{OBJECT}"
    "<|tool_call_end|><|tool_calls_section_end|>",
}
HARMONY = (
    "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.look "
    f"<|constrain|>json<|message|>{OBJECT}<|call|>"
)


def read(reader, pieces):
    parts = [part for piece in pieces for part in reader.push(piece)]
    return joined(parts + reader.finish())


def cut(text, places):
    ends = sorted({min(place, len(text)) for place in places})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def test_every_style_is_tried():
    assert CALLS.keys() == STYLES.keys()


@pytest.mark.parametrize("name", CALLS)
def test_two_calls_behind_a_text(name):
    parts = read(TagReader(STYLES[name], SCHEMAS), [f"Let me see.\n\n{CALLS[name]}\n{CALLS[name]}\n"])
    assert parts[0] == Content("Let me see.")
    assert [(call.name, json.loads(call.arguments)) for call in parts[1:]] == [("look", ARGUMENTS)] * 2
    assert all(call.id == ("functions.look:0" if name == "kimi" else None) for call in parts[1:])


def test_the_plainer_deepseek_form():
    text = (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{OBJECT}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )
    assert read(TagReader(STYLES["deepseek"], SCHEMAS), [text]) == [Call("look", OBJECT)]


@pytest.mark.parametrize("name", CALLS)
@given(places=st.lists(st.integers(0, 400), max_size=30), end=st.integers(0, 400))
def test_how_the_text_is_cut_changes_nothing(name, places, end):
    """Also for a text that breaks off anywhere."""
    text = f" a < b <tool\n\n{CALLS[name]}\n{CALLS[name]} and <tool_ca then"[: end or None]
    whole = read(TagReader(STYLES[name], SCHEMAS), [text])
    assert read(TagReader(STYLES[name], SCHEMAS), cut(text, places)) == whole
    assert read(TagReader(STYLES[name], SCHEMAS), list(text)) == whole


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_call_stays_text(name):
    style = STYLES[name]
    text = f"{style.begin}no [call{style.end}"
    assert read(TagReader(style, SCHEMAS), list(text)) == [Content(text)]
    assert read(TagReader(style, SCHEMAS), [f"{style.begin}cut"]) == [Content(f"{style.begin}cut")]


@pytest.mark.parametrize("style", THINK_STYLES, ids=lambda style: style.name)
@given(places=st.lists(st.integers(0, 200), max_size=20), end=st.integers(0, 200))
def test_reasoning_before_calls(style, places, end):
    def reader():
        return ThinkReader(style, TagReader(STYLES["hermes"], SCHEMAS), inside=False)

    text = f"\n{style.begin}\nfirst </th, then\n{style.end}\n\nanswer {CALLS['hermes']}"
    assert [type(part) for part in read(reader(), [text])] == [Reasoning, Content, Call]
    text = text[: end or None]
    assert read(reader(), cut(text, places)) == read(reader(), [text]) == read(reader(), list(text))


def test_reasoning_that_the_prompt_has_opened():
    style = THINK_STYLES[0]
    assert opened("<think>x</think>hi<think>\n", style) and not opened("<think>\n\n</think>\n\n", style)
    inside = ThinkReader(style, PlainReader(), inside=True)
    assert read(inside, ["a</think>\nb"]) == [Reasoning("a"), Content("b")]
    assert read(ThinkReader(style, PlainReader(), inside=True), ["never ends"]) == [Reasoning("never ends")]
    assert read(ThinkReader(style, PlainReader(), inside=False), ["a</think>b"]) == [Content("a</think>b")]


@given(places=st.lists(st.integers(0, 300), max_size=30), end=st.integers(0, 300))
def test_harmony(places, end):
    def reader():
        return HarmonyReader(with_calls=True)

    assert read(reader(), [HARMONY]) == [Reasoning("Look it up."), Call("look", OBJECT)]
    assert read(reader(), [HARMONY.removesuffix("<|call|>")])[-1] == Call("look", OBJECT), "the end token has no text"
    text = (HARMONY + "<|start|>assistant<|channel|>final<|message|>Two < three<|return|>")[: end or None]
    assert read(reader(), cut(text, places)) == read(reader(), [text]) == read(reader(), list(text))


def test_harmony_without_tools_and_without_marks():
    final = "<|channel|>final<|message|>Hello."
    assert read(HarmonyReader(with_calls=False), list(final)) == [Content("Hello.")]
    assert read(HarmonyReader(with_calls=False), ["plain"]) == [Content("plain")]
    assert not any(isinstance(part, Call) for part in read(HarmonyReader(with_calls=False), [HARMONY]))
