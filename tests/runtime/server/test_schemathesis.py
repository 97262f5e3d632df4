"""Requests made from our own OpenAPI document, sent to a real server: nothing crashes, hangs or goes undocumented."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error, content_type_conformance, negative_data_rejection, response_schema_conformance,
    status_code_conformance,
]  # fmt: skip
SCHEMA_CODES = {"unknown_parameter", "missing_required_parameter", "invalid_json"}
"""What a request that keeps the document is never told. Other refusals depend on the model, or are of 1.0 for 1."""
GETS = ("/health", "/metrics", "/version", "/v1/models", "/v1/models/{name}", "/plan")
POSTS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


def bounded(body):
    """A valid request may ask for thousands of tokens, which is work and no defect: it is asked for less."""
    if isinstance(body, dict) and isinstance(body.get("n"), int) and body["n"] > 2:
        body["n"] = 2
    return body


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("path", POSTS)
def test_what_may_be_posted(llama, path, mode):
    operation = schemathesis.openapi.from_url(f"{llama.url}/openapi.json")[path]["POST"]

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        if mode is schemathesis.GenerationMode.POSITIVE:
            case.body = bounded(case.body)
        response = case.call_and_validate(checks=CHECKS, timeout=20)
        if mode is schemathesis.GenerationMode.POSITIVE and response.status_code == 400:
            assert response.json()["error"]["code"] not in SCHEMA_CODES

    send()
    llama.until_all_free(10)


@pytest.mark.parametrize("path", GETS)
def test_what_may_be_read(llama, path):
    operation = schemathesis.openapi.from_url(f"{llama.url}/openapi.json")[path]["GET"]

    @settings(max_examples=5, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def send(case):
        case.call_and_validate(checks=CHECKS, timeout=20)

    send()


def test_every_operation_is_tried(llama):
    document = schemathesis.openapi.from_url(f"{llama.url}/openapi.json")
    assert set(document) == {*GETS, *POSTS}
