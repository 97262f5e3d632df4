"""Faults between pixels and the decoder: patches, positions, masks between pictures, order, places in the prompt."""

from __future__ import annotations

from typing import Any

import torch
from fault_switches import edited, operator, positions, wrapped
from hunting import Fault
from torch import Tensor

from day0.runtime.engine.engine import Engine
from day0.runtime.ops import embedding, vision_patches, vision_positions

K3, VL = "kimi-k3 pictures", "qwen3-vl-30b-a3b pictures"


def swapped(items: Any) -> list[Any]:
    return [(frames, columns, rows) for frames, rows, columns in items]


def reversed_order(sound: Any) -> Any:
    return lambda *arguments: sound(*arguments)[::-1]


def first_of_all(sound: Any) -> Any:
    """Every picture shows what the first one does: an entry kept under another's name."""
    return lambda *arguments: [sound(*arguments)[0]] * 2


def leaking(q: Tensor, k: Tensor, v: Tensor, lengths: Any, scale: float) -> Tensor:
    return vision_patches.vision_attention(q, k, v, [sum(lengths)], scale)


def one_angle_off(q: Tensor, k: Tensor, angles: Tensor) -> Any:
    return vision_positions.vision_rope_2d(q, k, angles.roll(1, dims=1))


def axial_swapped(q: Tensor, k: Tensor, angles: Tensor, *rest: Any) -> Any:
    return vision_positions.vision_axial_rope(q, k, angles.roll(angles.shape[1] // 2, dims=1), *rest)


def axial_layout(q: Tensor, k: Tensor, angles: Tensor, layout: str, apart: bool) -> Any:
    other = "interleaved" if layout == "neox" else "neox"
    return vision_positions.vision_axial_rope(q, k, angles, other, apart)


def unrotated(q: Tensor, k: Tensor, *rest: Any) -> Any:
    return q, k


def transposed_embed(grid: Tensor, items: Any) -> Tensor:
    return vision_positions.vision_position_embed(grid, swapped(items))


def transposed_grid(x: Tensor, grid: Tensor, items: Any, *rest: Any) -> Tensor:
    return vision_positions.vision_grid_embed(x, grid.transpose(0, 1), items, *rest)


def grid_dropped(x: Tensor, *rest: Any) -> Tensor:
    return x


def merged_by_columns(x: Tensor, items: Any, merge: Any) -> Tensor:
    return vision_patches.patch_merge(x, items, merge).unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2)


def channels_reversed(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """Blue, green, red in place of red, green, blue."""
    third = weight.shape[-1] // 3
    turned = torch.cat((weight[:, 2 * third :], weight[:, third : 2 * third], weight[:, :third]), dim=1)
    return vision_patches.biased_patch_embed(x, turned, *rest) if rest else vision_patches.vision_patch_embed(x, turned)


def left_out(x: Tensor, rows: Tensor, images: Tensor) -> Tensor:
    return x


def one_row_late(x: Tensor, rows: Tensor, images: Tensor) -> Tensor:
    return embedding.embedding_scatter(x, rows + 1, images)


def exchanged_features(engine: Engine) -> None:
    """Features for behind one layer are added behind the next, those of the last one behind the first."""
    assert engine.vision is not None
    sound, hidden = engine.vision.encode, engine.profile.hidden_size

    def encode(*arguments: Any) -> list[Tensor]:
        parts = [one.split(hidden, dim=-1) for one in sound(*arguments)]
        return [torch.cat((first, *deep[1:], deep[0]), dim=-1) for first, *deep in parts]

    engine.vision.encode = encode  # type: ignore[method-assign]


def on_a_line(places: Any, chunks: Any) -> Any:
    """Pictures placed like text."""
    start = chunks[0].sequence.computed
    return torch.arange(start, start + chunks[0].length).numpy()


def rows_and_columns_exchanged(places: Any, chunks: Any) -> Any:
    return places[[0, 2, 1]] if places.ndim > 1 else places


def _tower(engine: Engine) -> Any:
    return engine.vision


FAULTS: tuple[Fault, ...] = (
    Fault("patch-channels", "pixels with blue first", K3, layer=None, point="vision.patch_embed", kind="other",
          **operator("vision_patch_embed", channels_reversed)),
    Fault("patch-positions-transposed", "positions of patches by columns", K3, layer=None,
          point="vision.patch_embed", kind="other", **operator("vision_position_embed", transposed_embed)),
    Fault("patch-grid-transposed", "the learnt grid of positions the other way round", VL, layer=None,
          point="vision.patch_embed", kind="other", **operator("vision_grid_embed", transposed_grid)),
    Fault("patch-grid-dropped", "no learnt positions", VL, layer=None, point="vision.patch_embed", kind="other",
          **operator("vision_grid_embed", grid_dropped)),
    Fault("tower-axes-exchanged", "rotation by row where it is by column", K3, layer=None,
          point="vision.blocks.0.output", kind="other", source="vlm-vision-rope-nonsquare",
          **operator("vision_rope_2d", one_angle_off)),
    Fault("tower-axes-exchanged-axial", "rotation by row where it is by column", VL, layer=None,
          point="vision.blocks.0.output", kind="other", source="vlm-vision-rope-nonsquare",
          **operator("vision_axial_rope", axial_swapped)),
    Fault("tower-rope-layout", "rotary pairs of the tower laid out the other way", VL, layer=None,
          point="vision.blocks.0.output", kind="other", **operator("vision_axial_rope", axial_layout)),
    Fault("tower-rope-left-out", "the tower rotates nothing", K3, layer=None, point="vision.blocks.0.output",
          kind="other", **operator("vision_rope_2d", unrotated)),
    Fault("tower-mask-leaks", "pictures see each other", K3, layer=None, point="vision.blocks.0.output",
          kind="other", **operator("vision_attention", leaking)),
    Fault("merge-by-columns", "patches of a cell by columns", K3, layer=None, point="vision.merged",
          kind="permutation", source="vlm-image-stitched-seams", **operator("patch_merge", merged_by_columns)),
    Fault("pictures-exchanged", "two pictures in each other's place", K3, layer=None, point="embed",
          kind="permutation", **edited(wrapped(_tower, "encode", reversed_order), "pictures")),
    Fault("pictures-exchanged-deep", "two pictures in each other's place", VL, layer=None, point="embed",
          kind="permutation", **edited(wrapped(_tower, "encode", reversed_order), "pictures")),
    Fault("picture-stale", "the second picture shows the first one", K3, layer=None, point="embed", kind="stale",
          source="vlm-position-cache-stale", **edited(wrapped(_tower, "encode", first_of_all), "pictures")),
    Fault("pictures-left-out", "placeholders stay", K3, layer=None, point="embed", kind="other",
          **operator("embedding_scatter", left_out)),
    Fault("pictures-one-late", "pictures begin one token late", VL, layer=None, point="embed", kind="off by one",
          source="vlm-video-grid-vs-placeholders", **operator("embedding_scatter", one_row_late)),
    Fault("deep-features-exchanged", "deeper features added behind another layer", VL, layer=1, point="mixer_in",
          kind="other", source="vlm-deepstack-list-misaligned", **edited(exchanged_features, "pictures")),
    Fault("deep-features-left-out", "deeper features are not added", VL, layer=1, point="mixer_in", kind="other",
          **operator("embedding_scatter_add", left_out)),
    Fault("axes-on-a-line", "tokens of pictures placed like text", VL, layer=0, point="mixer.q",
          kind="rotary layout", source="vlm-inherited-rope-index", **edited(positions(on_a_line), "engine")),
    Fault("axes-exchanged", "heights and widths of tokens exchanged", VL, layer=0, point="mixer.q",
          kind="rotary layout", **edited(positions(rows_and_columns_exchanged), "engine")),
)  # fmt: skip
