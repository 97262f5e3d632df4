"""`day0.cli.rank`, with a fault: as rank 1 it has its heads in another order, and another norm behind them."""

from __future__ import annotations

import sys
from typing import Any

import torch

from day0.cli import rank
from day0.runtime.engine import follow

FAULTS = {"heads": ("layers.1.mixer.q_proj.weight", lambda w: w.roll(len(w) // 2, 0)),
          "norm": ("layers.1.ffn_norm.weight", lambda w: 1.5 * w)}  # fmt: skip


def broken(load: Any) -> Any:
    """`load_on_rank`, after which the parameter that the model's name asks for is another."""

    def loaded(joined: Any, command: Any, *rest: Any) -> Any:
        engine = load(joined, command, *rest)
        path, change = FAULTS[command.files.folder.name]
        parameter = dict(engine.model.named_parameters())[path]
        with torch.no_grad():
            parameter.copy_(change(parameter.clone()))
        return engine

    return loaded


if __name__ == "__main__":
    follow.load_on_rank = broken(follow.load_on_rank)
    sys.exit(rank.main())
