"""The source `http`: requests JSON from an HTTP server at intervals, and reads its rows.

A position defines the next request: an entity tag, a cursor, a number of rows or the address of a page; and how many
rows of that page were read. So each row is in the topic exactly once if the server returns the same rows again.
Redirects are not followed. Addresses of this machine and link-local addresses are refused, also if a host name resolves
to one.
"""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urljoin, urlsplit

from ..connector import Chunk, ConnectRecord, Position, SourceConnector, TaskInfo
from ..connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from ..connector_settings import setting
from ..http_connections import WAIT_AND_TRY_AGAIN, checked_address, given_headers, opened_connection, request_target
from .json_pointers import NOTHING, checked_pointer, exact_json, pointed_at

_PIECE_BYTES: Final = 64 * 1024
_SAID_BYTES: Final = 200
_URL: Final = "http.api.url"


@dataclass(frozen=True)
class HttpSourceSettings:
    http_api_url: str = setting("Address that is asked.")
    topic: str = setting("Topic that is written.")
    headers: tuple[str, ...] = setting("Further headers, name: value, separated by commas.", default=(), secret=True)
    poll_interval_ms: int = setting("Pause between two looks.", default=60_000)
    records_pointer: str = setting("JSON pointer to the array of rows, such as /data/items.", default="")
    key_pointer: str | None = setting("JSON pointer, in a row, to what becomes the key.", default=None)
    paging: str = setting(
        "How the next rows are asked for: all anew, behind a cursor, behind a number of rows, or by a link.",
        default="none",
        choices=("none", "cursor", "offset", "link"),
    )
    cursor_parameter: str = setting("Parameter of the query that has the cursor.", default="cursor")
    cursor_initial: str | None = setting("Cursor of the first request; without it there is none.", default=None)
    cursor_pointer: str | None = setting("JSON pointer, in the answer, to the next cursor.", default=None)
    cursor_row_pointer: str | None = setting("JSON pointer, in the last row, to the next cursor.", default=None)
    offset_parameter: str = setting("Parameter of the query that has the number of rows to skip.", default="offset")
    link_pointer: str | None = setting("JSON pointer to the next address; without it the header Link.", default=None)
    request_timeout_ms: int = setting("A longer request is sent again.", default=30_000)
    max_body_bytes: int = setting("A longer answer stops the task.", default=16 * 1024 * 1024)
    allow_local_addresses: bool = setting("Addresses of this machine and link-local ones may be asked.", default=False)

    def __post_init__(self) -> None:
        checked_address(self.http_api_url, _URL)
        given_headers(self.headers)
        for name in ("records_pointer", "key_pointer", "cursor_pointer", "cursor_row_pointer", "link_pointer"):
            checked_pointer(getattr(self, name), name.replace("_", "."))
        if self.paging == "cursor" and (self.cursor_pointer is None) == (self.cursor_row_pointer is None):
            raise InvalidConnector(
                "paging=cursor needs either cursor.pointer or cursor.row.pointer", setting="cursor.pointer"
            )
        for name in ("poll_interval_ms", "request_timeout_ms", "max_body_bytes"):
            if getattr(self, name) < (0 if name == "poll_interval_ms" else 1):
                raise InvalidConnector(f"{name.replace('_', '.')} is too small", setting=name.replace("_", "."))


@dataclass(frozen=True, slots=True)
class _Answer:
    """`body`: None if nothing has changed."""

    headers: Mapping[str, str]
    body: bytes | None


class HttpSource(SourceConnector):
    """Rows of the responses of an HTTP server. State: the time of the next request."""

    settings = HttpSourceSettings

    def __init__(self, settings: HttpSourceSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._clock = task.clock
        self._parts = checked_address(settings.http_api_url, _URL)
        self._next_look = 0.0

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        early_s = self._next_look - self._clock.monotonic()
        if early_s > 0:
            self._clock.sleep(min(early_s, timeout_s))
            return None
        at: Mapping[str, Any] = {} if position is None else position
        rows, place, more = self._page(at)
        if not more:
            self._next_look = self._clock.monotonic() + self._settings.poll_interval_ms / 1000
        if not rows and place == at:
            return None
        return Chunk([self._record(row) for row in rows], place)

    def _record(self, row: Any) -> ConnectRecord:
        pointer = self._settings.key_pointer
        key = None if pointer is None else pointed_at(row, pointer)
        return ConnectRecord(self._settings.topic, None if key is NOTHING else key, row)

    # What comes after a place

    def _page(self, at: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any], bool]:
        """Rows, the place after them, and whether to request more at once."""
        match self._settings.paging:
            case "none":
                return self._all(at)
            case "cursor":
                return self._behind_cursor(at)
            case "offset":
                offset = at.get("offset", 0)
                rows = self._rows(self._json(self._asked(self._with(self._settings.offset_parameter, str(offset)))))
                return rows, {"offset": offset + len(rows)} if rows else at, bool(rows)
            case _:
                return self._linked(at)

    def _all(self, at: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any], bool]:
        """All rows, if the response differs from the last one."""
        tag = at.get("etag")
        answer = self._asked(self._parts, {} if tag is None else {"If-None-Match": tag})
        if answer.body is None:
            return (), at, False
        digest = hashlib.sha256(answer.body).hexdigest()[:32]
        place = {"digest": digest, **({"etag": answer.headers["etag"]} if "etag" in answer.headers else {})}
        return (() if digest == at.get("digest") else self._rows(self._json(answer))), place, False

    def _behind_cursor(self, at: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any], bool]:
        """The rows after a cursor. If the response does not move the cursor, the same request is repeated later, and
        rows that were already read are skipped."""
        settings = self._settings
        cursor = at.get("cursor", settings.cursor_initial)
        parts = self._parts if cursor is None else self._with(settings.cursor_parameter, cursor)
        value = self._json(self._asked(parts))
        rows = self._rows(value)
        if settings.cursor_row_pointer is not None:
            found = pointed_at(rows[-1], settings.cursor_row_pointer) if rows else NOTHING
        else:
            found = pointed_at(value, settings.cursor_pointer or "")
        if isinstance(found, (dict, list, bool)):
            raise ConnectorFailed(
                "the next cursor is neither a text nor a number", hint="Set cursor.pointer or cursor.row.pointer."
            )
        following = None if found is NOTHING or found is None or found == "" else str(found)
        if following is not None and following != cursor:
            return rows[at.get("rows", 0) :], {"cursor": following}, bool(rows)
        place = {**({} if cursor is None else {"cursor": cursor}), "rows": max(len(rows), at.get("rows", 0))}
        return rows[at.get("rows", 0) :], place if rows else at, False

    def _linked(self, at: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any], bool]:
        """The rows of a page. The last page, without a link or with one to itself, is requested again later; rows that
        were already read are skipped."""
        parts = urlsplit(at["url"]) if "url" in at else self._parts
        answer = self._asked(parts)
        value = self._json(answer)
        rows, read = self._rows(value), at.get("rows", 0)
        pointer = self._settings.link_pointer
        link = _next_of(answer.headers.get("link", "")) if pointer is None else pointed_at(value, pointer)
        following = self._same_server(urljoin(parts.geturl(), link)) if isinstance(link, str) and link else None
        if following not in (None, parts.geturl()):
            return rows[read:], {"url": following}, True
        place = {**({"url": at["url"]} if "url" in at else {}), "rows": max(len(rows), read)}
        return rows[read:], place, False

    def _same_server(self, url: str) -> str:
        """The address, if it is on the same server. Otherwise raises `ConnectorFailed`, because another server must not
        get our headers."""
        found = urlsplit(url)
        if (found.scheme, found.netloc) != (self._parts.scheme, self._parts.netloc):
            raise ConnectorFailed(f"the next link leads from {self._parts.netloc} to another server")
        return url

    def _with(self, name: str, value: str) -> SplitResult:
        query = [pair for pair in parse_qsl(self._parts.query, keep_blank_values=True) if pair[0] != name]
        return self._parts._replace(query=urlencode([*query, (name, value)]))

    def _rows(self, value: Any) -> list[Any]:
        """The rows in a response. Raises `ConnectorFailed`."""
        found = pointed_at(value, self._settings.records_pointer)
        if found is NOTHING:
            raise ConnectorFailed(
                f"the answer of {self._parts.hostname} has nothing at {self._settings.records_pointer}",
                hint="Set records.pointer to the JSON pointer of the rows.",
            )
        return found if isinstance(found, list) else [] if found is None else [found]

    # Requests

    def _json(self, answer: _Answer) -> Any:
        try:
            return exact_json(answer.body or b"")
        except ValueError as error:
            raise ConnectorFailed(f"the answer of {self._parts.hostname} is no JSON: {error}") from None

    def _asked(self, parts: SplitResult, more: Mapping[str, str] | None = None) -> _Answer:
        """The response to a request. Raises `SystemUnavailable`, `ConnectorFailed`."""
        settings = self._settings
        deadline = self._clock.monotonic() + settings.request_timeout_ms / 1000
        local = settings.allow_local_addresses
        headers = {"Accept": "application/json", **given_headers(settings.headers), **(more or {})}
        try:
            connection = opened_connection(
                parts, settings.request_timeout_ms / 1000, _URL, loopback=local, link_local=local
            )
            try:
                connection.request("GET", request_target(parts), headers={**headers, "Accept-Encoding": "identity"})
                response = connection.getresponse()
                body = self._body(response, deadline)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise SystemUnavailable(f"{parts.hostname} does not answer: {error}") from None
        if response.status == 304:
            return _Answer({}, None)
        self._check(response, body)
        return _Answer({name.lower(): value for name, value in response.getheaders()}, body)

    def _body(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        body = bytearray()
        while piece := response.read1(_PIECE_BYTES):
            body += piece
            if len(body) > self._settings.max_body_bytes:
                raise ConnectorFailed(
                    f"the answer of {self._parts.hostname} is longer than {self._settings.max_body_bytes} bytes",
                    hint="Ask for less, or ALTER CONNECTOR … WITH ('max.body.bytes'='…').",
                )
            if self._clock.monotonic() > deadline:
                raise TimeoutError("the answer takes too long")
        if response.length:
            raise http.client.IncompleteRead(bytes(body[:0]), response.length)
        return bytes(body)

    def _check(self, response: http.client.HTTPResponse, body: bytes) -> None:
        host, status = self._parts.hostname, response.status
        said = f"{host} answered {status}: {body[:_SAID_BYTES].decode(errors='replace')}"
        if status >= 500 or status in WAIT_AND_TRY_AGAIN:
            raise SystemUnavailable(said)
        if status != 200:
            raise ConnectorFailed(said, hint="Change http.api.url or headers; redirects are not followed.")
        if (response.getheader("content-encoding") or "identity").lower() != "identity":
            raise ConnectorFailed(f"{host} compressed an answer that was not to be compressed")


def _next_of(links: str) -> str | None:
    """The address with `rel="next"` in a header Link (RFC 8288)."""
    for link in links.split(","):
        target, _, parameters = link.strip().partition(";")
        names = [item.strip().replace('"', "").lower() for item in parameters.split(";")]
        if "rel=next" in names and target.startswith("<") and target.endswith(">"):
            return target[1:-1]
    return None
