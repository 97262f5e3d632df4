"""MXFP4 and NVFP4 matrices -> numbers, in Triton: every packed byte is read once, every number written once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from day0.runtime.quant.kernels.codes import e2m1, e4m3, power_of_two

WORDS = 512
"""Words of eight codes that a program converts: in bfloat16 16 bytes each, what a thread writes at once."""
WARPS = 4


@triton.jit
def _convert(
    packed, scale, whole, index, out, words, matrix_words, matrix_groups,
    CHOSEN: tl.constexpr, GROUP_WORDS: tl.constexpr, E8M0: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[matrix, 8 w + j] = code j of word w times the scale of the word's group, rounded once from float32."""
    place = tl.program_id(1).to(tl.int64)
    matrix = place
    if CHOSEN:
        matrix = tl.load(index + place).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < words
    word = tl.load(packed + matrix * matrix_words + at, mask=inside, other=0)
    stored = tl.load(scale + matrix * matrix_groups + at // GROUP_WORDS, mask=inside, other=0)
    if E8M0:
        factor = power_of_two(stored)
    else:
        factor = e4m3(stored)
    if WHOLE == "global_scale":
        factor *= tl.load(whole + matrix)
    elif WHOLE == "global_divisor":
        factor = tl.div_rn(factor, tl.load(whole + matrix))
    shifts = tl.arange(0, 8) * 4
    numbers = e2m1(word[:, None] >> shifts[None, :]) * factor[:, None]
    target = out + place * words * 8 + at[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(target, numbers.to(out.dtype.element_ty), mask=inside[:, None])


def convert_four_bit(
    parts: Mapping[str, torch.Tensor], exponents: bool, out: torch.Tensor, index: torch.Tensor | None = None
) -> torch.Tensor:
    """Fill out [.., rows, columns], contiguous, from parts as `read_mxfp4` and `read_nvfp4` take them; gives `out`.

    `exponents`: scales are E8M0 bytes, else E4M3. With `index` [chosen] the parts are stacks of which those matrices
    are wanted, out [chosen, rows, columns]. Columns are a multiple of 8 and groups of 8 numbers at least.
    """
    rows, columns = out.shape[-2:]
    matrices = out.shape[:-2].numel()
    packed, scale = parts["packed"].contiguous(), parts["scale"].contiguous().view(torch.uint8)
    words, groups = rows * columns // 8, scale.shape[-1]
    group = columns // groups
    assert columns % 8 == 0 and group % 8 == 0 and out.is_contiguous(), "whole words, in one piece"
    role = next((role for role in ("global_divisor", "global_scale") if role in parts), "")
    whole = parts[role].float().contiguous() if role else scale
    _convert[triton.cdiv(words, WORDS), matrices](
        *(packed.view(torch.uint8).flatten().view(torch.int32), scale, whole, index, out),
        *(words, words, rows * groups),
        CHOSEN=index is not None,
        GROUP_WORDS=group // 8,
        E8M0=exponents,
        WHOLE=role,
        BLOCK=WORDS,
        num_warps=WARPS,
    )
    return out
