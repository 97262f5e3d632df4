"""The clauses of the device contract: numbers, indexing, order and memory. Answers are worked out by hand."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from day0.runtime.device.contract import Clause, differs, first_of

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool)
"""What weights, caches, packed weights, indices and masks are kept in."""


def _round_trips(device: torch.device) -> str | None:
    values = [0, 1, 1, 0, 1]
    return first_of(
        {str(dtype): differs(torch.tensor(values, dtype=dtype).to(device).clone(), values) for dtype in DTYPES}
    )


def _rounds_to_even(device: torch.device) -> str | None:
    halfway = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20], device=device)
    return differs(halfway.to(torch.bfloat16).float(), [1.0, 1 + 2**-6, -1.0, 1 + 2**-7])


def _keeps_subnormal_halves(device: torch.device) -> str | None:
    return differs(torch.tensor([2**-24, 3 * 2**-24], device=device).to(torch.float16).float(), [2**-24, 3 * 2**-24])


def _full_products(device: torch.device) -> str | None:
    # (1 + e)(1 - e) = 1 - e^2: with inputs cut to ten bits of mantissa e is gone. Four such sums are exact in float32.
    e = 2**-11
    left, right = torch.zeros(4, 64, device=device), torch.zeros(1, 64, device=device)
    left[:, :4], right[:, :4] = 1 + e, 1 - e
    return differs(functional.linear(left, right), [[4 - 4 * e * e]] * 4)


def _wide_sums(device: torch.device) -> str | None:
    # A running sum in bfloat16 stops at 256, in float16 loses ones beyond 2048.
    checks = {}
    for dtype in (torch.bfloat16, torch.float16):
        ones = torch.ones(1, 4096, dtype=dtype, device=device)
        checks[str(dtype)] = differs(functional.linear(ones, ones), [[4096.0]])
    return first_of(checks)


def _batched_products(device: torch.device) -> str | None:
    # Strides of a transposed view, and an axis that is not there in the other operand.
    left = torch.arange(12.0, device=device).reshape(2, 3, 2).transpose(0, 1)  # [3, 2, 2]
    right = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    wanted = [[[2.0, 4.0], [20.0, 46.0]], [[8.0, 18.0], [26.0, 60.0]], [[14.0, 32.0], [32.0, 74.0]]]
    return differs(torch.einsum("abk,ck->abc", left, right), wanted)


def _masked_softmax(device: torch.device) -> str | None:
    scores = torch.tensor([[1e4, 1e4, -INF, -1e4], [-INF, 0.0, math.log(3.0), -INF]], device=device)
    weights = torch.softmax(scores, dim=-1)
    hidden = differs(weights[:, 2:][[0, 1], [0, 1]], [0.0, 0.0])
    return hidden or differs(weights, [[0.5, 0.5, 0.0, 0.0], [0.0, 0.25, 0.75, 0.0]], 1e-6)


def _functions(device: torch.device) -> str | None:
    x = torch.tensor([-80.0, -1.5, -1e-6, 1e-6, 0.75, 20.0])
    wanted = {
        "exp": [math.exp(v) for v in x.tolist()],
        "tanh": [math.tanh(v) for v in x.tolist()],
        "sigmoid": [math.exp(v) / (1 + math.exp(v)) for v in x.tolist()],
        "sin": [math.sin(v) for v in x.tolist()],
        "cos": [math.cos(v) for v in x.tolist()],
    }
    checks = {name: differs(getattr(torch, name)(x.to(device)), values, 2e-6) for name, values in wanted.items()}
    soft = [math.log1p(math.exp(v)) for v in x.tolist()]
    return first_of(checks | {"softplus": differs(functional.softplus(x.to(device)), soft, 2e-6)})


def _far_angles(device: torch.device) -> str | None:
    # A position of a long context: the angle is far from zero, and reduction by a short pi would show.
    angle = 1_000_003.0
    turned = torch.tensor([angle], device=device)
    return first_of(
        {
            "cos": differs(turned.cos(), [math.cos(angle)], 1e-5),
            "sin": differs(turned.sin(), [math.sin(angle)], 1e-5),
        }
    )


def _small_roots(device: torch.device) -> str | None:
    return differs(torch.tensor([1e-30, 4.0], device=device).rsqrt(), [1e15, 0.5], 1e-6)


def _nan_travels(device: torch.device) -> str | None:
    rows = torch.tensor([[1.0, NAN, 2.0], [1.0, INF, 2.0], [1.0, 3.0, 2.0]], device=device)
    return differs(rows.amax(dim=-1).isfinite(), [False, False, True])


def _running_sums(device: torch.device) -> str | None:
    falls = torch.full((2, 3), -0.5, device=device).cumsum(dim=1)
    return differs(falls, [[-0.5, -1.0, -1.5]] * 2)


def _triangular_systems(device: torch.device) -> str | None:
    # What lies on and above the diagonal must not be read.
    system = torch.tensor([[NAN, NAN, NAN], [2.0, NAN, NAN], [1.0, -1.0, NAN]], device=device)
    right = torch.tensor([[1.0], [5.0], [0.0]], device=device)
    solved = torch.linalg.solve_triangular(system.nan_to_num(7.0), right, upper=False, unitriangular=True)
    return differs(solved, [[1.0], [3.0], [2.0]])


def _stable_order(device: torch.device) -> str | None:
    scores = torch.tensor([[0.5, 0.9, 0.5, 0.9, 0.1, 0.5] * 300], device=device)
    order = scores.sort(dim=-1, descending=True, stable=True).indices[0]
    places = torch.arange(1800, device=device)
    wanted = torch.cat([places[scores[0] == value] for value in (0.9, 0.5, 0.1)])
    if not torch.equal(order, wanted):
        return "equal scores are not in order of their index"
    numbers = torch.tensor([3, 1, 3, 0, 1, 3], device=device)
    return differs(numbers.argsort(stable=True), [3, 1, 4, 0, 2, 5])


def _first_maximum(device: torch.device) -> str | None:
    return differs(torch.tensor([[0.0, 2.0, 2.0], [5.0, 5.0, 5.0]], device=device).argmax(dim=-1), [1, 0])


def _counts(device: torch.device) -> str | None:
    return differs(torch.tensor([3, 1, 3, 3], device=device).bincount(minlength=6), [0, 1, 0, 3, 0, 0])


def _row_writes(device: torch.device) -> str | None:
    plane = torch.zeros(6, 2, device=device)
    plane.index_copy_(0, torch.tensor([4, 1], device=device), torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device))
    return differs(plane, [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])


def _repeated_adds(device: torch.device) -> str | None:
    total = torch.zeros(3, 1, device=device)
    total.index_add_(
        0, torch.tensor([2, 0, 2, 2], device=device), torch.tensor([[1.0], [2.0], [4.0], [8.0]]).to(device)
    )
    return differs(total, [[2.0], [0.0], [13.0]])


def _gathers(device: torch.device) -> str | None:
    plane = torch.arange(10.0, device=device).reshape(5, 2)
    slots = torch.tensor([[4, 0], [2, 2]], device=device)
    rows = differs(plane[slots], [[[8.0, 9.0], [0.0, 1.0]], [[4.0, 5.0], [4.0, 5.0]]])
    table = torch.tensor([0.5, -6.0], device=device)[torch.tensor([1, 0, 1], dtype=torch.uint8, device=device).int()]
    return rows or differs(table, [-6.0, 0.5, -6.0])


def _views_share_memory(device: torch.device) -> str | None:
    plane = torch.zeros(6, device=device)
    plane.view(3, 2)[torch.tensor([2], device=device)] = 1.0
    plane[:2].copy_(torch.tensor([5.0, 6.0], device=device))
    return differs(plane, [5.0, 6.0, 0.0, 0.0, 1.0, 1.0])


def _empty_batches(device: torch.device) -> str | None:
    none = torch.empty(0, 4, device=device)
    weight = torch.ones(3, 4, device=device)
    joined = torch.cat((functional.linear(none, weight), torch.ones(1, 3, device=device)))
    return differs(joined, [[1.0, 1.0, 1.0]]) or differs(
        weight.index_copy(0, torch.empty(0, dtype=torch.int64, device=device), none)[0], [1.0] * 4
    )


def _far_indices(device: torch.device) -> str | None:
    # Beyond 2^31 elements a 32-bit index wraps round. On a host only the pages that are touched take memory.
    far = (1 << 31) + 5
    plane = torch.empty(far + 1, 1, dtype=torch.uint8, device=device)
    plane[far - (1 << 31)] = 9
    plane.index_copy_(0, torch.tensor([far], device=device), torch.tensor([[7]], dtype=torch.uint8, device=device))
    return differs(plane[torch.tensor([far, far - (1 << 31)], device=device), 0], [7, 9])


NUMBERS = (
    Clause("round-trips", "weights, caches and masks keep their bits on the way to the device and back", _round_trips),
    Clause("rounds-to-even", "conversion to bfloat16 is the same as on the host", _rounds_to_even),
    Clause("subnormal-halves", "float16 weights near zero are not flushed", _keeps_subnormal_halves),
    Clause("full-products", "float32 products are float32: comparisons at 1e-5 mean something", _full_products),
    Clause("wide-sums", "products of narrow floats are summed in float32", _wide_sums),
    Clause("batched-products", "contractions read strided operands", _batched_products),
    Clause("masked-softmax", "hidden keys weigh exactly nothing, and large scores do not overflow", _masked_softmax),
    Clause("functions", "gates and decays are accurate to float32 at both ends", _functions),
    Clause("far-angles", "rotations of far positions are right", _far_angles),
    Clause("small-roots", "norms of small vectors are right", _small_roots),
    Clause("nan-travels", "a maximum shows NaN, by which a broken request is told from sound ones", _nan_travels),
    Clause("running-sums", "decays of a chunk add up along an axis", _running_sums),
    Clause("triangular-systems", "the chunked delta rule solves one per chunk", _triangular_systems),
)

INDEXING = (
    Clause(
        "stable-order", "of equal scores the lowest index is chosen, for experts and sparse attention", _stable_order
    ),
    Clause("first-maximum", "greedy decoding takes the lowest of equal tokens", _first_maximum),
    Clause("counts", "tokens are counted by expert", _counts),
    Clause("row-writes", "new keys and values go to their slots and nowhere else", _row_writes),
    Clause("repeated-adds", "several experts add to one token", _repeated_adds),
    Clause("gathers", "pages are gathered by number, packed bytes looked up in tables", _gathers),
    Clause("views-share-memory", "what is written through a view is in the tensor", _views_share_memory),
    Clause("empty-batches", "a step may have no rows for an expert or an image", _empty_batches),
    Clause("far-indices", "a cache may hold more than 2^31 elements", _far_indices),
)
