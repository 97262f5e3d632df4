from __future__ import annotations

import torch

from day0.profile.profile import VisionSpec
from day0.runtime.ops.registry import Operators
from day0.runtime.vision.projector import PatchMerger


def test_projector_joins_in_order_and_normalises_last(spec: VisionSpec, ops: Operators) -> None:
    merger = PatchMerger(spec, ops)
    with torch.no_grad():
        merger.up.weight.copy_(torch.eye(80))
        merger.down.weight.zero_()
        merger.down.weight[:, 20] = torch.arange(1.0, 13.0)  # reads the first channel of the second patch
        merger.norm.weight.fill_(2.0)
        cells = torch.zeros(1, 4, 20)
        cells[0, 1, 0] = 1.0
        projected = merger(cells)[0]
    row = 0.8413447460685429 * torch.arange(1.0, 13.0)  # erf GELU of 1; the tanh form gives 0.84119
    assert torch.allclose(projected, 2 * row / (row.square().mean() + 1e-5).sqrt(), atol=1e-6)
