"""transformers: `transformers serve` with continuous batching, one process on one GPU. Flags as of 5.24."""

from __future__ import annotations

from day0.engines.flag_table import flag_table
from day0.engines.launch import Flag, Launch, LaunchRequest, command_lines


def _settings(request: LaunchRequest, name: str) -> int | float | None:
    return getattr(request.plan.settings, name) if request.plan.settings else None


FLAGS: tuple[Flag, ...] = (
    Flag("--continuous-batching", lambda *_: True),
    Flag("--cb-max-batch-tokens", lambda r, _: _settings(r, "max_batched_tokens")),
    Flag("--cb-max-memory-percent", lambda r, _: _settings(r, "mem_fraction")),
    Flag("--host", lambda r, _: r.host),
    Flag("--port", lambda r, _: r.port),
)


def launch(request: LaunchRequest) -> Launch:
    """One `transformers serve`; it knows no limit of context or of requests, which a client has to keep by itself."""
    if request.plan.layout.ranks > 1:
        reason = f"`transformers serve` runs one process on one device, not {request.plan.layout.ranks} ranks"
        return Launch((), notes=(reason,))
    model = request.model if request.revision is None else f"{request.model}@{request.revision}"
    argv, _ = command_lines(FLAGS, request, ("transformers", "serve", model))
    table = flag_table("transformers")
    stale = table.complaints([word for line in argv for word in line], request.engine_version)
    if stale:
        return Launch((), port=request.port, notes=stale)
    return Launch(
        argv,
        dict(request.facts.env),
        port=request.port,
        notes=request.facts.notes,
        checked=table.record(request.engine_version),
    )
