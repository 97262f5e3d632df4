import httpx


class Broken:
    """A tokenizer with a defect."""

    eos_token_ids = ()
    has_chat_template = True
    chat_template = ""
    longest_token = 10

    def encode(self, text, *, add_special_tokens):
        raise ZeroDivisionError("a secret of ours")


def test_a_defect_is_a_500_in_the_apis_form_and_the_server_goes_on(serve, scripted_engine):
    served = serve(scripted_engine, Broken())
    with served.http() as http:
        for _ in range(2):  # on the same connection
            answer = http.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-Id": "mine"})
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "internal_error"
            assert "secret" not in answer.text
            assert answer.headers["X-Request-Id"] == "mine"
    assert any("Traceback" in line and "a secret of ours" in line for line in served.lines)
    assert httpx.get(f"{served.url}/health").status_code == 200


def test_no_origin_is_allowed_unasked(scripted):
    answer = httpx.get(f"{scripted().url}/v1/models", headers={"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers
