"""transformers: `transformers serve`, one process that places the model by itself. Flags as of 5.24."""

from __future__ import annotations

from day0.engines.flag_table import flag_table
from day0.engines.launch import Launch


def launch(model: str, revision: str | None, host: str, port: int, *, batching: bool = True) -> Launch:
    """The one command there is: no plan decides anything of it, since its layout and its memory cannot be told.

    Without `batching` requests are answered one after another, as a CPU needs it.
    """
    target = model if revision is None else f"{model}@{revision}"
    options = (*(("--continuous-batching",) if batching else ()), "--host", host, "--port", str(port))
    table = flag_table("transformers")
    assert not table.complaints(options, None), "the flags are those of the newest record"
    return Launch((("transformers", "serve", target, *options),), port=port, checked=table.record(None))
