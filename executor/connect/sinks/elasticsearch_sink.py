"""The sinks `elasticsearch` and `opensearch`: they write a document for each key, or for each record. Idempotent.

The id of a document is the key of its record, and its version is the record's offset (`version_type=external`). So the
server ignores a record that is written again, or after a later record of its key. If the server does not accept a
document, its record is refused; the others are written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import quote

import orjson

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, Guarantee, RecordsRefused, SinkConnector, TaskInfo
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..connector_settings import setting
from ..converters import json_text
from .json_posts import HttpAnswer, HttpDatabase, basic_authorization

_URL: Final = "connection.url"
_ID_BYTES_MAX: Final = 512
_ATTEMPTS: Final = 8
_PAUSE_S, _PAUSE_S_MAX = 0.1, 5.0
_CONFLICT: Final = 409
_BUSY: Final = frozenset({429, 503})
_NOT_THE_DOCUMENT: Final = {
    "index_not_found_exception": "Create it, or allow the server to create indexes.",
    "invalid_index_name_exception": "Set index to a name in lower case.",
    "security_exception": "Set connection.username and connection.password.",
    "illegal_argument_exception": "",
}
_ONLY_FIELDS: Final = "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"


@dataclass(frozen=True)
class ElasticsearchSinkSettings:
    connection_url: tuple[str, ...] = setting("Addresses of nodes, http://host:9200, separated by commas.")
    connection_username: str | None = setting("User.", default=None)
    connection_password: str | None = setting("Password of the user.", default=None, secret=True)
    connection_api_key: str | None = setting("API key, in place of a user.", default=None, secret=True)
    index: str = setting("Index of a topic; ${topic} is the topic's name in lower case.", default="${topic}")
    key_ignore: bool = setting(
        "Ids are topic, partition and offset: a document for each record. Otherwise the key is the id.", default=False
    )
    behavior_on_null_values: str = setting(
        "A tombstone deletes the document of its key, or is left out.", default="delete", choices=("delete", "ignore")
    )
    bulk_size_bytes: int = setting("A request has no more bytes, unless one document has.", default=5 * 1024 * 1024)
    request_timeout_ms: int = setting("A longer request is sent again.", default=30_000)

    def __post_init__(self) -> None:
        HttpDatabase(self.connection_url, _URL, self.headers, 1)
        if not self.connection_url:
            raise ValueError("connection.url has no address")
        if self.bulk_size_bytes < 1:
            raise ValueError("bulk.size.bytes must be at least 1")

    @property
    def headers(self) -> dict[str, str]:
        if self.connection_api_key is not None:
            return {"Authorization": f"ApiKey {self.connection_api_key}"}
        return basic_authorization(self.connection_username, self.connection_password)


@dataclass(frozen=True, slots=True)
class _Action:
    """The lines of one record in a bulk request."""

    record: ConnectRecord
    deletes: bool
    lines: bytes


class ElasticsearchSink(SinkConnector):
    """Indexes of Elasticsearch or OpenSearch. State: the open connection, and the topic of each index."""

    settings = ElasticsearchSinkSettings
    guarantee: ClassVar[Guarantee] = "idempotent"
    batch_records: ClassVar[int] = 5000
    kill_points: ClassVar[tuple[str, ...]] = ("bulk_after_send",)

    def __init__(self, settings: ElasticsearchSinkSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._task = task
        self._topics: dict[str, str | None] = {}
        self._server = HttpDatabase(settings.connection_url, _URL, settings.headers, settings.request_timeout_ms / 1000)

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        del positions
        refused: list[tuple[ConnectRecord, str]] = []
        actions: list[_Action] = []
        self._check_topics(records)
        for record in records:
            if record.value is None and (self._settings.key_ignore or not self._deletes):
                continue
            made = self._action(record)
            if isinstance(made, str):
                refused.append((record, made))
            else:
                actions.append(made)
        for some in _requests(actions, self._settings.bulk_size_bytes):
            refused += self._written(some)
            fp("connect.bulk_after_send")
        if refused:
            raise RecordsRefused(refused)

    def _check_topics(self, records: Sequence[ConnectRecord]) -> None:
        """Raises `ConnectorFailed` if the versions in one index would be offsets of two topics."""
        if self._settings.key_ignore:
            return
        for topic, read_from in dict.fromkeys((record.topic, record.read_from) for record in records):
            index = self._index(topic)
            if (known := self._topics.setdefault(index, read_from)) != read_from:
                raise ConnectorFailed(
                    f"the topics {known} and {read_from} would be written to the index {index}, and their offsets,"
                    " which are the versions of documents, do not compare",
                    hint="Give each topic its own index, with ${topic} in index, or set key.ignore=true.",
                )

    def _index(self, topic: str) -> str:
        return self._settings.index.replace("${topic}", topic.lower())

    def close(self) -> None:
        self._server.close()

    @property
    def _deletes(self) -> bool:
        return self._settings.behavior_on_null_values == "delete"

    def _action(self, record: ConnectRecord) -> _Action | str:
        """The action for the record, or a clause about what is wrong with it."""
        try:
            return self._written_as_json(record)
        except (ValueError, TypeError) as error:  # for example half of a surrogate pair
            return f"it cannot be written as JSON: {error}"

    def _written_as_json(self, record: ConnectRecord) -> _Action | str:
        """Raises ValueError, TypeError."""
        place = f"{record.read_from}+{record.partition}+{record.offset}"
        id_ = place if self._settings.key_ignore else _id_of(record.key)
        if id_ is None:
            return "it has no key, which would be the id of its document"
        if len(id_.encode(errors="surrogatepass")) > _ID_BYTES_MAX:
            return f"its key has more than {_ID_BYTES_MAX} bytes, and would be the id of its document"
        if record.value is not None and not isinstance(record.value, dict):
            return f"its value is of type {type(record.value).__name__}, and a document is an object"
        head = {
            "_index": self._index(record.topic),
            "_id": id_,
            "version": record.offset,
            "version_type": "external",
        }
        if record.value is None:
            return _Action(record, True, orjson.dumps({"delete": head}) + b"\n")
        _refuse_non_finite(record.value)
        document = json_text(record.value).encode()
        return _Action(record, False, orjson.dumps({"index": head}) + b"\n" + document + b"\n")

    def _written(self, actions: Sequence[_Action]) -> list[tuple[ConnectRecord, str]]:
        """Sends the actions until the server has accepted or refused each of them. Out: the refused records with the
        reasons. If the server is too busy for some actions, only those are sent again."""
        refused: list[tuple[ConnectRecord, str]] = []
        left, pause_s = list(actions), _PAUSE_S
        for attempt in range(_ATTEMPTS):
            answer = self._server.request(
                "POST", f"/_bulk?filter_path={quote(_ONLY_FIELDS)}", b"".join(each.lines for each in left),
                "application/x-ndjson",
            )  # fmt: skip
            if answer.status == 413:
                return refused + self._halved(left, answer)
            items = self._items(answer, len(left))
            busy: list[_Action] = []
            for action, item in zip(left, items, strict=True):
                match self._outcome(action, item):
                    case None:
                        pass
                    case "busy":
                        busy.append(action)
                    case reason:
                        refused.append((action.record, reason))
            if not busy:
                return refused
            left = busy
            if attempt + 1 < _ATTEMPTS:
                self._task.clock.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
        raise SystemUnavailable(f"{self._server.name} is too busy for {len(left)} documents (429)")

    def _halved(self, actions: Sequence[_Action], answer: HttpAnswer) -> list[tuple[ConnectRecord, str]]:
        """Sends the actions in two requests, because the server says that the request is too large."""
        if len(actions) == 1:
            reason = (
                f"its document of {len(actions[0].lines)} bytes is too large for {self._server.name} ({answer.said})"
            )
            return [(actions[0].record, reason)]
        middle = len(actions) // 2
        return self._written(actions[:middle]) + self._written(actions[middle:])

    def _items(self, answer: HttpAnswer, count: int) -> list[Any]:
        try:
            body = orjson.loads(answer.content)
            items = [next(iter(item.values())) for item in body["items"]]
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
            items = []
        if answer.status == 200 and len(items) == count and all(isinstance(item, dict) for item in items):
            return items
        if answer.status >= 500:
            raise SystemUnavailable(f"{self._server.name} answered {answer.status}: {answer.said}")
        raise ConnectorFailed(
            f"{self._server.name} answered {answer.status}, and not as Elasticsearch does: {answer.said}",
            hint=f"{_URL} must be the address of its HTTP API.",
        )

    def _outcome(self, action: _Action, item: Mapping[str, Any]) -> str | None:
        """None: the record has taken effect; `busy`: send it again; else the reason why the server refuses it. Raises
        `ConnectorFailed` if the document is not the reason."""
        status = item.get("status")
        if not isinstance(status, int):
            raise ConnectorFailed(f"{self._server.name} does not answer as Elasticsearch does: an item has no status")
        if 200 <= status < 300 or status == _CONFLICT or (action.deletes and status == 404 and "error" not in item):
            return None
        error = item.get("error") or {}
        kind, reason = str(error.get("type")), str(error.get("reason"))
        cause = (error.get("caused_by") or {}).get("reason")
        said = f"{kind}: {reason}{'' if cause is None else f' ({cause})'}"[:1000]
        if status in _BUSY or kind == "cluster_block_exception":
            return "busy"
        if kind == "index_not_found_exception" and action.deletes:
            return None
        if _NOT_THE_DOCUMENT.get(kind):
            raise ConnectorFailed(
                f"{self._server.name} refuses to write: {said}",
                hint=f"{_NOT_THE_DOCUMENT[kind]} Then RESTART CONNECTOR.",
            )
        if status >= 500:
            raise SystemUnavailable(f"{self._server.name} cannot write a document: {said}")
        return f"{self._server.name} refuses its document: {said}"


def _id_of(key: Any) -> str | None:
    """The id for a key: a text is used unchanged, other keys as JSON."""
    if key is None or isinstance(key, str):
        return key or None
    if isinstance(key, bytes):
        return key.decode(errors="backslashreplace") or None
    _refuse_non_finite(key)
    return json_text(key)


def _refuse_non_finite(value: Any) -> None:
    """Raises ValueError if there is a NaN or an infinity at any depth, because in JSON it would become null."""
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is not JSON")
        case dict():
            for item in value.values():
                _refuse_non_finite(item)
        case list():
            for item in value:
                _refuse_non_finite(item)
        case _:
            pass


def _requests(actions: Sequence[_Action], bytes_max: int) -> Iterator[list[_Action]]:
    some: list[_Action] = []
    size = 0
    for action in actions:
        if some and size + len(action.lines) > bytes_max:
            yield some
            some, size = [], 0
        some.append(action)
        size += len(action.lines)
    if some:
        yield some
