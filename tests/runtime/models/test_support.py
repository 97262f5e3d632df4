"""A field of a spec that no block acts on is refused, not passed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.errors import CannotSay
from day0.plan.settings import EngineSettings
from day0.profile.feed_forward import ActivationSpec, DenseFeedForward, RoutedExperts, RouterMlp
from day0.profile.grouped_query import GroupedQueryAttention
from day0.profile.positions import RopeSpec
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.residuals import AffineResidual
from day0.runtime.engine.load import load_engine
from day0.runtime.models.support import missing_part
from day0.source.resolve import recipe_names, resolve


def profile_of(recipe: str) -> ArchitectureProfile:
    return read_profile(resolve(f"recipe:{recipe}"))


def with_layer(profile: ArchitectureProfile, **changes: Any) -> ArchitectureProfile:
    return replace(profile, layers=(*profile.layers[:-1], replace(profile.layers[-1], **changes)))


@pytest.mark.parametrize("recipe", recipe_names())
def test_native_models_are_done_whole(recipe: str) -> None:
    profile = profile_of(recipe)
    assert not profile.native or missing_part(profile) is None


def gqa(change: dict[str, Any]) -> Callable[[], ArchitectureProfile]:
    def make() -> ArchitectureProfile:
        profile = profile_of("llama-3.1-8b")
        mixer = profile.layers[-1].mixer
        assert isinstance(mixer, GroupedQueryAttention)
        return with_layer(profile, mixer=replace(mixer, **change))

    return make


def dense(change: dict[str, Any]) -> Callable[[], ArchitectureProfile]:
    def make() -> ArchitectureProfile:
        profile = profile_of("llama-3.1-8b")
        block = profile.layers[-1].feed_forward
        assert isinstance(block, DenseFeedForward)
        return with_layer(profile, feed_forward=replace(block, **change))

    return make


def router(change: dict[str, Any]) -> Callable[[], ArchitectureProfile]:
    def make() -> ArchitectureProfile:
        profile = profile_of("mixtral-8x7b")
        block = profile.layers[-1].feed_forward
        assert isinstance(block, RoutedExperts)
        return with_layer(profile, feed_forward=replace(block, router=replace(block.router, **change)))

    return make


def experts(change: dict[str, Any]) -> Callable[[], ArchitectureProfile]:
    def make() -> ArchitectureProfile:
        profile = profile_of("mixtral-8x7b")
        block = profile.layers[-1].feed_forward
        assert isinstance(block, RoutedExperts)
        return with_layer(profile, feed_forward=replace(block, **change))

    return make


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (gqa({"rope": RopeSpec(1e4, 128, scaling="longrope")}), "without original_max_position_embeddings"),
        (gqa({"rope": RopeSpec(1e4, 128, sections=(8, 12, 12))}), "for 64 pairs"),
        (gqa({"rope": RopeSpec(1e4, 128, scaling="dynamic", parameters=(("factor", 2.0),))}), "without trained_length"),
        (dense({"gated": False, "activation": ActivationSpec("situ", 4.0)}), "not gated"),
        (dense({"activation": ActivationSpec("relu2")}), "relu2"),
        (experts({"expert_norm": True}), "expert_norm"),
        (router({"global_scale": True}), "global_scale"),
        (router({"mlp": RouterMlp(8, carried=False)}), "mlp"),
        (router({"skip": True}), "skip"),
        (lambda: with_layer(profile_of("llama-3.1-8b"), norms=("mixer_norm", "odd_norm")), "odd_norm"),
        (lambda: with_layer(profile_of("llama-3.1-8b"), residual=AffineResidual()), "affine"),
    ],
)
def test_what_no_block_does_is_named(make: Callable[[], ArchitectureProfile], named: str) -> None:
    missing = missing_part(make())
    assert missing is not None
    assert named in missing


def test_such_a_model_is_not_loaded(tiny_llama: Path) -> None:
    files = resolve(str(tiny_llama))
    changed = with_layer(read_profile(files), residual=AffineResidual())
    with pytest.raises(CannotSay, match="affine"):
        load_engine(files, changed, EngineSettings(device="cpu", runtime="native"))
