"""The whole vision model against a second implementation, written patch by patch in float64."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from day0.errors import InputError
from day0.profile.profile import VisionSpec
from day0.profile.vision_tensors import vision_tensors
from day0.runtime.trace import Trace
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.model import VisionModel
from day0.runtime.vision.preprocess import ImageInput

GRIDS = [(1, 6, 4), (3, 2, 6), (1, 2, 2), (4, 4, 2), (1, 8, 10)]


class SlowVision:
    """Loops over patches, heads and channel pairs; shares no code and no library call with the model."""

    def __init__(self, model: VisionModel, spec: VisionSpec) -> None:
        self.w = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
        self.spec = spec

    def encode(self, pixels: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
        frames, rows, columns = grid
        where = [(f, r, c) for f in range(frames) for r in range(rows) for c in range(columns)]
        kernel = self.w["tower.patch_embed.weight"]
        x = [np.tensordot(kernel, patch, 3) + self.position(grid, *at) for patch, at in zip(pixels, where, strict=True)]
        for index in range(self.spec.num_layers):
            x = self.block(f"tower.blocks.{index}", x, where)
        x = [rms(row, self.w["tower.norm.weight"], self.spec.norm_eps) for row in x]
        return np.stack([self.token(x, where, r, c) for r in range(0, rows, 2) for c in range(0, columns, 2)])

    def position(self, grid: tuple[int, int, int], frame: int, row: int, column: int) -> np.ndarray:
        learnt, width = self.w["tower.patch_embed.positions"], self.spec.hidden_size
        total = np.zeros(width)
        for y, weight_y in neighbours(row, grid[1], learnt.shape[0]):
            for x, weight_x in neighbours(column, grid[2], learnt.shape[1]):
                total += weight_y * weight_x * learnt[y, x]
        if grid[0] > 1:
            for i in range(width // 2):
                angle = frame / 10000 ** (i / (width // 2))
                total[i] += math.sin(angle)
                total[width // 2 + i] += math.cos(angle)
        return total

    def block(self, name: str, x: list[np.ndarray], where: list[tuple[int, int, int]]) -> list[np.ndarray]:
        normed = [rms(row, self.w[f"{name}.attention_norm.weight"], self.spec.norm_eps) for row in x]
        mixed = self.attention(f"{name}.attention", normed, where)
        x = [row + more for row, more in zip(x, mixed, strict=True)]
        up, down = self.w[f"{name}.mlp.up.weight"], self.w[f"{name}.mlp.down.weight"]
        normed = [rms(row, self.w[f"{name}.mlp_norm.weight"], self.spec.norm_eps) for row in x]
        return [row + down @ gelu_tanh(up @ one) for row, one in zip(x, normed, strict=True)]

    def attention(self, name: str, x: list[np.ndarray], where: list[tuple[int, int, int]]) -> list[np.ndarray]:
        width, heads = self.spec.qkv_size, self.spec.num_heads
        head = width // heads
        packed = [self.w[f"{name}.qkv.weight"] @ row for row in x]
        outputs = [np.zeros(width) for _ in x]
        for h in range(heads):
            part = slice(h * head, (h + 1) * head)
            q = [turned(row[:width][part], at) for row, at in zip(packed, where, strict=True)]
            k = [turned(row[width : 2 * width][part], at) for row, at in zip(packed, where, strict=True)]
            v = [row[2 * width :][part] for row in packed]
            for i, query in enumerate(q):
                scores = np.array([query @ key for key in k]) / math.sqrt(head)
                weights = np.exp(scores - scores.max())
                outputs[i][part] = sum(w * value for w, value in zip(weights / weights.sum(), v, strict=True))
        return [self.w[f"{name}.out.weight"] @ row for row in outputs]

    def token(self, x: list[np.ndarray], where: list[tuple[int, int, int]], row: int, column: int) -> np.ndarray:
        cell = []
        for at in ((row, column), (row, column + 1), (row + 1, column), (row + 1, column + 1)):
            cell.append(np.mean([value for value, place in zip(x, where, strict=True) if place[1:] == at], axis=0))
        inner = self.w["projector.up.weight"] @ np.concatenate(cell)
        inner = np.array([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in inner])
        return rms(
            self.w["projector.down.weight"] @ inner, self.w["projector.norm.weight"], self.spec.projector_norm_eps
        )


def neighbours(index: int, size: int, learnt: int) -> list[tuple[int, float]]:
    source = min(max((index + 0.5) * learnt / size - 0.5, 0.0), learnt - 1.0)
    low = int(source)
    return [(low, 1 - (source - low)), (min(low + 1, learnt - 1), source - low)]


def turned(head: np.ndarray, at: tuple[int, int, int]) -> np.ndarray:
    pairs = head[0::2] + 1j * head[1::2]
    for j in range(len(pairs)):
        place = at[2] if j % 2 == 0 else at[1]
        pairs[j] *= np.exp(1j * place * 10000 ** (-4 * (j // 2) / len(head)))
    return np.stack([pairs.real, pairs.imag], axis=1).reshape(-1)


def rms(row: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return row / math.sqrt(np.mean(row**2) + eps) * weight


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("grid", GRIDS)
def test_model_equals_the_slow_one(
    model: VisionModel, spec: VisionSpec, pixels_for, grid: tuple[int, int, int]
) -> None:
    pixels = pixels_for([grid], seed=sum(grid))
    slow = SlowVision(model, spec).encode(pixels.double().numpy(), grid)
    fast = model.encode(pixels, [grid])[0].double().numpy()
    assert fast.shape == slow.shape
    assert np.abs(fast - slow).max() < 1e-5 * np.abs(slow).max()


def test_the_slow_one_tells_gelu_and_epsilon_apart(model: VisionModel, spec: VisionSpec, pixels_for) -> None:
    """The comparison above would notice the smallest mistakes it is there for."""
    slow = SlowVision(model, spec).encode(pixels_for([(1, 2, 2)]).double().numpy(), (1, 2, 2))
    model.projector.norm.eps = 1e-3
    fast = model.encode(pixels_for([(1, 2, 2)]), [(1, 2, 2)])[0].double().numpy()
    assert np.abs(fast - slow).max() > 1e-4 * np.abs(slow).max()


def test_packed_items_equal_each_alone(model: VisionModel, pixels_for) -> None:
    pixels = pixels_for(GRIDS)
    together = model.encode(pixels, GRIDS)
    parts = pixels.split([frames * rows * columns for frames, rows, columns in GRIDS])
    for grid, part, packed in zip(GRIDS, parts, together, strict=True):
        alone = model.encode(part, [grid])[0]
        assert torch.allclose(packed, alone, atol=1e-5)


def test_repeated_calls_with_other_sizes_between_do_not_change_the_result(model: VisionModel, pixels_for) -> None:
    """Nothing of one request's positions may survive into the next."""
    pixels = pixels_for([(1, 4, 2)])
    first = model.encode(pixels, [(1, 4, 2)])[0]
    model.encode(pixels_for([(1, 2, 6)]), [(1, 2, 6)])
    assert torch.equal(model.encode(pixels, [(1, 4, 2)])[0], first)


def test_parameters_are_those_of_the_tensor_table(model: VisionModel, spec: VisionSpec) -> None:
    ours = {f"vision.{name}": tuple(value.shape) for name, value in model.named_parameters()}
    assert ours == {tensor.path: tensor.shape for tensor in vision_tensors(spec, "BF16")}


def test_trace_names_every_stage_once_in_order(model: VisionModel, pixels_for) -> None:
    trace = Trace()
    outputs = model.encode(pixels_for([(1, 2, 2), (2, 2, 4)]), [(1, 2, 2), (2, 2, 4)], trace)
    shapes = {name: tuple(tensor.shape) for name, tensor in trace.tensors.items()}
    assert list(shapes.items()) == [
        ("vision.patch_embed", (20, 20)),
        ("vision.blocks.0.output", (20, 20)),
        ("vision.blocks.1.output", (20, 20)),
        ("vision.final_norm", (20, 20)),
        ("vision.merged", (3, 4, 20)),
        ("vision.projected", (3, 12)),
    ]
    assert torch.equal(torch.cat(outputs), trace.tensors["vision.projected"])
    for earlier, later in pairwise(trace.tensors.values()):
        assert earlier.shape != later.shape or not torch.equal(earlier, later)


def test_bfloat16_stays_close(model: VisionModel, pixels_for) -> None:
    pixels = pixels_for([(1, 6, 4)])
    exact = model.encode(pixels, [(1, 6, 4)])[0]
    rounded = model.to(torch.bfloat16).encode(pixels, [(1, 6, 4)])[0]
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() / exact.norm() < 0.03


def test_preprocessed_images_are_encoded_in_order(model: VisionModel, pixels_for) -> None:
    grids = [PatchGrid(1, 2, 4), PatchGrid(1, 4, 2)]
    images = [ImageInput(pixels_for([grid], seed), grid, 2, (56, 28)) for seed, grid in enumerate(grids)]
    together = model.encode_images(images)
    for image, embeddings in zip(images, together, strict=True):
        assert torch.allclose(embeddings, model.encode(image.pixel_values, [image.grid])[0], atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-2)
    assert model.encode_images([]) == []


def test_no_items_give_no_embeddings_and_bad_grids_are_refused(model: VisionModel) -> None:
    assert model.encode(torch.zeros(0, 3, 14, 14), []) == []
    with pytest.raises(InputError, match="pixel_values holds 5"):
        model.encode(torch.zeros(5, 3, 14, 14), [(1, 2, 2)])
