"""References of vision towers."""

import torch

from day0.scaffold.templates.references.rows import attend, sequences


def vision_patch_embed(x, weight):
    return (x.float() @ weight.float().T).to(x.dtype)


def biased_patch_embed(x, weight, bias):
    return (x.float() @ weight.float().T + bias.float()).to(x.dtype)


def vision_rope_2d(q, k, angles):
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]
    return _turned(q, turn), _turned(k, turn)


def _turned(x, turn):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def vision_attention(q, k, v, starts, *, scale):
    y = torch.empty_like(q)
    for rows in sequences(starts):
        seen = torch.ones(rows.stop - rows.start, rows.stop - rows.start, dtype=torch.bool)
        y[rows] = attend(q[rows], k[rows], v[rows], seen, scale).to(q.dtype)
    return y
