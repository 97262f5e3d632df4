"""Two profiles side by side: every field that differs, and none that does not."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.report.inspect_diff import diff_profiles
from day0.source.resolve import resolve

LLAMA = read_profile(resolve("recipe:llama-3.1-8b"))
KIMI = read_profile(resolve("recipe:kimi-k3"))


def fields(this: ArchitectureProfile, other: ArchitectureProfile) -> dict[str, tuple[object, object]]:
    return {entry.field: (entry.this, entry.other) for entry in diff_profiles(this, other, "other").fields}


def test_one_changed_field_is_the_only_difference() -> None:
    assert fields(LLAMA, LLAMA) == {}
    assert fields(replace(LLAMA, vocab_size=7), LLAMA) == {"vocab_size": ((7,), (LLAMA.vocab_size,))}


def test_one_changed_layer_shows_both_values_and_the_new_size() -> None:
    first = LLAMA.layers[0]
    windowed = replace(first, mixer=replace(first.mixer, window=512))
    changed = replace(LLAMA, layers=(windowed, *LLAMA.layers[1:]))
    assert fields(changed, LLAMA) == {"mixer.gqa.window": ((512, None), None)}
    diff = diff_profiles(changed, LLAMA, "other")
    assert diff.resized_operators == ("paged_gqa_attention",)
    sizes = {size.name: (size.this, size.other) for size in diff.sizes}
    assert sizes["cache.window_bytes_per_sequence"] == (512 * 4096, 0)


def test_parts_that_only_one_has() -> None:
    found = fields(KIMI, LLAMA)
    assert found["mixer.kda.layers"] == ((69,), None)
    assert found["mixer.gqa.layers"] == (None, (32,))
    assert found["residual"] == (("attention_residual",), ("plain",))
    assert found["quantization.groups"] == (("routed_experts: mxfp4",), None)
    assert found["vision.patch_size"] == ((14,), None)


def test_a_model_that_nobody_explains_has_fields_and_no_sizes() -> None:
    diff = diff_profiles(replace(LLAMA, family=None, layers=()), LLAMA, "other")
    assert diff.sizes == ()
    assert "rms_norm" in diff.dropped_operators
