"""Gates, norms, the convolution and the residual mix in Triton against their references: odd sizes, far values."""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")

from day0.runtime.ops import activation, causal_conv1d, norm, residual  # noqa: E402
from day0.runtime.ops.kernels import causal_conv1d as fused_convolution  # noqa: E402
from day0.runtime.ops.kernels import gates  # noqa: E402
from day0.runtime.ops.kernels import norm as fused_norm  # noqa: E402
from day0.runtime.ops.kernels import residual as fused_residual  # noqa: E402

SHAPES = ((1, 1), (63, 100), (2, 4100))


def drawn(*shape: int, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def close(found: object, wanted: object) -> None:
    torch.testing.assert_close(found, wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 60.0])
def test_gates(shape: tuple[int, int], scale: float) -> None:
    gate, up = drawn(*shape, scale=scale), drawn(*shape, scale=scale, seed=1)
    close(gates.silu_and_mul(gate, up), activation.silu_and_mul(gate, up))
    for bounds in ((4.0, 25.0), (4.0, None)):
        close(gates.situ_and_mul(gate, up, *bounds), activation.situ_and_mul(gate, up, *bounds))


def test_a_gate_that_is_no_block_of_memory() -> None:
    both = drawn(5, 14)
    gate, up = both.chunk(2, dim=-1)
    close(gates.silu_and_mul(gate, up), activation.silu_and_mul(gate, up))


@pytest.mark.parametrize("shape", SHAPES)
def test_norms(shape: tuple[int, int]) -> None:
    x, weight, gate = drawn(*shape), drawn(shape[1], seed=1), drawn(*shape, seed=2)
    close(fused_norm.rms_norm(x, weight, 1e-6), norm.rms_norm(x, weight, 1e-6))
    for form in ("sigmoid", "silu"):
        close(
            fused_norm.gated_rms_norm(x, weight, gate, 1e-6, form),
            norm.gated_rms_norm(x, weight, gate, 1e-6, form),
        )


@pytest.mark.parametrize(("length", "taps"), [(1, 4), (2, 4), (19, 4), (9, 2)])
@pytest.mark.parametrize("form", ["silu", None])
def test_convolution(length: int, taps: int, form: str | None) -> None:
    x, weight, bias = drawn(2, length, 100), drawn(100, taps, seed=1), drawn(100, seed=2)
    state = drawn(2, 100, taps - 1, seed=3)
    close(fused_convolution.causal_conv1d(x, weight, state, form), causal_conv1d.causal_conv1d(x, weight, state, form))
    close(
        fused_convolution.causal_conv1d_bias(x, weight, bias, state, form),
        causal_conv1d.causal_conv1d_bias(x, weight, bias, state, form),
    )


@pytest.mark.parametrize("count", [1, 3, 8])
def test_residual_mix(count: int) -> None:
    """With a score far above the others too, whose weight is one."""
    candidates = [drawn(5, 100, seed=number) for number in range(count)]
    for scale in (0.1, 50.0):
        query, weight = drawn(100, seed=20, scale=scale), drawn(100, seed=21)
        close(
            fused_residual.attention_residual_mix(candidates, weight, query, 1e-6),
            residual.attention_residual_mix(candidates, weight, query, 1e-6),
        )
