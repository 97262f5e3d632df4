"""DeepSeek sparse attention as configs spell it: the indexer, and the layers that reuse another's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import IndexerSpec, LatentAttention, SparseLatentAttention
from day0.profile.read_latent import LatentDefaults, read_latent
from day0.profile.read_layer_kinds import known_kind

_MODES: Mapping[str, bool] = {"full": True, "shared": False}


def every_layer(reader: ConfigReader, index: int) -> bool:
    """Each layer has an indexer of its own."""
    del reader, index
    return True


@dataclass(frozen=True, slots=True)
class IndexDefaults:
    """What a family's indexer is beyond its config's sizes.

    `interleaved` is the rotary layout where `indexer_rope_interleave` does not say, and `rope_last` turns the last
    channels instead of the first. `norm_eps` None takes the model's epsilon. `pool` None means that the family pools
    no keys and has no key for it. `runs` says whether a layer has an indexer.
    """

    interleaved: bool = False
    rope_last: bool = False
    norm_eps: float | None = 1e-6
    pool: int | None = None
    runs: Callable[[ConfigReader, int], bool] = every_layer


def read_sparse_everywhere(
    reader: ConfigReader, index: int, *, latent: LatentDefaults, defaults: IndexDefaults
) -> SparseLatentAttention:
    """The same in every layer; a list of layer types, if there is one, says nothing else."""
    if reader.has("layer_types"):
        for word in reader.words("layer_types"):
            known_kind(reader, "layer_types", word, {"indexed_attention": True})
    return read_sparse_latent(reader, index, latent=latent, defaults=defaults, earlier=range(index))


def read_sparse_latent(
    reader: ConfigReader, index: int, *, latent: LatentDefaults, defaults: IndexDefaults, earlier: Iterable[int]
) -> SparseLatentAttention:
    """Latent attention over chosen tokens; `earlier` are the layers of this kind before it.

    Raises InputError where a layer reuses a choice that nobody made before it.
    """
    attention = read_latent(reader, replace(latent, needs_query_latent=True))
    indexer = read_indexer(reader, attention, defaults)
    if not defaults.runs(reader, index):
        if not any(defaults.runs(reader, layer) for layer in earlier):
            raise InputError(
                f"layer {index} reuses a choice of tokens, and no layer before it makes one", where=reader.file_name
            )
        return SparseLatentAttention(attention, indexer.top_k, None)
    return SparseLatentAttention(attention, indexer.top_k, indexer)


def read_indexer(reader: ConfigReader, attention: LatentAttention, defaults: IndexDefaults) -> IndexerSpec:
    width = reader.integer("index_head_dim")
    if attention.rope is not None and attention.rope.dim > width:
        raise InputError(
            f"the indexer rotates {attention.rope.dim} of its {width} channels", where=reader.where("index_head_dim")
        )
    rope = attention.rope
    if rope is not None:
        interleaved = reader.flag("indexer_rope_interleave", defaults.interleaved)
        rope = replace(rope, layout="interleaved" if interleaved else "neox")
    eps = defaults.norm_eps
    spec = IndexerSpec(
        num_heads=reader.integer("index_n_heads"),
        head_dim=width,
        top_k=reader.integer("index_topk"),
        rope=rope,
        norm_eps=attention.latent_norm_eps if eps is None else eps,
        rope_last=defaults.rope_last,
        pool=1 if defaults.pool is None else reader.integer("index_kpool", defaults.pool),
        pool_tail=defaults.pool is not None and reader.flag("index_kpool_always_select_tail", True),
    )
    if spec.top_k % spec.pool:
        raise InputError(
            f"{spec.top_k} tokens do not make whole pools of {spec.pool}", where=reader.where("index_topk")
        )
    return spec


def scheduled_indexers(reader: ConfigReader, index: int) -> bool:
    """Whether layer `index` has an indexer: by `indexer_types`, a pattern, or a period and where it starts (GLM-5).

    A layer past the decoder's own, as those that predict further tokens are, has one.
    """
    if index >= reader.integer("num_hidden_layers"):
        return True
    listed = _listed(reader)
    if listed is not None:
        return listed[index]
    period = max(reader.integer("index_topk_freq", 1, minimum=0), 1)
    offset = reader.integer("index_skip_topk_offset", 2, minimum=0)
    return max(index - offset + 1, 0) % period == 0


def every_fourth_indexer(reader: ConfigReader, index: int) -> bool:
    """As `indexer_types` says, else the first layer and every fourth from the second on (Hunyuan 4)."""
    if index >= reader.integer("num_hidden_layers"):
        return True
    listed = _listed(reader)
    return listed[index] if listed is not None else index == 0 or index % 4 == 1


def _listed(reader: ConfigReader) -> tuple[bool, ...] | None:
    """What the config says layer by layer, None where it does not; then a period in it has no effect."""
    for key in ("indexer_types", "index_topk_pattern"):
        if reader.has(key):
            reader.ignore("indexer_types", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
            return _modes(reader, key)
    return None


def _modes(reader: ConfigReader, key: str) -> tuple[bool, ...]:
    value = reader.values[key]
    letters = {"F": "full", "S": "shared"}
    words = [letters.get(v, v) for v in value] if isinstance(value, str) else reader.words(key)
    layers = reader.integer("num_hidden_layers")
    if len(words) != layers:
        raise InputError(f"{len(words)} entries for {layers} layers", where=reader.where(key))
    unknown = sorted(set(words) - set(_MODES))
    if unknown:
        known = ", ".join(_MODES)
        raise InputError(
            f"indexer kind {unknown[0]!r} is not known here", where=reader.where(key), hint=f"known: {known}"
        )
    return tuple(_MODES[word] for word in words)
