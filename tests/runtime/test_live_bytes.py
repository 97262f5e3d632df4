import torch
from live_bytes import LiveBytes


def test_the_count_is_one_of_storages() -> None:
    kept = torch.zeros(1000)
    with LiveBytes() as live:
        kept.add_(1)
        kept.view(10, 100).sum()
        for _ in range(3):
            (kept + 1).mul_(2)
        both = torch.cat((kept, kept))
    assert live.peak == 8000
    assert live.now == both.nbytes
