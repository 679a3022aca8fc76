"""The entry point of the planner: a statement in, what to create or run out."""

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

    `properties`: the session's, names as the user writes them (`auto.offset.reset`). `topics`: existing topics and
    their partition counts. `query_id`: the id to give, should the statement start a query. `registry`: the schemas.
    `ctes`: the queries of WITH by name, each with the context in which it is planned. `settings`: what planning itself
    takes from the properties; the plan carries all of them. `columnar_topics`: whether the log can store them. Raises
    `InvalidProperty`.
    """

    catalog: Catalog
    properties: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    query_id: str = "query"
    registry: Registry = field(default_factory=Registry)
    ctes: Mapping[str, tuple[Query, PlanningContext]] = field(default_factory=dict)
    columnar_topics: bool = True
    settings: PlanningSettings = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", PlanningSettings.of(self.properties))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`config`: Kafka's properties of a topic, as far as they are not the defaults. `replicas`: 0 is what the log
    does by default."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """CREATE STREAM|TABLE (…): `topic`, if set, has to be created first, `schemas` are to be registered first."""

    source: SourceInfo
    topic: NewTopic | None
    schemas: tuple[Version, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A persistent query. `sink` is None for INSERT INTO (the target exists), else the new source, for which `topic`
    has to be created and `schemas` are to be registered first. `backfill`: its history is to be read on Spark."""

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

    `key`: which columns are the rows' key, by position; None where a part of the key is not among them.
    """

    plan: PhysicalPlan
    schema: Schema
    columns: tuple[str, ...]
    limit: int | None
    key: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A pull query that runs a push query's plan once, over what its sources hold.

    `sql`: DuckDB's, over the relation `answer`: the rows that `plan.root` gives (net of retractions), and `_place`,
    the order in which they came. Columns beyond those of `schema` only serve the order. `table`: it gives a table.
    `whole`: one row of everything, also of nothing. `enough`: how many rows of a stream's answer suffice, where known.
    """

    plan: PhysicalPlan
    sources: tuple[SourceInfo, ...]
    sql: str
    schema: Schema
    table: bool
    whole: bool = False
    enough: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedPull:
    """A pull query: DuckDB SQL over the relation `source`, the rows of `source_info` materialised (for a table the
    latest row per key, for a stream all rows): columns `k0`…, `v0`…, `_ts`, `_ws`, `_we`, `_rowpartition`, `_offset`.

    Columns beyond those of `schema` only serve the order. `columns`: the SQL of each. `timestamp`: the source's
    TIMESTAMP column. `batch`: the same query for a stream that is too long to be kept in memory.
    """

    source_info: SourceInfo
    sql: str
    schema: Schema
    udfs: tuple[str, ...]
    timestamp: SqlExpression | None
    batch: PlannedBatch | None
    columns: tuple[str, ...] = ()
