"""The properties, one entry each. What they do lives with the records that read them.

A property has one canonical name (`auto.offset.reset`) and aliases (`ksql.streams.auto.offset.reset`); sessions, stored
plans and everything that reads them see canonical names and text values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from .property import Property, choice, form, number, switch, text, whole, whole_or_none
from .property_values import parse_memory, parse_reset, parse_start_offsets

ExecutorChoice = Literal["auto", "spark", "duckdb"]
SparkCache = Literal["disk", "memory"]

_EXECUTORS: Final[Mapping[str, ExecutorChoice]] = {"auto": "auto", "spark": "spark", "duckdb": "duckdb"}
_CACHES: Final[Mapping[str, SparkCache]] = {"disk": "disk", "memory": "memory"}

# ------------------------------------------------------------------ what queries read

OFFSET_RESET: Final = form(
    "auto.offset.reset",
    "latest",
    "Where a query begins to read a topic of which it has no committed offset: at its start (earliest), at its end "
    "(latest), or at the first record of a time (2026-01-01T00:00:00Z, or milliseconds since 1970).",
    parse_reset,
    aliases=("ksql.streams.auto.offset.reset", "ksql.streams.consumer.auto.offset.reset"),
    choices=("earliest", "latest"),
)
START_OFFSETS: Final = form(
    "millstream.start.offsets",
    "",
    'Offsets at which a query begins, by topic and partition: {"clicks": {"0": 42}}; what it does not name begins '
    "as auto.offset.reset says.",
    parse_start_offsets,
)
FAIL_ON_BAD_RECORD: Final = switch(
    "ksql.fail.on.deserialization.error",
    False,
    "In a Sandbox, stop at a record that cannot be decoded. A server's queries go on, and write it to the processing "
    "log.",
)
CACHE_BYTES: Final = whole(
    "ksql.streams.cache.max.bytes.buffering",
    10_485_760,
    "0 emits every change of a table; any other value only a key's last change per batch.",
    aliases=("cache.max.bytes.buffering", "ksql.streams.statestore.cache.max.bytes", "statestore.cache.max.bytes"),
    minimum=0,
)

# ------------------------------------------------------------------ queries and functions

PYTHON_FUNCTIONS: Final = switch(
    "millstream.functions.python.enabled",
    False,
    "Let CREATE FUNCTION bring Python code, which runs with all rights of the server's process. Off in a server "
    "unless its configuration says so; on in a sandbox, in the demo and in a shell without a server.",
    scope="SERVER",
)
PULL_TABLE_SCANS: Final = switch(
    "ksql.query.pull.table.scan.enabled",
    True,
    "Let pull queries read a whole table; without it a WHERE on the key is needed.",
)
PULL_RANGE_SCANS: Final = switch(
    "ksql.query.pull.range.scan.enabled",
    True,
    "Let pull queries read a range of keys.",
)
PULL_STREAMS: Final = switch(
    "ksql.query.pull.stream.enabled",
    True,
    "Allow pull queries over streams.",
)
PULL_FULL_SQL: Final = switch(
    "millstream.pull.full.sql",
    False,
    "Let pull queries use all of SQL (joins, GROUP BY, windows) and read tables that CREATE TABLE only declares on "
    "a topic; ksqlDB refuses both.",
    aliases=("millstream.pull.any.table",),
)
PULL_SECONDS: Final = number(
    "millstream.query.pull.max.seconds",
    60,
    "How long a pull query may take, in seconds.",
    minimum=0,
)
PULL_ROWS: Final = whole(
    "millstream.query.pull.max.rows",
    10_000_000,
    "How many rows its answer may have.",
    minimum=1,
)
PULL_BYTES: Final = whole(
    "millstream.query.pull.max.bytes",
    1_073_741_824,
    "How many bytes its answer may have in memory.",
    minimum=1,
)
VALUE_BYTES: Final = whole(
    "millstream.value.max.bytes",
    16_777_216,
    "How large a value may be that a function makes. A persistent query writes the row to the processing log and "
    "has NULL there; a pull query ends with an error.",
    minimum=1,
)
FUNCTION_SECONDS: Final = number(
    "millstream.functions.max.seconds",
    5,
    "How long a function may compute for one row, users' functions in Python included. What becomes of the row, "
    "millstream.value.max.bytes says.",
    minimum=0,
)
PULL_MEMORY: Final = form(
    "millstream.query.pull.max.memory",
    "",
    "Memory that one pull query with joins, GROUP BY or over a long stream may use, for example 512MB; empty: as "
    "millstream.duckdb.memory.limit says.",
    parse_memory,
)
PULL_STREAM_ROWS: Final = whole(
    "millstream.query.pull.max.stream.rows",
    1_000_000,
    "How many records of a stream are kept in memory for pull queries; of longer streams each pull query reads the "
    "log.",
    minimum=0,
)
PULL_IDLE_SECONDS: Final = whole(
    "millstream.query.pull.idle.seconds",
    300,
    "After how many seconds without a pull query what is kept of a source is let go.",
    minimum=0,
)
PULL_LIMIT_CLAUSE: Final = switch(
    "ksql.query.pull.limit.clause.enabled",
    True,
    "Allow LIMIT in pull queries.",
)
COLLECT_LIST_LIMIT: Final = whole(
    "ksql.functions.collect_list.limit",
    1000,
    "How many elements COLLECT_LIST keeps per group.",
    minimum=-1,
)
COLLECT_SET_LIMIT: Final = whole(
    "ksql.functions.collect_set.limit",
    1000,
    "How many elements COLLECT_SET keeps per group.",
    minimum=-1,
)
NEW_QUERY_PLANNER: Final = switch(
    "ksql.new.query.planner.enabled",
    False,
    "Let CREATE … AS SELECT leave out the key of a source: the result has no key.",
)

# ------------------------------------------------------------------ formats and topics

DEFAULT_KEY_FORMAT: Final = text(
    "ksql.persistence.default.format.key",
    "KAFKA",
    "The key format of CREATE statements that name none.",
)
DEFAULT_VALUE_FORMAT: Final = text(
    "ksql.persistence.default.format.value",
    "",
    "The value format of CREATE statements that name none; empty: the statement must name one.",
)
WRAP_SINGLE_VALUES: Final = switch(
    "ksql.persistence.wrap.single.values",
    True,
    "Write a single value column as an object with one member, instead of the bare value.",
)
TOPIC_PREFIX: Final = text(
    "ksql.output.topic.name.prefix",
    "",
    "Put before the names of topics that CREATE … AS makes, where the statement names none.",
)
SINK_PARTITIONS: Final = whole(
    "ksql.sink.partitions",
    4,
    "Accepted for compatibility; a sink has the partitions of its source unless WITH says otherwise.",
    minimum=1,
    effective=False,
)

# ------------------------------------------------------------------ windows that close

FINAL_IDLE_MS: Final = whole(
    "millstream.emit.final.idle.ms",
    0,
    "EMIT FINAL: once a query's sources have brought nothing for so many milliseconds, stream time moves on with "
    "the clock, so that the last windows close. Records that come later may be late then. 0: only records move it. "
    "Such queries run on DuckDB.",
    minimum=0,
)
FINAL_LOSSY: Final = switch(
    "millstream.emit.final.lossy",
    False,
    "EMIT FINAL gives what ksqlDB gives: windows that are older than the retention (size and grace period, unless "
    "the window says more) when a record closes them are left out. Else every window is given.",
)

# ------------------------------------------------------------------ executors

EXECUTOR: Final = choice(
    "millstream.executor",
    "auto",
    "What runs persistent queries: Spark, DuckDB, or (auto) Spark where a Java runtime is installed, else DuckDB.",
    choices=_EXECUTORS,
)
SPARK_CACHE: Final = choice(
    "millstream.spark.cache",
    "disk",
    "Where Spark's tasks keep a query's state between batches: in files on the hosts they run on, or in memory. "
    "The truth is in the log either way, and what is lost is read again from there. On a cluster the files are in the "
    "first of SPARK_LOCAL_DIRS, in a folder that only the executor's user can open.",
    choices=_CACHES,
)
SPARK_LOG_LEVEL: Final = text(
    "spark.log.level", "ERROR", "The least that Spark logs, as Spark writes it.", scope="SERVER"
)
SPARK_BOOTSTRAP: Final = text(
    "millstream.spark.bootstrap.servers",
    "",
    "HOST:PORT under which Spark's processes reach this server's Kafka listener; empty: the address that it has, "
    "which is right for a Spark on this machine.",
    scope="SERVER",
)
SPARK_BATCH_RECORDS: Final = whole(
    "millstream.spark.batch.records.max",
    500_000,
    "The most records that one batch of a query on Spark takes from the log. Smaller batches give results sooner "
    "and need less memory; each is a job of Spark.",
    scope="SERVER",
    minimum=1,
)
SPARK_MASTER: Final = text(
    "spark.master",
    "local[*]",
    "The Spark cluster, as Spark writes it.",
    scope="SERVER",
)
DUCKDB_MEMORY: Final = text(
    "millstream.duckdb.memory.limit",
    "",
    "Memory that the DuckDBs of all queries may use together, for example 4GB; empty: half of the machine's. Each "
    "query gets a quarter of what is left when it starts.",
    scope="SERVER",
)
DUCKDB_THREADS: Final = whole_or_none(
    "millstream.duckdb.threads",
    "Threads that one DuckDB may use; empty: one per core, at most 4.",
    scope="SERVER",
    minimum=1,
)
DUCKDB_TEMP: Final = text(
    "millstream.duckdb.temp.directory",
    "",
    "Where large operators spill; empty: beside the state.",
    scope="SERVER",
)

# ------------------------------------------------------------------ the server

SERVICE_ID: Final = text(
    "ksql.service.id",
    "default_",
    "Names this server's consumer groups.",
    scope="SERVER",
)
COMMAND_TIMEOUT_MS: Final = whole(
    "ksql.server.command.response.timeout.ms",
    5000,
    "How long a request waits for the command that its commandSequenceNumber names.",
    scope="SERVER",
    minimum=0,
)
DENYLIST: Final = text(
    "ksql.properties.overrides.denylist",
    "",
    "Properties, separated by commas, that no session and no request may set.",
    scope="SERVER",
)
PROCESSING_LOG_STREAM: Final = switch(
    "ksql.logging.processing.stream.auto.create",
    False,
    "Create the stream KSQL_PROCESSING_LOG over the topic of the processing log when the server starts.",
    scope="SERVER",
)
ADVERTISED_LISTENER: Final = text(
    "ksql.advertised.listener",
    "",
    "The URL under which others reach this server: requests for its host are answered, as those for `http_hosts`.",
    scope="SERVER",
)
LISTENERS: Final = text(
    "listeners",
    "http://127.0.0.1:8088",
    "Where the HTTP server listens.",
    scope="SERVER",
)
VARIABLE_SUBSTITUTION: Final = switch(
    "ksql.variable.substitution.enable",
    True,
    "Replace ${name} in statements.",
)
PERSISTENT_QUERIES: Final = whole(
    "ksql.query.persistent.active.limit",
    2_147_483_647,
    "How many persistent queries may run.",
    scope="SERVER",
    minimum=0,
)
PUSH_QUERIES: Final = whole(
    "ksql.max.push.queries",
    100,
    "How many push queries may run.",
    scope="SERVER",
    minimum=0,
)
PULL_RATE: Final = whole(
    "ksql.query.pull.max.qps",
    2_147_483_647,
    "How many pull queries may come in a second.",
    scope="SERVER",
    minimum=0,
)
PULL_CONCURRENT: Final = whole(
    "ksql.query.pull.max.concurrent.requests",
    2_147_483_647,
    "How many pull queries may run at a time.",
    scope="SERVER",
    minimum=0,
)
PULL_MEGABYTES: Final = whole(
    "ksql.query.pull.max.hourly.bandwidth.megabytes",
    2_147_483_647,
    "How many megabytes pull queries may answer with in an hour.",
    scope="SERVER",
    minimum=0,
)
PUSH_ROWS: Final = whole(
    "millstream.query.push.max.rows",
    0,
    "How many rows one push query may send; 0: as many as come.",
    scope="SERVER",
    minimum=0,
)
PUSH_SECONDS: Final = number(
    "millstream.query.push.max.seconds",
    0,
    "How long one push query may run; 0: as long as it likes.",
    scope="SERVER",
    minimum=0,
)

# ------------------------------------------------------------------ without effect

_NOTHING: Final = "Accepted for compatibility; changes nothing."

_EMIT_FINAL: Final = switch("ksql.suppress.enabled", True, _NOTHING, effective=False)
_FAIL_ON_BAD_TIMESTAMP: Final = switch("ksql.timestamp.throw.on.invalid", False, _NOTHING, effective=False)
_PUSH_V2: Final = switch("ksql.query.push.v2.enabled", True, _NOTHING, effective=False)
_SUBSTRING_LEGACY: Final = switch(
    "ksql.functions.substring.legacy.args", False, _NOTHING, choices=("false",), effective=False
)
_ACCEPTED: Final = (
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


_ALL: Final = (
    *(entry for entry in list(globals().values()) if isinstance(entry, Property)),
    *(text(name, "", _NOTHING, effective=False) for name in _ACCEPTED),
)

PROPERTIES: Final[Mapping[str, Property[object]]] = {entry.name: entry for entry in _ALL}
"""All properties by canonical name."""
