"""`day0 run-checklist MODEL --target A --against B`: two targets asked the same, and whether A may take B's place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from day0.checklist.acceptance import Ruling, Terms, power
from day0.checklist.against import Against, Question, against, questions
from day0.checklist.target import Answer, Ask
from day0.cli.output import status_console
from day0.errors import ExitCode, InputError

if TYPE_CHECKING:
    from day0.checklist.client import EndpointTarget
    from day0.checklist.probe_runtime import RuntimeTarget
    from day0.plan.settings import EngineSettings

EXIT_CODES = {Ruling.HOLDS: ExitCode.YES, Ruling.WORSE: ExitCode.NO, Ruling.NOT_ENOUGH: ExitCode.CANNOT_SAY}
TOKENS = 16
ALTERNATIVES = 5
CONCURRENCY = 4


def hold_against(
    model: str, target: str, base: str, settings: EngineSettings, *, prompts: int, seed: int, api_key: str | None
) -> Against:
    """Ask `target` and `base` (each "runtime" or a URL) the same questions, one after the other, and judge."""
    if target == base:
        raise InputError("both are the same", where="--against", hint="name another server, or `runtime`")
    terms = Terms()
    console = status_console()
    console.print(power(prompts, terms).sentence(terms), soft_wrap=True)
    asked = questions(prompts, seed)
    answers = [(name, _answers(name, model, settings, asked, api_key)) for name in (target, base)]
    return against(answers[0], answers[1], asked, model, terms)


def _answers(
    name: str, model: str, settings: EngineSettings, asked: Sequence[Question], api_key: str | None
) -> list[Answer]:
    asks = [Ask(one.prompt, max_tokens=TOKENS, ignore_eos=False, logprobs=ALTERNATIVES) for one in asked]
    with status_console().status(f"asking {name}"), closing(_target(name, model, settings, api_key)) as target:
        return target.ask(asks, concurrency=CONCURRENCY)


def _target(name: str, model: str, settings: EngineSettings, api_key: str | None) -> RuntimeTarget | EndpointTarget:
    from day0.checklist.client import EndpointTarget
    from day0.checklist.probe_runtime import RuntimeTarget, tokenizer_of
    from day0.profile.read import read_profile
    from day0.source.resolve import resolve, with_weights

    if name != "runtime":
        return EndpointTarget(name, None, api_key=api_key)
    files = with_weights(resolve(model), code=settings.trust_remote_code)
    tokenizer, fault = tokenizer_of(files)
    if tokenizer is None:
        raise InputError(f"questions are text, and the model has no tokenizer: {fault}", where=model)
    return RuntimeTarget(files, read_profile(files), settings, tokenizer)
