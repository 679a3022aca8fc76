"""A client of Kafka Connect's REST API: what `ksql.connect.url` names.

A request goes to the worker that answered the last one, and to the others if that one cannot be reached. A request that
a worker may have carried out is not repeated, unless it is idempotent. While the workers rebalance (409) or start
(503), the client waits and tries again.
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from millstream.errors import InvalidProperty, ServerError, StatementError

from ...executor.connect.connector_errors import InvalidConnector, one_line
from ...executor.connect.http_connections import checked_address, opened_connection
from ...sql.settings.property_table import (
    CONNECT_CREDENTIALS_FILE,
    CONNECT_CREDENTIALS_SOURCE,
    CONNECT_TIMEOUT_MS,
    CONNECT_URL,
)

_REBALANCE_S: Final = 30.0
_PAUSE_S, _PAUSE_S_MAX = 0.1, 2.0
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_MESSAGE_MAX: Final = 2000
_REPEATABLE: Final = frozenset({"GET", "PUT", "PATCH"})
_FILE_BYTES_MAX: Final = 64 * 1024


class ConnectUnavailable(ServerError):
    """No worker answers, or what answers is not Kafka Connect."""

    code = "CONNECT_UNAVAILABLE"


class ConnectRefused(StatementError):
    """Kafka Connect refuses the request. `status`: the HTTP status."""

    code = "CONNECT_REFUSED"

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class ConnectClusterSettings:
    """`urls`: the workers' URLs, without a trailing slash. `credentials_file`: None: requests have no user."""

    urls: tuple[str, ...]
    timeout_s: float
    credentials_file: Path | None

    @staticmethod
    def of(properties: Mapping[str, str]) -> ConnectClusterSettings | None:
        """None if connectors run in this server. Raises `InvalidProperty`, whose message contains no address, because
        that may contain a password."""
        urls = tuple(url.strip().rstrip("/") for url in CONNECT_URL.of(properties).split(",") if url.strip())
        if not urls:
            return None
        for url in urls:
            _check(url)
        source = CONNECT_CREDENTIALS_SOURCE.of(properties).upper()
        if source not in (CONNECT_CREDENTIALS_SOURCE.default, "FILE"):
            raise InvalidProperty(f"{CONNECT_CREDENTIALS_SOURCE} must be FILE or NONE")
        file = CONNECT_CREDENTIALS_FILE.of(properties)
        if source == "FILE" and not file:
            raise InvalidProperty(f"{CONNECT_CREDENTIALS_SOURCE} is FILE, but {CONNECT_CREDENTIALS_FILE} is not set")
        return ConnectClusterSettings(
            urls, CONNECT_TIMEOUT_MS.of(properties) / 1000, Path(file) if source == "FILE" else None
        )


class ConnectClient:
    """Any thread may call any method. State: the worker that answered last.

    Every method raises `ConnectRefused` and `ConnectUnavailable`.
    """

    def __init__(self, settings: ConnectClusterSettings) -> None:
        self._settings = settings
        self._first = 0

    def get(self, *path: str, query: str = "") -> Any:
        """In: `path`: its parts, unquoted; `query`: with its question mark."""
        return self._request("GET", path, query)

    def send(self, method: str, *path: str, body: object = None, query: str = "") -> Any:
        """The worker's answer; None if it is empty."""
        return self._request(method, path, query, body)

    def _request(self, method: str, path: tuple[str, ...], query: str, body: object = None) -> Any:
        target = "/" + "/".join(quote(part, safe="") for part in path) + query
        deadline, pause_s = time.monotonic() + _REBALANCE_S, _PAUSE_S
        while True:
            status, content = self._answered(method, target, body)
            if not _waits(status, content) or time.monotonic() + pause_s > deadline:
                return self._read(status, content)
            threading.Event().wait(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _answered(self, method: str, target: str, body: object) -> tuple[int, bytes]:
        """Status and content from the first worker that answers."""
        headers = {"Accept": "application/json", "Connection": "close", **self._authorization()}
        sent = None if body is None else orjson.dumps(body)
        if sent is not None:
            headers["Content-Type"] = "application/json"
        failures: list[str] = []
        urls = self._settings.urls
        for number in [*range(self._first, len(urls)), *range(self._first)]:
            call = _Call(urls[number], method, target, headers, sent, self._settings.timeout_s)
            try:
                found = call.answer()
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{urls[number]}: {one_line(error) or type(error).__name__}")
                if call.sent and method not in _REPEATABLE:
                    raise ConnectUnavailable(
                        f"Kafka Connect got the request and did not answer ({failures[-1]})",
                        hint="It may have done what was asked. SHOW CONNECTORS says so.",
                    ) from None
                continue
            self._first = number
            return found
        raise ConnectUnavailable(
            f"Kafka Connect cannot be reached at {'; '.join(failures)}",
            hint=f"{CONNECT_URL} has the addresses of its workers.",
        )

    def _read(self, status: int, content: bytes) -> Any:
        if 200 <= status < 300:
            if not content.strip():
                return None
            try:
                return orjson.loads(content)
            except orjson.JSONDecodeError:
                raise ConnectUnavailable(
                    f"{self._settings.urls[self._first]} does not answer as Kafka Connect does: no JSON",
                    hint=f"{CONNECT_URL} must have the addresses of its workers.",
                ) from None
        hint = None
        if status in (401, 403):
            hint = f"{CONNECT_CREDENTIALS_FILE} has the user and the password."
        raise ConnectRefused(status, _message(status, content), hint=hint)

    def _authorization(self) -> dict[str, str]:
        file = self._settings.credentials_file
        if file is None:
            return {}
        user, password = _credentials(file)
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class _Call:
    """One request to one worker. State: whether the worker may have received it."""

    def __init__(
        self, url: str, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> None:
        self._parts = checked_address(url, str(CONNECT_URL))
        self._method, self._target, self._headers, self._body = method, target, headers, body
        self._timeout_s = timeout_s
        self.sent = False

    def answer(self) -> tuple[int, bytes]:
        """Status and content. Raises OSError, HTTPException."""
        deadline = time.monotonic() + self._timeout_s
        connection = opened_connection(self._parts, self._timeout_s, str(CONNECT_URL), link_local=True)
        try:
            self.sent = True
            connection.request(self._method, self._parts.path + self._target, self._body, dict(self._headers))
            response = connection.getresponse()
            pieces: list[bytes] = []
            size = 0
            while piece := response.read1(65536):
                pieces.append(piece)
                size += len(piece)
                if size > _ANSWER_BYTES_MAX:
                    raise OSError(f"the answer has more than {_ANSWER_BYTES_MAX >> 20} MiB")
                if time.monotonic() > deadline:
                    raise TimeoutError("timed out")
            return response.status, b"".join(pieces)
        finally:
            connection.close()


def _check(url: str) -> None:
    try:
        parts = checked_address(url, str(CONNECT_URL))
    except InvalidConnector as error:
        raise InvalidProperty(error.message) from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidProperty(
            f"{CONNECT_URL} must have addresses only",
            hint=f"{CONNECT_CREDENTIALS_FILE} names the file with user and password.",
        )


def _waits(status: int, content: bytes) -> bool:
    """Whether the same request may succeed later. 409 has two meanings; the other one is that the connector exists."""
    return status == 503 or (status == 409 and b"already exists" not in content)


def _message(status: int, content: bytes) -> str:
    """The worker's message about a refusal."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("message") if isinstance(body, dict) else None
    if not isinstance(said, str) or not said.strip():
        return f"Kafka Connect answers with the status {status}"
    return said.strip()[:_MESSAGE_MAX]


def _credentials(file: Path) -> tuple[str, str]:
    """Raises `ConnectUnavailable`."""
    try:
        with file.open(encoding="utf-8") as opened:
            lines = opened.read(_FILE_BYTES_MAX).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConnectUnavailable(f"{CONNECT_CREDENTIALS_FILE}: {file} cannot be read: {reason}") from None
    found: dict[str, str] = {}
    for line in lines:
        place = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=-1)
        if place >= 0 and not line.lstrip().startswith(("#", "!")):
            found[line[:place].strip()] = line[place + 1 :].strip()
    if "username" not in found or "password" not in found:
        raise ConnectUnavailable(f"{CONNECT_CREDENTIALS_FILE}: {file} needs the lines username=… and password=…")
    return found["username"], found["password"]
