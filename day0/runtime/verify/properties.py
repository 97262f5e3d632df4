"""What follows from an operator's definition whatever its numbers are: order, company, halves and the future.

Which arguments an axis runs through is seen by their shapes, so sizes at which two axes are alike are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from day0.operators.tolerance import Tolerance

ROWS = frozenset(
    (
        *("rms_norm", "rms_norm_plus_one", "unit_rms_norm", "layer_norm", "l2_norm", "gated_rms_norm", "residual_add"),
        *("silu_and_mul", "situ_and_mul", "gelu_and_mul", "sigmoid_gate", "multiply", "silu", "gelu", "quick_gelu"),
        *("attention_residual_mix", "linear", "head_linear", "rope", "embedding_lookup", "kda_gate"),
        *("moe_router_topk_softmax", "moe_router_topk_sigmoid_bias"),
    )
)
"""Operators whose tokens know nothing of one another."""

RECURRENCES = frozenset(
    (
        *("causal_conv1d", "causal_conv1d_bias", "kda_chunk", "kda_recurrent", "gated_delta_chunk"),
        *("gated_delta_recurrent", "lightning_chunk", "lightning_recurrent"),
    )
)
"""Operators of sequences [sequences, tokens, ...] that give outputs and the state after the last token."""

ATTENTION = frozenset(
    (
        *("paged_gqa_attention", "paged_gqa_attention_variant", "paged_mla_attention", "window_mla_attention"),
        *("sparse_mla_attention", "lightning_indexer_topk"),
    )
)
"""Operators of queries [sequences, tokens, ...] on a cache; those that have it are told the tokens before."""

SEQUENCES = 2
"""How many sequences the trials of the two kinds above have."""

Run = Callable[[Sequence[Any]], tuple[torch.Tensor, ...]]


def broken_properties(
    operator: str,
    facts: Mapping[str, Any],
    arguments: Sequence[Any],
    outputs: Sequence[torch.Tensor],
    run: Run,
    tolerances: Sequence[Tolerance],
) -> list[str]:
    """Properties that `run` does not keep, in words; `outputs` are those of `arguments`. None for unlisted ones.

    Shorter inputs may be summed in another order, so what is compared agrees as an output agrees with its reference.
    """
    is_rows = operator in ROWS
    if not is_rows and operator not in RECURRENCES | ATTENTION:
        return []
    count = facts["tokens"] if is_rows else SEQUENCES
    if count < 2 or [*facts.values()].count(count) > int(is_rows):
        return []
    places = tuple(place for place, one in enumerate(arguments) if _leads(one, (count,)))

    def differ(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
        pairs = zip(tolerances, found, wanted, strict=True)
        return any(not tolerance.check(_wide(one), _wide(other)).equal for tolerance, one, other in pairs)

    faults = []
    turned = run(_each(arguments, places, lambda tensor: tensor.flip(0)))
    if differ(turned, [output.flip(0) for output in outputs]):
        faults.append("what is computed depends on the order of tokens or sequences")
    half = count // 2
    alone = run(_each(arguments, places, lambda tensor: tensor[:half]))
    if differ(alone, [output[:half] for output in outputs]):
        faults.append("what is computed depends on the company in the batch")
    tokens = facts["tokens"]
    timed = tuple(place for place, one in enumerate(arguments) if not is_rows and _leads(one, (count, tokens)))
    if timed and tokens > 1:
        if differ(_in_halves(operator, arguments, outputs, timed, tokens // 2, run), outputs):
            faults.append("two halves do not give the whole")
        late = run(_each(arguments, timed, _another_last))
        past = (_wide(one[0][:, :-1]) for one in (late, outputs))
        if operator in RECURRENCES and not tolerances[0].check(*past).equal:
            faults.append("an output depends on a later token")
    return faults


def _in_halves(
    operator: str,
    arguments: Sequence[Any],
    outputs: Sequence[torch.Tensor],
    timed: Sequence[int],
    half: int,
    run: Run,
) -> list[torch.Tensor]:
    """The first tokens, then the others: with the state that they left, or told that there are so many before."""
    first = run(_each(arguments, timed, lambda tensor: tensor[:, :half]))
    rest = _each(arguments, timed, lambda tensor: tensor[:, half:])
    if operator in RECURRENCES:
        state = next(
            place for place, one in enumerate(arguments) if _leads(one, outputs[1].shape) and place not in timed
        )
        rest[state] = first[1]
        second = run(rest)
        return [torch.cat((first[0], second[0]), dim=1), second[1]]
    for place, one in enumerate(rest):
        if isinstance(one, torch.Tensor) and one.dtype == torch.int64 and one.shape == (SEQUENCES,):
            rest[place] = one + half
    return [torch.cat(pair, dim=1) for pair in zip(first, run(rest), strict=True)]


def _another_last(tensor: torch.Tensor) -> torch.Tensor:
    other = tensor.clone()
    other[:, -1] = other[:, -1] * -0.5
    return other


def _leads(argument: Any, shape: Sequence[int]) -> bool:
    """Whether a tensor, or every tensor of a list, begins with these sizes."""
    if isinstance(argument, list):
        return bool(argument) and all(_leads(one, shape) for one in argument)
    return isinstance(argument, torch.Tensor) and tuple(argument.shape[: len(shape)]) == tuple(shape)


def _each(arguments: Sequence[Any], places: Sequence[int], change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    changed = list(arguments)
    for place in places:
        one = changed[place]
        changed[place] = [change(part) for part in one] if isinstance(one, list) else change(one)
    return changed


def _wide(output: torch.Tensor) -> torch.Tensor:
    return output if output.dtype == torch.int64 else output.double()
