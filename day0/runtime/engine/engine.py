"""The engine: schedule, run, sample, book; plus a plain forward for those who compare numbers."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from day0.errors import Day0Error
from day0.plan.settings import EngineSettings
from day0.profile.profile import ArchitectureProfile
from day0.runtime.batch import NO_TOKEN, Completion, FinishReason, ImageSpan, Request, TokenLogprob, TokenOutput
from day0.runtime.cache.manager import CacheManager
from day0.runtime.engine.constraint import ConstraintBroken
from day0.runtime.engine.memory import MemoryFigures
from day0.runtime.engine.runner import Runner
from day0.runtime.engine.sampler import Sampled, Sampler
from day0.runtime.engine.scheduler import Chunk, Scheduler
from day0.runtime.engine.sequence import NotFinite, QueueFull, RequestRefused, Sequence
from day0.runtime.models.decoder import Decoder
from day0.runtime.trace import Trace
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.weights import LoadReport

__all__ = ["Engine", "EngineStats", "NotFinite", "QueueFull", "RequestRefused"]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Where the engine stands; token and step counts are since it started.

    Free pages include those that are kept for others to find. `reused_tokens` of the `prompt_tokens` were found.
    """

    running: int
    waiting: int
    pages_total: int
    pages_free: int
    state_slots_total: int
    state_slots_free: int
    preemptions: int
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    steps: int


class Engine:
    """One model on one device. Not thread-safe: one thread owns it (`worker.EngineWorker` for a server)."""

    def __init__(
        self,
        model: Decoder | UpstreamDecoder,
        vision: torch.nn.Module | None,
        settings: EngineSettings,
        cache: CacheManager,
        max_model_len: int,
        load_report: LoadReport,
        memory: MemoryFigures,
        device: torch.device,
    ) -> None:
        self.model = model
        self.vision = vision
        self.settings = settings
        self.max_model_len = max_model_len
        self.load_report = load_report
        self.memory = memory
        self.device = device
        self.cache = cache
        self.scheduler = Scheduler(
            cache, settings.max_num_seqs, settings.max_num_batched_tokens, settings.max_queue, settings.watermark
        )
        self.runner = Runner(model, cache, device)
        self.sampler = Sampler(settings.seed)
        self._length_ropes = model.length_ropes if isinstance(model, Decoder) else ()
        self._sequences: dict[str, Sequence] = {}
        self._steps = self._prompt_tokens = self._reused_tokens = self._generated_tokens = 0

    @property
    def profile(self) -> ArchitectureProfile:
        return self.model.profile

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of activations."""
        return self.model.dtype

    @property
    def kept_as_stored(self) -> tuple[str, ...]:
        """Paths of the tables that keep the dtype of their file and are converted as they are used."""
        return self.model.kept_as_stored if isinstance(self.model, Decoder) else ()

    @property
    def limits(self) -> tuple[str, ...]:
        """What is weaker than with our own blocks, in sentences for a report; nothing where they run."""
        return self.model.limits if isinstance(self.model, UpstreamDecoder) else ()

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused for one that can never run, QueueFull for one that may come again."""
        self._check(request)
        sequence = Sequence.of(request, self.cache.pages.page_size, self._length_ropes)
        self.scheduler.add(sequence)
        self._sequences[request.id] = sequence

    def _check(self, request: Request) -> None:
        if request.id in self._sequences:
            raise RequestRefused(f"a request with id {request.id!r} is running already", where="id")
        self._check_ids(request.prompt_ids)
        self._check_images(request)
        prompt, new = len(request.prompt_ids), request.params.max_tokens
        if prompt + new > self.max_model_len:
            raise RequestRefused(
                f"the prompt has {prompt} tokens and asks for up to {new} more, "
                f"the limit for both together is {self.max_model_len}",
                where="prompt",
            )

    def _check_images(self, request: Request) -> None:
        """Images lie inside the prompt, apart from each other, and have as many vectors as their places want."""
        if isinstance(self.model, Decoder) and self.model.ranks.place.rank > 0:
            return  # the rank that has the encoder has looked at them
        width = self.vision.width if isinstance(self.vision, ImageEncoder) else self.profile.hidden_size
        end = 0
        for index, image in enumerate(sorted(request.images, key=lambda image: image.start)):
            (first, last), found = image.bounds, image.embeddings.shape[-1]
            where = f"image {index}"
            if first < end or last > len(request.prompt_ids):
                raise RequestRefused(f"tokens {first} to {last} overlap with another or leave the prompt", where=where)
            if found != width:
                raise RequestRefused(f"has vectors of {found} channels, the model reads {width}", where=where)
            if image.grid is not None and image.grid[0] * image.grid[1] != last - first:
                raise RequestRefused(f"{last - first} tokens do not lie in rows and columns {image.grid}", where=where)
            end = last

    def _check_ids(self, ids: Items[int]) -> None:
        if not ids:
            raise RequestRefused("is empty", where="prompt")
        if min(ids) < 0 or max(ids) >= self.profile.vocab_size:
            raise RequestRefused(f"token ids must be in 0..{self.profile.vocab_size - 1}", where="prompt")

    def abort(self, request_id: str) -> bool:
        """Drop a request and free what it holds at once; False if it is not here (any more)."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        self._drop(sequence, "abort")
        return True

    def has_work(self) -> bool:
        return bool(self._sequences)

    def step(self) -> list[TokenOutput]:
        """Advance by one forward; gives the new token of every sequence that got one."""
        chunks = self.scheduler.schedule()
        if not chunks:
            self.serve_others()
            return []
        logits = self.runner.run(chunks)
        ending = [chunk.sequence for chunk in chunks if chunk.reaches_end]
        finite = logits.amax(dim=-1).isfinite()  # of a row with NaN or infinity the largest is not
        sound = [sequence for sequence, holds in zip(ending, finite.tolist(), strict=True) if holds]
        sampled = self.sampler.sample(logits if len(sound) == len(ending) else logits[finite], sound)
        for chunk in chunks:
            self._count(chunk)
            self._advance(chunk)
        self._steps += 1
        failed = [self._fail(sequence, NotFinite()) for sequence in ending if sequence not in sound]
        return failed + [self._book(sequence, token) for sequence, token in zip(sound, sampled, strict=True)]

    def serve_others(self) -> None:
        """Take part in a step of the other replicas, where they share experts with this one and it has no work."""
        if isinstance(self.model, Decoder) and self.model.ranks.layout.dp > 1:
            self.model.serve_others()

    def check(self) -> None:
        """Raise EnvironmentFault where something that the engine needs has gone; one rank needs nothing else."""

    def notify(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from any thread, when `check` has something to say."""

    def close(self) -> None:
        """End what the engine keeps running beside this process; one rank keeps nothing."""

    def _advance(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        sequence.computed += chunk.length
        keep_state = sequence.computed in sequence.stops
        self.cache.commit(sequence.held, sequence.names, sequence.token_ids, sequence.computed, keep_state)

    def _fail(self, sequence: Sequence, fault: Day0Error) -> TokenOutput:
        self._drop(sequence, "error")
        return TokenOutput(sequence.id, NO_TOKEN, finish_reason="error", fault=fault)

    def _count(self, chunk: Chunk) -> None:
        """Add the prompt tokens of a chunk to the statistics, once even if preemption computes them again."""
        sequence = chunk.sequence
        seen = min(sequence.computed + chunk.length, sequence.num_prompt)
        self._prompt_tokens += max(0, seen - sequence.counted)
        if sequence.counted == 0:
            self._reused_tokens += sequence.reused or 0
        sequence.counted = max(sequence.counted, seen)

    def _book(self, sequence: Sequence, token: Sampled) -> TokenOutput:
        if token.token_id == NO_TOKEN:
            return self._fail(sequence, ConstraintBroken())
        sequence.token_ids.append(token.token_id)
        self._generated_tokens += 1
        reason = self._finish_reason(sequence, token.token_id)
        if reason is not None:
            self._drop(sequence, reason)
        return TokenOutput(sequence.id, token.token_id, token.logprob, token.top_logprobs, reason, sequence.reused or 0)

    def _drop(self, sequence: Sequence, reason: FinishReason) -> None:
        """Take a sequence out and free what it holds."""
        del self._sequences[sequence.id]
        self.scheduler.finish(sequence, reason)
        self.sampler.forget(sequence.id)

    def _finish_reason(self, sequence: Sequence, token: int) -> FinishReason | None:
        params = sequence.request.params
        if token in params.stop_token_ids or (not params.ignore_eos and token in self.profile.eos_token_ids):
            return "stop"
        if sequence.num_generated >= params.max_tokens or len(sequence.token_ids) >= self.max_model_len:
            return "length"
        return None

    def stats(self) -> EngineStats:
        return EngineStats(
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            pages_total=self.cache.pages.num_pages,
            pages_free=self.cache.pages.num_free,
            state_slots_total=self.cache.slots.num_slots,
            state_slots_free=self.cache.slots.num_free,
            preemptions=self.scheduler.num_preemptions,
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._reused_tokens,
            generated_tokens=self._generated_tokens,
            steps=self._steps,
        )

    def generate(self, requests: Items[Request]) -> list[Completion]:
        """Run requests to their end, together; completions in the order of the requests.

        Raises NotFinite where one of them cannot be answered.
        """
        outputs: dict[str, list[TokenOutput]] = {}
        try:
            for request in requests:
                self.add(request)
                outputs[request.id] = []
            while any(request_id in self._sequences for request_id in outputs):
                for output in self.step():
                    if output.request_id in outputs:
                        outputs[output.request_id].append(output)
                        if output.finish_reason == "error":
                            raise output.fault or NotFinite()
        except (RequestRefused, QueueFull, NotFinite, ConstraintBroken):
            for added in outputs:
                self.abort(added)  # all or none: nothing of a refused call stays in the queue
            raise
        return [_completion(request.id, outputs[request.id]) for request in requests]

    def forward(
        self,
        token_ids: Items[int],
        *,
        trace: Trace | None = None,
        chunk: int | None = None,
        images: tuple[ImageSpan, ...] = (),
    ) -> torch.Tensor:
        """Logits of every position, [tokens, vocab] float32, through the paged cache in chunks (None: all at once).

        `chunk` 1 is decoding token by token. Only a whole forward can be traced. Pages and state slot are borrowed
        and given back; raises RequestRefused where they are not free.
        """
        assert trace is None or chunk is None, "a trace names each tensor once: trace a whole forward"
        self._check_ids(token_ids)
        if not self.cache.can_open(len(token_ids)):
            raise RequestRefused(f"no room in the cache for {len(token_ids)} tokens beside what is running")
        request = Request("forward", tuple(token_ids), images=images)
        self._check_images(request)
        sequence = Sequence.of(request, self.cache.pages.page_size, self._length_ropes)
        sequence.lease = self.cache.open()
        self.cache.grow(sequence.lease, len(token_ids))
        rows = []
        try:
            while sequence.num_pending:
                part = Chunk(sequence, min(chunk or len(token_ids), sequence.num_pending))
                rows.append(self.runner.run([part], every_row=True, trace=trace))
                sequence.computed += part.length
        finally:
            self.cache.close(sequence.lease)
        return torch.cat(rows)


def _completion(request_id: str, outputs: list[TokenOutput]) -> Completion:
    reason = outputs[-1].finish_reason
    assert reason is not None, "generate runs every request to its end"
    wants = outputs[0].logprob is not None
    top: tuple[tuple[TokenLogprob, ...], ...] = tuple(output.top_logprobs for output in outputs) if wants else ()
    logprobs = tuple(output.logprob for output in outputs if output.logprob is not None)
    tokens = tuple(output.token_id for output in outputs)
    return Completion(request_id, tokens, reason, logprobs, top, outputs[-1].reused)
