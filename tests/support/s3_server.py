"""An S3 server for tests, or another service of AWS: moto's, in this process. Skipped, with the reason, where there is
none."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
from pyarrow import fs

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
    with aws_server("s3") as port:
        made = urllib.request.Request(f"http://127.0.0.1:{port}/lake", method="PUT")
        urllib.request.urlopen(made, timeout=30).close()
        yield S3Server(port)


@contextlib.contextmanager
def aws_server(service: str) -> Generator[int]:
    """One of AWS's services at a port of this machine.

    moto's own server looks up in a folder, for each request, which of 200 services it is for, makes a thread and a
    connection for it, and writes a line about it."""
    moto = pytest.importorskip("moto.moto_server.werkzeug_app", reason="moto[s3] and flask-cors are not installed")
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open
        disable_nagle_algorithm = True

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = make_server("127.0.0.1", 0, moto.create_backend_app(service), threaded=True, request_handler=Quiet)
    with _serving(server):
        yield server.server_port


@contextlib.contextmanager
def _serving(server: Any) -> Generator[None]:
    thread = threading.Thread(target=server.serve_forever, name="s3-server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
