"""What several residual streams need: reading them before a branch, writing after it, joining them at the end."""

from __future__ import annotations

from day0.inventory.use import Use, use
from day0.profile.profile import HyperConnections


def hyper_connection_read(branch: str, spec: HyperConnections, hidden: int) -> Use:
    return use(
        "hyper_connection_read",
        f"{branch}_res",
        streams=spec.streams,
        width=hidden,
        flat_width=spec.streams * hidden,
        mixing_weights=spec.num_weights,
        scales=spec.num_scales,
        eps=spec.eps,
        iterations=spec.sinkhorn_iterations,
        write_scale=spec.write_scale,
    )


def hyper_connection_write(branch: str, spec: HyperConnections, hidden: int) -> Use:
    return use(
        "hyper_connection_write",
        f"{branch}_res",
        streams=spec.streams,
        width=hidden,
        mixing_weights=spec.num_weights,
        iterations=spec.sinkhorn_iterations,
    )


def hyper_connection_join(spec: HyperConnections, hidden: int) -> Use:
    return use(
        "hyper_connection_join",
        "output_res",
        streams=spec.streams,
        width=hidden,
        flat_width=spec.streams * hidden,
        single=1,
        eps=spec.eps,
        learned=spec.learned_head,
    )
