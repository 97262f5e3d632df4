"""Trace points of linear mixers against docs/trace-points.md: names, order and shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from linear_models import config_of, prompt, write_model
from test_trace_points import sections

from day0.profile.profile import LayerSpec
from day0.runtime.engine.engine import Engine
from day0.runtime.trace import Trace

TOKENS = 5
MODELS = {
    "qwen3_next": "gated_deltanet",
    "minimax": "lightning",
    "jamba": "mamba",
    "bamba": "mamba2",
    "falcon_h1 norm": "gqa_mamba2",
    "lfm2": "short_conv",
}
"""By model, the kind of mixer that is looked at."""


def page_rows(kind: str) -> dict[str, list[str]]:
    page = sections()
    if kind != "gqa_mamba2":
        return page[f"Mixer {kind}"]
    shares = page[f"Mixer {kind}"]
    rows: dict[str, list[str]] = {}
    for part, share in (("mamba2", "mixer.state_space_out"), ("gqa", "mixer.attention_out")):
        rows |= {**page[f"Mixer {part}"], share: shares[share]}
    return rows


def sizes(layer: LayerSpec) -> dict[str, set[int]]:
    """What the words of the page stand for; a word may mean one thing in each of two mixers side by side."""
    spec: Any = layer.mixer
    parts = (spec.attention, spec.state_space) if spec.kind == "gqa_mamba2" else (spec,)
    renamed = {"num_heads": "heads", "num_kv_heads": "kv_heads", "num_groups": "groups"}
    renamed |= {"num_key_heads": "key_heads", "num_value_heads": "value_heads"}
    renamed |= {"key_head_dim": "key_dim", "value_head_dim": "value_dim"}
    known: dict[str, set[int]] = {"tokens": {TOKENS}, "hidden": {64}}
    for part in parts:
        for name in (*type(part).__dataclass_fields__, "width", "conv_width", "value_dim"):
            if isinstance(value := getattr(part, name, None), int):
                known.setdefault(renamed.get(name, name), set()).add(value)
        if hasattr(part, "conv_kernel"):
            known["past_taps"] = {part.conv_kernel - 1}
    return known


@pytest.mark.parametrize("name", MODELS)
def test_names_order_and_shapes_are_those_of_the_page(
    name: str, tmp_path: Path, make_engine: Callable[..., Engine]
) -> None:
    profile = write_model(config_of(name), tmp_path)
    layer = next(layer for layer in profile.layers if layer.mixer.kind == MODELS[name])
    kept = Trace()
    make_engine(tmp_path).forward(prompt(TOKENS), trace=kept)
    prefix = f"layers.{layer.index}."
    found = {n.removeprefix(prefix): t for n, t in kept.tensors.items() if n.startswith(f"{prefix}mixer.")}
    rows = page_rows(MODELS[name])
    optional = {"mixer.gate"} if MODELS[name] == "gqa_mamba2" else set()
    assert list(found) == [row for row in rows if row in found]
    assert rows.keys() - found.keys() <= optional
    known = sizes(layer)
    for row, tensor in found.items():
        assert len(rows[row]) == tensor.dim(), row
        for word, size in zip(rows[row], tensor.shape, strict=True):
            assert size in known[word], f"{row}: {word}"


def test_a_layer_of_one_branch_has_no_names_of_the_other(tmp_path: Path, make_engine: Callable[..., Engine]) -> None:
    profile = write_model(config_of("nemotron_h"), tmp_path)
    kept = Trace()
    make_engine(tmp_path).forward(prompt(TOKENS), trace=kept)
    for layer in profile.layers:
        own = [name for name in kept.tensors if re.match(rf"layers\.{layer.index}\.(mixer|ffn)", name)]
        branches = {re.split(r"[._]", name.removeprefix(f"layers.{layer.index}."))[0] for name in own}
        assert branches == ({"mixer"} if layer.feed_forward.kind == "none" else {"ffn"})
