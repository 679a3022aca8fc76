"""The answers of statements, in the shapes of ksqlDB's HTTP API.

An entity is a record; `as_json` returns the client's object: `@type`, then the fields in camel case. `descriptions.py`
describes sources, queries and types inside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """Base of all answers. `type_name` is the `@type`; `statement_text` has no `;`; `warnings` are sentences."""

    type_name: ClassVar[str]

    statement_text: str
    warnings: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The object of the HTTP API, of dicts, lists, texts, numbers and booleans."""
        members = {camel_case(item.name): json_value(getattr(self, item.name)) for item in fields(self)}
        members["statementText"] = f"{self.statement_text};"
        members["warnings"] = [{"message": text} for text in self.warnings]
        return {"@type": self.type_name, **members}


def json_value(value: Any) -> Any:
    """A field's value as JSON: records become objects with their fields in camel case."""
    if is_dataclass(value) and not isinstance(value, type):
        return {camel_case(item.name): json_value(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value


def camel_case(name: str) -> str:
    """`statement_text` is `statementText`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# ------------------------------------------------------------------ what happened


@dataclass(frozen=True, slots=True)
class CommandState:
    """`query_id`: of the query that the statement started or changed."""

    status: str
    message: str
    query_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStatus(Entity):
    """A statement that changed the catalog; `command_id` is ``stream/`NAME`/create``."""

    type_name = "currentStatus"

    command_id: str
    command_status: CommandState
    command_sequence_number: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Entity):
    """A statement that rightly did nothing, such as CREATE … IF NOT EXISTS for an existing source; or a statement with
    a probably unintended effect and no other answer."""

    type_name = "warning_entity"

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsDeleted(Entity):
    """DELETE FROM: the number of deleted rows."""

    type_name = "rows_deleted"

    source_name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedTopic(Entity):
    type_name = "assert_topic"

    topic_name: str
    exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedValues(Entity):
    type_name = "assert_values"

    source_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedSource(Entity):
    type_name = "assert_source"

    source_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedSchema(Entity):
    type_name = "assert_schema"

    subject: str | None
    id: int | None
    exists: bool


# ------------------------------------------------------------------ columns and types


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A SQL type: STRUCT has `fields`, ARRAY and MAP have `member_schema`, DECIMAL has `parameters`."""

    type: str
    fields: list[FieldInfo] | None = None
    member_schema: TypeInfo | None = None
    parameters: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A column, or a field of a struct; `type` is KEY, HEADER or absent."""

    name: str
    schema: TypeInfo
    type: str | None = None
    header_key: str | None = None


# ------------------------------------------------------------------ sources and topics


@dataclass(frozen=True, slots=True)
class SourceLine:
    type: str
    name: str
    topic: str
    key_format: str
    value_format: str
    is_windowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams(Entity):
    type_name = "streams"

    streams: list[SourceLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Entity):
    type_name = "tables"

    tables: list[SourceLine]


@dataclass(frozen=True, slots=True)
class QueryLine:
    query_string: str
    sinks: list[str]
    sink_kafka_topics: list[str]
    id: str
    status_count: dict[str, int]
    query_type: str
    state: str
    executor: str | None  # not in ksqlDB: the executor that runs it, or will run it
    detail: str | None  # not in ksqlDB: its error, what it waits for, or what it does before it reads new records


@dataclass(frozen=True, slots=True)
class QueryOffsets:
    """How far one query has read one partition."""

    query_id: str
    topic: str
    partition: int
    position: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """DESCRIBE. The statistics are filled for EXTENDED only."""

    name: str
    window_type: str | None
    read_queries: list[QueryLine]
    write_queries: list[QueryLine]
    fields: list[FieldInfo]
    type: str
    timestamp: str
    extended: bool
    key_format: str
    value_format: str
    topic: str
    partitions: int
    replication: int
    statement: str
    source_constraints: list[str]
    statistics: str = ""
    error_stats: str = ""
    query_offset_summaries: list[QueryOffsets] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescribed(Entity):
    type_name = "sourceDescription"

    source_description: SourceDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesDescribed(Entity):
    type_name = "source_descriptions"

    source_descriptions: list[SourceDescription]


@dataclass(frozen=True, slots=True)
class TopicLine:
    """`replica_info`: the number of replicas of each partition."""

    name: str
    replica_info: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics(Entity):
    type_name = "kafka_topics"

    topics: list[TopicLine]


@dataclass(frozen=True, slots=True)
class ExtendedTopicLine:
    name: str
    replica_info: list[int]
    consumer_count: int
    consumer_group_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedTopics(Entity):
    type_name = "kafka_topics_extended"

    topics: list[ExtendedTopicLine]


# ------------------------------------------------------------------ queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries(Entity):
    type_name = "queries"

    queries: list[QueryLine]


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """One operator: counts since the query started here, rates over the last ten seconds. `covers`: the steps of the
    plan that it computes. State figures are absent while the query is too busy to answer."""

    step: str
    description: str
    covers: list[str]
    rows_in: int
    rows_out: int
    bytes_out: int
    late_rows: int
    busy_ms: int
    rows_in_per_second: float
    rows_out_per_second: float
    bytes_out_per_second: float
    state_rows: int | None
    state_bytes: int | None


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition of a source. `largest_rowtime`: of the records read since the start; `last_read`: time of the last
    read by the server's clock; both in ms since 1970."""

    topic: str
    partition: int
    position: int | None
    lag: int | None
    largest_rowtime: int | None
    last_read: int | None


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """What EXPLAIN of a running query adds to ksqlDB's answer. `operators` is empty if Spark runs the query: its tasks
    keep no counts per operator."""

    operators: list[OperatorLine] = field(default_factory=list)
    partitions: list[PartitionLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueryDescription:
    """EXPLAIN. `execution_plan` is the physical plan as text; `metrics` counts since the query started."""

    id: str
    statement_text: str
    window_type: str | None
    fields: list[FieldInfo]
    sources: list[str]
    sinks: list[str]
    topology: str
    execution_plan: str
    overridden_properties: dict[str, str]
    query_type: str
    state: str | None
    query_errors: list[str]
    metrics: dict[str, int] = field(default_factory=dict)
    consumer_group_id: str | None = None
    executor: str | None = None  # of a running query
    live: LiveFigures | None = None  # of a running query that was asked for by its id


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescribed(Entity):
    type_name = "queryDescription"

    query_description: QueryDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesDescribed(Entity):
    type_name = "query_descriptions"

    query_descriptions: list[QueryDescription]


# ------------------------------------------------------------------ functions, types, settings


@dataclass(frozen=True, slots=True)
class FunctionLine:
    name: str
    type: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions(Entity):
    type_name = "function_names"

    functions: list[FunctionLine]


@dataclass(frozen=True, slots=True)
class ArgumentInfo:
    name: str
    type: str
    description: str
    is_variadic: bool


@dataclass(frozen=True, slots=True)
class SignatureInfo:
    arguments: list[ArgumentInfo]
    return_type: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDescribed(Entity):
    """`examples` (expression → result) is not in ksqlDB."""

    type_name = "describe_function"

    name: str
    description: str
    type: str
    functions: list[SignatureInfo]
    examples: dict[str, str]
    author: str = "Millstream"
    version: str = ""
    path: str = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorCreated(Entity):
    """`info`: name, type, config without secrets, and tasks, as in Kafka Connect's API."""

    type_name = "connector_info"

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorDropped(Entity):
    type_name = "drop_connector"

    connector_name: str


@dataclass(frozen=True, slots=True)
class ConnectorLine:
    """`state`: `RUNNING (1/1 tasks RUNNING)`."""

    name: str
    type: str
    class_name: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorList(Entity):
    type_name = "connector_list"

    connectors: list[ConnectorLine]


@dataclass(frozen=True, slots=True)
class ConnectorPluginLine:
    """`description` is not in ksqlDB."""

    class_name: str
    type: str
    version: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorPlugins(Entity):
    type_name = "connector_plugins_list"

    connector_plugins: list[ConnectorPluginLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorDescribed(Entity):
    """`status`: as in Kafka Connect's API. Not in ksqlDB: `config` (without secrets), `guarantee`, `task_figures` (per
    task)."""

    type_name = "connector_description"

    connector_class: str
    status: Mapping[str, Any]
    sources: list[SourceDescription]
    topics: list[str]
    config: Mapping[str, str]
    guarantee: str
    task_figures: list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SecretLine:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretList(Entity):
    """Names only: no statement returns a secret's value."""

    type_name = "secret_list"

    secrets: list[SecretLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Types(Entity):
    type_name = "type_list"

    types: dict[str, TypeInfo]


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """`level`: SERVER, or SESSION if SET gave the value."""

    name: str
    scope: str
    value: str
    editable: bool
    level: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyList(Entity):
    type_name = "properties"

    properties: list[PropertyLine]
    overwritten_properties: list[str]
    default_properties: list[str]


@dataclass(frozen=True, slots=True)
class VariableLine:
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables(Entity):
    type_name = "variables"

    variables: list[VariableLine]
