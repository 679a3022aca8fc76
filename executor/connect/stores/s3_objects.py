"""A bucket of an S3-compatible store, or its objects with a prefix, as a store of files."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from millstream.errors import MillstreamError

from .file_store import FileStore, StoredFile, StoreSettings
from .lake_errors import explained
from .local_files import LocalFiles
from .s3_clients import S3_CLIENTS


def opened_store(location: str, settings: StoreSettings) -> FileStore:
    """The store at a location. In: `location`: an absolute path, or s3://bucket/prefix."""
    if not location.startswith("s3://"):
        return LocalFiles(location)
    return S3Objects(location.removeprefix("s3://").rstrip("/"), settings)


class S3Objects:
    """The objects below a prefix. In: `place`: bucket/prefix."""

    def __init__(self, place: str, settings: StoreSettings) -> None:
        self._place = place
        with _explained():
            self._client = S3_CLIENTS.client(settings)

    def files(self, folder: str = "") -> list[StoredFile]:
        base = f"{self._place}/{folder}" if folder else self._place
        with self._request() as files:
            infos = files.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        return sorted(
            StoredFile(info.path.removeprefix(f"{self._place}/"), info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in infos
            if info.type == fs.FileType.File
        )

    def read(self, path: str) -> bytes | None:
        opened = self.opened(path)
        if opened is None:
            return None
        with self._request(), opened:
            return opened.readall()

    def opened(self, path: str) -> Any:
        with contextlib.suppress(FileNotFoundError), self._request() as files:
            return files.open_input_file(f"{self._place}/{path}")
        return None

    def version(self, opened: Any) -> str:
        with self._request():
            known = {name.lower(): value for name, value in (opened.metadata() or {}).items()}
        return bytes(known[b"etag"]).decode() if b"etag" in known else str(opened.size())

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._request() as files, files.open_output_stream(f"{self._place}/{path}", compression=None) as stream:
            stream.write(data)

    def create(self, path: str, data: bytes) -> bool:
        if self._there(path):
            return False
        self.write(path, data)
        return True

    def move(self, before: str, after: str) -> None:
        if self._there(before):
            with self._request() as files:
                files.copy_file(f"{self._place}/{before}", f"{self._place}/{after}")
                files.delete_file(f"{self._place}/{before}")
        elif not self._there(after):
            raise FileNotFoundError(f"{before} is gone")

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._request() as files:
            files.delete_file(f"{self._place}/{path}")

    def _there(self, path: str) -> bool:
        with self._request() as files:
            return files.get_file_info(f"{self._place}/{path}").type == fs.FileType.File

    @contextlib.contextmanager
    def _request(self) -> Generator[fs.S3FileSystem]:
        with _explained(), self._client.request() as files:
            yield files


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """Converts errors of the AWS library to ours."""
    try:
        yield
    except (MillstreamError, FileNotFoundError):
        raise
    except Exception as error:
        raise explained(error, "the object store", passes=_passes, final=lambda _: None) from None


def _passes(error: Exception) -> str | None:
    return "the store does not answer" if isinstance(error, OSError) else None
