import pytest


@pytest.fixture(scope="module")
def http(llama):
    with llama.http() as client:
        yield client


def test_there_and_back(http, llama):
    text = "Grüße, 世界! 🎈"
    answer = http.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"]) == len(text.encode())
    assert answer["max_model_len"] == llama.worker.max_model_len
    assert http.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": text}


def test_a_text_longer_than_the_context_can_be_counted(http, llama, tokenizer):
    text = "x" * (tokenizer.longest_token * (llama.worker.max_model_len + 2))
    assert http.post("/tokenize", json={"prompt": text}).json()["count"] == len(text)


def test_messages_go_through_the_template(http, tokenizer):
    messages = [{"role": "user", "content": "hi"}]
    answer = http.post("/tokenize", json={"model": "tiny", "messages": messages}).json()
    assert answer["tokens"] == tokenizer.chat_ids(messages)
    without = http.post("/tokenize", json={"messages": messages, "add_generation_prompt": False}).json()
    assert without["count"] < answer["count"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("/detokenize", {"tokens": [1, 10**9]}, "tokens[1]"),
        ("/detokenize", {"tokens": ["x"]}, "tokens[0]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
    ],
)
def test_what_cannot_be_done_is_said(http, path, body, param):
    answer = http.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
