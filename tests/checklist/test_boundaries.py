"""Lengths around every size of a model."""

from __future__ import annotations

from day0.checklist.boundaries import RECURRENCE_CHUNK, boundary_lengths, model_sizes
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.resolve import resolve


def profile_of(recipe: str) -> ArchitectureProfile:
    return read_profile(resolve(f"recipe:{recipe}"))


def test_windows_kernels_blocks_and_ratios_are_found() -> None:
    sizes = model_sizes(profile_of("kimi-k3"))
    assert {4, RECURRENCE_CHUNK} <= set(sizes)
    assert {4, 128} <= set(model_sizes(profile_of("deepseek-v4-pro")))
    assert model_sizes(profile_of("llama-3.1-8b")) == ()


def test_both_sides_of_every_size_and_every_residue() -> None:
    lengths = boundary_lengths({16, 24}, 100)
    assert {15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 99, 100} <= set(lengths)
    assert {length % 16 for length in lengths} == set(range(16))
    assert all(1 <= length <= 100 for length in lengths)
    assert boundary_lengths({16}, 3) == (1, 2, 3)
