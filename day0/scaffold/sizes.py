"""Sizes at which a kernel is tested: small where size is only work, the model's own where a kernel depends on it."""

from __future__ import annotations

from collections.abc import Mapping

from day0.inventory import Fact, OperatorNeed

SHRUNK: Mapping[str, int] = {
    "vocab": 97,
    "width": 60,
    "in_features": 72,
    "out_features": 45,
    "expert_in": 40,
    "expert_width": 24,
    "chosen": 4,
    "table_rows": 31,
    "patch_values": 60,
    "profiles": 5,
    "extent": 7,
    "grid_rows": 5,
    "grid_columns": 7,
    "places": 36,
    "tile_values": 24,
}
"""What an axis comes down to. Channels of a head, taps, streams and their like stay as they are."""
WINDOW = 5
"""A window that a short sequence outgrows."""
LARGEST_GROUP = 256
SMALL_GROUP = 64


def small_need(need: OperatorNeed) -> tuple[dict[str, int], dict[str, Fact]]:
    """(sizes, attributes) for a test: as the model's, with the relations between them kept."""
    attributes = dict(need.attributes)
    if isinstance(attributes.get("window"), int):
        attributes["window"] = min(int(attributes["window"] or 0), WINDOW)
    for attribute in ("group_size", "block_columns"):
        # One group a row: the row of a test is shorter.
        if isinstance(attributes.get(attribute), int) and int(attributes[attribute] or 0) > LARGEST_GROUP:
            attributes[attribute] = SMALL_GROUP
    sizes = {axis: min(size, SHRUNK.get(axis, size)) for axis, size in need.shapes.items()}
    for rule in (_heads, _experts, _widths, _packed):
        sizes |= {axis: size for axis, size in rule(need.shapes, attributes, sizes).items() if axis in sizes}
    return sizes, attributes


def _heads(full: Mapping[str, int], attributes: Mapping[str, Fact], small: Mapping[str, int]) -> dict[str, int]:
    """A few heads, with queries per shared head as near the model's as four allows."""
    found = {axis: min(full[axis], 4) for axis in ("heads", "value_heads") if axis in full}
    for shared, axis in (("kv_heads", "heads"), ("key_heads", "value_heads"), ("state_groups", "heads")):
        if shared in full and axis in full:
            found[shared] = min(full[shared], 2)
            found[axis] = found[shared] * min(full[axis] // full[shared], 4)
    return found


def _experts(full: Mapping[str, int], attributes: Mapping[str, Fact], small: Mapping[str, int]) -> dict[str, int]:
    """Enough experts for top_k to be a choice, in the model's groups where it has them."""
    top_k = min(full.get("top_k", 1), 4)
    groups = int(attributes.get("num_groups") or 1)
    axis = "experts" if "experts" in full else "choices"
    if axis not in full:
        return {}
    experts = min(full[axis], groups * max(3, -(-2 * top_k // groups)))
    found = {"top_k": top_k, axis: experts}
    if "experts" in full and "choices" in full:
        found["choices"] = experts + full["choices"] - full["experts"]
    return found


def _widths(full: Mapping[str, int], attributes: Mapping[str, Fact], small: Mapping[str, int]) -> dict[str, int]:
    """Channels that come in groups, and channels of several streams at once."""
    width = small.get("width", 1)
    if attributes.get("norm_groups"):
        width = int(attributes["norm_groups"] or 1) * 12
    elif "head_dim" in full and "taps" in full:
        width = 2 * full["head_dim"]
    return {"width": width, "flat_width": full.get("streams", 1) * width}


def _packed(full: Mapping[str, int], attributes: Mapping[str, Fact], small: Mapping[str, int]) -> dict[str, int]:
    """A packed matrix of a few groups or blocks, the last block smaller where the model's is."""
    if "rows" not in full or not {"columns", "row_groups"} & {*full}:
        return {}
    group = int(attributes.get("group_size") or SMALL_GROUP)
    bits, block_rows = int(attributes.get("bits") or 4), int(attributes.get("block_rows") or 0)
    block_columns = int(attributes.get("block_columns") or group)
    rows = block_rows + 8 if block_rows else 24
    columns = block_columns + 8 if block_rows else 2 * group
    return {
        "rows": rows,
        "columns": columns,
        "row_bytes": columns // 2,
        "row_pairs": rows // 2,
        "row_groups": columns // group,
        "row_words": columns * bits // 32,
        "column_words": rows * bits // 32,
        "row_blocks": -(-rows // block_rows) if block_rows else 1,
        "column_blocks": -(-columns // block_columns),
    }
