"""Which parts of towers have steps here; a tower with any other is refused, never run without it."""

from __future__ import annotations

from day0.profile.tower_parts import (
    AxialRotation,
    BranchEnd,
    EncoderAttention,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    PatchMerge,
    Projection,
    TowerNorm,
)
from day0.profile.vision_tower import VisionTower


def missing_tower_part(spec: VisionTower, hidden_size: int) -> str | None:
    """The first thing a tower asks for that no step here does, by its place; None where all of it is done.

    `hidden_size` is the width of the text model, which its embeddings must have.
    """
    if spec.output_size != hidden_size:
        return f"a projector that writes {spec.output_size} channels for a text model of {hidden_size}"
    for stage in spec.stages:
        for part in stage.parts if stage.used else ():
            if not _is_done(part):
                return f"{stage.path}: {part}"
    return None


def _is_done(part: Part) -> bool:
    match part:
        case PatchEmbedding() | TowerNorm() | BranchEnd() | PatchMerge():
            return True
        case Nonlinearity():
            return part.kind != "relu"
        case Projection():
            return part.cell is None and not part.bounded
        case LearntTable():
            return part.role == "grid"
        case AxialRotation():
            return part.axes == 3 or (part.axes == 2 and part.head_dim == 2 * part.pairs)
        case EncoderAttention():
            return part.chunk is None
        case GatedProduct():
            return part.kind in ("silu", "gelu", "gelu_tanh") and part.limit is None
    return False
