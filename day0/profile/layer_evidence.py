"""What tensor names alone say about each decoder layer: how its tokens are mixed and what follows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_LAYER = re.compile(r"^((?:.*?\.)?(?:layers|blocks|h|layer|block))\.(\d+)\.(.+)$")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_BESIDE = re.compile(r"(^|\.)(vision|visual|vit|audio|speech|mtp|nextn|encoder|image|resampler)\w*(\.|$)")
"""Stacks of layers that are not the decoder's."""

_MIXERS = (
    ("dsa", (r"indexer\.", r"kv_a_proj|kv_b_proj|wkv_a|wkv_b")),
    ("csa", (r"indexer\.", r"compressor")),
    ("hca", (r"compressor",)),
    ("block_sparse", (r"indexer\.q_proj|index_q_proj", r"indexer\.k_proj|index_k_proj")),
    ("cross", (r"cross_attn",)),
    ("kda", (r"A_log", r"f_a_proj|f_b_proj")),
    ("mamba", (r"A_log|\.A$", r"x_proj|dt_proj")),
    ("mamba2", (r"A_log", r"(^|\.)D$")),
    ("gated_deltanet", (r"A_log",)),
    ("mla", (r"kv_a_proj|kv_b_proj|wkv_a|wkv_b",)),
    ("short_conv", (r"(^|\.)conv\.(in_proj|conv)",)),
    ("shared_kv", (r"(^|\.)(wkv|kv_proj)\.",)),
    ("lightning", (r"qkv_proj|query_key_value", r"attn\.norm|g_norm")),
    ("gqa", (r"q_proj|qkv|query_key_value|\bwq\b|c_attn|q_lin|query", r"k_proj|qkv|query_key_value|\bwk\b|c_attn|key")),
)
"""Kinds of mixers in our words, and expressions that names of such a layer must all match; the first counts."""
_EXPERTS = re.compile(r"(^|\.|_)experts?(\.|_|$)|block_sparse_moe")
_ROUTER = re.compile(r"(^|\.)(gate|router)\.|latent_proj|latent_down|latent_up")
_DENSE = re.compile(r"(mlp|ffn|feed_forward|\bff\b|gate_proj|up_proj|down_proj|fc[12]|c_fc|\bw[123]\b)")
_NORM = re.compile(r"(norm|ln_?\d|layernorm|ln_\w+)")


@dataclass(frozen=True, slots=True)
class LayerEvidence:
    """One decoder layer by its tensors; "unknown" where it has tensors that no rule explains, "none" where none."""

    index: int
    mixer: str
    feed_forward: str


def layer_evidence(names: Iterable[str]) -> tuple[LayerEvidence, ...]:
    """The layers of the decoder: of all stacks of numbered layers the one with most tensors."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    sizes: Counter[str] = Counter()
    # Experts by the hundred repeat one another: told apart they would take longer and say no more.
    for name in set(_EXPERT.sub(".experts.*.", "\n".join(names)).split("\n")):
        match = _LAYER.match(name)
        if match is not None:
            prefix, number, rest = match.groups()
            stacks[prefix][int(number)].add(rest)
            sizes[prefix] += 1
    decoder = [prefix for prefix, _ in sizes.most_common() if not _BESIDE.search(prefix)]
    if not decoder:
        return ()
    layers = stacks[decoder[0]]
    kinds: dict[frozenset[str], tuple[str, str]] = {}
    found = []
    for index in sorted(layers):
        key = frozenset(layers[index])
        if key not in kinds:
            kinds[key] = (_mixer(key), _feed_forward(key))
        found.append(LayerEvidence(index, *kinds[key]))
    return tuple(found)


def _mixer(names: frozenset[str]) -> str:
    for kind, expressions in _MIXERS:
        if all(any(re.search(expression, name) for name in names) for expression in expressions):
            return kind
    known = (_EXPERTS, _ROUTER, _DENSE, _NORM)
    rest = [name for name in names if not any(expression.search(name) for expression in known)]
    return "unknown" if rest else "none"


def _feed_forward(names: frozenset[str]) -> str:
    if any(_EXPERTS.search(name) for name in names):
        return "moe"
    return "dense" if any(_DENSE.search(name) for name in names) else "none"
