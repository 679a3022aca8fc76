"""Sandbox: a private engine with its own log, for tests of pipelines.

    with Sandbox() as sandbox:
        sandbox.create_topic("clicks")
        sandbox.execute("CREATE STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', format='JSON')")
        sandbox.execute("CREATE TABLE n AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user")
        sandbox.produce("clicks", "ada", {"url": "/"}, timestamp=1)
        sandbox.drain()
        assert sandbox.consume("N")[0]["value"] == {"N": 1}

Nothing runs in the background. `drain` runs every query in the order of creation until no input is left, so a test gets
the same records each time, on DuckDB and on Spark. Queries are live: they see the rows that a script inserts, by INSERT
or by `produce`, row by row in its order; rows from before their creation they see by time. Only the timestamps of
records advance time; `now_ms` is the current time for INSERT VALUES.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol, cast
from weakref import WeakSet

import pyarrow as pa

from millstream.errors import ServerError, Unsupported
from millstream.executor.connect.connector_sandbox import ConnectorSandbox
from millstream.executor.executor import Executor
from millstream.executor.partitioning import sink_partitions
from millstream.executor.queries.stepwise import StepwiseExecutor
from millstream.executor.sources.journal import JournaledLog, RecordPlace
from millstream.executor.spark.sandbox import SparkSandboxExecutor
from millstream.executor.state.temporary_folders import TemporaryFolder
from millstream.logcore.client import HEADERS, LogClient, RowRecords, TopicPartition
from millstream.logcore.log import Log, open_log
from millstream.planner.formats import FORMAT_KINDS
from millstream.planner.planning import PlannedPush
from millstream.planner.schemas.registry import GivenSchema, Reference, Registry, SchemaKind, subject_of
from millstream.planner.source_info import SourceInfo
from millstream.planner.specs import FormatSpec
from millstream.server.config.properties import lenient_properties
from millstream.server.config.server_settings import ServerSettings
from millstream.server.engine.engine import Engine
from millstream.server.engine.queries import ChangeFeed, QueryResult
from millstream.server.engine.session import Session
from millstream.server.engine.topic_records import TopicRecord, Window, decode_run, encode_part
from millstream.sql.ast import CreateSource
from millstream.sql.parser import parse
from millstream.sql.settings.property import text_of
from millstream.sql.settings.property_table import CACHE_BYTES, PROCESSING_LOG_STREAM, PYTHON_FUNCTIONS

__all__ = ["ConnectorSandbox", "Sandbox", "SandboxExecutor", "TopicRecord", "Window"]


class SandboxExecutor(Executor, Protocol):
    """The methods that an executor needs to run in a Sandbox."""

    def drain(self) -> None:
        """Runs every query until no input is left."""
        ...

    def open_feed(self, planned: PlannedPush, properties: Mapping[str, str]) -> ChangeFeed:
        """Starts a push query; its iteration ends when no input is left."""
        ...


MakeExecutor = Callable[[JournaledLog, Mapping[str, str]], SandboxExecutor]

_REFERENCE_ID = 1_000_000


@dataclass(frozen=True, slots=True)
class _Pending:
    """A schema to register."""

    topic: str
    part: Literal["key", "value"]
    format: str
    schema: Any
    id: int | None
    references: list[dict[str, Any]]


class Sandbox:
    """One private engine. Nothing is left on disk after `close`.

    In: `properties`: as for SET; unknown names are accepted. Every change of a table is emitted unless
    `ksql.streams.cache.max.bytes.buffering` is set. `log`: use this log instead of a new one; it keeps what was
    written, and the caller closes it. A Sandbox has no recovery: another one on the same log computes the rows of
    existing queries from the beginning, and appends them to the output of the first one. To continue exactly where an
    engine ended, use `millstream.connect`.
    """

    executors: ClassVar[Mapping[str, MakeExecutor]] = {"duckdb": StepwiseExecutor, "spark": SparkSandboxExecutor}

    def __init__(
        self, executor: str = "duckdb", properties: Mapping[str, Any] | None = None, *, log: LogClient | None = None
    ) -> None:
        make = self.executors.get(executor)
        if make is None:
            raise Unsupported(f'a Sandbox with the executor "{executor}" is not built yet')
        self.now_ms = 0
        settings = {CACHE_BYTES.name: "0", **lenient_properties(properties or {})}
        self.session = Session(settings, rows_from="Sandbox.query(…)", prints_from="Sandbox.query(…)")
        self._own_log = ExitStack()
        self._open_log = _new_log(self._own_log) if log is None else log
        self.log = JournaledLog(self._open_log)
        self._executor = make(self.log, self.session.properties)
        self.engine = Engine(
            cast(LogClient, self.log),
            self._executor,
            self._executor.open_feed,
            {
                PYTHON_FUNCTIONS.name: "true",
                PROCESSING_LOG_STREAM.name: text_of(ServerSettings.of(settings).processing_log_stream),
            },
            now_ms=lambda: self.now_ms,
        )
        self.engine.schemas.default_level = "NONE"
        self._pending: list[_Pending] = []
        _not_closed.add(self)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything, at the latest with the process, and removes the log unless it was given."""
        _not_closed.discard(self)
        self.engine.close()
        self._own_log.close()

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 1) -> None:
        """Creates a topic. `replicas` is accepted: there is one node."""
        del replicas
        self._open_log.create_topic(name, partitions)

    def register_schema(
        self,
        topic: str,
        part: str,
        format: str,
        schema: Any,
        schema_id: int | None = None,
        references: list[dict[str, Any]] | None = None,
    ) -> None:
        """Registers a schema for the topic's keys or values (`part` is key or value).

        `format`: AVRO or JSON_SR, whose `schema` is JSON, or PROTOBUF, whose schema is text. `schema_id`: the id to
        use. `references`: schemas that it imports, as {"name", "format", "schema"}. The schema of a topic that does not
        exist yet gets its id when a statement may need it; sources that are declared earlier get their ids first.
        """
        pending = _Pending(
            topic, "key" if part == "key" else "value", format.upper(), schema, schema_id, references or []
        )
        if self._open_log.topic(topic) is not None:
            self._register(pending)
        else:
            self._pending.append(pending)

    def execute(self, sql: str) -> list[dict[str, Any]]:
        """Runs the statements; returns an object for each statement with an answer. Raises `StatementError`."""
        if self._pending:
            self._register_pending(sql)
        return [entity.as_json() for entity in self.engine.execute(sql, self.session)]

    def query(self, sql: str) -> Iterator[dict[str, Any]]:
        """Starts a SELECT; yields its header, rows and final message, lazily. A push query ends at its LIMIT, or when
        no input is left."""
        return _response(self.engine.query(sql, self.session))

    def produce(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp: int = 0,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        window: Window | None = None,
    ) -> None:
        """Appends one record, in the formats of the stream or table declared on the topic.

        DELIMITED takes the text of the record, KAFKA a number or text, JSON any JSON value. AVRO, PROTOBUF and JSON_SR
        use the topic's latest schema, with names in any case. None is a null key or a tombstone. Without `partition`,
        the key's hash chooses, as in Kafka's clients.
        """
        known = self._open_log.topic(topic)
        if known is None:
            raise ServerError(f'topic "{topic}" does not exist', hint="Create it with create_topic or a statement.")
        source = self._with_latest_schemas(self._source_on(topic))
        key_bytes = encode_part(source, "KEY", key, window)
        value_bytes = encode_part(source, "VALUE", value)
        if partition is None:
            keys = pa.array([key_bytes], pa.binary())
            partition = int(sink_partitions(keys, pa.array([0], pa.int32()), known.partition_count)[0])
        table = pa.table(
            {
                "timestamp": pa.array([timestamp], pa.int64()),
                "key": pa.array([key_bytes], pa.binary()),
                "value": pa.array([value_bytes], pa.binary()),
                "headers": pa.array([[{"key": name, "value": data} for name, data in headers]], HEADERS),
            }
        )
        self.log.append(topic, partition, RowRecords(table))

    def drain(self) -> None:
        """Runs every persistent query until no input is left. Raises `QueryError` if one cannot continue.

        Each query runs to its end before the next one. But if a query reads both another query's output and rows that
        the script inserts, the script's rows go through all of these queries one by one.
        """
        self._executor.drain()

    def idle(self, milliseconds: int) -> None:
        """Lets time pass without input: after a `drain`, queries with EMIT FINAL emit the windows that
        `millstream.emit.final.idle.ms` closes. Only with the executor "duckdb"."""
        if not isinstance(self._executor, StepwiseExecutor):
            raise Unsupported("only queries on DuckDB notice that nothing comes")
        self.now_ms += milliseconds
        self._executor.idle(milliseconds)

    def consume(self, topic: str) -> list[TopicRecord]:
        """All records of the topic, in the order in which they were appended, as logical values."""
        source = self._source_on(topic)
        by_place: dict[RecordPlace, TopicRecord] = {}
        for partition in range(self._open_log.partition_count(topic)):
            by_place.update(self._decode(TopicPartition(topic, partition), source))
        appended = [place for entry in self.log.entries if entry.at.topic == topic for place in entry.places()]
        return [by_place[place] for place in appended]

    def sources(self) -> list[dict[str, Any]]:
        """The streams and tables."""
        return [_source(source) for source in self.engine.catalog.sources.values()]

    def topics(self) -> list[dict[str, Any]]:
        """The topics of users, with the formats of the stream or table on them."""
        found: list[dict[str, Any]] = []
        for topic in self._open_log.topics().values():
            if topic.name.startswith("_"):
                continue
            source = self._source_on(topic.name)
            found.append(
                {
                    "name": topic.name,
                    "partitions": topic.partition_count,
                    "key_format": source.key_format.name if source else None,
                    "value_format": source.value_format.name if source else None,
                    **self._registered(topic.name, "key"),
                    **self._registered(topic.name, "value"),
                }
            )
        return found

    def _registered(self, topic: str, part: Literal["key", "value"]) -> dict[str, Any]:
        """The latest schema of the topic's keys or values, and its id."""
        latest = self.engine.schemas.registry.latest(subject_of(topic, part))
        schema: Any = None
        if latest is not None:
            schema = latest.text if latest.kind == "PROTOBUF" else json.loads(latest.text, parse_float=Decimal)
        return {f"{part}_schema": schema, f"{part}_schema_id": None if latest is None else latest.id}

    def _register(self, pending: _Pending) -> None:
        """References get ids far from those of topics, which tests do not expect."""
        store, kind = self.engine.schemas, FORMAT_KINDS[pending.format]
        registry = store.registry
        named = [
            Reference(reference["name"], reference["name"], number)
            for reference in pending.references
            for number in [self._reference_version(registry, reference)]
        ]
        counted = [version.id for version in registry.versions.values() if version.id < _REFERENCE_ID]
        version = registry.new_version(
            subject_of(pending.topic, pending.part),
            GivenSchema(kind, _schema_text(pending.schema, kind), tuple(named)),
            pending.id or (max(counted, default=0) + 1 if pending.references else None),
        )
        registry = registry.with_version(version)
        for reference in pending.references:
            other = FORMAT_KINDS[str(reference["format"]).upper()]
            given = GivenSchema(other, _schema_text(reference["schema"], other))
            known = registry.find(reference["name"], given)
            reference_id = known.id if known else _REFERENCE_ID + len(registry.versions)
            made = registry.new_version(reference["name"], given, schema_id=reference_id)
            registry = registry.with_version(made)
            store.append([made])
        store.append([version])

    @staticmethod
    def _reference_version(registry: Registry, reference: dict[str, Any]) -> int:
        kind = FORMAT_KINDS[str(reference["format"]).upper()]
        given = GivenSchema(kind, _schema_text(reference["schema"], kind))
        return registry.new_version(reference["name"], given).version

    def _register_pending(self, sql: str) -> None:
        """Registers all schemas before a query; before another statement, those of the topics that it names."""
        statements = parse(sql)
        sources = [s for s in statements if isinstance(s, CreateSource)]
        topics = {str(s.properties.get("KAFKA_TOPIC", s.name)) for s in sources}
        others = len(sources) < len(statements)
        ready = [pending for pending in self._pending if others or pending.topic in topics]
        self._pending = [pending for pending in self._pending if pending not in ready]
        for pending in ready:
            self._register(pending)

    def _with_latest_schemas(self, source: SourceInfo | None) -> SourceInfo | None:
        """The source for a producer: with the latest schemas of its topic."""
        if source is None:
            return None
        return replace(
            source,
            key_format=self._with_latest_schema(source.key_format, source.topic, "key"),
            value_format=self._with_latest_schema(source.value_format, source.topic, "value"),
        )

    def _with_latest_schema(self, spec: FormatSpec, topic: str, part: Literal["key", "value"]) -> FormatSpec:
        registry = self.engine.schemas.registry
        latest = registry.latest(subject_of(topic, part))
        if spec.schema is None or latest is None or latest.kind != spec.schema.kind:
            return spec
        return replace(spec, schema=registry.record_schema(latest, spec.schema.message))

    def _decode(self, at: TopicPartition, source: SourceInfo | None) -> Iterator[tuple[RecordPlace, TopicRecord]]:
        position, fetched = -1, self._open_log.fetch(at.topic, at.partition, 0)
        while fetched.next_offset > position:
            for run in fetched.runs:
                for offset, record in decode_run(run, source, self.engine.schemas.schema):
                    yield RecordPlace(at, offset), record
            position = fetched.next_offset
            fetched = self._open_log.fetch(at.topic, at.partition, position)

    def _source_on(self, topic: str) -> SourceInfo | None:
        """The first stream or table declared on the topic."""
        return next((source for source in self.engine.catalog.sources.values() if source.topic == topic), None)


def _schema_text(schema: Any, kind: SchemaKind) -> str:
    return str(schema) if kind == "PROTOBUF" else json.dumps(schema, default=_json_number)


def _json_number(value: Any) -> float:
    assert isinstance(value, Decimal)
    return float(value)


_not_closed: WeakSet[Sandbox] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Otherwise DuckDB reports pages of leaks when the process ends, and each log stays on disk."""
    for sandbox in list(_not_closed):
        sandbox.close()


def _new_log(until: ExitStack) -> Log:
    """An empty log, which is closed and removed when `until` is closed."""
    directory = TemporaryFolder("sandbox")
    until.callback(directory.remove)
    return until.enter_context(open_log(directory.path, sync="never"))


def _response(result: QueryResult) -> Iterator[dict[str, Any]]:
    yield {"header": {"queryId": result.query_id, "schema": str(result.schema)}}
    for row in result:
        members: dict[str, Any] = {"columns": list(row.values)}
        if row.tombstone:
            members["tombstone"] = True
        yield {"row": members}
    if result.final_message is not None:
        yield {"finalMessage": result.final_message}


def _source(source: SourceInfo) -> dict[str, Any]:
    window = source.key_window
    return {
        "name": source.name,
        "type": source.kind,
        "topic": source.topic,
        "schema": str(source.schema),
        "key_format": source.key_format.name,
        "value_format": source.value_format.name,
        "window": None if window is None else {"type": window.kind, "size": window.size_ms},
        "key_features": list(source.key_features),
        "value_features": list(source.value_features),
        "is_source": source.read_only,
    }
