"""`day0 serve MODEL`: the model behind an OpenAI-compatible HTTP API, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from day0.cli.engine_asked import EngineAsked
from day0.cli.output import status_console, write_stdout
from day0.cli.signals import handling
from day0.coverage import load_whitelist
from day0.errors import CannotSay, ExitCode, InputError
from day0.plan.settings import EXPERT_DTYPES, RUNTIMES, EngineSettings

if TYPE_CHECKING:
    from day0.profile.profile import ArchitectureProfile
    from day0.runtime.engine.engine import Engine
    from day0.runtime.engine.worker import EngineWorker
    from day0.runtime.server.images import Sight
    from day0.runtime.tokenizer import Tokenizer
    from day0.source.model_files import ModelFiles

API_KEY_VARIABLE = "DAY0_API_KEY"
JOIN_SECONDS = 5.0
"""How long the end waits for the engine's thread; only a load or a step that is under way keeps it longer."""


class EngineName(StrEnum):
    DAY0 = "day0"
    VLLM = "vllm"
    SGLANG = "sglang"
    TRANSFORMERS = "transformers"


class Offload(StrEnum):
    NONE = "none"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is served, under which name, with which key, and how its answers are read."""

    host: str
    port: int
    served_name: str
    api_key: str | None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    request_seconds: float | None = None


def command(
    model: Annotated[str, typer.Argument(help="Hub id, folder or recipe:NAME.")],
    engine: Annotated[EngineName, typer.Option(help="What runs the model.")] = EngineName.DAY0,
    plan: Annotated[Path | None, typer.Option(help="A plan file (`day0 plan --emit yaml`).")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    served_model_name: Annotated[str | None, typer.Option(help="Name in the API; MODEL if not given.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar=API_KEY_VARIABLE, help="Key that clients must send.")] = None,
    device: Annotated[str | None, typer.Option(help="Device of the weights.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Type of weights and activations.")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="Type of the paged cache.")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Context limit in tokens.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Sequences in one step.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Tokens in one step.")] = None,
    mem_fraction: Annotated[float | None, typer.Option(help="Share of free memory to use.")] = None,
    kv_cache_bytes: Annotated[
        int | None, typer.Option(min=1, help="Bytes of the paged cache. Default: what --mem-fraction gives.")
    ] = None,
    prefix_caching: Annotated[
        bool | None,
        typer.Option(
            "--prefix-caching/--no-prefix-caching", help="Reuse what requests with the same beginning computed."
        ),
    ] = None,
    expert_cache_bytes: Annotated[
        int | None, typer.Option(min=0, help="Bytes for packed experts that are kept unpacked from step to step.")
    ] = None,
    expert_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(EXPERT_DTYPES),
            help="fp8: MXFP4 experts pass through FP8 blocks, and are kept so in half the bytes of bfloat16.",
        ),
    ] = None,
    tp: Annotated[
        int | None, typer.Option(min=1, help="Ranks that cut each layer between them. Default: --ep, else 1.")
    ] = None,
    ep: Annotated[int | None, typer.Option(min=1, help="Lots that experts are dealt into.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline stages.")] = None,
    dp: Annotated[int | None, typer.Option(min=1, help="Replicas with sequences of their own.")] = None,
    offload: Annotated[
        Offload, typer.Option(help="Where the weights of layers rest that are not on the device: host memory or files.")
    ] = Offload.NONE,
    weight_budget: Annotated[
        int, typer.Option(min=0, help="With --offload: bytes of layers and experts that stay on the device.")
    ] = 0,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(RUNTIMES),
            help="Our own blocks (native), transformers' definition (upstream), or that where a block is missing.",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let code from the model's own repository run here.")
    ] = False,
    tool_call_parser: Annotated[
        str | None, typer.Option(help="Style of the model's tool calls. Default: what its chat template shows.")
    ] = None,
    reasoning_parser: Annotated[
        str | None, typer.Option(help="Style of the model's reasoning. Default: what its chat template shows.")
    ] = None,
    request_timeout: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds that an answer may take in all. Default: no limit.")
    ] = None,
    engine_python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Interpreter that has another engine. Default: DAY0_ENGINE_PYTHON, our own."),
    ] = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Passed on to another engine: --engine-arg=--enforce-eager."),
    ] = None,
    status_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of our /health and /metrics beside another engine. Default: --port + 1."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command, start nothing.")] = False,
    form: Annotated[
        str, typer.Option("--emit", metavar="command|compose|k8s|slurm", help="What --dry-run prints of a plan.")
    ] = "command",
) -> ExitCode:
    """Serve a model over HTTP, with OpenAI's API, until a signal ends it."""
    asked = {
        "device": device,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "mem_fraction": mem_fraction,
        "kv_cache_bytes": kv_cache_bytes,
        "prefix_caching": prefix_caching,
        "expert_cache_bytes": expert_cache_bytes,
        "expert_dtype": expert_dtype,
        "runtime": runtime,
        "trust_remote_code": trust_remote_code or None,
        "offload": offload.value if offload is not Offload.NONE else None,
        "weight_budget": weight_budget or None,
        "tp": ep if tp is None and dp is None else tp,  # alone, lots are dealt to ranks that also cut the layers
        "ep": ep,
        "pp": pp,
        "dp": dp,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if weight_budget and offload is Offload.NONE:
        raise InputError("all weights stay on the device anyway", where="--weight-budget", hint="give --offload disk")
    if api_key == "":
        raise InputError("the key is empty, which would let everybody in", where="--api-key", hint="leave it out")
    if engine is not EngineName.DAY0:
        if request_timeout is not None:
            raise InputError("that is for our own server", where="--request-timeout", hint="leave it out")
        names = {
            "served_model_name": served_model_name,
            "tool_call_parser": tool_call_parser,
            "reasoning_parser": reasoning_parser,
        }
        given = {name: value for name, value in (asked | names).items() if value is not None}
        words = tuple(engine_arg or ())
        other = EngineAsked(model, engine.value, plan, host, port, status_port, given, api_key, engine_python, words)
        return _hand_over(other, form if dry_run else None)
    _refuse_options_of_others(engine_python, engine_arg, status_port, form)
    settings = _settings(plan, model, given)
    endpoint = Endpoint(
        host, port, served_model_name or model, api_key, tool_call_parser, reasoning_parser, request_timeout
    )
    if dry_run:
        write_stdout(f"{_command_line(model, settings, endpoint)}\n".encode())
        return ExitCode.YES
    # Until the server minds signals itself there is nothing to drain.
    with handling({signal.SIGTERM: _end_unserved, signal.SIGINT: _end_at_once}):
        return _serve(model, settings, endpoint)


def _refuse_options_of_others(python: str | None, words: list[str] | None, status_port: int | None, form: str) -> None:
    given = {"--engine-python": python, "--engine-arg": words, "--status-port": status_port}
    unused = [name for name, value in given.items() if value is not None] + (["--emit"] if form != "command" else [])
    if unused:
        message, hint = "that is for --engine vllm, sglang or transformers", "`day0 plan --emit` emits for our runtime"
        raise InputError(message, where=", ".join(unused), hint=hint if "--emit" in unused else "leave it out")


def _hand_over(asked: EngineAsked, form: str | None) -> ExitCode:
    """Start another engine, or print what starts it in a form of `--emit`."""
    from day0.cli.serve_engine import command_text, serve

    if form is None:
        return serve(asked)
    write_stdout(command_text(asked, form).encode())
    return ExitCode.YES


def _settings(plan: Path | None, model: str, given: dict[str, Any]) -> EngineSettings:
    """What the command line says, over what the plan says, over the defaults."""
    if plan is None:
        return EngineSettings(**given)
    from day0.cli.serve_plan import checked_plan

    return EngineSettings(**(checked_plan(plan, EngineName.DAY0.value, model).settings() | given))


def _command_line(model: str, settings: EngineSettings, endpoint: Endpoint) -> str:
    """The command with every default spelled out; the key stays in the environment, away from process lists."""
    options = {
        "--engine": EngineName.DAY0.value,
        "--host": endpoint.host,
        "--port": endpoint.port,
        "--served-model-name": endpoint.served_name,
        "--tool-call-parser": endpoint.tool_call_parser,
        "--reasoning-parser": endpoint.reasoning_parser,
        "--request-timeout": endpoint.request_seconds,
        "--device": settings.device,
        "--dtype": settings.dtype,
        "--kv-dtype": settings.kv_dtype,
        "--max-model-len": settings.max_model_len,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--mem-fraction": settings.mem_fraction,
        "--kv-cache-bytes": settings.kv_cache_bytes,
        "--expert-cache-bytes": settings.expert_cache_bytes,
        "--expert-dtype": settings.expert_dtype,
        "--runtime": settings.runtime,
        **{f"--{name}": getattr(settings, name) for name in ("tp", "ep", "pp", "dp")},
        "--offload": settings.offload,
        "--weight-budget": settings.weight_budget,
    }
    argv = ["day0", "serve", model, *(["--trust-remote-code"] if settings.trust_remote_code else [])]
    for option, value in options.items():
        if value is not None:
            argv += [option, str(value)]
    argv.append("--prefix-caching" if settings.prefix_caching else "--no-prefix-caching")
    environment = f'{API_KEY_VARIABLE}="${API_KEY_VARIABLE}" ' if endpoint.api_key else ""
    return environment + shlex.join(argv)


def _serve(model: str, settings: EngineSettings, endpoint: Endpoint) -> ExitCode:
    from day0.profile.read import read_profile
    from day0.runtime.server.lifecycle import HttpServer, bind
    from day0.source.resolve import resolve, with_weights

    log = _logger()
    files = resolve(model)
    profile = read_profile(files)
    with bind(endpoint.host, endpoint.port) as listener:
        # torch takes seconds to import; a wrong model or a port in use is said before that.
        from day0.runtime.engine.lead import start_engine
        from day0.runtime.engine.worker import EngineWorker
        from day0.runtime.server.app import create_app
        from day0.runtime.tokenizer import Tokenizer

        log(f"loading {files.id}")
        files = with_weights(files, code=settings.trust_remote_code)
        assert files.folder is not None
        tokenizer = Tokenizer.from_folder(files.folder)
        sight = _sight(files, profile, tokenizer, log)
        verified_on = load_whitelist().verified_on
        load = partial(start_engine, files, profile, settings, _phase_logger(log), verified_on=verified_on)
        worker = EngineWorker(partial(_loaded, load, log))
        app = create_app(
            worker,
            tokenizer,
            endpoint.served_name,
            log=log,
            api_key=endpoint.api_key,
            tool_call_parser=endpoint.tool_call_parser,
            reasoning_parser=endpoint.reasoning_parser,
            request_seconds=endpoint.request_seconds,
            sight=sight,
            command=_command_line(model, settings, endpoint),
        )
        asyncio.run(HttpServer(app, worker, listener, log=log, end_at_once=_end_at_once).run())
    return _end(worker)


def _sight(
    files: ModelFiles, profile: ArchitectureProfile, tokenizer: Tokenizer, log: Callable[[str], None]
) -> Sight | None:
    """How the model takes images; None, with the reason in the log, where it does not or nobody says how."""
    from day0.runtime.server.images import Sight
    from day0.runtime.vision.preprocess_config import image_preprocessing

    vision = profile.vision
    if vision is None or vision.placeholder_token_id is None:
        return None
    try:
        preprocessing = image_preprocessing(files, vision)
    except (InputError, CannotSay) as error:
        log(f"weaker: no images are taken: {error}")
        return None
    text = tokenizer.decode([vision.placeholder_token_id], skip_special_tokens=False)
    return Sight(preprocessing, vision.placeholder_token_id, text)


def _loaded(load: Callable[[], Engine], log: Callable[[str], None]) -> Engine:
    """The engine, with what is weaker about it in the log."""
    engine = load()
    for limit in engine.limits:
        log(f"weaker: {limit}")
    return engine


def _logger() -> Callable[[str], None]:
    return partial(status_console().print, soft_wrap=True)  # a line stays one line whatever the terminal's width


def _phase_logger(log: Callable[[str], None]) -> Callable[[str, float], None]:
    def phase_done(phase: str, seconds: float) -> None:
        log(f"{phase}: {seconds:.1f} s")

    return phase_done


def _end(worker: EngineWorker) -> ExitCode:
    """A failed engine is the command's own failure, whoever stopped the server."""
    if worker.failure is not None:
        raise worker.failure
    if not worker.join(JOIN_SECONDS):
        # Stopped while loading. There is nothing to save, and the interpreter cannot end under a thread inside torch.
        _exit_now(ExitCode.YES)
    return ExitCode.YES


def _end_unserved() -> None:
    _exit_now(ExitCode.YES)


def _end_at_once() -> None:
    _exit_now(ExitCode.INTERRUPTED)


def _exit_now(code: ExitCode) -> NoReturn:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also where a signal came in the middle of a write
        os._exit(code)
