"""A stand-in for vLLM's server: its log lines, its API, its children; FAKE_MODE says how it fails.

Run by a package named `vllm` that the tests write; it answers every prompt alike.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = os.environ.get("FAKE_MODE", "good")
LINES = """\
(APIServer pid=1) INFO 12-01 03:40:20 [model.py:733] Resolved architecture: LlamaForCausalLM
(Worker pid=2) INFO 12-01 03:40:33 [cpu_model_runner.py:68] Starting to load model m...
Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  3.70it/s]
(Worker pid=2) INFO 12-01 03:40:34 [default_loader.py:501] Loading weights took 0.28 seconds
(EngineCore pid=3) INFO 12-01 03:40:35 [kv_cache_utils.py:2327] CPU KV cache size: 93,184 tokens, Maximum concurrency
(EngineCore pid=3) INFO 12-01 03:40:43 [core.py:402] init engine (profile, create kv cache, warmup model) took 7.90 s
"""  # noqa: E501
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer({"data": [{"id": "m", "max_model_len": 64}]})
        elif self.path == "/metrics":
            self.answer("vllm:num_requests_running 0.0\n")
        else:
            self.answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["prompt"] == "slowly":
            time.sleep(2.0)
        value = 0.5 if MODE == "nonsense" else -0.5
        tops = [{" Paris": value, " a": -2.0}]
        logprobs = {"token_logprobs": [value], "top_logprobs": tops}
        self.answer({"choices": [{"text": " Paris", "finish_reason": "length", "logprobs": logprobs}]})

    def answer(self, what: object) -> None:
        data = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    child = subprocess.Popen(["sleep", "600"])
    # Leaves the process group and its parent, as a daemon does.
    stray = subprocess.run(
        ["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    Path(os.environ["FAKE_PIDS"]).write_text(f"{os.getpid()} {child.pid} {stray.stdout.strip()}")
    print(LINES, end="", flush=True)
    if MODE == "memory":
        print(f"Traceback (most recent call last):\n{OUT_OF_MEMORY}", flush=True)
        sys.exit(1)
    server = ThreadingHTTPServer(("127.0.0.1", port), Api)
    server.daemon_threads = False
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    threading.Thread(target=end_with, args=(child,), daemon=True).start()
    server.serve_forever()
    server.server_close()  # waits for the answers under way


def end_with(child: subprocess.Popen[bytes]) -> None:
    """vLLM's front end ends where its engine core does."""
    child.wait()
    print("RuntimeError: Engine core proc EngineCore died unexpectedly", flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
