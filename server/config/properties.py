"""The properties that SET, the configuration and requests can name: one entry each. What they do lives elsewhere.

A property has one canonical name (`auto.offset.reset`) and aliases (`ksql.streams.auto.offset.reset`); everything
behind this file sees canonical names and text values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from millstream.errors import InvalidProperty, Span, did_you_mean

from ...sql.property_values import parse_memory, parse_reset, parse_start_offsets

PropertyType = Literal["STRING", "BOOLEAN", "INTEGER", "DOUBLE"]


@dataclass(frozen=True, slots=True)
class Property:
    """`scope`: SESSION ones can be SET; SERVER ones are read once at start. `choices`: the values it may have, in
    lower case. `minimum`: of a number. `parse`: raises `ValueError` for other values, saying what is expected; a text
    that it gives is the one spelling, and `choices` are what somebody may have meant. `effective`: False for names of
    Kafka's and ksqlDB's that are accepted, so that scripts run, and do nothing."""

    name: str
    type: PropertyType
    default: str
    doc: str
    scope: Literal["SESSION", "SERVER"] = "SESSION"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    effective: bool = True
    parse: Callable[[str], object] | None = None

    def check(self, value: str, span: Span | None = None) -> str:
        """The value in its one spelling. Raises `InvalidProperty`."""
        text = value.strip()
        if self.parse is not None:
            return self._parsed(text, value, span)
        if self.choices:
            if text.lower() not in self.choices:
                raise self._refused(value, "one of " + ", ".join(self.choices), did_you_mean(text, self.choices), span)
            return text.lower()
        if self.type == "BOOLEAN":
            if text.lower() not in ("true", "false"):
                raise self._refused(value, "true or false", None, span)
            return text.lower()
        if self.type in ("INTEGER", "DOUBLE"):
            self._check_number(text, value, span)
        return text

    def _parsed(self, text: str, value: str, span: Span | None) -> str:
        assert self.parse is not None
        try:
            parsed = self.parse(text)
        except ValueError as wanted:
            raise self._refused(value, str(wanted), did_you_mean(text, self.choices), span) from None
        return parsed if isinstance(parsed, str) else text

    def _check_number(self, text: str, value: str, span: Span | None) -> None:
        kind: Callable[[str], float] = int if self.type == "INTEGER" else float
        try:
            number = kind(text)
        except ValueError:
            wanted = "a whole number" if self.type == "INTEGER" else "a number"
            raise self._refused(value, wanted, None, span) from None
        if self.minimum is not None and number < self.minimum:
            raise self._refused(value, f"at least {self.minimum}", None, span)

    def _refused(self, value: str, wanted: str, hint: str | None, span: Span | None) -> InvalidProperty:
        return InvalidProperty(f"Invalid value '{value}' for property '{self.name}': expected {wanted}.", span=span,
                               hint=hint or "SHOW PROPERTIES; says what it has now, and what it does.")  # fmt: skip


def _entries() -> Iterable[Property]:
    yield from _READING
    yield from _QUERIES
    yield from _FORMATS
    yield from _WINDOWS
    yield from _EXECUTORS
    yield from _SERVER
    for name in _ACCEPTED:
        yield Property(name, "STRING", "", "Accepted for compatibility; changes nothing.", effective=False)


LISTENERS = "listeners"

_READING = (
    Property(
        "auto.offset.reset",
        "STRING",
        "latest",
        "Where a query begins to read a topic of which it has no committed offset: at its start (earliest), at its end "
        "(latest), or at the first record of a time (2026-01-01T00:00:00Z, or milliseconds since 1970).",
        aliases=("ksql.streams.auto.offset.reset", "ksql.streams.consumer.auto.offset.reset"),
        choices=("earliest", "latest"),
        parse=parse_reset,
    ),
    Property(
        "millstream.start.offsets",
        "STRING",
        "",
        'Offsets at which a query begins, by topic and partition: {"clicks": {"0": 42}}; what it does not name begins '
        "as auto.offset.reset says.",
        parse=parse_start_offsets,
    ),
    Property(
        "ksql.fail.on.deserialization.error",
        "BOOLEAN",
        "false",
        "Stop a query at a record that cannot be decoded, instead of writing it to the processing log.",
    ),
    Property(
        "ksql.streams.cache.max.bytes.buffering",
        "INTEGER",
        "10485760",
        "0 emits every change of a table; any other value only a key's last change per batch.",
        aliases=("cache.max.bytes.buffering", "ksql.streams.statestore.cache.max.bytes", "statestore.cache.max.bytes"),
        minimum=0,
    ),
    Property(
        "ksql.timestamp.throw.on.invalid",
        "BOOLEAN",
        "false",
        "Stop a query at a record whose TIMESTAMP column has no valid time, instead of dropping the record.",
    ),
)

_QUERIES = (
    Property(
        "millstream.functions.python.enabled",
        "BOOLEAN",
        "false",
        "Let CREATE FUNCTION bring Python code, which runs with all rights of the server's process. Off in a server "
        "unless its configuration says so; on in a sandbox, in the demo and in a shell without a server.",
        scope="SERVER",
    ),
    Property("ksql.suppress.enabled", "BOOLEAN", "true", "Allow EMIT FINAL."),
    Property(
        "ksql.query.pull.table.scan.enabled",
        "BOOLEAN",
        "true",
        "Let pull queries read a whole table; without it a WHERE on the key is needed.",
    ),
    Property("ksql.query.pull.range.scan.enabled", "BOOLEAN", "true", "Let pull queries read a range of keys."),
    Property("ksql.query.pull.stream.enabled", "BOOLEAN", "true", "Allow pull queries over streams."),
    Property(
        "millstream.pull.full.sql",
        "BOOLEAN",
        "false",
        "Let pull queries use all of SQL (joins, GROUP BY, windows) and read tables that CREATE TABLE only declares on "
        "a topic; ksqlDB refuses both.",
        aliases=("millstream.pull.any.table",),
    ),
    Property(
        "millstream.query.pull.max.seconds", "DOUBLE", "60", "How long a pull query may take, in seconds.", minimum=0
    ),
    Property("millstream.query.pull.max.rows", "INTEGER", "10000000", "How many rows its answer may have.", minimum=1),
    Property(
        "millstream.query.pull.max.bytes",
        "INTEGER",
        "1073741824",
        "How many bytes its answer may have in memory.",
        minimum=1,
    ),
    Property(
        "millstream.value.max.bytes",
        "INTEGER",
        "16777216",
        "How large a value may be that a function makes. A persistent query writes the row to the processing log and "
        "has NULL there; a pull query ends with an error.",
        minimum=1,
    ),
    Property(
        "millstream.functions.max.seconds",
        "DOUBLE",
        "5",
        "How long a function may compute for one row, users' functions in Python included. What becomes of the row, "
        "millstream.value.max.bytes says.",
        minimum=0,
    ),
    Property(
        "millstream.query.pull.max.memory",
        "STRING",
        "",
        "Memory that one pull query with joins, GROUP BY or over a long stream may use, for example 512MB; empty: as "
        "millstream.duckdb.memory.limit says.",
        parse=parse_memory,
    ),
    Property(
        "millstream.query.pull.max.stream.rows",
        "INTEGER",
        "1000000",
        "How many records of a stream are kept in memory for pull queries; of longer streams each pull query reads the "
        "log.",
        minimum=0,
    ),
    Property(
        "millstream.query.pull.idle.seconds",
        "INTEGER",
        "300",
        "After how many seconds without a pull query what is kept of a source is let go.",
        minimum=0,
    ),
    Property("ksql.query.pull.limit.clause.enabled", "BOOLEAN", "true", "Allow LIMIT in pull queries."),
    Property("ksql.query.push.v2.enabled", "BOOLEAN", "true", "Accepted for compatibility; all push queries scale."),
    Property(
        "ksql.functions.collect_list.limit",
        "INTEGER",
        "1000",
        "How many elements COLLECT_LIST keeps per group.",
        minimum=-1,
    ),
    Property(
        "ksql.functions.collect_set.limit",
        "INTEGER",
        "1000",
        "How many elements COLLECT_SET keeps per group.",
        minimum=-1,
    ),
    Property(
        "ksql.functions.substring.legacy.args",
        "BOOLEAN",
        "false",
        "SUBSTRING(text, start, end) with positions from 0, as before ksqlDB 5.1; only `false` is built.",
        choices=("false",),
    ),
)

_FORMATS = (
    Property(
        "ksql.persistence.default.format.key",
        "STRING",
        "KAFKA",
        "The key format of CREATE statements that name none.",
    ),
    Property(
        "ksql.persistence.default.format.value",
        "STRING",
        "",
        "The value format of CREATE statements that name none; empty: the statement must name one.",
    ),
    Property(
        "ksql.persistence.wrap.single.values",
        "BOOLEAN",
        "true",
        "Write a single value column as an object with one member, instead of the bare value.",
    ),
    Property(
        "ksql.output.topic.name.prefix",
        "STRING",
        "",
        "Put before the names of topics that CREATE … AS makes, where the statement names none.",
    ),
    Property(
        "ksql.sink.partitions",
        "INTEGER",
        "4",
        "Accepted for compatibility; a sink has the partitions of its source unless WITH says otherwise.",
        minimum=1,
        effective=False,
    ),
)

_WINDOWS = (
    Property(
        "millstream.emit.final.idle.ms",
        "INTEGER",
        "0",
        "EMIT FINAL: once a query's sources have brought nothing for so many milliseconds, stream time moves on with "
        "the clock, so that the last windows close. Records that come later may be late then. 0: only records move it. "
        "Such queries run on DuckDB.",
        minimum=0,
    ),
    Property(
        "millstream.emit.final.lossy",
        "BOOLEAN",
        "false",
        "EMIT FINAL gives what ksqlDB gives: windows that are older than the retention (size and grace period, unless "
        "the window says more) when a record closes them are left out. Else every window is given.",
    ),
)

_EXECUTORS = (
    Property(
        "millstream.executor",
        "STRING",
        "auto",
        "What runs persistent queries: Spark, DuckDB, or (auto) Spark where a Java runtime is installed, else DuckDB.",
        choices=("auto", "spark", "duckdb"),
    ),
    Property(
        "millstream.spark.cache",
        "STRING",
        "disk",
        "Where Spark's tasks keep a query's state between batches: in files on the hosts they run on, or in memory. "
        "The truth is in the log either way, and what is lost is read again from there.",
        choices=("disk", "memory"),
    ),
    Property(
        "millstream.spark.bootstrap.servers",
        "STRING",
        "",
        "HOST:PORT under which Spark's processes reach this server's Kafka listener; empty: the address that it has, "
        "which is right for a Spark on this machine.",
        scope="SERVER",
    ),
    Property(
        "millstream.spark.batch.records.max",
        "INTEGER",
        "500000",
        "The most records that one batch of a query on Spark takes from the log. Smaller batches give results sooner "
        "and need less memory; each costs Spark about a quarter of a second.",
        scope="SERVER",
        minimum=1,
    ),
    Property("spark.master", "STRING", "local[*]", "The Spark cluster, as Spark writes it.", scope="SERVER"),
    Property(
        "millstream.duckdb.memory.limit",
        "STRING",
        "",
        "Memory that the DuckDBs of all queries may use together, for example 4GB; empty: half of the machine's. Each "
        "query gets a quarter of what is left when it starts.",
        scope="SERVER",
    ),
    Property(
        "millstream.duckdb.threads",
        "INTEGER",
        "",
        "Threads that one DuckDB may use; empty: one per core, at most 4.",
        scope="SERVER",
        minimum=1,
    ),
    Property(
        "millstream.duckdb.temp.directory",
        "STRING",
        "",
        "Where large operators spill; empty: beside the state.",
        scope="SERVER",
    ),
)

_SERVER = (
    Property("ksql.service.id", "STRING", "default_", "Names this server's consumer groups.", scope="SERVER"),
    Property(
        "ksql.server.command.response.timeout.ms",
        "INTEGER",
        "5000",
        "How long a request waits for the command that its commandSequenceNumber names.",
        scope="SERVER",
        minimum=0,
    ),
    Property(
        "ksql.properties.overrides.denylist",
        "STRING",
        "",
        "Properties, separated by commas, that no session and no request may set.",
        scope="SERVER",
    ),
    Property(
        "ksql.logging.processing.stream.auto.create",
        "BOOLEAN",
        "false",
        "Create the stream KSQL_PROCESSING_LOG over the topic of the processing log when the server starts.",
        scope="SERVER",
    ),
    Property(LISTENERS, "STRING", "http://127.0.0.1:8088", "Where the HTTP server listens.", scope="SERVER"),
    Property("ksql.variable.substitution.enable", "BOOLEAN", "true", "Replace ${name} in statements."),
    Property(
        "ksql.query.persistent.active.limit",
        "INTEGER",
        "2147483647",
        "How many persistent queries may run.",
        scope="SERVER",
        minimum=0,
    ),
    Property("ksql.max.push.queries", "INTEGER", "100", "How many push queries may run.", scope="SERVER", minimum=0),
    Property(
        "ksql.query.pull.max.qps", "INTEGER", "2147483647", "How many pull queries may come in a second.",
        scope="SERVER", minimum=0,
    ),
    Property(
        "ksql.query.pull.max.concurrent.requests", "INTEGER", "2147483647", "How many pull queries may run at a time.",
        scope="SERVER", minimum=0,
    ),
    Property(
        "ksql.query.pull.max.hourly.bandwidth.megabytes", "INTEGER", "2147483647",
        "How many megabytes pull queries may answer with in an hour.", scope="SERVER", minimum=0,
    ),
    Property(
        "millstream.query.push.max.rows", "INTEGER", "0", "How many rows one push query may send; 0: as many as come.",
        scope="SERVER", minimum=0,
    ),
    Property(
        "millstream.query.push.max.seconds", "DOUBLE", "0", "How long one push query may run; 0: as long as it likes.",
        scope="SERVER", minimum=0,
    ),
)  # fmt: skip

_ACCEPTED = (
    "acks",
    "application.id",
    "bootstrap.servers",
    "buffered.records.per.partition",
    "client.id",
    "commit.interval.ms",
    "compression.type",
    "default.deserialization.exception.handler",
    "default.production.exception.handler",
    "default.timestamp.extractor",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "isolation.level",
    "linger.ms",
    "max.poll.records",
    "max.task.idle.ms",
    "metadata.max.age.ms",
    "num.standby.replicas",
    "num.stream.threads",
    "processing.guarantee",
    "producer.acks",
    "replication.factor",
    "request.timeout.ms",
    "retries",
    "rocksdb.config.setter",
    "session.timeout.ms",
    "state.cleanup.delay.ms",
    "state.dir",
    "topology.optimization",
    "ksql.access.validator.enable",
    "ksql.advertised.listener",
    "ksql.create.or.replace.enabled",
    "ksql.extension.dir",
    "ksql.fail.on.production.error",
    "ksql.headers.columns.enabled",
    "ksql.heartbeat.enable",
    "ksql.internal.topic.replicas",
    "ksql.lag.reporting.enable",
    "ksql.lambdas.enabled",
    "ksql.logging.processing.rows.include",
    "ksql.logging.processing.topic.auto.create",
    "ksql.new.query.planner.enabled",
    "ksql.query.pull.consistency.token.enabled",
    "ksql.query.pull.enable.standby.reads",
    "ksql.query.pull.interpreter.enabled",
    "ksql.query.pull.max.allowed.offset.lag",
    "ksql.query.pull.metrics.enabled",
    "ksql.query.push.v2.interpreter.enabled",
    "ksql.query.push.v2.registry.installed",
    "ksql.rowpartition.rowoffset.enabled",
    "ksql.schema.registry.url",
    "ksql.sink.replicas",
    "ksql.source.table.materialization.enabled",
    "ksql.streams.__emit.interval.ms.kstreams.windowed.aggregation__",
    "ksql.streams.state.dir",
    "ksql.udfs.enabled",
    "ksql.windowed.session.key.legacy",
)

PROPERTIES: Mapping[str, Property] = {entry.name: entry for entry in _entries()}
"""All properties by canonical name."""

_BY_ANY_NAME = {
    **{f"ksql.streams.{entry.name}": entry for entry in PROPERTIES.values() if not entry.name.startswith("ksql.")},
    **{alias: entry for entry in PROPERTIES.values() for alias in entry.aliases},
    **PROPERTIES,
}

_OPEN_PREFIXES = (
    "ksql.functions.",
    "ksql.streams.consumer.",
    "ksql.streams.producer.",
    "ksql.streams.topic.",
    "spark.",
)
"""Below these anybody may invent names: settings of functions, of Kafka's clients, of Spark."""


def find_property(name: str, span: Span | None = None) -> Property:
    """The entry of this name or alias. Raises `InvalidProperty`."""
    found = _BY_ANY_NAME.get(name)
    if found is not None:
        return found
    if name.startswith(_OPEN_PREFIXES):
        scope = "SERVER" if name.startswith("spark.") else "SESSION"  # some of Spark's let SQL read files
        return Property(name, "STRING", "", "A setting of a function, a client or Spark.", effective=False, scope=scope)
    raise InvalidProperty(
        f"Not recognizable as a property of Millstream, ksqlDB or Kafka: '{name}'.",
        span=span,
        hint=did_you_mean(name, _BY_ANY_NAME),
    )


def settable_property(name: str, span: Span | None = None) -> Property:
    """The entry, if a session may set it. Raises `InvalidProperty`."""
    found = find_property(name, span)
    if found.scope == "SERVER":
        raise InvalidProperty(
            f"Cannot set property '{found.name}': it belongs to the server.",
            span=span,
            hint="Set it in the server's configuration and start the server again.",
        )
    return found


def checked_properties(given: Mapping[str, object]) -> dict[str, str]:
    """What a configuration or a request brings, under canonical names. Raises `InvalidProperty`."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        entry = find_property(name)
        checked[entry.name] = entry.check(text_of(value))
    return checked


def lenient_properties(given: Mapping[str, object]) -> dict[str, str]:
    """As `checked_properties`, but unknown names are kept as they are: for conformance runs, which set many."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        entry = _BY_ANY_NAME.get(name)
        checked[entry.name if entry else name] = entry.check(text_of(value)) if entry else text_of(value)
    return checked


def number_of(settings: Mapping[str, str], name: str) -> float:
    """The value of a property that is a number, its default where it is not set."""
    return float(settings.get(name, PROPERTIES[name].default))


def text_of(value: object) -> str:
    """A property's value as text: JSON's true is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
