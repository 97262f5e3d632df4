"""`day0 trace MODEL OUT`: the named tensors of one prompt, for `day0 compare`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import day0
from day0.cli.output import check_writable, emit
from day0.errors import ExitCode, InputError
from day0.plan.settings import EngineSettings

if TYPE_CHECKING:
    from day0.cli.trace_run import OtherRun
    from day0.numerics.recording import Keep
    from day0.source.model_files import ModelFiles


class Runtime(StrEnum):
    NATIVE = "native"
    TRANSFORMERS = "transformers"


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id or folder, with weights.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Writes OUT.safetensors, OUT.jsonl and OUT.json.")],
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="What is run, as text.")] = None,
    token_ids: Annotated[
        str | None, typer.Option("--token-ids", "--tokens", metavar="LIST|FILE", help="The same as token ids.")
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="An image, in place of its placeholder or in front.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=0, help="Greedy tokens; each but the last is a step.")] = 1,
    runtime: Annotated[
        Runtime, typer.Option(help="Our own blocks, or the definition in transformers.")
    ] = Runtime.NATIVE,
    device: Annotated[str, typer.Option(help="Device of the runtime.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Type of weights and activations.")] = "float32",
    stream: Annotated[bool, typer.Option("--stream", help="Read weights layer by layer.")] = False,
    chunk: Annotated[int | None, typer.Option(min=1, help="Prefill in chunks of so many tokens.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="Ranks that cut each layer between them.")] = None,
    ep: Annotated[int | None, typer.Option(min=1, help="Lots that experts are dealt into.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline stages.")] = None,
    dp: Annotated[int | None, typer.Option(min=1, help="Replicas; the first runs the prompt.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Statistics and hashes only; no tensor but logits.")] = False,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Keep it as a baseline: like --stats, for a comparison after an upgrade.")
    ] = False,
    tensors: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Keep tensors of this name: `layers.3.*`. Default: all.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep N channels of each row, always the same ones.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="Take the choices of routers and indexers from this trace.")
    ] = None,
    feed: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="Give every block the inputs it has in this trace.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document here as well.")] = None,
) -> ExitCode:
    """Run one prompt, and greedy tokens after it, and write what every named point gave, in execution order."""
    if stats and (tensors or sample is not None):
        raise InputError("--stats keeps no tensors", where="--stats", hint="leave out --tensors and --sample")
    if runtime is Runtime.TRANSFORMERS and (replay or feed):
        raise InputError("only our own blocks take tensors of another run", where="--runtime")
    if baseline and (replay or feed):
        raise InputError("a baseline is of a run on its own", where="--baseline", hint="leave out --replay and --feed")
    from day0.cli.trace_run import TracedPrompt, check_layout_of, image_facts, record
    from day0.numerics.baseline import BASELINE, MARK, baseline_facts
    from day0.numerics.recording import Recorder, trace_paths
    from day0.runtime.engine.memory import choose_device

    for path in trace_paths(out):
        check_writable(path)
    recorder = Recorder(_kept(stats, baseline, tensors, sample))
    layout = {"tp": ep or 1 if tp is None and dp is None else tp or 1, "ep": ep or 1, "pp": pp or 1, "dp": dp or 1}
    settings = _settings(device, dtype, runtime, stream, layout)
    check_layout_of(settings, joins=not (stats or baseline or sample is not None))
    shown = image_facts(image or ())
    files = model_files(model)
    ids = prompt_ids(files, prompt, token_ids)
    ran = record(
        files,
        TracedPrompt(ids, tuple(image or ()), max_new_tokens, chunk),
        settings,
        recorder,
        _other_run(replay, feed),
    )
    facts = {
        "model": files.id,
        "model_sha256": model_hash(files),
        "runtime": runtime.value,
        "settings": {"dtype": dtype, "device": device, "stream": stream, "chunk": chunk, **_several(layout)},
        "images": shown,
        "replayed": str(replay) if replay else None,
        "fed": str(feed) if feed else None,
        "revision": files.revision,
        "versions": versions(),
        **baseline_facts(choose_device(device).type),
        **({MARK: BASELINE} if baseline else {}),
    }
    recorder.write(out, ran.ids, ran.generated, facts)
    document = {
        "schema": "day0.trace/1",
        **facts,
        "prompt_tokens": len(ran.ids),
        "generated_ids": ran.generated,
        "steps": 1 + max((entry.step for entry in recorder.entries), default=0),
        "tensors": len(recorder.entries),
        "kept": len(recorder.tensors),
        "bytes": sum(tensor.nbytes for tensor in recorder.tensors.values()),
        "files": [str(path) for path in trace_paths(out)],
    }
    emit(document, as_json=as_json, output=output, render=lambda console: console.print(_summary(document)))
    return ExitCode.YES


def _kept(stats: bool, baseline: bool, tensors: list[str] | None, sample: int | None) -> Keep:
    """Statistics alone where they or a baseline are asked for; a baseline may keep a sample of each tensor beside."""
    from day0.numerics.recording import Keep

    nothing = stats or (baseline and tensors is None and sample is None)
    return Keep(() if nothing else tuple(tensors or ("*",)), sample)


def _summary(document: dict[str, Any]) -> str:
    out = document["files"][0]
    size = f"{document['tensors']} tensors of {document['steps']} steps, {document['kept']} kept"
    return f"{out}: {size}, {document['bytes']:,} bytes\nnext: day0 compare REFERENCE {out}"


def model_files(model: str) -> ModelFiles:
    """The model with its weights at hand."""
    from day0.source.resolve import resolve, with_weights

    return with_weights(resolve(model), code=False)


def prompt_ids(files: ModelFiles, prompt: str | None, token_ids: str | None) -> tuple[int, ...]:
    """The ids of the command line: a list, a file of them, or a text in the model's tokens."""
    if (prompt is None) == (token_ids is None):
        raise InputError("needs one of --prompt and --token-ids", where="trace")
    if token_ids is not None:
        path = Path(token_ids)
        text = path.read_text("utf-8") if re.search(r"[^\d,\s]", token_ids) and path.is_file() else token_ids
        words = re.split(r"[\s,]+", text.strip(" \n\t[],"))
        if not all(word.isdigit() for word in words):
            raise InputError(f"neither whole numbers nor a file of them: {token_ids:.60}", where="--token-ids")
        return tuple(int(word) for word in words)
    from day0.runtime.tokenizer import Tokenizer

    assert prompt is not None
    if files.folder is None:
        raise InputError("has no tokenizer", where=files.id, hint="--token-ids takes ids")
    ids = tuple(Tokenizer.from_folder(files.folder).encode(prompt, add_special_tokens=True))
    if not ids:
        raise InputError("gives no tokens", where="--prompt")
    return ids


def _settings(device: str, dtype: str, runtime: Runtime, stream: bool, layout: Mapping[str, int]) -> EngineSettings:
    """One sequence at a time, nothing of which is found in the cache."""
    return EngineSettings(
        device=device,
        dtype=dtype,
        runtime="native" if runtime is Runtime.NATIVE else "upstream",
        offload="disk" if stream else "none",
        max_num_seqs=1,
        prefix_caching=False,
        tp=layout["tp"],
        ep=layout["ep"],
        pp=layout["pp"],
        dp=layout["dp"],
    )


def _several(layout: Mapping[str, int]) -> dict[str, int]:
    """The ways in which several ranks share the model; nothing of one rank alone."""
    return {name: count for name, count in layout.items() if count > 1}


def _other_run(replay: Path | None, feed: Path | None) -> OtherRun | None:
    from day0.cli.trace_run import OtherRun
    from day0.numerics.reading import read_recording

    if replay is not None and feed is not None:
        raise InputError("--feed replays the choices too", where="--replay", hint="leave one of them out")
    path = replay or feed
    return None if path is None else OtherRun(read_recording(path), choices_only=feed is None)


def model_hash(files: ModelFiles) -> str:
    """Of names, types and shapes of all tensors, and of the config: which model this is, without reading weights."""
    tensors = files.tensors or {}
    lines = [f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}" for name in sorted(tensors)]
    return hashlib.sha256("\n".join([repr(sorted(files.config.items(), key=str)), *lines]).encode()).hexdigest()


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"day0": day0.__version__, "torch": version("torch"), "transformers": version("transformers")}
