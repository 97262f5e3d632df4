"""The folder of a skeleton: written whole or not at all, and never over anything else."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from day0.errors import InputError, not_written

MARKER = "day0_skeleton.json"
"""Says that a folder was written here, and from what; only such a folder is ever replaced."""


@contextmanager
def skeleton_folder(out: Path, *, force: bool) -> Iterator[Path]:
    """An empty folder to fill, which then takes the place of `out`; after an error all is as it was.

    Raises InputError where `out` holds something other than a skeleton, or a skeleton without `force`, or where it
    cannot be written; EnvironmentFault where the disk is full.
    """
    try:
        _check_target(out, force)
        target = out.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and renamed: what is there stays whole until the new one is.
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            partial.chmod(0o755)  # mkdtemp keeps others out
            yield partial
            _check_target(out, force)  # another may have written there meanwhile
            if target.exists():
                shutil.rmtree(target)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise not_written(error, out) from None


def _check_target(out: Path, force: bool) -> None:
    """Raise InputError unless `out` is new, empty, or a skeleton that may be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MARKER).is_file():
        raise InputError("is there already and is no skeleton", where=str(out), hint="choose another folder")
    if not force:
        raise InputError(
            "holds a skeleton already", where=str(out), hint="choose another folder, or --force to replace"
        )


def write_json(path: Path, value: Any) -> None:
    # As configs are written by Python: an unlimited value is Infinity, which strict JSON would turn into null.
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), "utf-8")
