"""An ASGI application asked in this process, one request at a time, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode


@dataclass(frozen=True, slots=True)
class Answer:
    status_code: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class AsgiClient:
    def __init__(self, app: Any) -> None:
        self._app = app

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        return self._ask("GET", path, None, params)

    def delete(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        return self._ask("DELETE", path, None, params)

    def post(self, path: str, json: Any, params: Mapping[str, str] | None = None) -> Answer:
        return self._ask("POST", path, json, params)

    def put(self, path: str, json: Any, params: Mapping[str, str] | None = None) -> Answer:
        return self._ask("PUT", path, json, params)

    def _ask(self, method: str, path: str, body: Any, params: Mapping[str, str] | None) -> Answer:
        return asyncio.run(self._run(method, path, b"" if body is None else json.dumps(body).encode(), params or {}))

    async def _run(self, method: str, path: str, body: bytes, params: Mapping[str, str]) -> Answer:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": quote(path, safe="/%:").encode(), "root_path": "",
            "query_string": urlencode(params).encode(),
            "headers": [(b"host", b"test"), (b"content-type", b"application/json")], "server": ("test", 80),
            "client": ("test", 1),
        }  # fmt: skip
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        status = next(message["status"] for message in sent if message["type"] == "http.response.start")
        return Answer(status, b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body"))
