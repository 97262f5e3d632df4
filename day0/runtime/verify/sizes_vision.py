"""The sizes at which operators of vision towers built of parts are measured."""

from __future__ import annotations

from collections.abc import Mapping

from day0.runtime.verify.case import WIDTHS, Cases, rows
from day0.runtime.verify.cases_vision import PATCHES

_TURNED = rows("patches heads head_dim rope_pairs", (1, 1, 4, 2), (63, 5, 36, 18), (3, 64, 128, 64))

VISION_SIZES: Mapping[str, Cases] = {
    "embedding_scatter_add": Cases(("width",), rows("tokens merged width", (1, 1, 1), (63, 17, 100), (5, 3, 65536))),
    "quick_gelu": Cases(("width",), WIDTHS),
    "biased_patch_embed": Cases(
        ("width", "patch_values"), rows("patches width patch_values", (1, 1, 3), (63, 100, 588), (3, 8192, 3072))
    ),
    "vision_grid_embed": Cases(
        ("places", "width"),
        rows("patches places width", (PATCHES, 1, 1), (PATCHES, 49, 100), (PATCHES, 4096, 2048)),
        tuple({"resampling": rule} for rule in ("bilinear", "bilinear_corners", "bicubic")),
    ),
    "vision_frame_embed": Cases(("width",), rows("patches width", (PATCHES, 2), (PATCHES, 100), (PATCHES, 2048))),
    "vision_axial_rope": Cases(
        ("heads", "head_dim", "rope_pairs"),
        _TURNED,
        tuple(
            {"layout": layout, "apart": apart}
            for layout, apart in (("neox", False), ("neox", True), ("interleaved", False))
        ),
    ),
    "vision_rope_3d": Cases(
        ("heads", "head_dim", "rope_pairs"),
        rows("patches heads head_dim rope_pairs", (1, 1, 6, 3), (63, 5, 40, 18), (3, 64, 128, 63)),
    ),
    "vision_window_attention": Cases(
        ("heads", "kv_heads", "head_dim", "window_side"),
        rows("patches heads kv_heads head_dim", (PATCHES, 1, 1, 4), (PATCHES, 6, 3, 36), (PATCHES, 64, 8, 128)),
        tuple({"scale": 0.1, "window_side": side} for side in (None, 1, 3, 64)),
    ),
}
"""By operator; see `case.Cases`."""
