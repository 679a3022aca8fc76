"""The input and the results of the planner: what a statement is planned against, and what to create or run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..sql.ast import Query
from .catalog import Catalog
from .physical import PhysicalPlan
from .planning_settings import PlanningSettings
from .schema import Schema
from .schemas.registry import Registry, Version
from .source_info import SourceInfo
from .specs import SqlExpression


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """What a statement is planned against.

    `properties`: the session's, with names as the user writes them (`auto.offset.reset`). `topics`: existing topics and
    their partition counts. `query_id`: the id of the query, if the statement starts one. `registry`: the schemas.
    `ctes`: the queries of WITH by name, each with the context in which it is planned. `settings`: the properties that
    planning itself uses; the plan contains all properties. `columnar_topics`: whether the log can store columnar
    batches. `answered_once`: whether the query ends with what its sources contain now. Raises `InvalidProperty`.
    """

    catalog: Catalog
    properties: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    query_id: str = "query"
    registry: Registry = field(default_factory=Registry)
    ctes: Mapping[str, tuple[Query, PlanningContext]] = field(default_factory=dict)
    columnar_topics: bool = True
    answered_once: bool = False
    settings: PlanningSettings = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", PlanningSettings.of(self.properties))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`config`: the topic's properties that differ from the defaults, by Kafka's names. `replicas`: 0 means the log's
    default."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """CREATE STREAM|TABLE (…). `topic`, if set, has to be created first, and `schemas` have to be registered first."""

    source: SourceInfo
    topic: NewTopic | None
    schemas: tuple[Version, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A persistent query. `sink` is None for INSERT INTO (the target exists), else the new source, for which `topic`
    has to be created and `schemas` have to be registered first. `backfill`: its history is read on Spark."""

    plan: PhysicalPlan
    sources: tuple[str, ...]
    target: str
    sink: SourceInfo | None
    topic: NewTopic | None
    schemas: tuple[Version, ...] = ()
    backfill: bool = False


@dataclass(frozen=True, slots=True)
class PlannedPush:
    """A push query: rows of `plan.root` in the columns of `schema` (their physical names in `columns`).

    `key`: the positions of the rows' key columns; None if a key column is not selected.
    """

    plan: PhysicalPlan
    schema: Schema
    columns: tuple[str, ...]
    limit: int | None
    key: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A pull query that runs a push query's plan once, over the current contents of its sources.

    `sql`: DuckDB SQL over the relation `answer`: the rows of `plan.root` (net of retractions), and `_place`, the order
    in which they came. Columns beyond those of `schema` are only for ORDER BY. `table`: the result is a table.
    `enough`: how many rows of a stream's answer are enough, if known.
    """

    plan: PhysicalPlan
    sources: tuple[SourceInfo, ...]
    sql: str
    schema: Schema
    table: bool
    enough: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedPull:
    """A pull query: DuckDB SQL over the relation `source`, the materialized rows of `source_info` (for a table the
    latest row per key, for a stream all rows): columns `k0`…, `v0`…, `_ts`, `_ws`, `_we`, `_rowpartition`, `_offset`.

    Columns beyond those of `schema` are only for ORDER BY. `columns`: the SQL of each column. `timestamp`: the source's
    TIMESTAMP column. `batch`: the same query for a stream that is too long to keep in memory.
    """

    source_info: SourceInfo
    sql: str
    schema: Schema
    udfs: tuple[str, ...]
    timestamp: SqlExpression | None
    batch: PlannedBatch | None
    columns: tuple[str, ...] = ()
