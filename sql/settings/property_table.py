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
    "Where a query starts reading a topic without a committed offset: at its start (earliest), at its end (latest), "
    "or at a time (2026-01-01T00:00:00Z, or milliseconds since 1970).",
    parse_reset,
    aliases=("ksql.streams.auto.offset.reset", "ksql.streams.consumer.auto.offset.reset"),
    choices=("earliest", "latest"),
)
START_OFFSETS: Final = form(
    "millstream.start.offsets",
    "",
    'Start offsets of a query, by topic and partition: {"clicks": {"0": 42}}; other partitions start at '
    "auto.offset.reset.",
    parse_start_offsets,
)
FAIL_ON_BAD_RECORD: Final = switch(
    "ksql.fail.on.deserialization.error",
    False,
    "In a Sandbox, stop at a record that cannot be decoded. A server's queries continue, and write it to the "
    "processing log.",
)
FAIL_ON_BAD_TIMESTAMP: Final = switch(
    "ksql.timestamp.throw.on.invalid",
    False,
    "End a query at a record without a usable timestamp, such as a text that TIMESTAMP_FORMAT cannot read. `false` "
    "leaves the record out and writes it to the processing log.",
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
    "Allow CREATE FUNCTION with Python code, which has all rights of the server's process. Off in a server unless "
    "its configuration sets it; on in a sandbox, in the demo and in a shell without a server.",
    scope="SERVER",
)
SECRETS_KEY: Final = text(
    "millstream.connect.key.file",
    "",
    "File with the key that encrypts the passwords of connectors, with mode 0600: 32 letters or more, as "
    "`openssl rand -base64 32` makes them. By default `connect.key` in the data folder, which a single server creates. "
    "In a cluster, and on an external log, every server needs the same key.",
    scope="SERVER",
)
CONNECT_URL: Final = text(
    "ksql.connect.url",
    "",
    "Addresses of the workers of a Kafka Connect cluster, http://HOST:8083, separated by commas: the statements about "
    "connectors go there. By default connectors run in this server.",
    scope="SERVER",
)
CONNECT_TIMEOUT_MS: Final = whole(
    "ksql.connect.request.timeout.ms",
    30_000,
    "How long a worker of that cluster may take for an answer, in milliseconds.",
    minimum=1,
    scope="SERVER",
)
CONNECT_CREDENTIALS_SOURCE: Final = text(
    "ksql.connect.basic.auth.credentials.source",
    "NONE",
    "FILE: requests to that cluster carry the user and password of ksql.connect.basic.auth.credentials.file; NONE: "
    "they carry none.",
    scope="SERVER",
)
CONNECT_CREDENTIALS_FILE: Final = text(
    "ksql.connect.basic.auth.credentials.file",
    "",
    "File with the lines username=… and password=…; it is read for each request.",
    scope="SERVER",
)
PULL_TABLE_SCANS: Final = switch(
    "ksql.query.pull.table.scan.enabled",
    True,
    "Allow pull queries to read a whole table; otherwise they need a WHERE on the key.",
)
PULL_RANGE_SCANS: Final = switch(
    "ksql.query.pull.range.scan.enabled",
    True,
    "Allow pull queries to read a range of keys.",
)
PULL_STREAMS: Final = switch(
    "ksql.query.pull.stream.enabled",
    True,
    "Allow pull queries over streams.",
)
PULL_FULL_SQL: Final = switch(
    "millstream.pull.full.sql",
    False,
    "Allow full SQL in pull queries (joins, GROUP BY, windows), and tables that CREATE TABLE declares on a topic; "
    "ksqlDB refuses both.",
    aliases=("millstream.pull.any.table",),
)
PULL_SECONDS: Final = number(
    "millstream.query.pull.max.seconds",
    60,
    "Time limit of a pull query, in seconds.",
    minimum=0,
)
PULL_ROWS: Final = whole(
    "millstream.query.pull.max.rows",
    10_000_000,
    "Limit of the rows of a pull query's answer.",
    minimum=1,
)
PULL_BYTES: Final = whole(
    "millstream.query.pull.max.bytes",
    1_073_741_824,
    "Limit of the size of a pull query's answer in memory.",
    minimum=1,
)
VALUE_BYTES: Final = whole(
    "millstream.value.max.bytes",
    16_777_216,
    "Limit of the size of a function's result. Beyond it, a persistent query uses NULL and writes the row to the "
    "processing log; a pull query fails.",
    minimum=1,
)
FUNCTION_SECONDS: Final = number(
    "millstream.functions.max.seconds",
    5,
    "Time limit of a function for one row, including user-defined functions in Python. Beyond it, as with "
    "millstream.value.max.bytes.",
    minimum=0,
)
PULL_MEMORY: Final = form(
    "millstream.query.pull.max.memory",
    "",
    "Memory limit of a pull query with joins, GROUP BY or over a long stream, for example 512MB; empty: as "
    "millstream.duckdb.memory.limit.",
    parse_memory,
)
PULL_STREAM_ROWS: Final = whole(
    "millstream.query.pull.max.stream.rows",
    1_000_000,
    "Records of a stream that are cached in memory for pull queries; for a longer stream each pull query reads the "
    "log.",
    minimum=0,
)
PULL_IDLE_SECONDS: Final = whole(
    "millstream.query.pull.idle.seconds",
    300,
    "Seconds without a pull query after which a cached source is dropped.",
    minimum=0,
)
PULL_LIMIT_CLAUSE: Final = switch(
    "ksql.query.pull.limit.clause.enabled",
    True,
    "Allow LIMIT in pull queries.",
)
COLLECT_LIST_LIMIT: Final = whole(
    "ksql.functions.collect_list.limit",
    -1,
    "Limit of the elements of COLLECT_LIST per group, beyond which values are dropped; -1: none.",
    minimum=-1,
)
COLLECT_SET_LIMIT: Final = whole(
    "ksql.functions.collect_set.limit",
    -1,
    "Limit of the elements of COLLECT_SET per group, beyond which values are dropped; -1: none.",
    minimum=-1,
)
NEW_QUERY_PLANNER: Final = switch(
    "ksql.new.query.planner.enabled",
    False,
    "Allow CREATE … AS SELECT without the source's key: the result has no key.",
)

# ------------------------------------------------------------------ formats and topics

DEFAULT_KEY_FORMAT: Final = text(
    "ksql.persistence.default.format.key",
    "KAFKA",
    "Default key format of CREATE statements.",
)
DEFAULT_VALUE_FORMAT: Final = text(
    "ksql.persistence.default.format.value",
    "",
    "Default value format of CREATE statements; empty: the statement must set one.",
)
WRAP_SINGLE_VALUES: Final = switch(
    "ksql.persistence.wrap.single.values",
    True,
    "Write a single value column as an object with one member, instead of the bare value.",
)
TOPIC_PREFIX: Final = text(
    "ksql.output.topic.name.prefix",
    "",
    "Prefix of the default topic names of CREATE … AS.",
)
SINK_PARTITIONS: Final = whole(
    "ksql.sink.partitions",
    4,
    "Accepted for compatibility; a sink has the partitions of its source unless WITH sets them.",
    minimum=1,
    effective=False,
)

# ------------------------------------------------------------------ windows that close

FINAL_IDLE_MS: Final = whole(
    "millstream.emit.final.idle.ms",
    0,
    "EMIT FINAL: if a query's sources are idle for this many milliseconds, stream time advances with the clock, so "
    "that the last windows close. Records that arrive later may then be late. 0: only records advance stream time. "
    "Such queries run on DuckDB.",
    minimum=0,
)
FINAL_LOSSY: Final = switch(
    "millstream.emit.final.lossy",
    False,
    "EMIT FINAL behaves exactly as in ksqlDB: windows that are older than their retention (by default size plus "
    "grace period) when a record closes them are not emitted. Otherwise every window is emitted.",
)

# ------------------------------------------------------------------ executors

EXECUTOR: Final[Property[ExecutorChoice]] = choice(
    "millstream.executor",
    "auto",
    "Executor of persistent queries: Spark, DuckDB, or (auto) Spark if a Java runtime is installed, otherwise DuckDB.",
    choices=_EXECUTORS,
)
SPARK_CACHE: Final[Property[SparkCache]] = choice(
    "millstream.spark.cache",
    "disk",
    "Where Spark's tasks cache a query's state between batches: in files on their hosts, or in memory. The state "
    "itself is in the log; a lost cache is rebuilt from there. On a cluster the files are in the first of "
    "SPARK_LOCAL_DIRS, in a folder that only the executor's user can open.",
    choices=_CACHES,
)
SPARK_LOG_LEVEL: Final = text(
    "spark.log.level", "ERROR", "Minimum log level of Spark, in Spark's notation.", scope="SERVER"
)
SPARK_BOOTSTRAP: Final = text(
    "millstream.spark.bootstrap.servers",
    "",
    "HOST:PORT at which Spark's processes reach this server's Kafka listener; empty: its own address, for Spark on "
    "this machine.",
    scope="SERVER",
)
SPARK_BATCH_RECORDS: Final = whole(
    "millstream.spark.batch.records.max",
    500_000,
    "Maximum records per batch of a query on Spark. Smaller batches give results sooner and need less memory; each "
    "batch is a Spark job.",
    scope="SERVER",
    minimum=1,
)
SPARK_MASTER: Final = text(
    "spark.master",
    "local[*]",
    "The Spark cluster, in Spark's notation.",
    scope="SERVER",
)
DUCKDB_MEMORY: Final = form(
    "millstream.duckdb.memory.limit",
    "",
    "Memory limit of the DuckDB instances of all queries together, for example 4GB; empty: half of the machine's "
    "memory. Each query gets a quarter of the remaining memory when it starts. In addition, each store of a query "
    "keeps rows in memory, at most 512 MB and a quarter of the query's limit, and about 36 bytes for "
    "each key. Further rows are in a temporary file.",
    parse_memory,
    scope="SERVER",
)
DUCKDB_THREADS: Final = whole_or_none(
    "millstream.duckdb.threads",
    "Threads of one DuckDB instance; empty: one for a persistent query, whose batches the pool divides, else one per "
    "core, at most 4.",
    scope="SERVER",
    minimum=1,
)
DUCKDB_TEMP: Final = text(
    "millstream.duckdb.temp.directory",
    "",
    "Folder into which large operators spill; empty: next to the state.",
    scope="SERVER",
)

# ------------------------------------------------------------------ the server

SERVICE_ID: Final = text(
    "ksql.service.id",
    "default_",
    "The service id that this server reports, as in /info.",
    scope="SERVER",
)
COMMAND_TIMEOUT_MS: Final = whole(
    "ksql.server.command.response.timeout.ms",
    5000,
    "How long a request waits for the command of its commandSequenceNumber.",
    scope="SERVER",
    minimum=0,
)
ASSERT_TOPIC_MS: Final = whole(
    "ksql.assert.topic.default.timeout.ms",
    1000,
    "How long ASSERT TOPIC waits if it has no TIMEOUT.",
    scope="SERVER",
    minimum=0,
)
ASSERT_SCHEMA_MS: Final = whole(
    "ksql.assert.schema.default.timeout.ms",
    1000,
    "How long ASSERT SCHEMA waits if it has no TIMEOUT.",
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
    "The public URL of this server: its host is accepted like those of `http_hosts`.",
    scope="SERVER",
)
LISTENERS: Final = text(
    "listeners",
    "http://127.0.0.1:8088",
    "Address of the HTTP listener.",
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
    "Limit of persistent queries.",
    scope="SERVER",
    minimum=0,
)
PUSH_QUERIES: Final = whole(
    "ksql.max.push.queries",
    100,
    "Limit of push queries.",
    scope="SERVER",
    minimum=0,
)
PULL_RATE: Final = whole(
    "ksql.query.pull.max.qps",
    2_147_483_647,
    "Limit of pull queries per second.",
    scope="SERVER",
    minimum=0,
)
PULL_CONCURRENT: Final = whole(
    "ksql.query.pull.max.concurrent.requests",
    2_147_483_647,
    "Limit of concurrent pull queries.",
    scope="SERVER",
    minimum=0,
)
PULL_MEGABYTES: Final = whole(
    "ksql.query.pull.max.hourly.bandwidth.megabytes",
    2_147_483_647,
    "Limit of the megabytes of answers to pull queries per hour.",
    scope="SERVER",
    minimum=0,
)
PUSH_ROWS: Final = whole(
    "millstream.query.push.max.rows",
    0,
    "Limit of the rows of a push query; 0: none.",
    scope="SERVER",
    minimum=0,
)
PUSH_SECONDS: Final = number(
    "millstream.query.push.max.seconds",
    0,
    "Time limit of a push query; 0: none.",
    scope="SERVER",
    minimum=0,
)

# ------------------------------------------------------------------ without effect

_NOTHING: Final = "Accepted for compatibility; has no effect."

_EMIT_FINAL: Final = switch("ksql.suppress.enabled", True, _NOTHING, effective=False)
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
    "task.timeout.ms",
    "topology.optimization",
    "ksql.access.validator.enable",
    "ksql.connect.basic.auth.credentials.reload",
    "ksql.create.or.replace.enabled",
    "ksql.extension.dir",
    "ksql.fail.on.production.error",
    "ksql.headers.columns.enabled",
    "ksql.heartbeat.enable",
    "ksql.internal.topic.replicas",
    "ksql.json_sr.converter.deserializer.enabled",
    "ksql.lag.reporting.enable",
    "ksql.lambdas.enabled",
    "ksql.logging.processing.rows.include",
    "ksql.logging.processing.topic.auto.create",
    "ksql.logging.processing.topic.partitions",
    "ksql.logging.processing.topic.replication.factor",
    "ksql.logging.server.rate.limited.request.paths",
    "ksql.logging.server.rate.limited.response.codes",
    "ksql.metrics.tags.custom",
    "ksql.query.pull.consistency.token.enabled",
    "ksql.query.pull.enable.standby.reads",
    "ksql.query.pull.interpreter.enabled",
    "ksql.query.pull.max.allowed.offset.lag",
    "ksql.query.pull.metrics.enabled",
    "ksql.query.push.v2.interpreter.enabled",
    "ksql.query.push.v2.registry.installed",
    "ksql.rowpartition.rowoffset.enabled",
    "ksql.runtime.feature.shared.enabled",
    "ksql.schema.registry.url",
    "ksql.sink.replicas",
    "ksql.source.table.materialization.enabled",
    "ksql.streams.__emit.interval.ms.kstreams.windowed.aggregation__",
    "ksql.streams.state.dir",
    "ksql.udf.collect.metrics",
    "ksql.udfs.enabled",
    "ksql.windowed.session.key.legacy",
)


_ALL: Final = (
    *(entry for entry in list(globals().values()) if isinstance(entry, Property)),
    *(text(name, "", _NOTHING, effective=False) for name in _ACCEPTED),
)

PROPERTIES: Final[Mapping[str, Property[object]]] = {entry.name: entry for entry in _ALL}
"""All properties by canonical name."""
