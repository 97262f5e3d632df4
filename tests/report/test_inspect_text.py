"""What a person sees of an inspection: everything that matters, on one screen, at any width."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from day0.cli.inspect import inspect_document
from day0.coverage import judge, load_whitelist
from day0.errors import Finding
from day0.inventory import take_inventory
from day0.profile.read import read_profile
from day0.report.inspect_diff import diff_profiles
from day0.report.inspect_document import InspectDocument
from day0.report.inspect_text import layers_text, render
from day0.source.resolve import resolve


@pytest.fixture(scope="module")
def report() -> Callable[..., InspectDocument]:
    whitelist = load_whitelist()

    def make(model: str, other: str | None = None) -> InspectDocument:
        files = resolve(model)
        profile = read_profile(files)
        inventory = take_inventory(profile)
        coverage = judge(inventory.needs, whitelist, "cpu")
        diff = diff_profiles(profile, read_profile(resolve(other)), other) if other else None
        return inspect_document(files, profile, None, inventory, coverage, diff, time.perf_counter())

    return make


def shown(document: InspectDocument, width: int = 100) -> str:
    console = Console(width=width, file=StringIO(), record=True, markup=False, emoji=False, highlight=False)
    render(document, console)
    return console.export_text()


@pytest.mark.parametrize("width", (80, 120))
@pytest.mark.parametrize("recipe", ("kimi-k3", "qwen3-30b-a3b", "llama-3.1-8b"))
def test_one_screen_at_any_width(report, recipe: str, width: int) -> None:
    lines = shown(report(f"recipe:{recipe}"), width).splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= width


def test_the_facts_of_a_large_model(report) -> None:
    text = shown(report("recipe:kimi-k3"), 120)
    for fact in (
        "2.78T parameters, 105B active",
        "93: 69 kda + 24 mla; 1 dense + 92 moe; attention residual",
        "896 in each of 92 layers, 16 per token",
        "mxfp4 1.316 TiB",
        "27 KiB a token in bf16, 428.6 MiB of state a sequence",
        "1,048,576 tokens (text_config.max_position_embeddings)",
        "27 layers of 1024, patch 14",
    ):
        assert fact in text, fact


def test_ordinary_parts_are_told_apart_from_the_others(report) -> None:
    plain = shown(report("recipe:llama-3.1-8b"), 200)
    assert "as in any decoder: embedding_lookup" in plain
    assert plain.count("verified  ") == 1
    unusual, ordinary = (line for line in shown(report("recipe:qwen3-0.6b"), 300).splitlines() if "verified  " in line)
    assert "qk_norm" in unusual and "as in any decoder" in ordinary


def test_what_is_lacking_comes_first_with_its_sizes(report) -> None:
    document = report("recipe:qwen3-0.6b")
    worse = {
        "qk_norm": replace(
            next(o for o in document.operators if o.name == "qk_norm"),
            status="gap", provider=None, reason="nobody offers it on any device",
        ),
        "lm_head": replace(
            next(o for o in document.operators if o.name == "lm_head"),
            status="unverified", provider="acme", reason="not measured in bfloat16",
        ),
    }  # fmt: skip
    operators = tuple(worse.get(operator.name, operator) for operator in document.operators)
    lines = shown(replace(document, operators=operators), 160).splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("Operators")) + 1 :]
    need = "qk_norm (heads 16, kv_heads 8, head_dim 128) in layers 0-27: nobody offers it on any device"
    assert table[0].strip().split(maxsplit=1) == ["gap", need]
    assert table[1].split() == ["unverified", "lm_head"]
    assert "acme: not measured in bfloat16" in table[2]


def test_an_unknown_family_shows_what_is_known(report, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "qwen4", "max_position_embeddings": 77, "[bold]new[/bold]": 1, "hidden_size": 8}')
    text = shown(report(str(path)), 200)
    assert "unknown family (qwen4, nearest qwen3)" in text
    assert "77 tokens" in text
    assert "[bold]new[/bold]" in text, "a stranger's words are text, not markup"
    assert "Describe the family" in text and "starting from qwen3" in text
    assert "day0 plan" not in text and "Operators" not in text


def test_many_findings_are_cut_and_the_rest_is_announced(report) -> None:
    findings = tuple(Finding("x", "warning", f"place {n}", f"trouble {n}", "do this") for n in range(12))
    text = shown(replace(report("recipe:llama-3.1-8b"), findings=findings))
    assert "trouble 7" in text and "trouble 8" not in text
    assert "and 4 more" in text
    assert "place 0 · do this" in text


def test_a_difference_is_told_by_part(report) -> None:
    text = shown(report("recipe:qwen3-30b-a3b", "recipe:llama-3.1-8b"), 140)
    assert "Against recipe:llama-3.1-8b" in text
    assert "params.total" in text and "x 3.8" in text
    assert "mixer.gqa: num_heads 32" not in text, "what is alike is not shown"
    assert "num_kv_heads 4 (there 8)" in text
    assert "feed_forward.moe: router.num_experts 128" in text


@pytest.mark.parametrize(
    ("layers", "text"),
    (
        ((), "no decoder layer"),
        ((3,), "layer 3"),
        ((0, 1, 2, 7), "layers 0-2, 7"),
        (tuple(range(0, 40, 4)), "10 layers from 0 to 36"),
    ),
)
def test_layers(layers: tuple[int, ...], text: str) -> None:
    assert layers_text(layers) == text
