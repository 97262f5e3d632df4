"""How weights are packed: what a packed matrix is stored as, and which modules are packed how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from day0.profile.packing_patterns import ModulePatterns
from day0.profile.tensor_spec import TensorSpec
from day0.source.model_files import DTYPE_BITS


@dataclass(frozen=True, slots=True)
class PartAxis:
    """One axis of a stored part: an entry for every `per` rows ("out") or columns ("in") of the matrix, the last ones
    together; with `of` "" it has `per` entries whatever the matrix."""

    of: Literal["out", "in", ""]
    per: int

    def length(self, rows: int, columns: int) -> int:
        if not self.of:
            return self.per
        return -(-(rows if self.of == "out" else columns) // self.per)


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One of the tensors that a packed matrix is stored as: `role` is our word, `leaves` what checkpoints call it.

    The first of `leaves` is the usual one. `dtype` "" is the checkpoint's main dtype. An `optional` part may be absent
    from a file; `counted` says whether it is taken to be there where there are no headers to look at.
    """

    role: str
    leaves: tuple[str, ...]
    dtype: str
    axes: tuple[PartAxis, ...]
    optional: bool = False
    counted: bool = True

    @property
    def leaf(self) -> str:
        return self.leaves[0]

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        return tuple(axis.length(rows, columns) for axis in self.axes)


_READ = frozenset(
    (
        *("mxfp4", "mxfp8", "nvfp4", "fp8_block", "fp8_channel", "fp8_tensor"),
        *("int8", "int_packed", "gptq", "int4_awq"),
    )
)
"""Kinds of formats that the reference runtime has a reader for, whatever their numbers; AWQ has conditions."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How one kind of packed matrix [rows, columns] is stored: the first of `parts` holds the numbers.

    `name` is what weights are listed under ("mxfp4"); `kind`, by default the name, is that of the operator that turns
    them back (`mxfp4_dequantize`), `bits` those of its integers where it serves several widths. A scale serves
    `group_size` values of a row, or all where that is 0, and `block_rows` rows. Experts stored `apart` are one set of
    parts each, even where the unpacked family stacks them.
    """

    name: str
    parts: tuple[StoredPart, ...]
    group_size: int = 0
    block_rows: int = 1
    apart: bool = True
    kind: str = ""
    bits: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    def operator(self) -> str:
        return f"{self.kind or self.name}_dequantize"

    @property
    def native(self) -> bool:
        """Whether the reference runtime turns it back.

        AWQ it reads with 4 bits and zero points, as all releases have it, and ModelOpt's without the second scale of
        8-bit activations, which is about a rounding that we do not do.
        """
        kind, roles = self.kind or self.name, {part.role for part in self.counted}
        if kind == "awq":
            return self.bits == 4 and "zero_point" in roles
        return kind in _READ and (kind != "int4_awq" or "global_scale" not in roles)

    @property
    def counted(self) -> tuple[StoredPart, ...]:
        return tuple(part for part in self.parts if part.counted)

    def part(self, role: str) -> StoredPart:
        """The part of a role that the format has."""
        return next(part for part in self.parts if part.role == role)

    @property
    def keeps_order(self) -> bool:
        """Whether the numbers lie as in the unpacked matrix, one element each."""
        return self.parts[0].axes == (PartAxis("out", 1), PartAxis("in", 1))

    @property
    def value_bits(self) -> float:
        """Bits of one value with its share of the scales, in a matrix so large that the rest does not count."""
        bits = 0.0
        for part in self.counted:
            if {axis.of for axis in part.axes} >= {"out", "in"}:
                share = float(DTYPE_BITS[part.dtype or "BF16"])
                for axis in part.axes:
                    share = share / axis.per if axis.of else share * axis.per
                bits += share
        return bits

    @property
    def step(self) -> int:
        """Columns, and so rows, that the width of a gated MLP may be cut between: down's columns are gate's rows."""
        return max(self.cut("out"), self.cut("in"))

    def cut(self, direction: str) -> int:
        """Rows ("out") or columns ("in") that one entry of some part covers: a cut may fall between such only."""
        return max((axis.per for part in self.parts for axis in part.axes if axis.of == direction), default=1)


@dataclass(frozen=True, slots=True)
class PackingRule:
    """Modules packed in `format`: those that `names` covers or, where it is None, every linear layer the method
    packs by itself; less those that `ignore` covers. `experts` limits the rule to routed experts."""

    format: WeightFormat
    names: ModulePatterns | None = None
    ignore: ModulePatterns = field(default_factory=ModulePatterns)
    experts: bool = False
    head: bool = False

    def applies(self, spec: TensorSpec, modules: tuple[str, ...]) -> bool:
        """`modules` are the names that `spec` may go by."""
        if (self.experts and not spec.num_experts) or self.ignore.cover(modules):
            return False
        if self.names is None:
            return is_linear(spec, head=self.head)
        # A wildcard means linear layers; of the rest, what is called by its name.
        exact = not self.names.names.isdisjoint(modules)
        return exact or (spec.group not in _NOT_LINEAR and self.names.cover(modules))


@dataclass(frozen=True, slots=True)
class GroupPacking:
    """The formats that matrices of a parameter group are stored in, the most frequent first; `plain`: some are not."""

    group: str
    formats: tuple[WeightFormat, ...]
    plain: bool

    def __str__(self) -> str:
        return f"{self.group}: {', '.join([*map(str, self.formats), *(['plain'] if self.plain else [])])}"


@dataclass(frozen=True, slots=True)
class QuantizationSpec:
    """How a release packs its weights. The first of `rules` that applies to a matrix decides.

    `stored` overrules them by checkpoint name where headers show something else; None is plain. `groups` is the
    outcome by parameter group. `kv_cache` is the dtype that the release was calibrated to keep its cache in ("fp8").
    `section` says where the config keeps all this.
    """

    method: str
    section: str = ""
    rules: tuple[PackingRule, ...] = ()
    kv_cache: str | None = None
    stored: Mapping[str, WeightFormat | None] = field(default_factory=dict)
    groups: tuple[GroupPacking, ...] = ()

    def format_of(self, spec: TensorSpec) -> WeightFormat | None:
        """How the matrix that is `spec` when plain is stored, None for plain."""
        if not is_matrix(spec):
            return None
        return self.stored[spec.name] if spec.name in self.stored else self.declared(spec)

    def declared(self, spec: TensorSpec) -> WeightFormat | None:
        """What the rules alone say of a matrix."""
        modules = module_names(spec)
        return next((rule.format for rule in self.rules if rule.applies(spec, modules)), None)

    def of(self, group: str) -> WeightFormat | None:
        """The format most matrices of a parameter group are in, None where all are plain."""
        return next((packing.formats[0] for packing in self.groups if packing.group == group), None)

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Every format in use, once."""
        return tuple(dict.fromkeys(found for packing in self.groups for found in packing.formats))

    @property
    def native(self) -> bool:
        """Whether the reference runtime reads every format of what it runs; predictors it leaves on disk."""
        run = [packing for packing in self.groups if packing.group != "mtp"]
        return all(found.native for packing in run for found in packing.formats)


_LINEAR_GROUPS = frozenset(
    (
        *("attention", "indexer", "linear_mixer", "dense_mlp", "routed_experts", "shared_experts"),
        *("latent_moe_proj", "mtp", "other"),
    )
)
_NOT_LINEAR = ("embed", "router", "residual_mixing", "norm")
_PRECISE = ("indexer.weights_proj.weight", "compressor.kv_proj.weight", "compressor.gate_proj.weight")
_PRECISE_ENDS = ("join_proj.weight", "embed.weight", "lm_head.weight")


def is_matrix(spec: TensorSpec) -> bool:
    """Whether a plain tensor is one that a packing could replace: a two-dimensional weight, or a stack of such."""
    dims = len(spec.shape) - bool(spec.stacked)
    return dims == 2 and spec.path.endswith(".weight") and not spec.keep_float32


def is_linear(spec: TensorSpec, *, head: bool = False) -> bool:
    """Whether a method packs a matrix without being told its name.

    No method packs input tables and vision towers by itself, nor what is worth its precision: routers, weights of
    index heads, compressors, the joint of a predictor. The output head is packed by those that go by class (`head`).
    """
    if spec.group == "lm_head":
        return head and spec.path == "lm_head.weight"
    if spec.group not in _LINEAR_GROUPS or "router" in spec.path:
        return False
    return not spec.path.endswith(_PRECISE + _PRECISE_ENDS)


def module_names(spec: TensorSpec) -> tuple[str, ...]:
    """What a list of modules may call a matrix: its module, one expert's, and that of a stack's parts.

    Experts are taken to be alike; lists that tell them apart are believed for the first.
    """
    name = spec.name.replace("{expert}", "0").removesuffix(".weight")
    if not spec.stacked:
        return (name,)
    container, _, leaf = name.rpartition(".")
    return (name, *(f"{container}.0.{part}" for part in stack_parts(leaf)))


def stack_parts(leaf: str) -> tuple[str, ...]:
    """The projections that a stacked tensor of experts holds, by the names they have when stored one by one."""
    return ("gate_proj", "up_proj") if leaf.startswith("gate_up") else (leaf,)
