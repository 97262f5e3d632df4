import asyncio

import openai
import pytest


def long(served):
    return {"model": "tiny", "max_tokens": served.worker.max_model_len - 20, "extra_body": {"ignore_eos": True}}


def test_a_client_that_leaves_its_stream_frees_its_pages(llama):
    client = llama.openai()
    stream = client.completions.create(prompt="hello", stream=True, n=4, **long(llama))
    for _, _ in zip(range(5), stream, strict=False):
        pass
    assert not llama.all_free()
    stream.close()
    llama.until_all_free()
    assert "finish=abort,abort,abort,abort" in llama.lines[-1]


def test_a_client_that_does_not_wait_for_its_answer_frees_its_pages(llama):
    client = llama.openai(timeout=0.1)
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(prompt="hello", **long(llama))
    llama.until_all_free()
    assert any("answered 499" in line for line in llama.lines[-2:])


def test_a_client_that_leaves_before_the_first_token(scripted):
    served = scripted(delay=0.3)
    with pytest.raises(openai.APITimeoutError):
        served.openai(timeout=0.1).chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=100
        )
    served.until_all_free()
    assert len(served.engine.aborted) == 1
    assert served.engine.steps <= 2


def test_thirty_two_streams_at_once_are_each_what_they_are_alone(llama):
    check_streams(llama, 32)


def test_streams_of_a_model_with_recurrent_state_do_not_mix_either(kimi):
    check_streams(kimi, 8)
    stream = kimi.openai().completions.create(prompt="hello", stream=True, n=4, **long(kimi))
    next(iter(stream))
    assert kimi.worker.stats.state_slots_free < kimi.worker.stats.state_slots_total
    stream.close()
    kimi.until_all_free()


def check_streams(served, count):
    prompts = [f"prompt number {i}: " + "ab" * (i % 7) for i in range(count)]
    options = [{"temperature": 0} if i % 2 else {"temperature": 1.2, "seed": i} for i in range(count)]

    async def one(client, i, *, stream):
        answer = await client.completions.create(
            model="tiny", prompt=prompts[i], max_tokens=20 + i % 5, stream=stream, **options[i]
        )
        if not stream:
            return answer.choices[0].text
        return "".join([chunk.choices[0].text async for chunk in answer])

    async def main():
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            alone = [await one(client, i, stream=False) for i in range(count)]
            together = await asyncio.gather(*(one(client, i, stream=True) for i in range(count)))
        assert len(set(alone)) > count // 2
        assert together == alone

    asyncio.run(main())
    served.until_all_free()


def test_after_all_that_everything_was_counted(llama):
    assert llama.metric("vllm:kv_cache_usage_perc") == 0
    assert llama.metric("vllm:num_requests_running") == 0
