import numpy as np
import pytest
import torch

from day0.runtime.ops.residual import attention_residual_mix


@pytest.mark.parametrize(("candidates", "tokens", "width"), [(1, 1, 1), (2, 7, 15), (9, 63, 100)])
def test_attention_residual_mix(agrees, rng, candidates, tokens, width):
    # Candidates of very different size: the score sees their direction, the mix their size.
    sizes = 10.0 ** np.linspace(-2, 2, candidates)
    stack = rng.standard_normal((candidates, tokens, width)) * sizes[:, None, None]
    weight, query = 1 + 0.3 * rng.standard_normal(width), rng.standard_normal(width)
    wanted, shares = np.zeros((tokens, width)), np.zeros((tokens, candidates))
    for t in range(tokens):
        scores = [(c[t] / np.sqrt((c[t] ** 2).mean() + 1e-5) * weight) @ query for c in stack]
        shares[t] = np.exp(scores - max(scores)) / np.exp(scores - max(scores)).sum()
        wanted[t] = sum(share * c[t] for share, c in zip(shares[t], stack, strict=True))
    tensors = [torch.tensor(c).float() for c in stack]
    mix, weights = attention_residual_mix(tensors, torch.tensor(weight).float(), torch.tensor(query).float(), 1e-5)
    agrees("attention_residual_mix", mix, wanted)
    agrees("attention_residual_mix", weights, shares, output=1)


def test_one_candidate_is_passed_on():
    only = torch.randn(3, 5)
    mix, weights = attention_residual_mix([only], torch.randn(5), torch.randn(5), 1e-5)
    assert torch.equal(mix, only)
    assert torch.equal(weights, torch.ones(3, 1))


def test_bfloat16_candidates_are_summed_in_float32():
    candidates = [torch.full((1, 4), value, dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0, 1.0)]
    # Equal directions give equal weights: the sum is 259 / 4, which a bfloat16 running sum would not reach.
    mix, _ = attention_residual_mix(candidates, torch.ones(4), torch.ones(4), 0.0)
    assert mix.dtype == torch.bfloat16
    assert mix.tolist() == torch.full((1, 4), 64.75).bfloat16().tolist()
