"""A real ClickHouse: the library chdb (Apache-2.0, `pip install chdb-core`, 180 MB), in a process of its own behind the
part of ClickHouse's HTTP interface that the connector uses. Skipped, with the reason, where it is not installed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from waiting import eventually

from bench.apache_kafka import free_ports


class ClickHouseServer:
    """State: the process. Its tables are files, so it may be killed."""

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("chdb") is None:
            pytest.skip("ClickHouse: chdb-core is not installed")
        self._folder = folder
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [sys.executable, __file__, str(self._port), str(self._folder)]
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        eventually(self._answers, otherwise="ClickHouse does not answer", pause_s=0.2)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def run(self, query: str) -> None:
        answer = httpx.post(self.url, content=query.encode(), timeout=60)
        assert answer.status_code == 200, answer.text

    def rows(self, query: str) -> list[dict[str, Any]]:
        answer = httpx.post(self.url, content=f"{query} FORMAT JSONEachRow".encode(), timeout=60)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.post(self.url, content=b"SELECT 1", timeout=10).status_code == 200
        return False


@contextlib.contextmanager
def clickhouse_server() -> Generator[ClickHouseServer]:
    with tempfile.TemporaryDirectory(prefix="clickhouse-") as folder:
        server = ClickHouseServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


def serve(port: int, folder: Path) -> None:
    """The process: query and settings come in the address, what is inserted in the body."""
    session = importlib.import_module("chdb.session").Session(str(folder / "data"))
    rows, turn = folder / "rows.arrow", threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            query = parameters.pop("query", None)
            parameters.pop("wait_end_of_query", None)  # of the interface itself: every answer here is whole
            with turn:
                status, content = self._run(query, parameters, body)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _run(self, query: str | None, parameters: dict[str, str], body: bytes) -> tuple[int, bytes]:
            try:
                for name, value in parameters.items():
                    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
                    session.query(f"SET {name} = '{escaped}'")
                if query is None:
                    query = body.decode()
                else:
                    rows.write_bytes(body)
                    query = re.sub(r" FORMAT ArrowStream$", f" FROM INFILE '{rows}' FORMAT ArrowStream", query)
                return 200, session.query(query).bytes()
            except Exception as error:
                return 500, str(error).encode()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
