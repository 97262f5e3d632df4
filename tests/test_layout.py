"""The rooms, who may import whom, and who may spell what (`docs/rooms.md`), held over every source file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
ROOM_OF_ANYTHING = {"utils", "helpers", "common", "misc", "base", "types"}

FACTS = {"profile", "source", "errors"}
RECORDS = FACTS | {"plan", "coverage", "inventory", "operators", "numerics"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "operators": set(),
    "source": {"errors"},
    "profile": {"source", "errors"},
    "inventory": {"profile", "operators", "errors"},
    "coverage": {"inventory", "operators", "source", "errors"},
    "plan": FACTS | {"inventory"},
    "scaffold": {"inventory", "coverage", "operators", "errors"},
    "engines": FACTS | {"plan"},
    "runtime": FACTS | {"plan.settings", "operators"},
    "numerics": {"operators", "errors"},
    "checklist": RECORDS,
    "checklist.probe": RECORDS | {"checklist", "runtime", "engines", "bench"},
    "bench": RECORDS | {"runtime", "engines"},
    "report": RECORDS | {"checklist", "engines", "scaffold", "bench"},
    "cli": RECORDS | {"checklist", "engines", "runtime", "scaffold", "bench", "report"},
}
"""Which rooms a room may import besides itself."""

LEAVES = {"batch", "quant", "cache", "deadline", "tokenizer", "trace", "parallel", "placement"}
MODEL_PARTS = {"ops", "quant", "cache", "batch", "trace", "parallel"}
STORES = {"models", "vision", "quant", "parallel", "placement"}
ENGINE_PARTS = LEAVES | MODEL_PARTS | STORES | {"weights", "experts"}
RUNTIME_MAY_IMPORT: dict[str, set[str]] = {
    **{leaf: set() for leaf in LEAVES},
    "tokenizer": {"deadline"},
    "ops": {"quant"},
    "models": MODEL_PARTS,
    "vision": {"ops", "models.linear", "models.norms", "batch", "trace"},
    "weights": STORES | {"experts"},
    "experts": STORES,
    "offload": STORES | {"weights", "experts"},
    "engine": ENGINE_PARTS | {"upstream", "offload"},
    "upstream": ENGINE_PARTS,
    "verify": ENGINE_PARTS | {"engine", "device"},
    "skeleton": {"skeleton_folder", "skeleton_tokenizer", "skeleton_packed"},
    "skeleton_packed": {"quant"},
    "skeleton_full": {"skeleton_folder", "skeleton_tokenizer"},
    "skeleton_folder": set(),
    "skeleton_tokenizer": set(),
    "server": {
        "engine",
        "batch",
        "tokenizer",
        "vision.images",
        "vision.preprocess",
        "vision.preprocess_config",
        "vision.prompt",
    },
}
"""The same inside runtime/."""

PROBE_SIDE = "probe_"
"""How modules of checklist/ begin that may run a model: the probes, their table, the target in this process."""

TORCH = ("day0/runtime/", "day0/numerics/", "day0/checklist/probe_", "day0/bench.py")
KERNELS = ("day0/runtime/ops/", "day0/runtime/quant/kernels/", "day0/scaffold/templates/")
NETWORK = ("day0/source/hub.py", "day0/checklist/client.py")
IMPORTED_ONLY_IN: dict[str, tuple[str, ...]] = {
    "torch": TORCH,
    "triton": KERNELS,
    "tilelang": KERNELS,
    "yaml": ("day0/source/data_files.py",),
    "huggingface_hub": NETWORK,
    "httpx": NETWORK,
    "requests": NETWORK,
    "urllib.request": NETWORK,
}
DEVICES = ("day0/runtime/ops/registry.py", "day0/runtime/engine/engine.py")
DEVICE_MODULES = ("torch.cuda", "torch.xpu", "torch.backends.mps")
PAGES = ("day0/runtime/cache/", "day0/plan/memory_")
"""Page arithmetic is the cache's; the plan, which may not import it, counts pages for each engine's accounting."""

CATCH_ALL = ("day0/cli/main.py", "day0/checklist/checklist.py", "day0/runtime/server/app.py")
CONFIG_KEYS = {
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_scaling",
    "max_position_embeddings", "intermediate_size", "moe_intermediate_size", "num_experts_per_tok", "n_routed_experts",
    "first_k_dense_replace", "hidden_act", "linear_attn_config", "text_config", "vision_config", "sliding_window",
    "quantization_config",
}  # fmt: skip
FAMILIES = ("day0/profile/families/",)
SPELLED_ONLY_IN: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    ("a key of config.json", re.compile("|".join(sorted(CONFIG_KEYS))), ("day0/profile/",)),
    ("a checkpoint tensor name", re.compile(r".*(\.self_attn\.|embed_tokens|\.mlp\.\w+_proj).*"), ("day0/profile/",)),
    ("the name of a family", re.compile(r"llama|mixtral|qwen\d(_moe)?|kimi_k\d|deepseek_v\d+"), FAMILIES),
    ("a device name", re.compile(r"(cuda|rocm|hip|xpu|npu|mps)(:\d+)?"), DEVICES),
    ("a flag of another engine", re.compile(r"--(tensor-parallel|gpu-memory|tp-size).*"), ("day0/engines/",)),
)  # fmt: skip
"""What, the whole string literal that spells it, and where it may stand."""


@dataclass(frozen=True)
class SourceFile:
    """One file under check; `path` is relative to the repository."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        return ".".join(PurePosixPath(self.path).with_suffix("").parts).removesuffix(".__init__")

    def nodes(self) -> Iterator[ast.AST]:
        """All nodes but those that only a type checker sees."""
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                stack.extend(node.orelse)
                continue
            yield node
            stack.extend(ast.iter_child_nodes(node))


def parse(path: str, text: str) -> SourceFile:
    return SourceFile(path, text, ast.parse(text))


def imported(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Line and full module name of every import, `from day0.plan import settings` as day0.plan.settings."""
    for node in file.nodes():
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def room_of(module: str) -> str:
    """The room of a module of ours; probes of the checklist are a room of their own."""
    parts = module.split(".")[1:]
    if parts[:1] == ["checklist"] and len(parts) > 1 and parts[1].startswith(PROBE_SIDE):
        return "checklist.probe"
    return parts[0] if parts else ""


def allowed(target: str, rooms: set[str]) -> bool:
    """Whether the dotted name lies in one of the rooms, which may be as narrow as "plan.settings"."""
    return any(target == room or target.startswith(f"{room}.") for room in rooms)


def check_imports(file: SourceFile) -> Iterator[str]:
    room = room_of(file.module)
    inner = file.module.split(".")[2:3]
    for line, name in imported(file):
        if not name.startswith("day0."):
            continue
        target = name.removeprefix("day0.")
        other = room_of(name)
        if other not in MAY_IMPORT:
            continue  # a name of the package itself, such as __version__
        if (
            room != other
            and room in MAY_IMPORT
            and not (other in MAY_IMPORT[room] or allowed(target, MAY_IMPORT[room]))
        ):
            yield f"{file.path}:{line}: room {room} may not import {target}"
        if room == other == "runtime" and inner:
            part = target.removeprefix("runtime.")
            if part.split(".")[0] != inner[0] and not allowed(part, RUNTIME_MAY_IMPORT.get(inner[0], set())):
                yield f"{file.path}:{line}: runtime/{inner[0]} may not import runtime/{part}"


def check_libraries(file: SourceFile) -> Iterator[str]:
    for line, name in imported(file):
        for library, places in IMPORTED_ONLY_IN.items():
            if allowed(name, {library}) and not file.path.startswith(places):
                yield f"{file.path}:{line}: {library} is imported only in {', '.join(places)}"


def check_calls(file: SourceFile) -> Iterator[str]:
    for node in file.nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "os._exit"):
            if not file.path.startswith("day0/cli/"):
                yield f"{file.path}:{node.lineno}: {ast.unparse(node.func)} is for cli/ alone"
        elif isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            passed_on = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            all_of_them = re.search(r"\b(everything|Exception|BaseException)\b", caught) and not passed_on
            if all_of_them and file.path not in CATCH_ALL:
                yield f"{file.path}:{node.lineno}: catches {caught}"
        elif isinstance(node, ast.Global):
            yield f"{file.path}:{node.lineno}: global state ({', '.join(node.names)})"


def check_arithmetic(file: SourceFile) -> Iterator[str]:
    """Page arithmetic stays in the cache, bits of packed numbers in quant."""
    for node in file.nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "divmod":
            operator, left, right = ast.FloorDiv(), node.args[0], node.args[1]
        elif isinstance(node, ast.BinOp):
            operator, left, right = node.op, node.left, node.right
        else:
            continue
        divisor = ast.unparse(right).rpartition(".")[2]
        if isinstance(operator, (ast.FloorDiv, ast.Mod)) and divisor == "page_size":
            if not file.path.startswith(PAGES):
                yield f"{file.path}:{node.lineno}: divides by the page size outside {', '.join(PAGES)}"
        elif isinstance(operator, (ast.LShift, ast.RShift, ast.BitAnd)) and file.path.startswith("day0/runtime/"):
            # A mask of more than a byte is no nibble of a packed number (the seed of a generator, say).
            packed = isinstance(right, ast.Constant) and right.value <= 0xFF and not isinstance(left, ast.Constant)
            if packed and not file.path.startswith("day0/runtime/quant/"):
                yield f"{file.path}:{node.lineno}: shifts or masks outside runtime/quant"


def check_spelling(file: SourceFile) -> Iterator[str]:
    docstrings = {id(node.value) for node in file.nodes() if isinstance(node, ast.Expr)}
    for node in file.nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            for what, pattern, places in SPELLED_ONLY_IN:
                if pattern.fullmatch(node.value) and not file.path.startswith(places):
                    yield f"{file.path}:{node.lineno}: {node.value!r} is {what}, spelled only in {', '.join(places)}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in DEVICE_MODULES and file.path not in DEVICES:
            yield f"{file.path}:{node.lineno}: asks {ast.unparse(node)} outside {', '.join(DEVICES)}"


def check_size(file: SourceFile) -> Iterator[str]:
    lines = file.text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{file.path}: {lines} lines, more than {MAX_FILE_LINES}"
    for node in file.nodes():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # The options of a command are a table that happens to be a signature; its length is that of its body.
            is_command = file.path.startswith("day0/cli/") and node.name == "command"
            first = node.body[0].lineno if is_command else node.lineno
            length = (node.end_lineno or first) - first + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{file.path}:{node.lineno}: {node.name} has {length} lines, more than {MAX_FUNCTION_LINES}"


def check_names(file: SourceFile) -> Iterator[str]:
    if PurePosixPath(file.path).stem in ROOM_OF_ANYTHING:
        yield f"{file.path}: a name that says nothing; a helper lives with its user"
    if file.tree.body and not ast.get_docstring(file.tree):
        yield f"{file.path}: no module docstring"
    room = room_of(file.module)
    if room and room not in MAY_IMPORT:
        yield f"{file.path}: room {room} is in no table"


CHECKS: tuple[Callable[[SourceFile], Iterator[str]], ...] = (
    check_imports, check_libraries, check_calls, check_arithmetic, check_spelling, check_size, check_names,
)  # fmt: skip


def violations(path: str, text: str) -> list[str]:
    file = parse(path, text)
    return [complaint for check in CHECKS for complaint in check(file)]


def source_files() -> list[Path]:
    return sorted(path for path in (ROOT / "day0").rglob("*.py") if "templates" not in path.parts)


def test_every_source_file_keeps_the_rules() -> None:
    files = source_files()
    assert len(files) > 20
    found = [v for path in files for v in violations(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))]
    assert not found, "\n" + "\n".join(found)


BAD = {
    "day0/profile/x.py": ("from day0.plan.layout import rules", "room profile may not import plan.layout.rules"),
    "day0/errors.py": ("import day0.source.folder", "room errors may not import source.folder"),
    "day0/plan/x.py": (
        "def f():\n    from day0.runtime.batch import Request",
        "room plan may not import runtime.batch",
    ),
    "day0/runtime/x.py": ("from day0.plan.search import search", "room runtime may not import plan.search"),
    "day0/checklist/checklist.py": ("import day0.runtime.batch", "room checklist may not import runtime.batch"),
    "day0/report/x.py": ("import day0.runtime.trace", "room report may not import runtime.trace"),
    "day0/newroom/x.py": ("", "room newroom is in no table"),
    "day0/runtime/quant/x.py": ("import day0.runtime.ops.norm", "runtime/quant may not import runtime/ops.norm"),
    "day0/runtime/vision/x.py": ("import day0.runtime.models.decoder", "may not import runtime/models.decoder"),
    "day0/runtime/server/x.py": ("import day0.runtime.models.linear", "may not import runtime/models.linear"),
    "day0/cli/x.py": ("def f():\n    import torch.nn", "torch is imported only in"),
    "day0/runtime/models/x.py": ("from triton import jit", "triton is imported only in"),
    "day0/plan/y.py": ("import yaml", "yaml is imported only in"),
    "day0/source/folder.py": ("from huggingface_hub import HfApi", "huggingface_hub is imported only in"),
    "day0/engines/x.py": ("import urllib.request", "urllib.request is imported only in"),
    "day0/plan/z.py": ("print(1)", "print is for cli/ alone"),
    "day0/engines/y.py": ("import sys\nsys.exit(3)", "sys.exit is for cli/ alone"),
    "day0/engines/z.py": ("try:\n    pass\nexcept Exception:\n    pass", "catches Exception"),
    "day0/source/x.py": ("try:\n    pass\nexcept (ValueError, BaseException) as e:\n    print", "catches (ValueError"),
    "day0/source/y.py": ("try:\n    pass\nexcept:\n    pass", "catches everything"),
    "day0/plan/w.py": ("def f():\n    global state", "global state (state)"),
    "day0/runtime/engine/x.py": ("n = tokens // settings.page_size", "divides by the page size"),
    "day0/runtime/engine/y.py": ("n, m = divmod(tokens, page_size)", "divides by the page size"),
    "day0/runtime/ops/x.py": ("low = packed & 0x0F", "shifts or masks outside runtime/quant"),
    "day0/runtime/ops/y.py": ("high = packed >> 4", "shifts or masks outside runtime/quant"),
    "day0/runtime/ops/z.py": ("if device.type == 'cuda': pass", "'cuda' is a device name"),
    "day0/runtime/ops/w.py": ("import torch\nok = torch.cuda.is_available()", "asks torch.cuda outside"),
    "day0/plan/v.py": ("n = config['num_hidden_layers']", "'num_hidden_layers' is a key of config.json"),
    "day0/runtime/weights.py": ("n = 'model.layers.0.self_attn.q_proj.weight'", "is a checkpoint tensor name"),
    "day0/runtime/models/y.py": ("if family == 'kimi_k3': pass", "'kimi_k3' is the name of a family"),
    "day0/cli/y.py": ("argv = ['--tensor-parallel-size', '8']", "is a flag of another engine"),
    "day0/source/utils.py": ("", "a name that says nothing"),
    "day0/source/z.py": ("x = 1\n" * (MAX_FILE_LINES + 1), f"more than {MAX_FILE_LINES}"),
    "day0/source/w.py": ("def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES, f"f has {MAX_FUNCTION_LINES + 1} lines"),
}
"""One broken rule a file: its text below a docstring, and what the checker must say."""


@pytest.mark.parametrize("path", BAD)
def test_the_checker_sees_what_is_wrong(path: str) -> None:
    text, words = BAD[path]
    found = violations(path, f'"""A file."""\n{text}\n')
    assert len(found) == 1, found
    assert words in found[0]


def test_a_missing_docstring_is_seen() -> None:
    assert violations("day0/source/x.py", "x = 1\n") == ["day0/source/x.py: no module docstring"]


GOOD = {
    "day0/plan/x.py": "if TYPE_CHECKING:\n    import torch\n    import day0.runtime.batch",
    "day0/runtime/x.py": "from day0.plan.settings import EngineSettings\nfrom day0.profile import profile",
    "day0/checklist/probe_text.py": "import torch\nfrom day0.runtime.engine.engine import Engine",
    "day0/runtime/vision/x.py": "from day0.runtime.models.linear import Linear",
    "day0/runtime/cache/x.py": "n = -(-tokens // page_size)",
    "day0/runtime/quant/x.py": "low = packed & 0x0F",
    "day0/runtime/ops/x.py": "seed = number & 0xFFFF_FFFF\ngib = 1 << 30",
    "day0/profile/x.py": "n = config['num_hidden_layers']",
    "day0/source/x.py": "try:\n    pass\nexcept BaseException:\n    x = 1\n    raise",
    "day0/source/y.py": "def f():\n    'cuda'",
    "day0/cli/x.py": "import day0\nprint(day0.__version__)",
    "day0/source/__init__.py": "",
}


@pytest.mark.parametrize("path", GOOD)
def test_the_checker_lets_good_code_pass(path: str) -> None:
    text = f'"""A file."""\n{GOOD[path]}\n' if GOOD[path] else ""
    assert violations(path, text) == []


@pytest.mark.parametrize(
    "code",
    [
        "import day0.cli.main",
        "import day0.cli.inspect, day0.cli.plan, day0.cli.run_checklist, day0.cli.serve, day0.cli.skeleton",
        "from day0.cli.main import main; main(['--help'])",
        "from day0.cli.main import main; main(['inspect', 'recipe:kimi-k3', '--json'])",
        "from day0.cli.main import main; main(['plan', 'recipe:kimi-k3', '--cluster', 'h200:8x2', '--json'])",
    ],
)
def test_heavy_libraries_stay_away(code: str) -> None:
    """Neither help nor inspect nor plan pays for torch, transformers or the HTTP server."""
    code += "\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert "day0.cli.main" in modules or "day0.cli.plan" in modules
    assert modules.isdisjoint({"torch", "transformers", "fastapi", "uvicorn", "matplotlib"})
