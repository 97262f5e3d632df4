"""Headers of shards that stay on the hub, kept so that a model can be inspected without the network.

A file for each shard: the size of the whole shard (8 bytes, little-endian), then its first bytes as they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from day0.source.safetensors_header import ShardHeader, parse_header

_SIZE_BYTES = 8
_SUFFIX = ".header"
_COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class HeaderStore:
    """The headers of one commit of one repository."""

    folder: Path

    def holds(self, shard: str) -> bool:
        return self._path(shard).is_file()

    def read(self, shard: str) -> ShardHeader:
        """A header that was kept, checked like any other."""
        path = self._path(shard)
        data = path.read_bytes()
        size = int.from_bytes(data[:_SIZE_BYTES], "little")
        return parse_header(data[_SIZE_BYTES:], size, shard=shard, where=str(path))

    def shards(self) -> tuple[str, ...]:
        """The shards of the model, once all their headers are here; else none."""
        if not (self.folder / _COMPLETE).is_file():
            return ()
        paths = self.folder.rglob(f"*{_SUFFIX}")
        return tuple(sorted(path.relative_to(self.folder).as_posix().removesuffix(_SUFFIX) for path in paths))

    def seal(self) -> None:
        """Say that no header is lacking."""
        if self.folder.is_dir():
            (self.folder / _COMPLETE).touch()

    def keep(self, shard: str, data: bytes, file_size: int) -> None:
        """Store prefix and header of a shard of `file_size` bytes: whole or not at all."""
        path = self._path(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            partial.write_bytes(file_size.to_bytes(_SIZE_BYTES, "little") + data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _path(self, shard: str) -> Path:
        return self.folder / f"{shard}{_SUFFIX}"
