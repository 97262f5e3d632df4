"""Expert matrices that an engine's kernels store larger than the checkpoint does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from day0.plan.cluster import Gpu
from day0.plan.engine_version import Release, is_since
from day0.plan.layout import Layout
from day0.profile.profile import ArchitectureProfile, LayerSpec, RoutedExperts


@dataclass(frozen=True, slots=True)
class Padding:
    """A slice's columns are stored as a multiple of `width`, the width that experts work at as one of `hidden`."""

    width: int = 1
    hidden: int = 1

    def factor(self, spec: RoutedExperts, hidden: int, slices: int) -> float:
        """By how much an expert's slice grows."""
        outer = spec.latent_dim or hidden
        inner = max(1, spec.width // slices)
        return _up(inner, self.width) * _up(outer, self.hidden) / (inner * outer)


_MARLIN = Padding(128, 256)
_TRITON_HOPPER = Padding(64, 256)
_FINE = Padding(128, 128)
_COARSE = Padding(256, 256)
_TRITON = Release((0, 11), "2025-10-02")
_FINE_SLICES = Release((0, 32), "2026-10-20")
_FINE_SLICES_AMD = Release((0, 29), "2026-08-15")


def vllm_padding(profile: ArchitectureProfile, gpu: Gpu, version: str | None) -> Padding:
    """How vLLM pads MXFP4 experts (`mxfp4_round_up_hidden_size_and_intermediate_size` and what came before it).

    Marlin (Ampere, Ada, consumer Blackwell, and Hopper before 0.11) wants 128 columns and 256 rows; Hopper's Triton
    layout 64 and 256; TensorRT-LLM's kernels for Blackwell 256 both ways, 128 columns from 0.32 on; AMD's 256 both
    ways until kernels of 128 columns came. Other formats are stored as they are.
    """
    packing = profile.quantization.of("routed_experts") if profile.quantization is not None else None
    if packing is None or packing.name != "mxfp4":
        return Padding()
    if gpu.vendor == "amd":
        return _FINE if is_since(version, _FINE_SLICES_AMD) else _COARSE
    if gpu.generation == "blackwell":
        return Padding(128, 256) if is_since(version, _FINE_SLICES) else _COARSE
    if gpu.generation == "hopper" and is_since(version, _TRITON):
        return _TRITON_HOPPER
    return _MARLIN


def sglang_padding(profile: ArchitectureProfile) -> Padding:
    """Slices of MXFP4 experts are whole groups at least (`per_rank_intermediate_size_block`); what kernels want beyond
    that is not counted."""
    packing = profile.quantization.of("routed_experts") if profile.quantization is not None else None
    return Padding(packing.step) if packing is not None and packing.name == "mxfp4" else Padding()


def padded_bytes(
    profile: ArchitectureProfile, layers: Sequence[LayerSpec], layout: Layout, padding: Padding, held: int
) -> int:
    """Bytes that padding adds to the `held` bytes of a rank's experts; every tensor of an expert grows alike."""
    specs = [layer.feed_forward for layer in layers if isinstance(layer.feed_forward, RoutedExperts)]
    if not specs:
        return 0
    return round(held * (padding.factor(specs[0], profile.hidden_size, layout.expert_tp) - 1))


def padding_notes(profile: ArchitectureProfile, layout: Layout, padding: Padding) -> Iterator[str]:
    """What the padding of slices costs, and the layout that avoids it."""
    specs = [layer.feed_forward for layer in profile.layers if isinstance(layer.feed_forward, RoutedExperts)]
    if not specs or layout.expert_tp == 1:
        return
    columns = specs[0].width // layout.expert_tp
    padded = _up(columns, padding.width)
    if padded != columns:
        whole = layout.ep * layout.expert_tp
        instead = f"; whole experts avoid it: --ep {whole}" if specs[0].router.num_experts % whole == 0 else ""
        yield (
            f"expert width {specs[0].width} cut into {layout.expert_tp} slices of {columns} columns is stored as "
            f"{padded}, {100 * padded / columns - 100:.0f}% more{instead}"
        )


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
