"""Rotary position embeddings (Su et al. 2021), with the frequency rules that configs name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

SCALINGS = ("none", "linear", "dynamic", "llama3", "yarn", "proportional", "longrope")
"""The frequency rules that there are here; a profile may name others."""


def rope_frequencies(
    theta: float, dim: int, scaling: str, parameters: Mapping[str, float]
) -> tuple[torch.Tensor, float]:
    """Angular frequency of each of the dim/2 channel pairs, float32, and the factor on cos and sin.

    `scaling` is "none", "linear", "llama3" (Llama 3.1), "yarn" (Peng et al. 2023), "proportional" (Gemma 4: a share
    of the channels turns, the slowest stand still) or "dynamic" by a fixed `alpha` that stretches the base (Hunyuan).
    """
    channels = torch.arange(0, dim, 2, dtype=torch.float32)
    frequencies = theta ** -(channels / dim)
    match scaling:
        case "none":
            return frequencies, 1.0
        case "linear":
            return frequencies / parameters["factor"], 1.0
        case "dynamic":
            return (theta * parameters["alpha"] ** (dim / (dim - 2))) ** -(channels / dim), 1.0
        case "proportional":
            turning = int(parameters["partial_rotary_factor"] * dim // 2)
            standing = torch.arange(dim // 2) >= turning
            return frequencies.masked_fill(standing, 0.0) / parameters.get("factor", 1.0), 1.0
        case "llama3":
            return _llama3(frequencies, parameters), 1.0
        case "yarn":
            return _yarn(frequencies, theta, dim, parameters)
    raise AssertionError(f"rope scaling {scaling} passed the config reader but has no rule here")


def _llama3(frequencies: torch.Tensor, parameters: Mapping[str, float]) -> torch.Tensor:
    """Slow channels are divided by `factor`, fast ones kept, those between blended by wavelength."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return keep * frequencies + (1.0 - keep) * frequencies / parameters["factor"]


def _yarn(
    frequencies: torch.Tensor, theta: float, dim: int, parameters: Mapping[str, float]
) -> tuple[torch.Tensor, float]:
    """Channels that turn fewer than beta_slow times in the original context are interpolated, fast ones kept."""
    factor, original = parameters["factor"], parameters["original_max_position_embeddings"]

    def channel_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = channel_of(parameters.get("beta_fast", 32.0)), channel_of(parameters.get("beta_slow", 1.0))
    if parameters.get("truncate", 1.0):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 1e-3)).clamp(0.0, 1.0)
    scaled = frequencies * (1.0 - ramp) + frequencies / factor * ramp
    return scaled, parameters.get("attention_factor", _yarn_magnitude(factor, parameters))


def _yarn_magnitude(factor: float, parameters: Mapping[str, float]) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    if "mscale" in parameters and "mscale_all_dim" in parameters:
        return magnitude(parameters["mscale"]) / magnitude(parameters["mscale_all_dim"])
    return magnitude(1.0)


def rope_frequencies_by_length(
    theta: float,
    dim: int,
    parameters: Mapping[str, float],
    divisors: tuple[Sequence[float], Sequence[float]],
    lengths: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Frequencies [tokens, dim/2] and the factor on cos and sin [tokens, 1] for rows of sequences of `lengths` tokens.

    With `divisors`, of each frequency up to the original length and beyond it, this is LongRoPE (Ding et al. 2024,
    arXiv 2402.13753); without, the base is stretched from the length on that the model was made for (dynamic NTK).
    """
    powers = torch.arange(0, dim, 2, dtype=torch.float32, device=lengths.device) / dim
    if not divisors[0]:
        factor, longest = parameters["factor"], parameters["trained_length"]
        stretch = (factor * lengths.float() / longest).clamp_min(factor) - (factor - 1.0)
        return (theta * stretch ** (dim / (dim - 2)))[:, None] ** -powers, torch.ones_like(stretch)[:, None]
    long = (lengths > parameters["original_max_position_embeddings"]).long()
    chosen = torch.tensor(divisors, dtype=torch.float32, device=lengths.device)[long]
    magnitudes = torch.tensor(_longrope_magnitudes(parameters), dtype=torch.float32, device=lengths.device)
    return theta**-powers / chosen, magnitudes[long][:, None]


def _longrope_magnitudes(parameters: Mapping[str, float]) -> tuple[float, float]:
    """The factors on cos and sin up to the original length and beyond it; Phi-3.5-MoE states its own."""
    original, factor = parameters["original_max_position_embeddings"], parameters.get("factor", 1.0)
    derived = math.sqrt(1.0 + math.log(factor) / math.log(original)) if factor > 1.0 else 1.0
    both = parameters.get("attention_factor", derived)
    return parameters.get("short_mscale", both), parameters.get("long_mscale", both)


def rope_table(
    positions: torch.Tensor, frequencies: torch.Tensor, factor: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position's angles, [tokens, dim/2] float32; frequencies [dim/2], or a row for each token."""
    angles = positions.float()[:, None] * frequencies
    return angles.cos() * factor, angles.sin() * factor


def multi_axis_rope_table(
    positions: torch.Tensor,
    frequencies: torch.Tensor,
    factor: float | torch.Tensor,
    sections: Sequence[int],
    interleaved: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [tokens, dim/2] where positions [axes, tokens] have several axes (Qwen2-VL, arXiv 2409.12191).

    Each axis turns as many channel pairs as `sections` says, one axis after another; `interleaved` deals them out in
    turn (Qwen3-VL), the first axis taking what is left at the end.
    """
    angles = positions.float()[:, :, None] * frequencies  # [axes, tokens, dim/2]
    axis = _axis_of_pairs(sections, interleaved).to(positions.device)
    chosen = angles.gather(0, axis.expand(1, *angles.shape[1:]))[0]
    return chosen.cos() * factor, chosen.sin() * factor


def _axis_of_pairs(sections: Sequence[int], interleaved: bool) -> torch.Tensor:
    """The axis that turns each channel pair, [dim/2] int64."""
    if not interleaved:
        return torch.arange(len(sections)).repeat_interleave(torch.tensor(sections))
    pairs = torch.arange(sum(sections))
    axis = pairs % len(sections)
    return axis.where(pairs < len(sections) * torch.tensor(sections)[axis], torch.tensor(0))


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: str) -> torch.Tensor:
    """Rotate the first 2 * cos.shape[-1] channels of x [tokens, heads, head_dim]; the others pass.

    "neox" pairs channel i with i + dim/2, "interleaved" pairs neighbours. cos and sin [tokens, dim/2] float32, and
    float32 inside: products rounded to bfloat16 would lose two bits where they cancel.
    """
    dim = 2 * cos.shape[-1]
    turned, kept = x[..., :dim].float(), x[..., dim:]
    cos, sin = cos[:, None, :], sin[:, None, :]
    if layout == "neox":
        first, second = turned[..., : dim // 2], turned[..., dim // 2 :]
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    else:
        first, second = turned[..., ::2], turned[..., 1::2]
        rotated = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    rotated = rotated.to(x.dtype)
    return torch.cat((rotated, kept), dim=-1) if kept.shape[-1] else rotated


def rope_tail(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: str, inverse: bool = False
) -> torch.Tensor:
    """The same over the last 2 * cos.shape[-1] channels, the others pass; `inverse` turns back (DeepSeek-V4)."""
    kept, turned = x.split((x.shape[-1] - 2 * cos.shape[-1], 2 * cos.shape[-1]), dim=-1)
    return torch.cat((kept, rope(turned, cos, -sin if inverse else sin, layout)), dim=-1)
