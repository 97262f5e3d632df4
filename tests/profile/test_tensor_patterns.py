"""Names grouped into patterns: counts and bytes add up, odd names survive, half a million take seconds at most."""

from __future__ import annotations

from day0.profile.tensor_patterns import MAX_NAMES, group_tensors, patterns_of, told_briefly
from day0.source.model_files import TensorHeader


def test_numbers_between_dots_become_stars() -> None:
    names = ["a.0.b.12.w", "a.3", "conv1.weight", "x.1b.w", "12.a", "line\nbreak.7.w"]
    assert patterns_of(names) == ["a.*.b.*.w", "a.*", "conv1.weight", "x.1b.w", "12.a", "line\nbreak.*.w"]
    assert patterns_of([]) == []


def test_groups_keep_dtype_shape_and_bytes() -> None:
    tensors = {f"layers.{i}.w": TensorHeader("BF16", (2, 3), "s", 0, 12) for i in range(5)}
    tensors["layers.9.w"] = TensorHeader("F32", (2, 3), "s", 0, 24)
    wide, narrow = sorted(group_tensors(tensors), key=lambda group: group.tensors)
    assert (wide.pattern, wide.dtype, wide.tensors, wide.bytes) == ("layers.*.w", "F32", 1, 24)
    assert (narrow.shape, narrow.tensors, narrow.bytes, narrow.first) == ((2, 3), 5, 60, "layers.0.w")
    assert [group.tensors for group in group_tensors(tensors, ["layers.9.w", "gone"])] == [1]


def test_long_lists_are_told_by_pattern() -> None:
    names = [f"layers.{i}.w" for i in range(MAX_NAMES + 1)]
    assert told_briefly(names[:-1]) == tuple(names[:-1])
    assert told_briefly(names) == (f"layers.*.w ({MAX_NAMES + 1} tensors)",)


def test_half_a_million_names_are_grouped() -> None:
    header = TensorHeader("U8", (4, 4), "s", 0, 16)
    tensors = {
        f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight": header
        for layer in range(90)
        for expert in range(900)
        for part in ("up", "down", "gate", "a", "b", "c")
    }
    assert sum(group.tensors for group in group_tensors(tensors)) == len(tensors) > 480_000
