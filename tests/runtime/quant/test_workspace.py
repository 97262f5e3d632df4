import pytest
import torch

from day0.runtime.quant.mxfp4 import MXFP4Decoder
from day0.runtime.quant.workspace import ExpertWorkspace

EXPERTS, WIDTH, INNER = 7, 32, 64


@pytest.fixture
def stored():
    shapes = {"gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH)}
    packed = {n: torch.randint(0, 256, (EXPERTS, r, c // 2), dtype=torch.uint8) for n, (r, c) in shapes.items()}
    scales = {n: torch.randint(110, 140, (EXPERTS, r, c // 32), dtype=torch.uint8) for n, (r, c) in shapes.items()}
    return packed, scales


def workspace(capacity: int) -> ExpertWorkspace:
    return ExpertWorkspace(capacity, WIDTH, INNER, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("chosen", [[], [4], [0, 2, 3, 5, 6], list(range(EXPERTS))])
def test_each_expert_is_its_own_whatever_the_room(stored, capacity, chosen):
    packed, scales = stored
    decoder, seen = MXFP4Decoder(torch.device("cpu")), []
    for expert, gate, up, down in workspace(capacity).convert(chosen, packed, scales):
        seen.append(expert)
        for name, found in (("gate", gate), ("up", up), ("down", down)):
            wanted = decoder.decode(packed[name][expert], scales[name][expert], torch.empty(found.shape))
            assert torch.equal(found, wanted)
    assert seen == chosen


def test_the_room_is_what_it_says_and_is_used_again(stored):
    room = workspace(2)
    assert room.nbytes == 2 * 3 * WIDTH * INNER * 4
    places = {gate.data_ptr() for _, gate, _, _ in room.convert(list(range(EXPERTS)), *stored)}
    assert len(places) == 2


def test_what_was_not_converted_is_nan():
    assert workspace(3).gate.isnan().all()
