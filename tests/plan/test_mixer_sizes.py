"""Every mixer there is has a size for the planner, and what a rank keeps is what the profile says."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import get_args

import pytest

from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import Layout
from day0.plan.memory import rank_cache
from day0.plan.mixer_sizes import SIZED_MIXERS, head_cuts, mixer_elements, mixer_flops
from day0.plan.plan import Planner
from day0.plan.search import search
from day0.plan.workload import make_workload
from day0.profile.cache_sizes import cache_sizes, token_bytes
from day0.profile.mixers import Mixer
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles


def corpus(shared: Path) -> list[ArchitectureProfile]:
    profiles = []
    for path in sorted((shared / "model_configs").glob("*/config.json")):
        config = json.loads(path.read_text())
        files = ModelFiles(path.parent.name, None, "config", path.parent, config, "config.json", None, (), (), {})
        profiles.append(read_profile(files))
    return [profile for profile in profiles if profile.layers]


def test_no_kind_of_mixer_is_without_a_size() -> None:
    assert set(get_args(Mixer)) == set(SIZED_MIXERS)


def test_a_rank_keeps_what_the_profile_says(shared: Path) -> None:
    """One formula: alone, a rank's bytes per token, window and state are those of `profile.cache_sizes`."""
    for profile in corpus(shared):
        for dtype in ("bf16", "fp8"):
            sizes = cache_sizes(profile, dtype)
            cache = rank_cache(profile, profile.layers, Layout(), dtype)
            planes = [plane for layer in profile.layers for plane in layer.cache_planes()]
            assert cache.exact_token_bytes == sum(token_bytes(plane, dtype) for plane in planes)
            growing = [sum(token_bytes(p, dtype) for p in planes if p.index == index) for index in (False, True)]
            assert [ceil(each) for each in growing] == [sizes.kv_bytes_per_token, sizes.index_bytes_per_token]
            assert cache.window_bytes(1 << 40) == sizes.window_bytes_per_sequence
            assert cache.state_bytes == sizes.state_bytes_per_sequence


@pytest.mark.slow
def test_every_family_gets_a_verdict(shared: Path) -> None:
    """No family that the profile explains is answered by "cannot say", but for rows of another encoder."""
    for profile in corpus(shared):
        context = min(2048, profile.max_position or 2048)
        for engine in ("vllm", "sglang", "day0"):
            planner = Planner(
                profile, parse_cluster("b300:8"), accounting_for(engine), make_workload(profile, context=context)
            )
            plan = search(planner, 1).plans[0]
            crossing = any(layer.mixer.kind == "cross" for layer in profile.layers)
            assert (plan.fits is None) == (crossing and plan.fits is not False), (profile.model_type, plan.unsized)
            assert plan.estimate is not None and plan.estimate.tpot_ms > 0


def test_cutting_never_adds(shared: Path) -> None:
    for profile in corpus(shared):
        for mixer in dict.fromkeys(layer.mixer for layer in profile.layers):
            cuts = [n for n in (1, 2, 4, 8) if all(part.parts % n == 0 or part.may_repeat for part in head_cuts(mixer))]
            elements = [mixer_elements(mixer, profile.hidden_size, cut) for cut in cuts]
            flops = [mixer_flops(mixer, 5000, cut) for cut in cuts]
            assert elements == sorted(elements, reverse=True) and flops == sorted(flops, reverse=True), mixer.kind


@pytest.mark.parametrize("cut", [2, 4, 8])
def test_state_is_cut_with_its_heads(kimi_k3: ArchitectureProfile, cut: int) -> None:
    whole = rank_cache(kimi_k3, kimi_k3.layers, Layout(), "bf16").state_bytes
    assert rank_cache(kimi_k3, kimi_k3.layers, Layout(tp=cut, attention_tp=cut), "bf16").state_bytes == whole // cut
