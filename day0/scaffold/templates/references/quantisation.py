"""References of operators that turn packed weights back into numbers. The result is in the model's dtype."""

import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _e2m1(packed):
    """Bytes [rows, row_bytes] -> values [rows, 2 row_bytes]; the low nibble first, its fourth bit the sign."""
    values = torch.tensor([*E2M1, *(-value for value in E2M1)])
    return torch.stack((values[packed.int() % 16], values[packed.int() // 16]), dim=-1).flatten(-2)


def _times_groups(values, scale):
    return (values.unflatten(-1, (scale.shape[-1], -1)) * scale[..., None]).flatten(-2)


def _integers(words, bits):
    """int32 words [..., words] -> unsigned integers [..., words x 32 / bits], low bits first."""
    shifts = torch.arange(0, 32, bits)
    return ((words.long()[..., None] % 2**32) // 2**shifts % 2**bits).flatten(-2)


def mxfp4_dequantize(packed, scale, *, columns, group_size, dtype):
    return _times_groups(_e2m1(packed), torch.exp2(scale.float() - 127.0))[:, :columns].to(dtype)


def mxfp8_dequantize(weight, scale, *, group_size, dtype):
    return _times_groups(weight.float(), torch.exp2(scale.float() - 127.0)).to(dtype)


def nvfp4_dequantize(packed, scale, global_scale, *, columns, group_size, dtype):
    return (_times_groups(_e2m1(packed), scale.float())[:, :columns] * global_scale).to(dtype)


def fp8_block_dequantize(weight, scale, *, block_rows, block_columns, dtype):
    rows, columns = weight.shape
    wide = scale.repeat_interleave(block_rows, dim=0)[:rows].repeat_interleave(block_columns, dim=1)[:, :columns]
    return (weight.float() * wide).to(dtype)


def fp8_channel_dequantize(weight, scale, *, dtype):
    return (weight.float() * scale.float()[:, None]).to(dtype)


def fp8_tensor_dequantize(weight, scale, *, dtype):
    return (weight.float() * scale).to(dtype)


def int8_dequantize(weight, scale, *, dtype):
    return (weight.float() * scale.float()[:, None]).to(dtype)


def int_packed_dequantize(packed, scale, *, columns, group_size, bits, dtype):
    values = _integers(packed, bits)[:, :columns].float() - 2.0 ** (bits - 1)
    return _times_groups(values, scale.float()).to(dtype)


def int4_awq_dequantize(packed, scale, *, group_size, dtype):
    """The low nibble is the even row; both are two's complement."""
    nibbles = torch.stack((packed.int() % 16, packed.int() // 16), dim=1).flatten(0, 1)
    values = (nibbles - 16 * (nibbles > 7)).float()[: scale.shape[0]]
    return _times_groups(values, scale.float()).to(dtype)


def awq_dequantize(packed, zeros, scale, *, group_size, bits, dtype):
    """AWQ packs output channels of a word in the order 0, 2, 4, 6, 1, 3, 5, 7."""
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    values, points = (
        _integers(words, bits).unflatten(-1, (-1, 8))[..., order].flatten(-2)[:, : scale.shape[1]].float()
        for words in (packed, zeros)
    )
    wide_scale, wide_points = (
        x.float().repeat_interleave(group_size, dim=0)[: packed.shape[0]] for x in (scale, points)
    )
    return ((values - wide_points) * wide_scale).T.contiguous().to(dtype)


def gptq_dequantize(packed, zeros, scale, order, *, group_size, bits, dtype):
    """Zero points are stored less one."""
    values = _integers(packed.T, bits).T[: order.shape[0]].float()  # [columns, rows]
    points = _integers(zeros, bits)[:, : scale.shape[1]].float() + 1.0
    return ((values - points[order]) * scale.float()[order]).T.contiguous().to(dtype)
