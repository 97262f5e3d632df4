import numpy as np
import pytest
import torch

from day0.runtime.ops import embedding, linear


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (63, 7, 100), (3, 100, 15)])
def test_linear(agrees, rng, shape, biased):
    rows, inputs, outputs = shape
    x, weight, bias = rng.standard_normal((rows, inputs)), rng.standard_normal((outputs, inputs)), None
    wanted = np.array([[sum(x[r] * weight[o]) for o in range(outputs)] for r in range(rows)])
    if biased:
        bias = rng.standard_normal(outputs)
        wanted = wanted + bias
    tensors = [None if t is None else torch.tensor(t).float() for t in (x, weight, bias)]
    agrees("linear", linear.linear(*tensors), wanted)


def test_head_linear_has_a_matrix_per_head(agrees, rng):
    x, weight = rng.standard_normal((5, 3, 7)), rng.standard_normal((3, 4, 7))
    wanted = np.stack([x[:, head] @ weight[head].T for head in range(3)], axis=1)
    agrees("head_linear", linear.head_linear(torch.tensor(x).float(), torch.tensor(weight).float()), wanted)


def test_lm_head_gives_float32(agrees, rng):
    x, weight = rng.standard_normal((3, 15)), rng.standard_normal((100, 15))
    agrees("lm_head", embedding.lm_head(torch.tensor(x).float(), torch.tensor(weight).float()), x @ weight.T)
    narrow = embedding.lm_head(torch.tensor(x).bfloat16(), torch.tensor(weight).bfloat16())
    assert narrow.dtype == torch.float32


def test_embedding_lookup(agrees, rng):
    table, ids = rng.standard_normal((63, 5)).astype(np.float32), [62, 0, 7, 7]
    agrees("embedding_lookup", embedding.embedding_lookup(torch.tensor(ids), torch.tensor(table)), table[ids])


def test_embedding_scatter_leaves_its_input_alone(agrees, rng):
    x, images = (rng.standard_normal((rows, 3)).astype(np.float32) for rows in (7, 2))
    before = torch.tensor(x)
    found = embedding.embedding_scatter(before, torch.tensor([5, 1]), torch.tensor(images))
    wanted = x.copy()
    wanted[5], wanted[1] = images
    agrees("embedding_scatter", found, wanted)
    assert torch.equal(before, torch.tensor(x))
