"""Kimi K3's text decoder in float64 numpy, token by token, written from its formulas and apart from `day0`.

Slow on purpose: no chunks, no absorbed projections, no batches, no cache. It judges the runtime where no numbers from
elsewhere are at hand. Weights are read from the shards' bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PREFIX = "language_model.model"
LATENT_NORM_EPS = 1e-6
UNIT_LENGTH_EPS = 1e-6
HALF_BYTE_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
PLAIN_DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "U8": "u1"}


class Checkpoint:
    """Tensors by name from the shards of a folder: 8 bytes of header length, a JSON header, then the values."""

    def __init__(self, folder: Path) -> None:
        self._where: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for shard in sorted(folder.glob("*.safetensors")):
            with shard.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            for name, entry in header.items():
                if name != "__metadata__":
                    self._where[name] = (shard, 8 + length, entry)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def raw(self, name: str) -> NDArray[Any]:
        shard, base, entry = self._where[name]
        begin, end = entry["data_offsets"]
        data = shard.read_bytes()[base + begin : base + end]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            flat = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            flat = np.frombuffer(data, PLAIN_DTYPES[entry["dtype"]])
        return flat.reshape(entry["shape"])

    def __getitem__(self, name: str) -> Array:
        return self.raw(name).astype(np.float64)

    def expert(self, name: str) -> Array:
        """A matrix stored as two 4-bit values a byte, low half first, and one power of two for 32 of them."""
        packed, scale = self.raw(f"{name}_packed"), self.raw(f"{name}_scale")
        values = np.empty((packed.shape[0], 2 * packed.shape[1]))
        values[:, 0::2] = HALF_BYTE_VALUES[packed & 15]
        values[:, 1::2] = HALF_BYTE_VALUES[packed >> 4]
        return values * np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, axis=1)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def rms(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight


def unit(x: Array) -> Array:
    return x / np.sqrt((x**2).sum(axis=-1, keepdims=True) + UNIT_LENGTH_EPS)


class KimiK3:
    """The decoder of one folder. `forward` gives every layer's output and what else the tests ask for, by name."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())["text_config"]
        self.weights = Checkpoint(folder)
        self.eps = self.config["rms_norm_eps"]
        self._experts: dict[str, Array] = {}

    def forward(self, ids: list[int]) -> dict[str, Array]:
        seen: dict[str, Array] = {}
        total = self.weights[f"{PREFIX}.embed_tokens.weight"][ids]
        block = self.config.get("attn_res_block_size")
        snapshots: list[Array] = []
        running: Array | None = total
        for layer in range(self.config["num_hidden_layers"]):
            at = f"{PREFIX}.layers.{layer}"
            assert running is not None
            x = self._mix([*snapshots, running], f"{at}.self_attention") if snapshots else running
            if block is not None and layer % block == 0:
                snapshots.append(running)
                running = None
            x = rms(x, self.weights[f"{at}.input_layernorm.weight"], self.eps)
            linear = layer + 1 in self.config["linear_attn_config"]["kda_layers"]
            mixed = self._delta(x, layer, seen) if linear else self._latent(x, layer)
            running = mixed if running is None else running + mixed
            x = self._mix([*snapshots, running], f"{at}.mlp") if snapshots else running
            x = rms(x, self.weights[f"{at}.post_attention_layernorm.weight"], self.eps)
            running = running + self._feed_forward(x, layer, seen)
            seen[f"layers.{layer}.mixer_out"] = mixed
            seen[f"layers.{layer}.output"] = running
        assert running is not None
        last = self._mix([*snapshots, running], f"{PREFIX}.output_attn") if snapshots else running
        seen["norm"] = rms(last, self.weights[f"{PREFIX}.norm.weight"], self.eps)
        seen["logits"] = seen["norm"] @ self.weights["language_model.lm_head.weight"].T
        return seen

    def _mix(self, candidates: list[Array], site: str) -> Array:
        """Softmax over candidates of (normed candidate . query), applied to the candidates as they are."""
        weight, query = self.weights[f"{site}_res_norm.weight"], self.weights[f"{site}_res_proj.weight"][0]
        scores = np.stack([rms(c, weight, self.eps) @ query for c in candidates], axis=-1)
        shares = softmax(scores)
        return sum(shares[:, i, None] * c for i, c in enumerate(candidates))

    def _delta(self, x: Array, layer: int, seen: dict[str, Array]) -> Array:
        at, settings = f"{PREFIX}.layers.{layer}.self_attn", self.config["linear_attn_config"]
        heads, dim, taps = settings["num_heads"], settings["head_dim"], settings["short_conv_kernel_size"]
        bound = settings.get("gate_lower_bound")
        tokens = len(x)
        convolved = {}
        for axis in "qkv":
            inputs = x @ self.weights[f"{at}.{axis}_proj.weight"].T
            padded = np.concatenate((np.zeros((taps - 1, heads * dim)), inputs))
            kernel = self.weights[f"{at}.{axis}_conv1d.weight"][:, 0]
            output = np.stack([(padded[t : t + taps] * kernel.T).sum(axis=0) for t in range(tokens)])
            convolved[axis] = silu(output).reshape(tokens, heads, dim)
            seen[f"layers.{layer}.conv_state.{axis}"] = padded[-(taps - 1) :].T
        q, k, v = unit(convolved["q"]), unit(convolved["k"]), convolved["v"]
        z = (x @ self.weights[f"{at}.f_a_proj.weight"].T @ self.weights[f"{at}.f_b_proj.weight"].T).reshape(q.shape)
        rate = np.exp(self.weights[f"{at}.A_log"][:heads])[:, None]
        shifted = z + self.weights[f"{at}.dt_bias"].reshape(heads, dim)
        decay = -rate * np.logaddexp(0, shifted) if bound is None else bound * sigmoid(rate * shifted)
        beta = sigmoid(x @ self.weights[f"{at}.b_proj.weight"].T)
        state = np.zeros((heads, dim, dim))  # [head, key, value]
        read = np.zeros((tokens, heads, dim))
        for t in range(tokens):
            for h in range(heads):
                kept = np.exp(decay[t, h])[:, None] * state[h]
                state[h] = kept + beta[t, h] * np.outer(k[t, h], v[t, h] - kept.T @ k[t, h])
                read[t, h] = state[h].T @ q[t, h] / np.sqrt(dim)
        seen[f"layers.{layer}.state"] = state
        if settings["use_full_rank_gate"]:
            gate = x @ self.weights[f"{at}.g_proj.weight"].T
        else:
            gate = x @ self.weights[f"{at}.g_a_proj.weight"].T @ self.weights[f"{at}.g_b_proj.weight"].T
        gated = rms(read, self.weights[f"{at}.o_norm.weight"], self.eps) * sigmoid(gate.reshape(q.shape))
        return gated.reshape(tokens, -1) @ self.weights[f"{at}.o_proj.weight"].T

    def _latent(self, x: Array, layer: int) -> Array:
        at, config = f"{PREFIX}.layers.{layer}.self_attn", self.config
        heads, nope, value = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
        rope, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
        if config.get("q_lora_rank") is None:
            flat = x @ self.weights[f"{at}.q_proj.weight"].T
        else:
            low = x @ self.weights[f"{at}.q_a_proj.weight"].T
            low = rms(low, self.weights[f"{at}.q_a_layernorm.weight"], LATENT_NORM_EPS)
            flat = low @ self.weights[f"{at}.q_b_proj.weight"].T
        q = flat.reshape(-1, heads, nope + rope)
        both = x @ self.weights[f"{at}.kv_a_proj_with_mqa.weight"].T
        if not config["mla_use_nope"]:
            q[..., nope:] = self._turn(q[..., nope:].swapaxes(0, 1)).swapaxes(0, 1)
            both[:, rank:] = self._turn(both[:, rank:])
        latent = rms(both[:, :rank], self.weights[f"{at}.kv_a_layernorm.weight"], LATENT_NORM_EPS)
        expanded = (latent @ self.weights[f"{at}.kv_b_proj.weight"].T).reshape(-1, heads, nope + value)
        output = np.zeros((len(x), heads, value))
        for t in range(len(x)):
            for h in range(heads):
                keys = np.concatenate((expanded[: t + 1, h, :nope], both[: t + 1, rank:]), axis=-1)
                shares = softmax(keys @ q[t, h] / np.sqrt(nope + rope))
                output[t, h] = shares @ expanded[: t + 1, h, nope:]
        flat = output.reshape(len(x), -1)
        if config["mla_use_output_gate"]:
            flat = flat * sigmoid(x @ self.weights[f"{at}.g_proj.weight"].T)
        return flat @ self.weights[f"{at}.o_proj.weight"].T

    def _turn(self, x: Array) -> Array:
        """Rotary positions over neighbouring channels, x [..., tokens, channels]."""
        pairs = x.shape[-1] // 2
        angles = np.arange(x.shape[-2])[:, None] * self.config["rope_theta"] ** (-np.arange(pairs) / pairs)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack((turned.real, turned.imag), axis=-1).reshape(x.shape)

    def _feed_forward(self, x: Array, layer: int, seen: dict[str, Array]) -> Array:
        at, config = f"{PREFIX}.layers.{layer}", self.config
        if f"{at}.mlp.gate_proj.weight" in self.weights:
            return self._mlp(x, f"{at}.mlp")
        at = f"{at}.block_sparse_moe"
        scores = self._scores(x @ self.weights[f"{at}.gate.weight"].T)
        biased = scores + self.weights[f"{at}.gate.e_score_correction_bias"]
        narrow = f"{at}.routed_expert_down_proj.weight" in self.weights
        inputs = x @ self.weights[f"{at}.routed_expert_down_proj.weight"].T if narrow else x
        summed = np.zeros_like(inputs)
        shares = np.zeros_like(scores)
        for t in range(len(x)):
            chosen = self._choose(biased[t])
            share = scores[t, chosen]
            if config["moe_renormalize"] and len(chosen) > 1:
                share = share / share.sum()
            shares[t, chosen] = share * config["routed_scaling_factor"]
            for expert in chosen:
                name = f"{at}.experts.{expert}"
                gate, up = self._expert(f"{name}.w1") @ inputs[t], self._expert(f"{name}.w3") @ inputs[t]
                summed[t] += shares[t, expert] * (self._expert(f"{name}.w2") @ self._situ(gate, up))
        seen[f"layers.{layer}.expert_shares"] = shares
        if narrow and config["latent_moe_use_norm"]:
            summed = rms(summed, self.weights[f"{at}.routed_expert_norm.weight"], self.eps)
        routed = summed @ self.weights[f"{at}.routed_expert_up_proj.weight"].T if narrow else summed
        return routed + (self._mlp(x, f"{at}.shared_experts") if config["num_shared_experts"] else 0.0)

    def _scores(self, logits: Array) -> Array:
        return softmax(logits) if self.config["moe_router_activation_func"] == "softmax" else sigmoid(logits)

    def _choose(self, biased: Array) -> NDArray[np.int64]:
        """The best experts, of the best groups only where groups limit the choice."""
        groups, kept = self.config["num_expert_group"], self.config["topk_group"]
        if groups > kept:
            worth = np.sort(biased.reshape(groups, -1), axis=1)[:, -2:].sum(axis=1)
            dropped = np.argsort(-worth, kind="stable")[kept:]
            biased = biased.reshape(groups, -1).copy()
            biased[dropped] = -np.inf
            biased = biased.reshape(-1)
        return np.argsort(-biased, kind="stable")[: self.config["num_experts_per_token"]]

    def _expert(self, name: str) -> Array:
        if name not in self._experts:
            packed = f"{name}.weight_packed" in self.weights
            self._experts[name] = self.weights.expert(f"{name}.weight") if packed else self.weights[f"{name}.weight"]
        return self._experts[name]

    def _mlp(self, x: Array, at: str) -> Array:
        gate, up = x @ self.weights[f"{at}.gate_proj.weight"].T, x @ self.weights[f"{at}.up_proj.weight"].T
        return self._situ(gate, up) @ self.weights[f"{at}.down_proj.weight"].T

    def _situ(self, gate: Array, up: Array) -> Array:
        if self.config["hidden_act"] == "silu":
            return silu(gate) * up
        beta, linear = self.config["activation_situ_beta"], self.config["activation_situ_linear_beta"]
        bounded_up = up if linear is None else linear * np.tanh(up / linear)
        return beta * np.tanh(gate / beta) * sigmoid(gate) * bounded_up
