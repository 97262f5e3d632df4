"""Every probe by the name that checklists use. A new kind of check is one function in its phase's file and one row."""

from __future__ import annotations

from collections.abc import Mapping

from day0.checklist import (
    probe_invariance,
    probe_loading,
    probe_multimodal,
    probe_numerics,
    probe_packed,
    probe_performance,
    probe_plan,
    probe_segments,
    probe_stability,
    probe_startup,
    probe_text,
    probe_wire,
)
from day0.checklist.checklist import Probe

_INSIDE = ("engine",)
_ASKS = ("answers",)

PROBES: Mapping[str, Probe] = {
    "loading.headers": Probe(probe_loading.headers),
    "loading.parameters": Probe(probe_loading.parameters, needs=("process",)),
    "loading.values": Probe(probe_loading.values, _INSIDE),
    "loading.packed": Probe(probe_packed.packed, _INSIDE),
    "loading.sizes": Probe(probe_loading.sizes, _INSIDE),
    "startup.device": Probe(probe_startup.device, needs=("process",)),
    "startup.first_forward": Probe(probe_startup.first_forward, _INSIDE),
    "startup.cache": Probe(probe_startup.cache, _INSIDE),
    "startup.plan": Probe(probe_plan.plan, _INSIDE),
    "startup.tokenizer": Probe(probe_startup.tokenizer),
    "startup.chat_template": Probe(probe_startup.chat_template),
    "startup.health": Probe(probe_startup.health, needs=("endpoint",)),
    "text.greedy": Probe(probe_text.greedy, _ASKS),
    "text.expected": Probe(probe_text.expected, ("answers", "text")),
    "text.streamed": Probe(probe_text.streamed, _ASKS),
    "text.finish": Probe(probe_text.finish, _ASKS),
    "text.seeded": Probe(probe_text.seeded, _ASKS),
    "text.lengths": Probe(probe_text.lengths, ("answers", "lengths")),
    "text.too_long": Probe(probe_text.too_long, ("answers", "lengths")),
    "text.resumed": Probe(probe_text.resumed, ("answers", "token_ids")),
    "text.malformed": Probe(probe_text.malformed, needs=("endpoint",)),
    "wire.completions": Probe(probe_wire.completions, needs=("endpoint",)),
    "wire.streams": Probe(probe_wire.streams, needs=("endpoint",)),
    "wire.chat": Probe(probe_wire.chat, needs=("endpoint",)),
    "wire.tools": Probe(probe_wire.tools, needs=("endpoint",)),
    "wire.refusals": Probe(probe_wire.refusals, needs=("endpoint",)),
    "multimodal.tokens": Probe(probe_multimodal.tokens, _INSIDE),
    "multimodal.batch": Probe(probe_multimodal.batch, _INSIDE),
    "multimodal.order": Probe(probe_multimodal.order, _INSIDE),
    "multimodal.chunked": Probe(probe_multimodal.chunked, _INSIDE),
    "multimodal.segments": Probe(probe_segments.segments, _INSIDE),
    "multimodal.refusals": Probe(probe_multimodal.refusals, _INSIDE),
    "numerics.cached": Probe(probe_numerics.cached, _INSIDE),
    "numerics.chunked": Probe(probe_numerics.chunked, _INSIDE),
    "numerics.causal": Probe(probe_numerics.causal, _INSIDE),
    "numerics.batched": Probe(probe_numerics.batched, _INSIDE),
    "numerics.invariance": Probe(probe_invariance.invariance, _INSIDE),
    "numerics.reference": Probe(probe_numerics.reference, _INSIDE),
    "numerics.endpoint": Probe(probe_numerics.endpoint, needs=("endpoint",)),
    "stability.mixed": Probe(probe_stability.mixed, _ASKS),
    "stability.leaks": Probe(probe_stability.leaks, _INSIDE),
    "stability.stale": Probe(probe_stability.stale, _INSIDE),
    "stability.pressure": Probe(probe_stability.pressure, _INSIDE),
    "stability.overload": Probe(probe_stability.overload, _INSIDE),
    "stability.flood": Probe(probe_stability.flood, needs=("endpoint",)),
    "performance.load": Probe(probe_performance.load, _ASKS),
    "performance.steady": Probe(probe_performance.steady, _ASKS),
    "performance.memory": Probe(probe_performance.memory, _INSIDE),
}
