"""Profile -> the operators a model needs. One rule per spec of the profile; a new part is a new rule."""

from day0.inventory.needs import (
    Inventory,
    OperatorNeed,
    inventory_findings,
    layer_operators,
    operators_needed,
    take_inventory,
)
from day0.inventory.use import Fact

__all__ = [
    "Fact",
    "Inventory",
    "OperatorNeed",
    "inventory_findings",
    "layer_operators",
    "operators_needed",
    "take_inventory",
]
