"""References of attention that reads a part of the past, and of several residual streams."""

import torch
from torch.nn import functional

from day0.scaffold.templates.references.decoder import rope
from day0.scaffold.templates.references.rows import attend, causal, sequences


def lightning_indexer_topk(q, weights, index_cache, starts, slots, context, *, chosen, scale, ratio, keep_tail):
    """Entries are counted from the start of the sequence; -1 where there are fewer. A kept tail is not among them."""
    ids = torch.full((q.shape[0], chosen), -1, dtype=torch.int64)
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        for token in range(rows.start, rows.stop):
            finished = (before + token - rows.start + 1) // ratio
            keys = index_cache[table[:finished]].float()
            products = torch.relu(q[token].float() @ keys.T)  # [heads, finished]
            scores = (weights[token].float()[:, None] * products).sum(0) * scale
            best = scores.sort(descending=True, stable=True).indices[:chosen]
            ids[token, : best.shape[0]] = best
    return ids


def sparse_mla_attention(q_latent, q_rope, latent_cache, ids, sinks, starts, slots, context, *, scale):
    y, latent = torch.empty_like(q_latent), q_latent.shape[-1]
    for rows, table in zip(sequences(starts), slots, strict=True):
        for token in range(rows.start, rows.stop):
            cached = latent_cache[table[ids[token][ids[token] >= 0]], None]
            q = torch.cat((q_latent[token], q_rope[token]), dim=-1)[None]
            seen = torch.ones(1, cached.shape[0], dtype=torch.bool)
            y[token] = attend(q, cached, cached[..., :latent], seen, scale, sinks)[0].to(y.dtype)
    return y


def window_mla_attention(q_latent, q_rope, latent_cache, sinks, starts, slots, context, *, scale, window):
    y, latent = torch.empty_like(q_latent), q_latent.shape[-1]
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        seen = causal(rows.stop - rows.start, before, window)
        cached = latent_cache[table[: seen.shape[1]], None]
        q = torch.cat((q_latent[rows], q_rope[rows]), dim=-1)
        y[rows] = attend(q, cached, cached[..., :latent], seen, scale, sinks).to(y.dtype)
    return y


def block_indexer_topk(q, index_cache, starts, slots, context, *, chosen, block, local_blocks):
    """Blocks are counted from the start of the sequence; -1 where there are fewer."""
    ids = torch.full((*q.shape[:2], chosen), -1, dtype=torch.int64)
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        for token in range(rows.start, rows.stop):
            seen = before + token - rows.start + 1
            products = q[token].float() @ index_cache[table[:seen]].float().T  # [heads, seen]
            scores = torch.stack([part.amax(-1) for part in products.split(block, dim=-1)], dim=-1)
            scores[:, max(0, scores.shape[-1] - local_blocks) :] = float("inf")
            best = scores.sort(dim=-1, descending=True, stable=True).indices[:, :chosen].sort(dim=-1).values
            ids[token, :, : best.shape[-1]] = best
    return ids


def block_sparse_attention(q, k_cache, v_cache, ids, starts, slots, context, *, scale, block):
    """Each head of the indexer chose for as many query heads, side by side."""
    y, heads, kv_heads = torch.empty_like(q), q.shape[1] // ids.shape[1], k_cache.shape[1] // ids.shape[1]
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        positions = torch.arange(before + rows.stop - rows.start)
        for token in range(rows.start, rows.stop):
            for group, blocks in enumerate(ids[token]):
                read = torch.isin(positions // block, blocks) & (positions <= before + token - rows.start)
                own, kv = slice(group * heads, (group + 1) * heads), slice(group * kv_heads, (group + 1) * kv_heads)
                k, v = (cache[table[: len(positions)]][read][:, kv] for cache in (k_cache, v_cache))
                seen = torch.ones(1, len(k), dtype=torch.bool)
                y[token, own] = attend(q[token, own][None], k, v, seen, scale)[0].to(y.dtype)
    return y


def gated_pool(x, gate, bias, starts, *, entries, head_dim, overlap):
    """Every sequence from its beginning; tokens of an unfinished entry wait."""
    stride, pooled = bias.shape[0], []
    for rows in sequences(starts):
        count = (rows.stop - rows.start) // stride
        values = x[rows][: count * stride].float().unflatten(0, (count, stride))
        logits = gate[rows][: count * stride].float().unflatten(0, (count, stride)) + bias.float()
        if overlap:
            values, logits = (
                _with_the_entry_before(values, head_dim, 0.0),
                _with_the_entry_before(logits, head_dim, float("-inf")),
            )
        pooled.append((torch.softmax(logits, dim=1) * values).sum(1))
    return torch.cat(pooled).to(x.dtype)


def _with_the_entry_before(values, head_dim, first):
    """[entries, stride, 2 head_dim] -> [entries, 2 stride, head_dim]: the last entry's first half, one's own second."""
    before = functional.pad(values[:-1, :, :head_dim], (0, 0, 0, 0, 1, 0), value=first)
    return torch.cat((before, values[..., head_dim:]), dim=1)


def rope_tail(x, cos, sin, *, layout, inverse):
    kept, turned = x[..., : -2 * cos.shape[-1]], x[..., -2 * cos.shape[-1] :]
    return torch.cat((kept, rope(turned, cos, -sin if inverse else sin, layout=layout)), dim=-1)


def shared_kv_attention(q, window_cache, sinks, starts, slots, context, *, scale, window):
    y = torch.empty_like(q)
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        seen = causal(rows.stop - rows.start, before, window)
        cached = window_cache[table[: seen.shape[1]], None]
        y[rows] = attend(q[rows], cached, cached, seen, scale, sinks).to(q.dtype)
    return y


def csa_attention(
    q, window_cache, compressed_cache, ids, sinks, starts, slots, compressed_slots, context, *, scale, window, ratio
):
    """`ids` are compressed entries of the sequence, -1 for none; `ratio` is how they came about."""
    y = torch.empty_like(q)
    tables = zip(sequences(starts), slots, compressed_slots, context.tolist(), strict=True)
    for rows, table, compressed_table, before in tables:
        windows = causal(rows.stop - rows.start, before, window)
        for token in range(rows.start, rows.stop):
            near = window_cache[table[: windows.shape[1]][windows[token - rows.start]]]
            far = compressed_cache[compressed_table[ids[token][ids[token] >= 0]]]
            cached = torch.cat((near, far))[:, None]
            seen = torch.ones(1, cached.shape[0], dtype=torch.bool)
            y[token] = attend(q[token][None], cached, cached, seen, scale, sinks)[0].to(q.dtype)
    return y


def hca_attention(
    q, window_cache, compressed_cache, sinks, starts, slots, compressed_slots, context, *, scale, window, ratio
):
    y = torch.empty_like(q)
    tables = zip(sequences(starts), slots, compressed_slots, context.tolist(), strict=True)
    for rows, table, compressed_table, before in tables:
        windows = causal(rows.stop - rows.start, before, window)
        entries = windows.shape[1] // ratio
        finished = (before + torch.arange(rows.stop - rows.start)[:, None] + 1) // ratio
        seen = torch.cat((windows, torch.arange(entries)[None] < finished), dim=1)
        near, far = window_cache[table[: windows.shape[1]]], compressed_cache[compressed_table[:entries]]
        cached = torch.cat((near, far))[:, None]
        y[rows] = attend(q[rows], cached, cached, seen, scale, sinks).to(q.dtype)
    return y


def layer_norm(x, weight, bias, *, eps):
    return functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), eps).to(x.dtype)


def hyper_connection_read(streams, fn, base, scale, *, eps, iterations, write_scale):
    """`eps` also keeps the weights and their sums off zero."""
    count, flat = streams.shape[1], streams.float().flatten(1)
    projected = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps) @ fn.float().T
    sizes = [count, count] + ([] if iterations is None else [count * count])
    scaled = projected * torch.repeat_interleave(scale.float(), torch.tensor(sizes)) + base.float()
    parts = list(scaled.split(sizes, dim=-1))
    parts[0], parts[1] = torch.sigmoid(parts[0]) + eps, write_scale * torch.sigmoid(parts[1])
    if iterations is not None:
        matrix = torch.softmax(parts[2].unflatten(-1, (count, count)), dim=-1) + eps
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
        for _ in range(iterations - 1):
            matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
            matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
        parts[2] = matrix.flatten(1)
    y = torch.einsum("ts,tsw->tw", parts[0], streams.float()).to(streams.dtype)
    return y, torch.cat(parts, dim=-1)


def hyper_connection_write(streams, branch, weights, *, iterations):
    count, mixed = streams.shape[1], streams.float()
    if iterations is not None:
        matrix = weights[:, 2 * count :].unflatten(-1, (count, count))
        mixed = torch.einsum("tjk,tjw->tkw", matrix, mixed)
    written = weights[:, count : 2 * count, None] * branch.float()[:, None]
    return (mixed + written).to(streams.dtype)


def hyper_connection_join(streams, fn, base, scale, *, eps, learned):
    if not learned:
        return streams.float().mean(1).to(streams.dtype)
    flat = streams.float().flatten(1)
    projected = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps) @ fn.float().T
    weights = torch.sigmoid(projected * scale.float() + base.float()) + eps
    return torch.einsum("ts,tsw->tw", weights, streams.float()).to(streams.dtype)
