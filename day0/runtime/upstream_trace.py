"""The model's definition in transformers, run on the meta device: which primitive operators it calls, and how often.

Shapes are computed and no numbers, so that a model of any size needs no weights and no memory for them.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from day0.errors import CannotSay

PROMPT_TOKENS = 128
OUTSIDE = "outside the layers"

_UPSTREAM_FAULTS = (OSError, ImportError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError)
"""What a definition raises when it cannot be built or run without numbers."""


@dataclass(frozen=True, slots=True)
class PrimitiveOperator:
    """Calls in a prefill of the prompt and in one decode step; a view computes nothing."""

    name: str
    view: bool
    prefill: int
    decode: int


@dataclass(frozen=True, slots=True)
class TracedPart:
    """All layers of one kind ("kda + moe"), or what stands outside of them; counts are of one such layer."""

    kind: str
    layers: int
    operators: tuple[PrimitiveOperator, ...]


@dataclass(frozen=True, slots=True)
class UpstreamTrace:
    """`operators` counts over the whole model, `parts` what a layer of each kind has to do with it."""

    definition: str
    versions: Mapping[str, str]
    prompt_tokens: int
    operators: tuple[PrimitiveOperator, ...]
    parts: tuple[TracedPart, ...]


class _Recorder(TorchDispatchMode):
    """Counts every operator that reaches the dispatcher, by phase and by the layer it runs in."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "prefill"
        self.layer: int | None = None
        self.views: dict[str, bool] = {}
        self.calls: defaultdict[tuple[str, int | None], Counter[str]] = defaultdict(Counter)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if not name.startswith("prim."):  # questions about a tensor's device and the like
            self.views[name] = func.is_view or name == "aten._unsafe_view"
            self.calls[self.phase, self.layer][name] += 1
        return func(*args, **(kwargs or {}))

    def count(self, layers: Sequence[int | None]) -> tuple[PrimitiveOperator, ...]:
        """What ran in these layers, the most frequent in prefill first."""
        prefill, decode = (sum((self.calls[p, at] for at in layers), Counter()) for p in ("prefill", "decode"))
        names = sorted(prefill | decode, key=lambda name: (-prefill[name], -decode[name], name))
        return tuple(PrimitiveOperator(name, self.views[name], prefill[name], decode[name]) for name in names)


def trace_upstream(
    config: Mapping[str, Any], layer_kinds: Sequence[str], *, where: str = "", prompt_tokens: int = PROMPT_TOKENS
) -> UpstreamTrace:
    """Primitive operators of a prefill and of the decode step after it, of one sequence.

    `config` is the parsed config.json; packed weights are traced as plain ones. `layer_kinds` names each decoder
    layer, so that counts can be told by kind. Raises CannotSay where transformers has no definition of its own, or
    one that does not run without numbers; `where` names the input then.
    """
    model = _definition(config, where)
    with _as_cannot_say(where):
        try:
            recorder = _run(model, len(layer_kinds), prompt_tokens, masked=False)
        except RuntimeError:
            # Some look into the positions where no mask is given, others into the mask where one is.
            recorder = _run(model, len(layer_kinds), prompt_tokens, masked=True)
    import transformers

    return UpstreamTrace(
        definition=type(model).__name__,
        versions={"transformers": transformers.__version__, "torch": str(torch.__version__)},
        prompt_tokens=prompt_tokens,
        operators=recorder.count([None, *range(len(layer_kinds))]),
        parts=tuple(_parts(recorder, layer_kinds)),
    )


def _run(model: Any, num_layers: int, prompt_tokens: int, *, masked: bool) -> _Recorder:
    recorder = _Recorder()
    ids = torch.zeros(1, prompt_tokens + 1, dtype=torch.int64, device="meta")
    prompt, token = ids[:, 1:], ids[:, :1]
    first = {"attention_mask": prompt} if masked else {}
    second = {"attention_mask": ids} if masked else {}
    with _layers_told(model, recorder, num_layers), torch.no_grad(), recorder:
        cache = model(input_ids=prompt, use_cache=True, **first).past_key_values
        recorder.phase = "decode"
        model(input_ids=token, past_key_values=cache, use_cache=True, **second)
    return recorder


def _parts(recorder: _Recorder, layer_kinds: Sequence[str]) -> Iterator[TracedPart]:
    """One part per kind of layer and operators called: layers of a kind whose calls differ are told apart."""
    alike: dict[tuple[str, tuple[PrimitiveOperator, ...]], int] = Counter()
    for index, kind in enumerate(layer_kinds):
        alike[kind, recorder.count([index])] += 1
    for (kind, operators), layers in alike.items():
        if operators:
            yield TracedPart(kind, layers, operators)
    yield TracedPart(OUTSIDE, 0, recorder.count([None]))


def _definition(config: Mapping[str, Any], where: str) -> Any:
    """The model on the meta device, built from transformers' own code alone."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        remote = ", it comes with code of its own, which is not run" if "auto_map" in config else ""
        raise CannotSay(f"transformers has no definition of model type {model_type!r}{remote}", where=where)
    with _as_cannot_say(where):
        plain = {key: value for key, value in config.items() if not key.startswith("quantization")}
        built = CONFIG_MAPPING[model_type].from_dict(plain)
        for auto in (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM):
            if type(built) in auto._model_mapping:
                return _on_meta(auto, built)
    raise CannotSay(f"transformers has no language model for {type(built).__name__}", where=where)


def _on_meta(auto: Any, config: Any) -> Any:
    with torch.device("meta"):
        # Experts as one batched product: the loop over those that were chosen would have to know which were.
        return auto.from_config(
            config, attn_implementation="eager", experts_implementation="batched_mm", dtype=torch.bfloat16
        ).eval()


@contextmanager
def _as_cannot_say(where: str) -> Iterator[None]:
    from transformers.utils import logging

    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as fault:
        # A validator of a configuration wraps what was wrong in a type of its own.
        wrong = fault if isinstance(fault, _UPSTREAM_FAULTS) else fault.__cause__
        if isinstance(wrong, _UPSTREAM_FAULTS):
            text = " ".join(str(wrong).split())[:200]
            raise CannotSay(
                f"the definition in transformers does not run on the meta device: {type(wrong).__name__}: {text}",
                where=where,
                hint="inspect without --trace says the rest",
            ) from fault
        raise


@contextmanager
def _layers_told(model: nn.Module, recorder: _Recorder, num_layers: int) -> Iterator[None]:
    """Hooks by which the recorder knows the decoder layer that runs."""
    handles: list[Any] = []
    for index, layer in enumerate(_decoder_layers(model, num_layers)):
        handles.append(layer.register_forward_pre_hook(_entering(recorder, index)))
        handles.append(layer.register_forward_hook(_entering(recorder, None)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _decoder_layers(model: Any, num_layers: int) -> Iterable[nn.Module]:
    """The first list of as many modules inside the decoder; empty, and everything counts as outside, for none."""
    lists = (part for part in model.get_decoder().modules() if isinstance(part, nn.ModuleList))
    return next((part for part in lists if len(part) == num_layers), nn.ModuleList())


def _entering(recorder: _Recorder, layer: int | None) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        recorder.layer = layer

    return hook
