"""The checks of `millstream doctor` on a running server: its health, its clock, and stuck queries."""

from __future__ import annotations

import email.utils
import http.client
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

from millstream.errors import MillstreamError
from millstream.server.client import Client, connect
from millstream.sql.identifiers import quote_identifier

from .line import CheckResult, Level

_BROKEN: Final = frozenset({"FAILED", "SOURCE_TOPIC_GONE", "SINK_TOPIC_GONE"})
_TROUBLED: Final = frozenset({"RETRYING", "OPEN_TRANSACTION", "RECORD_ERRORS", "BEHIND", "PAUSED"})
_CLOCK_WARN_S = 5.0


def server(url: str) -> Iterator[CheckResult]:
    """Whether the server answers, its health, and why queries produce no results."""
    try:
        client = connect(url)
        info = client.info()
    except MillstreamError as error:
        yield CheckResult("server", "fail", error.message, error.hint or "")
        return
    try:
        yield CheckResult("server", "ok", f"version {info.get('millstreamVersion', '?')} answers at {client.address}")
        yield from _health(client.address)
        yield from queries(client)
    except (MillstreamError, OSError, http.client.HTTPException) as error:
        yield CheckResult("server", "fail", str(error))
    finally:
        client.close()


def _health(url: str) -> Iterator[CheckResult]:
    parsed = urllib.parse.urlparse(url)
    make = http.client.HTTPSConnection if parsed.scheme == "https" else http.client.HTTPConnection
    connection = make(parsed.hostname or "", parsed.port, timeout=10)
    try:
        connection.request("GET", f"{parsed.path.rstrip('/')}/healthcheck")
        answer = connection.getresponse()
        answer.read()
        date = email.utils.parsedate_to_datetime(answer.headers["date"]) if answer.headers["date"] else None
    finally:
        connection.close()
    healthy = answer.status == 200
    yield CheckResult(
        "server", "ok" if healthy else "fail", "it is healthy" if healthy else "it says that it is not healthy"
    )
    if date is not None and abs(date.timestamp() - time.time()) > _CLOCK_WARN_S:
        apart = date.timestamp() - time.time()
        yield CheckResult(
            "clock", "warn", f"the server's clock is {apart:+.0f} s off this machine's", "Set both by NTP."
        )


def queries(client: Client) -> Iterator[CheckResult]:
    """The causes of each query that need action."""
    (shown,) = client.execute("SHOW QUERIES;")
    persistent = [line["id"] for line in shown["queries"] if line["queryType"] == "PERSISTENT"]
    quiet = 0
    for query_id in persistent:
        (stall,) = client.execute(f"EXPLAIN STALL {quote_identifier(query_id)};")
        found = list(_lines(query_id, stall))
        quiet += not found
        yield from found
    if quiet:
        yield CheckResult("queries", "ok", f"{quiet} of {len(persistent)} queries have no trouble")


def _lines(query_id: str, stall: dict[str, Any]) -> Iterator[CheckResult]:
    for cause in stall["causes"]:
        level: Level | None = "fail" if cause["code"] in _BROKEN else "warn" if cause["code"] in _TROUBLED else None
        if level is not None:
            yield CheckResult("queries", level, f"{query_id}: {cause['message']}", cause["hint"])
