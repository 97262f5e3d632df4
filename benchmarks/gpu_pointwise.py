"""Cases of the small operators between products: gates, norms, the convolution's step, the attention residual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from gpu_case import Case, Prepared, relative_error

from day0.runtime.ops import activation, causal_conv1d, norm, residual
from day0.runtime.ops.kernels import causal_conv1d as fused_conv
from day0.runtime.ops.kernels import gates
from day0.runtime.ops.kernels import norm as fused_norm
from day0.runtime.ops.kernels import residual as fused_residual

Arguments = Sequence[object]


def _first(found: object) -> torch.Tensor:
    return found[0] if isinstance(found, tuple) else found  # type: ignore[return-value]


def _wide(arguments: Arguments) -> list[object]:
    """The same arguments in float32: a reference whose own rounding does not count."""
    return [
        argument.float()
        if isinstance(argument, torch.Tensor)
        else [each.float() for each in argument]
        if isinstance(argument, list)
        else argument
        for argument in arguments
    ]


def _prepare(
    draw: Callable[[torch.device], Arguments],
    kernel: Callable[..., object],
    reference: Callable[..., object],
    sets: int,
    device: torch.device,
) -> Prepared:
    inputs = [draw(device) for _ in range(sets)]

    def check() -> float:
        return relative_error(_first(kernel(*inputs[0])), _first(reference(*_wide(inputs[0]))))

    return Prepared(
        [partial(kernel, *each) for each in inputs],
        check,
        peers={"reference": [partial(reference, *each) for each in inputs]},
    )


def _half(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=device).bfloat16()


def _cases() -> Iterator[Case]:
    def case(name: str, shape: str, draw, kernel, reference, moved: float, sets: int = 3) -> Case:  # type: ignore[no-untyped-def]
        return Case(name, shape, partial(_prepare, draw, kernel, reference, sets), moved, wanted=0.7, allowed=4e-3)

    rows, width = 16384, 6144
    yield case(
        "situ_and_mul", f"[{rows}, {width}]", lambda d: (_half(d, rows, width), _half(d, rows, width), 4.0, 25.0),
        gates.situ_and_mul, activation.situ_and_mul, 6.0 * rows * width,
    )  # fmt: skip
    yield case(
        "silu_and_mul", f"[{rows}, {width}]", lambda d: (_half(d, rows, width), _half(d, rows, width)),
        gates.silu_and_mul, activation.silu_and_mul, 6.0 * rows * width,
    )  # fmt: skip
    for norm_rows, norm_width in ((16384, 7168), (16384 * 16, 512)):
        yield case(
            "rms_norm", f"[{norm_rows}, {norm_width}]",
            lambda d, r=norm_rows, w=norm_width: (_half(d, r, w), _half(d, w), 1e-6),
            fused_norm.rms_norm, norm.rms_norm, 4.0 * norm_rows * norm_width,
        )  # fmt: skip
    heads = (16384, 96, 128)
    yield case(
        "gated_rms_norm", f"{list(heads)}", lambda d: (_half(d, *heads), _half(d, 128), _half(d, *heads), 1e-6),
        fused_norm.gated_rms_norm, norm.gated_rms_norm, 8.0 * 16384 * 96 * 128,
    )  # fmt: skip
    channels = 3 * 96 * 128
    for sequences, length in ((256, 1), (1, 8192)):
        yield case(
            "causal_conv1d", f"[{sequences}, {length}, {channels}]",
            lambda d, n=sequences, t=length: (
                _half(d, n, t, channels), _half(d, channels, 4), torch.randn(n, channels, 3, device=d)
            ),
            fused_conv.causal_conv1d, causal_conv1d.causal_conv1d,
            sequences * channels * (length * 4.0 + 3 * 8.0) + channels * 8.0,
        )  # fmt: skip
    for count in (3, 8):
        yield case(
            "attention_residual_mix", f"{count} x [16384, 7168]",
            lambda d, n=count: ([_half(d, 16384, 7168) for _ in range(n)], _half(d, 7168), _half(d, 7168) / 85, 1e-6),
            fused_residual.attention_residual_mix, residual.attention_residual_mix,
            2.0 * (count + 1) * 16384 * 7168, sets=2,
        )  # fmt: skip


CASES = tuple(_cases())
