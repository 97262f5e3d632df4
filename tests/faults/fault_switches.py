"""Switches that faults are put in with: other operators in one part of a model, changed weights, a changed cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from hunting import Edit, How
from torch import Tensor, nn

from day0.runtime.batch import ForwardBatch
from day0.runtime.engine.engine import Engine
from day0.runtime.ops.registry import Operators


def operator(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """A fault's fields where one operator is another function, in the whole model and from loading on."""
    return {"how": "operator", "operators": {name: function}}


def edited(edit: Edit, how: How = "weights") -> dict[str, Any]:
    """Those of a fault that is put into a loaded engine."""
    return {"how": how, "edit": edit}


def configured(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Those of a fault that is in the model's config."""
    return {"how": "config", "config": change}


def within(path: str, operator: str, function: Callable[..., Any]) -> Edit:
    """Another function for an operator in the modules below one path of the decoder, everywhere else the sound one."""

    def edit(engine: Engine) -> None:
        found = False
        for module in _decoder(engine).get_submodule(path).modules():
            if isinstance(ops := getattr(module, "ops", None), Operators):
                module.ops = ops.replaced(operator, function)
                found = True
        assert found, f"nothing below {path} calls operators"

    return edit


def weights(change: Callable[[Tensor], Tensor], *names: str) -> Edit:
    """Every named parameter becomes what `change` makes of it, in its own shape."""

    def edit(engine: Engine) -> None:
        parameters = dict(_decoder(engine).named_parameters())
        for name in names:
            parameters[name].data.copy_(change(parameters[name].data.clone()))

    return edit


def exchanged(*pairs: tuple[str, str]) -> Edit:
    """The parameters of two names in each other's place."""

    def edit(engine: Engine) -> None:
        parameters = dict(_decoder(engine).named_parameters())
        for one, two in pairs:
            kept = parameters[one].data.clone()
            parameters[one].data.copy_(parameters[two].data)
            parameters[two].data.copy_(kept)

    return edit


def zeroed(*names: str) -> Edit:
    return weights(torch.zeros_like, *names)


def wrapped(owner: Callable[[Engine], Any], name: str, make: Callable[[Any], Any]) -> Edit:
    """A method of the engine's own parts wrapped: `make` is given the sound one."""

    def edit(engine: Engine) -> None:
        part = owner(engine)
        setattr(part, name, make(getattr(part, name)))

    return edit


def positions(change: Callable[[Any, list[Any]], Any]) -> Edit:
    """`change(positions, chunks)` gives the positions that a step runs with."""

    def make(sound: Callable[..., Any]) -> Callable[..., Any]:
        return lambda chunks: change(sound(chunks), chunks)

    return wrapped(lambda engine: engine.runner, "_positions", make)


def without_reset(*names: str) -> Edit:
    """Another prompt ran and was given up; of the states that it left these are not cleared for whoever comes next."""

    def edit(engine: Engine) -> None:
        engine.forward([(53 * place + 3) % 250 for place in range(20)])
        states = engine.cache.storage._states

        def reset(slot: int) -> None:
            for (_, name), state in states.items():
                if name not in names:
                    state[slot] = 0

        engine.cache.storage.reset_state = reset  # type: ignore[method-assign]

    return edit


def forgets_between_steps(name: str) -> Edit:
    """Each chunk of a prompt begins with zeros in one state."""

    def edit(engine: Engine) -> None:
        sound = engine.runner.run

        def run(chunks: list[Any], **options: Any) -> Tensor:
            for (_, state_name), state in engine.cache.storage._states.items():
                if state_name == name:
                    state.zero_()
            return sound(chunks, **options)

        engine.runner.run = run  # type: ignore[method-assign]

    return edit


def batch(**changes: Callable[[Tensor], Tensor]) -> Edit:
    """Fields of every step's batch become what `changes` makes of them."""

    def make(sound: Callable[..., ForwardBatch]) -> Callable[..., ForwardBatch]:
        def made(*arguments: Any) -> ForwardBatch:
            step = sound(*arguments)
            return replace(step, **{name: change(getattr(step, name)) for name, change in changes.items()})

        return made

    return wrapped(lambda engine: engine.runner, "_batch", make)


def _decoder(engine: Engine) -> nn.Module:
    assert isinstance(engine.model, nn.Module)
    return engine.model
