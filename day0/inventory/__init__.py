"""Profile -> the operators a model needs. One rule per spec of the profile; a new part is a new rule."""

from day0.inventory.needs import OperatorNeed, inventory_findings, layer_operators, operators_needed
from day0.inventory.use import Fact

__all__ = ["Fact", "OperatorNeed", "inventory_findings", "layer_operators", "operators_needed"]
