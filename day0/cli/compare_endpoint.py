"""`day0 compare TRACE URL`: a trace's logits against what a server tells by `prompt_logprobs` or `logprobs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from day0.checklist.client import EndpointTarget, Reply
from day0.errors import CannotSay, EnvironmentFault, InputError
from day0.numerics.floor import Floor
from day0.numerics.told import Row, ToldReport, compare_told, reference_logits

if TYPE_CHECKING:
    from rich.console import Console

    from day0.numerics.reading import Recording
    from day0.runtime.tokenizer import Tokenizer

TOP_KS = (20, 5)
"""How many tokens are asked for: what most servers give at most, then OpenAI's own limit."""
AT_ONCE = 4
ID_MARK = "token_id:"
"""How servers that are asked to name tokens by id write one (vLLM's `return_tokens_as_token_ids`)."""


@dataclass(frozen=True, slots=True)
class Told:
    """Rows by position, and which field of the API they came from."""

    rows: Mapping[int, Row]
    source: str


def compare_endpoint(
    reference: Recording, floor: Floor, target: EndpointTarget, eps: float
) -> tuple[ToldReport, Told, dict[str, Any]]:
    """The report, where its rows came from, and the document of `day0.compare/1`.

    The server is given the reference's tokens, the generated ones too, so that rows stay comparable after a token that
    differs. `eps` is what it rounds to. Raises EnvironmentFault where it does not answer, CannotSay where it names
    tokens in a way that says not which.
    """
    logits, ids, key = reference_logits(reference)
    layers = 1 + max((entry.layer for entry in reference.entries if entry.layer is not None), default=0)
    limit = floor.allowance(key, None, layers, eps).limit
    told = _ask(target, ids)
    report = compare_told(logits, told.rows, limit)
    return report, told, _document(report, told, reference, target, floor)


def _ask(target: EndpointTarget, ids: tuple[int, ...]) -> Told:
    if target.get("/v1/models").status == 0:
        raise EnvironmentFault("does not answer", where=target.name, hint="is the server up, and the port right?")
    plain = {"model": target.served_model().get("id", ""), "max_tokens": 1, "temperature": 0}
    text_of = _ids_by_text(target.tokenizer)
    for top_k in TOP_KS:
        asked = plain | {"prompt": list(ids), "logprobs": top_k, "prompt_logprobs": top_k, **NAMED_BY_ID}
        reply = target.post("/v1/completions", asked)
        if reply.status == 200 and (rows := _prompt_rows(reply)):
            return Told(rows | _last_row(reply, len(ids) - 1, top_k, text_of), "prompt_logprobs")
    fields = _accepted(target, plain | {"prompt": list(ids)})

    def ask(length: int) -> dict[int, Row]:
        reply = target.post("/v1/completions", plain | fields | {"prompt": list(ids[:length])})
        return _last_row(reply, length - 1, fields["logprobs"], text_of)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(ask, range(1, len(ids) + 1)))
    return Told({row: tokens for rows in found for row, tokens in rows.items()}, "logprobs")


NAMED_BY_ID = {"return_tokens_as_token_ids": True}


def _accepted(target: EndpointTarget, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with which a server gives the most; raises where it takes none of them."""
    reply = Reply(0, "")
    for top_k in TOP_KS:
        for named in (NAMED_BY_ID, {}):
            fields = {"logprobs": top_k, **named}
            reply = target.post("/v1/completions", {**plain, **fields})
            if reply.status == 200:
                return fields
    if reply.status == 0 or reply.status >= 500:
        raise EnvironmentFault(f"does not answer: {reply.text[:200]}", where=target.name)
    raise InputError(f"refuses the trace's prompt (status {reply.status}): {reply.text[:200]}", where=target.name)


def _choice(reply: Reply) -> dict[str, Any]:
    document = reply.json() if reply.status == 200 else None
    choices = document.get("choices") if isinstance(document, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _prompt_rows(reply: Reply) -> dict[int, Row]:
    """Row i of the logits is told where the prompt's token i + 1 is; the first token has none."""
    told = _choice(reply).get("prompt_logprobs")
    if not isinstance(told, list):
        return {}
    return {place - 1: _by_id(tokens) for place, tokens in enumerate(told) if place and isinstance(tokens, dict)}


def _by_id(tokens: Mapping[str, Any]) -> Row:
    found = {
        int(token): float(told["logprob"])
        for token, told in tokens.items()
        if token.isdigit() and isinstance(told, dict) and isinstance(told.get("logprob"), int | float)
    }
    return Row(found, len(tokens) - len(found))


def _last_row(reply: Reply, row: int, top_k: int, id_of: Callable[[str], int | None]) -> dict[int, Row]:
    """The row that the one generated token was drawn from; of tokens of one text a server may tell only one."""
    logprobs = _choice(reply).get("logprobs")
    tops = logprobs.get("top_logprobs") if isinstance(logprobs, dict) else None
    if not isinstance(tops, list) or not tops or not isinstance(tops[0], dict):
        return {}
    named = ((id_of(name), value) for name, value in tops[0].items() if isinstance(value, int | float))
    found = {token: float(value) for token, value in named if token is not None}
    return {row: Row(found, max(top_k, len(tops[0])) - len(found))}


def _ids_by_text(tokenizer: Tokenizer | None) -> Callable[[str], int | None]:
    """Token ids by how servers name them; a text that several tokens have says not which, and is left out."""

    @cache
    def by_text() -> dict[str, int | None]:
        if tokenizer is None:
            hint = "--model MODEL says whose tokens they are"
            raise CannotSay("the server names tokens by their text", where="endpoint", hint=hint)
        found: dict[str, int | None] = {}
        for token in range(tokenizer.vocab_size):
            text = tokenizer.decode([token], skip_special_tokens=False)
            found[text] = None if text in found else token
        return found

    def find(name: str) -> int | None:
        if name.startswith(ID_MARK) and name.removeprefix(ID_MARK).isdigit():
            return int(name.removeprefix(ID_MARK))
        return by_text().get(name)

    return find


def _document(
    report: ToldReport, told: Told, reference: Recording, target: EndpointTarget, floor: Floor
) -> dict[str, Any]:
    verdict = "deviates" if report.deviating else "within tolerance" if report.verdict == "equal" else "not checked"
    node = {
        "tensor": "logits",
        "layer": None,
        "operator": "logits",
        "verdict": verdict,
        "error": report.row_error,
        "added_error": None,
        "tolerance": report.tolerance,
    }
    first = {**node, "position": report.position, "kind": "other"} if report.deviating else None
    lacking = [f"logits, token {row}" for row in range(report.rows) if row not in told.rows]
    return {
        "schema": "day0.compare/1",
        "verdict": report.verdict,
        "reference": reference.where,
        "candidate": target.name,
        "first": first,
        "nodes": [node],
        "missing": {"a": [], "b": lacking},
        "floor": floor.source,
        "endpoint": {"source": told.source, **asdict(report)},
    }


def render_told(report: ToldReport, told: Told, floor: str, console: Console) -> None:
    """Draw the report."""
    console.print(
        f"{report.verdict}: {report.told} of {report.rows} rows told by {told.source}, {report.deviating} off"
    )
    if floor == "assumed":
        console.print("the tolerance is assumed from types and depth: --floor or --model measures it")
    if report.error is None or report.worst_kl is None or report.agreement is None:
        return
    console.print(
        f"log probabilities of {report.top_k} tokens a row: error {report.error:.2e}, KL at least {report.worst_kl:.2e}"
        f" nats (mean {report.mean_kl:.2e}), top-{report.top_k} agreement {report.agreement:.4f}"
    )
    console.print(f"worst row: token {report.position}, error {report.row_error:.2e}, tolerance {report.tolerance:.2e}")
    if (first := report.first) is not None:
        tie = "a near tie" if first.near_tie else "no tie"
        console.print(
            f"{report.differing} rows have another likeliest token; the first after position {first.position}:"
            f" {first.reference} and {first.candidate}; margin {first.margin:.2e}, noise {first.noise:.2e}: {tie}"
        )
