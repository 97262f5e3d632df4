"""Hyper-connections as configs spell them."""

from __future__ import annotations

from day0.profile.config_reader import ConfigReader
from day0.profile.profile import HyperConnections

_EPS = 1e-6


def read_manifold_connections(reader: ConfigReader, *, learned_head: bool = True) -> HyperConnections:
    """Streams that are also mixed with each other, by doubly stochastic matrices (DeepSeek-V4, GLM-5-Next)."""
    return HyperConnections(
        streams=reader.integer("hc_mult", 4),
        eps=reader.number("hc_eps", _EPS),
        sinkhorn_iterations=reader.integer("hc_sinkhorn_iters", 20),
        learned_head=learned_head,
    )


def read_independent_connections(reader: ConfigReader) -> HyperConnections:
    """Streams that are only read and written by weights (Hunyuan 4)."""
    return HyperConnections(
        streams=reader.integer("hc_mult", 4),
        eps=reader.number("hc_eps", _EPS),
        sinkhorn_iterations=None,
        write_scale=reader.number("hc_magnitude", 2.0),
    )
