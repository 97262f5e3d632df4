"""The whole table of faults, and the models that they are put into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faults_attention
import faults_experts
import faults_pictures
import faults_ranks
import faults_recurrent
import faults_sparse
from block_sparse_configs import TEXT, whole
from fault_switches import weights
from hunting import Fault, Sound, load, recorded, with_config
from linear_models import write_model
from rank_runs import Threads, recorded_by_ranks

from day0.numerics.reading import Recording
from day0.runtime.skeleton import write_tiny
from day0.source.resolve import resolve

FAULTS: tuple[Fault, ...] = (
    *faults_attention.FAULTS,
    *faults_experts.FAULTS,
    *faults_recurrent.FAULTS,
    *faults_sparse.FAULTS,
    *faults_pictures.FAULTS,
    *faults_ranks.FAULTS,
)

TIED = weights(lambda w: w[:1].expand_as(w), "layers.2.ffn.router.weight")
"""All experts of one layer score alike."""


class Models:
    """Sound models by the name that faults give, each made once. Tiny checkpoints are written below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Sound] = {}

    def __getitem__(self, name: str) -> Sound:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Sound:
        if name == "tied router":
            return Sound.of(self.checkpoint("qwen3-30b-a3b"), before=TIED)
        recipe, _, how = name.partition(" ")
        return Sound.of(self.checkpoint(recipe), pictures=how == "pictures", ranks=how == "ranks")

    def checkpoint(self, name: str) -> Path:
        """The folder of a tiny checkpoint of a packaged recipe, or of the model that has none."""
        out = self._folder / name
        if not out.exists():
            if name == "minimax-m3":
                out.mkdir(parents=True)
                write_model(_narrow(whole(TEXT)), out)
            else:
                write_tiny(resolve(f"recipe:{name}"), out)
        return out


def _narrow(config: dict[str, Any]) -> dict[str, Any]:
    """With blocks so small that the prompt has more of them than are read."""
    sparse = config["text_config"]["sparse_attention_config"] | {"sparse_block_size": 4}
    return config | {"text_config": config["text_config"] | {"sparse_attention_config": sparse}}


def faulty_run(fault: Fault, sound: Sound, scratch: Path) -> Recording:
    """The trace of an engine with the fault in it; `scratch` is a folder for what that takes."""
    if sound.ranks:
        return recorded_by_ranks(sound.folder, scratch / fault.id, fault.group or Threads, fault.edit)
    folder = sound.folder if fault.config is None else with_config(sound.folder, fault.config, scratch / fault.id)
    engine = load(folder, fault.operators)
    for edit in (sound.before, fault.edit):
        if edit is not None:
            edit(engine)
    return recorded(engine, chunk=fault.chunk, pictures=sound.pictures)
