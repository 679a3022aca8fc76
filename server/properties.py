"""The properties that SET, the configuration and requests can name: one entry each. What they do lives elsewhere.

A property has one canonical name (`auto.offset.reset`) and aliases (`ksql.streams.auto.offset.reset`); everything
behind this file sees canonical names and text values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from millstream.errors import InvalidProperty, Span, did_you_mean

PropertyType = Literal["STRING", "BOOLEAN", "INTEGER", "DOUBLE"]


@dataclass(frozen=True, slots=True)
class Property:
    """`scope`: SESSION ones can be SET; SERVER ones are read once at start. `choices`: the values it may have, in
    lower case. `minimum`: of a number. `effective`: False for names of Kafka's and ksqlDB's that are accepted, so that
    scripts run, and change nothing here."""

    name: str
    type: PropertyType
    default: str
    doc: str
    scope: Literal["SESSION", "SERVER"] = "SESSION"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    effective: bool = True

    def check(self, value: str, span: Span | None = None) -> str:
        """The value in its one spelling. Raises `InvalidProperty`."""
        text = value.strip()
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
                               hint=hint)  # fmt: skip


def _entries() -> Iterable[Property]:
    yield from _READING
    yield from _QUERIES
    yield from _FORMATS
    yield from _EXECUTORS
    yield from _SERVER
    for name in _ACCEPTED:
        yield Property(name, "STRING", "", "Accepted for compatibility; changes nothing.", effective=False)


_READING = (
    Property(
        "auto.offset.reset",
        "STRING",
        "latest",
        "Where a query begins to read a topic of which it has no committed offset: at its start or at its end.",
        aliases=("ksql.streams.auto.offset.reset", "ksql.streams.consumer.auto.offset.reset"),
        choices=("earliest", "latest"),
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
        "millstream.pull.any.table",
        "BOOLEAN",
        "false",
        "Let pull queries read tables that CREATE TABLE only declares on a topic; ksqlDB refuses those.",
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

_EXECUTORS = (
    Property(
        "millstream.executor",
        "STRING",
        "auto",
        "What runs persistent queries: Spark, DuckDB, or (auto) Spark where a Java runtime is installed, else DuckDB.",
        choices=("auto", "spark", "duckdb"),
    ),
    Property("spark.master", "STRING", "local[*]", "The Spark cluster, as Spark writes it.", scope="SERVER"),
    Property(
        "millstream.duckdb.memory.limit",
        "STRING",
        "",
        "Memory that one DuckDB may use, for example 4GB; empty: DuckDB's default.",
        scope="SERVER",
    ),
    Property(
        "millstream.duckdb.threads",
        "INTEGER",
        "",
        "Threads that one DuckDB may use; empty: one per core.",
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
    Property("listeners", "STRING", "http://127.0.0.1:8088", "Where the HTTP server listens.", scope="SERVER"),
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
)

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
    "ksql.extension.dir",
    "ksql.fail.on.production.error",
    "ksql.headers.columns.enabled",
    "ksql.heartbeat.enable",
    "ksql.internal.topic.replicas",
    "ksql.lag.reporting.enable",
    "ksql.lambdas.enabled",
    "ksql.logging.processing.rows.include",
    "ksql.logging.processing.stream.auto.create",
    "ksql.logging.processing.topic.auto.create",
    "ksql.new.query.planner.enabled",
    "ksql.query.pull.consistency.token.enabled",
    "ksql.query.pull.enable.standby.reads",
    "ksql.query.pull.interpreter.enabled",
    "ksql.query.pull.max.allowed.offset.lag",
    "ksql.query.pull.max.concurrent.requests",
    "ksql.query.pull.max.qps",
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
        return Property(name, "STRING", "", "A setting of a function, a client or Spark.", effective=False)
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


def text_of(value: object) -> str:
    """A property's value as text: JSON's true is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
