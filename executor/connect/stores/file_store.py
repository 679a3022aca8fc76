"""A store of files: a folder of this machine, or a bucket of an S3-compatible store with a prefix.

A file appears complete or not at all. Paths are relative to the store, with slashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from ..connector_errors import InvalidConnector
from ..connector_settings import setting


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """How to reach the store. Without keys, the AWS library looks for them in the environment, profile and role."""

    s3_region: str | None = setting("Region of the bucket.", default=None)
    s3_endpoint: str | None = setting("Address of a store that is not AWS: https://minio.example:9000.", default=None)
    aws_access_key_id: str | None = setting(
        "Access key; without it those of the environment or of the machine's role are used.", default=None, secret=True
    )
    aws_secret_access_key: str | None = setting("Secret key.", default=None, secret=True)
    aws_session_token: str | None = setting("Token of temporary keys.", default=None, secret=True)

    def __post_init__(self) -> None:
        if (self.aws_access_key_id is None) != (self.aws_secret_access_key is None):
            raise InvalidConnector(
                "aws.access.key.id and aws.secret.access.key belong together", setting="aws.secret.access.key"
            )
        if self.s3_endpoint is not None:
            parts = urlsplit(self.s3_endpoint)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
                raise InvalidConnector("s3.endpoint must be http:// or https:// and a host", setting="s3.endpoint")


class StoredFile(NamedTuple):
    """`changed_ms`: milliseconds since 1970."""

    path: str
    size: int
    changed_ms: int


class FileStore(Protocol):
    """Any method may raise `ConnectorFailed`, `SystemUnavailable`, `SystemFault`."""

    def files(self, folder: str = "") -> list[StoredFile]:
        """The files at any depth below the folder, sorted by path; empty if the folder does not exist."""
        ...

    def read(self, path: str) -> bytes | None: ...

    def opened(self, path: str) -> Any:
        """An Arrow file with random access; None if the file does not exist."""
        ...

    def version(self, opened: Any) -> str:
        """The version of an opened file's content; it changes when the file is written again."""
        ...

    def write(self, path: str, data: bytes | pa.Buffer) -> None: ...

    def create(self, path: str, data: bytes) -> bool:
        """Creates the file; False if it exists. In a folder only one writer succeeds. In a bucket this first checks
        whether the file exists, so two writers at the same instant may both succeed, and the later data remain."""
        ...

    def move(self, before: str, after: str) -> None:
        """Moves a file, and replaces an existing one. Does nothing if it was already moved."""
        ...

    def delete(self, path: str) -> None:
        """Deletes a file. Does nothing if it does not exist."""
        ...


def checked_location(location: str, name: str) -> None:
    """Checks the location. In: `name`: the name of the setting. Raises `InvalidConnector`."""
    bucket = location.removeprefix("s3://")
    if location.startswith("s3://") and bucket.split("/")[0]:
        return
    if location.startswith("/"):
        return
    raise InvalidConnector(f"{name} must be an absolute path or s3://bucket/prefix", setting=name)


def is_of_the_store(error: OSError) -> bool:
    """Whether the disk, the network or the store caused the error. Arrow also raises OSError for invalid data."""
    return error.errno is not None or "AWS Error" in str(error)
