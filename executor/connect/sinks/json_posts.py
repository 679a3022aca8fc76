"""Requests of a sink to the HTTP API of a database, over one open connection to the first address that answers."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ..connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable, one_line
from ..http_connections import WAIT_AND_TRY_AGAIN, checked_address, opened_connection, request_target

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_SAID_MAX: Final = 500


class HttpAnswer(NamedTuple):
    status: int
    content: bytes

    @property
    def said(self) -> str:
        """The beginning of the response, for error messages."""
        return one_line(self.content[:_SAID_MAX].decode(errors="replace"))


class HttpDatabase:
    """State: the open connection, and the number of its address."""

    def __init__(self, urls: Sequence[str], setting: str, headers: Mapping[str, str], timeout_s: float) -> None:
        """In: `setting`: the name of the setting with the addresses. Raises `InvalidConnector`, which does not repeat
        values."""
        self._addresses = [checked_address(url, setting) for url in urls]
        self._setting = setting
        for name, value in headers.items():
            if not value.isprintable():  # sending it would raise an error that repeats the value
                raise InvalidConnector(f"the value of the header {name} must be printable, without line ends")
        self._headers = {name: value.encode() for name, value in headers.items()}
        self._timeout_s = timeout_s
        self._at = 0
        self._connection: http.client.HTTPConnection | None = None

    @property
    def name(self) -> str:
        """The name of the server, for messages."""
        return self._addresses[self._at].hostname or ""

    @property
    def _path(self) -> str:
        """What the address has before the targets of requests."""
        return request_target(self._addresses[self._at]._replace(query="")).rstrip("/")

    def request(self, method: str, target: str, body: bytes | None = None, content_type: str = "") -> HttpAnswer:
        """Raises `SystemUnavailable` if there is no response or a later attempt may succeed, and `ConnectorFailed` if
        the server refuses the user."""
        headers = {**self._headers, **({"Content-Type": content_type.encode()} if content_type else {})}
        reused = self._connection is not None
        try:
            try:
                answer = self._answered(method, target, body, headers)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                if not reused:
                    raise
                self.close()  # the server had closed it meanwhile
                answer = self._answered(method, target, body, headers)
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

    def _answered(self, method: str, target: str, body: bytes | None, headers: Mapping[str, bytes]) -> HttpAnswer:
        if self._connection is None:
            self._connection = opened_connection(self._addresses[self._at], self._timeout_s, self._setting)
        connection, refused = self._connection, None
        try:
            connection.request(method, self._path + target, body, headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            refused = error  # there may already be a response, for example that the body is too large
        try:
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise refused or error from None
        if refused is not None or not response.isclosed() or connection.sock is None:
            self.close()  # the rest of the response is not needed, or the server has closed the connection
        return HttpAnswer(response.status, content)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def basic_authorization(user: str | None, password: str | None) -> dict[str, str]:
    """The headers for basic authorization; empty without a user."""
    if user is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()}
