"""Experts on packed MXFP4 against the definition on converted ones, in float64."""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")

from day0.errors import CannotSay  # noqa: E402
from day0.profile.packing_formats import mxfp4  # noqa: E402
from day0.runtime.ops.kernels.packed_experts import (  # noqa: E402
    Gate,
    PackedMatrices,
    assignment_blocks,
    check_scales,
    packed_routed_experts,
)
from day0.runtime.quant.decoder import Decoder  # noqa: E402

EXPERTS, TOP_K, FEATURES, WIDTH = 5, 3, 96, 64


def drawn(tokens: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, PackedMatrices]:
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for rows, columns in ((WIDTH, FEATURES), (WIDTH, FEATURES), (FEATURES, WIDTH)):
        shape = (EXPERTS, rows, columns // 2)
        parts.append(torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator))
        scale = torch.randint(117, 124, (EXPERTS, rows, columns // 32), dtype=torch.uint8, generator=generator)
        parts.append(scale)
    ids = torch.rand(tokens, EXPERTS, generator=generator).topk(TOP_K).indices
    x = torch.randn(tokens, FEATURES, generator=generator)
    return x, torch.rand(tokens, TOP_K, generator=generator), ids, PackedMatrices(*parts)


def defined(
    x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, matrices: PackedMatrices, gate: Gate
) -> torch.Tensor:
    decoder = Decoder(torch.device("cpu"))

    def numbers(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out = torch.empty(EXPERTS, packed.shape[1], packed.shape[2] * 2)
        return decoder.decode_some(mxfp4(), {"packed": packed, "scale": scale}, range(EXPERTS), out).double()

    gates, ups, downs = numbers(*matrices[:2]), numbers(*matrices[2:4]), numbers(*matrices[4:])
    wanted = torch.zeros(x.shape, dtype=torch.float64)
    for token, row in enumerate(x.double()):
        for expert, weight in zip(ids[token].tolist(), weights[token].double(), strict=True):
            opened, value = gates[expert] @ row, ups[expert] @ row
            if gate.beta is None:
                inner = opened * torch.sigmoid(opened) * value
            else:
                if gate.linear_beta is not None:
                    value = gate.linear_beta * torch.tanh(value / gate.linear_beta)
                inner = gate.beta * torch.tanh(opened / gate.beta) * torch.sigmoid(opened) * value
            wanted[token] += weight * (downs[expert] @ inner)
    return wanted


@pytest.mark.parametrize("gate", [Gate(), Gate(4.0, 25.0), Gate(4.0)], ids=["silu", "situ", "unbounded"])
@pytest.mark.parametrize("tokens", [1, 2, 33])
def test_as_defined(tokens: int, gate: Gate) -> None:
    inputs = drawn(tokens)
    found, wanted = packed_routed_experts(*inputs, gate), defined(*inputs, gate)
    assert float((found.double() - wanted).norm() / wanted.norm()) < 3e-6


def test_a_token_alone_and_among_others() -> None:
    x, weights, ids, matrices = drawn(4)
    whole = packed_routed_experts(x, weights, ids, matrices, Gate())
    alone = packed_routed_experts(x[2:3], weights[2:3], ids[2:3], matrices, Gate())
    torch.testing.assert_close(alone[0], whole[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_blocks_have_every_assignment_once(seed: int) -> None:
    """Also where one expert is chosen by everybody, and so has several blocks."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.rand(23, 9, generator=generator).topk(4).indices
    ids[:, 0] = 9
    blocks = assignment_blocks(ids, 10, 4)
    seen = []
    for expert, first, last in zip(*(part.tolist() for part in blocks[1:]), strict=True):
        assert last - first <= 4
        chosen = blocks.order[first:last].tolist()
        assert all(ids.flatten()[assignment] == expert for assignment in chosen)
        seen += chosen
    assert sorted(seen) == list(range(ids.numel()))


@pytest.mark.parametrize("tokens", [1, 33])
def test_scales_are_exact_up_to_both_ends_and_refused_beyond(tokens: int) -> None:
    """The smallest scale in the first product and the largest in the second, so that the result is in the middle."""
    x, weights, ids, matrices = drawn(tokens)
    ends = matrices._replace(
        gate_scale=torch.full_like(matrices.gate_scale, 127 - 63),
        up_scale=torch.full_like(matrices.up_scale, 127),
        down_scale=torch.full_like(matrices.down_scale, 127 + 62),
    )
    check_scales(ends)
    found, wanted = packed_routed_experts(x, weights, ids, ends, Gate()), defined(x, weights, ids, ends, Gate())
    assert float((found.double() - wanted).norm() / wanted.norm()) < 3e-6
    for byte in (0, 127 - 64, 127 + 63, 255):
        beyond = ends.up_scale.clone()
        beyond[-1, -1, -1] = byte
        with pytest.raises(CannotSay, match="up scales"):
            check_scales(ends._replace(up_scale=beyond))
