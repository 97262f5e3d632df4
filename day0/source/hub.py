"""Models on a Hugging Face hub: small files through its cache, tensor headers by ranged reads, weights when asked.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` mean what `huggingface_hub` makes of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from huggingface_hub import (
    HfApi,
    ModelInfo,
    constants,
    get_session,
    hf_hub_download,
    hf_hub_url,
    snapshot_download,
)
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
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from day0.errors import Day0Error, EnvironmentFault, Finding, InputError
from day0.source.checksums import CheckedFile, Listed, check_files, stored_names
from day0.source.folder import CONFIG_NAME, EXTRA_NAMES, join_files, list_names, no_config, read_small_files
from day0.source.header_store import HeaderStore
from day0.source.json_text import refuse_lfs_pointer
from day0.source.model_files import ModelFiles
from day0.source.patience import wait_asked
from day0.source.safetensors_header import PREFIX_BYTES, ShardHeader, header_length, parse_header, read_header
from day0.source.shards import INDEX_NAME, SUFFIX, Checkpoint, read_checkpoint

_READERS = 16
"""A header takes two requests, its length and then just itself: many at a time hide their latency."""

_TIMEOUT_SECONDS = 20.0
_LONGEST_WAIT_SECONDS = 60.0
_POINTER_BYTES = 1024
_RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_FETCHED = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")
"""What config, tokenizer and chat template are made of; never code."""

_CODE = "*.py"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Hub:
    """Where to read and how patiently; None leaves it to the environment and the hub library.

    A request that a busy hub refuses, and a ranged read that fails on the way, is made again `retries` times: first
    after `retry_seconds`, then after twice as long each time, or when the hub asks for it. `keep_headers` stores what
    ranged reads bring, for later reads and for those without network.
    """

    endpoint: str | None = None
    cache_dir: Path | None = None
    token: str | None = None
    retries: int = 3
    retry_seconds: float = 1.0
    keep_headers: bool = False

    @property
    def address(self) -> str:
        return self.endpoint or constants.ENDPOINT

    def read(self, repo_id: str, revision: str | None = None) -> ModelFiles:
        """Configuration and tensor headers of a repository, pinned to the commit that `revision` means now."""
        with _faults(repo_id, revision, self.address):
            if constants.HF_HUB_OFFLINE:
                return self._read_cached(repo_id, revision)
            return self._read_online(repo_id, revision)

    def fetch_weights(self, files: ModelFiles, *, code: bool = False) -> Path:
        """Download shards, config and tokenizer files of a model that `read` found; the folder they lie in.

        With `code`, which the user must have allowed, its Python files too.

        What is new in the cache is checked against the hub's digests; what lay there already is not read again.
        """
        assert files.folder is not None
        with _faults(files.id, files.revision, self.address):
            before = stored_names(files.folder)
            folder = self._fetch(files, code=code)
            if new := stored_names(folder) - before:
                self._check(files, folder, new)
        return folder

    def pull(self, files: ModelFiles, *, weights: bool) -> tuple[Path, tuple[CheckedFile, ...]]:
        """Check the snapshot of a model that `read` found: its small files, and with `weights` all else, downloaded."""
        assert files.folder is not None
        if constants.HF_HUB_OFFLINE:
            hint = "unset HF_HUB_OFFLINE"
            raise EnvironmentFault("HF_HUB_OFFLINE forbids to ask the hub for digests", where=files.id, hint=hint)
        with _faults(files.id, files.revision, self.address):
            folder = self._fetch(files) if weights else files.folder
            names = [name for name in stored_names(folder) if weights or not name.endswith(SUFFIX)]
            return folder, self._check(files, folder, names)

    def header_store(self, repo_id: str, commit: str) -> HeaderStore:
        """Where headers of a commit are kept: beside the cache, in the hub library's place for such things."""
        assets = self.cache_dir.parent / "assets" if self.cache_dir else Path(constants.HF_ASSETS_CACHE)
        return HeaderStore(assets / "day0" / repo_id.replace("/", "--") / commit)

    def _fetch(self, files: ModelFiles, *, code: bool = False) -> Path:
        """Files that are whole in the cache stay; a cut transfer goes on where it was cut."""
        assert files.source == "hub"
        shards = files.shards or (f"*{SUFFIX}",)
        fetch = partial(
            snapshot_download,
            files.id,
            revision=files.revision,
            cache_dir=self.cache_dir,
            endpoint=self.endpoint,
            token=self.token,
            allow_patterns=[*_FETCHED, *shards, *((_CODE,) if code else ())],
        )
        try:
            folder = Path(self._patiently(fetch))
        except RuntimeError as error:  # what the library's native downloader raises for a broken transfer
            raise EnvironmentFault(f"download failed: {error}", where=files.id, hint="run again to resume") from error
        if missing := [
            shard for shard in files.shards if not (folder / shard).is_file()
        ]:  # offline: it gives what it has
            message = f"{len(missing)} of {len(files.shards)} shards are not in the hub cache: {missing[0]}"
            raise EnvironmentFault(message, where=files.id, hint=f"day0 pull {files.id}@{files.revision} --weights")
        return folder

    def _check(self, files: ModelFiles, folder: Path, names: Iterable[str]) -> tuple[CheckedFile, ...]:
        api = HfApi(endpoint=self.endpoint, token=self.token)
        tree = self._patiently(lambda: list(api.list_repo_tree(files.id, recursive=True, revision=files.revision)))
        listed = {
            file.path: Listed(file.path, file.size, file.blob_id, file.lfs.sha256 if file.lfs else None)
            for file in tree
            if isinstance(file, RepoFile)
        }
        return check_files(folder, names, listed, where=f"{files.id}@{(files.revision or '')[:12]}")

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
        if self.keep_headers and checkpoint.tensors is not None:
            self.header_store(repo_id, commit).seal()
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
        store = self.header_store(repo_id, folder.name)
        shards = store.shards() or (
            small.index.shards if small.index else tuple(name for name in names if name.endswith(SUFFIX))
        )
        if shards and all((folder / shard).is_file() or store.holds(shard) for shard in shards):
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
            ask = partial(api.model_info, repo_id, revision=revision, timeout=_TIMEOUT_SECONDS)
            return self._patiently(ask, when_asked=True)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, (HFValidationError, HfHubHTTPError)):
                raise
            raise _not_a_hub(self.address) from error  # an answer, but not the hub's JSON

    def _download(self, repo_id: str, revision: str | None, name: str) -> Path:
        download = partial(
            hf_hub_download,
            repo_id,
            name,
            revision=revision,
            cache_dir=self.cache_dir,
            endpoint=self.endpoint,
            token=self.token,
        )
        return Path(self._patiently(download, when_asked=True))

    def _read_headers(
        self, repo_id: str, commit: str, folder: Path, shards: Sequence[str]
    ) -> Iterator[tuple[str, ShardHeader]]:
        with ThreadPoolExecutor(_READERS) as pool:
            headers = pool.map(partial(self._read_header, repo_id, commit, folder), shards)
            yield from zip(shards, headers, strict=True)

    def _read_header(self, repo_id: str, commit: str, folder: Path, shard: str) -> ShardHeader:
        if (folder / shard).is_file():
            return read_header(folder / shard, shard=shard)
        store = self.header_store(repo_id, commit)
        if store.holds(shard):
            return store.read(shard)
        url = hf_hub_url(repo_id, shard, revision=commit, endpoint=self.endpoint)
        where = f"{repo_id}@{commit[:12]}/{shard}"
        data, size = self._read_range(url, 0, PREFIX_BYTES)
        if data[:7] == b"version":
            refuse_lfs_pointer(data + self._read_range(url, len(data), _POINTER_BYTES)[0], where)
        wanted = PREFIX_BYTES + header_length(data, size, where)
        if wanted > len(data):
            data += self._read_range(url, len(data), wanted)[0]
        if wanted > len(data):
            raise EnvironmentFault(f"the hub sent {len(data):,} of {wanted:,} bytes", where=where)
        header = parse_header(data, size, shard=shard, where=where)
        if self.keep_headers:
            store.keep(shard, data, size)
        return header

    def _read_range(self, url: str, begin: int, end: int) -> tuple[bytes, int]:
        """Bytes `begin .. end` of a file (fewer where it ends before) and the size of the whole file."""
        return self._patiently(partial(self._request_range, url, begin, end))

    def _patiently(self, request: Callable[[], _T], *, when_asked: bool = False) -> _T:
        """What `request` returns, made again after a failure that may pass: any, or `when_asked` that of a busy hub."""
        delay = self.retry_seconds
        for _ in range(self.retries):
            try:
                return request()
            except (HTTPError, LocalEntryNotFoundError) as error:
                wait = _worth_waiting(error, delay, when_asked)
                if wait is None:
                    raise
            time.sleep(wait)
            delay *= 2
        return request()

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
                if len(body) > skip + end - begin:  # one that sends no more is read to its end, and used again
                    break
            return bytes(body[skip : skip + end - begin]), _file_size(response.headers, url)


def _file_size(headers: Mapping[str, str], url: str) -> int:
    total = headers.get("Content-Range", "").rpartition("/")[2]
    size = total if total.isdigit() else headers.get("Content-Length", "")
    if not size.isdigit():
        raise EnvironmentFault("the hub does not say how large the file is", where=url)
    return int(size)


def _worth_waiting(error: Exception, delay: float, when_asked: bool) -> float | None:
    """Seconds after which the request may succeed; None where it will not, or not soon."""
    cause = _cause(error)
    if not isinstance(cause, HfHubHTTPError):
        return delay if isinstance(cause, HTTPError) and not when_asked else None
    status, asked = cause.response.status_code, wait_asked(cause.response.headers)
    if status not in _RETRY_STATUS or (when_asked and status != 429 and asked is None):
        return None
    wait = max(delay, asked or 0.0)
    return wait if wait <= _LONGEST_WAIT_SECONDS else None


def _cause(error: Exception) -> Exception:
    """The failed request behind "not in the cache, and the hub did not give it"."""
    cause = error.__cause__
    return cause if isinstance(error, LocalEntryNotFoundError) and isinstance(cause, (HTTPError, OSError)) else error


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
    error = _cause(error)
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
    what = "cannot store the download" if isinstance(error, OSError) and error.errno else "download failed"
    return EnvironmentFault(f"{what}: {error}", where=where)


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
    if status == 429:
        asked = wait_asked(error.response.headers)
        when = f"in {asked:.0f} s" if asked else "later"
        hint = f"try again {when}; with HF_TOKEN set the hub may allow more"
        return EnvironmentFault(f"{address} answered HTTP 429: too many requests", where=where, hint=hint)
    return EnvironmentFault(f"{address} answered HTTP {status}", where=where, hint="try again later")


def _not_a_hub(address: str) -> EnvironmentFault:
    return EnvironmentFault("does not answer like a hub", where=address, hint="check HF_ENDPOINT and the proxy")
