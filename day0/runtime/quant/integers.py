"""Integers of a few bits in words: compressed-tensors, GPTQ (arXiv 2210.17323), AWQ (2306.00978), ModelOpt's AWQ."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from day0.profile.quantization import WeightFormat
from day0.runtime.quant.tables import Tables, look_up

Parts = Mapping[str, torch.Tensor]


def read_packed(tables: Tables, packing: WeightFormat, parts: Parts, out: torch.Tensor) -> None:
    """packed [.., rows, columns * bits / 32] words along rows, low bits first; scale [.., rows, groups].

    Integers are stored with 2^(bits - 1) added. Zero points [.., rows * bits / 32, groups] are packed along the
    output in the same way, so that both offsets cancel; without them the offset alone is taken off. `order` names
    each column's group; all -1 means in sequence.
    """
    table, columns = tables.unsigned(packing.bits), out.shape[-1]
    if columns == parts["packed"].shape[-1] * 32 // packing.bits:
        look_up(table, parts["packed"], out)
    else:  # the last word of a row is not full
        out.copy_(look_up(table, parts["packed"])[..., :columns])
    scale = parts["scale"].float()
    if "zero_point" in parts:
        zeros = look_up(table, parts["zero_point"].mT).mT[..., : out.shape[-2], :]
    else:
        zeros = torch.full_like(scale, 2.0 ** (packing.bits - 1))
    _by_group(out, zeros, scale, parts.get("order"))


def read_gptq(tables: Tables, packing: WeightFormat, parts: Parts, out: torch.Tensor) -> None:
    """packed [.., columns * bits / 32, rows] words along the input, low bits first; scale [.., groups, rows].

    Zero points [.., groups, rows * bits / 32] are packed along the output. The first version of the layout stores
    them less one ("zero_below"), and wraps around.
    """
    bits, rows = packing.bits, out.shape[-2]
    table, lead = tables.unsigned(bits), out.shape[:-2]
    words = parts["packed"]
    values = look_up(table, words).view(*lead, words.shape[-2], rows, -1)  # [.., words, rows, values of a word]
    out.unflatten(-1, (words.shape[-2], -1)).copy_(values.movedim(-3, -2))
    scale = parts["scale"].float().mT
    below = "zero_below" in parts
    stored = parts.get("zero_below" if below else "zero_point")
    if stored is None:
        zeros = torch.full_like(scale, 2.0 ** (bits - 1))
    else:
        zeros = look_up(table, stored).mT[..., :rows, :]
        zeros = (zeros + 1.0).remainder(2.0**bits) if below else zeros
    _by_group(out, zeros, scale, parts.get("order"))


def read_awq(tables: Tables, packing: WeightFormat, parts: Parts, out: torch.Tensor) -> None:
    """packed [.., columns, rows / 8] words along the output in AWQ's order; scale and zero points [.., groups, rows]
    and [.., groups, rows / 8]."""
    del packing
    out.copy_(_from_awq_order(look_up(tables.unsigned(4), parts["packed"])).mT)
    zeros = _from_awq_order(look_up(tables.unsigned(4), parts["zero_point"]))
    _by_group(out, zeros.mT, parts["scale"].float().mT, None)


def _from_awq_order(values: torch.Tensor) -> torch.Tensor:
    """[.., words * 8] from the order of the bits to that of the rows: even rows lie in the lower half of a word."""
    return values.unflatten(-1, (-1, 2, 4)).mT.flatten(-3)


def read_modelopt_int4(tables: Tables, packing: WeightFormat, parts: Parts, out: torch.Tensor) -> None:
    """packed [.., rows / 2, columns] bytes: an even row in the low half, the next in the high one, two's complement;
    scale [.., rows, groups].

    The factors on what the matrix reads ("smoothing" [.., columns]) are made part of its columns.
    """
    del packing
    values = look_up(tables.signed_halves, parts["packed"])
    out.unflatten(-2, (-1, 2)).copy_(values.unflatten(-1, (-1, 2)).movedim(-1, -2))
    scale = parts["scale"].float()
    out.unflatten(-1, (scale.shape[-1], -1)).mul_(scale[..., None])
    if "smoothing" in parts:
        out.mul_(parts["smoothing"].float()[..., None, :])


def _by_group(out: torch.Tensor, zeros: torch.Tensor, scale: torch.Tensor, order: torch.Tensor | None) -> None:
    """(out - zero) * scale in place; zeros and scale [.., rows, groups], order [.., columns] the group of each column.

    The difference of integers is exact, so the product is the only rounding.
    """
    groups, columns = scale.shape[-1], out.shape[-1]
    in_sequence = torch.arange(columns, device=out.device) // (columns // groups)
    if order is None or bool((order == in_sequence).all()) or bool((order < 0).all()):
        grouped = out.unflatten(-1, (groups, -1))
        grouped.sub_(zeros[..., None]).mul_(scale[..., None])
    else:
        index = order.long()[..., None, :].expand(out.shape)
        out.sub_(zeros.gather(-1, index)).mul_(scale.gather(-1, index))
