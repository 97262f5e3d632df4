"""Block-sparse attention as configs spell it: the publisher's section, or the flat keys of transformers."""

from __future__ import annotations

from collections.abc import Mapping

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import BlockIndexer, BlockSparseAttention, GroupedQueryAttention
from day0.profile.read_layer_kinds import read_layer_kind

_SIZES: Mapping[str, tuple[str, int]] = {
    "index_n_heads": ("sparse_num_index_heads", 4),
    "index_head_dim": ("sparse_index_dim", 128),
    "index_block_size": ("sparse_block_size", 128),
    "index_topk_blocks": ("sparse_topk_blocks", 16),
    "index_local_blocks": ("sparse_local_block", 1),
}
"""By flat key: what the section calls it, which counts where both are there, and the value of silent configs."""
_KINDS = {"minimax_m3_sparse": True, "full_attention": False}


def read_block_sparse(
    reader: ConfigReader, index: int, attention: GroupedQueryAttention
) -> GroupedQueryAttention | BlockSparseAttention:
    """Attention of layer `index`: over chosen blocks where `layer_types` or `sparse_attention_freq` says so.

    Raises InputError where sizes contradict each other, or the section asks for what no release has.
    """
    section = reader.section("sparse_attention_config")
    # Read for every layer, so that a config's use of its keys does not depend on which layers are sparse.
    indexer = _read_indexer(reader, section, attention)
    sparse = read_layer_kind(reader, index, _KINDS, lambda layer: _marked(section, "sparse_attention_freq", layer))
    if section is not None:
        _check_section(section, index, sparse)
    return BlockSparseAttention(attention, indexer) if sparse else attention


def _read_indexer(reader: ConfigReader, section: ConfigReader | None, attention: GroupedQueryAttention) -> BlockIndexer:
    sizes = {}
    for flat, (nested, default) in _SIZES.items():
        minimum = 0 if flat == "index_local_blocks" else 1
        if section is not None and section.has(nested):
            reader.ignore(flat)
            sizes[flat] = section.integer(nested, minimum=minimum)
        else:
            sizes[flat] = reader.integer(flat, default, minimum=minimum)
    assert attention.rope is not None, "the family rotates every layer"
    spec = BlockIndexer(
        num_heads=sizes["index_n_heads"],
        head_dim=sizes["index_head_dim"],
        block=sizes["index_block_size"],
        top_k=sizes["index_topk_blocks"],
        local_blocks=sizes["index_local_blocks"],
        rope=attention.rope,
    )
    place = reader.where("sparse_attention_config" if section is not None else "index_n_heads")
    if attention.num_kv_heads % spec.num_heads:
        raise InputError(
            f"{spec.num_heads} index heads cannot choose for {attention.num_kv_heads} key/value heads", where=place
        )
    if spec.rope.dim > spec.head_dim:
        raise InputError(f"the indexer rotates {spec.rope.dim} of its {spec.head_dim} channels", where=place)
    if spec.local_blocks > spec.top_k:
        raise InputError(
            f"{spec.local_blocks} blocks are always read, but only {spec.top_k} are read at all", where=place
        )
    return spec


def _marked(section: ConfigReader | None, key: str, index: int) -> bool:
    if section is None or not section.has(key):
        return False
    marks = section.integers(key)
    if index >= len(marks):
        raise InputError(f"{len(marks)} entries do not reach layer {index}", where=section.where(key))
    return marks[index] != 0


def _check_section(section: ConfigReader, index: int, sparse: bool) -> None:
    """Parts of the section that are the same in every release; another value would be another model."""
    section.choice("sparse_score_type", {"max": "max"}, "max")
    if section.integer("sparse_init_block", 0, minimum=0):
        raise InputError(
            "first blocks that are always read are not known here", where=section.where("sparse_init_block")
        )
    if sparse and not section.flag("use_sparse_attention", True):
        raise InputError(f"is off, but layer {index} is sparse", where=section.where("use_sparse_attention"))
    if (
        sparse
        and section.has("sparse_disable_index_value")
        and not _marked(section, "sparse_disable_index_value", index)
    ):
        raise InputError(
            f"layer {index} has values of its indexer, which are not known here",
            where=section.where("sparse_disable_index_value"),
        )
    section.ignore("use_sparse_attention", "sparse_attention_freq", "sparse_disable_index_value")
