"""Models on a Hugging Face hub: small files through its cache, tensor headers by ranged reads, weights when asked.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` mean what `huggingface_hub` makes of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import HfApi, ModelInfo, constants, get_session, hf_hub_download, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # of httpx or httpx2, whichever this version of the library is built on
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from day0.errors import Day0Error, EnvironmentFault, Finding, InputError
from day0.source.folder import CONFIG_NAME, EXTRA_NAMES, join_files, list_names, no_config, read_small_files
from day0.source.json_text import refuse_lfs_pointer
from day0.source.model_files import ModelFiles
from day0.source.safetensors_header import PREFIX_BYTES, ShardHeader, header_length, parse_header, read_header
from day0.source.shards import INDEX_NAME, SUFFIX, Checkpoint, read_checkpoint

FIRST_READ_BYTES = 1 << 20
"""Holds most headers whole: those of the largest models take some 800 kB a shard."""

_READERS = 8
_TIMEOUT_SECONDS = 20.0
_RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_FETCHED = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")
"""What config, tokenizer and chat template are made of; never code."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Where to read and how patiently; None leaves it to the environment and the hub library.

    `retries`, the first after `retry_seconds` and each next after twice as long, are those of ranged reads.
    """

    endpoint: str | None = None
    cache_dir: Path | None = None
    token: str | None = None
    retries: int = 3
    retry_seconds: float = 1.0

    @property
    def address(self) -> str:
        return self.endpoint or constants.ENDPOINT

    def read(self, repo_id: str, revision: str | None = None) -> ModelFiles:
        """Configuration and tensor headers of a repository, pinned to the commit that `revision` means now."""
        with _faults(repo_id, revision, self.address):
            if constants.HF_HUB_OFFLINE:
                return self._read_cached(repo_id, revision)
            return self._read_online(repo_id, revision)

    def fetch_weights(self, files: ModelFiles) -> Path:
        """Download shards, config and tokenizer files of a model that `read` found; the folder they lie in."""
        assert files.source == "hub"
        shards = files.shards or (f"*{SUFFIX}",)
        with _faults(files.id, files.revision, self.address):
            try:
                folder = snapshot_download(
                    files.id,
                    revision=files.revision,
                    cache_dir=self.cache_dir,
                    endpoint=self.endpoint,
                    token=self.token,
                    allow_patterns=[*_FETCHED, *shards],
                )
            except RuntimeError as error:  # what the library's native downloader raises for a broken transfer
                raise EnvironmentFault(
                    f"download failed: {error}", where=files.id, hint="run again to resume"
                ) from error
        return Path(folder)

    def _read_online(self, repo_id: str, revision: str | None) -> ModelFiles:
        info = self._model_info(repo_id, revision)
        commit = info.sha or ""
        names = tuple(sorted(sibling.rfilename for sibling in info.siblings or ()))
        where = f"{repo_id}@{commit[:12]}"
        if CONFIG_NAME not in names:
            raise no_config(where, names)
        # By its branch or tag, so that the cache knows offline what that name meant; the rest goes by the commit.
        folder = self._download(repo_id, revision, CONFIG_NAME).parent
        if folder.name != commit:
            raise EnvironmentFault("changed on the hub while it was read", where=where, hint="run the command again")
        with ThreadPoolExecutor(_READERS) as pool:
            wanted = [name for name in (INDEX_NAME, *EXTRA_NAMES) if name in names]
            list(pool.map(partial(self._download, repo_id, commit), wanted))
        small = read_small_files(folder, names)
        read_headers = partial(self._read_headers, repo_id, commit, folder)
        checkpoint = read_checkpoint(small.index, names, read_headers, where=where)
        return join_files(
            small, checkpoint, model_id=repo_id, revision=commit, source="hub", folder=folder, names=names
        )

    def _read_cached(self, repo_id: str, revision: str | None) -> ModelFiles:
        """The snapshot in the cache; without its weights where it has none or not all of them."""
        folder = Path(
            snapshot_download(
                repo_id,
                revision=revision,
                cache_dir=self.cache_dir,
                allow_patterns=[CONFIG_NAME],
                local_files_only=True,
            )
        )
        names = list_names(folder)
        small = read_small_files(folder, names)
        shards = small.index.shards if small.index else [name for name in names if name.endswith(SUFFIX)]
        if shards and all((folder / shard).is_file() for shard in shards):
            read_headers = partial(self._read_headers, repo_id, folder.name, folder)
            checkpoint = read_checkpoint(small.index, {*names, *shards}, read_headers, where=str(folder))
        else:
            message = "offline, and the hub cache does not hold the weights: tensors were not compared"
            checkpoint = Checkpoint(None, findings=(Finding("weights-not-cached", "warning", repo_id, message),))
        return join_files(
            small, checkpoint, model_id=repo_id, revision=folder.name, source="hub", folder=folder, names=names
        )

    def _model_info(self, repo_id: str, revision: str | None) -> ModelInfo:
        api = HfApi(endpoint=self.endpoint, token=self.token)
        try:
            return api.model_info(repo_id, revision=revision, timeout=_TIMEOUT_SECONDS)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, (HFValidationError, HfHubHTTPError)):
                raise
            raise _not_a_hub(self.address) from error  # an answer, but not the hub's JSON

    def _download(self, repo_id: str, revision: str | None, name: str) -> Path:
        path = hf_hub_download(
            repo_id, name, revision=revision, cache_dir=self.cache_dir, endpoint=self.endpoint, token=self.token
        )
        return Path(path)

    def _read_headers(
        self, repo_id: str, commit: str, folder: Path, shards: Sequence[str]
    ) -> Iterator[tuple[str, ShardHeader]]:
        with ThreadPoolExecutor(_READERS) as pool:
            headers = pool.map(partial(self._read_header, repo_id, commit, folder), shards)
            yield from zip(shards, headers, strict=True)

    def _read_header(self, repo_id: str, commit: str, folder: Path, shard: str) -> ShardHeader:
        if (folder / shard).is_file():
            return read_header(folder / shard, shard=shard)
        url = hf_hub_url(repo_id, shard, revision=commit, endpoint=self.endpoint)
        where = f"{repo_id}@{commit[:12]}/{shard}"
        data, size = self._read_range(url, 0, FIRST_READ_BYTES)
        refuse_lfs_pointer(data, where)
        wanted = PREFIX_BYTES + header_length(data, size, where)
        if wanted > len(data):
            data += self._read_range(url, len(data), wanted)[0]
        if wanted > len(data):
            raise EnvironmentFault(f"the hub sent {len(data):,} of {wanted:,} bytes", where=where)
        return parse_header(data, size, shard=shard, where=where)

    def _read_range(self, url: str, begin: int, end: int) -> tuple[bytes, int]:
        """Bytes `begin .. end` of a file (fewer where it ends before) and the size of the whole file."""
        delay = self.retry_seconds
        for _ in range(self.retries):
            try:
                return self._request_range(url, begin, end)
            except HTTPError as error:
                if isinstance(error, HfHubHTTPError) and error.response.status_code not in _RETRY_STATUS:
                    raise
            time.sleep(delay)
            delay *= 2
        return self._request_range(url, begin, end)

    def _request_range(self, url: str, begin: int, end: int) -> tuple[bytes, int]:
        headers = {
            **build_hf_headers(token=self.token),
            "Range": f"bytes={begin}-{end - 1}",
            "Accept-Encoding": "identity",
        }
        session = get_session()
        with session.stream("GET", url, headers=headers, timeout=_TIMEOUT_SECONDS) as response:
            if response.status_code == 416:  # nothing there: the file ends at or before `begin`
                return b"", _file_size(response.headers, url)
            hf_raise_for_status(response)
            skip = begin if response.status_code == 200 else 0  # a server that knows no ranges sends it all
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) >= skip + end - begin:
                    break
            return bytes(body[skip : skip + end - begin]), _file_size(response.headers, url)


def _file_size(headers: Mapping[str, str], url: str) -> int:
    total = headers.get("Content-Range", "").rpartition("/")[2]
    size = total if total.isdigit() else headers.get("Content-Length", "")
    if not size.isdigit():
        raise EnvironmentFault("the hub does not say how large the file is", where=url)
    return int(size)


@contextmanager
def _faults(repo_id: str, revision: str | None, address: str) -> Iterator[None]:
    """Say what an error of the hub library means for the user."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise EnvironmentFault("is not the address of a hub", where=f"HF_ENDPOINT={address}")
    try:
        yield
    except (HTTPError, OSError, EntryNotFoundError, HFValidationError) as error:
        raise _explain(error, repo_id, revision, address) from error


def _explain(error: Exception, repo_id: str, revision: str | None, address: str) -> Day0Error:
    where = f"{repo_id}@{revision}" if revision else repo_id
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, (HTTPError, OSError)):
        error = error.__cause__
    if isinstance(error, HfHubHTTPError):
        return _explain_status(error, where, revision, address)
    if isinstance(error, HFValidationError):
        return InputError(f"is not a hub id: {error}", where=where)
    if constants.HF_HUB_OFFLINE and isinstance(error, (OfflineModeIsEnabled, LocalEntryNotFoundError)):
        return EnvironmentFault(
            "is not in the hub cache, and HF_HUB_OFFLINE forbids the network",
            where=where,
            hint="unset HF_HUB_OFFLINE, or fill the cache first",
        )
    if isinstance(error, FileMetadataError):
        return _not_a_hub(address)
    if isinstance(error, (HTTPError, EntryNotFoundError, ConnectionError)):
        return EnvironmentFault(
            f"cannot reach {address}: {error or type(error).__name__}",
            where=where,
            hint="check network, proxy and HF_ENDPOINT; HF_HUB_OFFLINE=1 reads the copy in the cache, if there is one",
        )
    return EnvironmentFault(f"cannot store the download: {error}", where=where)


def _explain_status(error: HfHubHTTPError, where: str, revision: str | None, address: str) -> Day0Error:
    status = error.response.status_code
    if isinstance(error, GatedRepoError) or (status == 403 and not isinstance(error, RepositoryNotFoundError)):
        return InputError(
            f"{address} refuses access (HTTP {status}): the model is gated or private",
            where=where,
            hint="accept its licence on the model page, and set HF_TOKEN to a token of that account",
        )
    if isinstance(error, RevisionNotFoundError):
        hint = "give a branch, a tag or a commit hash"
        return InputError(f"has no revision {revision or 'main'!r}", where=where, hint=hint)
    if isinstance(error, RepositoryNotFoundError) or status == 401:
        return InputError(
            f"no such model at {address}, or none that this token may see (HTTP {status})",
            where=where,
            hint="check the spelling; for a private or gated model set HF_TOKEN and accept its licence",
        )
    if status == 404:
        return InputError(f"not found: {error.response.url}", where=where)
    return EnvironmentFault(f"{address} answered HTTP {status}", where=where, hint="try again later")


def _not_a_hub(address: str) -> EnvironmentFault:
    return EnvironmentFault("does not answer like a hub", where=address, hint="check HF_ENDPOINT and the proxy")
