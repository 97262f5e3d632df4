"""How tables of encoders' tensor names are written down."""

from __future__ import annotations

from collections.abc import Mapping


def tower_names(ours: str, theirs: str, modules: Mapping[str, str]) -> dict[str, str]:
    """Names of weights and biases of modules; `modules` maps ours to theirs under the two prefixes."""
    return {
        f"{ours}.{module}.{leaf}": f"{theirs}.{name}.{leaf}"
        for module, name in modules.items()
        for leaf in ("weight", "bias")
    }


def table_names(ours: str, theirs: str, tables: Mapping[str, str]) -> dict[str, str]:
    """Names of tensors that are no module's weight."""
    return {f"{ours}.{table}": f"{theirs}.{name}" for table, name in tables.items()}


BLOCK = "vision.tower.blocks.{block}"
"""Our path of a block of a vision tower."""

SEPARATE = {
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
}
"""Projections of attention as Llama names them."""

GATED = {"mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}
PLAIN = {"mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
