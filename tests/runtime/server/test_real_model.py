"""SmolLM2-135M-Instruct, trained weights, asked through the official client."""

from functools import partial
from pathlib import Path

import pytest

from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.load import load_engine
from day0.runtime.tokenizer import Tokenizer
from day0.source.resolve import resolve

FOLDER = Path(__file__).parents[3] / "models" / "smollm2-135m-instruct"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER / "config.json").exists(), reason="scripts/fetch_smollm2.py makes the model"),
]


@pytest.fixture(scope="module")
def smollm2(serve):
    files = resolve(str(FOLDER))
    load = partial(load_engine, files, read_profile(files), EngineSettings(device="cpu"))
    return serve(load, Tokenizer.from_folder(FOLDER), "smollm2")


def ask(served, **body):
    return served.openai(timeout=120).chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=32,
        **body,
    )


def test_the_capital_of_france(smollm2):
    whole = ask(smollm2).choices[0]
    assert "Paris" in whole.message.content
    assert whole.finish_reason == "stop"
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(smollm2, stream=True))
    assert streamed == whole.message.content


def test_a_plain_prompt(smollm2):
    answer = smollm2.openai(timeout=120).completions.create(
        model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0
    )
    assert "Paris" in answer.choices[0].text
