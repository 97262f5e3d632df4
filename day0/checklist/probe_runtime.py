"""The reference runtime in this process as a target: started when first needed, asked step by step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import get_num_threads as num_threads

from day0.checklist.figures import private_bytes
from day0.checklist.target import Answer, Ask
from day0.coverage import load_whitelist
from day0.errors import Day0Error, EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile
from day0.runtime.batch import Request, SamplingParams, TokenOutput
from day0.runtime.engine.engine import Engine, NotFinite, QueueFull
from day0.runtime.engine.lead import World, check_layout
from day0.runtime.engine.load import load_engine
from day0.runtime.engine.load_upstream import settle_profile
from day0.runtime.engine.memory import choose_device, choose_dtype
from day0.runtime.parallel.layout import Layout
from day0.runtime.tokenizer import VOCABULARY_FILES, TextStream, Tokenizer
from day0.source.model_files import ModelFiles

STALLED_STEPS = 2000
"""Steps in a row without a token after which an engine is taken to be stuck."""


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What starting took: seconds by phase, and private memory of the process before and after, in bytes."""

    seconds: dict[str, float]
    bytes_before: int
    bytes_after: int


def tokenizer_of(files: ModelFiles) -> tuple[Tokenizer | None, str | None]:
    """The model's tokenizer, or why its files give none; (None, None) where it comes without such files."""
    if files.folder is None or not any((files.folder / name).is_file() for name in VOCABULARY_FILES):
        return None, None
    try:
        return Tokenizer.from_folder(files.folder), None
    except Day0Error as fault:
        return None, str(fault)


def _settled(
    files: ModelFiles, profile: ArchitectureProfile, settings: EngineSettings
) -> tuple[ArchitectureProfile, str]:
    try:
        return settle_profile(files, profile, settings)
    except Day0Error:  # nothing runs the model, which the start says
        return profile, "native"


class RuntimeTarget:
    """An engine made from `files` with `settings`. A start that failed is not tried again.

    `runtime` is what runs the model, "native" or "upstream"; `profile` has what only transformers knows of it added.
    """

    kind = "runtime"
    name = "runtime"

    def __init__(
        self,
        files: ModelFiles,
        profile: ArchitectureProfile,
        settings: EngineSettings,
        tokenizer: Tokenizer | None,
        on_phase: Callable[[str, float], None] | None = None,
    ) -> None:
        self.files = files
        self.profile, self.runtime = _settled(files, profile, settings)
        self.settings = settings
        self.tokenizer = tokenizer
        self.on_phase = on_phase
        self.device = choose_device(settings.device)
        self.dtype = choose_dtype(settings.dtype, profile, self.device)
        self.start_facts: StartFacts | None = None
        self._engine: Engine | None = None
        self._fault: Day0Error | None = None
        self._world: World | None = None

    def engine(self) -> Engine:
        """The engine, started on the first call; raises what kept it from starting on every call."""
        if self._fault is not None:
            raise self._fault
        if self._engine is None:
            # Stands unless the start gets through, whatever kind of exception ends it.
            self._fault = EnvironmentFault("an earlier attempt to start the runtime broke")
            before = private_bytes()
            phases: dict[str, float] = {}
            try:
                self._engine = self.build(self.settings, phases)
            except Day0Error as fault:
                self._fault = fault
                raise
            self._fault = None
            self.start_facts = StartFacts(phases, before, private_bytes())
        return self._engine

    def build(self, settings: EngineSettings, phases: dict[str, float] | None = None) -> Engine:
        """A new engine of the same model, for a check that needs other settings; the caller drops it."""

        def note(phase: str, seconds: float) -> None:
            if phases is not None:
                phases[phase] = seconds
            if self.on_phase is not None:
                self.on_phase(phase, seconds)

        # Checks break weights and look at reused memory on purpose: nothing may come from before.
        settings = replace(settings, prefix_caching=False)
        verified_on = load_whitelist().verified_on
        ranks = Layout.of(settings).ranks
        if ranks == 1:
            return load_engine(self.files, self.profile, settings, note, verified_on=verified_on)
        check_layout(self.profile, settings)
        if self._world is None:
            self._world = World.start(ranks, settings.device)
        return self._world.load(self.files, self.profile, settings, note, verified_on)

    def close(self) -> None:
        """End the other ranks, where there are any; a later `build` starts them anew."""
        if self._world is not None:
            self._world.stop()
            self._world = None

    def lacks(self, need: str) -> str | None:
        if need == "endpoint":
            return "the runtime in this process has no HTTP surface; serve it and use --target URL"
        if need == "process":
            return None
        try:
            self.engine()
        except Day0Error as fault:
            return f"the runtime did not start: {fault}"
        if need == "text" and self.tokenizer is None:
            return "the model comes without a tokenizer"
        return None

    def facts(self) -> dict[str, Any]:
        """Facts of the environment that decide numbers and speed."""
        facts = {"device": str(self.device), "dtype": str(self.dtype).removeprefix("torch."), "threads": num_threads()}
        return facts | {"runtime": self.runtime}

    def limits(self) -> tuple[str, ...]:
        """What is weaker than with our own blocks, once the engine runs."""
        return self._engine.limits if self._engine is not None else ()

    def max_model_len(self) -> int | None:
        return self.engine().max_model_len

    def ask(self, asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
        return EngineClient(self.engine(), self.tokenizer).ask(asks, concurrency=concurrency)


@dataclass(slots=True)
class _Pending:
    """A request under way: tokens and their arrival times since it was added."""

    index: int
    ask: Ask
    started: float
    stream: TextStream | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[dict[str, float]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None


class EngineClient:
    """Asks one engine; keeps at most `concurrency` requests under way and steps it until all are answered."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer | None) -> None:
        self.engine = engine
        self.tokenizer = tokenizer

    def ask(self, asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
        """Answers in the order of the asks. Requests still under way are aborted if a step raises."""
        answers: dict[int, Answer] = {}
        waiting = deque(enumerate(asks))
        running: dict[str, _Pending] = {}
        idle_steps = 0
        try:
            while waiting or running:
                while waiting and len(running) < concurrency:
                    self._admit(*waiting.popleft(), running, answers)
                if not running:
                    continue
                outputs = self.engine.step()
                idle_steps = 0 if outputs else idle_steps + 1
                if idle_steps > STALLED_STEPS:
                    raise EnvironmentFault(f"no token in {STALLED_STEPS} steps with {len(running)} requests under way")
                for output in outputs:
                    self._take(output, running, answers)
        finally:
            for name in running:
                self.engine.abort(name)
        return [answers[index] for index in range(len(asks))]

    def _admit(self, index: int, ask: Ask, running: dict[str, _Pending], answers: dict[int, Answer]) -> None:
        started = time.perf_counter()
        name = f"check-{id(self):x}-{index}"
        try:
            self.engine.add(self._request(name, ask))
        except QueueFull as fault:
            answers[index] = Answer("overloaded", str(fault))
        except InputError as fault:
            answers[index] = Answer("refused", str(fault))
        else:
            stream = None
            if self.tokenizer is not None and (ask.stream or ask.stop):
                stream = TextStream(self.tokenizer, ask.stop)
            running[name] = _Pending(index, ask, started, stream)

    def _request(self, name: str, ask: Ask) -> Request:
        prompt = ask.prompt
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InputError("a prompt in text needs a tokenizer")
            prompt = tuple(self.tokenizer.encode(prompt, add_special_tokens=True))
        params = SamplingParams(
            max_tokens=ask.max_tokens,
            temperature=ask.temperature,
            seed=ask.seed,
            ignore_eos=ask.ignore_eos,
            logprobs=ask.logprobs,
            stop_token_ids=ask.stop_token_ids,
        )
        return Request(name, prompt, params, ask.images)

    def _take(self, output: TokenOutput, running: dict[str, _Pending], answers: dict[int, Answer]) -> None:
        pending = running.get(output.request_id)
        if pending is None:  # somebody else's request, or one that was given up
            return
        if output.finish_reason == "error":
            answers[pending.index] = Answer("failed", str(NotFinite()))
            del running[output.request_id]
            return
        pending.token_ids.append(output.token_id)
        pending.arrivals.append(time.perf_counter() - pending.started)
        if output.logprob is not None:
            pending.logprobs.append(output.logprob)
        if output.top_logprobs and self.tokenizer is not None:
            pending.tops.append(self._alternatives(output))
        finish: str | None = output.finish_reason
        if pending.stream is not None:
            pending.pieces.append(pending.stream.push(output.token_id))
            if pending.stream.stopped:
                self.engine.abort(output.request_id)
                finish = "stop"  # also where the last token allowed completes the stop text
        if finish is None and pending.ask.abandon_after == len(pending.token_ids):
            self.engine.abort(output.request_id)
            finish = "abort"
        if finish is not None:
            pending.finish_reason = finish
            answers[pending.index] = self._answer(pending)
            del running[output.request_id]

    def _alternatives(self, output: TokenOutput) -> dict[str, float]:
        """The likeliest tokens by their text, as a server tells them; of those that read alike the likeliest."""
        assert self.tokenizer is not None
        found: dict[str, float] = {}
        for other in output.top_logprobs:
            text = self.tokenizer.decode([other.token_id], skip_special_tokens=False)
            found.setdefault(text, other.logprob)
        return found

    def _answer(self, pending: _Pending) -> Answer:
        if pending.stream is not None:
            pending.pieces.append(pending.stream.finish())
            if pending.stream.stopped:  # in what was held back until now
                pending.finish_reason = "stop"
        answer = Answer(
            "done",
            token_ids=tuple(pending.token_ids),
            finish_reason=pending.finish_reason,
            completion_tokens=len(pending.token_ids),
            prompt_tokens=None if isinstance(pending.ask.prompt, str) else len(pending.ask.prompt),
            logprobs=tuple(pending.logprobs),
            top_logprobs=tuple(pending.tops),
            arrivals=tuple(pending.arrivals),
            seconds=pending.arrivals[-1],
        )
        if self.tokenizer is None:
            return answer
        if pending.stream is None:
            return replace(answer, text=self.tokenizer.decode(pending.token_ids))
        return replace(answer, text="".join(pending.pieces))
