import pytest
import torch

from day0.profile.packing_formats import mxfp4
from day0.runtime.quant.workspace import Workspace

CPU = torch.device("cpu")


def workspace(numbers: int, dtype: torch.dtype = torch.float32) -> Workspace:
    room = Workspace(dtype, CPU)
    room.reserve(7)
    room.reserve(numbers)
    room.reserve(3)
    room.allocate()
    return room


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_there_is_room_for_the_largest_and_no_more(dtype):
    room = workspace(2 * 96, dtype)
    assert room.nbytes == 2 * 96 * dtype.itemsize
    assert room.hot.nbytes == 0
    one, two = room.room((2, 32), (4, 32))
    assert (one.shape, two.shape) == ((2, 32), (4, 32))
    assert two.data_ptr() == one.data_ptr() + one.nbytes
    with pytest.raises(RuntimeError):
        room.room((2, 32), (4, 33))


def test_what_was_not_written_is_nan():
    assert workspace(32).room((32,))[0].isnan().all()


def test_each_matrix_takes_over_from_the_one_before():
    room = workspace(2 * 32)
    scale = torch.full((2, 1), 127, dtype=torch.uint8)
    first = room.matrix(mxfp4(), {"packed": torch.full((2, 16), 0x22, dtype=torch.uint8), "scale": scale}, 2, 32)
    assert (first == 1.0).all()
    second = room.matrix(mxfp4(), {"packed": torch.full((1, 16), 0x44, dtype=torch.uint8), "scale": scale[:1]}, 1, 32)
    assert (second == 2.0).all()
    assert second.data_ptr() == first.data_ptr()
    assert first[0].tolist() == [2.0] * 32
