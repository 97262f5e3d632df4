"""The tensors of mixers with a state of fixed size, by paths relative to the layer: one function per spec.

Paths differ from those of softmax attention wherever a checkpoint names the two apart within one model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.profile.draft import Draft
from day0.profile.mixers_linear import GatedDeltaNet, LightningAttention, LinearMap, Mamba, Mamba2, ShortConvolution

_GROUP = "linear_mixer"


def gated_delta_net_drafts(spec: GatedDeltaNet, hidden: int) -> Iterator[Draft]:
    """One matrix for each of q, k, v, z (gate), b (strength) and a (decay); families join them as they store them."""
    keys, values = spec.num_key_heads, spec.num_value_heads
    sizes = {
        "q": (spec.key_width, keys),
        "k": (spec.key_width, keys),
        "v": (spec.value_width, values),
        "z": (spec.value_width, values),
        # One number per value head; those that share a key head stay together, as Qwen3-Next stores them.
        "b": (values, keys),
        "a": (values, keys),
    }
    for name, (width, heads) in sizes.items():
        yield Draft(f"mixer.in_{name}_proj.weight", (width, hidden), _GROUP, 0, heads)
    for name in "qkv":
        width, heads = sizes[name]
        yield Draft(f"mixer.{name}_conv.weight", (width, 1, spec.conv_kernel), _GROUP, 0, heads)
    yield Draft("mixer.A_log", (values,), _GROUP, 0, values, keep_float32=True)
    yield Draft("mixer.dt_bias", (values,), _GROUP, 0, values, keep_float32=True)
    yield Draft("mixer.o_norm.weight", (spec.value_head_dim,), _GROUP)
    yield Draft("mixer.out_proj.weight", (hidden, spec.value_width), _GROUP, 1, values)


def lightning_drafts(spec: LightningAttention, hidden: int) -> Iterator[Draft]:
    heads, width = spec.num_heads, spec.width
    for name in "qkv":
        yield Draft(f"mixer.in_{name}_proj.weight", (width, hidden), _GROUP, 0, heads)
        if spec.qkv_bias:
            yield Draft(f"mixer.in_{name}_proj.bias", (width,), _GROUP, 0, heads)
    if spec.qk_norm:
        yield Draft("mixer.q_norm.weight", (spec.head_dim,), _GROUP)
        yield Draft("mixer.k_norm.weight", (spec.head_dim,), _GROUP)
    yield Draft("mixer.g_proj.weight", (width, hidden), _GROUP, 0, heads)
    yield Draft("mixer.o_norm.weight", (width,), _GROUP, 0, spec.norm_groups)
    yield from _projection("out_proj", (hidden, width), spec.o_bias, 1, heads)


def mamba_drafts(spec: Mamba, hidden: int) -> Iterator[Draft]:
    """All but the small inner projection is cut between channels; that one reads all of them."""
    width, state, rank = spec.width, spec.state_size, spec.step_rank
    yield from _projection("in_proj", (2 * width, hidden), spec.proj_bias, 0, width)
    yield from _convolution(width, spec.conv_kernel, spec.conv_bias, width)
    yield Draft("mixer.x_proj.weight", (rank + 2 * state, width), _GROUP, 1, width)
    yield from _projection("dt_proj", (width, rank), True, 0, width)
    yield Draft("mixer.A_log", (width, state), _GROUP, 0, width, keep_float32=True)
    yield Draft("mixer.D", (width,), _GROUP, 0, width, keep_float32=True)
    if spec.inner_norms:
        for name, size in (("dt", rank), ("b", state), ("c", state)):
            yield Draft(f"mixer.{name}_norm.weight", (size,), _GROUP)
    yield from _projection("out_proj", (hidden, width), spec.proj_bias, 1, width)


def mamba2_drafts(spec: Mamba2, hidden: int) -> Iterator[Draft]:
    """The rows of in_proj and of the convolution are z, x, B, C and step sizes one after another: cut by groups."""
    heads, groups = spec.num_heads, spec.num_groups
    yield from _projection("in_proj", (spec.projection_width, hidden), spec.proj_bias, 0, groups)
    yield from _convolution(spec.conv_width, spec.conv_kernel, spec.conv_bias, groups)
    for name in ("A_log", "D", "dt_bias"):
        yield Draft(f"mixer.{name}", (heads,), _GROUP, 0, heads, keep_float32=True)
    if spec.norm:
        yield Draft("mixer.norm.weight", (spec.width,), _GROUP, 0, groups)
    yield from _projection("out_proj", (hidden, spec.width), spec.proj_bias, 1, heads)


def short_convolution_drafts(spec: ShortConvolution, hidden: int) -> Iterator[Draft]:
    yield from _projection("in_proj", (3 * spec.width, hidden), spec.bias, 0, spec.width)
    yield from _convolution(spec.width, spec.conv_kernel, spec.bias, spec.width)
    yield from _projection("out_proj", (hidden, spec.width), spec.bias, 1, spec.width)


def linear_map_drafts(spec: LinearMap, hidden: int, path: str = "mixer", group: str = "attention") -> Iterator[Draft]:
    yield Draft(f"{path}.linear.weight", (hidden, hidden), group, 0, hidden)
    if spec.bias:
        yield Draft(f"{path}.linear.bias", (hidden,), group, 0, hidden)


def _projection(name: str, shape: tuple[int, int], bias: bool, axis: int, units: int) -> Iterator[Draft]:
    yield Draft(f"mixer.{name}.weight", shape, _GROUP, axis, units)
    if bias:
        # A bias is cut with the rows; that of a product whose columns are cut is added once.
        cut = (0, units) if axis == 0 else (None, 1)
        yield Draft(f"mixer.{name}.bias", shape[:1], _GROUP, *cut)


def _convolution(width: int, taps: int, bias: bool, units: int) -> Iterator[Draft]:
    yield Draft("mixer.conv.weight", (width, 1, taps), _GROUP, 0, units)
    if bias:
        yield Draft("mixer.conv.bias", (width,), _GROUP, 0, units)


LINEAR_DRAFTS: Mapping[type, Callable[[Any, int], Iterator[Draft]]] = {
    GatedDeltaNet: gated_delta_net_drafts,
    LightningAttention: lightning_drafts,
    Mamba: mamba_drafts,
    Mamba2: mamba2_drafts,
    ShortConvolution: short_convolution_drafts,
    LinearMap: linear_map_drafts,
}
"""Called with the spec and the model's hidden size."""
