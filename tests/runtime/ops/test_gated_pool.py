import numpy as np
import pytest
import torch

from day0.runtime.ops.gated_pool import gated_pool


def softmax(x):
    shifted = np.exp(x - x.max(axis=0))
    return shifted / shifted.sum(axis=0)


@pytest.mark.parametrize(("entries", "stride", "width"), [(1, 1, 1), (3, 4, 5), (7, 16, 12)])
def test_without_overlap(agrees, rng, entries, stride, width):
    x, gate = rng.standard_normal((2, entries, stride, width))
    bias = rng.standard_normal((stride, width))
    wanted = np.stack([(softmax(gate[e] + bias) * x[e]).sum(0) for e in range(entries)])
    found = gated_pool(*(torch.tensor(t).float() for t in (x, gate, bias)), overlap=False)
    agrees("gated_pool", found, wanted)


@pytest.mark.parametrize(("entries", "stride", "half"), [(2, 1, 1), (3, 4, 5)])
def test_with_overlap(agrees, rng, entries, stride, half):
    x, gate = rng.standard_normal((2, entries, 2 * stride, 2 * half))
    bias = rng.standard_normal((stride, 2 * half))
    first = np.arange(entries) == 0
    wanted = []
    for e in range(entries):
        older = slice(stride, stride) if first[e] else slice(0, stride)
        values = np.concatenate((x[e, older, :half], x[e, stride:, half:]))
        logits = np.concatenate(
            ((gate[e, :stride, :half] + bias[:, :half])[older], gate[e, stride:, half:] + bias[:, half:])
        )
        wanted.append((softmax(logits) * values).sum(0))
    found = gated_pool(*(torch.tensor(t).float() for t in (x, gate, bias)), True, torch.from_numpy(first))
    agrees("gated_pool", found, np.stack(wanted))
