"""The packed formats that publishers use: names, dtypes and shapes of the tensors a matrix is stored as.

Each is one line of text: the parts by role and checkpoint leaf, dtype, and axes in rows ("out") and columns ("in").
"""

from __future__ import annotations

from typing import Literal, cast

from day0.profile.quantization import PartAxis, StoredPart, WeightFormat

MX_GROUP = 32
"""Values under one scale in every MX format (OCP MX 1.0)."""
NV_GROUP = 16
"""Values under one scale in NVFP4."""
INT32_BITS = 32


def weight_format(
    name: str,
    text: str,
    *,
    group_size: int = 0,
    block_rows: int = 1,
    apart: bool = True,
    kind: str = "",
    bits: int = 0,
) -> WeightFormat:
    """A format from text: parts divided by ";", each "role leaf dtype axes...".

    A role that ends in "?" may be absent, one in "~" may be present but is not counted on. Leaves divided by "|" are
    spellings of one. The dtype "MAIN" is the checkpoint's own. Axes are "out", "in/32" or a number; none is a scalar.
    """
    return WeightFormat(name, tuple(map(_part, text.split(";"))), group_size, block_rows, apart, kind, bits)


def _part(text: str) -> StoredPart:
    role, leaves, dtype, *axes = text.split()
    return StoredPart(
        role=role.rstrip("?~"),
        leaves=tuple(leaves.split("|")),
        dtype="" if dtype == "MAIN" else dtype,
        axes=tuple(map(_axis, axes)),
        optional=role[-1] in "?~",
        counted=role[-1] != "~",
    )


def _axis(text: str) -> PartAxis:
    of, _, per = text.partition("/")
    if of.isdigit():
        return PartAxis("", int(of))
    return PartAxis(cast(Literal["out", "in"], of), int(per or 1))


def mxfp4(scale_dtype: str = "U8") -> WeightFormat:
    """MXFP4 of compressed-tensors: two E2M1 codes a byte, low nibble first, and an E8M0 byte for 32 of a row."""
    return weight_format(
        "mxfp4",
        f"packed weight_packed U8 out in/2; scale weight_scale {scale_dtype} out in/32",
        group_size=MX_GROUP,
    )


def mxfp4_blocks() -> WeightFormat:
    """MXFP4 of gpt-oss: experts stay stacked, each row's groups are an axis of their own."""
    return weight_format(
        "mxfp4",
        "packed weight_blocks U8 out in/32 16; scale weight_scales U8 out in/32",
        group_size=MX_GROUP,
        apart=False,
    )


def mxfp4_bytes(scale: str) -> WeightFormat:
    """The four-bit experts of a DeepSeek-V4 release, in signed bytes; `scale` is the leaf its blocks' scales have."""
    return weight_format(
        "mxfp4", f"packed weight I8 out in/2; scale {scale} F8_E8M0 out in/32", group_size=MX_GROUP, apart=False
    )


def mxfp8() -> WeightFormat:
    """E4M3 numbers and an E8M0 byte for 32 of a row."""
    text = "weight weight F8_E4M3 out in; scale weight_scale|weight_scale_inv U8 out in/32"
    return weight_format("mxfp8", text, group_size=MX_GROUP)


def fp8_block(rows: int, columns: int, scale: str, dtype: str, *, apart: bool = False) -> WeightFormat:
    """One scale for each block of rows x columns, the last ones smaller; `scale` is its leaf (DeepSeek-V3)."""
    return weight_format(
        "fp8_block",
        f"weight weight F8_E4M3 out in; scale {scale} {dtype} out/{rows} in/{columns}",
        group_size=columns,
        block_rows=rows,
        apart=apart,
    )


def fp8_tensor(scale: str, activation: str, *, shape: str = "", apart: bool = True) -> WeightFormat:
    """One scale for a matrix, and one for what it reads where `activation` is there; both as "leaf dtype".

    `shape` "1" makes lists of one of the scalars.
    """
    text = f"weight weight F8_E4M3 out in; scale {scale} {shape}"
    return weight_format(
        "fp8_tensor", text + (f"; input_scale? {activation} {shape}" if activation else ""), apart=apart
    )


def fp8_channel(dtype: str = "MAIN", *, axes: str = "out 1", static: bool = False, apart: bool = True) -> WeightFormat:
    """One scale for each row of the matrix."""
    text = f"weight weight F8_E4M3 out in; scale weight_scale {dtype} {axes}"
    return weight_format("fp8_channel", text + ("; input_scale? input_scale MAIN 1" if static else ""), apart=apart)


def int8(strategy: str, *, static: bool = False) -> WeightFormat:
    """Signed bytes with a scale for each row, or one for all."""
    axes = "out 1" if strategy == "channel" else "1"
    text = f"weight weight I8 out in; scale weight_scale MAIN {axes}; zero_point~ weight_zero_point I8 {axes}"
    return weight_format("int8", text + ("; input_scale? input_scale MAIN 1" if static else ""))


def int_packed(bits: int, group_size: int, *, symmetric: bool, reordered: bool) -> WeightFormat:
    """Integers of `bits` packed along rows into int32 (compressed-tensors pack-quantized); 0: one group a row.

    Zero points are packed along the other axis. The unpacked shape is stored beside.
    """
    values = INT32_BITS // bits
    groups = f"out in/{group_size}" if group_size else "out 1"
    zeros = f"out/{values} in/{group_size}" if group_size else f"out/{values} 1"
    text = (
        f"packed weight_packed I32 out in/{values}; scale weight_scale MAIN {groups}; shape weight_shape I64 2; "
        f"zero_point{'~' if symmetric else ''} weight_zero_point I32 {zeros}; "
        f"order{'' if reordered else '~'} weight_g_idx I32 in"
    )
    return weight_format(f"int{bits}", text, group_size=group_size, kind="int_packed", bits=bits)


def nvfp4(*, activations: bool) -> WeightFormat:
    """NVFP4 of compressed-tensors: E2M1 codes, an E4M3 scale for 16 of a row, one float32 that divides all of these."""
    text = (
        "packed weight_packed U8 out in/2; scale weight_scale F8_E4M3 out in/16; "
        "global_divisor weight_global_scale F32 1; "
        f"input_scale{'?' if activations else '~'} input_global_scale F32 1"
    )
    return weight_format("nvfp4", text, group_size=NV_GROUP)


def modelopt_nvfp4(*, activations: bool) -> WeightFormat:
    """NVFP4 of ModelOpt: the same under its own names, scalars without an axis; the float32 multiplies."""
    text = (
        "packed weight U8 out in/2; scale weight_scale F8_E4M3 out in/16; global_scale weight_scale_2 F32; "
        f"input_scale{'?' if activations else '~'} input_scale F32"
    )
    return weight_format("nvfp4", text, group_size=NV_GROUP)


def modelopt_int4(group_size: int, *, fp8_activations: bool) -> WeightFormat:
    """AWQ of ModelOpt: pairs of rows a byte, a scale for a group of a row, factors on what the matrix reads.

    With FP8 activations (W4A8) the group's scale has one of its own.
    """
    text = (
        f"packed weight U8 out/2 in; scale weight_scale {'F32' if fp8_activations else 'MAIN'} out in/{group_size}; "
        "smoothing? pre_quant_scale MAIN in"
    )
    if fp8_activations:
        text += "; global_scale? weight_scale_2 F32; input_scale? input_scale F32"
    return weight_format("int4_awq", text, group_size=group_size)


def awq(bits: int, group_size: int, *, zero_points: bool) -> WeightFormat:
    """AutoAWQ's gemm layout: input first, int32 packed along the output."""
    values = INT32_BITS // bits
    groups = f"in/{group_size}" if group_size else "1"
    text = (
        f"packed qweight I32 in out/{values}; scale scales MAIN {groups} out; "
        f"zero_point{'?' if zero_points else '~'} qzeros I32 {groups} out/{values}"
    )
    return weight_format(f"awq_int{bits}", text, group_size=group_size, kind="awq", bits=bits)


def gptq(bits: int, group_size: int, *, version: int = 1) -> WeightFormat:
    """AutoGPTQ's layout: input first, int32 packed along the input; zeros along the output; each column's group.

    Its first version stores each zero less one.
    """
    values = INT32_BITS // bits
    groups = f"in/{group_size}" if group_size else "1"
    text = (
        f"packed qweight I32 in/{values} out; scale scales MAIN {groups} out; "
        f"{'zero_below' if version == 1 else 'zero_point'}? qzeros I32 {groups} out/{values}; order? g_idx I32 in"
    )
    return weight_format(f"gptq_int{bits}", text, group_size=group_size, kind="gptq", bits=bits)
