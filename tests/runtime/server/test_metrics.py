import httpx
from prometheus_client.parser import text_string_to_metric_families

from day0.runtime.server.metrics import RequestRecord


def test_what_was_done_is_counted(scripted):
    served = scripted()
    client = served.openai()
    client.completions.create(model="tiny", prompt=[32], max_tokens=5)
    client.completions.create(model="tiny", prompt=[32, 0], max_tokens=7, n=2)
    assert served.metric("vllm:generation_tokens_total") == 19
    assert served.metric("vllm:request_success_total") == 3
    assert served.metric("vllm:e2e_request_latency_seconds_count") == 2
    assert served.metric("vllm:time_to_first_token_seconds_count") == 2
    assert served.metric("vllm:request_prompt_tokens_sum") == 3
    assert served.metric("vllm:request_generation_tokens_sum") == 19
    assert served.metric("vllm:num_requests_running") == 0
    assert served.metric("day0:engine_ready") == 1


def test_running_and_waiting_show_while_they_are(scripted):
    served = scripted(delay=0.02, max_running=2)
    stream = served.openai().completions.create(model="tiny", prompt=[32], n=5, max_tokens=200, stream=True)
    next(iter(stream))
    assert served.metric("vllm:num_requests_running") == 2
    assert served.metric("vllm:num_requests_waiting") == 3
    assert served.metric("vllm:kv_cache_usage_perc") == 0.25
    stream.close()


def test_a_real_scraper_can_read_it(llama):
    text = httpx.get(f"{llama.url}/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["vllm:num_requests_running"].type == "gauge"
    assert families["vllm:prompt_tokens"].type == "counter"
    assert families["vllm:time_to_first_token_seconds"].type == "histogram"
    assert all(sample.labels["model_name"] == "tiny" for family in families.values() for sample in family.samples)


def test_two_servers_do_not_share_their_counts(scripted):
    first, second = scripted(), scripted()
    first.openai().completions.create(model="tiny", prompt=[32])
    assert first.metric("vllm:e2e_request_latency_seconds_count") == 1
    assert second.metric("vllm:e2e_request_latency_seconds_count") == 0


def test_the_line_of_a_request():
    record = RequestRecord("abc", 41, 8, ("stop", "length"), 0.0521, 0.31)
    assert record.line() == "request abc prompt=41 generated=8 finish=stop,length ttft=52ms total=310ms"
    none = RequestRecord("abc", 41, 0, ("abort",), None, 0.31)
    assert "ttft=- " in none.line()
