"""Operators of audio towers; sounds are part of prompts only."""

from __future__ import annotations

from day0.operators.contract import Operator, Phase, contract
from day0.operators.tolerance import MATMUL, POINTWISE, REDUCTION

_PROMPT: tuple[Phase, ...] = ("prefill",)

# fmt: off
AUDIO: tuple[Operator, ...] = (
    contract("encoder_convolution", "audio", "convolution over frames, and mel bins where taps are a square",
             "x[frames in_features]; weight[out_features in_features taps]; bias[out_features]",
             "y[merged out_features]", MATMUL, "Whisper, arXiv 2212.04356", attributes="bias step", phases=_PROMPT),
    contract("depthwise_convolution", "audio", "causal convolution of each channel over the frames of an item",
             "x[frames width]; weight[width taps]; bias[width]", "y[frames width]", REDUCTION,
             "Conformer, arXiv 2005.08100", attributes="bias", phases=_PROMPT),
    contract("audio_attention", "audio", "softmax attention among all frames of an item, none between items",
             "q[frames heads head_dim]; k[frames heads head_dim]; v[frames heads head_dim]",
             "y[frames heads head_dim]", MATMUL, "Whisper, arXiv 2212.04356", attributes="scale", phases=_PROMPT),
    contract("audio_chunk_attention", "audio",
             "softmax attention of a chunk's frames to those from past before it to future after; logits are "
             "products with keys and with a vector per distance, bounded to softcap x tanh(logit / softcap)",
             "q[frames heads head_dim]; k[frames heads head_dim]; v[frames heads head_dim]; "
             "distance[distances heads head_dim]",
             "y[frames heads head_dim]", MATMUL, "Transformer-XL, arXiv 1901.02860; Gemma 4",
             attributes="scale chunk past future softcap", phases=_PROMPT),
    contract("softplus_scale", "audio", "queries times log(1 + exp) of a learnt number per channel",
             "q[frames heads head_dim]; weight[head_dim]", "y[frames heads head_dim]", POINTWISE, "Gemma 4",
             phases=_PROMPT),
)
# fmt: on
