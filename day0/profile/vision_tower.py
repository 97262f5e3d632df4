"""Encoders of images as lists of parts: what they are, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from day0.profile.tower_parts import Stage


@dataclass(frozen=True, slots=True)
class VisionTower:
    """A vision tower with its projector.

    `kind` names the line of towers. A patch is `patch_size` pixels a side and `temporal_patch_size` frames deep;
    `merge` patches (rows, columns) become one token of `output_size` channels. `positions` says how the tower knows
    where a patch is: "rotary", "learnt" (as stored), "grid" (resampled to the image), "tiles", "frames". Blocks other
    than `full_blocks` see squares of `window` pixels only. `projector` names what leads from the tower to the text
    model, which `deepstack` blocks also reach directly. `placeholders` are the token ids of the prompt that the
    vectors of an item replace, by kind of item. An item has at most `position_frames` times `temporal_patch_size`
    frames. `native` says that the reference runtime has every part, and was compared with another implementation.
    """

    kind: str
    num_layers: int
    hidden_size: int
    num_heads: int
    patch_size: int
    temporal_patch_size: int
    merge: tuple[int, int]
    positions: tuple[str, ...]
    projector: str
    output_size: int
    stages: tuple[Stage, ...]
    placeholders: tuple[tuple[str, int], ...] = ()
    window: int | None = None
    full_blocks: tuple[int, ...] = ()
    deepstack: tuple[int, ...] = ()
    position_frames: int = 1
    native: bool = False

    @property
    def placeholder_token_id(self) -> int | None:
        """The token that stands for a piece of an image."""
        return dict(self.placeholders).get("image")
