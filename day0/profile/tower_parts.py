"""The small parts that encoders of images and sounds are made of, in the order of their forward pass.

A part with weights has a path within its stage. What it stores and which operators it takes follow from its fields
alone (`tower_tensors.py`, the inventory), so a new tower is a list of parts and no new code.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import Literal

RotationLayout = Literal["neox", "interleaved", "apart", "in_turn"]

Resampling = Literal["bilinear", "bilinear_corners", "bicubic"]

NormForm = Literal["rms", "rms_plus_one", "layer", "layer_without_bias", "unit"]
"""RMS norm, its weight as it is or stored less one; layer norm with and without a bias; RMS norm without a weight."""

TowerActivation = Literal["gelu", "gelu_tanh", "quick_gelu", "silu", "relu"]
"""gelu is the erf form, gelu_tanh its approximation, quick_gelu x sigmoid(1.702 x)."""


@dataclass(frozen=True, slots=True)
class PatchEmbedding:
    """Linear map of every patch of `channels` x `patch` values (frames, rows, columns); frames are left out where one.

    Files hold it as the convolution it also is, or `flat` as a matrix [width, values].
    """

    path: str
    width: int
    channels: int
    patch: tuple[int, ...]
    bias: bool = False
    flat: bool = False

    @property
    def values(self) -> int:
        return self.channels * prod(self.patch)


@dataclass(frozen=True, slots=True)
class Projection:
    """A matrix with or without a bias.

    `cell` is given where files hold it as a convolution over a cell of that many rows and columns, whose patches are
    what the matrix reads; `input_first` where they hold its transpose. `bounded` adds the four numbers to which what
    goes in and what comes out are clamped (Gemma 4).
    """

    path: str
    inputs: int
    outputs: int
    bias: bool = False
    cell: tuple[int, int] | None = None
    input_first: bool = False
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class TowerNorm:
    path: str
    width: int
    form: NormForm
    eps: float


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """Norms of queries and keys, head by head, each with one weight of a head's width."""

    path: str
    heads: int
    kv_heads: int
    head_dim: int
    eps: float


@dataclass(frozen=True, slots=True)
class LearntTable:
    """Learnt vectors that are added, put in front, or multiplied: what is done with them is `role`.

    "grid" is a square of positions that is resampled to the item's size: with the centres of its cells spread over the
    item ("bilinear", "bicubic"), or with the outermost ones on its edge ("bilinear_corners"). "positions" are added as
    they are stored, "axes" are two such tables (column, row), "tiles" vectors of an image's tiles by its aspect ratio,
    "first" is a token put before the patches, "gate" one number whose tanh a branch is multiplied by, "positions_gate"
    shares a weight out between two tables of positions, "shift" and "scale" standardise channels, "head_scale" scales
    queries.
    `shape` is as stored, as an embedding's weight where `module` says so; `trained` is false for statistics, which
    are no parameters. `width` is that of what a gate, tiles or scales of heads work on.
    """

    path: str
    shape: tuple[int, ...]
    role: Literal[
        "grid", "positions", "axes", "tiles", "first", "gate", "positions_gate", "shift", "scale", "head_scale"
    ]
    trained: bool = True
    module: bool = False
    resampling: Resampling | None = None
    width: int = 0

    @property
    def grid_sides(self) -> tuple[int, int]:
        """Rows and columns of a "grid"; one that is stored as a row of places is a square."""
        if len(self.shape) == 3:
            return self.shape[0], self.shape[1]
        side = isqrt(self.shape[0])
        return side, side


@dataclass(frozen=True, slots=True)
class AxialRotation:
    """Rotation of queries and keys by a patch's row and column (`axes` 2), or by a frame's number (`axes` 1).

    With `axes` 3 frame, row and column have a third of the pairs each, and channels beyond them stay (MiniMax M3).

    "neox" pairs channel i with i + pairs, "interleaved" neighbours; "apart" does the former within a half of the head
    for each axis, "in_turn" rotates neighbours by column and row in turn.
    """

    heads: int
    head_dim: int
    pairs: int
    theta: float
    axes: Literal[1, 2, 3] = 2
    layout: RotationLayout = "neox"


@dataclass(frozen=True, slots=True)
class EncoderAttention:
    """Softmax attention among the patches or frames of one item.

    With `window` a patch sees those of its own square of that many patches a side. With `chunk` a frame sees `past`
    frames before itself and `future` after, its logits a function of the distance as well and bounded by `softcap`.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    chunk: int | None = None
    past: int = 0
    future: int = 0
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class Nonlinearity:
    kind: TowerActivation
    width: int


@dataclass(frozen=True, slots=True)
class GatedProduct:
    """activation(gate) times up, each `width` wide; `limit` bounds gate from above and up on both sides.

    A `kind` of "sigmoid" is the gated linear unit, whose halves come of one projection.
    """

    kind: TowerActivation | Literal["sigmoid"]
    width: int
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """A branch's output, times `factor`, is added to what went past it."""

    width: int
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class PatchMerge:
    """Each cell of (rows, columns) patches becomes one long vector; `frames` says that frames are averaged first."""

    width: int
    cell: tuple[int, int]
    frames: bool = False


@dataclass(frozen=True, slots=True)
class PatchPool:
    """Each cell of (rows, columns) patches becomes their mean, times `factor`."""

    width: int
    cell: tuple[int, int]
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class EncoderConvolution:
    """A convolution over time, or over time and frequency, with `stride` along each of them.

    `depthwise` ones keep channels apart and see no later frame.
    """

    path: str
    inputs: int
    outputs: int
    kernel: tuple[int, ...]
    stride: int
    bias: bool
    depthwise: bool = False


@dataclass(frozen=True, slots=True)
class TowerExperts:
    """Gated MLPs of `width`, of which `top_k` are chosen for each patch by sigmoid scores plus a bias (dots3)."""

    path: str
    experts: int
    top_k: int
    hidden: int
    width: int
    scaling: float
    activation: TowerActivation


Part = (
    PatchEmbedding
    | Projection
    | TowerNorm
    | HeadNorm
    | LearntTable
    | AxialRotation
    | EncoderAttention
    | Nonlinearity
    | GatedProduct
    | BranchEnd
    | PatchMerge
    | PatchPool
    | EncoderConvolution
    | TowerExperts
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Parts that run once, or once for each of `blocks`.

    In `path`, "{block}" stands for the block's number and "{level}" for `level`, where a tower is made of several runs
    of blocks. Parts that are not `used` are in the files, and nothing of what the text model reads comes of them.
    A stage with `taps` lies beside the road: its copy for block i reads what block `taps[i]` of the tower gives, and
    what it gives is added to the image's tokens behind layer i of the text model.
    """

    path: str
    parts: tuple[Part, ...]
    blocks: tuple[int, ...] | None = None
    level: int | None = None
    used: bool = True
    taps: tuple[int, ...] = ()
