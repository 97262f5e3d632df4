"""Which kernel runs each operator: an explicit table, a choice made once per engine, and the reasons kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional

from day0.errors import InputError
from day0.runtime.ops import (
    activation,
    block_sparse,
    causal_conv1d,
    embedding,
    gated_deltanet,
    gated_pool,
    hyper_connections,
    kda,
    latent_attention,
    lightning,
    lightning_indexer,
    linear,
    norm,
    paged_attention,
    relaid_linear,
    residual,
    rope,
    router,
    selective_scan,
    shared_kv_attention,
    ssd,
    vision_patches,
    vision_positions,
)
from day0.runtime.ops import routed_experts as experts

REFERENCE = "day0-reference"
"""Provider of the plain torch definitions, which run everywhere."""

TRITON = "day0-triton"
"""Provider of the kernels in ops/kernels."""
COMPILED = "day0.runtime.ops.kernels"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a kernel wants a weight, its second argument: `copy` makes that of a plain one.

    It is for the numbers of tokens that `served` gives for a plain one; others are multiplied by that itself.
    """

    copy: Callable[[torch.Tensor], torch.Tensor]
    served: Callable[[torch.Tensor], range]


def accelerator_name(device: torch.device) -> str:
    """What a device calls itself, as its driver tells torch ("NVIDIA H200"); the type where it has no name."""
    properties = getattr(torch.get_device_module(device), "get_device_properties", None)
    return device.type if properties is None else str(properties(device).name)


Unmet = Callable[[torch.device, torch.dtype], "str | None"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to run an operator. `unmet` gives the reason why it cannot run on a device and dtype, or None.

    `layout` makes what the function runs from faster than from the plain weight. `in_place` is, of a recurrence, the
    form that is given a pool of states and the sequences' slots in it, moves those on where they are and gives the
    outputs alone. `compiled` names the module of a function that is imported late.
    """

    provider: str
    function: Callable[..., Any]
    unmet: Unmet = lambda device, dtype: None
    layout: Layout | None = None
    in_place: Callable[..., torch.Tensor] | None = None
    compiled: str = ""

    @property
    def module(self) -> str:
        """Where its code is."""
        return self.compiled or self.function.__module__


def kernel_faults() -> tuple[type[Exception], ...]:
    """What a kernel that does not run raises, a compiler's own errors among them."""
    plain = (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError, LookupError)
    compiler = getattr(sys.modules.get("triton"), "TritonError", None)
    return plain if compiler is None else (*plain, compiler)


def _no_triton(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cuda":
        return "needs a device that Triton compiles for"
    return None if find_spec("triton") is not None else "triton is not installed"


def _no_wide_triton(device: torch.device, dtype: torch.dtype) -> str | None:
    """Float32 products are summed one by one: over 1,088 channels that was 1.08 times what is allowed."""
    return "less exact in float32 than is allowed" if dtype == torch.float32 else _no_triton(device, dtype)


def _compiled(module: str, function: str) -> Callable[..., Any]:
    """A function of ops/kernels, whose module, and triton with it, is imported when it is first called."""

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"{COMPILED}.{module}"), function)(*arguments, **options)

    return call


def _triton(module: str, function: str, in_place: str | None = None, unmet: Unmet = _no_triton) -> Kernel:
    moved = None if in_place is None else _compiled(module, in_place)
    at = f"{COMPILED}.{module}"
    return Kernel(TRITON, _compiled(module, function), unmet, in_place=moved, compiled=at)


def _reference(function: Callable[..., Any]) -> tuple[Kernel, ...]:
    return (Kernel(REFERENCE, function),)


def _no_relaid_products(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return "needs oneDNN on a CPU"
    # In float16 rows round otherwise than blocks, so a model held and the same streamed would differ.
    return None if dtype in (torch.float32, torch.bfloat16) else "rows and blocks differ in other dtypes"


def _relaid_or_reference(relaid: Callable[..., Any], reference: Callable[..., Any]) -> tuple[Kernel, ...]:
    layout = Layout(relaid_linear.relaid, relaid_linear.served)
    return (Kernel("onednn-relaid", relaid, _no_relaid_products, layout), Kernel(REFERENCE, reference))


KERNELS: Mapping[str, tuple[Kernel, ...]] = {
    "embedding_lookup": _reference(embedding.embedding_lookup),
    "embedding_scatter": _reference(embedding.embedding_scatter),
    "embedding_scatter_add": _reference(embedding.embedding_scatter_add),
    "lm_head": _relaid_or_reference(relaid_linear.lm_head, embedding.lm_head),
    "biased_lm_head": _relaid_or_reference(relaid_linear.biased_lm_head, embedding.biased_lm_head),
    "per_layer_embedding_lookup": _reference(embedding.embedding_lookup),
    "linear": _relaid_or_reference(relaid_linear.linear, linear.linear),
    "head_linear": _reference(linear.head_linear),
    "rms_norm": (_triton("norm", "rms_norm"), Kernel(REFERENCE, norm.rms_norm)),
    "rms_norm_plus_one": _reference(norm.rms_norm_plus_one),
    "unit_rms_norm": _reference(norm.unit_rms_norm),
    "layer_norm_without_bias": _reference(norm.layer_norm_without_bias),
    "qk_norm": _reference(norm.qk_norm),
    "l2_norm": _reference(norm.l2_norm),
    "layer_norm": _reference(norm.layer_norm),
    "gated_rms_norm": (_triton("norm", "gated_rms_norm"), Kernel(REFERENCE, norm.gated_rms_norm)),
    "gated_group_rms_norm": _reference(norm.gated_group_rms_norm),
    "attention_residual_mix": (
        _triton("residual", "attention_residual_mix"),
        Kernel(REFERENCE, residual.attention_residual_mix),
    ),
    "weighed_residual_add": _reference(residual.weighed_residual_add),
    "learnt_scale": _reference(activation.learnt_scale),
    "rope": _reference(rope.rope),
    "rope_tail": _reference(rope.rope_tail),
    "paged_gqa_attention": (
        Kernel("torch-sdpa", paged_attention.paged_gqa_attention_sdpa),
        _triton("paged_attention", "paged_gqa_attention"),
        Kernel(REFERENCE, paged_attention.paged_gqa_attention),
    ),
    "paged_gqa_attention_variant": (
        _triton("paged_attention", "paged_gqa_attention_variant"),
        Kernel(REFERENCE, paged_attention.paged_gqa_attention_variant),
    ),
    "query_temperature": _reference(activation.query_temperature),
    "paged_mla_attention": (
        _triton("latent_attention", "paged_mla_attention"),
        Kernel(REFERENCE, latent_attention.paged_mla_attention),
    ),
    "window_mla_attention": (
        _triton("latent_attention", "window_mla_attention", unmet=_no_wide_triton),
        Kernel(REFERENCE, latent_attention.window_mla_attention),
    ),
    "sparse_mla_attention": (
        _triton("latent_attention", "sparse_mla_attention", unmet=_no_wide_triton),
        Kernel(REFERENCE, latent_attention.sparse_mla_attention),
    ),
    "lightning_indexer_topk": (
        _triton("index_scores", "lightning_indexer_topk"),
        Kernel(REFERENCE, lightning_indexer.lightning_indexer_topk),
    ),
    "block_indexer_topk": _reference(block_sparse.block_indexer_topk),
    "block_sparse_attention": _reference(block_sparse.block_sparse_attention),
    "gated_pool": _reference(gated_pool.gated_pool),
    "shared_kv_attention": _reference(shared_kv_attention.shared_kv_attention),
    "csa_attention": _reference(shared_kv_attention.csa_attention),
    "hca_attention": _reference(shared_kv_attention.hca_attention),
    "hyper_connection_read": _reference(hyper_connections.hyper_connection_read),
    "hyper_connection_write": _reference(hyper_connections.hyper_connection_write),
    "hyper_connection_join": _reference(hyper_connections.hyper_connection_join),
    "sigmoid_gate": _reference(activation.sigmoid_gate),
    "head_sigmoid_gate": _reference(activation.head_sigmoid_gate),
    "token_sigmoid_gate": _reference(activation.token_sigmoid_gate),
    "softplus_gate": _reference(activation.softplus_gate),
    "head_softplus_gate": _reference(activation.head_softplus_gate),
    "softcap": _reference(activation.softcap),
    "constant_scale": _reference(activation.constant_scale),
    "causal_conv1d": (_triton("causal_conv1d", "causal_conv1d"), Kernel(REFERENCE, causal_conv1d.causal_conv1d)),
    "causal_conv1d_bias": (
        _triton("causal_conv1d", "causal_conv1d_bias"),
        Kernel(REFERENCE, causal_conv1d.causal_conv1d_bias),
    ),
    "kda_gate": _reference(kda.kda_gate),
    "kda_chunk": (Kernel("day0-chunked", kda.kda_chunk), Kernel(REFERENCE, kda.kda_recurrent)),
    "kda_recurrent": (
        _triton("delta_step", "delta_steps", "delta_steps_in_place"),
        Kernel(REFERENCE, kda.kda_recurrent),
    ),
    "gated_delta_gate": _reference(gated_deltanet.gated_delta_gate),
    "gated_delta_chunk": (
        Kernel("day0-chunked", gated_deltanet.gated_delta_chunk),
        Kernel(REFERENCE, gated_deltanet.gated_delta_recurrent),
    ),
    "gated_delta_recurrent": (
        _triton("delta_step", "delta_steps", "delta_steps_in_place"),
        Kernel(REFERENCE, gated_deltanet.gated_delta_recurrent),
    ),
    "lightning_chunk": (
        Kernel("day0-chunked", lightning.lightning_chunk),
        Kernel(REFERENCE, lightning.lightning_recurrent),
    ),
    "lightning_recurrent": _reference(lightning.lightning_recurrent),
    "selective_scan": (
        Kernel("day0-chunked", selective_scan.selective_scan),
        Kernel(REFERENCE, selective_scan.selective_state_update),
    ),
    "selective_state_update": _reference(selective_scan.selective_state_update),
    "ssd_chunk_scan": (Kernel("day0-chunked", ssd.ssd_chunk_scan), Kernel(REFERENCE, ssd.ssd_state_update)),
    "ssd_state_update": _reference(ssd.ssd_state_update),
    "multiply": _reference(torch.mul),
    "silu": _reference(functional.silu),
    "relu2": _reference(activation.relu2),
    "silu_and_mul": (_triton("gates", "silu_and_mul"), Kernel(REFERENCE, activation.silu_and_mul)),
    "clamped_silu_and_mul": _reference(activation.clamped_silu_and_mul),
    "silu_clamped_and_mul": _reference(activation.silu_clamped_and_mul),
    "swiglu_oai_and_mul": _reference(activation.swiglu_oai_and_mul),
    "gelu_and_mul": _reference(activation.gelu_and_mul),
    "situ_and_mul": (_triton("gates", "situ_and_mul"), Kernel(REFERENCE, activation.situ_and_mul)),
    "gelu": _reference(activation.gelu),
    "quick_gelu": _reference(activation.quick_gelu),
    "moe_router_topk_softmax": _reference(router.moe_router_topk_softmax),
    "moe_router_group_best_softmax": _reference(router.moe_router_group_best_softmax),
    "moe_router_topk_sigmoid_bias": _reference(router.moe_router_topk_sigmoid_bias),
    "moe_router_topk_sqrtsoftplus_bias": _reference(router.moe_router_topk_sqrtsoftplus_bias),
    "moe_router_topk_logit_bias": _reference(router.moe_router_topk_logit_bias),
    "moe_router_sparsemixer": _reference(router.moe_router_sparsemixer),
    "moe_router_hash": _reference(router.moe_router_hash),
    "moe_expert_scale": _reference(router.moe_expert_scale),
    **dict.fromkeys(
        ("routed_experts", "biased_routed_experts", "routed_experts_ungated"),
        (Kernel("torch-grouped", experts.routed_experts_grouped), Kernel(REFERENCE, experts.routed_experts)),
    ),
    "input_weighted_experts": (
        Kernel("torch-grouped", experts.input_weighted_experts_grouped),
        Kernel(REFERENCE, experts.input_weighted_experts),
    ),
    "vision_patch_embed": _reference(vision_patches.vision_patch_embed),
    "biased_patch_embed": _reference(vision_patches.biased_patch_embed),
    "vision_grid_embed": _reference(vision_positions.vision_grid_embed),
    "vision_frame_embed": _reference(vision_positions.vision_frame_embed),
    "vision_rope_3d": _reference(vision_positions.vision_rope_3d),
    "vision_axial_rope": _reference(vision_positions.vision_axial_rope),
    "vision_window_attention": _reference(vision_patches.vision_window_attention),
    "vision_position_embed": _reference(vision_positions.vision_position_embed),
    "vision_rope_2d": _reference(vision_positions.vision_rope_2d),
    "vision_attention": (
        Kernel("torch-sdpa", vision_patches.vision_attention_sdpa),
        Kernel(REFERENCE, vision_patches.vision_attention),
    ),
    "patch_merge": _reference(vision_patches.patch_merge),
}
"""Kernels of every operator the models call, in order of preference; the reference stands last."""


@dataclass(frozen=True, slots=True)
class OperatorChoice:
    """The provider that runs an operator, and why those preferred to it do not."""

    operator: str
    provider: str
    rejected: tuple[tuple[str, str], ...] = ()


class Operators:
    """The chosen kernel of every operator, called by name: `ops["rms_norm"](x, weight, eps)`.

    `layouts` has, of the operators whose kernel has one, that layout.
    """

    def __init__(self, chosen: Mapping[str, Kernel], choices: tuple[OperatorChoice, ...]) -> None:
        self._functions = {name: kernel.function for name, kernel in chosen.items()}
        self.layouts = {name: kernel.layout for name, kernel in chosen.items() if kernel.layout is not None}
        self.in_place = {name: kernel.in_place for name, kernel in chosen.items() if kernel.in_place is not None}
        self.choices = choices

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._functions[name]

    def replaced(self, name: str, function: Callable[..., Any]) -> Operators:
        """A copy in which one operator is another function: for tests and for checks that must be able to fail."""
        assert name in self._functions, f"no operator {name}"
        copy = Operators({}, self.choices)
        copy._functions = self._functions | {name: function}
        copy.layouts = {other: layout for other, layout in self.layouts.items() if other != name}
        copy.in_place = {other: moves for other, moves in self.in_place.items() if other != name}
        return copy


def choose_operators(
    device: torch.device,
    dtype: torch.dtype,
    verified: Collection[tuple[str, str]] = (),
    forced: Mapping[str, str] | None = None,
) -> Operators:
    """Take, for every operator, the first kernel that can run here and is verified here; the reference always may.

    `verified` holds (operator, provider) pairs with evidence on this device. `forced` names providers by operator;
    one that is unknown or cannot run raises InputError.
    """
    if unknown := sorted((forced or {}).keys() - KERNELS.keys()):
        raise InputError(f"no operator is called {unknown[0]!r}", hint=f"known: {', '.join(KERNELS)}")
    chosen: dict[str, Kernel] = {}
    choices = []
    rejected: tuple[tuple[str, str], ...]
    for name, kernels in KERNELS.items():
        if forced and name in forced:
            chosen[name], rejected = _forced(name, kernels, forced[name], device, dtype), ()
        else:
            chosen[name], rejected = _first_fit(name, kernels, device, dtype, verified)
        choices.append(OperatorChoice(name, chosen[name].provider, rejected))
    return Operators(chosen, tuple(choices))


def _first_fit(
    name: str,
    kernels: tuple[Kernel, ...],
    device: torch.device,
    dtype: torch.dtype,
    verified: Collection[tuple[str, str]],
) -> tuple[Kernel, tuple[tuple[str, str], ...]]:
    rejected: list[tuple[str, str]] = []
    for kernel in kernels:
        reason = kernel.unmet(device, dtype)
        if reason is None and kernel.provider != REFERENCE and (name, kernel.provider) not in verified:
            reason = f"not verified on {device.type}"
        if reason is None:
            return kernel, tuple(rejected)
        rejected.append((kernel.provider, reason))
    raise AssertionError(f"operator {name} has no reference")


def _forced(name: str, kernels: tuple[Kernel, ...], provider: str, device: torch.device, dtype: torch.dtype) -> Kernel:
    for kernel in kernels:
        if kernel.provider == provider:
            reason = kernel.unmet(device, dtype)
            if reason is not None:
                raise InputError(f"provider {provider!r} cannot run here: {reason}", where=f"operator {name}")
            return kernel
    known = ", ".join(kernel.provider for kernel in kernels)
    raise InputError(f"has no provider {provider!r}", where=f"operator {name}", hint=f"known: {known}")
