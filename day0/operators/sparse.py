"""Operators of attention that reads a chosen or compressed part of the past, and of several residual streams."""

from __future__ import annotations

from day0.operators.contract import Operator, contract
from day0.operators.tolerance import EXACT, MATMUL, POINTWISE, REDUCTION

# fmt: off
SPARSE: tuple[Operator, ...] = (
    contract("lightning_indexer_topk", "sparse attention",
             "score of an entry: sum over heads of weight x relu(q . k); the best causal entries, ties to the earlier",
             "q[tokens heads head_dim]; weights[tokens heads] float32; index_cache[slots head_dim]",
             "ids[tokens chosen] int64", EXACT, "DeepSeek-V3.2, arXiv 2512.02556",
             attributes="scale ratio keep_tail"),
    contract("sparse_mla_attention", "sparse attention",
             "softmax attention of every head over the chosen cached rows: latent first, shared key slice last",
             "q_latent[tokens heads latent_dim]; q_rope[tokens heads rope_dim]; latent_cache[slots cached_dim]; "
             "ids[tokens chosen] int64; sinks[heads] float32",
             "y[tokens heads latent_dim]", MATMUL, "DeepSeek-V3.2, arXiv 2512.02556", attributes="scale sinks"),
    contract("block_indexer_topk", "sparse attention",
             "score of a block: its largest q . k up to the querying token; the last blocks, then the best of the "
             "others, ties to the earlier",
             "q[tokens index_heads head_dim]; index_cache[slots head_dim]", "ids[tokens index_heads chosen] int64",
             EXACT, "MiniMax M3", attributes="block local_blocks"),
    contract("block_sparse_attention", "sparse attention",
             "causal softmax attention, each query head over the blocks that its index head chose",
             "q[tokens heads head_dim]; k_cache[slots kv_heads head_dim]; v_cache[slots kv_heads head_dim]; "
             "ids[tokens index_heads chosen] int64",
             "y[tokens heads head_dim]", MATMUL, "MiniMax M3", attributes="scale block"),
    contract("window_mla_attention", "sparse attention",
             "causal softmax attention of every head over the last cached rows: latent first, shared key slice last",
             "q_latent[tokens heads latent_dim]; q_rope[tokens heads rope_dim]; latent_cache[slots cached_dim]; "
             "sinks[heads] float32",
             "y[tokens heads latent_dim]", MATMUL, "dots3", attributes="scale window sinks"),
    contract("gated_pool", "sparse attention",
             "per channel, the mean of `stride` tokens weighed by softmax(gate + bias by place); with overlap the "
             "first half of the channels counts for the next entry, the second for the tokens' own",
             "x[tokens pooled_width]; gate[tokens pooled_width]; bias[stride pooled_width] float32",
             "y[entries head_dim]", REDUCTION, "DeepSeek-V4", attributes="overlap"),
    contract("rope_tail", "sparse attention",
             "rotary position embedding over the last 2 x rope_pairs channels of each head, or back",
             "x[tokens heads head_dim]; cos[tokens rope_pairs] float32; sin[tokens rope_pairs] float32",
             "y[tokens heads head_dim]", POINTWISE, "DeepSeek-V4", attributes="layout inverse"),
    contract("shared_kv_attention", "sparse attention",
             "softmax attention over the window; one vector per token is key and value of all heads; a learnt logit "
             "per head joins the denominator",
             "q[tokens heads head_dim]; window_cache[slots head_dim]; sinks[heads] float32",
             "y[tokens heads head_dim]", MATMUL, "DeepSeek-V4", attributes="scale window"),
    contract("csa_attention", "sparse attention",
             "shared_kv_attention over the window and the chosen compressed entries together",
             "q[tokens heads head_dim]; window_cache[slots head_dim]; compressed_cache[slots head_dim]; "
             "ids[tokens chosen] int64; sinks[heads] float32",
             "y[tokens heads head_dim]", MATMUL, "DeepSeek-V4", attributes="scale window ratio"),
    contract("hca_attention", "sparse attention",
             "shared_kv_attention over the window and every finished compressed entry",
             "q[tokens heads head_dim]; window_cache[slots head_dim]; compressed_cache[slots head_dim]; "
             "sinks[heads] float32",
             "y[tokens heads head_dim]", MATMUL, "DeepSeek-V4", attributes="scale window ratio"),
    contract("layer_norm", "norm", "x less its mean, over its standard deviation, times a weight, plus a bias",
             "x[tokens width]; weight[width] float32; bias[width] float32", "y[tokens width]", REDUCTION,
             "arXiv 1607.06450", attributes="eps"),
    contract("hyper_connection_read", "residual",
             "weights from the flattened, normalised streams: reading (sigmoid), writing (write_scale x sigmoid) and, "
             "with iterations, a doubly stochastic mixing matrix (Sinkhorn-Knopp); the streams summed by reading",
             "streams[tokens streams width]; fn[mixing_weights flat_width] float32; base[mixing_weights] float32; "
             "scale[scales] float32",
             "y[tokens width]; weights[tokens mixing_weights] float32", REDUCTION,
             "Hyper-Connections, arXiv 2409.19606; DeepSeek-V4", attributes="eps iterations write_scale"),
    contract("hyper_connection_write", "residual",
             "the streams, mixed by the matrix where there is one, plus the branch's output by writing weight",
             "streams[tokens streams width]; branch[tokens width]; weights[tokens mixing_weights] float32",
             "streams_out[tokens streams width]", REDUCTION, "Hyper-Connections, arXiv 2409.19606; DeepSeek-V4",
             attributes="iterations"),
    contract("hyper_connection_join", "residual",
             "the streams as one at the end: by weights computed from them (learned), or their mean",
             "streams[tokens streams width]; fn[streams flat_width] float32; base[streams] float32; "
             "scale[single] float32",
             "y[tokens width]", REDUCTION, "Hyper-Connections, arXiv 2409.19606; DeepSeek-V4",
             attributes="eps learned"),
)
# fmt: on
