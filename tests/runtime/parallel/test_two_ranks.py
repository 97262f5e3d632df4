"""Two processes give what one gives: tensors, experts, stages and sequences shared out, over models of every kind."""

from __future__ import annotations

from collections.abc import Callable

from day0.runtime.engine.lead import LeadingEngine

Check = Callable[..., LeadingEngine]

CUT = {"tp": 2}
DEALT = {"tp": 2, "ep": 2}
STAGES = {"pp": 2}
REPLICAS = {"dp": 2, "ep": 2}
