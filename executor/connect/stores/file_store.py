"""A place with files: a folder of this machine, or a bucket of an S3-compatible store with a prefix.

A file appears whole or not at all. Paths are relative to the place, with slashes.
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
    """How the store is reached. Without keys, the AWS library looks for them: environment, profile, role."""

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
    """`changed_ms`: since 1970."""

    path: str
    size: int
    changed_ms: int


class FileStore(Protocol):
    """Raises, from any method: `ConnectorFailed`, `SystemUnavailable`, `SystemFault`."""

    def files(self, folder: str = "") -> list[StoredFile]:
        """At any depth below it, by their paths; none where the folder is not there."""
        ...

    def read(self, path: str) -> bytes | None: ...

    def opened(self, path: str) -> Any:
        """A file of Arrow that can be read at any place; None where it is gone."""
        ...

    def version(self, opened: Any) -> str:
        """Of what an opened file has: another one where it was written again."""
        ...

    def write(self, path: str, data: bytes | pa.Buffer) -> None: ...

    def create(self, path: str, data: bytes) -> bool:
        """False where the file is there. A folder lets only one writer through. A bucket is asked first, so two writers
        at the same instant both get through, and the later one's data stay."""
        ...

    def move(self, before: str, after: str) -> None:
        """A file that is there is replaced; one that was moved already is fine."""
        ...

    def delete(self, path: str) -> None:
        """One that is gone is fine."""
        ...


def checked_location(location: str, name: str) -> None:
    """In: `name`: of the setting. Raises `InvalidConnector`."""
    bucket = location.removeprefix("s3://")
    if location.startswith("s3://") and bucket.split("/")[0]:
        return
    if location.startswith("/"):
        return
    raise InvalidConnector(f"{name} must be an absolute path or s3://bucket/prefix", setting=name)


def is_of_the_store(error: OSError) -> bool:
    """Whether disk, network or store failed. What Arrow finds wrong in the data that it was given is an OSError too."""
    return error.errno is not None or "AWS Error" in str(error)
