import threading

import httpx
import openai
import pytest

import day0


def test_health_while_loading_and_after(serve, scripted_engine, tokenizer):
    gate = threading.Event()

    def load():
        gate.wait(10)
        return scripted_engine()

    served = serve(load, tokenizer, ready=False)
    health = httpx.get(f"{served.url}/health")
    assert (health.status_code, health.json()) == (503, {"status": "loading"})
    with pytest.raises(openai.InternalServerError, match="loading") as caught:
        served.openai().completions.create(model="tiny", prompt="x")
    assert caught.value.status_code == 503
    assert served.openai().models.retrieve("tiny").max_model_len is None
    assert served.metric("day0:engine_ready") == 0
    gate.set()
    while (health := httpx.get(f"{served.url}/health")).status_code != 200:
        assert health.json() == {"status": "loading"}
    assert health.json() == {"status": "ready"}


def test_models_and_version(scripted):
    served = scripted(max_model_len=77)
    client = served.openai()
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").max_model_len == 77
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other/model")
    assert httpx.get(f"{served.url}/version").json() == {"version": day0.__version__}


def test_a_step_that_never_ends_shows_in_the_health(scripted):
    served = scripted(delay=0.6, options={"stall_seconds": 0.1})
    stream = served.openai().completions.create(model="tiny", prompt=[32], max_tokens=2, stream=True)
    seen = set()
    while "no progress" not in str(seen):
        seen.add(httpx.get(f"{served.url}/health").json()["status"])
    assert len(list(stream)) == 2
    assert httpx.get(f"{served.url}/health").status_code == 200


def test_the_schema_is_served(scripted):
    paths = httpx.get(f"{scripted().url}/openapi.json").json()["paths"]
    assert set(paths["/v1/completions"]["post"]["responses"]) == {"200", "4XX", "5XX"}
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics", "/tokenize"} <= set(paths)
