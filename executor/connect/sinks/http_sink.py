"""The sink `http`: sends a request for each record. At least once: it repeats a request if the outcome is unknown.

The header Idempotency-Key identifies the record and is the same for every attempt, so a receiver can ignore repeated
requests. Redirects are not followed. Link-local addresses (cloud metadata) are refused, also if a host name resolves to
one.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import quote

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, Guarantee, RecordsRefused, SinkConnector, TaskInfo
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..connector_settings import setting
from ..converters import json_text
from ..http_connections import (
    WAIT_AND_TRY_AGAIN,
    checked_address,
    escaped,
    given_headers,
    opened_connection,
    request_target,
)

_URL: Final = "http.api.url"
_ANSWER_BYTES_MAX: Final = 1000
# Answers that are about the record, not about who sends it or to where: RFC 9110, RFC 6585 (431).
_RECORD_REFUSED: Final = (400, 409, 413, 414, 422, 431)
_KEY_UNKNOWN: Final = (404, 410)  # where the key is a part of the address


@dataclass(frozen=True)
class HttpSinkSettings:
    http_api_url: str = setting("Address that records are sent to; ${topic} and ${key} are those of the record.")
    request_method: str = setting("Method of the requests.", default="POST", choices=("POST", "PUT"))
    headers: tuple[str, ...] = setting("Further headers, name: value, separated by commas.", default=(), secret=True)
    request_timeout_ms: int = setting("A longer request is sent again.", default=30_000)
    behavior_on_null_values: str = setting(
        "A tombstone is left out, or sent as a DELETE.", default="ignore", choices=("ignore", "delete")
    )

    def __post_init__(self) -> None:
        checked_address(self.http_api_url, _URL)
        given_headers(self.headers)


class HttpSink(SinkConnector):
    """Requests to an HTTP server. State: the open connection, and the last offset that was sent of each partition: the
    records of a batch in which one is refused are given once more."""

    settings = HttpSinkSettings
    guarantee: ClassVar[Guarantee] = "at least once"
    batch_records: ClassVar[int] = 100

    def __init__(self, settings: HttpSinkSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._task = task
        self._parts = checked_address(settings.http_api_url, _URL)
        self._connection: http.client.HTTPConnection | None = None
        self._sent: dict[tuple[str | None, int | None], int] = {}

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        del positions
        for record in records:
            place, offset = (record.read_from, record.partition), record.offset or 0
            if offset <= self._sent.get(place, -1):
                continue
            if record.value is not None or self._settings.behavior_on_null_values == "delete":
                self._task.tenure.check()
                self._send(record)
                fp("connect.http_after_send")
            self._sent[place] = offset

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, record: ConnectRecord) -> None:
        method = "DELETE" if record.value is None else self._settings.request_method
        body = None if record.value is None else _body(record.value)
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": (
                f"{escaped(self._task.connector)}-{record.read_from}-{record.partition}-{record.offset}"
            ),
            **given_headers(self._settings.headers),
        }
        try:
            connection = self._connected()
            connection.request(method, self._target(record), body, headers)
            response = connection.getresponse()
            answer = response.read(_ANSWER_BYTES_MAX)
            if not response.isclosed() or connection.sock is None:
                self.close()  # the rest of the response is not needed, or the server has closed the connection
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise SystemUnavailable(f"{self._parts.hostname} does not answer: {error}") from None
        self._check(response.status, answer, record)

    def _check(self, status: int, answer: bytes, record: ConnectRecord) -> None:
        is_unknown = status in _KEY_UNKNOWN and "${key}" in self._settings.http_api_url
        if 200 <= status < 300 or (is_unknown and record.value is None):  # a DELETE whose first answer was lost
            return
        said = f"{self._parts.hostname} answered {status}: {answer[:200].decode(errors='replace')}"
        if status >= 500 or status in WAIT_AND_TRY_AGAIN:
            raise SystemUnavailable(said)
        if status in _RECORD_REFUSED or is_unknown:
            hint = "Change the record, or what is sent of it."
            raise RecordsRefused([(record, said)], others_written=False, hint=hint)
        place = f"{record.topic}, partition {record.partition}, offset {record.offset}"
        raise ConnectorFailed(
            f"{said} (record at {place})", hint="Change http.api.url, headers or the records, then RESTART CONNECTOR."
        )

    def _target(self, record: ConnectRecord) -> str:
        key = record.key if isinstance(record.key, str) else json_text(record.key)
        target = request_target(self._parts)
        return target.replace("${topic}", quote(record.topic, "")).replace("${key}", quote(key, ""))

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = opened_connection(self._parts, self._settings.request_timeout_ms / 1000, _URL)
        return self._connection


def _body(value: object) -> bytes:
    return value if isinstance(value, bytes) else json_text(value).encode()
