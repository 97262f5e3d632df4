"""Operators that turn packed weights back into numbers. Engines fuse them into products; the numbers are the same."""

from __future__ import annotations

from day0.operators.contract import Operator, Phase, contract
from day0.operators.tolerance import EXACT, POINTWISE

_LOADED: tuple[Phase, ...] = ("load", "prefill", "decode")
_PART = "quantisation"

# fmt: off
QUANTISATION: tuple[Operator, ...] = (
    contract("mxfp4_dequantize", _PART, "4-bit E2M1 values times an E8M0 scale per group of a row",
             "packed[rows row_bytes] uint8; scale[rows row_groups] uint8", "y[rows columns]", EXACT,
             "OCP Microscaling Formats (MX) 1.0", attributes="group_size", phases=_LOADED),
    contract("mxfp8_dequantize", _PART, "E4M3 values times an E8M0 scale per group of a row",
             "weight[rows columns] float8_e4m3fn; scale[rows row_groups] uint8", "y[rows columns]", EXACT,
             "OCP Microscaling Formats (MX) 1.0", attributes="group_size", phases=_LOADED),
    contract("nvfp4_dequantize", _PART,
             "4-bit E2M1 values times an E4M3 scale per group of a row and one float32 scale",
             "packed[rows row_bytes] uint8; scale[rows row_groups] float8_e4m3fn; global_scale[whole] float32",
             "y[rows columns]", POINTWISE, "NVFP4, NVIDIA 2025", attributes="group_size", phases=_LOADED),
    contract("fp8_block_dequantize", _PART, "E4M3 values times a scale per block of rows and columns",
             "weight[rows columns] float8_e4m3fn; scale[row_blocks column_blocks] float32", "y[rows columns]",
             POINTWISE, "DeepSeek-V3, arXiv 2412.19437", attributes="block_rows block_columns", phases=_LOADED),
    contract("fp8_channel_dequantize", _PART, "E4M3 values times a scale per row",
             "weight[rows columns] float8_e4m3fn; scale[rows]", "y[rows columns]", POINTWISE, "definition",
             phases=_LOADED),
    contract("fp8_tensor_dequantize", _PART, "E4M3 values times one scale",
             "weight[rows columns] float8_e4m3fn; scale[whole] float32", "y[rows columns]", POINTWISE, "definition",
             phases=_LOADED),
    contract("int8_dequantize", _PART, "signed bytes times a scale per row, less a zero point where there is one",
             "weight[rows columns] int8; scale[rows]", "y[rows columns]", POINTWISE, "definition", phases=_LOADED),
    contract("int_packed_dequantize", _PART,
             "integers packed along rows, low bits first, less 2**(bits - 1) or a zero point, times a scale per group",
             "packed[rows row_words] int32; scale[rows row_groups]", "y[rows columns]", POINTWISE,
             "compressed-tensors pack-quantized", attributes="group_size bits", phases=_LOADED),
    contract("int4_awq_dequantize", _PART, "4-bit integers, two rows a byte, times a scale per group of a row",
             "packed[row_pairs columns] uint8; scale[rows row_groups]", "y[rows columns]", POINTWISE,
             "ModelOpt W4A16_AWQ; arXiv 2306.00978", attributes="group_size", phases=_LOADED),
    contract("awq_dequantize", _PART,
             "integers packed along the output in AWQ's order, less zero points, times a scale per group; input first",
             "packed[columns column_words] int32; zeros[row_groups column_words] int32; scale[row_groups rows]",
             "y[rows columns]", POINTWISE, "AWQ, arXiv 2306.00978", attributes="group_size bits", phases=_LOADED),
    contract("gptq_dequantize", _PART,
             "integers packed along the input, less zero points, times a scale per group that order names; input first",
             "packed[row_words rows] int32; zeros[row_groups column_words] int32; scale[row_groups rows]; "
             "order[columns] int32",
             "y[rows columns]", POINTWISE, "GPTQ, arXiv 2210.17323", attributes="group_size bits", phases=_LOADED),
)
# fmt: on
