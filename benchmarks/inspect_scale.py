"""How fast `day0 inspect` reads a full-size checkpoint (headers alone), against the least that Python needs for it.

    python benchmarks/inspect_scale.py                        # kimi-k3, five runs of each, writes results/inspect.md
    python benchmarks/inspect_scale.py --recipe qwen3-30b-a3b --runs 3 --no-hf-mem --output -

The yardstick is a new interpreter that does `json.loads` on the same headers and nothing else. Every run is a process
of its own, with bytecode compiled before as in any installed program; in the "evicted" rows the kernel is asked
beforehand to drop the files from its cache (`posix_fadvise`).
hf-mem, where pip finds it, knows only huggingface.co; it runs in an environment of its own and its requests are sent
to a hub on this machine that serves the same files, as are those of `day0 inspect org/name`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import gmtime, perf_counter, strftime

RESULTS = Path(__file__).resolve().parent / "results" / "inspect.md"
LOCAL_HUB = Path(__file__).resolve().parent / "local_hub.py"
REPO_ID = "bench/full-size"
BASELINE = """
import json, sys
from pathlib import Path
tensors = 0
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    tensors += len(header) - ("__metadata__" in header)
print(tensors)
"""
HF_MEM = """
import sys
import httpx2

class LocalClient(httpx2.AsyncClient):
    def __init__(self, **options):
        super().__init__(**options | {"http2": False})

    async def get(self, url, **options):
        return await super().get(url.replace("https://huggingface.co", hub), **options)

hub = sys.argv.pop(1)
httpx2.AsyncClient = LocalClient
from hf_mem.cli import main
main()
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds by the clock and on the processor, and its largest resident size in MB (10^6 bytes)."""

    wall: float
    user: float
    system: float
    peak_mb: float
    output: bytes


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    runs: tuple[Run, ...]

    @property
    def evicted(self) -> bool:
        return "evicted" in self.title

    def median(self, field: str) -> float:
        return statistics.median(getattr(run, field) for run in self.runs)

    @property
    def cpu(self) -> float:
        return statistics.median(run.user + run.system for run in self.runs)


def measure(command: Sequence[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> Run:
    """Run a command to its end. Its status must be one of the contract's answers, not a failure."""
    with tempfile.TemporaryFile() as output:
        start = perf_counter()
        process = subprocess.Popen(command, stdout=output, env={**os.environ, **(env or {})}, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        wall = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1, 4):
            raise SystemExit(f"{' '.join(command[:6])}: status {process.returncode}")
        output.seek(0)
        # Linux counts the peak in units of 1024 bytes, macOS in bytes.
        unit = 1 if sys.platform == "darwin" else 1024
        return Run(wall, usage.ru_utime, usage.ru_stime, usage.ru_maxrss * unit / 1e6, output.read())


def evict(folder: Path) -> None:
    """Ask the kernel to drop what it caches of the files, which have been written out before."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_turns(runs: int, tasks: dict[str, Callable[[], Run]], before: Callable[[], None] = lambda: None) -> list[Row]:
    """Every task `runs` times, one after another in turns, so that a busy spell falls on all of them."""
    done: dict[str, list[Run]] = {title: [] for title in tasks}
    for _ in range(runs):
        for title, task in tasks.items():
            before()
            done[title].append(task())
    return [Row(title, tuple(results)) for title, results in done.items()]


def on_disk(folder: Path, runs: int) -> list[Row]:
    """Baseline and inspection with the files in the kernel's cache and evicted from it."""

    def baseline() -> Run:
        return measure([sys.executable, "-c", BASELINE, str(folder)])

    def inspection() -> Run:
        return measure([sys.executable, "-m", "day0.cli.main", "inspect", str(folder), "--json"])

    cached = in_turns(runs, {"json.loads loop": baseline, "day0 inspect FOLDER": inspection})
    if not hasattr(os, "posix_fadvise"):
        return cached
    tasks = {"json.loads loop, evicted": baseline, "day0 inspect FOLDER, evicted": inspection}
    return cached + in_turns(runs, tasks, before=lambda: evict(folder))


@contextmanager
def local_hub(folder: Path) -> Iterator[str]:
    """The address of a hub that serves `folder` as REPO_ID, in a process of its own."""
    command = [sys.executable, str(LOCAL_HUB), str(folder), REPO_ID]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def over_http(folder: Path, runs: int, hf_mem: Path | None) -> list[Row]:
    """The same from a hub on this machine; each of our runs starts with an empty hub cache."""
    with local_hub(folder) as hub:

        def inspection() -> Run:
            home = Path(tempfile.mkdtemp())
            env = {"HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            try:
                return measure([sys.executable, "-m", "day0.cli.main", "inspect", REPO_ID, "--json"], env, cwd=home)
            finally:
                shutil.rmtree(home)

        tasks = {"day0 inspect org/name": inspection}
        if hf_mem is not None:
            command = [str(hf_mem), "-c", HF_MEM, hub, "--model-id", REPO_ID, "--json-output"]
            tasks["hf-mem --model-id org/name"] = lambda: measure(command)
        return in_turns(runs, tasks)


def install_hf_mem(folder: Path) -> tuple[Path | None, str]:
    """The interpreter of an environment that has hf-mem, and its version; or None and why not."""
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "hf-mem"],
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            return None, (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    command = [str(python), "-c", "import hf_mem; print(hf_mem.__version__)"]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    return python, said.stdout.strip()


def report(facts: dict[str, str], rows: list[Row], notes: list[str]) -> str:
    """The page of results, in Markdown."""
    lines = ["# `day0 inspect` at full size", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += [
        "Seconds are medians of the runs, `first` is the first of them; `x` divides by the loop with files in the same",
        "state: in the kernel's cache, evicted from it, or (over HTTP) cached. Peak is the largest resident size.",
        "",
        "| | first | wall | x | user + system | x | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        base = next(other for other in rows if "loop" in other.title and row.evicted == other.evicted)
        ratios = (row.median("wall") / base.median("wall"), row.cpu / base.cpu)
        lines.append(
            f"| {row.title} | {row.runs[0].wall:.2f} | {row.median('wall'):.2f} | {ratios[0]:.2f} "
            f"| {row.cpu:.2f} | {ratios[1]:.2f} | {max(run.peak_mb for run in row.runs):.0f} |"
        )
    return "\n".join([*lines, "", *(f"- {note}" for note in notes), ""])


def compare_answers(rows: list[Row]) -> list[str]:
    """What the tools say of the same files."""
    notes = []
    for row in rows:
        if "inspect" in row.title:
            weights = json.loads(row.runs[0].output)["weights"]
            notes.append(f"{row.title} says {weights['tensors']:,} tensors, {weights['bytes']:,} bytes")
        elif "hf-mem" in row.title:
            said = json.loads(row.runs[0].output.decode().splitlines()[-1])
            numbers = {key: value for key, value in said.items() if isinstance(value, (int, float))}
            notes.append(f"{row.title} says {numbers}")
    return notes


def caveats(load: float, *, hf_mem: bool) -> list[str]:
    """What a reader of the figures has to know."""
    notes = ["`day0 inspect org/name` starts with an empty hub cache: it downloads the index and keeps it"]
    if hf_mem:
        notes.append("hf-mem is redirected to the local hub, over HTTP/1.1; it adds up sizes and checks nothing")
    if load >= 1.5:
        notes.append(
            "the machine was busy: clock times are those of two cores shared with others, so trust user + system"
        )
    return notes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", default="kimi-k3")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-hf-mem", action="store_true", help="do not install and run hf-mem")
    parser.add_argument("--output", default=str(RESULTS), help="file for the page, - for stdout")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as room:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(room) / "bytecode")
        folder = Path(room) / "model"
        skeleton = [sys.executable, "-m", "day0.cli.main", "skeleton", f"recipe:{options.recipe}", str(folder)]
        made = measure([*skeleton, "--scale", "full", "--json"])
        document = json.loads(made.output)
        python, hf_mem = (None, "not asked for") if options.no_hf_mem else install_hf_mem(Path(room) / "hf-mem")
        measure([sys.executable, "-m", "day0.cli.main", "inspect", str(folder), "--json"])  # compiles what it imports
        load_before = os.getloadavg()[0]
        rows = on_disk(folder, options.runs) + over_http(folder, options.runs, python)
        headers = sum(header_bytes(path) for path in folder.glob("*.safetensors"))
    facts = {
        "command": f"`python benchmarks/inspect_scale.py {' '.join(sys.argv[1:])}`".replace(" `", "`"),
        "date": strftime("%Y-%m-%d", gmtime()),
        "model": f"recipe:{options.recipe}, {document['tensors']:,} tensors, {document['weight_bytes']:,} bytes in "
        f"{document['shards']} shards, {headers / 1e6:.1f} MB of headers; written in {made.wall:.1f} s",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; load before {load_before:.1f}, "
        f"after {os.getloadavg()[0]:.1f}",
        "versions": f"Python {platform.python_version()}, day0 {version('day0')}, msgspec {version('msgspec')}, "
        f"hf-mem {hf_mem if python else 'not run: ' + hf_mem}",
        "runs": f"{options.runs} of each, in turns",
    }
    page = report(facts, rows, compare_answers(rows) + caveats(load_before, hf_mem=python is not None))
    if options.output == "-":
        print(page)
    else:
        Path(options.output).parent.mkdir(exist_ok=True)
        Path(options.output).write_text(page, encoding="utf-8")


def header_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(8), "little")


if __name__ == "__main__":
    main()
