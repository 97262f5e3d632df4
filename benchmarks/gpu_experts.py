"""Cases of routed experts on packed MXFP4, against conversion and one grouped product of each projection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpu_case import Call, Case, Prepared, relative_error
from torch.nn import functional

from day0.runtime.ops import activation
from day0.runtime.ops.kernels import packed_experts
from day0.runtime.ops.kernels.packed_experts import Gate, PackedMatrices, packed_routed_experts
from day0.runtime.quant.kernels.four_bit import convert_four_bit

MODELS = {
    "Kimi K3": (896, 16, 3584, 3072, Gate(4.0, 25.0)),
    "DeepSeek-V3.2": (256, 8, 7168, 2048, Gate()),
    "Qwen3.5": (256, 8, 2048, 512, Gate()),
}
"""Experts, experts of a token, inputs, width, activation."""
TOKENS = (1, 4, 16, 64, 256)
TILES = {
    1: ((64, 64, 4), (64, 64, 8), (32, 64, 8), (32, 128, 4), (64, 32, 4), (16, 128, 4), (32, 32, 4)),
    64: ((128, 32, 8), (256, 32, 8), (64, 32, 4)),
}
"""Rows, words and warps of a tile tried beside the kernel's own, by tokens."""


def _packed(device: torch.device, experts: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    packed = torch.randint(0, 256, (experts, rows, columns // 2), dtype=torch.uint8, device=device)
    return packed, torch.randint(116, 121, (experts, rows, columns // 32), dtype=torch.uint8, device=device)


def _choose(device: torch.device, tokens: int, experts: int, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.rand(tokens, experts, device=device)
    return torch.rand(tokens, top_k, device=device), scores.topk(top_k).indices


def _gated(gate: Gate, opened: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if gate.beta is None:
        return activation.silu_and_mul(opened, value)
    return activation.situ_and_mul(opened, value, gate.beta, gate.linear_beta)


def _prepare(sizes: tuple[int, int, int, int, Gate], tokens: int, device: torch.device) -> Prepared:
    experts, top_k, features, width, gate = sizes
    pairs = (_packed(device, experts, rows, columns) for rows, columns in _shapes(features, width))
    matrices = PackedMatrices(*(part for pair in pairs for part in pair))
    # Other tokens choose other experts, and 5 choices of one token already touch more than a cache holds.
    inputs = [
        (torch.randn(tokens, features, device=device).bfloat16(), *_choose(device, tokens, experts, top_k))
        for _ in range(8 if tokens < 16 else 2)
    ]

    def check() -> float:
        x, weights, ids = inputs[0]
        found = packed_routed_experts(x, weights, ids, matrices, gate)
        wanted = torch.zeros(tokens, features, dtype=torch.float64, device=device)
        for token in range(min(tokens, 4)):
            for place in range(top_k):
                one = [part[ids[token, place]] for part in matrices]
                opened = _numbers(one[0], one[1]) @ x[token].double()
                value = _numbers(one[2], one[3]) @ x[token].double()
                inner = _gated64(gate, opened, value)
                wanted[token] += weights[token, place].double() * (_numbers(one[4], one[5]) @ inner)
        return relative_error(found[:4], wanted[:4])

    def call(tile: tuple[int, int, int], x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> object:
        settings = packed_experts.ONE if tokens * top_k <= experts else packed_experts.SOME
        kept = dict(settings)
        settings.update(zip(("ROWS", "WORDS", "num_warps"), tile, strict=True))
        result = packed_routed_experts(x, weights, ids, matrices, gate)
        settings.update(kept)
        return result

    tiles = TILES.get(tokens, ()) if experts == 896 else ()
    variants: dict[str, list[Call]] = {str(tile): [partial(call, tile, *each) for each in inputs] for tile in tiles}
    peers = {"converted": _converted(matrices, gate, inputs, device)} if tokens in (1, 16, 256) else {}
    own: list[Call] = [partial(packed_routed_experts, *each, matrices, gate) for each in inputs]
    return Prepared(own, check, peers, variants)


def _shapes(features: int, width: int) -> tuple[tuple[int, int], ...]:
    return (width, features), (width, features), (features, width)


def _numbers(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    out = torch.empty(packed.shape[0], packed.shape[1] * 2, dtype=torch.float32, device=packed.device)
    return convert_four_bit({"packed": packed, "scale": scale}, True, out).double()


def _gated64(gate: Gate, opened: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if gate.beta is None:
        return functional.silu(opened) * value
    if gate.linear_beta is not None:
        value = gate.linear_beta * torch.tanh(value / gate.linear_beta)
    return gate.beta * torch.tanh(opened / gate.beta) * torch.sigmoid(opened) * value


def _converted(
    matrices: PackedMatrices,
    gate: Gate,
    inputs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    device: torch.device,
) -> list[Call]:
    """The chosen experts converted by our kernel, then one grouped product a projection; ids renumbered beforehand."""
    calls: list[Call] = []
    for x, weights, ids in inputs[:2]:
        chosen, local = ids.unique(return_inverse=True)
        count = len(chosen)
        packed = matrices[0::2]
        rooms = [torch.empty(count, p.shape[1], p.shape[2] * 2, dtype=torch.bfloat16, device=device) for p in packed]

        def call(x=x, weights=weights, local=local, chosen=chosen, rooms=rooms) -> object:  # type: ignore[no-untyped-def]
            for place, room in enumerate(rooms):
                parts = {"packed": matrices[2 * place], "scale": matrices[2 * place + 1]}
                convert_four_bit(parts, True, room, chosen)
            tokens, top_k = local.shape
            sorted_ids, order = local.flatten().sort(stable=True)
            ends = torch.searchsorted(sorted_ids, torch.arange(1, len(chosen) + 1, device=device)).int()
            rows = x[order // top_k]
            opened, value = (functional.grouped_mm(rows, room.mT, offs=ends) for room in rooms[:2])
            given = functional.grouped_mm(_gated(gate, opened, value), rooms[2].mT, offs=ends)
            out = torch.empty(tokens * top_k, x.shape[1], dtype=torch.float32, device=device)
            out[order] = given.float()
            return torch.einsum("tki,tk->ti", out.unflatten(0, (tokens, top_k)), weights).to(x.dtype)

        calls.append(call)
    return calls


def _cases() -> Iterator[Case]:
    for model, sizes in MODELS.items():
        experts, top_k, features, width, _ = sizes
        for tokens in TOKENS:
            touched = experts * (1 - (1 - top_k / experts) ** tokens)  # experts expected to be chosen by anybody
            moved = touched * 3 * features * width * (0.5 + 1 / 32)
            flops = 6 * tokens * top_k * features * width
            wanted = 0.6 if tokens <= 16 else 0.0
            prepare = partial(_prepare, sizes, tokens)
            yield Case("packed_experts", f"{model}, {tokens} tokens", prepare, moved, flops, wanted, allowed=4e-3)


CASES = tuple(_cases())
