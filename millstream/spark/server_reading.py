"""The server's information about a SELECT: the driver requests it, with the rights of the user."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from millstream.errors import InvalidProperty, MillstreamError, ServerError
from millstream.logcore.remote import TLS
from millstream.planner.serde import reading_from_json
from millstream.planner.source_reading import SourceReading
from millstream.planner.specs import RecordSchema
from millstream.server.client import HttpClient

from .source_options import SourceOptions

_EVERYWHERE: Final = ("0.0.0.0", "::")


class NotReadable(ServerError):
    """A stream or table that the data source cannot read."""

    code = "NOT_READABLE"


@dataclass(frozen=True, slots=True)
class DescribedSource:
    """`reading_json`: of a `SourceReading`. `bootstrap`: the log's address for tasks, with the user's credentials.
    `topic_id`: None if the log has no topic ids."""

    options: SourceOptions
    reading_json: str
    bootstrap: str = field(repr=False)
    topic_id: str | None

    @property
    def reading(self) -> SourceReading:
        return _reading(self.reading_json)

    def schema(self, number: int) -> RecordSchema | None:
        """The schema with this id from the registry. A schema that was registered after the job began is requested
        then."""
        found = self.reading.schemas.get(str(number))
        return found or _reading(_asked(self.options)["reading_json"]).schemas.get(str(number))


def described_source(options: SourceOptions) -> DescribedSource:
    """Raises `MillstreamError` if the server refuses or does not answer."""
    asked = _asked(options)
    reading = _reading(asked["reading_json"])
    name = reading.source.name
    if reading.source.kind == "TABLE" and not reading.changes and options.positions_given is not None:
        raise InvalidProperty(
            f"{name} is a table: its rows have no positions, and {options.positions_given} is given",
            hint=f'Leave it out, or read the changes of {name} with .option("changes", "true").',
        )
    bootstrap = log_address(options, asked["kafka"], asked["user"], urlsplit(_url(options)).hostname)
    return DescribedSource(options, asked["reading_json"], bootstrap, asked["topicId"])


def log_address(options: SourceOptions, told: str | None, user: str | None, host: str | None = None) -> str:
    """The address for `RemoteLog`. In: `told`: from the server; `user`: the user's name at the server; `host`: the
    server's host.

    Raises `NotReadable` if no address is known.
    """
    found = options.kafka or told
    if found is None:
        raise NotReadable(
            "the server's log is at Kafka brokers of yours, which do not know its users",
            hint='Add .option("kafka", "HOST:PORT") with the address of a broker.',
        )
    tls, plain = (TLS, found.removeprefix(TLS)) if found.startswith(TLS) else ("", found)
    addresses = ",".join(_reached(address.strip(), host) for address in plain.split(","))
    url = urlsplit(_url(options))
    name, password = url.username and unquote(url.username), unquote(url.password or "")
    if name is None and options.token is not None and user is not None:
        name, password = user, options.token
    return tls + (addresses if name is None else f"{name}:{password}@{addresses}")


def _reached(address: str, host: str | None) -> str:
    """Replaces the host of a server that listens on all addresses by the host at which it was found."""
    name, _, port = address.rpartition(":")
    return f"{host}:{port}" if host and name.strip("[]") in _EVERYWHERE else address


def _asked(options: SourceOptions) -> dict[str, Any]:
    client = HttpClient(_url(options), options.token)
    try:
        answer = client.post("/v1/reading", {"sql": options.statement, "changes": options.changes})
    except MillstreamError as error:
        if error.hint is None:
            error.add_note(f"hint: the job asked {client.address} for: {options.statement}")
        raise
    try:
        return {**answer, "reading_json": json.dumps(answer["reading"])}
    except (LookupError, TypeError):
        raise NotReadable(f"what answers at {client.address} is not a Millstream server") from None


def _url(options: SourceOptions) -> str:
    """The URL with the user's name and password."""
    url = options.url if "://" in options.url else f"http://{options.url}"
    if options.user is None:
        return url
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    login = f"{quote(options.user, safe='')}:{quote(options.password or '', safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{place}"))


@lru_cache(maxsize=16)
def _reading(text: str) -> SourceReading:
    return reading_from_json(text)
