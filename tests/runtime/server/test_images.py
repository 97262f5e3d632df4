"""Images in a conversation, through the official client, to the tiny Kimi K3 with its tower."""

import base64
import io

import openai
import pytest
from PIL import Image

from day0.profile.read import read_profile
from day0.runtime.server.images import Sight
from day0.runtime.tokenizer import Tokenizer
from day0.runtime.vision.images import ImageLimits
from day0.runtime.vision.preprocess_config import image_preprocessing
from day0.source.resolve import resolve


@pytest.fixture(scope="module")
def seeing(serve, load_from, tiny_kimi_k3):
    files, tokenizer = resolve(str(tiny_kimi_k3)), Tokenizer.from_folder(tiny_kimi_k3)
    vision = read_profile(files).vision
    text = tokenizer.decode([vision.placeholder_token_id], skip_special_tokens=False)
    limits = ImageLimits(max_images=2, max_pixels=10_000)
    sight = Sight(image_preprocessing(files, vision), vision.placeholder_token_id, text, limits)
    return serve(load_from(tiny_kimi_k3), tokenizer, sight=sight)


def picture(color="red", size=(40, 30)):
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


def ask(served, *parts, **body):
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    defaults = {
        "model": "tiny",
        "temperature": 0,
        "max_tokens": 4,
        "logprobs": True,
        "extra_body": {"ignore_eos": True},
    }
    return served.openai().chat.completions.create(messages=[{"role": "user", "content": content}], **(defaults | body))


def numbers(answer):
    return [token.logprob for token in answer.choices[0].logprobs.content]


def test_what_is_in_an_image_and_where_it_stands_counts(seeing):
    red, blue = image(picture()), image(picture("blue"))
    told = numbers(ask(seeing, "a", red, "b", blue))
    assert told == pytest.approx(numbers(ask(seeing, "a", red, "b", blue)), abs=1e-4)
    assert told != pytest.approx(numbers(ask(seeing, "a", blue, "b", red)), abs=1e-4)
    assert told != pytest.approx(numbers(ask(seeing, red, "a", blue, "b")), abs=1e-4)


def test_tokens_of_images_count_and_choices_share_them(seeing):
    small, large = (ask(seeing, "a", image(picture(size=size)), n=2).usage for size in ((28, 28), (90, 90)))
    assert large.prompt_tokens > small.prompt_tokens
    seeing.until_all_free(5.0)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((image("data:image/png;base64,AAAA"),), "image 0"),
        ((image("https://example.com/a.png"),), "not fetched"),
        ((image("file:///etc/passwd"),), "not fetched"),
        ((image(picture(size=(200, 200))),), "pixels"),
        ((image(picture()),) * 3, "3 images"),
        ((image(picture()), "<|image|>"), "placeholders"),
    ],
)
def test_what_cannot_be_seen_is_refused(seeing, parts, words):
    with pytest.raises(openai.BadRequestError, match=words):
        ask(seeing, *parts)


def test_a_model_without_vision(llama):
    with pytest.raises(openai.BadRequestError, match="takes no images") as caught:
        ask(llama, "a", image(picture()))
    assert caught.value.code == "no_vision"
