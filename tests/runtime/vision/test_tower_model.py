"""Towers built of parts, against transformers: float32 logits of prompts with images, family by family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from closeness import relative_error
from safetensors.torch import load_file, save_file
from vision_models import CLOSE, IMAGE, OPEN, SMALL, Picture, make_vision_model, picture, picture_logits

from day0.errors import InputError
from day0.plan.settings import EngineSettings
from day0.profile.profile import VisionTower
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors
from day0.runtime.batch import ImageSpan, Request, SamplingParams
from day0.runtime.engine.engine import Engine, RequestRefused
from day0.runtime.engine.load import load_engine
from day0.runtime.trace import Trace
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.prompt import expand_placeholders, image_spans
from day0.source.resolve import resolve

LIMIT = 1e-5


def engine_over(folder: Path, **settings: object) -> Engine:
    files = resolve(str(folder))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert comparison.missing == (), comparison
    options = {"device": "cpu", "dtype": "float32", "runtime": "native", "max_model_len": 128, "page_size": 16}
    return load_engine(files, profile, EngineSettings(**options | settings))


def shown(engine: Engine, pictures: list[Picture]) -> tuple[list[int], tuple[ImageSpan, ...]]:
    """A prompt with pictures between marks and words, and their embeddings in it."""
    assert isinstance(engine.vision, ImageEncoder)
    raw = [5, 6, 7]
    for index in range(len(pictures)):
        raw += [OPEN, IMAGE, CLOSE, 20 + index, 30]
    grids = [one.grid for one in pictures]
    merge = engine.vision.spec.merge
    cells = [(rows // merge[0], columns // merge[1]) for _, rows, columns in grids]
    prompt = expand_placeholders(raw, [rows * columns for rows, columns in cells], IMAGE)
    embeddings = engine.vision.encode(torch.cat([one.pixels for one in pictures]), grids) if pictures else []
    return list(prompt.token_ids), image_spans(prompt, embeddings, cells)


SIZES = ((4, 6), (10, 8), (2, 2))
"""Rows and columns of the pictures: below and above the learnt grid and the window, and a single token."""

Pair = tuple[transformers.PreTrainedModel, Engine, list[Picture]]


@pytest.fixture(scope="module", params=SMALL)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model in transformers, our engine over the same files, and pictures for them."""
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    model = make_vision_model(kind, folder)
    return model, engine_over(folder), [picture(kind, *size, seed) for seed, size in enumerate(SIZES)]


def test_logits_of_one_and_several_pictures(pair: Pair) -> None:
    model, engine, pictures = pair
    for chosen in ([pictures[0]], pictures, pictures[::-1]):
        ids, spans = shown(engine, chosen)
        wanted = picture_logits(model, ids, chosen)
        found = engine.forward(ids, images=spans)
        assert relative_error(found, wanted) < LIMIT
        for chunk in (1, 5, 16):
            assert relative_error(engine.forward(ids, images=spans, chunk=chunk), wanted) < LIMIT, f"chunks of {chunk}"
    ids, (first, *others) = shown(engine, [pictures[0], pictures[0]])
    other = replace(first, embeddings=first.embeddings.flip(0))
    straight, turned = (engine.forward(ids, images=(one, *others)) for one in (first, other))
    assert relative_error(turned, straight) > 0.01


def test_pictures_packed_together_do_not_see_each_other(pair: Pair) -> None:
    _, engine, pictures = pair
    assert isinstance(engine.vision, ImageEncoder)
    together = engine.vision.encode(torch.cat([one.pixels for one in pictures]), [one.grid for one in pictures])
    for one, among in zip(pictures, together, strict=True):
        (alone,) = engine.vision.encode(one.pixels, [one.grid])
        assert alone.shape[1] == engine.vision.width
        assert relative_error(among, alone) < 1e-6


def test_answers_go_on_where_the_prompt_ends(pair: Pair) -> None:
    """Greedy tokens are those of whole forwards; requests in one batch, with pictures and without, as each alone."""
    model, engine, pictures = pair
    params = SamplingParams(max_tokens=5, ignore_eos=True, logprobs=1)
    requests = []
    for index, chosen in enumerate((pictures, [pictures[1]], [])):
        ids, spans = shown(engine, chosen)
        requests.append(Request(str(index), tuple(ids), params, spans))
        if chosen:
            (answer,) = engine.generate([requests[-1]])
            logits = picture_logits(model, [*ids, *answer.token_ids[:-1]], chosen)
            assert tuple(logits[-5:].argmax(-1).tolist()) == answer.token_ids
    together = engine.generate(requests)
    for request, among in zip(requests, together, strict=True):
        (alone,) = engine.generate([request])
        assert alone.token_ids == among.token_ids
        assert alone.logprobs == pytest.approx(among.logprobs, abs=1e-5)
        assert alone.reused >= (len(request.prompt_ids) - 1) // 16 * 16, "pages of the same pictures are found again"


@pytest.fixture(scope="module")
def moon(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("moon")
    model = make_vision_model("kimi_k25", folder)
    return model, engine_over(folder), [picture("kimi_k25", 4, 6, 0, frames=3)]


def test_clips_where_the_tower_knows_frames(moon: Pair) -> None:
    model, engine, clips = moon
    ids, spans = shown(engine, clips)
    assert relative_error(engine.forward(ids, images=spans), picture_logits(model, ids, clips)) < LIMIT


def test_clips_elsewhere_are_refused(pair: Pair) -> None:
    _, engine, _ = pair
    assert isinstance(engine.vision, ImageEncoder)
    frames = engine.vision.spec.position_frames + 1
    pixels = torch.zeros(frames * 4, 3, 2, 4, 4)
    with pytest.raises(InputError, match=f"{frames} frames, the tower knows positions for {frames - 1}"):
        engine.vision.encode(pixels, [(frames, 2, 2)])


def test_trace_names_every_stretch_once_in_order(pair: Pair) -> None:
    _, engine, pictures = pair
    assert isinstance(engine.vision, ImageEncoder) and isinstance(engine.vision.spec, VisionTower)
    kept, spec = Trace(), engine.vision.spec
    engine.vision.encode(pictures[0].pixels, [pictures[0].grid], kept)
    wanted = ["vision.patch_embed"]
    for block in range(spec.num_layers):
        wanted.append(f"vision.blocks.{block}.output")
        if block in spec.deepstack:
            wanted.append(f"vision.deepstack.{spec.deepstack.index(block)}")
    wanted += ["vision.final_norm"] if spec.kind == "moonvit" else []
    assert list(kept.tensors) == [*wanted, "vision.merged", "vision.projected"]
    (merge,) = (part for part in spec.stages[-1 - bool(spec.deepstack)].parts if getattr(part, "cell", None) == (2, 2))
    assert kept.tensors["vision.merged"].shape == (6, 4, merge.width)
    assert kept.tensors["vision.projected"].shape == (6, spec.output_size)


def test_files_without_the_tower_are_the_text_model(tmp_path: Path) -> None:
    make_vision_model("qwen3_vl", tmp_path)
    path = tmp_path / "model.safetensors"
    text = {name: tensor for name, tensor in load_file(path).items() if ".visual." not in name}
    save_file(text, path, metadata={"format": "pt"})
    files = resolve(str(tmp_path))
    engine = load_engine(files, read_profile(files), EngineSettings(device="cpu", dtype="float32", runtime="native"))
    assert engine.vision is None
    assert engine.forward([5, 6, 7]).isfinite().all()


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (ImageSpan(1, torch.zeros(4, 96)), "vectors of 96 channels, the model reads 144"),
        (ImageSpan(9, torch.zeros(4, 144)), "tokens 9 to 13 overlap with another or leave the prompt"),
        (ImageSpan(2, torch.zeros(4, 144), (2, 3)), r"4 tokens do not lie in rows and columns \(2, 3\)"),
    ],
)
def test_images_that_do_not_fit_are_refused(tmp_path: Path, span: ImageSpan, message: str) -> None:
    make_vision_model("qwen3_vl", tmp_path)
    engine = engine_over(tmp_path)
    with pytest.raises(RequestRefused, match=message):
        engine.add(Request("a", tuple(range(10)), images=(span,)))
    with pytest.raises(RequestRefused, match=message):
        engine.forward(list(range(10)), images=(span,))
