"""Packed experts compute what the same numbers compute unpacked, whatever the workspace and the cache hold."""

import numpy as np
import pytest
import torch
from packing_draws import draw_packed, stacked

from day0.profile.packing_formats import mxfp4, mxfp4_blocks, nvfp4
from day0.profile.profile import ActivationSpec, RoutedExperts, RouterSpec
from day0.profile.quantization import WeightFormat
from day0.runtime.models.expert_weights import PackedExperts, PackedMatrix, PlainExperts
from day0.runtime.quant.workspace import Workspace

CPU = torch.device("cpu")
EXPERTS, WIDTH, INNER = 7, 64, 32
ROUTER = RouterSpec(num_experts=EXPERTS, top_k=3, scoring="sigmoid", renormalize=True)
SPEC = RoutedExperts(ROUTER, width=WIDTH, activation=ActivationSpec("silu"), bias=True)
NAMES = ("gate", "up", "down")


def experts(
    packing: WeightFormat, room: int = 16, hot_bytes: int = 0, packed: tuple[str, ...] = NAMES, place: str = "ffn"
) -> tuple[PackedExperts, PlainExperts, Workspace]:
    """Packed experts, plain ones with the same numbers, and the workspace."""
    rng = np.random.default_rng(0)
    workspace = Workspace(torch.float32, CPU, room, hot_bytes)
    plain, source = PlainExperts(SPEC, INNER), PlainExperts(SPEC, INNER)
    module = PackedExperts(source, place, workspace)
    for name in NAMES:
        matrix = getattr(plain, name)
        drawn = [draw_packed(packing, *matrix.size, rng) for _ in range(EXPERTS)]
        matrix.weight.data = torch.stack([torch.from_numpy(numbers) for _, numbers in drawn])
        matrix.bias.data = torch.randn(matrix.bias.shape)
        getattr(source, name).bias = matrix.bias
        getattr(source, name).weight.data = matrix.weight.data
        if name in packed:
            stored = PackedMatrix(getattr(source, name), packing, workspace)
            for role in stored.roles:
                values = stacked([parts[role] for parts, _ in drawn])
                setattr(stored, role, torch.nn.Parameter(values, requires_grad=False))
            setattr(module, name, stored)
    workspace.allocate()
    return module, plain, workspace


def same(found, wanted) -> bool:
    """Compared one by one as they come: the next may lie in the same memory."""
    for one, other in zip(found, wanted, strict=True):
        assert one.expert == other.expert
        assert all(torch.equal(a, b) for a, b in zip(one[1:], other[1:], strict=True)), f"expert {one.expert}"
    return True


@pytest.mark.parametrize("hot_bytes", [0, 3 * WIDTH * INNER * 4, 1 << 20], ids=["none kept", "one kept", "all kept"])
@pytest.mark.parametrize("room", [1, 2, 3, 16])
@pytest.mark.parametrize("packing", [mxfp4(), mxfp4_blocks(), nvfp4(activations=False)], ids=["mxfp4", "blocks", "nv"])
def test_each_expert_is_its_own_whatever_the_room(packing: WeightFormat, room: int, hot_bytes: int) -> None:
    module, plain, _ = experts(packing, room, hot_bytes)
    for chosen in ([], [4], [0, 2, 3, 5, 6], [4], list(range(EXPERTS)), [1, 2], [2, 6]):
        assert same(module.matrices(chosen), plain.matrices(chosen))


def test_projections_may_be_packed_in_part() -> None:
    module, plain, _ = experts(mxfp4(), packed=("gate", "down"))
    assert same(module.matrices([1, 5]), plain.matrices([1, 5]))


@pytest.mark.parametrize("room", [1, 2, 16])
def test_the_workspace_is_as_large_as_the_experts_in_it(room: int) -> None:
    module, _, workspace = experts(mxfp4(), room)
    assert workspace.nbytes == min(room, EXPERTS) * 3 * WIDTH * INNER * 4
    places = {one.gate.data_ptr() for one in module.matrices(list(range(EXPERTS)))}
    assert len(places) == min(room, EXPERTS)


def test_kept_experts_are_not_turned_back_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, workspace = experts(mxfp4(), room=2, hot_bytes=4 * 3 * WIDTH * INNER * 4)
    turned: list[list[int]] = []
    convert = module._convert
    monkeypatch.setattr(module, "_convert", lambda missing: turned.append(missing) or convert(missing))
    for chosen in ([0, 1, 2], [0, 1, 2], [1, 5], [1, 5], [0, 6]):
        list(module.matrices(chosen))
    # The fourth slot goes to 5; 6 takes the place of 2, the one longest unused.
    assert turned == [[0, 1], [2], [5], [6]]
    stats = workspace.hot.stats
    assert (stats.hits, stats.misses, stats.evictions, stats.kept, stats.room) == (7, 5, 1, 4, 4)


def test_a_choice_larger_than_the_cache_does_not_chase_itself_out() -> None:
    module, plain, workspace = experts(mxfp4(), room=2, hot_bytes=3 * 3 * WIDTH * INNER * 4)
    everyone = list(range(EXPERTS))
    for _ in range(3):
        assert same(module.matrices(everyone), plain.matrices(everyone))
    assert (workspace.hot.stats.hits, workspace.hot.stats.evictions) == (6, 0)
