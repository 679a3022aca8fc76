"""A server that answers as a test says: for what a worker of Kafka Connect, or another HTTP API, does in bad times."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request: its method, its path with the query, its body, its headers by name in lower case."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


Answer = tuple[int, Any] | None
"""Status, and what becomes the JSON (bytes stay); None: the connection is closed without an answer."""


@dataclass
class ScriptedWorker:
    """State: what it was asked for."""

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def paths(self) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.asked]


@contextlib.contextmanager
def scripted_worker(answer: Callable[[Asked], Answer]) -> Generator[ScriptedWorker]:
    worker = ScriptedWorker(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, body, headers)
            worker.asked.append(asked)
            answered = worker.answer(asked)
            if answered is None:
                self.close_connection = True
                return
            status, content = answered
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(sent)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = _any

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    worker.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
