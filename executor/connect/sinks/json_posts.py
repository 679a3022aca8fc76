"""Requests of a sink to the HTTP API of a database: over one open connection, to the first address that answers."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ..connector_errors import ConnectorFailed, SystemUnavailable, one_line
from ..http_connections import WAIT_AND_TRY_AGAIN, checked_address, opened_connection

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_SAID_MAX: Final = 500


class HttpAnswer(NamedTuple):
    status: int
    content: bytes

    @property
    def said(self) -> str:
        """The answer for an error message."""
        return one_line(self.content[:_SAID_MAX].decode(errors="replace"))


class HttpDatabase:
    """State: the open connection, and which address it is to."""

    def __init__(self, urls: Sequence[str], setting: str, headers: Mapping[str, str], timeout_s: float) -> None:
        """In: `setting`: that has the addresses. Raises `InvalidConnector`."""
        self._addresses = [checked_address(url, setting) for url in urls]
        self._setting = setting
        self._headers = headers
        self._timeout_s = timeout_s
        self._at = 0
        self._connection: http.client.HTTPConnection | None = None

    @property
    def name(self) -> str:
        """Of the server, for messages."""
        return self._addresses[self._at].hostname or ""

    def request(self, method: str, target: str, body: bytes | None = None, content_type: str = "") -> HttpAnswer:
        """Raises `SystemUnavailable` where no answer comes or the server says that a later one may be better, and
        `ConnectorFailed` where it does not let us in."""
        headers = {**self._headers, **({"Content-Type": content_type} if content_type else {})}
        try:
            if self._connection is None:
                parts = self._addresses[self._at]
                self._connection = opened_connection(parts, self._timeout_s, self._setting)
            path = self._addresses[self._at].path.rstrip("/") + target
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX)
            answer = HttpAnswer(response.status, content)
            if not response.isclosed() or self._connection.sock is None:
                self.close()  # the rest is of no interest, or the server has closed it
        except (OSError, http.client.HTTPException) as error:
            name = self.name
            self.close()
            self._at = (self._at + 1) % len(self._addresses)
            raise SystemUnavailable(f"{name} does not answer: {one_line(error) or type(error).__name__}") from None
        if answer.status in (401, 403):
            raise ConnectorFailed(
                f"{self.name} refuses the user: {answer.status} {answer.said}",
                hint="Set connection.username and connection.password, then RESTART CONNECTOR.",
            )
        if answer.status >= 502 or answer.status in WAIT_AND_TRY_AGAIN:
            raise SystemUnavailable(f"{self.name} answered {answer.status}: {answer.said}")
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def basic_authorization(user: str | None, password: str | None) -> dict[str, str]:
    """Headers; none without a user."""
    if user is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()}
