import pytest
import torch

from day0.profile.profile import AttentionResidual, PlainResidual
from day0.runtime.models.build import Build
from day0.runtime.models.residual import Stream, make_output, make_sites
from day0.runtime.ops.registry import choose_operators

OPS = choose_operators(torch.device("cpu"), torch.float32)
BUILD = Build(3, 1e-5, OPS)


def test_the_sum_restarts_from_the_branch_after_a_snapshot():
    embedding, branch = torch.randn(3, 4), torch.randn(3, 4)
    stream = Stream(embedding)
    stream.add(branch)
    assert torch.equal(stream.sum, embedding + branch)
    stream.snapshot()
    assert stream.sum is None
    stream.add(branch)
    assert torch.equal(stream.sum, branch)


def test_candidates_are_the_snapshots_oldest_first_and_then_the_sum():
    embedding, branch = torch.zeros(1, 2), torch.ones(1, 2)
    stream = Stream(embedding)
    stream.snapshot()
    assert [float(c.sum()) for c in stream.candidates()] == [0.0]
    stream.add(branch)
    stream.snapshot()
    stream.add(3 * branch)
    assert [float(c.sum()) for c in stream.candidates()] == [0.0, 2.0, 6.0]


def test_a_snapshot_is_not_changed_by_what_is_added_later():
    stream = Stream(torch.zeros(1, 2))
    stream.add(torch.ones(1, 2))
    stream.snapshot()
    stream.add(torch.ones(1, 2))
    stream.add(torch.ones(1, 2))
    assert stream.snapshots[0].tolist() == [[1.0, 1.0]]


def test_two_snapshots_in_a_row_are_a_defect():
    stream = Stream(torch.zeros(1, 2))
    stream.snapshot()
    with pytest.raises(AssertionError):
        stream.snapshot()


def test_plain_reads_pass_the_sum_on():
    stream = Stream(torch.randn(2, 3))
    x, weights = make_output(PlainResidual(), BUILD).read(stream)
    assert x is stream.sum
    assert weights is None


def test_the_first_read_has_nothing_to_choose_from():
    stream = Stream(torch.randn(2, 3))
    site = make_output(AttentionResidual(2), BUILD)
    x, weights = site.read(stream)
    assert x is stream.sum
    assert weights is None
    stream.snapshot()
    torch.nn.init.ones_(site.norm.weight)
    torch.nn.init.ones_(site.proj.weight)
    assert site.read(stream)[1].tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(("block", "opening"), [(1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 3, 6]), (12, [0])])
def test_blocks_open_by_the_layers_number_from_zero(block, opening):
    opened = []
    for layer in range(7):
        stream = Stream(torch.zeros(1, 3))
        for site in make_sites(AttentionResidual(block), layer, BUILD):
            site.write(stream, torch.ones(1, 3), torch.zeros(1, 3))
        opened += [layer] * len(stream.snapshots)
    assert opened == opening
