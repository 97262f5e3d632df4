PROMPT = "The capital of France is"


def complete(served, **body):
    return served.openai().completions.create(**({"model": "tiny", "prompt": PROMPT, "temperature": 0} | body))


def test_streamed_is_whole(llama):
    whole = complete(llama, max_tokens=40)
    chunks = list(complete(llama, max_tokens=40, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text != ""
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == whole.choices[0].finish_reason
    assert set(reasons[:-1]) <= {None}
    assert len({chunk.id for chunk in chunks}) == 1 and chunks[0].id.startswith("cmpl-")


def test_usage_tells_what_was_found_in_the_cache(llama):
    prompt = list(range(60, 97))
    options = {"prompt": prompt, "max_tokens": 2}
    found = [complete(llama, **options).usage.prompt_tokens_details.cached_tokens for _ in range(2)]
    assert found == [0, 32], "two pages of 16"
    several = complete(llama, **options | {"prompt": [prompt, prompt[1:]]}, n=2).usage
    assert (several.prompt_tokens, several.prompt_tokens_details.cached_tokens) == (37 + 36, 32)


def test_usage(llama):
    whole = complete(llama, max_tokens=7, extra_body={"ignore_eos": True})
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len(PROMPT), 7)
    assert whole.usage.total_tokens == len(PROMPT) + 7
    options = {"include_usage": True}
    chunks = list(complete(llama, max_tokens=7, stream=True, stream_options=options, extra_body={"ignore_eos": True}))
    assert chunks[-1].usage == whole.usage and chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_sixteen_tokens_unless_told_otherwise(llama):
    assert complete(llama, extra_body={"ignore_eos": True}).usage.completion_tokens == 16


def test_a_seed_gives_the_same_answer_again(llama):
    drawn = {seed: complete(llama, temperature=1.5, seed=seed, max_tokens=12).choices[0].text for seed in (1, 2, -5)}
    assert len(set(drawn.values())) == 3
    for seed, text in drawn.items():
        assert complete(llama, temperature=1.5, seed=seed, max_tokens=12).choices[0].text == text


def test_choice_i_is_what_seed_plus_i_gives_alone(llama):
    together = complete(llama, temperature=1.5, seed=40, n=3, max_tokens=10)
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    for index, choice in enumerate(together.choices):
        alone = complete(llama, temperature=1.5, seed=40 + index, max_tokens=10)
        assert choice.text == alone.choices[0].text
    assert together.usage.prompt_tokens == len(PROMPT)


def test_prompts_of_every_form(llama):
    texts = ["one", "another prompt", "x"]
    with llama.http() as http:
        ids = [http.post("/tokenize", json={"prompt": text}).json()["tokens"] for text in texts]
    alone = [complete(llama, prompt=text, max_tokens=8).choices[0].text for text in texts]
    assert [choice.text for choice in complete(llama, prompt=texts, max_tokens=8).choices] == alone
    assert [choice.text for choice in complete(llama, prompt=ids, max_tokens=8).choices] == alone
    assert complete(llama, prompt=ids[1], max_tokens=8).choices[0].text == alone[1]
    pairs = complete(llama, prompt=texts, max_tokens=8, n=2).choices
    assert [choice.text for choice in pairs] == [text for text in alone for _ in range(2)]


def test_logprobs(llama):
    whole = complete(llama, max_tokens=6, logprobs=3, extra_body={"ignore_eos": True}).choices[0].logprobs
    assert len(whole.tokens) == len(whole.token_logprobs) == len(whole.top_logprobs) == 6
    for token, logprob, top in zip(whole.tokens, whole.token_logprobs, whole.top_logprobs, strict=True):
        assert top[token] == logprob == max(top.values()), "greedy takes the likeliest"
        assert 1 <= len(top) <= 4 and logprob <= 0
    assert whole.text_offset == [len("".join(whole.tokens[:i])) for i in range(6)]
    parts = [
        chunk.choices[0].logprobs
        for chunk in complete(llama, max_tokens=6, logprobs=3, stream=True, extra_body={"ignore_eos": True})
    ]
    assert [token for part in parts if part for token in part.tokens] == whole.tokens
    assert [offset for part in parts if part for offset in part.text_offset] == whole.text_offset


def test_without_logprobs_there_are_none(llama):
    assert complete(llama, max_tokens=2).choices[0].logprobs is None


def test_a_stop_string_is_cut_off_wherever_its_tokens_lie(scripted):
    served = scripted(delay=0.002)
    for stop, text in (("F", "ABCDE"), (["DEF", "ZZ"], "ABC"), ("ABC", ""), (["FGH", "EF"], "ABCD")):
        body = {"prompt": [32], "max_tokens": 26, "stop": stop}
        whole = complete(served, **body).choices[0]
        assert (whole.text, whole.finish_reason) == (text, "stop")
        chunks = list(complete(served, stream=True, **body))
        assert "".join(chunk.choices[0].text for chunk in chunks) == text
        assert chunks[-1].choices[0].finish_reason == "stop"
    served.until_all_free()
    assert len(served.engine.aborted) == 8, "the engine does not go on behind a stop string"


def test_a_stop_string_that_never_completes_is_text(scripted):
    served = scripted()
    assert complete(served, prompt=[32], max_tokens=5, stop="DEX").choices[0].text == "ABCDE"
    chunks = list(complete(served, prompt=[32], max_tokens=5, stop="DEX", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "ABCDE"


def test_a_token_that_ends_the_sequence_is_no_text_but_counts(scripted):
    served = scripted()
    answer = complete(served, prompt=[32], max_tokens=26, logprobs=0, extra_body={"stop_token_ids": [36]})
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ABCD", "stop")
    assert answer.choices[0].logprobs.tokens == ["A", "B", "C", "D"]
    assert answer.usage.completion_tokens == 5


def test_one_choice_that_stops_leaves_the_others_running(scripted):
    served = scripted(delay=0.002)
    answer = complete(served, prompt=[[32], [40]], max_tokens=6, stop="C")
    assert [choice.text for choice in answer.choices] == ["AB", "IJKLMN"]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "length"]
