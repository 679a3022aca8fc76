"""The answers of EXPLAIN STALL, SHOW LINEAGE and SHOW GRAPH; ksqlDB has none of these statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .entities import Entity


@dataclass(frozen=True, slots=True)
class CauseLine:
    """`blocks`: whether it prevents results. `figures`: the numbers of the message, for programs."""

    code: str
    message: str
    hint: str
    blocks: bool
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStall(Entity):
    """EXPLAIN STALL; causes that block come first."""

    type_name = "query_stall"

    query_id: str
    state: str
    stalled: bool
    causes: list[CauseLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStall(Entity):
    """EXPLAIN STALL CONNECTOR; causes that block come first."""

    type_name = "connector_stall"

    connector: str
    state: str
    stalled: bool
    causes: list[CauseLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStall(Entity):
    """EXPLAIN STALL MIRROR; causes that block come first."""

    type_name = "mirror_stall"

    mirror: str
    state: str
    stalled: bool
    causes: list[CauseLine]


@dataclass(frozen=True, slots=True)
class InfluenceLine:
    """One step back from `output` to `input`, both SOURCE.COLUMN. `query_id` None: both are in one topic."""

    output: str
    input: str
    type: str
    subtype: str
    description: str
    query_id: str | None
    topic: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageShown(Entity):
    """SHOW LINEAGE. `column_lineage`: OpenLineage's facet of this name, down to columns of topics."""

    type_name = "lineage"

    source: str
    column: str | None
    lineage: list[InfluenceLine]
    column_lineage: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphShown(Entity):
    """SHOW GRAPH. `text`: in the requested format; `nodes` and `edges`: for programs that draw the graph themselves."""

    type_name = "graph"

    of: str | None
    format: str
    text: str
    nodes: list[Any]
    edges: list[Any]
