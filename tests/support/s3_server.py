"""An S3 server for tests: moto's, in this process, with a bucket. Skipped, with the reason, where there is none."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass

import pytest
from pyarrow import fs

from bench.apache_kafka import free_ports

KEYS = ("AKIATESTS", "s3cret-of-the-tests")


@dataclass(frozen=True)
class S3Server:
    """A server with the bucket `lake`."""

    port: int
    keys: tuple[str, str] = KEYS

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def config(self) -> dict[str, str]:
        """Settings of a connector."""
        return {
            "s3.endpoint": f"http://{self.address}", "s3.region": "us-east-1",
            "aws.access.key.id": self.keys[0], "aws.secret.access.key": self.keys[1],
        }  # fmt: skip

    def files(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(
            access_key=self.keys[0], secret_key=self.keys[1], region="us-east-1", scheme="http",
            endpoint_override=self.address,
        )  # fmt: skip

    def put(self, path: str, data: bytes) -> None:
        """In: `path`: bucket/name."""
        with self.files().open_output_stream(path, compression=None) as stream:
            stream.write(data)


@contextlib.contextmanager
def s3_server() -> Generator[S3Server]:
    """Empty, but for the bucket."""
    server = pytest.importorskip("moto.server", reason="moto[s3] and flask-cors are not installed")
    port = free_ports(1)[0]
    running = server.ThreadedMotoServer("127.0.0.1", port, verbose=False)
    running.start()
    try:
        made = urllib.request.Request(f"http://127.0.0.1:{port}/lake", method="PUT")
        urllib.request.urlopen(made, timeout=30).close()
        yield S3Server(port)
    finally:
        running.stop()
