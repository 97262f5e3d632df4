import math

import numpy as np
import pytest
import torch

from day0.runtime.ops.rope import multi_axis_rope_table, rope, rope_frequencies, rope_table

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768.0}


def plain(theta, dim):
    return np.array([theta ** (-2 * i / dim) for i in range(dim // 2)])


@pytest.mark.parametrize(("theta", "dim"), [(10000.0, 2), (500000.0, 128), (1e6, 30)])
def test_plain_frequencies(theta, dim):
    frequencies, factor = rope_frequencies(theta, dim, "none", {})
    assert frequencies.tolist() == pytest.approx(plain(theta, dim).tolist(), rel=1e-6)
    assert factor == 1.0
    scaled, _ = rope_frequencies(theta, dim, "linear", {"factor": 4.0})
    assert torch.equal(scaled, frequencies / 4)


def test_llama3_keeps_short_waves_and_stretches_long_ones():
    frequencies, factor = rope_frequencies(500000.0, 128, "llama3", LLAMA3)
    assert factor == 1.0
    for found, f in zip(frequencies.tolist(), plain(500000.0, 128), strict=True):
        wavelength = 2 * math.pi / f
        if wavelength < 8192 / 4:
            wanted = f
        elif wavelength > 8192:
            wanted = f / 8
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            wanted = (1 - smooth) * f / 8 + smooth * f
        assert found == pytest.approx(wanted, rel=1e-5)


def test_yarn_blends_between_two_channels():
    dim, theta = 64, 10000.0
    frequencies, factor = rope_frequencies(theta, dim, "yarn", YARN)
    assert factor == pytest.approx(0.1 * math.log(4) + 1)

    def channel(turns):
        return dim * math.log(32768 / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = math.floor(channel(32)), math.ceil(channel(1))
    for i, (found, f) in enumerate(zip(frequencies.tolist(), plain(theta, dim), strict=True)):
        ramp = min(max((i - low) / (high - low), 0), 1)
        assert found == pytest.approx((1 - ramp) * f + ramp * f / 4, rel=1e-5)
    assert 0 < low < high < dim // 2


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [
        ({"attention_factor": 1.3}, 1.3),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707, "mscale_all_dim": 0.5}, (0.0707 * math.log(4) + 1) / (0.05 * math.log(4) + 1)),
        ({"factor": 1.0}, 1.0),
    ],
)
def test_yarn_magnitude(extra, wanted):
    assert rope_frequencies(10000.0, 64, "yarn", YARN | extra)[1] == pytest.approx(wanted)


def test_an_unknown_rule_is_a_defect():
    with pytest.raises(AssertionError, match="no rule here"):
        rope_frequencies(10000.0, 64, "longrope", {})


@pytest.mark.parametrize("layout", ["neox", "interleaved"])
@pytest.mark.parametrize(("tokens", "heads", "dim", "rotated"), [(1, 1, 2, 2), (63, 3, 16, 16), (7, 2, 15, 6)])
def test_rotation_is_a_complex_product(agrees, rng, layout, tokens, heads, dim, rotated):
    x, positions = rng.standard_normal((tokens, heads, dim)), np.sort(rng.integers(0, 1000, tokens))
    angles = positions[:, None] * plain(10000.0, rotated)
    wanted = x.copy()
    for pair in range(rotated // 2):
        a, b = (pair, pair + rotated // 2) if layout == "neox" else (2 * pair, 2 * pair + 1)
        turned = (x[..., a] + 1j * x[..., b]) * 1.5 * np.exp(1j * angles[:, pair])[:, None]
        wanted[..., a], wanted[..., b] = turned.real, turned.imag
    cos, sin = (torch.tensor(1.5 * part).float() for part in (np.cos(angles), np.sin(angles)))
    agrees("rope", rope(torch.tensor(x).float(), cos, sin, layout), wanted)


def test_table_is_cos_and_sin_of_position_times_frequency():
    positions, frequencies = torch.tensor([0, 1, 63, 100]), torch.tensor([1.0, 0.25, 0.01])
    cos, sin = rope_table(positions, frequencies, 1.5)
    for row, position in enumerate(positions.tolist()):
        for column, frequency in enumerate(frequencies.tolist()):
            assert float(cos[row, column]) == pytest.approx(1.5 * math.cos(position * frequency), abs=1e-5)
            assert float(sin[row, column]) == pytest.approx(1.5 * math.sin(position * frequency), abs=1e-5)
    assert cos.dtype == sin.dtype == torch.float32


@pytest.mark.parametrize("layout", ["neox", "interleaved"])
def test_position_zero_changes_nothing_and_lengths_are_kept(layout):
    x = torch.randn(5, 2, 16)
    cos, sin = rope_table(torch.tensor([0, 1, 2, 500, 100000]), rope_frequencies(10000.0, 16, "none", {})[0], 1.0)
    turned = rope(x, cos, sin, layout)
    assert torch.equal(turned[0], x[0])
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-5)


def test_products_depend_on_the_distance_alone():
    q, k = torch.randn(1, 1, 32).double(), torch.randn(1, 1, 32).double()
    frequencies = rope_frequencies(10000.0, 32, "none", {})[0]

    def product(at_q, at_k):
        turned = [rope(x, *rope_table(torch.tensor([p]), frequencies, 1.0), "neox") for x, p in ((q, at_q), (k, at_k))]
        return float((turned[0] * turned[1]).sum())

    assert product(10, 3) == pytest.approx(product(107, 100), rel=1e-4)
    assert product(10, 3) != pytest.approx(product(10, 4), rel=1e-4)


def test_axes_of_positions_turn_their_own_pairs():
    positions, frequencies = torch.tensor([[1, 2], [10, 20], [100, 200]]), torch.ones(7)
    cos, _ = multi_axis_rope_table(positions, frequencies, 1.0, (4, 2, 1), False)
    assert torch.equal(cos[0], torch.tensor([1.0, 1, 1, 1, 10, 10, 100]).cos())
    dealt, _ = multi_axis_rope_table(positions, frequencies, 1.0, (4, 2, 1), True)
    assert torch.equal(dealt[1], torch.tensor([2.0, 20, 200, 2, 20, 2, 2]).cos())
    alike = torch.tensor([[3, 5]] * 3)
    for interleaved in (False, True):
        found = multi_axis_rope_table(alike, frequencies, 1.0, (4, 2, 1), interleaved)
        assert torch.equal(found[1], rope_table(alike[0], frequencies, 1.0)[1])


def test_proportional_channels_stand_still_beyond_their_share():
    plain, _ = rope_frequencies(10000.0, 16, "none", {})
    found, _ = rope_frequencies(10000.0, 16, "proportional", {"partial_rotary_factor": 0.25, "factor": 2.0})
    assert torch.equal(found, torch.cat((plain[:2] / 2, torch.zeros(6))))
