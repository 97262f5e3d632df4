"""Packings of linear layers by class: compressed-tensors, and the FP8 and MXFP4 of released models."""

from __future__ import annotations

from day0.errors import InputError
from day0.profile import packing_formats as formats
from day0.profile.packing_patterns import ModulePatterns, read_patterns
from day0.profile.quantization import PackingRule, WeightFormat
from day0.profile.read_quant_method import NotUnderstood, Packing, Section, cache_dtype

_CLASSES = ("Linear",)
_GROUP_SIZES = {"mxfp4-pack-quantized": formats.MX_GROUP, "nvfp4-pack-quantized": formats.NV_GROUP}


def read_compressed_tensors(section: Section) -> Packing:
    """Groups of modules, each with a scheme; targets by name count before those by class, ignored modules first."""
    sparsity = section.inner("sparsity_config")
    if sparsity is not None and sparsity.word("format", "dense") != "dense":
        raise NotUnderstood(f"sparse weights ({sparsity.word('format')})")
    ignore = section.patterns("ignore")
    by_name, by_class = [], []
    groups = section.inner("config_groups")
    for key in groups.values if groups is not None else ():
        group = groups.inner(key) if groups is not None else None
        scheme = group.inner("weights") if group is not None else None
        if group is None or scheme is None:
            continue  # activations or caches alone
        packing = _scheme(scheme, group.inner("input_activations"), _format_word(section, group))
        targets = group.values.get("targets", list(_CLASSES))
        names = read_patterns(targets, f"{group.where}.targets")
        if any(target in names.entries for target in _CLASSES):
            by_class.append(PackingRule(packing, None, ignore, head=True))
        else:
            by_name.append(PackingRule(packing, names, ignore))
    cache = cache_dtype(section.values.get("kv_cache_scheme"))
    if not by_name and not by_class and cache is None:
        if section.word("format") not in _GROUP_SIZES:
            raise NotUnderstood("no group of modules has a scheme for its weights")
        # These formats are schemes by themselves.
        by_class.append(PackingRule(_scheme(section, None, section.word("format")), None, ignore, head=True))
    return Packing((*by_name, *by_class), cache)


def _format_word(section: Section, group: Section) -> str:
    return group.word("format", section.word("format"))


def _scheme(weights: Section, activations: Section | None, packing: str) -> WeightFormat:
    bits, kind, strategy = weights.integer("num_bits", 8), weights.word("type", "int"), weights.word("strategy")
    static = activations is not None and activations.values.get("dynamic") is False
    if packing in _GROUP_SIZES:
        _check_group(weights, packing)
        if packing.startswith("mxfp4"):
            return formats.mxfp4()
        return formats.nvfp4(activations=activations is not None)
    if packing == "mxfp8-quantized":
        return formats.mxfp8()
    if packing in ("", "float-quantized", "naive-quantized") and (kind, bits) == ("float", 8):
        return _float8(weights, strategy, static)
    by_row_or_whole = strategy in ("channel", "tensor")
    if packing in ("", "int-quantized", "naive-quantized") and (kind, bits) == ("int", 8) and by_row_or_whole:
        return formats.int8(strategy, static=static)
    if packing == "pack-quantized" and kind == "int" and bits in (2, 4, 8):
        return formats.int_packed(
            bits,
            weights.group_size() if strategy in ("", "group") else 0,
            symmetric=weights.flag("symmetric", True),
            reordered=weights.word("actorder") == "group",
        )
    raise NotUnderstood(f"format {packing or 'not given'} of {bits}-bit {kind} weights by {strategy or 'no strategy'}")


def _float8(weights: Section, strategy: str, static: bool) -> WeightFormat:
    if strategy == "channel":
        return formats.fp8_channel(static=static)
    if strategy == "tensor":
        return formats.fp8_tensor("weight_scale MAIN", "input_scale MAIN" if static else "", shape="1")
    if strategy == "block":
        rows, columns = _block(weights, "block_structure")
        return formats.fp8_block(rows, columns, "weight_scale", "MAIN", apart=True)
    raise NotUnderstood(f"FP8 weights by {strategy or 'no strategy'}")


def _check_group(weights: Section, packing: str) -> None:
    """Raise InputError where a group states another size than the format has."""
    wanted = _GROUP_SIZES[packing]
    size = weights.integer("group_size", wanted)
    if size != wanted:
        name = packing.partition("-")[0]
        raise InputError(f"{name} has groups of {wanted}, got {size!r}", where=f"{weights.where}.group_size")


def _block(section: Section, key: str) -> tuple[int, int]:
    value = section.values.get(key)
    if (
        not isinstance(value, list | tuple)
        or len(value) != 2
        or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in value)
    ):
        raise section.wrong(key, "two positive integers", value)
    return value[0], value[1]


def read_fp8(section: Section) -> Packing:
    """FP8 of DeepSeek-V3's line (blocks), or one scale per matrix where no block is given.

    The lists of two generations differ: those of `ignored_layers` without blocks name their scales otherwise. With
    experts in "fp4" (DeepSeek-V4) the rest alone is FP8, and scales are exponents.
    """
    ignore = section.patterns("modules_to_not_convert", "ignored_layers", "ignore")
    static = section.word("activation_scheme", "dynamic").lower() == "static"
    scale, dtype = section.block_scale.split()
    if section.values.get("weight_block_size") is not None:
        packing = formats.fp8_block(*_block(section, "weight_block_size"), f"{scale}|weight_scale_inv|scale", dtype)
    elif "weight_block_size" in section.values or "modules_to_not_convert" in section.values:
        packing = formats.fp8_tensor("weight_scale_inv MAIN", "activation_scale MAIN" if static else "", apart=False)
    else:
        packing = formats.fp8_tensor("weight_scale F32", "input_scale F32" if static else "")
    rules = [PackingRule(packing, None, ignore)]
    if section.word("expert_dtype", section.expert_dtype) == "fp4":
        experts = formats.mxfp4_bytes(f"{scale}|weight_scale_inv|scale")
        rules.insert(0, PackingRule(experts, None, ignore, experts=True))
    extra = section.patterns("modules_to_convert")
    if extra.entries:
        rules.append(PackingRule(packing, extra, ModulePatterns()))
    return Packing(tuple(rules), cache_dtype(section.values.get("kv_cache_scheme")))


def read_fbgemm(section: Section) -> Packing:
    """FP8 by rows with activations quantised on the way (Llama 3.1 405B)."""
    return Packing((PackingRule(formats.fp8_channel("F32"), None, section.patterns("modules_to_not_convert")),))


def read_mxfp4(section: Section) -> Packing:
    """MXFP4 of gpt-oss: the routed experts, and nothing else."""
    ignore = section.patterns("modules_to_not_convert")
    return Packing((PackingRule(formats.mxfp4_blocks(), None, ignore, experts=True),))
