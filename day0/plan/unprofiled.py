"""What engines allocate beside what they measure at start: CUDA graphs and the sampler of drafts, with bounds."""

from __future__ import annotations

from day0.plan.cluster import GIB
from day0.plan.memory import RankNeed, Risk

_MIB = 2**20
_LEAST_GRAPHS = GIB
"""Planned where the formula has less: pools and loaded kernels that few sizes need as well."""
_GRAPH_LAYER = _MIB // 4
"""Bytes that one captured size costs in one layer, as planned."""
_GRAPH_LAYER_MOST = int(0.65 * _MIB)
"""The most that it is taken for. Single logs can be read as more; `docs/memory.md` has them."""
_LARGEST_GRAPH = 512
_SORTED_LOGIT = 38
"""Bytes of a logit that is sampled with top-p: what a measured start counts for one row of each request."""
_DRAFTED_LOGIT = 4 + 2 + 4
"""Bytes of a logit of a drafted token: its probability, kept for the verdict, and two copies while it is drawn."""
VLLM_DRAFTED = 1
"""Tokens that vLLM is told to draft for a request unless the plan says how many."""
_RECOVERED_LOGIT = 4
"""Bytes of a logit of a request whose refused token is drawn anew."""


def captured_sizes(requests: int, drafted: int = 0) -> int:
    """How many batch sizes vLLM captures: 1, 2, 4, by eights up to 256 and by sixteens up to 512.

    The largest is twice the tokens of a decoding step of all `requests` (`cudagraph_capture_sizes`).
    """
    largest = min(2 * requests * (1 + drafted), _LARGEST_GRAPH)
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, _LARGEST_GRAPH + 1, 16))
    return sum(size <= largest for size in sizes)


def sglang_captured_sizes(largest: int, *, drafts: bool = False) -> int:
    """How many batch sizes SGLang captures up to `largest`, itself among them: dense ones first, then by eights,
    sixteens and 32; small batches lie closer where tokens are drafted (`generate_decode_cuda_graph_batch_sizes`)."""
    if drafts:
        small = (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8))
        sizes = {*small, *range(272, largest + 1, 16), largest}
    else:
        sizes = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32), largest}
    return sum(size <= largest for size in sizes)


def graph_bytes(layers: int, sizes: int, captures: int) -> tuple[int, int]:
    """Bytes of the graphs as planned and the most that logs have, where each size is captured `captures` times."""
    graphs = layers * sizes * captures
    planned = max(_LEAST_GRAPHS, graphs * _GRAPH_LAYER)
    return planned, max(planned, graphs * _GRAPH_LAYER_MOST)


def draft_scratch(need: RankNeed, requests: int) -> tuple[int, int]:
    """Bytes of verifying a full batch of drafts, outside what the engine measured: the least, and what may come on top.

    The least are the float32 logits of all rows. When requests sample with top-p, every row is sorted, drafted tokens
    keep their probabilities, and refused ones are drawn anew. What was measured at the start is no help: its blocks are
    of a row for each request, too small for tensors of several.
    """
    drafted = need.workload.drafted(VLLM_DRAFTED)
    if not drafted or not need.is_last:
        return 0, 0
    logits = requests * need.profile.vocab_size
    least = logits * (1 + drafted) * 4
    most = logits * ((1 + drafted) * _SORTED_LOGIT + drafted * _DRAFTED_LOGIT + _RECOVERED_LOGIT)
    return least, most - least


def graph_risk(planned: int, most: int, *, in_pool: bool) -> Risk:
    """What graphs may take beyond what is planned for them."""
    what = f"CUDA graphs are planned as {planned / GIB:.2f} GiB, and may take up to {most / GIB:.2f}"
    return Risk(what, most - planned, in_pool, "fewer --max-num-seqs, whose graphs are fewer")


def draft_risk(least: int, more: int) -> Risk:
    """What the sampler of drafts may take beyond its logits."""
    what = f"verifying drafts of all requests takes {least / GIB:.2f} to {(least + more) / GIB:.2f} GiB unmeasured"
    return Risk(what, more, in_pool=False, remedy="fewer --max-num-seqs or a smaller --mem-fraction")
