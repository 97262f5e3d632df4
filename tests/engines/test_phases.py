"""Phases read from the lines that engines write while they start."""

from __future__ import annotations

import pytest

from day0.engines.phases import PHASES, SIGNS, Progress

LOGS = {
    "vllm": [
        ("resolve", "(APIServer pid=1) INFO [model.py:733] Resolved architecture: LlamaForCausalLM"),
        ("load", "(Worker pid=2) INFO [cpu_model_runner.py:68] Starting to load model m..."),
        ("load", "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  3.70it/s]"),
        ("convert", "(Worker pid=2) INFO [default_loader.py:501] Loading weights took 0.28 seconds"),
        ("allocate", "(EngineCore pid=3) INFO [kv_cache_utils.py:2327] GPU KV cache size: 93,184 tokens, Maximum"),
        ("warm up", "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|####      | 2/5"),
    ],
    "sglang": [
        ("resolve", "[2026-12-01] server_args=ServerArgs(model_path='m', tokenizer_path='m'"),
        ("load", "[2026-12-01 TP0] Load weight begin. avail mem=139.00 GB"),
        ("load", "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  3.70it/s]"),
        ("convert", "[2026-12-01 TP0] Load weight end. elapsed=2.0 s"),
        ("allocate", "[2026-12-01 TP0] KV Cache is allocated. #tokens: 93184"),
        ("warm up", "[2026-12-01 TP0] Capture target verify CUDA graph begin. This can take up to several minutes."),
    ],
    "transformers": [
        ("load", "Loading weights:  50%|#####     | 136/272"),
        ("warm up", "INFO:     Application startup complete."),
    ],
}


@pytest.mark.parametrize("engine", SIGNS)
def test_a_start_goes_through_its_phases(engine):
    progress = Progress(engine, None, 0.0)
    shares = []
    for second, (phase, line) in enumerate(LOGS[engine], 1):
        progress.read(line, float(second))
        assert progress.phase == phase
        shares.append(progress.share)
    assert 50 in shares
    assert not progress.read(LOGS[engine][0][1], 99.0) and progress.phase == "warm up"
    assert progress.enter("ready", 10.0) and progress.phase == PHASES[-1]
    assert sum(progress.seconds.values()) == 10.0


def test_no_line_of_a_log_says_ready():
    assert all(sign.phase in PHASES[:-1] for signs in SIGNS.values() for sign in signs)


def test_what_later_versions_write_is_not_read_in_earlier_ones():
    line = "Capture target verify CUDA graph begin. This can take"
    assert not Progress("sglang", "0.5.0", 0.0).read(line, 1.0)
    assert Progress("sglang", "0.5.23", 0.0).read(line, 1.0)
