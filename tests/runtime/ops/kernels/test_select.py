import pytest
import torch

pytest.importorskip("triton")

from day0.runtime.ops.kernels import select
from day0.runtime.ops.lightning_indexer import choose_entries


def chosen(scores, ready, top_k):
    """The kernel's choice, written between poisoned columns that must stay as they are."""
    frame = torch.full((len(scores), top_k + 2), -7, dtype=torch.int64)
    hidden = torch.arange(scores.shape[1]) >= ready[:, None]
    select.choose_largest(scores.masked_fill(hidden, float("nan")), ready, top_k, frame[:, 1:-1])
    assert (frame[:, [0, -1]] == -7).all()
    return frame[:, 1:-1]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(select, "BLOCK_OF_FEW", 64)


def scores_of(kind, rows, entries):
    make = torch.Generator().manual_seed(3)
    normal = torch.randn(rows, entries, generator=make)
    return {
        "normal": normal,
        "small integers": (normal * 2).round(),
        "two zeros": torch.where(normal > 1.0, normal, normal.sign() * 0.0),
        "clustered": 1.0 + normal * 1e-7,
        "ascending": torch.arange(entries).float().expand(rows, -1) - 100.0,
        "maxima in one block": normal + 50.0 * ((torch.arange(entries) // 64) == 1),
        "one number": torch.full_like(normal, -2.5),
        "infinite": normal.masked_fill(normal < 0.3, float("-inf")),
    }[kind]


KINDS = (
    "normal",
    "small integers",
    "two zeros",
    "clustered",
    "ascending",
    "maxima in one block",
    "one number",
    "infinite",
)


@pytest.mark.parametrize(
    ("kind", "entries", "top_k"),
    [*((kind, 130, 17) for kind in KINDS), ("normal", 64, 64), ("two zeros", 65, 1), ("clustered", 129, 128)],
)
def test_as_the_reference(kind, entries, top_k):
    scores = scores_of(kind, 3, entries)
    ready = torch.tensor([entries, entries - 1, min(top_k, entries) // 2])
    assert torch.equal(chosen(scores, ready, top_k), choose_entries(scores, ready, top_k))


def test_nothing_and_little_to_choose_from():
    scores = scores_of("normal", 3, 130)
    assert chosen(scores, torch.tensor([0, 1, 3]), 5).tolist() == [[-1] * 5, [0, -1, -1, -1, -1], [0, 1, 2, -1, -1]]
