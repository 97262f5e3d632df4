import json
import shutil

import httpx
import openai
import pytest

from day0.runtime.tokenizer import Tokenizer

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of France?"}]


def chat(served, **body):
    return served.openai().chat.completions.create(
        **({"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 24} | body)
    )


def test_streamed_is_whole(llama):
    whole = chat(llama)
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.content
    chunks = list(chat(llama, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


def test_the_stream_as_bytes(llama):
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 2, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{llama.url}/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = response.read().decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert all("usage" not in chunk for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"
    assert chunks[0]["choices"][0]["finish_reason"] is None, "null is said, not left out"


def test_the_prompt_is_the_templates(llama, tokenizer):
    expected = len(tokenizer.chat_ids(MESSAGES))
    assert chat(llama).usage.prompt_tokens == expected
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of France?"}]
    split = chat(llama, messages=[MESSAGES[0], {"role": "user", "content": parts}])
    assert split.usage.prompt_tokens == expected


def test_several_choices_streamed_and_whole(llama):
    whole = chat(llama, n=3, seed=7, temperature=1.5)
    texts = ["", "", ""]
    for chunk in chat(llama, n=3, seed=7, temperature=1.5, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3


def test_logprobs(llama):
    content = chat(llama, logprobs=True, top_logprobs=2, max_tokens=5).choices[0].logprobs.content
    assert len(content) in (4, 5)
    for token in content:
        assert len(token.top_logprobs) == 2
        assert token.logprob == token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert token.bytes is None or bytes(token.bytes).decode() == token.token
    streamed = [
        token
        for chunk in chat(llama, logprobs=True, top_logprobs=2, max_tokens=5, stream=True)
        if chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content
    ]
    assert [token.token for token in streamed] == [token.token for token in content]
    assert [token.logprob for token in streamed] == pytest.approx([token.logprob for token in content], abs=1e-4)
    assert chat(llama, max_tokens=2).choices[0].logprobs is None


def test_usage_of_a_stream(llama):
    whole = chat(llama)
    chunks = list(chat(llama, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage == whole.usage and chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_two_names_of_the_limit(llama):
    ignore = {"ignore_eos": True}
    new = chat(llama, max_tokens=openai.omit, max_completion_tokens=3, extra_body=ignore)
    assert new.usage.completion_tokens == 3
    with pytest.raises(openai.BadRequestError, match="differ"):
        chat(llama, max_tokens=3, max_completion_tokens=4)


def test_without_a_limit_the_context_may_be_filled(scripted):
    served = scripted(max_model_len=90)
    answer = chat(served, messages=[{"role": "user", "content": "hi"}], max_tokens=openai.omit)
    assert answer.usage.total_tokens == 90


def test_a_model_without_a_template_takes_no_messages(serve, scripted_engine, tiny_llama, tmp_path):
    folder = tmp_path / "plain"
    shutil.copytree(tiny_llama, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    served = serve(scripted_engine, Tokenizer.from_folder(folder))
    with pytest.raises(openai.BadRequestError, match="no chat template") as caught:
        chat(served)
    assert caught.value.code == "no_chat_template"
    assert served.openai().completions.create(model="tiny", prompt="hi").choices[0].text
